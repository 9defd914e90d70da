//! What the page shows of a conversation, and that what is sent to viewers makes their page like one that is fetched.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use serde_json::json;
use turnbuckle::Actor;
use turnbuckle::event::{Event, Question};
use turnbuckle::hook::{Decision, Point, Record};
use turnbuckle::projection::Projection;
use turnbuckle::store::Answer;
use turnbuckle_server::page::{self, BadAnswer, ConversationPage, Patch, Rights, TurnPage, View};

use crate::page_story::{Story, rights, tell, viewer};

fn shown(view: &View, rights: &Rights) -> String {
    page::conversation(&viewer(""), rights, view, &ConversationPage::default()).0
}

/// The elements of the log, each on a line.
fn check(story: &Story<'_>, rights: &Rights, expected: Expect) {
    let page = shown(&story.view(), rights);
    let log = page.split_once("<div id=\"log\">").unwrap().1.split_once("<section id=\"streaming\"").unwrap().0;
    let mut log = log.trim_end_matches("</div>").to_owned();
    for tag in ["<article", "<header", "<details", "<p", "<div", "<form", "<footer", "<pre"] {
        log = log.replace(tag, &format!("\n{tag}"));
    }
    expected.assert_eq(log.trim());
}

fn text(text: &str) -> serde_json::Value {
    json!([{ "type": "text", "text": text }])
}

#[test]
fn messages_refused_stops_and_ends_are_shown_as_what_they_are() {
    let mut story = Story::new(&str::to_owned);
    story
        .log(json!({"type": "user_message", "content": text("hi"), "by": {"user": "ann"}}))
        .log(json!({"type": "assistant_message", "attempt": 1, "stop_reason": "end", "usage": {}, "object": null, "content": text("**done**")}))
        .log(json!({"type": "stop_feedback", "refusals": [{"hook": "lint", "feedback": "not yet"}]}))
        .log(json!({"type": "turn_ended", "outcome": "failed", "reason": "no model", "cause": null, "by": null, "result": null, "warnings": [], "model_calls": 1, "usage": {}, "ms": 5}));
    check(
        &story,
        &rights(),
        expect![[r#"
        <article class="msg user" id="m-1" data-in="log">
        <header><h2><strong>ann</strong></h2><time class="soft" datetime="2026-01-31T12:00:00.000Z" title="2026-01-31T12:00:00.000Z">12:00</time></header>
        <div class="md">
        <p>hi</p></div></article>
        <article class="msg assistant" id="m-2" data-in="log" data-announce>
        <header><h3>Assistant</h3><time class="soft" datetime="2026-01-31T12:00:00.000Z" title="2026-01-31T12:00:00.000Z">12:00</time><span class="soft meta"></span></header>
        <div class="md said">
        <p><strong>done</strong></p></div></article>
        <article class="refused" id="m-3" data-in="log" data-announce>
        <header><h3>Stop refused</h3><time class="soft" datetime="2026-01-31T12:00:00.000Z" title="2026-01-31T12:00:00.000Z">12:00</time><span class="soft">The model said it was done. It goes on with this:</span></header>
        <p><strong>lint</strong></p>
        <div class="said">
        <p class="verbatim">not yet</p></div></article>
        <footer class="ended" id="m-4" data-in="log" data-outcome="failed" data-announce>
        <p><strong class="said">Turn failed: no model</strong> <time class="soft" datetime="2026-01-31T12:00:00.000Z" title="2026-01-31T12:00:00.000Z">12:00</time><span class="soft meta">1 model call · 5.0 ms</span> <a href="/page/c/c_1/turns/t_1">Details</a></p></footer>"#]],
    );
}

/// What a compiler says: signs that Markdown would take for its own, and spaces that point at something.
const ERROR: &str = "error in __init__.py line 3:\n    x = a*b*c\n        ^";
const ERROR_SHOWN: &str = "<pre class=\"verbatim\">error in __init__.py line 3:\n    x = a*b*c\n        ^</pre>";

#[test]
fn what_a_hook_says_is_shown_as_it_said_it() {
    let mut story = Story::new(&str::to_owned);
    story.log(json!({"type": "stop_feedback", "refusals": [{"hook": "lint", "feedback": ERROR}]}));
    assert!(shown(&story.view(), &rights()).contains(ERROR_SHOWN), "a refusal");
    let mut story = Story::new(&str::to_owned);
    story.log(json!({"type": "injection", "hook": "lint", "content": text(ERROR), "for": "this_turn"}));
    assert!(shown(&story.view(), &rights()).contains(ERROR_SHOWN), "added context");
    let mut story = Story::new(&str::to_owned);
    story.log(json!({"type": "suspension", "call": "p", "kind": "pause", "prompt": {"hook": "lint", "reason": ERROR}, "expires": "2026-02-01T12:00:00.000Z"}));
    assert!(shown(&story.view(), &rights()).contains(ERROR_SHOWN), "a pause");
    let mut record = Record::new(Point::OnStop, "lint".into(), Decision::Refuse, Duration::ZERO);
    record.reason = Some(ERROR.into());
    assert!(turn_page(&[], &[record]).contains(ERROR_SHOWN), "a record");
}

fn turn_page(events: &[Arc<Event>], records: &[Record]) -> String {
    let (conversation, turn) = ("c_1".into(), "t_1".into());
    let page = TurnPage { conversation: &conversation, title: None, turn: &turn, events, records, hooks: &[] };
    page::turn(&viewer(""), &page).0
}

#[test]
fn a_hook_in_the_picture_of_a_turn_leads_to_its_record_with_what_it_added_there() {
    let mut story = Story::new(&str::to_owned);
    story
        .log(json!({"type": "user_message", "content": text("hi"), "by": {"user": "ann"}}))
        .log(json!({"type": "injection", "hook": "recall", "content": text("the first note"), "for": "this_turn"}))
        .log(json!({"type": "user_message", "content": text("and this"), "by": {"user": "ann"}}))
        .log(json!({"type": "injection", "hook": "recall", "content": text("the second note"), "for": "this_turn"}));
    let mut record = Record::new(Point::BeforeAgent, "recall".into(), Decision::Continue, Duration::from_millis(3));
    record.tokens = 4;
    let quiet = Record::new(Point::BeforeModel, "recall".into(), Decision::Continue, Duration::from_millis(1));
    let page = turn_page(&story.logged(), &[record.clone(), quiet, record]);
    for number in 0..3 {
        assert!(
            page.contains(&format!("href=\"#r-{number}\"")) && page.contains(&format!("id=\"r-{number}\"")),
            "{page}"
        );
    }
    let of_record = |number: usize| {
        let (_, rest) = page.split_once(&format!("id=\"r-{number}\"")).unwrap();
        rest.split("id=\"r-").next().unwrap().to_owned()
    };
    assert!(of_record(0).contains("the first note") && !of_record(0).contains("the second note"), "{page}");
    assert!(of_record(2).contains("the second note") && !of_record(2).contains("the first note"), "{page}");
    assert!(page.contains("<div class=\"record\" id=\"r-1\""), "a record with nothing in it is no fold: {page}");
}

#[test]
fn the_page_of_a_turn_has_its_stages_a_scale_and_a_bar_for_each_attempt() {
    let mut story = Story::new(&str::to_owned);
    story
        .log(json!({"type": "user_message", "content": text("hi"), "by": {"user": "ann"}}))
        .after(4_000)
        .log(json!({"type": "assistant_message", "attempt": 2, "stop_reason": "end", "usage": {}, "object": null, "content": text("done")}));
    let page = turn_page(&story.logged(), &[]);
    for part in [">accept<", ">build, call<", "<li class=\"discarded\">", ">2.0 s</span>", "data-refresh"] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn a_turn_under_way_has_a_link_to_its_page() {
    let mut story = Story::new(&str::to_owned);
    story.log(json!({"type": "user_message", "content": text("hi"), "by": {"user": "ann"}}));
    story.live(json!({"type": "state_changed", "state": "call"}));
    let page = shown(&story.view(), &rights());
    assert!(page.contains("href=\"/page/c/c_1/turns/t_1\">This turn so far"), "{page}");
    assert!(page.contains("<h1 id=\"heading\">hi</h1>"), "without a title it is called by its first words: {page}");
}

#[test]
fn the_first_message_gives_its_words_to_a_page_without_a_title() {
    let mut story = Story::new(&str::to_owned);
    let mut view = View::new("c_1".into(), Projection::default());
    let empty = shown(&view, &rights());
    assert!(empty.contains("<h1 id=\"heading\">New conversation</h1>"), "{empty}");
    let about = ConversationPage { title: Some("Mine".into()), ..ConversationPage::default() };
    let titled = page::conversation(&viewer(""), &rights(), &view, &about).0;
    assert!(!titled.contains("id=\"heading"), "a page with a title has no place for them: {titled}");
    for (words, count) in [("what is *said* first", 1), ("what comes then", 0)] {
        story.log(json!({"type": "user_message", "content": text(words), "by": {"user": "ann"}}));
        let patches = view.apply(story.events.last().unwrap());
        let sent: String = patches.iter().filter_map(|patch| patch.html_for(&rights())).map(|html| &**html).collect();
        assert_eq!(sent.matches("<h1 id=\"heading\">what is *said* first</h1>").count(), count, "{sent}");
    }
}

#[test]
fn a_page_begins_with_the_newest_turns_and_all_of_the_one_that_is_open() {
    let long = "word ".repeat(6_000);
    let mut story = Story::new(&str::to_owned);
    let turn = |story: &mut Story<'_>, number: u64| {
        story
            .log(json!({"type": "user_message", "content": text(&format!("message {number}.")), "by": {"user": "ann"}}))
            .log(json!({"type": "assistant_message", "attempt": 1, "stop_reason": "end", "usage": {}, "object": null, "content": text(&long)}))
            .log(json!({"type": "turn_ended", "outcome": "completed", "reason": null, "cause": null, "by": null, "result": null, "warnings": [], "model_calls": 1, "usage": {}, "ms": 5}));
    };
    for number in 0..20 {
        story.next_turn();
        turn(&mut story, number);
    }
    let page = shown(&story.view(), &rights());
    assert!(page.len() < 8 * long.len() && page.contains("message 19."), "{}", page.len());
    let (_, rest) = page.split_once("?before=").unwrap();
    let before: usize = rest.split('"').next().unwrap().parse().unwrap();
    assert_eq!((before - 1) % 3, 0, "it begins with a turn");
    assert!(page.contains(&format!("id=\"m-{before}\"")) && !page.contains(&format!("id=\"m-{}\"", before - 1)));
    // A page that is fetched again keeps what it had.
    let since = ConversationPage { since: Some(4), ..ConversationPage::default() };
    let again = page::conversation(&viewer(""), &rights(), &story.view(), &since).0;
    assert!(again.contains("<p>message 1.") && !again.contains("<p>message 0.") && again.contains("?before=4\""));
    assert!(again.contains("data-page=\"/page/c/c_1?since=4\""), "{}", &again[..2_000]);
    // The last one is there whole, whatever its size.
    story.next_turn().log(json!({"type": "user_message", "content": text("write a book"), "by": {"user": "ann"}}));
    for _ in 0..10 {
        story.log(json!({"type": "assistant_message", "attempt": 1, "stop_reason": "end", "usage": {}, "object": null, "content": text(&long)}));
    }
    story.log(json!({"type": "turn_ended", "outcome": "completed", "reason": null, "cause": null, "by": null, "result": null, "warnings": [], "model_calls": 10, "usage": {}, "ms": 5}));
    let page = shown(&story.view(), &rights());
    assert!(page.contains("<p>write a book</p>") && page.contains("?before=61\""), "{}", &page[..2_000]);
    // A turn that is open is there from its beginning.
    story.next_turn();
    story
        .log(json!({"type": "user_message", "content": text("pay"), "by": {"user": "ann"}}))
        .log(json!({"type": "tool_call", "call": "p", "name": "pay", "arguments": {}, "executor": "server"}))
        .log(json!({"type": "suspension", "call": "p", "kind": "approval", "prompt": {"tool": "pay", "arguments": {}, "digest": "d", "why": null}, "expires": "2026-02-01T12:00:00.000Z"}));
    for number in 0..20 {
        story
            .log(json!({"type": "tool_call", "call": format!("r{number}"), "name": "read", "arguments": {}, "executor": "server"}))
            .log(json!({"type": "tool_result", "call": format!("r{number}"), "ok": true, "content": text(&long)}));
    }
    let page = shown(&story.view(), &rights());
    assert!(page.contains("value=\"approve\"") && page.contains("?before=73\""), "{}", &page[..2_000]);
}

#[test]
fn a_title_is_shown_whole() {
    let title = "a title ".repeat(12);
    let about = ConversationPage { title: Some(title.clone()), ..ConversationPage::default() };
    let page = page::conversation(&viewer(""), &rights(), &View::new("c_1".into(), Projection::default()), &about).0;
    assert!(page.contains(&format!("<h1>{title}</h1>")), "{page}");
}

#[test]
fn in_an_edit_a_line_that_stays_is_shown_once() {
    let mut story = Story::new(&str::to_owned);
    let arguments = json!({"path": "a", "old": "one\ntwo\nthree", "new": "one\n2\nthree"});
    story.log(
        json!({"type": "tool_call", "call": "c1", "name": "edit_file", "arguments": arguments, "executor": "server"}),
    );
    let page = shown(&story.view(), &rights());
    let expected =
        "<code> one\n<span class=\"t-removed\">-two</span>\n<span class=\"t-added\">+2</span>\n three\n</code>";
    assert!(page.contains(expected), "{page}");
}

#[test]
fn a_question_has_a_form_for_those_who_may_answer() {
    let mut story = Story::new(&str::to_owned);
    story
        .log(json!({"type": "tool_call", "call": "c1", "name": "write_file", "arguments": {"path": "a"}, "executor": "server"}))
        .log(json!({"type": "suspension", "call": "c1", "kind": "approval", "prompt": {"tool": "write_file", "arguments": {"path": "a"}, "digest": "d", "why": "it writes"},
            "expires": "2026-02-01T12:00:00.000Z", "answer_by": {"users": ["ann"]}}));
    check(
        &story,
        &rights(),
        expect![[r#"
            <article class="card" id="c-1" data-in="log" data-state="ask" data-announce>
            <header><span class="dot" aria-hidden="true"></span><h3>write_file</h3><span class="about">a</span><span class="badge">waits for an answer</span></header>
            <div class="question">
            <p class="ask">May <strong>write_file</strong> run?</p>
            <p class="why">Why it is asked: it writes</p><dl class="args"><dt>path</dt><dd><code>a</code></dd></dl>
            <p class="soft conditions">Lapses <time datetime="2026-02-01T12:00:00.000Z" data-age>2026-02-01 12:00</time>. Who may answer: user ann.</p>
            <details class="fold" id="c-1-edit"><summary>Edit the arguments</summary>
            <form class="answer" method="post" action="/page/c/c_1/answer"><input type="hidden" name="csrf" value=""><input type="hidden" name="call" value="c1"><input type="hidden" name="digest" value="d"><label for="c-1-arguments">Arguments, as JSON</label><textarea class="mono" id="c-1-arguments" name="arguments" rows="6" spellcheck="false">
            {
              &quot;path&quot;: &quot;a&quot;
            }</textarea>
            <div class="row"><button name="decision" value="edit">Approve as edited</button></div></form></details>
            <div class="row answers">
            <form class="answer" method="post" action="/page/c/c_1/answer"><input type="hidden" name="csrf" value=""><input type="hidden" name="call" value="c1"><input type="hidden" name="digest" value="d"><button class="yes" name="decision" value="approve">Approve</button></form>
            <form class="answer" method="post" action="/page/c/c_1/answer"><input type="hidden" name="csrf" value=""><input type="hidden" name="call" value="c1"><input type="hidden" name="digest" value="d"><span class="deny"><label class="hidden" for="c-1-reason">Why not (the model reads it)</label><input type="text" id="c-1-reason" name="reason" placeholder="Why not (the model reads it)" autocomplete="off"><button class="no" name="decision" value="deny">Deny</button></span></form></div></div></article>"#]],
    );
    let bob = Rights { actor: Actor::User { id: "bob".into(), roles: [].into() }, ..rights() };
    let page = shown(&story.view(), &bob);
    assert!(page.contains("You may not answer this.") && !page.contains("value=\"approve\""));
}

#[test]
fn a_discarded_attempt_disappears_and_the_page_says_who_discarded_it_and_why() {
    let mut story = Story::new(&str::to_owned);
    story
        .live(json!({"type": "text_delta", "attempt": 1, "text": "a guess"}))
        .live(json!({"type": "attempt_discarded", "attempt": 1, "by": {"hook": "critic"}, "reason": "it guesses"}));
    let page = shown(&story.view(), &rights());
    assert!(!page.contains("a guess"), "{page}");
    assert!(page.contains("was discarded by the hook <strong>critic</strong>: it guesses"), "{page}");
}

/// The id of each element that a patch has, and its HTML.
fn elements(html: &str) -> Vec<(String, String)> {
    // Each patch of the log is one element; those of a reply are blocks that follow each other.
    let id = html.split("id=\"").nth(1).unwrap().split('"').next().unwrap();
    vec![(id.to_owned(), html.to_owned())]
}

#[test]
fn what_is_sent_makes_the_page_like_one_that_is_fetched() {
    let say = str::to_owned;
    let story = tell(&say);
    let (mut view, mut sent) = (View::new("c_1".into(), Projection::default()), BTreeMap::new());
    for event in &story.events {
        for patch in view.apply(event) {
            for (id, html) in elements(patch.html_for(&rights()).unwrap()) {
                // The text of a reply under way grows in pieces; see the tests of `draft`.
                if !id.starts_with("s-") && id != "streaming-thoughts" {
                    sent.insert(id, html);
                }
            }
        }
        assert_eq!(view.apply(event), [], "an event that was taken in changes nothing");
        let page = shown(&view, &rights());
        let is_streaming = view.projection().streaming.is_some();
        for (id, html) in sent.iter().filter(|(id, _)| !(is_streaming && *id == "streaming")) {
            assert!(page.contains(html), "{id} at {}\n{html}\n\n{page}", event.cursor);
        }
        // And nothing is missing.
        for id in page
            .split("<div id=\"log\">")
            .nth(1)
            .unwrap()
            .split("data-in=\"log\"")
            .map(|before| before.rsplit("id=\"").next().unwrap())
        {
            let id = id.split('"').next().unwrap();
            let is_in_log = ["m-", "c-", "n-"].iter().any(|start| id.starts_with(start));
            assert!(!is_in_log || id.contains("-args") || sent.contains_key(id), "{id} was not sent");
        }
    }
    assert!(sent.len() > 20, "{}", sent.len());
}

#[test]
fn a_view_from_a_snapshot_goes_on_like_one_from_the_beginning() {
    let say = str::to_owned;
    let story = tell(&say);
    for cut in 0..story.events.len() {
        let mut projection = Projection::default();
        story.events[..cut].iter().for_each(|event| projection.apply(event));
        let (mut late, mut early) =
            (View::new("c_1".into(), projection), View::new("c_1".into(), Projection::default()));
        story.events[..cut].iter().for_each(|event| drop(early.apply(event)));
        for event in &story.events[cut..] {
            let (one, other) = (late.apply(event), early.apply(event));
            // Suggestions are live only: whoever comes later has not heard them.
            let relevant =
                |patch: &Patch| !matches!(patch, Patch::Elements(html) if html.contains("id=\"suggestions\""));
            assert!(
                one.iter().filter(|patch| relevant(patch)).eq(other.iter().filter(|patch| relevant(patch))),
                "cut at {cut}, {}",
                event.cursor
            );
        }
    }
}

/// A key pressed in a text field presses the first button of its form.
#[test]
fn the_form_with_the_reason_for_denying_can_only_deny() {
    let say = str::to_owned;
    let page = shown(&tell(&say).view(), &rights());
    let with_reason: Vec<&str> = page.split("<form ").filter(|form| form.contains("name=\"reason\"")).collect();
    assert!(!with_reason.is_empty());
    for form in with_reason {
        let form = form.split("</form>").next().unwrap();
        assert!(
            form.contains("value=\"deny\"") && !form.contains("value=\"approve\"") && !form.contains("value=\"edit\""),
            "{form}"
        );
    }
}

fn approval() -> Question {
    let question = json!({"kind": "approval", "prompt": {"tool": "shell", "arguments": {"command": "ls"}, "digest": "d", "why": null}});
    serde_json::from_value(question).unwrap()
}

#[test]
fn a_form_becomes_the_answer_that_its_button_says() {
    let read = |pairs: &[(&str, &str)]| {
        let sent: Vec<_> = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        page::read_answer(&approval(), &sent)
    };
    assert_eq!(read(&[("decision", "approve"), ("reason", "")]).unwrap(), Answer::Approve);
    assert_eq!(read(&[("decision", "deny"), ("reason", " no ")]).unwrap(), Answer::Deny(Some("no".into())));
    assert_eq!(read(&[("decision", "deny"), ("reason", "")]).unwrap(), Answer::Deny(None));
    assert_eq!(read(&[("decision", "edit"), ("arguments", "{\"command\":\"ls\"}")]).unwrap(), Answer::Approve);
    let edited = read(&[("decision", "edit"), ("arguments", "{\"command\":\"ls -l\"}")]).unwrap();
    assert_eq!(edited, Answer::ApproveWith(json!({"command": "ls -l"}).into()));
    assert!(matches!(read(&[("decision", "edit"), ("arguments", "{")]), Err(BadAnswer::NotJson(_))));
    assert!(matches!(read(&[("decision", "answer")]), Err(BadAnswer::NoDecision)));
    assert!(matches!(read(&[]), Err(BadAnswer::NoDecision)));
}

#[test]
fn the_page_needs_less_than_a_hundred_kilobytes_and_runs_nothing_inline() {
    let size: usize = page::assets().iter().map(|asset| asset.content.len()).sum();
    assert!(size < 60_000, "{size}");
    for word in ["eval(", "new Function", "onclick", "document.write"] {
        assert!(page::assets().iter().all(|asset| !asset.content.contains(word)), "{word}");
    }
    assert!(!page::CONTENT_SECURITY_POLICY.contains("unsafe"));
}

/// The part of the page that has the record with this number.
fn of_record(page: &str, number: usize) -> String {
    let (_, rest) = page.split_once(&format!("id=\"r-{number}\"")).unwrap();
    let end = rest.find("id=\"r-").unwrap_or(rest.len());
    rest[..end].split("</section>").next().unwrap().to_owned()
}

fn changed(point: Point, decision: Decision, change: serde_json::Value) -> Record {
    let mut record = Record::new(point, "rewriter".into(), decision, Duration::from_millis(1));
    record.change = serde_json::from_value(change).unwrap();
    record
}

#[test]
fn a_click_on_a_hook_shows_what_it_added_and_what_it_changed() {
    let edit = |of: &str, before: &str, after: &str| json!({"edit": {"of": of, "before": before, "after": after}});
    let arguments = edit("arguments", r#"{"path":"a.txt"}"#, r#"{"path":"b.txt"}"#);
    let records = [
        changed(
            Point::BeforeAgent,
            Decision::Continue,
            json!({"injected": [{"text": "Be kind.", "for": "this_turn"}, {"text": "Be brief.", "for": "this_call", "left_out": true}],
                "edit": {"of": "message", "before": "hello", "after": "good day"}}),
        ),
        changed(Point::AfterTool, Decision::Modify, edit("result", "one\ntwo", "one\ntwo\nand a hint")),
        changed(Point::BeforeTool, Decision::Rewrite, arguments.clone()),
        changed(Point::BeforeTool, Decision::Approve, arguments.clone()),
        changed(Point::BeforeTool, Decision::Ask, arguments),
        changed(Point::BeforeTool, Decision::Answer, json!({"edit": {"of": "result", "after": "fourty-two"}})),
        changed(Point::AfterModel, Decision::Modify, edit("reply", "It is four.", "It is five.")),
        changed(Point::AfterModel, Decision::Modify, json!({"edit": {"of": "reply", "hidden": true}})),
        changed(
            Point::BeforeModel,
            Decision::Continue,
            json!({"edit": {"of": "context", "what": "1 added to 1 messages", "after": "user: a word"}}),
        ),
        changed(Point::AfterAgent, Decision::Continue, edit("turn_result", "four", "4")),
    ];
    let page = turn_page(&[], &records);
    let expected: [&[&str]; 10] = [
        &[
            "It added for this turn",
            "Be kind.",
            "There was no room",
            "Be brief.",
            "changed the message",
            "hello",
            "good day",
        ],
        &["<code> one\n two\n<span class=\"t-added\">+and a hint</span>"],
        &["a.txt", "b.txt"],
        &["a.txt", "b.txt"],
        &["a.txt", "b.txt"],
        &["It gave", "fourty-two"],
        &["It is four.", "It is five."],
        &["Not all of it is kept"],
        &["changed the context of this call: 1 added to 1 messages", "user: a word"],
        &["changed the result of the turn", "four", ">4<"],
    ];
    for (number, parts) in expected.iter().enumerate() {
        assert!(page.contains(&format!("<details class=\"fold record\" id=\"r-{number}\"")), "{number}: {page}");
        let record = of_record(&page, number);
        parts.iter().for_each(|part| assert!(record.contains(part), "{number}, {part}: {record}"));
    }
}

#[test]
fn what_hooks_changed_cannot_run_or_load_anything() {
    let evil = "<script>alert(1)</script><img src=x onerror=alert(2)> [x](javascript:alert(3)) ![y](https://evil.example/p.png)\u{202e}\"'>\nx";
    for of in ["message", "context", "reply", "arguments", "result", "turn_result"] {
        let arguments =
            json!({"path": evil, (evil): [evil], "patch": evil, "old": evil, "new": "x", "edits": [{"old": evil}]})
                .to_string();
        let text = if of == "arguments" { &arguments } else { evil };
        let change = json!({"injected": [{"text": evil, "for": "this_turn"}],
            "edit": {"of": of, "what": evil, "before": text, "after": format!("{text}\nmore")}});
        let page = turn_page(&[], &[changed(Point::BeforeTool, Decision::Rewrite, change)]);
        let record = of_record(&page, 0);
        assert!(record.contains("&lt;script&gt;"), "{of}: {record}");
        for bad in ["<script", "<img", "onerror=alert(2)>", "href=\"javascript", "src=\"https://evil", "<a "] {
            assert!(!record.contains(bad), "{of}, {bad}: {record}");
        }
        assert!(!record.contains('\u{202e}'), "a mark that turns the text around: {of}: {record}");
    }
}

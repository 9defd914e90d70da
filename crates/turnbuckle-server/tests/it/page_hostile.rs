//! Whatever a model, a tool, a hook or a user says: no page has an element or an attribute that it may not have.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use html5ever::tendril::{StrTendril, TendrilSink as _};
use html5ever::tree_builder::{ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::{Attribute, ExpandedName, QualName, parse_document};
use proptest::prelude::*;
use serde_json::json;
use turnbuckle::event::Question;
use turnbuckle::hook::Point;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::projection::Pending;
use turnbuckle::scope::Author;
use turnbuckle::store::{ConversationStatus, ConversationSummary};
use turnbuckle::stores::MemoryStore;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Actor, Agent, Conversations, Scope, Timestamp};
use turnbuckle_server::page::{
    self, ConversationPage, EarlierPage, HookLine, ListPage, Listed, Live, Queued, TurnPage, Waiting, WaitingCall,
    is_unsafe,
};

use crate::page_story::{NOON, Story, records, rights, tell, viewer};

const ELEMENTS: &[&str] = &[
    "html",
    "head",
    "meta",
    "title",
    "link",
    "script",
    "body",
    "a",
    "header",
    "nav",
    "ul",
    "ol",
    "li",
    "div",
    "span",
    "form",
    "input",
    "button",
    "main",
    "p",
    "h1",
    "h2",
    "h3",
    "section",
    "article",
    "footer",
    "details",
    "summary",
    "pre",
    "code",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "em",
    "strong",
    "del",
    "blockquote",
    "br",
    "hr",
    "label",
    "textarea",
    "select",
    "option",
    "fieldset",
    "legend",
    "dl",
    "dt",
    "dd",
    "time",
    "q",
    "svg",
    "rect",
];

const ATTRIBUTES: &[&str] = &[
    "lang",
    "charset",
    "name",
    "content",
    "rel",
    "href",
    "src",
    "defer",
    "class",
    "id",
    "aria-label",
    "aria-current",
    "aria-hidden",
    "aria-live",
    "aria-describedby",
    "role",
    "hidden",
    "method",
    "action",
    "type",
    "value",
    "tabindex",
    "title",
    "target",
    "start",
    "scope",
    "for",
    "rows",
    "required",
    "placeholder",
    "autocomplete",
    "spellcheck",
    "maxlength",
    "minlength",
    "min",
    "max",
    "checked",
    "selected",
    "step",
    "open",
    "datetime",
    "formnovalidate",
    "viewBox",
    "preserveAspectRatio",
    "x",
    "y",
    "width",
    "height",
];

/// Pieces that break out of something, load something or hide something.
pub(crate) const HOSTILE: &[&str] = &[
    "<script>alert(1)</script>",
    "</script>",
    "<img src=x onerror=alert(1)>",
    "\" onmouseover=\"alert(1)",
    "' onfocus='alert(1)",
    "</textarea><script>",
    "</title><script>",
    "</pre></code></details><svg onload=alert(1)>",
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "[x](javascript:alert(1))",
    "<javascript:alert(1)>",
    "[y](JAVASCRIPT:alert(1) \"t\")",
    "[z](data:text/html;base64,PHN2Zz4=)",
    "![p](https://evil.example/?leak)",
    "![](//evil.example/a.png)",
    "[r]: javascript:alert(1)\n\n[r]",
    "<https://a.example/\"onclick=alert(1)>",
    "[q](https://a.example/\"><script>)",
    "[w](<https://a.example/ onclick=alert(1)>)",
    "\u{202e}gnp.exe",
    "\u{2066}a\u{2069}",
    "\u{200b}",
    "\u{0}",
    "\u{1b}[31m",
    "&lt;script&gt;",
    "&#x3c;script&#x3e;",
    "```html\n<script>\n```",
    "```\"><script>\nx\n",
    "    <b>",
    "> > > > > <i>",
    "| <b> | `|` |\n|---|---|\n| <script> | x |\n",
    "{{constructor}}",
    "<style>*{background:url(//evil)}</style>",
    "<a href=javascript:x>",
    "<base href=//evil>",
    "<form action=//evil>",
    "<iframe srcdoc=x>",
    "<math><mi><mglyph><svg><mtext><style><path id=\"</style><img onerror=alert(1) src>\">",
    "\n--- <a>\n+++ <b>\n@@ <i>\n+<u>",
];

#[derive(Default)]
struct Sink {
    offences: RefCell<Vec<String>>,
}

type Node = Rc<QualName>;

impl Sink {
    fn blame(&self, what: String) {
        self.offences.borrow_mut().push(what);
    }

    fn text(&self, child: &NodeOrText<Node>) {
        if let NodeOrText::AppendText(text) = child
            && let Some(ch) = text.chars().find(|ch| is_unsafe(*ch) && !matches!(ch, '\n' | '\t'))
        {
            self.blame(format!("{ch:?} in the text {text:.200}"));
        }
    }

    fn element(&self, name: &QualName, attributes: &[Attribute]) {
        let element = &*name.local;
        if !ELEMENTS.contains(&element) {
            self.blame(format!("the element {element}"));
        }
        for attribute in attributes {
            let (key, value) = (&*attribute.name.local, &*attribute.value);
            if !ATTRIBUTES.contains(&key) && !key.starts_with("data-") {
                self.blame(format!("the attribute {key} of {element}"));
            }
            let is_own = value.starts_with("/page/")
                || value.starts_with("/v1/answers/")
                || value == "/"
                || value == "/login"
                || value == "/logout"
                || value == "#main"
                || value.strip_prefix("#r-").is_some_and(|number| number.parse::<usize>().is_ok());
            let is_web =
                ["https://", "http://", "mailto:"].iter().any(|scheme| value.to_lowercase().starts_with(scheme));
            let is_fine = match (element, key) {
                ("script", "src") | ("link", "href") => page::assets().iter().any(|asset| asset.path == value),
                (_, "src") => false,
                ("a", "href") => is_own || (is_web && has_rel(attributes)),
                (_, "href") => false,
                (_, "action") => is_own,
                _ => true,
            };
            if !is_fine {
                self.blame(format!("{key}={value:.200} of {element}"));
            }
        }
    }
}

/// A page elsewhere learns nothing from a link to it.
fn has_rel(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|one| &*one.name.local == "rel" && &*one.value == "noopener noreferrer nofollow")
}

impl TreeSink for Sink {
    type Handle = Node;
    type Output = Vec<String>;
    type ElemName<'a> = ExpandedName<'a>;
    fn finish(self) -> Vec<String> {
        self.offences.into_inner()
    }
    fn parse_error(&self, _: Cow<'static, str>) {}
    fn get_document(&self) -> Node {
        Rc::new(QualName::new(None, "".into(), "".into()))
    }
    fn elem_name<'a>(&'a self, target: &'a Node) -> ExpandedName<'a> {
        target.expanded()
    }
    fn create_element(&self, name: QualName, attributes: Vec<Attribute>, _: ElementFlags) -> Node {
        self.element(&name, &attributes);
        Rc::new(name)
    }
    fn create_comment(&self, text: StrTendril) -> Node {
        self.blame(format!("the comment {text:.200}"));
        self.get_document()
    }
    fn create_pi(&self, target: StrTendril, _: StrTendril) -> Node {
        self.blame(format!("the instruction {target:.200}"));
        self.get_document()
    }
    fn append(&self, _: &Node, child: NodeOrText<Node>) {
        self.text(&child);
    }
    fn append_based_on_parent_node(&self, _: &Node, _: &Node, child: NodeOrText<Node>) {
        self.text(&child);
    }
    fn append_before_sibling(&self, _: &Node, child: NodeOrText<Node>) {
        self.text(&child);
    }
    fn append_doctype_to_document(&self, _: StrTendril, _: StrTendril, _: StrTendril) {}
    fn get_template_contents(&self, target: &Node) -> Node {
        target.clone()
    }
    fn same_node(&self, one: &Node, other: &Node) -> bool {
        Rc::ptr_eq(one, other)
    }
    fn set_quirks_mode(&self, _: QuirksMode) {}
    fn add_attrs_if_missing(&self, target: &Node, attributes: Vec<Attribute>) {
        self.element(target, &attributes);
    }
    fn remove_from_parent(&self, _: &Node) {}
    fn reparent_children(&self, _: &Node, _: &Node) {}
}

pub(crate) fn offences(html: &str) -> Vec<String> {
    parse_document(Sink::default(), Default::default()).one(html)
}

fn summary(say: &dyn Fn(&str) -> String) -> ConversationSummary {
    ConversationSummary {
        id: say("c_1").into(),
        owner: Actor::User { id: say("ann").into(), roles: [].into() },
        opened: Timestamp::from_millis(NOON),
        written: Timestamp::from_millis(NOON),
        seq: 3,
        status: ConversationStatus::Waiting { until: Timestamp::from_millis(NOON + 1_000) },
        claimed_until: None,
        hold: None,
        title: Some(say("a title").into()),
    }
}

/// Every page that shows what others said.
fn pages(story: &Story<'_>, say: &dyn Fn(&str) -> String) -> Vec<String> {
    let (viewer, mut view) = (viewer("token"), story.view());
    view.set_queue(vec![Queued { id: say("i1"), text: say("later"), steers: true }]);
    let about = ConversationPage {
        after: None,
        title: Some(say("a title")),
        agent: Some(say("coder")),
        first_words: Some(say("first")),
        since: None,
        alert: Some(say("that did not work")),
        draft: Some(say("again").replace(is_unsafe, "")),
        no_messages: None,
        key: Some("k".into()),
    };
    let logged = story.logged();
    let (first, id) = (logged.first().unwrap().turn.clone(), say("c_1").into());
    let events: Vec<_> = logged.iter().filter(|event| event.turn == first).cloned().collect();
    let records = records(say);
    let mut line = HookLine::new(Point::OnStop, say("lint"), say("use = \"lint\""), say("the turn ends failed"));
    (line.agent, line.from) = (Some(say("writer")), Some(say("turnbuckle.toml:3, accepted")));
    line.handlers = vec![say("Stop: ruff")];
    let earlier = EarlierPage { conversation: &id, title: Some(&say("a title")), events: &events, more: true };
    let turn = TurnPage {
        conversation: &id,
        title: Some(&say("a title")),
        turn: &say("t_1").into(),
        events: &events,
        records: &records,
        hooks: &[line],
    };
    let listed =
        Listed { summary: summary(say), first_words: Some(say("first")), cost: Some(0.5), waits_for: Some(say("bob")) };
    let list = ListPage { conversations: vec![listed], search: say("x"), older: None, can_begin: true };
    let all = [
        page::conversation(&viewer, &rights(), &view, &about),
        page::conversation(&viewer, &rights(), &view, &ConversationPage { title: None, ..about.clone() }),
        page::earlier(&viewer, &rights(), &earlier),
        page::turn(&viewer, &turn),
        page::list(&viewer, &list, Timestamp::from_millis(NOON)),
        page::confirm_delete(&viewer, &summary(say), Some(&say("no"))),
        page::login(&viewer, Some(&say("no"))),
        page::problem(&viewer, &say("Oh"), &say("no")),
    ];
    all.into_iter().map(|page| page.0).collect()
}

fn check(say: &dyn Fn(&str) -> String) -> Vec<String> {
    let story = tell(say);
    let mut found: Vec<String> = pages(&story, say).iter().flat_map(|html| offences(html)).collect();
    let mut view = page::View::new("c_1".into(), Default::default());
    for event in &story.events {
        for patch in view.apply(event) {
            let html = patch.html_for(&rights()).unwrap();
            found.extend(offences(&format!("<!DOCTYPE html><html><head><title></title></head><body>{html}")));
        }
    }
    found.sort();
    found.dedup();
    found
}

#[test]
fn the_check_finds_what_it_should() {
    let page = "<!DOCTYPE html><body><b onclick=x>a</b><a href=javascript:x>\u{202e}</a><img src=x><!-- c -->";
    assert_eq!(offences(page).len(), 7, "{:#?}", offences(page));
    assert_eq!(check(&str::to_owned), [""; 0]);
}

#[test]
fn each_hostile_text_in_every_place_stays_text() {
    for hostile in HOSTILE {
        let found = check(&|text| format!("{text}{hostile}"));
        assert!(found.is_empty(), "{hostile:?}: {found:#?}");
        let found = check(&|text| format!("{hostile} {text}"));
        assert!(found.is_empty(), "{hostile:?}: {found:#?}");
    }
}

#[tokio::test]
async fn what_waits_is_shown_in_full_with_its_form_and_stays_text() {
    for hostile in HOSTILE {
        let arguments = json!({"path": hostile, *hostile: hostile, "edits": [{"old": hostile, "new": hostile}]});
        let reply = ScriptReply::calls(hostile, "write", arguments);
        let run = |_, _| async { Ok("never") };
        let tool = function_with_schema("write", "Writes.", json!({"type": "object"}), Effect::Pure, run);
        let agent = Agent::builder("coder", Script::of([reply])).tool(tool).approve(["write"]).build().unwrap();
        let conversations = Conversations::builder(agent, MemoryStore::default()).build();
        let turn = conversations.send(&"c_1".into(), "go", Scope::user("ann")).await.unwrap();
        turn.wait().await.unwrap();
        let pending = conversations.pending(Scope::user("ann")).await.unwrap();
        let pending: Vec<_> = pending
            .into_iter()
            .map(|call| WaitingCall { call: call.into(), title: Some((*hostile).to_owned()) })
            .collect();
        let page = page::waiting(&viewer("token"), &pending, Timestamp::from_millis(NOON)).0;
        assert!(page.contains("value=\"approve\"") && page.contains("May <strong>write</strong> run?"), "{page}");
        assert_eq!(offences(&page), [""; 0], "{hostile:?}");
    }
}

#[test]
fn a_live_question_is_shown_with_its_form_and_stays_text() {
    for hostile in HOSTILE {
        let schema = json!({ "type": "object", "title": hostile, "properties": {
            *hostile: { "type": "string", "title": hostile, "description": hostile, "default": hostile },
            "choice": { "type": "string", "enum": [hostile], "enumNames": [hostile] } } });
        let question = Question::Elicitation { question: (*hostile).into(), schema: Some(schema.into()) };
        let (call, expires, approvals) = ("live-1".into(), Timestamp::from_millis(NOON), Vec::new());
        let live = Live { call: (*hostile).into(), tool: (*hostile).into(), asker: (*hostile).into() };
        let waiting = Waiting {
            conversation: "c_1".into(),
            agent: (*hostile).into(),
            requester: Author::User((*hostile).into()),
            asked: Timestamp::from_millis(NOON),
            pending: Pending { call, question, expires, rule: None, approvals },
            live: Some(live),
        };
        let mut view = Story::new(&str::to_owned).view();
        let patch = view.ask(waiting.clone());
        let shown = page::conversation(&viewer("t"), &rights(), &view, &ConversationPage::default()).0;
        let listed = WaitingCall { call: waiting, title: Some((*hostile).to_owned()) };
        let list = page::waiting(&viewer("t"), &[listed], Timestamp::from_millis(NOON)).0;
        for page in [&shown, &list, &patch.html_for(&rights()).unwrap().to_string()] {
            assert!(page.contains("value=\"answer\"") && page.contains("name=\"f0\""), "{page}");
            assert_eq!(offences(page), [""; 0], "{hostile:?}");
        }
    }
}

#[test]
fn a_line_of_a_megabyte_stays_of_its_size() {
    let long = "<x>".repeat(350_000);
    // In the places that are cut or shown plainly; the whole story would have hundreds of megabytes.
    let mut story = Story::new(&str::to_owned);
    let content = json!([{ "type": "text", "text": long }]);
    story
        .log(json!({"type": "user_message", "content": content, "by": {"user": "ann"}}))
        .log(json!({"type": "tool_call", "call": long, "name": long, "arguments": {"command": long}, "executor": "server"}))
        .log(json!({"type": "tool_result", "call": long, "ok": true, "content": content}))
        .live(json!({"type": "text_delta", "attempt": 1, "text": long}));
    let page = page::conversation(&viewer("t"), &rights(), &story.view(), &ConversationPage::default()).0;
    assert!(page.len() < 4 * 3 * long.len(), "{}", page.len());
    assert_eq!(offences(&page), [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn any_mixture_of_them_stays_text(pieces in prop::collection::vec(prop::sample::select(HOSTILE), 1..6)) {
        let hostile = pieces.concat();
        let found = check(&|text| format!("{hostile}{text}{hostile}"));
        prop_assert!(found.is_empty(), "{:?}: {:#?}", hostile, found);
    }
}

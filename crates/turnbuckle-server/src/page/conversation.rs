//! A conversation: its log, what happens now, and what a person can do. Every part has an id of its own, so that it can be
//! replaced alone.

use std::sync::Arc;

use maud::{Markup, html};
use turnbuckle::event::{Event, EventKind, InjectionTarget, Outcome, TurnEnded};
use turnbuckle::feed::{ConversationState, Cursor, Level};
use turnbuckle::message::{Content, Part, StopReason, Usage};
use turnbuckle::{Timestamp, TurnId};

use super::asked;
use super::card::{self, author};
use super::draft::{self, Draft};
use super::earlier;
use super::items::{Item, items};
use super::layout::{self, Viewer};
use super::newest::newest;
use super::question::Forms;
use super::safe::{Name, Shown, segment};
use super::view::{Note, Rights, Told, View};
use super::{code, markdown, words};

/// What a page of a conversation shows beside its log.
#[derive(Clone, Debug, Default)]
pub struct ConversationPage {
    /// What it is called.
    pub title: Option<String>,
    /// The agent whose conversation it is.
    pub agent: Option<String>,
    /// What it is called without a title, if the view does not have its beginning.
    pub first_words: Option<String>,
    /// The event with which the page begins at the latest: one that is fetched again keeps what it had.
    pub since: Option<u64>,
    /// Why no messages can be sent, if none can: it belongs to another agent, for instance.
    pub no_messages: Option<String>,
    /// Something to say at once: what went wrong with the form that was sent.
    pub alert: Option<String>,
    /// A message that could not be sent, to be tried again.
    pub draft: Option<String>,
    /// What the form for messages carries, so that one that is sent twice is taken once. The script makes its own.
    pub key: Option<String>,
    /// Behind which event the stream goes on, as the server counts. None: behind the last one that the view has.
    pub after: Option<Cursor>,
}

/// The whole page of a conversation.
pub fn conversation(viewer: &Viewer, rights: &Rights, view: &View, page: &ConversationPage) -> Markup {
    let forms = Forms { conversation: view.conversation(), csrf: Some(&viewer.csrf), answers: false, link: None };
    let id = view.conversation().as_str();
    // Without a title it is called by its first words, which the view has, or may have later, if it has the beginning.
    let begins_here = !view.projection().more;
    let name = page.title.as_deref().or(page.first_words.as_deref().filter(|_| !begins_here));
    let words = first_words(view);
    let heading = name.or(words.as_deref()).unwrap_or(if begins_here { UNNAMED } else { id });
    let shown = newest(&view.projection().events, page.since);
    let again = format!("{}?since={}", forms.page(), shown.first().map_or(1, |first| first.seq));
    let stream = format!("{}?after={}", forms.action("events"), page.after.unwrap_or(view.projection().cursor));
    let main = html! {
        div.conversation data-events=(stream) data-page=(again) {
            header.head {
                @if name.is_some() || !begins_here {
                    h1 { (Shown(heading)) }
                    @if name.is_some() { p.soft { code { (Name(id)) } } }
                } @else { (self::heading(view)) }
                @if let Some(agent) = &page.agent { p.soft { (Name(agent)) } }
                @if rights.say || rights.delete {
                    details.fold.manage id="manage" {
                        summary { "Rename or delete" }
                        @if rights.say { form method="post" action=(forms.action("title")) {
                            (forms.token())
                            label for="title" { "Title" }
                            input type="text" id="title" name="title" value=(Shown(page.title.as_deref().unwrap_or_default())) maxlength="200";
                            button { "Rename" }
                        } }
                        @if rights.delete { p { a href=(forms.action("delete")) { "Delete this conversation…" } } }
                    }
                }
            }
            @if let Some(alert) = &page.alert { p.alert role="alert" id="alert" { (Shown(alert)) } }
            @else { p.alert role="alert" id="alert" hidden {} }
            (older(view, shown, forms))
            div id="log" { (log(view, shown, rights, forms)) }
            (streaming(view))
            (asked::all(view.asked(), Forms { answers: rights.answer, ..forms }))
            (hooks(view))
            (queue(view, forms))
            @if rights.say { (suggestions(view, forms)) }
            div.bar {
                (state(view))
                @if rights.cancel {
                    form.cancel method="post" action=(forms.action("cancel")) { (forms.token()) button.no { "Cancel the turn" } }
                }
            }
            @match (&page.no_messages, rights.say) {
                (Some(why), _) => { p.soft { (Shown(why)) } }
                (None, true) => { (composer(forms, page)) }
                (None, false) => { p.soft { "You may read this conversation and not write to it." } }
            }
        }
    };
    layout::page(viewer, heading, "", &main)
}

/// What a conversation is called in which nothing was said yet.
const UNNAMED: &str = "New conversation";

/// What a conversation without a title is called. Its parts have ids, since the first message changes them; a page with a title does
/// not have these.
pub(super) fn heading(view: &View) -> Markup {
    html! {
        h1 id="heading" { (Shown(first_words(view).as_deref().unwrap_or(UNNAMED))) }
        p.soft id="heading-id" { code { (Name(view.conversation().as_str())) } }
    }
}

/// The first words of the first message, if that is at hand.
fn first_words(view: &View) -> Option<String> {
    let projection = view.projection();
    let first = projection.events.iter().filter(|_| !projection.more).find_map(|event| match &event.kind {
        EventKind::UserMessage { content, .. } => Some(words::opening(&content.text())),
        _ => None,
    });
    first.filter(|words| !words.is_empty())
}

/// Where the messages are that stand before those that are shown.
fn older(view: &View, shown: &[Arc<Event>], forms: Forms<'_>) -> Markup {
    let projection = view.projection();
    let first = shown.first().filter(|_| projection.more || shown.len() < projection.events.len());
    html! { @if let Some(first) = first { p { a href=(earlier::path(forms, first.seq)) { "Older messages" } } } }
}

/// The elements of the log for one viewer.
pub(super) fn log(view: &View, events: &[Arc<Event>], rights: &Rights, forms: Forms<'_>) -> Markup {
    let projection = view.projection();
    // What was told about an event that is not shown is not shown either.
    let first = events.first().filter(|_| events.len() < projection.events.len()).map_or(0, |first| first.seq);
    html! {
        @for item in items(events, view.notes().filter(|note| note.after >= first)) {
            @let pending = match &item { Item::Call(call) => projection.pending.get(call.id), _ => None };
            @let answers = pending.is_some_and(|pending| rights.may_answer(pending.rule.as_deref()));
            (self::item(view, &item, Forms { answers, ..forms }))
        }
        @if projection.events.is_empty() { p.empty id="empty" { "Nothing was said yet." } }
    }
}

fn composer(forms: Forms<'_>, page: &ConversationPage) -> Markup {
    let draft = page.draft.as_deref();
    html! {
        form.composer method="post" action=(forms.action("messages")) id="composer" {
            (forms.token())
            @if let Some(key) = &page.key { input type="hidden" name="key" value=(key); }
            label for="content" { "Message" }
            textarea id="content" name="content" rows="3" required data-keys="send" placeholder="Write a message. Ctrl+Enter sends it." { @if let Some(draft) = draft { "\n" (draft) } }
            div.row {
                label.hidden for="while_busy" { "If a turn runs" }
                select id="while_busy" name="while_busy" {
                    option value="queue" { "If a turn runs: wait for it" }
                    option value="steer" { "If a turn runs: tell it now" }
                    option value="interrupt" { "If a turn runs: interrupt it" }
                }
                button.yes { "Send" }
            }
        }
    }
}

fn turn_path(view: &View, turn: &TurnId) -> String {
    format!("/page/c/{}/turns/{}", segment(view.conversation().as_str()), segment(turn.as_str()))
}

/// What the conversation is doing.
pub(super) fn state(view: &View) -> Markup {
    let state = view.projection().state;
    let (busy, name) = match state {
        ConversationState::Idle => (false, "idle"),
        ConversationState::Waiting => (true, "waiting"),
        _ => (true, "busy"),
    };
    // A turn begins with its message, and what its background hooks note stands behind its end.
    let ends = |event: &&Arc<Event>| matches!(event.kind, EventKind::UserMessage { .. } | EventKind::TurnEnded(_));
    let events = &view.projection().events;
    let last = events.iter().rev().find(ends).or(events.last());
    let open = last.filter(|last| busy && !matches!(last.kind, EventKind::TurnEnded(_)));
    html! {
        p.state id="state" data-state=(name) data-busy[busy] {
            span.dot aria-hidden="true" {} (words::state(state))
            @if let Some(open) = open { " " a href=(turn_path(view, &open.turn)) { "This turn so far" } }
        }
    }
}

/// Hooks at work.
pub(super) fn hooks(view: &View) -> Markup {
    html! {
        ul.hooks id="hooks" {
            @for hook in &view.projection().hooks {
                li { span.spin aria-hidden="true" {} strong { (Name(&hook.hook)) } " at " (hook.point.name())
                    @if let Some(progress) = &hook.progress { ": " (Shown(progress)) } }
            }
            @for hook in view.background() { li { span.spin aria-hidden="true" {} strong { (Name(hook)) } " in the background" } }
        }
    }
}

/// The reply that is being streamed.
pub(super) fn streaming(view: &View) -> Markup {
    html! {
        section id="streaming" aria-label="The reply that is being written" {
            @if let Some(streaming) = &view.projection().streaming {
                article.msg.assistant.now {
                    header { h3 { "Assistant" } @if streaming.attempt > 1 { span.badge { "attempt " (streaming.attempt) } } }
                    @if !streaming.thinking.is_empty() {
                        details.fold.thinking id="streaming-thinking" {
                            summary { "Thinking" }
                            pre.thoughts id="streaming-thoughts" tabindex="0" { (draft::thinking(&streaming.thinking)) }
                        }
                    }
                    div id="streaming-text" { @if !streaming.text.is_empty() { (Draft::whole(&streaming.text).1) } }
                }
            }
        }
    }
}

/// Messages that wait.
pub(super) fn queue(view: &View, forms: Forms<'_>) -> Markup {
    html! {
        ul.queue id="queue" {
            @for queued in view.queue() {
                li {
                    span.badge { @if queued.steers { "for this turn" } @else { "queued" } }
                    span.text { (Shown(&queued.text.chars().take(300).collect::<String>())) }
                    form method="post" action=(forms.action("queue")) {
                        (forms.token())
                        input type="hidden" name="item" value=(queued.id);
                        button { "Take back" }
                    }
                }
            }
        }
    }
}

/// Proposals for the next message.
pub(super) fn suggestions(view: &View, forms: Forms<'_>) -> Markup {
    html! {
        div.suggestions id="suggestions" {
            @for text in view.suggestions() {
                form method="post" action=(forms.action("messages")) {
                    (forms.token())
                    input type="hidden" name="content" value=(text);
                    button { (Shown(&text.chars().take(200).collect::<String>())) }
                }
            }
        }
    }
}

/// One element of the log.
pub(super) fn item(view: &View, item: &Item<'_>, forms: Forms<'_>) -> Markup {
    match item {
        Item::Event(event) => message(event, forms),
        Item::Call(call) => card::card(view, call, forms),
        Item::Note(note) => self::note(note),
    }
}

fn message(event: &Event, forms: Forms<'_>) -> Markup {
    let id = format!("m-{}", event.seq);
    match &event.kind {
        EventKind::UserMessage { content, by } => html! {
            article.msg.user id=(id) data-in="log" {
                header { h2 { (author(by)) } (words::time(event.at)) }
                div.md { (markdown::render(&content.text())) }
                (card::other_parts(content))
            }
        },
        EventKind::AssistantMessage { content, stop_reason, usage, cost, model, attempt, extras, .. } => html! {
            article.msg.assistant id=(id) data-in="log" data-announce {
                header {
                    h3 { "Assistant" }
                    (words::time(event.at))
                    span.soft.meta { (about_reply(model.as_deref(), usage, *cost, *attempt)) }
                    @if let Some(stopped) = stopped(*stop_reason) { span.badge { (stopped) } }
                }
                (thoughts(&id, content))
                @let text = content.text();
                @if !text.trim().is_empty() { div.md.said { (markdown::render(&text)) } }
                @if let Some(object) = extras.as_ref().and_then(|extras| extras.object.as_ref()) { (card::json(object)) }
                (card::other_parts(content))
            }
        },
        EventKind::Injection { hook, content, place } => html! {
            details.note.fold id=(id) data-in="log" {
                summary { "The hook " strong { (Name(hook)) } " added context"
                    @if *place == InjectionTarget::NextTurn { " for the next turn" } }
                (words::verbatim(&content.text()))
            }
        },
        EventKind::StopFeedback { refusals } => html! {
            article.refused id=(id) data-in="log" data-announce {
                header { h3 { "Stop refused" } (words::time(event.at)) span.soft { "The model said it was done. It goes on with this:" } }
                @for refusal in refusals {
                    p { strong { (Name(&refusal.hook)) } }
                    div.said { (words::verbatim(&refusal.feedback)) }
                }
            }
        },
        EventKind::TurnEnded(ended) => turn_ended(&id, &event.turn, ended, event.at, forms),
        _ => html! {},
    }
}

/// Which model replied and what it took, as far as that is known.
fn about_reply(model: Option<&str>, usage: &Usage, cost: f64, attempt: u32) -> Markup {
    let known = [
        model.map(|model| html! { (Name(model)) }),
        (usage.total() > 0).then(|| html! { (usage.input) " in, " (usage.output) " out" }),
        (cost > 0.0).then(|| html! { (words::dollars(cost)) }),
        (attempt > 1).then(|| html! { "attempt " (attempt) }),
    ];
    html! { @for (number, part) in known.iter().flatten().enumerate() { @if number > 0 { " · " } (part) } }
}

fn stopped(reason: StopReason) -> Option<&'static str> {
    match reason {
        StopReason::End | StopReason::ToolCalls => None,
        StopReason::Length => Some("cut off at its longest length"),
        StopReason::Refusal => Some("the model refused"),
        StopReason::Cancelled => Some("cancelled"),
    }
}

fn thoughts(id: &str, content: &Content) -> Markup {
    let thought: String = content
        .parts()
        .iter()
        .filter_map(|part| match part {
            Part::Thinking(thought) => Some(&*thought.text),
            _ => None,
        })
        .collect();
    html! {
        @if !thought.trim().is_empty() {
            details.fold.thinking id=(format!("{id}-thinking")) { summary { "Thinking" } (code::block("", &thought)) }
        }
    }
}

fn turn_ended(id: &str, turn: &TurnId, ended: &TurnEnded, at: Timestamp, forms: Forms<'_>) -> Markup {
    let outcome = ended.outcome.to_string();
    html! {
        footer.ended id=(id) data-in="log" data-outcome=(outcome) data-announce[ended.outcome != Outcome::Completed] {
            p {
                strong.said { "Turn " (outcome) @if let Some(by) = ended.by() { " by " (author(by)) } @if let Some(reason) = ended.reason() { ": " (Shown(reason)) } }
                " " (words::time(at))
                span.soft.meta {
                    (words::count(ended.model_calls as usize, "model call"))
                    @if ended.usage.total() > 0 { " · " (ended.usage.total()) " tokens" }
                    @if ended.cost > 0.0 { " · " (words::dollars(ended.cost)) }
                    " · " (words::milliseconds(ended.ms as f64))
                }
                " " a href=(forms.action(&format!("turns/{}", segment(turn.as_str())))) { "Details" }
            }
            @if let Some(result) = ended.result() {
                @match result.as_str() {
                    Some(text) => { div.md { (markdown::render(text)) } }
                    None => { (card::json(result)) }
                }
            }
            @for warning in ended.warnings() {
                p.warn { @if let Some(hook) = &warning.hook { strong { (Name(hook)) } ": " } (Shown(&warning.text)) }
            }
        }
    }
}

/// Something that was told and is in no log.
pub(super) fn note(note: &Note) -> Markup {
    let id = &note.id;
    match &note.what {
        Told::Discarded { attempt, by, reason, replaced } => html! {
            p.note.discarded id=(id) data-in="log" {
                "Attempt " (attempt) @if *replaced { " was replaced" } @else { " was discarded" }
                @if let Some(by) = by { " by " (author(by)) }
                @if let Some(reason) = reason { ": " (Shown(reason)) } " " (words::time(note.at))
            }
        },
        Told::Notice { level, text, hook } => html! {
            p.note.warn[*level == Level::Warning] id=(id) data-in="log" {
                @if let Some(hook) = hook { strong { (Name(hook)) } ": " } (Shown(text)) " " (words::time(note.at))
            }
        },
        Told::Compacted { before, after } => html! {
            p.note id=(id) data-in="log" { "The context was made smaller: from " (before) " to " (after) " tokens. " (words::time(note.at)) }
        },
    }
}

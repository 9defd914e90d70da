//! A part of a conversation that its own page does not show any more, because that has the newest part alone.

use std::sync::Arc;

use maud::{Markup, html};
use turnbuckle::ConversationId;
use turnbuckle::event::Event;
use turnbuckle::projection::Projection;

use super::conversation::log;
use super::layout::{self, Viewer};
use super::question::Forms;
use super::safe::{Name, Shown};
use super::view::{Rights, View};

/// What is known of an earlier part.
#[derive(Clone, Debug)]
pub struct EarlierPage<'a> {
    /// The conversation.
    pub conversation: &'a ConversationId,
    /// What it is called, if it has a title or first words.
    pub title: Option<&'a str>,
    /// The events, oldest first.
    pub events: &'a [Arc<Event>],
    /// Whether there are older ones still.
    pub more: bool,
}

/// Where the events before this one are shown.
pub(super) fn path(forms: Forms<'_>, before: u64) -> String {
    format!("{}?before={before}", forms.page())
}

/// The page. It has no stream, and its log is what it was when it was asked for.
pub fn earlier(viewer: &Viewer, rights: &Rights, page: &EarlierPage<'_>) -> Markup {
    let forms = Forms { conversation: page.conversation, csrf: Some(&viewer.csrf), answers: false, link: None };
    let view = View::new(page.conversation.clone(), Projection::of_log(page.events));
    let heading = page.title.unwrap_or(page.conversation.as_str());
    let first = view.projection().events.first().map(|event| event.seq);
    let main = html! {
        div.earlier {
            header.head {
                h1 { (Shown(heading)) }
                p.soft { "An earlier part" @if page.title.is_some() { " of " code { (Name(page.conversation.as_str())) } } }
            }
            p.alert role="alert" id="alert" hidden {}
            @if let Some(first) = first.filter(|_| page.more) { p { a href=(path(forms, first)) { "Older messages" } } }
            div id="log" { (log(&view, &view.projection().events, rights, forms)) }
            p { a href=(forms.page()) { "To the newest messages" } }
        }
    };
    layout::page(viewer, heading, "", &main)
}

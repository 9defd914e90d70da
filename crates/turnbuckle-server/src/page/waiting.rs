//! Everything that waits for the user, over all conversations.

use maud::{Markup, html};
use sha2::{Digest as _, Sha256};
use turnbuckle::Timestamp;

use super::asked;
use super::card;
use super::layout::{self, Viewer};
use super::question::{self, Forms};
use super::safe::{Name, Shown, segment};
use crate::waits::Waiting;

/// A call that waits for the viewer.
#[derive(Clone, Debug)]
pub struct WaitingCall {
    /// What is asked.
    pub call: Waiting,
    /// What its conversation is called, if it has a title or first words.
    pub title: Option<String>,
}

/// The page. `calls` are those that the viewer may answer, the oldest first.
pub fn waiting(viewer: &Viewer, calls: &[WaitingCall], now: Timestamp) -> Markup {
    let main = html! {
        div.waiting data-refresh=(layout::REFRESH_SECONDS) {
            header.head { h1 { "Waiting for you" } }
            p.alert role="alert" id="alert" hidden {}
            div id="log" {
                @if calls.is_empty() { p.empty id="empty" { "Nothing waits for an answer of yours." } }
                @for call in calls { (one(viewer, call, now)) }
            }
        }
    };
    layout::page(viewer, "Waiting for you", "/page/waiting", &main)
}

fn one(viewer: &Viewer, WaitingCall { call, title }: &WaitingCall, now: Timestamp) -> Markup {
    let forms = Forms { conversation: &call.conversation, csrf: Some(&viewer.csrf), answers: true, link: None };
    let id = element_id(call);
    let path = format!("/page/c/{}", segment(call.conversation.as_str()));
    html! {
        article.card id=(id) data-state="ask" data-announce {
            header { span.dot aria-hidden="true" {} h2 { (question::title(&call.pending.question)) } span.badge { (question::since(call.asked, now)) } }
            p.soft {
                "The agent " strong { (Name(&call.agent)) } " asks, in a turn of " (card::author(&call.requester)) ", in "
                a href=(path) { (Shown(title.as_deref().unwrap_or(call.conversation.as_str()))) }
            }
            @match &call.live {
                Some(live) => { (asked::question(call, live, &id, forms)) }
                None => { (question::question(&call.pending, &id, forms)) }
            }
        }
    }
}

/// The id of a question's element: of this question alone, whatever others are there, so that what was typed into the form of one
/// never becomes the answer to another.
fn element_id(call: &Waiting) -> String {
    let digest = call.pending.question.digest().map_or("", |digest| &**digest);
    let mut hash = Sha256::new();
    for part in [call.conversation.as_str(), call.pending.call.as_str(), digest] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(call.asked.as_millis().to_be_bytes());
    let digits: String = hash.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("w-{digits}")
}

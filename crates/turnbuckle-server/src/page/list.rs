//! The list of conversations.

use maud::{Markup, html};
use turnbuckle::Timestamp;
use turnbuckle::store::{ConversationStatus, ConversationSummary};

use super::layout::{self, Viewer};
use super::safe::{Name, Shown, segment};
use super::words;

/// A conversation in the list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// As the store has it.
    pub summary: ConversationSummary,
    /// Its first words, if it has no title.
    pub first_words: Option<String>,
    /// What its turns cost, if known.
    pub cost: Option<f64>,
    /// Who could answer what it asks, if it asks something: `you`, or whom the rule names.
    pub waits_for: Option<String>,
}

/// What the list shows.
#[derive(Clone, Debug, Default)]
pub struct ListPage {
    /// The newest first.
    pub conversations: Vec<Listed>,
    /// What was searched for.
    pub search: String,
    /// The path of the page with older ones, if there are any.
    pub older: Option<String>,
    /// Whether new conversations can be begun.
    pub can_begin: bool,
}

/// The list as a page.
pub fn list(viewer: &Viewer, page: &ListPage, now: Timestamp) -> Markup {
    let main = html! {
        div.list data-refresh=(layout::REFRESH_SECONDS) {
            header.head { h1 { "Conversations" }
                @if page.can_begin {
                    form method="post" action="/page/c" {
                        input type="hidden" name="csrf" value=(viewer.csrf);
                        button.yes { "New conversation" }
                    }
                }
            }
            form.search method="get" action="/" role="search" {
                label.hidden for="q" { "Search titles, words and ids" }
                input type="search" id="q" name="q" value=(Shown(&page.search)) placeholder="Search titles, words and ids";
                button { "Search" }
            }
            @if page.conversations.is_empty() {
                p.empty { @if page.search.is_empty() { "There are no conversations yet." } @else { "Nothing matches." } }
            }
            ul.rows { @for one in &page.conversations { (row(one, now)) } }
            @if let Some(older) = &page.older { p { a href=(older) { "Older" } } }
        }
    };
    layout::page(viewer, "Conversations", "/", &main)
}

fn row(one: &Listed, now: Timestamp) -> Markup {
    let summary = &one.summary;
    let path = format!("/page/c/{}", segment(summary.id.as_str()));
    let (state, words) = match summary.status {
        ConversationStatus::Idle => ("idle", "at rest"),
        ConversationStatus::Running => ("busy", "running"),
        ConversationStatus::Waiting { .. } => ("waiting", "waits"),
    };
    let title = summary.title.as_deref().or(one.first_words.as_deref()).unwrap_or(summary.id.as_str());
    html! {
        li.item data-state=(state) {
            a.title href=(path) { (Shown(title)) }
            p.soft {
                span.dot aria-hidden="true" {} (words)
                @if let Some(who) = &one.waits_for { " for " strong { (Name(who)) } }
                @if let ConversationStatus::Waiting { until } = summary.status { ", lapses " (words::age(until, now)) }
                " · " (words::age(summary.written, now))
                @if let Some(owner) = summary.owner.user_id() { " · " (Name(owner)) }
                @if let Some(cost) = one.cost.filter(|cost| *cost > 0.0) { " · " (words::dollars(cost)) }
                @if summary.hold.is_some() { " · held" }
            }
        }
    }
}

/// The question before a conversation is deleted. `alert` says why the last try did not work.
pub fn confirm_delete(viewer: &Viewer, summary: &ConversationSummary, alert: Option<&str>) -> Markup {
    let title = summary.title.as_deref().unwrap_or(summary.id.as_str());
    let path = format!("/page/c/{}", segment(summary.id.as_str()));
    let main = html! {
        div.narrow {
            h1 { "Delete this conversation?" }
            @if let Some(alert) = alert { p.alert role="alert" { (Shown(alert)) } }
            p { strong { (Shown(title)) } " with " (words::count(usize::try_from(summary.seq).unwrap_or(usize::MAX), "event")) "." }
            p { "Its log, its records and what was made from it are removed. This cannot be undone." }
            form.row method="post" action=(format!("{path}/delete")) {
                input type="hidden" name="csrf" value=(viewer.csrf);
                input type="hidden" name="confirm" value=(summary.id.as_str());
                button.no { "Delete" }
                a href=(path) { "Keep it" }
            }
        }
    };
    layout::page(viewer, "Delete", "", &main)
}

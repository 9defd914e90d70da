//! The pages, each for the one who looks at it.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use turnbuckle::access::Action;
use turnbuckle::conversation::{Page, SendError};
use turnbuckle::store::{ConversationStatus, ConversationSummary};
use turnbuckle::{ConversationId, Scope, TurnId};

use crate::keys::random_bytes;
use crate::page::{self, ConversationPage, EarlierPage, ListPage, Listed, TurnPage, Waiting, WaitingCall};
use crate::page_caller::{PageCaller, PagePath, PageQuery, html};
use crate::rejection::Rejection;
use crate::server::App;

/// How many conversations are on one page of the list.
const LISTED: usize = 50;

/// How many events an earlier part of a conversation has.
const EARLIER: usize = 200;
/// How many events behind it are looked at for the rest of its last turn.
const REST_OF_TURN: u64 = 200;

/// In how many conversations without a title first words are searched: they stand in the logs.
const SEARCHED: usize = 4_096;

/// Which part of the list.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ListQuery {
    #[serde(default)]
    q: String,
    before: Option<String>,
}

/// The list of conversations that the viewer may read.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    who: PageCaller,
    PageQuery(query): PageQuery<ListQuery>,
) -> Response {
    who.answer(listed(&app, &who, query).await)
}

async fn listed(app: &App, who: &PageCaller, query: ListQuery) -> Result<Response, Rejection> {
    let scope = &who.caller.scope;
    let mine = app.waits_for(scope).await?;
    let before = query.before.as_deref().map(ConversationId::from);
    let wanted = query.q.trim().to_lowercase();
    let (found, more) = match wanted.is_empty() {
        true => {
            let page = app.conversations.list_page(before.as_ref(), LISTED, scope).await?;
            (page.items, page.more)
        }
        false => {
            let mut all = app.conversations.list(scope.clone()).await?;
            if let Some(before) = &before {
                let end = all.iter().position(|one| one.id == *before).map_or(all.len(), |place| place + 1);
                all.drain(..end);
            }
            let mut found = matching(app, all, &wanted, scope).await;
            let more = found.len() > LISTED;
            found.truncate(LISTED);
            (found, more)
        }
    };
    let older = found.last().filter(|_| more).map(|last| {
        let mut query_string = form_urlencoded::Serializer::new(String::from("/?"));
        query_string.append_pair("before", last.id.as_str());
        if !wanted.is_empty() {
            query_string.append_pair("q", query.q.trim());
        }
        query_string.finish()
    });
    let mut conversations = Vec::with_capacity(found.len());
    for summary in found {
        let about = async {
            let waits_for = waits_for(app, &summary, &mine).await?;
            let words = app.first_words.of(&app.conversations, &summary, scope).await?;
            Ok::<_, SendError>((waits_for, words, app.costs.of(&app.conversations, &summary).await?))
        };
        match about.await {
            Ok((waits_for, words, cost)) => {
                let first_words = words.map(|words| words.to_string());
                conversations.push(Listed { summary, first_words, cost, waits_for });
            }
            // It was deleted meanwhile.
            Err(SendError::NotFound { .. } | SendError::Deleted { .. }) => {}
            // One log that cannot be read does not hide all others.
            Err(error) => {
                tracing::warn!(conversation = %summary.id, %error, "what a conversation costs could not be read");
                conversations.push(Listed { summary, first_words: None, cost: None, waits_for: None });
            }
        }
    }
    let page = ListPage { conversations, search: query.q, older, can_begin: true };
    Ok(html(&page::list(&who.viewer(mine.len()), &page, app.clock.now())))
}

/// Those in which the text is found, as far as one page and the question whether there are more need them.
async fn matching(app: &App, all: Vec<ConversationSummary>, wanted: &str, scope: &Scope) -> Vec<ConversationSummary> {
    let has = |text: &str| text.to_lowercase().contains(wanted);
    let (mut found, mut without_title) = (Vec::new(), 0);
    for one in all {
        let is_found = has(one.id.as_str())
            || match &one.title {
                Some(title) => has(title),
                None => {
                    without_title += 1;
                    without_title <= SEARCHED && words_of(app, &one, scope).await.is_some_and(|words| has(&words))
                }
            };
        if is_found {
            found.push(one);
        }
        if found.len() > LISTED {
            break;
        }
    }
    found
}

/// Who could answer what a conversation asks.
async fn waits_for(app: &App, summary: &ConversationSummary, mine: &[Waiting]) -> Result<Option<String>, SendError> {
    // A live question waits while its turn runs.
    if mine.iter().any(|call| call.conversation == summary.id) {
        return Ok(Some("you".to_owned()));
    }
    if !matches!(summary.status, ConversationStatus::Waiting { .. }) {
        return Ok(None);
    }
    let view = app.conversations.snapshot(&summary.id, Scope::system()).await?;
    let who = view.pending.iter().find_map(|(_, pending)| {
        let who = pending.rule.as_ref()?.who();
        (!who.is_empty()).then_some(who)
    });
    Ok(who.or_else(|| summary.owner.user_id().map(|owner| owner.to_string())))
}

/// Everything that waits for the viewer.
pub(super) async fn waiting(State(app): State<Arc<App>>, who: PageCaller) -> Response {
    let shown = async {
        let calls = waiting_calls(&app, &who.caller.scope).await?;
        Ok(html(&page::waiting(&who.viewer(calls.len()), &calls, app.clock.now())))
    };
    who.answer(shown.await)
}

/// What waits for an actor, with what the conversations are called.
async fn waiting_calls(app: &App, scope: &Scope) -> Result<Vec<WaitingCall>, Rejection> {
    let pending = app.waits_for(scope).await?;
    if pending.is_empty() {
        return Ok(Vec::new());
    }
    let mut titles: HashMap<ConversationId, Option<String>> = HashMap::new();
    for call in &pending {
        if titles.contains_key(&call.conversation) {
            continue;
        }
        let title = match app.conversations.summary(&call.conversation, scope).await {
            Ok(ConversationSummary { title: Some(title), .. }) => Some(title.to_string()),
            Ok(summary) => words_of(app, &summary, scope).await,
            // Of another user, or gone meanwhile: then the id stands for it.
            Err(SendError::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        titles.insert(call.conversation.clone(), title);
    }
    let with_title = |call: Waiting| WaitingCall { title: titles.get(&call.conversation).cloned().flatten(), call };
    Ok(pending.into_iter().map(with_title).collect())
}

async fn words_of(app: &App, summary: &ConversationSummary, scope: &Scope) -> Option<String> {
    match app.first_words.of(&app.conversations, summary, scope).await {
        Ok(words) => words.map(|words| words.to_string()),
        Err(SendError::NotFound { .. } | SendError::Deleted { .. }) => None,
        Err(error) => {
            tracing::warn!(conversation = %summary.id, %error, "the first words of a conversation could not be read");
            None
        }
    }
}

/// What a page of a conversation says at once, and a message to try again.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) alert: Option<String>,
    pub(super) draft: Option<String>,
    pub(super) since: Option<u64>,
}

/// Which part of a conversation.
#[derive(Debug, Default, Deserialize)]
pub(super) struct PartQuery {
    before: Option<u64>,
    /// Of the newest part: what the page has already.
    since: Option<u64>,
}

/// One conversation: the newest part, live, or an earlier one.
pub(super) async fn conversation(
    State(app): State<Arc<App>>,
    who: PageCaller,
    PagePath(id): PagePath<ConversationId>,
    PageQuery(part): PageQuery<PartQuery>,
) -> Response {
    who.answer(match part.before {
        None => shown(&app, &who, &id, Said { since: part.since, ..Said::default() }).await,
        Some(before) => earlier(&app, &who, &id, before).await,
    })
}

/// The page of what stands before an event of the log.
async fn earlier(app: &App, who: &PageCaller, id: &ConversationId, before: u64) -> Result<Response, Rejection> {
    let (conversations, scope) = (&app.conversations, &who.caller.scope);
    let end = before.saturating_add(REST_OF_TURN);
    let most = EARLIER + usize::try_from(REST_OF_TURN).unwrap_or_default();
    let Page { items: mut events, more, .. } = conversations.history(id, Some(end), most, scope).await?;
    // The turn that is cut there is shown to its end: a call would look as if it had not run.
    let last = events.iter().rev().find(|event| event.seq < before).ok_or_else(Rejection::not_found)?.turn.clone();
    let rest = events.iter().position(|event| event.seq >= before && event.turn != last);
    events.truncate(rest.unwrap_or(events.len()));
    // And where there are older ones, it begins with a turn, unless it is all of one.
    let begin = events.windows(2).position(|pair| pair[0].turn != pair[1].turn).filter(|_| more);
    events.drain(..begin.map_or(0, |place| place + 1));
    let rights = who.rights(app, id).await?;
    let waiting = app.waiting.of(app, scope).await?;
    let title = title_of(app, &conversations.summary(id, scope).await?, scope).await;
    let page = EarlierPage { conversation: id, title: title.as_deref(), events: &events, more };
    Ok(html(&page::earlier(&who.viewer(waiting), &rights, &page)))
}

/// What a conversation is called, if it has a title, or first words that the viewer may know.
async fn title_of(app: &App, summary: &ConversationSummary, scope: &Scope) -> Option<String> {
    match &summary.title {
        Some(title) => Some(title.to_string()),
        None => words_of(app, summary, scope).await,
    }
}

/// The page of a conversation.
pub(super) async fn shown(
    app: &Arc<App>,
    who: &PageCaller,
    id: &ConversationId,
    said: Said,
) -> Result<Response, Rejection> {
    let (conversations, scope) = (&app.conversations, &who.caller.scope);
    conversations.begin_reading(id, scope).await?;
    let rights = who.rights(app, id).await?;
    let waiting = app.waiting.of(app, scope).await?;
    let summary = conversations.summary(id, scope).await?;
    let (view, cursor) = app.hubs.current_page(id).await?;
    let first_words = match view.projection().more {
        true => words_of(app, &summary, scope).await,
        false => None,
    };
    let refused = match conversations.left_turn(id, Scope::system()).await? {
        Some(left) => Some(left.to_string()),
        None => {
            let agent = conversations.other_agent(id, &Scope::system()).await?;
            agent.map(|agent| SendError::OtherAgent { id: id.clone(), agent }.to_string())
        }
    };
    let no_messages = refused.map(|why| format!("No messages can be sent here: {why}."));
    let page = ConversationPage {
        title: summary.title.map(|title| title.to_string()),
        first_words,
        since: said.since,
        agent: None,
        no_messages,
        alert: said.alert,
        draft: said.draft,
        key: Some(form_key()?),
        after: Some(cursor),
    };
    Ok(html(&page::conversation(&who.viewer(waiting), &rights, &view, &page)))
}

/// What a form for a message carries, so that it is taken once however often it is sent.
fn form_key() -> Result<String, Rejection> {
    let random: [u8; 16] = random_bytes().map_err(|error| Rejection::internal(&error))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The question before a conversation is deleted.
pub(super) async fn confirm_delete(
    State(app): State<Arc<App>>,
    who: PageCaller,
    PagePath(id): PagePath<ConversationId>,
) -> Response {
    who.answer(delete_question(&app, &who, &id, None).await)
}

/// The question, and why the last try did not work.
pub(super) async fn delete_question(
    app: &Arc<App>,
    who: &PageCaller,
    id: &ConversationId,
    alert: Option<&str>,
) -> Result<Response, Rejection> {
    let scope = &who.caller.scope;
    app.conversations.may(id, Action::Delete, scope).await?;
    let summary = app.conversations.summary(id, scope).await?;
    let waiting = app.waiting.of(app, scope).await?;
    Ok(html(&page::confirm_delete(&who.viewer(waiting), &summary, alert)))
}

/// One turn.
pub(super) async fn turn(
    State(app): State<Arc<App>>,
    who: PageCaller,
    PagePath((id, turn)): PagePath<(ConversationId, TurnId)>,
) -> Response {
    let shown = async {
        let (conversations, scope) = (&app.conversations, &who.caller.scope);
        let events = conversations.turn_log(&id, &turn, scope).await?;
        if events.is_empty() {
            return Err(Rejection::not_found());
        }
        let records = conversations.records(&id, &turn, scope.clone()).await?;
        let waiting = app.waiting.of(&app, scope).await?;
        let summary = conversations.summary(&id, scope).await?;
        let title = title_of(&app, &summary, scope).await;
        let page = TurnPage {
            conversation: &id,
            title: title.as_deref(),
            turn: &turn,
            events: &events,
            records: &records,
            hooks: &app.hook_lines,
        };
        Ok(html(&page::turn(&who.viewer(waiting), &page)))
    };
    who.answer(shown.await)
}

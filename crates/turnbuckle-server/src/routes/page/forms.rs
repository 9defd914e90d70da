//! What the forms of the page ask for.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};
use turnbuckle::access::Action;
use turnbuckle::conversation::SendError;
use turnbuckle::event::Question;
use turnbuckle::{CallId, ConversationId, TurnId, UserInput, WhileBusy};

use super::pages::{Said, delete_question, shown};
use crate::live_questions;
use crate::page::read_answer;
use crate::page::segment;
use crate::page_caller::{PageCaller, PageForm, PagePath, see_other};
use crate::rejection::{Code, Rejection};
use crate::server::App;

/// The page of a conversation.
fn path_of(id: &ConversationId) -> String {
    format!("/page/c/{}", segment(id.as_str()))
}

/// What was asked is done: the script is told so, and a browser without it goes back to the page.
fn done(who: &PageCaller, id: &ConversationId) -> Response {
    match who.is_script() {
        true => StatusCode::NO_CONTENT.into_response(),
        false => see_other(&path_of(id)),
    }
}

/// What could not be done: the script shows the message, and a browser without it gets the page with it, and what was typed.
async fn told(
    app: &Arc<App>,
    who: &PageCaller,
    id: &ConversationId,
    asked: Result<Response, Rejection>,
    draft: Option<&str>,
) -> Response {
    match asked {
        Err(rejection) if !who.is_script() && rejection.code() != Code::NotFound => {
            let said =
                Said { alert: Some(rejection.message().to_owned()), draft: draft.map(ToOwned::to_owned), since: None };
            let status = rejection.code().status();
            match shown(app, who, id, said).await {
                Ok(page) => (status, page).into_response(),
                Err(error) => who.answer(Err(error)),
            }
        }
        asked => who.answer(asked),
    }
}

/// Begins a conversation.
pub(super) async fn begin(State(app): State<Arc<App>>, form: PageForm) -> Response {
    let begun = async {
        app.takes_work()?;
        let id = app.conversations.create(None, &form.who.caller.scope).await?;
        Ok(see_other(&path_of(&id)))
    };
    form.who.answer(begun.await)
}

/// Sends a message.
pub(super) async fn send(
    State(app): State<Arc<App>>,
    PagePath(id): PagePath<ConversationId>,
    form: PageForm,
) -> Response {
    let text = form.get("content").unwrap_or_default().replace("\r\n", "\n");
    let sent = sent(&app, &form, &id, &text).await;
    told(&app, &form.who, &id, sent, Some(&text)).await
}

async fn sent(app: &Arc<App>, form: &PageForm, id: &ConversationId, text: &str) -> Result<Response, Rejection> {
    let scope = &form.who.caller.scope;
    app.takes_work()?;
    // Sending makes a conversation that is not there; here one is made by asking for it.
    app.conversations.may(id, Action::Say, scope).await?;
    if let Some(left) = app.conversations.left_turn(id, scope.clone()).await? {
        return Err(SendError::Left { id: id.clone(), left }.into());
    }
    let while_busy = match form.get("while_busy") {
        None | Some("queue") => WhileBusy::Queue,
        Some("steer") => WhileBusy::Steer,
        Some("interrupt") => WhileBusy::Interrupt,
        Some(_) => return Err(Rejection::bad_request("`while_busy` is queue, steer or interrupt")),
    };
    let mut input = UserInput::new(text);
    if let Some(key) = form.get("key").filter(|key| !key.is_empty()) {
        input = input.with_key(key_of(key, text));
    }
    match app.conversations.send_while(id, input, scope.clone(), while_busy).await {
        // It was sent twice: it is there, and that is what was asked for.
        Ok(_) | Err(SendError::SentBefore { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    app.hubs.queue_changed(id);
    Ok(done(&form.who, id))
}

/// The key of a message. A browser that goes back to a page has its form once more, and may send another text with it: that is
/// another message.
fn key_of(form: &str, text: &str) -> String {
    let digest = Sha256::new().chain_update((form.len() as u64).to_be_bytes()).chain_update(form).chain_update(text);
    let digits: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("page-{digits}")
}

/// Answers a call that waits.
pub(super) async fn answer(
    State(app): State<Arc<App>>,
    PagePath(id): PagePath<ConversationId>,
    form: PageForm,
) -> Response {
    let answered = async {
        app.takes_work()?;
        let scope = form.who.caller.scope.clone();
        let call = CallId::from(form.get("call").unwrap_or_default());
        let read = |question: &Question| {
            let answer = read_answer(question, &form.fields);
            answer.map_err(|error| Rejection::bad_request(format!("the answer does not fit: {error}")))
        };
        if let Some(asked) = app.live_questions.find(&id, &call) {
            app.conversations.may(&id, Action::Answer, &scope).await?;
            let answer = read(&asked.pending.question)?;
            live_questions::answer(&app, &asked, answer, form.get("digest"), &scope).await?;
            return Ok(done(&form.who, &id));
        }
        let pending = app.conversations.question(&id, &call, &scope).await?;
        let answer = read(&pending.question)?;
        let digest = form.get("digest").map(Into::into);
        app.conversations.resolve(&id, &call, answer, digest, scope).await?;
        Ok(done(&form.who, &id))
    };
    let answered = answered.await;
    told(&app, &form.who, &id, answered, None).await
}

/// Cancels the turn under way.
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    PagePath(id): PagePath<ConversationId>,
    form: PageForm,
) -> Response {
    let cancelled = app.conversations.cancel(&id, form.who.caller.scope.clone()).await;
    let cancelled = cancelled.map(|_| done(&form.who, &id)).map_err(Rejection::from);
    told(&app, &form.who, &id, cancelled, None).await
}

/// Takes back a message that waits.
pub(super) async fn take_back(
    State(app): State<Arc<App>>,
    PagePath(id): PagePath<ConversationId>,
    form: PageForm,
) -> Response {
    let taken = async {
        let turn = TurnId::from(form.get("item").unwrap_or_default());
        let is_taken = app.conversations.take_back(&id, &turn, form.who.caller.scope.clone()).await?;
        app.hubs.queue_changed(&id);
        match is_taken {
            true => Ok(done(&form.who, &id)),
            false => Err(Rejection::new(Code::Stale, "its turn has begun, or somebody else sent it")),
        }
    };
    let taken = taken.await;
    told(&app, &form.who, &id, taken, None).await
}

/// Names the conversation.
pub(super) async fn rename(
    State(app): State<Arc<App>>,
    PagePath(id): PagePath<ConversationId>,
    form: PageForm,
) -> Response {
    let title = form.get("title").unwrap_or_default();
    let renamed = match app.conversations.set_title(&id, title, &form.who.caller.scope).await {
        Ok(true) => Ok(done(&form.who, &id)),
        Ok(false) => Err(Rejection::bad_request("a title has at least one letter or digit")),
        Err(error) => Err(error.into()),
    };
    told(&app, &form.who, &id, renamed, None).await
}

/// Deletes the conversation, after the question.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    PagePath(id): PagePath<ConversationId>,
    form: PageForm,
) -> Response {
    let deleted = async {
        if form.get("confirm") != Some(id.as_str()) {
            return Err(Rejection::bad_request("the deletion was not confirmed"));
        }
        let deleted = app.conversations.delete(&id, form.who.caller.scope.clone()).await?;
        if !deleted.left.is_empty() {
            tracing::warn!(left = deleted.left.len(), "a deleted conversation has leftovers; they are tried again");
        }
        Ok(see_other("/"))
    };
    match deleted.await {
        // The question is asked again. The page of the conversation would stand at an address that is not its own, and what is typed
        // there would be lost when it is loaded again.
        Err(rejection) if !form.who.is_script() && rejection.code() != Code::NotFound => {
            let message = match rejection.code() {
                Code::Busy => {
                    "A turn is under way in this conversation. Cancel it first, then delete the conversation."
                }
                _ => rejection.message(),
            };
            let status = rejection.code().status();
            match delete_question(&app, &form.who, &id, Some(message)).await {
                Ok(page) => (status, page).into_response(),
                Err(error) => form.who.answer(Err(error)),
            }
        }
        deleted => form.who.answer(deleted),
    }
}

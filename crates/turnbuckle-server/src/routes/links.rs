//! Links that answer one call: for whoever has one, without a token.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::Markup;
use turnbuckle::Scope;
use turnbuckle::projection::Pending;
use turnbuckle::store::Answer;

use super::answers::answer_of;
use crate::caller::{Caller, Identity, check_is_local};
use crate::extract::{InPath, JsonBody, Signed, form_fields, is_form};
use crate::link::{Link, path_of};
use crate::page::{self, LinkPage, read_answer};
use crate::page_caller::{field, html};
use crate::rejection::{Code, Rejection};
use crate::server::App;
use crate::session::is_csrf;
use crate::wire::{CallAnswer, ErrorBody, LinkAnswer, LinkUsed, LinkView};

/// A link that counts, and who answers with it.
struct OpenLink {
    link: Link,
    scope: Scope,
    signed: String,
}

/// How the answer looks: a page for people, JSON for programs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Html,
    Json,
}

impl Style {
    fn of(parts: &Parts) -> Self {
        let takes_html =
            |value: &HeaderValue| value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains("text/html"));
        let is_html = match parts.headers.get(CONTENT_TYPE) {
            Some(_) => is_form(&parts.headers),
            None => parts.headers.get_all(ACCEPT).iter().any(takes_html),
        };
        if is_html { Self::Html } else { Self::Json }
    }

    fn answer(self, answer: Result<Response, Rejection>) -> Response {
        match (self, answer) {
            (_, Ok(answer)) => answer,
            (Self::Json, Err(rejection)) => rejection.into_response(),
            (Self::Html, Err(rejection)) => {
                let title = rejection.code().status().canonical_reason().unwrap_or("Error");
                let page = html(&match rejection.code() {
                    Code::NotFound => {
                        page::link_over(title, "This link leads nowhere: it was used or revoked, or its time is over.")
                    }
                    _ => page::link_over(title, rejection.message()),
                });
                let (page, body) = page.into_parts();
                // With the headers of the error, such as when to try again.
                let mut answer = rejection.into_response();
                answer.headers_mut().remove(CONTENT_LENGTH);
                answer.headers_mut().extend(page.headers);
                *answer.body_mut() = body;
                answer
            }
        }
    }
}

/// What a link would answer
///
/// Changes nothing. A browser gets a page with a form. A link that was used, revoked or made up, or whose question has lapsed, is 404;
/// one whose call was answered otherwise is 409 `stale`.
#[utoipa::path(get, path = "/v1/answers/{signed}", operation_id = "show_link", tag = "answers", params(("signed" = String, Path)),
    responses((status = 200, description = "what the link would answer", body = LinkView), (status = "4XX", description = "the link cannot be used: `not_found`, `stale`", body = ErrorBody)))]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    InPath(Signed(signed)): InPath<Signed>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let style = Style::of(&parts);
    let shown = async {
        let open = OpenLink::of(&parts, &app, signed)?;
        let asked = open.asked(&app).await?;
        Ok(match style {
            Style::Html => open.page(&app, &asked, None),
            Style::Json => {
                let OpenLink { link, .. } = open;
                let view = LinkView { conversation: link.conversation, user: link.user, pending: asked.into() };
                Json(view).into_response()
            }
        })
    };
    style.answer(shown.await)
}

/// Answers a call with a link
///
/// In the name of the link's user, with the rights that this user has now. Needs no token. A link works once; one for nobody in
/// particular can deny and do no more. `{"revoke": true}` makes the link void. Forms of the link's page are taken, too.
#[utoipa::path(post, path = "/v1/answers/{signed}", operation_id = "answer_link", tag = "answers", params(("signed" = String, Path)),
    request_body = LinkAnswer,
    responses((status = 200, description = "the answer is recorded, or the link is revoked", body = LinkUsed), (status = "4XX", description = "the answer was not taken: `bad_request`, `forbidden`, `not_found`, `stale`, `changed`, `too_large`", body = ErrorBody)))]
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    InPath(Signed(signed)): InPath<Signed>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let style = Style::of(&parts);
    let used = async {
        let open = OpenLink::of(&parts, &app, signed)?;
        let request = Request::from_parts(parts, body);
        match style {
            Style::Html => open.take_form(request, &app).await,
            Style::Json => {
                let JsonBody(given) = JsonBody::<LinkAnswer>::from_request(request, &app).await?;
                Ok(Json(open.take(given, &app).await?).into_response())
            }
        }
    };
    style.answer(used.await)
}

impl OpenLink {
    /// The link of a request. Whatever is wrong with it, the answer is the same.
    fn of(parts: &Parts, app: &App, signed: String) -> Result<Self, Rejection> {
        if app.tokens.is_none() {
            check_is_local(parts)?;
        }
        let good = Link::read(&signed, &app.keys).filter(|link| link.is_good(&app.keys, app.clock.now()));
        let known = good.and_then(|link| link.scope(app).map(|scope| (link, scope)));
        let Some((link, scope)) = known else {
            app.limits.admit(Identity::BadLink)?;
            return Err(Rejection::not_found());
        };
        let Caller { scope, .. } = Caller { scope, identity: Identity::Link(link.id) }.admitted(parts, app)?;
        Ok(Self { link, scope, signed })
    }

    /// What is asked, if it is still what the link was made for.
    async fn asked(&self, app: &App) -> Result<Pending, Rejection> {
        let Link { conversation, call, user, .. } = &self.link;
        let stale = |why: &str| Rejection::new(Code::Stale, why);
        let asked = match user {
            Some(_) => app.conversations.question(conversation, call, &self.scope).await?,
            // Whoever has the link is to see what it can deny.
            None => {
                let view = app.conversations.snapshot(conversation, Scope::system()).await?;
                view.pending.get(call).cloned().ok_or_else(|| stale("the question is not open any more"))?
            }
        };
        match self.link.is_of(&asked) {
            true => Ok(asked),
            false => Err(stale("something else is asked by now than what this link was made for")),
        }
    }

    fn page(&self, app: &App, asked: &Pending, alert: Option<&str>) -> Response {
        html(&page::link(&LinkPage {
            conversation: &self.link.conversation,
            asked,
            user: self.link.user.as_deref(),
            path: &path_of(&self.signed),
            token: &self.link.form_token(&app.keys),
            alert,
        }))
    }

    /// Takes an answer of a program.
    async fn take(&self, given: LinkAnswer, app: &App) -> Result<LinkUsed, Rejection> {
        let LinkAnswer { approve, reason, arguments, digest, answer, error, revoke } = given;
        let is_of_other = digest.is_some() && digest != self.link.digest;
        let given = CallAnswer { approve, reason, arguments, digest, answer, error, accept_changes: false };
        if revoke {
            return match given.is_empty() {
                true => self.revoke(app),
                false => Err(Rejection::bad_request("`revoke` stands alone")),
            };
        }
        let answer = answer_of(given)?;
        if is_of_other {
            return Err(Rejection::new(Code::Stale, "it was shown with other arguments than this link was made for"));
        }
        self.asked(app).await?;
        self.give(answer, app).await
    }

    /// Takes a form of the link's page.
    async fn take_form(&self, request: Request, app: &Arc<App>) -> Result<Response, Rejection> {
        let fields = form_fields(request, app).await?;
        let asked = self.asked(app).await;
        let token = field(&fields, "csrf").unwrap_or_default();
        // Whoever only knows the address has not seen what they answer.
        if !is_csrf(&self.link.form_token(&app.keys), token) {
            return Ok((StatusCode::FORBIDDEN, self.page(app, &asked?, Some("Look at it again, and then answer.")))
                .into_response());
        }
        if field(&fields, "decision") == Some("revoke") {
            self.revoke(app)?;
            return Ok(html(&page::link_over(
                "Revoked",
                "This link cannot be used any more. The question is still open.",
            )));
        }
        let asked = asked?;
        let given = match read_answer(&asked.question, &fields) {
            Ok(answer) => self.give(answer.clone(), app).await.map(|used| (answer, used)),
            Err(error) => Err(Rejection::bad_request(error.to_string())),
        };
        match given {
            Ok((answer, used)) => Ok(html(&thanks(&answer, used.left.as_deref()))),
            // What can be mended is shown with the question; what cannot, alone.
            Err(rejection) if matches!(rejection.code(), Code::BadRequest | Code::Forbidden | Code::TooLarge) => {
                let page = self.page(app, &asked, Some(rejection.message()));
                Ok((rejection.code().status(), page).into_response())
            }
            Err(rejection) => Err(rejection),
        }
    }

    fn revoke(&self, app: &App) -> Result<LinkUsed, Rejection> {
        self.link.end(&app.keys, app.clock.now()).map_err(|error| Rejection::internal(&error))?;
        tracing::info!(conversation = %self.link.conversation, call = %self.link.call, "a link was revoked");
        Ok(LinkUsed { revoked: true, ..LinkUsed::default() })
    }

    /// Gives the answer, and makes the link void. Of two that use it at once one is first, and the other's answer is stale.
    async fn give(&self, answer: Answer, app: &App) -> Result<LinkUsed, Rejection> {
        app.takes_work()?;
        let Link { conversation, call, digest, user, .. } = &self.link;
        if user.is_none() && !matches!(answer, Answer::Deny(_)) {
            return Err(Rejection::new(
                Code::Forbidden,
                "this link names nobody: it can deny, and not approve or answer",
            ));
        }
        let digest = digest.as_deref().map(Into::into);
        let handle = app.conversations.resolve(conversation, call, answer, digest, self.scope.clone()).await?;
        if let Err(error) = self.link.end(&app.keys, app.clock.now()) {
            // The answer is written, and no second one would be taken.
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "a link that was used could not be noted as such"
            );
        }
        Ok(LinkUsed { turn: Some(handle.turn().clone()), left: handle.left().map(ToString::to_string), revoked: false })
    }
}

/// What is shown when the answer is written.
fn thanks(answer: &Answer, left: Option<&str>) -> Markup {
    let title = match answer {
        Answer::Approve => "Approved",
        Answer::ApproveWith(_) => "Approved as edited",
        Answer::Deny(_) => "Denied",
        _ => "Answered",
    };
    let text = match left {
        None => "Your answer is recorded. You can close this page.".to_owned(),
        Some(left) => format!("Your answer is recorded. The turn is not carried on here: {left}."),
    };
    page::link_over(title, &text)
}

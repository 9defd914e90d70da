//! Logging in with a token, and out again.

use std::sync::Arc;

use axum::extract::{FromRequestParts as _, Request, State};
use axum::http::StatusCode;
use axum::http::header::SET_COOKIE;
use axum::response::{IntoResponse as _, Response};
use tokio::task::spawn_blocking;

use crate::caller::{Identity, check_origin};
use crate::extract::form_fields;
use crate::page::{self, Viewer};
use crate::page_caller::{PageCaller, PageForm, check_csrf, field, html, see_other};
use crate::rejection::Rejection;
use crate::server::App;
use crate::session::{Session, csrf_without_session, is_secure, removed_cookie};

/// The form, or the list if nobody has to log in.
pub(super) async fn form(State(app): State<Arc<App>>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    match PageCaller::from_request_parts(&mut parts, &app).await {
        Ok(_) => see_other("/"),
        Err(_) if app.tokens.is_some() => match app.limits.admit(Identity::AtLogin) {
            Ok(()) => html(&page::login(&nobody(&app), None)),
            Err(rejection) => rejection.into_response(),
        },
        // Without tokens there is nothing to log in with: the error says why the request was refused.
        Err(rejection) => rejection.into_response(),
    }
}

/// Begins a session with the token in the form.
pub(super) async fn log_in(State(app): State<Arc<App>>, request: Request) -> Response {
    match begin(&app, request).await {
        Ok(answer) => answer,
        Err(rejection) => {
            let status = rejection.code().status();
            let shown = html(&page::login(&nobody(&app), Some(rejection.message())));
            (status, shown).into_response()
        }
    }
}

fn nobody(app: &App) -> Viewer {
    Viewer { csrf: csrf_without_session(&app.keys), ..Viewer::default() }
}

async fn begin(app: &Arc<App>, request: Request) -> Result<Response, Rejection> {
    let Some(tokens) = &app.tokens else { return Ok(see_other("/")) };
    let (parts, body) = request.into_parts();
    check_origin(&parts)?;
    let is_secure = is_secure(&parts.headers, app.certificate.as_ref());
    let fields = form_fields(Request::from_parts(parts, body), app).await?;
    check_csrf(&csrf_without_session(&app.keys), None, &fields)?;
    let given = field(&fields, "token").unwrap_or_default().trim();
    let Some(token) = tokens.find(given) else {
        app.limits.admit_unknown()?;
        let shown = html(&page::login(&nobody(app), Some("This token is not known.")));
        return Ok((StatusCode::UNAUTHORIZED, shown).into_response());
    };
    app.limits.admit(Identity::Token(token.digest()))?;
    let session = Session::begin(token.digest(), app.clock.now()).map_err(|error| Rejection::internal(&error))?;
    let mut answer = see_other("/");
    if let Some(cookie) = session.cookie(&app.keys, is_secure) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
    tracing::info!(user = %token.user(), "logged in");
    Ok(answer)
}

/// Ends the session: its cookie is worth nothing any more, wherever a copy of it is.
pub(super) async fn log_out(State(app): State<Arc<App>>, form: PageForm) -> Response {
    let who = &form.who;
    let Some(session) = who.session else { return see_other("/") };
    if let Err(rejection) = end(&app, session).await {
        return who.answer(Err(rejection));
    }
    let mut answer = see_other("/login");
    for is_secure in [false, true] {
        if let Some(cookie) = removed_cookie(is_secure) {
            answer.headers_mut().append(SET_COOKIE, cookie);
        }
    }
    answer
}

/// Writes to disk, on a thread for that.
async fn end(app: &Arc<App>, session: Session) -> Result<(), Rejection> {
    let here = app.clone();
    let ended = spawn_blocking(move || session.end(&here.keys, here.clock.now())).await;
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Rejection::internal(&error)),
        Err(error) => Err(Rejection::internal(&error)),
    }
}

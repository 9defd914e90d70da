//! Who looks at the page: by cookie, or the one user of a server without tokens. And how errors look there.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::Markup;
use serde::de::DeserializeOwned;
use turnbuckle::ConversationId;
use turnbuckle::access::Action;
use turnbuckle::conversation::SendError;

use crate::caller::{Caller, Identity, check_is_local, check_origin};
use crate::extract::{InPath, PathParts, QueryOf, form_fields};
use crate::page::{self, Rights, Viewer};
use crate::rejection::{Code, Rejection};
use crate::server::App;
use crate::session::{Session, csrf_without_session, is_csrf};

/// Who looks at the page.
pub(crate) struct PageCaller {
    pub(crate) caller: Caller,
    /// What the forms of this viewer carry.
    pub(crate) csrf: String,
    /// None on a server without tokens.
    pub(crate) session: Option<Session>,
    /// How errors are told.
    style: Style,
}

/// How an error is told: as a page to a person, as JSON to the page's script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Html { may_redirect: bool },
    Json,
}

impl Style {
    fn of(parts: &Parts) -> Self {
        let accepts = |what: &str| {
            parts.headers.get_all(ACCEPT).iter().any(|value| value.to_str().is_ok_and(|value| value.contains(what)))
        };
        // A browser's stream takes no page, and the script asks for JSON.
        match accepts("text/html") || !(accepts("application/json") || accepts("text/event-stream")) {
            true => Self::Html { may_redirect: matches!(parts.method, Method::GET | Method::HEAD) },
            false => Self::Json,
        }
    }
}

/// The answer to a path that nothing is at.
pub(crate) async fn nothing_here(request: Request) -> Response {
    as_asked_for(request.headers(), Rejection::not_found())
}

/// An error before it is known what a request is for: a page for a person who typed the address, and JSON for a program.
pub(crate) fn as_asked_for(headers: &HeaderMap, rejection: Rejection) -> Response {
    let is_person =
        headers.get(ACCEPT).is_some_and(|value| value.to_str().is_ok_and(|value| value.contains("text/html")));
    let style = if is_person { Style::Html { may_redirect: false } } else { Style::Json };
    PageRejection { rejection, style }.into_response()
}

/// An error as the page tells it.
pub(crate) struct PageRejection {
    rejection: Rejection,
    style: Style,
}

impl IntoResponse for PageRejection {
    fn into_response(self) -> Response {
        match self.style {
            Style::Json => self.rejection.into_response(),
            Style::Html { may_redirect: true } if self.rejection.code() == Code::Unauthorized => see_other("/login"),
            Style::Html { .. } => {
                let (status, message) = (self.rejection.code().status(), self.rejection.message().to_owned());
                let title = status.canonical_reason().unwrap_or("Error");
                let shown = html(&page::problem(&Viewer::default(), title, &message));
                let mut answer = self.rejection.into_response();
                // With the headers of the error, such as when to try again.
                *answer.body_mut() = shown.into_body();
                for (name, value) in HEADERS {
                    answer.headers_mut().insert(name, HeaderValue::from_static(value));
                }
                answer.headers_mut().remove(axum::http::header::CONTENT_LENGTH);
                answer
            }
        }
    }
}

/// Of every page. The address of a page is told to no other site. With `no-referrer` the browser would hide it from us as well: its
/// forms would come with the origin `null`, and be refused.
const HEADERS: [(HeaderName, &str); 4] = [
    (CONTENT_TYPE, "text/html; charset=utf-8"),
    (CONTENT_SECURITY_POLICY, page::CONTENT_SECURITY_POLICY),
    (CACHE_CONTROL, "no-store"),
    (REFERRER_POLICY, "same-origin"),
];

/// A page.
pub(crate) fn html(markup: &Markup) -> Response {
    (HEADERS, markup.0.clone()).into_response()
}

/// Leads to another page with GET.
pub(crate) fn see_other(path: &str) -> Response {
    // A path of ours is made of visible ASCII.
    let place = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(LOCATION, place)]).into_response()
}

impl FromRequestParts<Arc<App>> for PageCaller {
    type Rejection = PageRejection;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, PageRejection> {
        let style = Style::of(parts);
        Self::of(parts, app, style).map_err(|rejection| PageRejection { rejection, style })
    }
}

impl PageCaller {
    fn of(parts: &Parts, app: &App, style: Style) -> Result<Self, Rejection> {
        let (scope, identity, csrf, session) = match &app.tokens {
            None => {
                check_is_local(parts)?;
                (app.local.clone(), Identity::Local, csrf_without_session(&app.keys), None)
            }
            Some(tokens) => {
                check_origin(parts)?;
                let unknown = || {
                    let refused = Rejection::new(Code::Unauthorized, "you are not logged in");
                    app.limits.admit(Identity::Nobody).err().unwrap_or(refused)
                };
                let session = Session::of(&parts.headers, &app.keys, app.clock.now()).ok_or_else(unknown)?;
                let token = tokens.with_digest(&session.token).ok_or_else(unknown)?;
                (token.scope(), Identity::Token(session.token), session.csrf(&app.keys), Some(session))
            }
        };
        let caller = Caller { scope, identity }.admitted(parts, app)?;
        Ok(Self { caller, csrf, session, style })
    }

    /// The answer, or the error as this viewer is told it.
    pub(crate) fn answer(&self, answer: Result<Response, Rejection>) -> Response {
        match answer {
            Ok(answer) => answer,
            Err(rejection) => PageRejection { rejection, style: self.style }.into_response(),
        }
    }

    /// Whether the page's script asks, and not a form of its own.
    pub(crate) fn is_script(&self) -> bool {
        self.style == Style::Json
    }

    /// As pages show the viewer.
    pub(crate) fn viewer(&self, waiting: usize) -> Viewer {
        Viewer {
            user: self.caller.scope.user_id().map(|user| user.to_string()),
            csrf: self.csrf.clone(),
            can_log_out: self.session.is_some(),
            waiting,
        }
    }

    /// What the viewer may do with a conversation that they may read.
    pub(crate) async fn rights(&self, app: &App, id: &ConversationId) -> Result<Rights, Rejection> {
        rights_of(app, &self.caller, id).await
    }
}

/// What a caller may do with a conversation that they may read.
pub(crate) async fn rights_of(app: &App, caller: &Caller, id: &ConversationId) -> Result<Rights, Rejection> {
    let may = async |action| match app.conversations.may(id, action, &caller.scope).await {
        Ok(()) => Ok(true),
        Err(SendError::Forbidden { .. }) => Ok(false),
        Err(error) => Err(Rejection::from(error)),
    };
    Ok(Rights {
        actor: caller.scope.actor().clone(),
        say: may(Action::Say).await?,
        answer: may(Action::Answer).await?,
        cancel: may(Action::Cancel).await?,
        delete: may(Action::Delete).await?,
    })
}

/// What stands in the path, told as the page tells errors.
pub(crate) struct PagePath<T>(pub(crate) T);

impl<T: PathParts> FromRequestParts<Arc<App>> for PagePath<T> {
    type Rejection = PageRejection;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, PageRejection> {
        match InPath::from_request_parts(parts, app).await {
            Ok(InPath(value)) => Ok(Self(value)),
            Err(rejection) => Err(PageRejection { rejection, style: Style::of(parts) }),
        }
    }
}

/// The query, told as the page tells errors.
pub(crate) struct PageQuery<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for PageQuery<T> {
    type Rejection = PageRejection;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, PageRejection> {
        match QueryOf::from_request_parts(parts, app).await {
            Ok(QueryOf(value)) => Ok(Self(value)),
            Err(rejection) => Err(PageRejection { rejection, style: Style::of(parts) }),
        }
    }
}

/// What a form of the page sent, by a viewer to whom the form was given.
pub(crate) struct PageForm {
    pub(crate) who: PageCaller,
    pub(crate) fields: Vec<(String, String)>,
}

impl PageForm {
    /// The first value of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        field(&self.fields, name)
    }
}

/// The first value of a field.
pub(crate) fn field<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

impl FromRequest<Arc<App>> for PageForm {
    type Rejection = PageRejection;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, PageRejection> {
        let (mut parts, body) = request.into_parts();
        let who = PageCaller::from_request_parts(&mut parts, app).await?;
        let style = who.style;
        let reject = |rejection| PageRejection { rejection, style };
        let header = parts.headers.get("x-csrf-token").cloned();
        let fields = form_fields(Request::from_parts(parts, body), app).await.map_err(reject)?;
        check_csrf(&who.csrf, header.as_ref(), &fields).map_err(reject)?;
        Ok(Self { who, fields })
    }
}

/// The token that the viewer's pages were given must come back, as a field or, from the script, as a header.
pub(crate) fn check_csrf(
    expected: &str,
    header: Option<&HeaderValue>,
    fields: &[(String, String)],
) -> Result<(), Rejection> {
    let in_header = header.is_some_and(|given| given.to_str().is_ok_and(|given| is_csrf(expected, given)));
    match in_header || field(fields, "csrf").is_some_and(|given| is_csrf(expected, given)) {
        true => Ok(()),
        false => Err(Rejection::new(Code::Forbidden, "this form is too old: load the page again")),
    }
}

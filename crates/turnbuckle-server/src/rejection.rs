//! The one shape of every error that is sent: `{"error":{"code","message"}}`.

use std::any::Any;
use std::time::Duration;

use axum::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use turnbuckle::conversation::{CreateError, ResolveError, SendError};
use turnbuckle::store::StoreError;

use crate::wire::{ErrorBody, ErrorDetail};

/// What kind of error it is, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The request cannot be understood.
    BadRequest,
    /// No token, or one that is not known.
    Unauthorized,
    /// The caller may read this and may not do this.
    Forbidden,
    /// There is no such thing, or the caller may not read it.
    NotFound,
    /// The path has no such method.
    MethodNotAllowed,
    /// A turn runs or waits.
    Busy,
    /// The question was answered, has expired, or was shown with other arguments.
    Stale,
    /// The id is taken.
    Exists,
    /// The turn is of another agent, or its agent has changed.
    Changed,
    /// The conversation is on hold.
    Held,
    /// The body or the message is too large.
    TooLarge,
    /// The request is for another host.
    Misdirected,
    /// Too many requests.
    RateLimited,
    /// The server failed.
    Internal,
    /// Another process has the conversation, or the server shuts down.
    InUse,
}

impl Code {
    /// The code for an error of which only the status is known.
    pub(crate) fn of_status(status: StatusCode) -> Self {
        const ALL: [Code; 8] = [
            Code::Unauthorized,
            Code::Forbidden,
            Code::NotFound,
            Code::MethodNotAllowed,
            Code::TooLarge,
            Code::Misdirected,
            Code::RateLimited,
            Code::InUse,
        ];
        let other = if status.is_server_error() { Self::Internal } else { Self::BadRequest };
        ALL.into_iter().find(|code| code.status() == status).unwrap_or(other)
    }

    /// As it is written.
    pub(crate) fn name(self) -> &'static str {
        self.parts().0
    }

    /// The HTTP status.
    pub(crate) fn status(self) -> StatusCode {
        self.parts().1
    }

    fn parts(self) -> (&'static str, StatusCode) {
        match self {
            Self::BadRequest => ("bad_request", StatusCode::BAD_REQUEST),
            Self::Unauthorized => ("unauthorized", StatusCode::UNAUTHORIZED),
            Self::Forbidden => ("forbidden", StatusCode::FORBIDDEN),
            Self::NotFound => ("not_found", StatusCode::NOT_FOUND),
            Self::MethodNotAllowed => ("method_not_allowed", StatusCode::METHOD_NOT_ALLOWED),
            Self::Busy => ("busy", StatusCode::CONFLICT),
            Self::Stale => ("stale", StatusCode::CONFLICT),
            Self::Exists => ("exists", StatusCode::CONFLICT),
            Self::Changed => ("changed", StatusCode::CONFLICT),
            Self::Held => ("held", StatusCode::CONFLICT),
            Self::TooLarge => ("too_large", StatusCode::PAYLOAD_TOO_LARGE),
            Self::Misdirected => ("misdirected", StatusCode::MISDIRECTED_REQUEST),
            Self::RateLimited => ("rate_limited", StatusCode::TOO_MANY_REQUESTS),
            Self::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
            Self::InUse => ("in_use", StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}

/// Why a request was not done. Every handler and extractor returns it, and it alone writes an error's body.
#[derive(Debug)]
pub(crate) struct Rejection {
    code: Code,
    message: String,
    retry_after: Option<Duration>,
}

impl Rejection {
    /// An error with a message for people.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        let retry_after = match code {
            Code::RateLimited | Code::InUse => Some(Duration::from_secs(1)),
            _ => None,
        };
        Self { code, message: message.into(), retry_after }
    }

    /// The request cannot be understood.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, message)
    }

    /// There is nothing here for this caller.
    pub(crate) fn not_found() -> Self {
        Self::new(Code::NotFound, "there is nothing here")
    }

    /// When to try again, in whole seconds, at least one.
    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// What it says to people.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// What kind of error it is.
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// An error of the server: what it was is for its log, and not for callers.
    pub(crate) fn internal(error: &dyn std::error::Error) -> Self {
        let causes = std::iter::successors(error.source(), |cause| cause.source());
        let text = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
        tracing::error!(error = %text, "a request failed");
        Self::new(Code::Internal, "the server failed; its log says why")
    }

    /// A handler that panicked. What it said may have content of a conversation, and is not logged.
    pub(crate) fn of_panic(_: Box<dyn Any + Send + 'static>) -> Response {
        tracing::error!("a request failed: its handler panicked");
        Self::new(Code::Internal, "the server failed; its log says why").into_response()
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let Self { code, message, retry_after } = self;
        let body = ErrorBody { error: ErrorDetail { code: code.name().to_owned(), message } };
        let mut response = (code.status(), axum::Json(body)).into_response();
        let headers = response.headers_mut();
        if let Some(wait) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
        if code == Code::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// The answer to a method that a path does not have. It keeps the list of methods that the router made.
pub(crate) fn with_body_of_405(response: Response) -> Response {
    if response.status() != StatusCode::METHOD_NOT_ALLOWED {
        return response;
    }
    let allowed = response.headers().get(ALLOW).cloned();
    let mut answer = Rejection::new(Code::MethodNotAllowed, "this path has no such method").into_response();
    if let Some(allowed) = allowed {
        answer.headers_mut().insert(ALLOW, allowed);
    }
    answer
}

impl From<StoreError> for Rejection {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::InUse { .. } => Self::new(Code::InUse, "another process has the conversation"),
            StoreError::NotFound { .. } | StoreError::Deleted { .. } => Self::not_found(),
            StoreError::Full { .. } => Self::new(Code::RateLimited, "too much is asked of the conversation at once"),
            error => Self::internal(&error),
        }
    }
}

impl From<SendError> for Rejection {
    fn from(error: SendError) -> Self {
        let code = match &error {
            SendError::Store(store) => return store.clone().into(),
            SendError::Hook { .. } => return Self::internal(&error),
            SendError::NotFound { .. } | SendError::Deleted { .. } => return Self::not_found(),
            SendError::Empty | SendError::KeyReused => Code::BadRequest,
            SendError::TooLarge { .. } => Code::TooLarge,
            SendError::Busy { .. } => Code::Busy,
            SendError::Forbidden { .. } => Code::Forbidden,
            SendError::Left { .. } | SendError::OtherAgent { .. } | SendError::NoAgent => Code::Changed,
            SendError::Full { .. } => Code::RateLimited,
            SendError::Held { .. } => Code::Held,
            SendError::Gone => Code::InUse,
            _ => return Self::internal(&error),
        };
        Self::new(code, error.to_string())
    }
}

impl From<ResolveError> for Rejection {
    fn from(error: ResolveError) -> Self {
        let code = match &error {
            ResolveError::Store(store) => return store.clone().into(),
            ResolveError::NotFound { .. } => return Self::not_found(),
            ResolveError::Stale { .. } => Code::Stale,
            ResolveError::Unfit { .. } => Code::BadRequest,
            ResolveError::Forbidden { .. } => Code::Forbidden,
            ResolveError::Changed { .. } => Code::Changed,
            ResolveError::InUse { .. } | ResolveError::Gone => Code::InUse,
            ResolveError::TooLong { .. } => Code::TooLarge,
            ResolveError::Full { .. } => Code::RateLimited,
            _ => return Self::internal(&error),
        };
        Self::new(code, error.to_string())
    }
}

impl From<CreateError> for Rejection {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Exists { .. } => Self::new(Code::Exists, error.to_string()),
            CreateError::Store(error) => error.into(),
            error => Self::internal(&error),
        }
    }
}

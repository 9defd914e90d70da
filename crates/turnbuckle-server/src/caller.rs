//! Who calls: found out once for each request, before a handler sees it.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use axum::extract::FromRequestParts;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use turnbuckle::Scope;

use crate::keys::SealId;
use crate::rejection::{Code, Rejection};
use crate::server::App;

/// Who calls, and by what they are known.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The user and their roles.
    pub(crate) scope: Scope,
    pub(crate) identity: Identity,
}

/// By what a caller is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// The server has no tokens and listens on loopback: there is one user.
    Local,
    /// By a token with this SHA-256: a bearer token, or one that a session of the page began with.
    Token([u8; 32]),
    /// Somebody with a token that is not known.
    Unknown,
    /// Somebody without any token.
    Nobody,
    /// Somebody who asks for the form to log in with.
    AtLogin,
    /// By a link that answers a call.
    Link(SealId),
    /// By what is no link, or none any more: all of them together.
    BadLink,
}

impl Identity {
    /// Whether it stands for one caller, and not for all those of whom nothing is known.
    pub(crate) fn is_known(self) -> bool {
        match self {
            Self::Local | Self::Token(_) | Self::Link(_) => true,
            Self::Unknown | Self::Nobody | Self::AtLogin | Self::BadLink => false,
        }
    }
}

/// Where the log of requests finds the user once the caller is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownUser(pub(crate) Arc<OnceLock<Arc<str>>>);

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Rejection> {
        let caller = match &app.tokens {
            None => {
                check_is_local(parts)?;
                Self { scope: app.local.clone(), identity: Identity::Local }
            }
            Some(tokens) => {
                let text = match bearer(&parts.headers) {
                    Ok(text) => text,
                    Err(rejection) => {
                        app.limits.admit(Identity::Nobody)?;
                        return Err(rejection);
                    }
                };
                let Some(token) = tokens.find(text) else {
                    app.limits.admit_unknown()?;
                    return Err(Rejection::new(Code::Unauthorized, "the token is not known"));
                };
                Self { scope: token.scope(), identity: Identity::Token(token.digest()) }
            }
        };
        caller.admitted(parts, app)
    }
}

impl Caller {
    /// Counts the request, and lets the log of requests know who asks.
    pub(crate) fn admitted(self, parts: &Parts, app: &App) -> Result<Self, Rejection> {
        if let (Some(KnownUser(known)), Some(user)) = (parts.extensions.get::<KnownUser>(), self.scope.user_id()) {
            // Set once: a handler extracts the caller once.
            known.get_or_init(|| user.clone());
        }
        app.limits.admit(self.identity)?;
        Ok(self)
    }
}

fn bearer(headers: &HeaderMap) -> Result<&str, Rejection> {
    let unauthorized = |message: &str| Rejection::new(Code::Unauthorized, message);
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = given.next() else {
        return Err(unauthorized("a token is needed: `Authorization: Bearer TOKEN`"));
    };
    if given.next().is_some() {
        return Err(unauthorized("there is more than one `Authorization`"));
    }
    let text = value.to_str().map_err(|_| unauthorized("the token is not known"))?;
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => Ok(token.trim()),
        _ => Err(unauthorized("a token is given as `Authorization: Bearer TOKEN`")),
    }
}

/// Without tokens whoever reaches the server is its user. A page of another site in the same browser must not be: its requests
/// name that site as `Origin`, or, if its name was made to point here (DNS rebinding), as `Host`.
pub(crate) fn check_is_local(parts: &Parts) -> Result<(), Rejection> {
    let misdirected = || Rejection::new(Code::Misdirected, "this server answers for localhost only");
    match host_of(parts) {
        Some(host) if is_loopback(host) => check_origin(parts),
        _ => Err(misdirected()),
    }
}

/// What a browser sends must come from a page of this server, not from one of another site.
pub(crate) fn check_origin(parts: &Parts) -> Result<(), Rejection> {
    let foreign = || Rejection::new(Code::Forbidden, "requests from pages of other sites are refused");
    let host = host_of(parts).ok_or_else(foreign)?;
    for origin in parts.headers.get_all(ORIGIN) {
        let origin = origin.to_str().map_err(|_| foreign())?;
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if !own.is_some_and(|own| own.eq_ignore_ascii_case(host)) {
            return Err(foreign());
        }
    }
    // Browsers say so also where they send no `Origin`.
    let changes = !matches!(parts.method, Method::GET | Method::HEAD);
    let site = parts.headers.get("sec-fetch-site").map(|site| site.as_bytes());
    match site {
        Some(b"cross-site" | b"same-site") if changes => Err(foreign()),
        _ => Ok(()),
    }
}

/// The host that a request is for; `None` if it names none, or more than one.
fn host_of(parts: &Parts) -> Option<&str> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    // HTTP/2 has the host in the address.
    let host = match (hosts.next(), parts.uri.authority()) {
        (Some(host), _) => host.to_str().ok()?,
        (None, authority) => authority?.as_str(),
    };
    hosts.next().is_none().then_some(host)
}

/// Whether a host, with or without a port, can only be this machine.
fn is_loopback(host: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, "")) => name,
            Some((name, port)) if port.strip_prefix(':').is_some_and(is_port) => name,
            _ => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) if is_port(port) => name,
            Some(_) => return false,
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(headers: &[(&str, &str)], method: Method) -> Option<Code> {
        let mut request = axum::http::Request::builder().method(method).uri("/v1/conversations");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        check_is_local(&parts).err().map(|rejection| rejection.code())
    }

    #[test]
    fn only_loopback_is_a_host() {
        for good in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.9.9.9", "[::1]", "[::1]:8080"] {
            assert_eq!(judged(&[("host", good)], Method::POST), None, "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:",
            "localhost:80:80",
            "localhost@evil.example",
            "[::1",
            "[::1]x",
            "10.0.0.1",
            "0.0.0.0",
            "2130706433",
        ] {
            assert_eq!(judged(&[("host", bad)], Method::GET), Some(Code::Misdirected), "{bad}");
        }
        assert_eq!(judged(&[], Method::GET), Some(Code::Misdirected));
        assert_eq!(judged(&[("host", "localhost"), ("host", "evil.example")], Method::GET), Some(Code::Misdirected));
    }

    #[test]
    fn only_the_own_origin_may_ask() {
        let with = |origin| judged(&[("host", "localhost:8080"), ("origin", origin)], Method::POST);
        assert_eq!(with("http://localhost:8080"), None);
        for bad in ["null", "http://evil.example", "http://localhost:3000", "http://localhost", "localhost:8080"] {
            assert_eq!(with(bad), Some(Code::Forbidden), "{bad}");
        }
        let fetched = |site, method| judged(&[("host", "localhost"), ("sec-fetch-site", site)], method);
        assert_eq!(fetched("cross-site", Method::POST), Some(Code::Forbidden));
        assert_eq!(fetched("same-origin", Method::POST), None);
        assert_eq!(fetched("cross-site", Method::GET), None, "a link to the page is followed");
    }
}

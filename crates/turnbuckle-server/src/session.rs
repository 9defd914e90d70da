//! People who logged in on the page: a signed cookie, bound to the token that they gave.

use std::time::Duration;

use axum::http::header::{COOKIE, ORIGIN};
use axum::http::{HeaderMap, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use turnbuckle::Timestamp;

use crate::keys::{Keys, KeysError, LENGTH, Seal, SealId, is_same, random_bytes};
use crate::tls::Certificate;

/// The name of the cookie. With the prefix, browsers take it only over TLS and for this host alone.
const NAME: &str = "turnbuckle_session";
const SECURE_NAME: &str = "__Host-turnbuckle_session";
/// How long a person stays logged in.
const LASTS: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// What the signature is for.
const SESSION: &str = "session";
const CSRF: &str = "csrf";
/// Version, digest of the token, end in milliseconds, id.
const PAYLOAD: usize = 1 + LENGTH + 8 + 16;
const VERSION: u8 = 1;

/// A person who logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// The SHA-256 of the token. Without that token the session is nobody's.
    pub(crate) token: [u8; LENGTH],
    until: Timestamp,
    id: SealId,
}

impl Session {
    /// A session that begins now.
    pub(crate) fn begin(token: [u8; LENGTH], now: Timestamp) -> Result<Self, KeysError> {
        Ok(Self { token, until: now.after(LASTS), id: random_bytes()? })
    }

    /// The session of a request: its cookie is signed, and the session is neither over nor ended.
    pub(crate) fn of(headers: &HeaderMap, keys: &Keys, now: Timestamp) -> Option<Self> {
        // A browser may send an old cookie beside the new one: the first that is good counts.
        cookies(headers).filter_map(|text| Self::read(text, keys)).find(|session| session.is_good(keys, now))
    }

    fn seal(&self, keys: &Keys) -> Seal {
        Seal { id: self.id, until: self.until, owner: Some(keys.owner(&self.token)) }
    }

    /// Whether it is neither over nor ended.
    pub(crate) fn is_good(&self, keys: &Keys, now: Timestamp) -> bool {
        self.until > now && !keys.is_void(&self.seal(keys))
    }

    fn read(text: &str, keys: &Keys) -> Option<Self> {
        let payload: [u8; PAYLOAD] = keys.open(SESSION, text)?.try_into().ok()?;
        let (version, rest) = payload.split_first()?;
        let (token, rest) = rest.split_first_chunk()?;
        let (until, id) = rest.split_first_chunk()?;
        (*version == VERSION).then_some(Self {
            token: *token,
            until: Timestamp::from_millis(u64::from_be_bytes(*until)),
            id: id.try_into().ok()?,
        })
    }

    /// The cookie that keeps it.
    pub(crate) fn cookie(&self, keys: &Keys, is_secure: bool) -> Option<HeaderValue> {
        let mut payload = vec![VERSION];
        payload.extend_from_slice(&self.token);
        payload.extend_from_slice(&self.until.as_millis().to_be_bytes());
        payload.extend_from_slice(&self.id);
        let value = keys.seal(SESSION, &payload);
        HeaderValue::from_str(&set_cookie(&value, LASTS.as_secs(), is_secure)).ok()
    }

    /// Nobody uses it from now on.
    pub(crate) fn end(&self, keys: &Keys, now: Timestamp) -> Result<(), KeysError> {
        keys.make_void(&self.seal(keys), now)
    }

    /// Nobody uses a session that began with one of these tokens from now on, whoever has the token later.
    pub(crate) fn end_all_of(tokens: &[[u8; LENGTH]], keys: &Keys, now: Timestamp) -> Result<(), KeysError> {
        keys.make_sessions_void(tokens, now.after(LASTS), now)
    }

    /// What forms of this session carry.
    pub(crate) fn csrf(&self, keys: &Keys) -> String {
        csrf_of(keys, &self.id)
    }
}

/// What forms carry where nobody logs in. Pages of other sites cannot read it.
pub(crate) fn csrf_without_session(keys: &Keys) -> String {
    csrf_of(keys, b"nobody")
}

fn csrf_of(keys: &Keys, id: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(keys.sign(CSRF, &[id]))
}

/// Whether a form or a script sent the token that was given to this viewer.
pub(crate) fn is_csrf(expected: &str, given: &str) -> bool {
    is_same(expected.as_bytes(), given.as_bytes())
}

/// The cookie that removes a session from the browser.
pub(crate) fn removed_cookie(is_secure: bool) -> Option<HeaderValue> {
    HeaderValue::from_str(&set_cookie("", 0, is_secure)).ok()
}

fn set_cookie(value: &str, seconds: u64, is_secure: bool) -> String {
    let (name, secure) = if is_secure { (SECURE_NAME, "; Secure") } else { (NAME, "") };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|all| all.split(';'));
    pairs.filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        matches!(name, NAME | SECURE_NAME).then_some(value)
    })
}

/// Whether the browser reached the page over TLS: here, where the server has a certificate, or at a proxy before this server.
/// Browsers name the address of the page with every form that they send.
pub(crate) fn is_secure(headers: &HeaderMap, certificate: Option<&Certificate>) -> bool {
    certificate.is_some() || headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_769_860_800_000);

    fn sent(cookie: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_str(cookie).unwrap());
        headers
    }

    /// What a browser sends back.
    fn kept(session: &Session, keys: &Keys) -> String {
        let cookie = session.cookie(keys, false).unwrap();
        cookie.to_str().unwrap().split(';').next().unwrap().to_owned()
    }

    #[test]
    fn a_session_lasts_a_week_and_is_bound_to_its_token_and_key() {
        let keys = Keys::random().unwrap();
        let session = Session::begin([7; 32], NOW).unwrap();
        let cookie = kept(&session, &keys);
        assert_eq!(Session::of(&sent(&cookie), &keys, NOW), Some(session));
        assert_eq!(Session::of(&sent(&format!("a=b; {NAME}=old; {cookie}")), &keys, NOW), Some(session));
        assert_eq!(Session::of(&sent(&cookie), &keys, NOW.after(LASTS)), None);
        assert_eq!(Session::of(&sent(&cookie), &Keys::random().unwrap(), NOW), None);
        let other = format!("{}A", &cookie[..cookie.len() - 1]);
        assert!(other == cookie || Session::of(&sent(&other), &keys, NOW).is_none());
    }

    #[test]
    fn a_session_that_was_ended_is_over_for_every_cookie_of_it() {
        let keys = Keys::random().unwrap();
        let (session, other) = (Session::begin([7; 32], NOW).unwrap(), Session::begin([7; 32], NOW).unwrap());
        let (cookie, kept_other) = (kept(&session, &keys), kept(&other, &keys));
        session.end(&keys, NOW).unwrap();
        assert_eq!(Session::of(&sent(&cookie), &keys, NOW), None);
        assert_eq!(Session::of(&sent(&kept_other), &keys, NOW), Some(other));
    }

    #[test]
    fn sessions_of_a_token_are_ended_together_and_later_ones_are_not() {
        let (keys, later) = (Keys::random().unwrap(), NOW.after(Duration::from_secs(1)));
        let begin = |token, now| kept(&Session::begin([token; 32], now).unwrap(), &keys);
        let (one, two, other) = (begin(7, NOW), begin(7, NOW), begin(8, NOW));
        Session::end_all_of(&[[7; 32]], &keys, NOW).unwrap();
        let is_good = |cookie: &str| Session::of(&sent(cookie), &keys, later).is_some();
        assert!(!is_good(&one) && !is_good(&two));
        assert!(is_good(&other) && is_good(&begin(7, later)));
    }

    #[test]
    fn each_session_has_a_token_of_its_own_for_forms() {
        let keys = Keys::random().unwrap();
        let (one, other) = (Session::begin([7; 32], NOW).unwrap(), Session::begin([7; 32], NOW).unwrap());
        assert!(is_csrf(&one.csrf(&keys), &one.csrf(&keys)));
        assert!(!is_csrf(&one.csrf(&keys), &other.csrf(&keys)));
        assert!(!is_csrf(&one.csrf(&keys), ""));
    }
}

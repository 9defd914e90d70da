//! `[serve]`: where the server listens, who may call, and how much.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use turnbuckle_server::{ServerLimits, Token};

use super::reader::Section;
use super::{Found, Over};
use crate::problem::{Place, Problem};

/// Where a server listens if nothing else is said.
pub(crate) const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7878);

/// The section `[serve]`.
#[derive(Debug, Default)]
pub(crate) struct ServePart {
    pub(crate) listen: Option<Found<SocketAddr>>,
    /// Where people reach the server, for links that answer a call.
    pub(crate) url: Option<Found<String>>,
    pub(crate) client_ids: Option<Found<bool>>,
    /// How long turns may take to come to rest at the end.
    pub(crate) rest_within: Option<Found<Duration>>,
    /// What connections are encrypted with: files, from the folder of the configuration on.
    pub(crate) tls_certificate: Option<Found<PathBuf>>,
    pub(crate) tls_key: Option<Found<PathBuf>>,
    requests_per_second: Option<Found<u32>>,
    burst: Option<Found<u32>>,
    all_requests_per_second: Option<Found<u32>>,
    streams_per_token: Option<Found<u32>>,
    streams: Option<Found<u32>>,
    connections: Option<Found<u32>>,
    body_bytes: Option<Found<u32>>,
    /// A list is one key: the project's, or else the user's. `None`: no tokens are needed.
    pub(crate) tokens: Option<Vec<TokenPart>>,
}

/// One of `[[serve.tokens]]`.
#[derive(Debug)]
pub(crate) struct TokenPart {
    pub(crate) token: Token,
    place: Place,
}

impl ServePart {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let listen = section.string("listen").and_then(|found| address(&section, found));
        let url = section.string("url").and_then(|found| base_url(&section, found));
        let part = Self {
            listen,
            url,
            client_ids: section.boolean("client_ids"),
            rest_within: section.duration("rest_within"),
            tls_certificate: file(&mut section, "tls_certificate"),
            tls_key: file(&mut section, "tls_key"),
            requests_per_second: counted(&mut section, "requests_per_second"),
            burst: counted(&mut section, "burst"),
            all_requests_per_second: counted(&mut section, "all_requests_per_second"),
            streams_per_token: counted(&mut section, "streams_per_token"),
            streams: counted(&mut section, "streams"),
            connections: counted(&mut section, "connections"),
            body_bytes: counted(&mut section, "body_bytes"),
            tokens: section.sections("tokens").map(|tokens| tokens.into_iter().filter_map(TokenPart::read).collect()),
        };
        part.check_tokens(&section);
        section.finish();
        part
    }

    /// A text can be the token of one user only: which of two was meant is not known.
    fn check_tokens(&self, section: &Section<'_>) {
        let tokens = self.tokens.as_deref().unwrap_or_default();
        for (place, part) in tokens.iter().enumerate() {
            let Some(first) = tokens[..place].iter().find(|first| first.token.has_text_of(&part.token)) else {
                continue;
            };
            let (user, other) = (part.token.user(), first.token.user());
            let what = format!(
                "the token of {user} is the one of {other}, too: {} is there twice",
                section.named("tokens.sha256")
            );
            let hint = "make another token: `openssl rand -hex 32` prints one; roles of one user stand in one list";
            section.source().tell(Problem::error(what).at(&part.place).hint(hint));
        }
    }

    /// With the server's defaults where nothing is said.
    pub(crate) fn limits(&self) -> ServerLimits {
        let mut limits = ServerLimits::default();
        let set = |limit: &mut usize, found: &Option<Found<u32>>| {
            if let Some(found) = found {
                *limit = found.value as usize;
            }
        };
        set(&mut limits.streams_per_caller, &self.streams_per_token);
        set(&mut limits.streams, &self.streams);
        set(&mut limits.connections, &self.connections);
        set(&mut limits.body_bytes, &self.body_bytes);
        if let Some(found) = &self.requests_per_second {
            (limits.requests_per_second, limits.burst) = (found.value, found.value.saturating_mul(2));
        }
        if let Some(found) = &self.burst {
            limits.burst = found.value;
        }
        if let Some(found) = &self.all_requests_per_second {
            limits.all_requests_per_second = found.value;
        }
        limits
    }

    /// Where people reach the server, as far as the configuration says.
    pub(crate) fn base(&self) -> String {
        let listen = || format!("http://{}", self.listen.as_ref().map_or(LISTEN, |found| found.value));
        self.url.as_ref().map_or_else(listen, |url| url.value.clone())
    }

    /// Who may call, if tokens are needed.
    pub(crate) fn tokens(&self) -> Option<Vec<Token>> {
        self.tokens.as_ref().map(|tokens| tokens.iter().map(|part| part.token.clone()).collect())
    }
}

/// A number of which 0 would mean that nothing is served.
fn counted(section: &mut Section<'_>, key: &'static str) -> Option<Found<u32>> {
    let found = section.small(key)?;
    if found.value == 0 {
        let problem = Problem::error(format!("{} is 0: nothing would be served", section.named(key)));
        section.source().tell(problem.at(&found.place).hint("take the line out for the default"));
        return None;
    }
    Some(found)
}

/// A file, from the folder of the configuration on.
fn file(section: &mut Section<'_>, key: &'static str) -> Option<Found<PathBuf>> {
    let found = section.string(key)?;
    Some(Found { value: section.source().folder().join(&found.value), place: found.place })
}

fn address(section: &Section<'_>, found: Found<String>) -> Option<Found<SocketAddr>> {
    match found.value.parse() {
        Ok(value) => Some(Found { value, place: found.place }),
        Err(_) => {
            let problem = Problem::error(format!("{} is no address with a port", section.named("listen")));
            section.source().tell(problem.at(&found.place).hint("\"127.0.0.1:7878\", or \"[::]:7878\" for all"));
            None
        }
    }
}

/// An address that links can begin with.
fn base_url(section: &Section<'_>, found: Found<String>) -> Option<Found<String>> {
    let host = found.value.strip_prefix("https://").or_else(|| found.value.strip_prefix("http://"));
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#@\"'<>\\".contains(&byte));
    if host.is_some_and(|host| !host.is_empty() && !host.starts_with('/') && is_plain(host)) {
        return Some(found);
    }
    let problem = Problem::error(format!("{} is no address that links can begin with", section.named("url")));
    section
        .source()
        .tell(problem.at(&found.place).hint("\"https://agents.example.com\", without a query and a password"));
    None
}

impl TokenPart {
    fn read(mut section: Section<'_>) -> Option<Self> {
        let (sha256, user, roles) = (section.string("sha256"), section.string("user"), section.roles("roles"));
        let sha256 = section.required("sha256", "\"the output of: printf %s TOKEN | sha256sum\"", sha256);
        let user = section.required("user", "\"ann\"", user);
        let place = sha256.as_ref().map(|found| found.place.clone());
        let tell = |what: String, hint: &str, place: &Place| {
            section.source().tell(Problem::error(what).at(place).hint(hint));
        };
        let user = user.filter(|user| {
            let is_name = !user.value.trim().is_empty() && !user.value.contains(char::is_control);
            if !is_name {
                tell(format!("{} is no name", section.named("user")), "an id such as \"ann\" will do", &user.place);
            }
            is_name
        });
        let token = sha256.zip(user).and_then(|(sha256, user)| {
            let made = Token::new(&sha256.value, user.value.as_str());
            if let Err(error) = &made {
                let what = format!("{}: {error}", section.named("sha256"));
                tell(
                    what,
                    "`printf %s TOKEN | sha256sum` prints it; the token itself is not written here",
                    &sha256.place,
                );
            }
            made.ok()
        });
        let roles: Vec<String> = roles.iter().flat_map(|roles| &roles.value).map(|role| role.value.clone()).collect();
        section.finish();
        Some(Self { token: roles.into_iter().fold(token?, Token::role), place: place? })
    }
}

impl Over for ServePart {
    fn over(self, base: Self) -> Self {
        Self {
            listen: self.listen.over(base.listen),
            url: self.url.over(base.url),
            client_ids: self.client_ids.over(base.client_ids),
            rest_within: self.rest_within.over(base.rest_within),
            tls_certificate: self.tls_certificate.over(base.tls_certificate),
            tls_key: self.tls_key.over(base.tls_key),
            requests_per_second: self.requests_per_second.over(base.requests_per_second),
            burst: self.burst.over(base.burst),
            all_requests_per_second: self.all_requests_per_second.over(base.all_requests_per_second),
            streams_per_token: self.streams_per_token.over(base.streams_per_token),
            streams: self.streams.over(base.streams),
            connections: self.connections.over(base.connections),
            body_bytes: self.body_bytes.over(base.body_bytes),
            tokens: self.tokens.over(base.tokens),
        }
    }
}

//! Patterns of hosts.

use super::RuleError;

/// `docs.rs`, `*.docs.rs` or `localhost:8080`.
#[derive(Clone, Debug)]
pub(crate) struct HostPattern {
    /// In lower case, without `*.`.
    host: String,
    /// Whether hosts below it are meant, and not the host itself.
    is_below: bool,
    port: Option<u16>,
}

impl HostPattern {
    pub(crate) fn new(pattern: &str) -> Result<Self, RuleError> {
        let refused = || RuleError::Host(pattern.to_owned());
        let (host, port) = host_and_port(pattern).ok_or_else(refused)?;
        let (host, is_below) = match host.strip_prefix("*.") {
            Some(host) => (host, true),
            None => (host, false),
        };
        if !is_host(host) {
            return Err(refused());
        }
        Ok(Self { host: host.to_ascii_lowercase(), is_below, port })
    }

    /// Only plain addresses match: whatever two programs could read in two ways is asked about.
    pub(crate) fn matches(&self, url: &str) -> bool {
        let plain = |sign: char| sign.is_ascii_graphic() && sign != '\\';
        let Some((scheme, rest)) = url.split_once("://").filter(|_| url.chars().all(plain)) else { return false };
        let own_port = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return false,
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let Some((host, port)) = host_and_port(authority) else { return false };
        let host = host.to_ascii_lowercase();
        let below = || host.strip_suffix(&self.host).is_some_and(|below| below.len() > 1 && below.ends_with('.'));
        let is_host = is_host(&host) && if self.is_below { below() } else { host == self.host };
        is_host && port.unwrap_or(own_port) == self.port.unwrap_or(own_port)
    }
}

/// The host of a plain address, as a pattern of it would be written.
pub(super) fn host_of(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?', '#']).next()?;
    host_and_port(authority).filter(|(host, _)| is_host(host)).map(|_| authority)
}

fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    match text.split_once(':') {
        None => Some((text, None)),
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => Some((host, Some(port.parse().ok()?))),
        Some(_) => None,
    }
}

/// Letters, digits, `-` and dots that separate: no user, no address in brackets, no `%`.
fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    host.split('.').all(is_label)
}

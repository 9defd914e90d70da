//! Which addresses are fetched.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::http::is_private;
use crate::shell::rules::RuleError;
use crate::shell::rules::address::HostPattern;

/// The longest address.
const LONGEST: usize = 8 * 1024;

/// Why an address is not fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Not an address.
    #[error("is not an address of the form https://host/path")]
    Form,
    /// Another scheme than `http` and `https`.
    #[error("has the scheme {0:?}; only http and https are fetched")]
    Scheme(String),
    /// A user or a password stands in it. It is not repeated here.
    #[error("the address has a user or password in it; credentials are not sent")]
    Credentials,
    /// It leads into a private network, or to this machine.
    #[error("{host} is at {address}, which is not an address of the open internet; the user can permit it: `[tools.fetch] private = [\"{host}{}\"]`", port.map(|port| format!(":{port}")).unwrap_or_default())]
    Private {
        /// The host as it was asked for.
        host: String,
        /// The port, unless it is the scheme's own or not known.
        port: Option<u16>,
        /// Where it is.
        address: IpAddr,
    },
}

/// The address in its normal form: without the part behind `#`, which no server sees.
pub(super) fn parse(written: &str) -> Result<Url, AddressError> {
    if written.len() > LONGEST {
        return Err(AddressError::Form);
    }
    let mut url = Url::parse(written).map_err(|_| AddressError::Form)?;
    checked(&url)?;
    url.set_fragment(None);
    Ok(url)
}

/// Refuses what is never fetched, whatever its host is.
pub(super) fn checked(url: &Url) -> Result<(), AddressError> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(AddressError::Scheme(url.scheme().to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(AddressError::Credentials);
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(AddressError::Form);
    }
    Ok(())
}

/// A host that is written as an address is not looked up, so it is checked here.
pub(super) fn check_literal(url: &Url) -> Result<(), AddressError> {
    let host = url.host_str().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match literal {
        Ok(address) if is_private(address) => {
            Err(AddressError::Private { host: host.to_owned(), port: url.port(), address })
        }
        _ => Ok(()),
    }
}

/// A host of a private network that may be fetched from: `localhost:8080`, `10.0.0.7`, `*.corp.example`. Without a port it is the
/// scheme's own.
#[derive(Clone)]
pub struct PrivateHost {
    pattern: HostPattern,
    text: String,
}

impl PrivateHost {
    /// Whether it is the host of this address.
    pub(super) fn matches(&self, url: &Url) -> bool {
        self.pattern.matches(url.as_str())
    }
}

impl FromStr for PrivateHost {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        Ok(Self { pattern: HostPattern::new(text)?, text: text.to_owned() })
    }
}

impl fmt::Display for PrivateHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for PrivateHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// Looks names up and gives out only addresses of the open internet. One private address refuses the name: which of several is
/// connected to would be left to chance.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenInternet;

impl Resolve for OpenInternet {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let host = name.as_str();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            match found.iter().map(SocketAddr::ip).find(|address| is_private(*address)) {
                Some(address) => Err(AddressError::Private { host: host.to_owned(), port: None, address }.into()),
                None => Ok(Box::new(found.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_spelling() {
        for (written, normal) in [
            ("HTTPS://Docs.RS:443/serde?x=1#top", "https://docs.rs/serde?x=1"),
            ("http://docs.rs", "http://docs.rs/"),
            ("https://docs.rs/a/../b", "https://docs.rs/b"),
            ("https://bücher.example/", "https://xn--bcher-kva.example/"),
            // Other ways to write 127.0.0.1.
            ("http://2130706433/", "http://127.0.0.1/"),
            ("http://0x7f.1/", "http://127.0.0.1/"),
        ] {
            assert_eq!(parse(written).unwrap().as_str(), normal);
        }
    }

    #[test]
    fn what_is_never_fetched_is_refused() {
        assert_eq!(parse("docs.rs"), Err(AddressError::Form));
        assert_eq!(parse(""), Err(AddressError::Form));
        assert_eq!(parse("https://"), Err(AddressError::Form));
        assert_eq!(parse("file:///etc/passwd"), Err(AddressError::Scheme("file".to_owned())));
        assert_eq!(parse("data:text/plain,hi"), Err(AddressError::Scheme("data".to_owned())));
        let refused = parse("https://ann:sesame@docs.rs/").unwrap_err();
        assert_eq!(refused, AddressError::Credentials);
        assert!(!refused.to_string().contains("sesame"));
        assert_eq!(parse("https://token@docs.rs/"), Err(AddressError::Credentials));
    }

    #[test]
    fn an_address_in_numbers_is_checked_in_every_spelling() {
        for written in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://[::1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://169.254.169.254/",
        ] {
            let refused = check_literal(&parse(written).unwrap());
            assert!(matches!(refused, Err(AddressError::Private { .. })), "{written}");
        }
        assert_eq!(check_literal(&parse("http://1.1.1.1/").unwrap()), Ok(()));
    }
}

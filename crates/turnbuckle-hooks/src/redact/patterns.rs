//! The patterns that come built in, and what any pattern is made of.

use regex_syntax::hir::Hir;

use super::RedactError;
use super::shape::{self, Tail};

/// The longest match that a pattern may have, in bytes: as much text may be held back.
pub(super) const LONGEST: usize = 4096;

/// Decides whether a match counts, given the match and the byte after it.
pub(super) type Guard = fn(&[u8], Option<u8>) -> bool;

/// A compiled pattern.
#[derive(Clone)]
pub(super) struct Pattern {
    pub(super) name: String,
    /// The text that replaces a match.
    pub(super) label: String,
    pub(super) hir: Hir,
    pub(super) longest: usize,
    pub(super) tail: Tail,
    /// Whether a match may follow this byte.
    pub(super) follows: fn(u8) -> bool,
    pub(super) guard: Guard,
}

impl Pattern {
    /// Parses a pattern in regex syntax.
    pub(super) fn new(name: &str, pattern: &str) -> Result<Self, RedactError> {
        let hir = shape::parse(pattern).map_err(|source| RedactError::Syntax { name: name.into(), source })?;
        let refused = || (name.to_owned(), pattern.to_owned());
        if hir.properties().minimum_len().is_none_or(|shortest| shortest == 0) {
            let (name, pattern) = refused();
            return Err(RedactError::MatchesNothing { name, pattern });
        }
        let Some(longest) = hir.properties().maximum_len() else {
            let (name, pattern) = refused();
            return Err(RedactError::Unbounded { name, pattern });
        };
        if longest > LONGEST {
            let (name, pattern) = refused();
            return Err(RedactError::TooLong { name, pattern, longest, limit: LONGEST });
        }
        let tail = Tail::of(&hir);
        Ok(Self {
            name: name.into(),
            label: format!("[{name}]"),
            hir,
            longest,
            tail,
            follows: |_| true,
            guard: |_, _| true,
        })
    }

    fn following(mut self, follows: fn(u8) -> bool) -> Self {
        self.follows = follows;
        self
    }

    fn joined_by(mut self, joint: char) -> Self {
        self.tail = self.tail.joined_by(joint);
        self
    }

    /// Extends a match over all following characters of `class`.
    fn tailed(mut self, class: &str) -> Result<Self, RedactError> {
        let class = shape::parse(class).map_err(|source| RedactError::Syntax { name: self.name.clone(), source })?;
        self.tail = Tail::all(&class);
        Ok(self)
    }
}

/// E-mail addresses.
///
/// The local part begins with a letter, a digit or one of `_%+` and has at most 64 characters; the last label of the
/// domain begins with two letters (`react@18.2.0` is no address).
pub(super) fn emails() -> Result<Vec<Pattern>, RedactError> {
    const EMAIL: &str = concat!(
        r"(?-u)[A-Za-z0-9_%+][A-Za-z0-9._%+'-]{0,63}@",
        r"[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,7}\.[A-Za-z]{2,24}"
    );
    Ok(vec![Pattern::new("email", EMAIL)?.tailed("(?-u)[A-Za-z0-9-]")?.joined_by('.')])
}

/// Payment cards: 13 to 19 digits, with a space or a dash between any two of them, that check out.
pub(super) fn cards() -> Result<Vec<Pattern>, RedactError> {
    let mut card = Pattern::new("card", r"(?-u)[0-9](?:[ -]?[0-9]){12,18}")?.following(|byte| !byte.is_ascii_digit());
    (card.tail, card.guard) = (Tail::default(), checks_out);
    Ok(vec![card])
}

/// API keys and tokens, by the shapes their issuers gave them.
pub(super) fn keys() -> Result<Vec<Pattern>, RedactError> {
    /// The prefix, and how many characters follow at least and at most. A run up to the bound is held back; what is longer
    /// belongs to the match as its tail.
    const KEYS: [&str; 12] = [
        r"(?-u)sk-[A-Za-z0-9_-]{20,256}", // OpenAI, Anthropic and those who copied them
        r"(?-u)[prs]k_(?:live|test)_[A-Za-z0-9]{16,256}", // Stripe
        r"(?-u)gh[oprsu]_[A-Za-z0-9]{20,256}", // GitHub
        r"(?-u)github_pat_[A-Za-z0-9_]{20,256}", // GitHub, fine-grained
        r"(?-u)(?:AKIA|ASIA)[A-Z0-9]{16}", // AWS
        r"(?-u)xox[abeoprs]-[A-Za-z0-9-]{10,256}", // Slack
        r"(?-u)AIza[A-Za-z0-9_-]{30,128}", // Google
        r"(?-u)ya29\.[A-Za-z0-9_-]{20,64}", // Google, for some time
        r"(?-u)gl(?:pat|ptt|dt|rt|ft|cbt|imt|soat|agent)-[A-Za-z0-9_-]{20,64}", // GitLab
        // Hugging Face, npm, Groq, DigitalOcean, Grafana, Replicate, RubyGems, Shopify
        r"(?-u)(?:hf|npm|gsk|do[opr]_v1|glsa|r8|rubygems|shp(?:at|ca|pa|ss))_[A-Za-z0-9]{20,64}",
        r"(?-u)(?:dckr_pat_|pypi-|xapp-|xai-)[A-Za-z0-9_-]{20,64}", // Docker, PyPI, Slack, xAI
        r"(?-u)SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,64}",     // SendGrid
    ];
    /// In a header, whatever it is; elsewhere only what looks like a token, because there are other bearers.
    const HEADER: &str =
        r"(?-u)(?i:authorization)[\x22']?[:=][ \t\x22']{0,4}(?i:bearer|basic|token)[ \t]{1,4}[A-Za-z0-9._~+/=-]{4,512}";
    const BEARER: &str = r"(?-u)(?i:bearer)[ \t]{1,4}[A-Za-z0-9._~+/-]{16,512}";
    /// What stands behind a name that nothing but a secret has.
    const NAMED: &str = concat!(
        r"(?-u)(?i:x-api-key|x-goog-api-key|aws_secret_access_key|aws_session_token)[\x22']?[ \t]{0,4}[:=]",
        r"[ \t\x22']{0,4}[A-Za-z0-9._~+/=-]{8,512}"
    );
    /// `//token@` of an address. Names of users are shorter, or have no digit.
    const TOKEN_IN_ADDRESS: &str = r"(?-u)//[A-Za-z0-9._~%+-]{16,256}@";
    /// `//user:password@` of an address. A password may have an `@` in it: the last one counts.
    const IN_ADDRESS: &str = r"(?-u)//[!#-&(-.0-9;=?-~]{0,64}:[!#-&(-.0-;=?-~]{1,256}@";
    /// Header and the beginning of the payload; the rest is tail. A header past the bound counts as found.
    const JWT: &str = r"(?-u)eyJ[A-Za-z0-9_-]{5,1024}\.[A-Za-z0-9_-]{5,64}|eyJ[A-Za-z0-9_-]{1024}";
    const PEM: &str = r"(?-u)-----BEGIN [A-Z ]{0,32}PRIVATE KEY(?: BLOCK)?-----";
    let mut keys = Vec::with_capacity(KEYS.len() + 7);
    for key in KEYS {
        keys.push(Pattern::new("key", key)?.following(apart));
    }
    keys.push(Pattern::new("key", HEADER)?.following(apart));
    for key in [BEARER, NAMED] {
        let mut key = Pattern::new("key", key)?.following(apart);
        key.guard = has_digit;
        keys.push(key);
    }
    let mut in_address = Pattern::new("password", IN_ADDRESS)?;
    in_address.tail = Tail::default();
    keys.push(Pattern::new("key", JWT)?.joined_by('.').following(apart));
    keys.push(Pattern::new("key", PEM)?.tailed(r"(?-u)[A-Za-z0-9+/=\\\r\n]")?);
    keys.push(in_address);
    let mut token = Pattern::new("password", TOKEN_IN_ADDRESS)?;
    (token.tail, token.guard) = (Tail::default(), has_digit);
    keys.push(token);
    Ok(keys)
}

fn has_digit(found: &[u8], _: Option<u8>) -> bool {
    found.iter().any(u8::is_ascii_digit)
}

/// Not in the middle of a word: `task-…` has no `sk-…` in it.
fn apart(before: u8) -> bool {
    !before.is_ascii_alphanumeric()
}

/// Whether no digit follows and the check digit is right (Luhn).
fn checks_out(found: &[u8], after: Option<u8>) -> bool {
    if after.is_some_and(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let mut sum = 0;
    for (place, byte) in found.iter().rev().filter(|byte| byte.is_ascii_digit()).enumerate() {
        let value = u32::from(byte - b'0') << (place % 2);
        sum += if value > 9 { value - 9 } else { value };
    }
    sum % 10 == 0
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_pattern_is_bounded_and_ascii() {
        for pattern in [emails(), cards(), keys()].into_iter().flat_map(Result::unwrap) {
            assert!(pattern.longest <= 1100, "{}: {}", pattern.name, pattern.longest);
            assert!(pattern.hir.properties().is_utf8());
        }
    }

    #[test]
    fn a_card_checks_out_by_its_last_digit() {
        assert!(checks_out(b"4111 1111 1111 1111", Some(b' ')));
        assert!(checks_out(b"378282246310005", None));
        assert!(!checks_out(b"4111 1111 1111 1112", None));
        assert!(!checks_out(b"4111111111111111", Some(b'1')));
    }
}

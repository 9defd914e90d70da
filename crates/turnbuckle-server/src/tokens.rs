//! Who may call: the tokens of a server, known by their SHA-256 alone, and replaceable while it runs.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use turnbuckle::Scope;

/// One token: the SHA-256 of its text, and who has it.
#[derive(Clone)]
pub struct Token {
    sha256: [u8; 32],
    user: Arc<str>,
    roles: Vec<Arc<str>>,
}

/// A digest that is not 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 is written as 64 hexadecimal digits")]
pub struct BadDigest;

impl Token {
    /// A token whose text has this SHA-256, written in hexadecimal, for this user.
    pub fn new(sha256: &str, user: impl Into<Arc<str>>) -> Result<Self, BadDigest> {
        let mut digest = [0; 32];
        let digits = sha256.as_bytes();
        if digits.len() != 64 {
            return Err(BadDigest);
        }
        for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
            let value = |digit: u8| char::from(digit).to_digit(16).ok_or(BadDigest);
            *byte = (value(pair[0])? * 16 + value(pair[1])?) as u8;
        }
        Ok(Self { sha256: digest, user: user.into(), roles: Vec::new() })
    }

    /// The token with this text, for programs that make tokens themselves. The text is not kept.
    pub fn of_text(text: &str, user: impl Into<Arc<str>>) -> Self {
        Self { sha256: Sha256::digest(text).into(), user: user.into(), roles: Vec::new() }
    }

    /// With one more role.
    pub fn role(mut self, role: impl Into<Arc<str>>) -> Self {
        self.roles.push(role.into());
        self
    }

    /// Whether the other is of the same text, whoever has it.
    pub fn has_text_of(&self, other: &Self) -> bool {
        self.sha256.ct_eq(&other.sha256).into()
    }

    /// Who has it.
    pub fn user(&self) -> &Arc<str> {
        &self.user
    }

    /// The SHA-256 of its text, by which it is told from others.
    pub(crate) fn digest(&self) -> [u8; 32] {
        self.sha256
    }

    pub(crate) fn scope(&self) -> Scope {
        self.roles.iter().fold(Scope::user(self.user.clone()), |scope, role| scope.role(role.clone()))
    }
}

impl fmt::Debug for Token {
    /// Without the digest: a weak token could be found by it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("user", &self.user).field("roles", &self.roles).finish_non_exhaustive()
    }
}

/// The tokens of a server. Clones share one list.
#[derive(Clone, Default)]
pub struct Tokens {
    list: Arc<RwLock<Arc<[Token]>>>,
    /// Of the servers that have these tokens: what is called with those that were removed.
    on_removed: Arc<Mutex<Vec<Weak<OnRemoved>>>>,
}

/// Called with the digests of tokens that were removed, or are another user's now.
pub(crate) type OnRemoved = dyn Fn(&[[u8; 32]]) + Send + Sync;

impl Tokens {
    /// These tokens. With an empty list nobody may call. A text is the token of one user: of two with the same text the last counts.
    pub fn new(tokens: impl IntoIterator<Item = Token>) -> Self {
        Self { list: Arc::new(RwLock::new(tokens.into_iter().collect())), on_removed: Arc::default() }
    }

    /// Puts these tokens in the place of those there were. Requests that come from now on are judged by them. Sessions of the page that
    /// began with a token which is removed or becomes another user's are over, also if the token comes back. With
    /// [`Keys::in_folder`](crate::Keys::in_folder) that is written to disk before this returns, so it is not for a thread that has
    /// others waiting.
    pub fn replace(&self, tokens: impl IntoIterator<Item = Token>) {
        let tokens: Arc<[Token]> = tokens.into_iter().collect();
        let before = {
            let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *list, tokens.clone())
        };
        // Of two with the same text the last counts.
        let user_of = |list: &[Token], digest| {
            list.iter().rev().find(|token| token.sha256 == digest).map(|token| token.user.clone())
        };
        let is_removed = |digest: &[u8; 32]| user_of(&before, *digest) != user_of(&tokens, *digest);
        let removed: Vec<[u8; 32]> = before.iter().map(|token| token.sha256).filter(is_removed).collect();
        if !removed.is_empty() {
            let told = self.on_removed.lock().unwrap_or_else(PoisonError::into_inner).clone();
            told.iter().filter_map(Weak::upgrade).for_each(|on_removed| on_removed(&removed));
        }
    }

    /// Calls this whenever tokens were removed, for as long as somebody has it.
    pub(crate) fn when_removed(&self, on_removed: &Arc<OnRemoved>) {
        let mut all = self.on_removed.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(on_removed));
    }

    fn list(&self) -> Arc<[Token]> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What this user may be, by all of their tokens together. `None` if they have none.
    pub(crate) fn scope_of(&self, user: &str) -> Option<Scope> {
        let list = self.list();
        let mut scope = None;
        for token in list.iter().filter(|token| *token.user == *user) {
            let so_far = scope.unwrap_or_else(|| Scope::user(token.user.clone()));
            scope = Some(token.roles.iter().fold(so_far, |scope, role| match scope.has_role(role) {
                true => scope,
                false => scope.role(role.clone()),
            }));
        }
        scope
    }

    /// The token with this text. The time that this takes depends on the length of the text and on how many tokens there are, and
    /// not on which of them it is like, or how far.
    pub(crate) fn find(&self, text: &str) -> Option<Token> {
        self.with_digest(&Sha256::digest(text).into())
    }

    /// The token whose text has this SHA-256.
    pub(crate) fn with_digest(&self, digest: &[u8; 32]) -> Option<Token> {
        let list = self.list();
        // One behind the last stands for none.
        let mut found = u64::MAX;
        for (place, token) in (0u64..).zip(list.iter()) {
            let is_this: Choice = token.sha256.ct_eq(digest);
            found.conditional_assign(&place, is_this);
        }
        list.get(usize::try_from(found).ok()?).cloned()
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tokens").field(&self.list()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_text_alone() -> Result<(), BadDigest> {
        // printf secret | sha256sum
        let written = "2BB80D537B1DA3E38BD30361AA855686bde0eacd7162fef6a25fe97bf527a25b";
        let tokens = Tokens::new([Token::of_text("other", "bob"), Token::new(written, "ann")?.role("manager")]);
        let found = tokens.find("secret").map(|token| token.scope());
        assert!(
            found.is_some_and(|scope| scope.has_role("manager") && scope.user_id().is_some_and(|id| **id == *"ann"))
        );
        for wrong in ["", "Secret", "secret ", "othe", written] {
            assert!(tokens.find(wrong).is_none(), "{wrong}");
        }
        for bad in ["", "zz", &written[1..], &format!("{}g", &written[1..])] {
            assert!(Token::new(bad, "ann").is_err(), "{bad}");
        }
        Ok(())
    }

    #[test]
    fn a_replaced_list_holds_at_once_for_every_clone() {
        let tokens = Tokens::new([Token::of_text("one", "ann")]);
        let clone = tokens.clone();
        tokens.replace([Token::of_text("two", "ann")]);
        assert!(clone.find("one").is_none() && clone.find("two").is_some());
        tokens.replace([]);
        assert!(clone.find("two").is_none());
    }

    #[test]
    fn the_digest_of_a_token_is_not_shown() {
        assert!(!format!("{:?}", Tokens::new([Token::of_text("one", "ann")])).contains("sha256"));
    }
}

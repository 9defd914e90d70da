//! Links that answer one call, once: how they are made, and what one says.

use std::fmt;
use std::sync::Arc;

use turnbuckle::projection::Pending;
use turnbuckle::{CallId, ConversationId, Scope, Timestamp};

use crate::keys::{Keys, KeysError, Seal, SealId, random_bytes};
use crate::server::App;

/// What the signature is for.
const LINK: &str = "link";
/// What the token in the forms of a link's page is signed for.
const FORM: &str = "link form";
const VERSION: u8 = 1;
/// Where links lead, behind the base address.
const PATH: &str = "/v1/answers/";

/// Makes links that answer a call: for a mail, a chat message, whatever reaches the person who decides. A [`Server`](crate::Server)
/// with the same [`Keys`] takes them.
///
/// A link is for one question of one call, as it was shown, and for one user, whose rights count when it is used; or for nobody in
/// particular, and then it can deny and do no more. It works once, until the question is answered or lapses. Whoever has it can
/// use it: it is a secret.
#[derive(Clone)]
pub struct AnswerLinks {
    keys: Keys,
    base: Arc<str>,
}

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The system has no random numbers.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// A name is too long to stand in an address.
    #[error("the id of the call, or the user's name, is too long for a link")]
    TooLong,
}

impl AnswerLinks {
    /// Links below this address, under which people reach the server: `https://agents.example.com`.
    pub fn new(keys: Keys, base: &str) -> Self {
        Self { keys, base: base.trim_end_matches('/').into() }
    }

    /// A link to what a call of this conversation asks, for this user or, with `None`, for nobody in particular.
    ///
    /// # Errors
    /// If the system has no random numbers, or a name is too long.
    pub fn link(
        &self,
        conversation: &ConversationId,
        asked: &Pending,
        user: Option<&str>,
    ) -> Result<String, LinkError> {
        let link = Link {
            id: random_bytes()?,
            expires: asked.expires,
            conversation: conversation.clone(),
            call: asked.call.clone(),
            digest: asked.question.digest().map(|digest| digest.to_string()),
            user: user.map(Into::into),
        };
        let signed = self.keys.seal(LINK, &link.payload().ok_or(LinkError::TooLong)?);
        Ok(format!("{}{PATH}{signed}", self.base))
    }
}

impl turnbuckle::hooks::LinkMaker for AnswerLinks {
    fn link(
        &self,
        conversation: &ConversationId,
        asked: &Pending,
        user: Option<&str>,
    ) -> Result<String, turnbuckle::BoxError> {
        Ok(Self::link(self, conversation, asked, user)?)
    }
}

impl fmt::Debug for AnswerLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerLinks").field("base", &self.base).finish_non_exhaustive()
    }
}

/// What a link says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) id: SealId,
    /// When the question lapses. A question that is asked again under the same id of a call lapses at another time.
    pub(crate) expires: Timestamp,
    pub(crate) conversation: ConversationId,
    pub(crate) call: CallId,
    /// Of what was shown, if an approval was asked for.
    pub(crate) digest: Option<String>,
    /// Whose answer it is; `None` for nobody in particular.
    pub(crate) user: Option<Arc<str>>,
}

impl Link {
    fn payload(&self) -> Option<Vec<u8>> {
        let mut payload = vec![VERSION];
        payload.extend_from_slice(&self.id);
        payload.extend_from_slice(&self.expires.as_millis().to_be_bytes());
        let texts =
            [Some(self.conversation.as_str()), Some(self.call.as_str()), self.digest.as_deref(), self.user.as_deref()];
        for text in texts {
            // One more than the length: 0 is no text, which is not the same as an empty one.
            let length = text.map_or(Some(0), |text| u16::try_from(text.len()).ok()?.checked_add(1))?;
            payload.extend_from_slice(&length.to_be_bytes());
            payload.extend_from_slice(text.unwrap_or_default().as_bytes());
        }
        (payload.len() <= MAX_PAYLOAD).then_some(payload)
    }

    /// The link that this text is, if these keys signed it. Whether it still counts is another question.
    pub(crate) fn read(signed: &str, keys: &Keys) -> Option<Self> {
        let payload = keys.open(LINK, signed)?;
        let (version, rest) = payload.split_first()?;
        let (id, rest) = rest.split_first_chunk()?;
        let (expires, mut rest) = rest.split_first_chunk()?;
        let mut text = || -> Option<Option<String>> {
            let (length, behind) = rest.split_first_chunk()?;
            let Some(length) = usize::from(u16::from_be_bytes(*length)).checked_sub(1) else {
                rest = behind;
                return Some(None);
            };
            let (text, behind) = behind.split_at_checked(length)?;
            rest = behind;
            Some(Some(std::str::from_utf8(text).ok()?.to_owned()))
        };
        let (conversation, call, digest, user) = (text()??, text()??, text()?, text()?);
        (*version == VERSION && rest.is_empty()).then_some(Self {
            id: *id,
            expires: Timestamp::from_millis(u64::from_be_bytes(*expires)),
            conversation: conversation.into(),
            call: call.into(),
            digest,
            user: user.map(Into::into),
        })
    }

    fn seal(&self) -> Seal {
        Seal { id: self.id, until: self.expires, owner: None }
    }

    /// Whether it was neither used nor revoked, and its question has not lapsed.
    pub(crate) fn is_good(&self, keys: &Keys, now: Timestamp) -> bool {
        self.expires > now && !keys.is_void(&self.seal())
    }

    /// From now on nobody uses it.
    pub(crate) fn end(&self, keys: &Keys, now: Timestamp) -> Result<(), KeysError> {
        keys.make_void(&self.seal(), now)
    }

    /// Who answers with it, with the rights that this user has now. `None` if the server does not know the user any more.
    pub(crate) fn scope(&self, app: &App) -> Option<Scope> {
        let Some(user) = &self.user else { return Some(Scope::link_for_nobody()) };
        let scope = match &app.tokens {
            Some(tokens) => tokens.scope_of(user)?,
            None => app.local.clone(),
        };
        (scope.user_id() == Some(user)).then(|| scope.via("link"))
    }

    /// What forms of its page carry.
    pub(crate) fn form_token(&self, keys: &Keys) -> String {
        use base64::Engine as _;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(keys.sign(FORM, &[&self.id]))
    }

    /// Whether what is asked now is what the link was made for.
    pub(crate) fn is_of(&self, asked: &Pending) -> bool {
        let digest = asked.question.digest().map(|digest| &**digest);
        asked.call == self.call && asked.expires == self.expires && digest == self.digest.as_deref()
    }
}

/// The most bytes that are signed: an address of more than 2,000 characters is cut in some mails.
const MAX_PAYLOAD: usize = 1_200;
/// The longest signed text that is looked at.
pub(crate) const MAX_SIGNED: usize = 2_048;

/// The path of a link's page.
pub(crate) fn path_of(signed: &str) -> String {
    format!("{PATH}{signed}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use turnbuckle::event::Question;

    use super::*;

    fn asked(call: &str) -> Pending {
        let prompt = json!({"tool": "pay", "arguments": {}, "digest": "d", "why": null});
        let question: Question = serde_json::from_value(json!({"kind": "approval", "prompt": prompt})).unwrap();
        let expires = Timestamp::from_millis(2_000);
        Pending { call: call.into(), question, expires, rule: None, approvals: Vec::new() }
    }

    fn made(keys: &Keys, call: &str, user: Option<&str>) -> Link {
        let links = AnswerLinks::new(keys.clone(), "https://agents.example/");
        let link = links.link(&"c_1".into(), &asked(call), user).unwrap();
        Link::read(link.strip_prefix("https://agents.example/v1/answers/").unwrap(), keys).unwrap()
    }

    #[test]
    fn a_link_says_what_it_was_made_for() {
        let keys = Keys::random().unwrap();
        let link = made(&keys, "c1", Some("ann"));
        assert_eq!((link.conversation.as_str(), link.call.as_str()), ("c_1", "c1"));
        assert_eq!((link.digest.as_deref(), link.user.as_deref()), (Some("d"), Some("ann")));
        assert!(link.is_of(&asked("c1")) && !link.is_of(&asked("c2")));
        assert_eq!(made(&keys, "c1", None).user, None);
        assert_ne!(link.id, made(&keys, "c1", Some("ann")).id, "each has an id of its own");
    }

    #[test]
    fn it_is_good_until_it_is_used_or_its_question_lapses() {
        let keys = Keys::random().unwrap();
        let (link, at) = (made(&keys, "c1", None), Timestamp::from_millis);
        assert!(link.is_good(&keys, at(1_999)) && !link.is_good(&keys, at(2_000)));
        link.end(&keys, at(1_000)).unwrap();
        assert!(!link.is_good(&keys, at(1_001)));
    }

    #[test]
    fn what_is_too_long_for_an_address_makes_no_link() {
        let links = AnswerLinks::new(Keys::random().unwrap(), "https://agents.example");
        let long = "x".repeat(70_000);
        assert!(matches!(links.link(&"c_1".into(), &asked(&long), None), Err(LinkError::TooLong)));
        assert!(matches!(links.link(&"c_1".into(), &asked("c1"), Some(&long)), Err(LinkError::TooLong)));
        let call = "x".repeat(256);
        assert!(links.link(&"c_1".into(), &asked(&call), Some(&call)).unwrap().len() < 1_300);
    }
}

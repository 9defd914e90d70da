//! Questions of a server to a person, asked while the call that they belong to is open.

use serde_json::Value;
use turnbuckle::message::Text;
use turnbuckle::scope::Author;
use turnbuckle::{BoxFuture, CallId, ConversationId, Timestamp};

/// What a server wants to know of a person (the protocol calls it an elicitation).
///
/// The words are the server's: whoever shows them must say so, and keep control characters from a terminal.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Elicitation {
    /// The server's name in the configuration.
    pub server: String,
    /// The conversation whose call is open.
    pub conversation: ConversationId,
    /// The call.
    pub call: CallId,
    /// The tool that was called, by the name that the model knows.
    pub tool: Text,
    /// The agent that called it.
    pub agent: Text,
    /// Who sent the message of the turn.
    pub requester: Author,
    /// When the time of the call is up.
    pub expires: Timestamp,
    /// What the server says, cut to a readable length.
    pub message: String,
    /// The JSON schema of the answer: an object whose properties are texts, numbers, booleans or choices.
    pub schema: Value,
}

/// What a person said.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitationAnswer {
    /// An object that fits the schema.
    Accepted(Value),
    /// The person does not want to answer.
    Declined,
}

/// Somebody who can be asked while a call is open, such as the person at a terminal.
///
/// The future is dropped when the call ends, its time is up, or the turn is cancelled. Then the server is told that nobody answered. What
/// cannot be asked, because nobody listens or too much is asked at once, is `None`.
///
/// ```
/// use turnbuckle::BoxFuture;
/// use turnbuckle_mcp::{Elicitation, ElicitationAnswer, Person};
///
/// /// Says no to everything.
/// struct Nobody;
///
/// impl Person for Nobody {
///     fn ask(&self, _: Elicitation) -> BoxFuture<'static, Option<ElicitationAnswer>> {
///         Box::pin(async { None })
///     }
/// }
/// ```
pub trait Person: Send + Sync {
    /// The person's answer; `None` if nobody could be asked.
    fn ask(&self, question: Elicitation) -> BoxFuture<'static, Option<ElicitationAnswer>>;
}

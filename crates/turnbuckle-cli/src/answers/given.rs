//! The answer that a command line gives.

use std::io::{self, Read as _};
use std::sync::Arc;

use serde_json::Value;
use turnbuckle::conversation::{Always, ResolveError};
use turnbuckle::event::Resolved;
use turnbuckle::message::Text;
use turnbuckle::store::{self, Answer, StandingApproval};
use turnbuckle::{CallId, ConversationId, Conversations, Scope};
use turnbuckle_tools::rules::Rule;

use crate::Stopped;
use crate::args::AnswerOptions;
use crate::problem::Problem;

/// The longest answer: it becomes part of every later request to the model.
const LONGEST: usize = 1 << 20;

/// What a person says to a call that waits.
pub(crate) struct GivenAnswer {
    pub(crate) answer: Answer,
    /// Set if calls like this one are to run without being asked about.
    pub(crate) always: Option<Always>,
    /// What calls must be like that run without being asked about, if not the same as this one.
    pub(crate) like: Option<Like>,
    /// The beginning of the digest of what the person was shown, or all of it, if they say so.
    digest: Option<String>,
}

/// What calls must be like.
#[derive(Clone, Debug)]
pub(crate) enum Like {
    /// An object with patterns in the place of values.
    Pattern(Value),
    /// A rule of the language of `run --allow`.
    Rule(String),
}

impl GivenAnswer {
    pub(crate) fn read(options: &AnswerOptions) -> Result<Self, Stopped> {
        let answer = match options {
            AnswerOptions { deny: Some(reason), .. } => Answer::Deny(reason.as_deref().map(Into::into)),
            AnswerOptions { answer: Some(json), .. } => {
                Answer::Result(value("answer", json, "a text needs its quotes: --answer '\"blue\"'")?)
            }
            AnswerOptions { arguments: Some(json), .. } => Answer::ApproveWith(Arc::new(value(
                "arguments",
                json,
                "write an object: --arguments '{\"path\": \"a\"}'",
            )?)),
            _ => Answer::Approve,
        };
        let always = options.always.then(|| {
            let mut always = Always::default();
            always.times = options.times;
            always.lasts = options.until.unwrap_or(always.lasts);
            always
        });
        let like = options.like.as_deref();
        let hint = "write an object, or a rule: --like '{\"path\": \"docs/*\"}', --like 'write_file(docs/**)'";
        // A rule is no JSON: it begins with the name of a tool.
        let like = like.map(|given| match given.parse::<Rule>() {
            Ok(_) if !given.trim_start().starts_with(['{', '"', '-']) => Ok(Like::Rule(given.trim().to_owned())),
            _ => value("like", given, hint).map(Like::Pattern),
        });
        let like = like.transpose()?;
        Ok(Self { answer, always, like, digest: options.digest.clone() })
    }

    /// The whole digest of what the answer is about. It is stale if the call asks about something else than the person was
    /// shown. `None` if they do not say what they were shown.
    pub(crate) async fn digest_of_shown(
        &self,
        conversations: &Conversations,
        (id, call): (&ConversationId, &CallId),
        scope: &Scope,
    ) -> Result<Option<Text>, ResolveError> {
        let Some(shown) = &self.digest else { return Ok(None) };
        let question = conversations.question(id, call, scope).await?.question;
        match question.digest().filter(|digest| digest.starts_with(shown.as_str())) {
            Some(digest) => Ok(Some(digest.clone())),
            None => Err(ResolveError::Stale { call: call.clone(), why: "it was shown with other arguments".into() }),
        }
    }

    /// The answer, and the standing approval that the person agreed to: both are stored or neither is.
    pub(crate) fn with_standing(self, standing: Option<StandingApproval>) -> store::GivenAnswer {
        match standing {
            Some(standing) => self.answer.always(standing),
            None => self.answer.into(),
        }
    }

    /// Whether it puts other arguments in the place of those asked about.
    pub(crate) fn is_edited(&self) -> bool {
        matches!(self.answer, Answer::ApproveWith(_))
    }

    /// How the log will have it.
    pub(crate) fn decision(&self) -> Resolved {
        match self.answer {
            Answer::Approve | Answer::ApproveWith(_) => Resolved::Approved,
            Answer::Deny(_) => Resolved::Denied,
            _ => Resolved::Answered,
        }
    }
}

/// The value of an option that is JSON, or of stdin.
fn value(option: &str, given: &str, hint: &str) -> Result<Value, Stopped> {
    let piped;
    let json = match given {
        "-" => {
            piped = from_stdin(option)?;
            piped.as_slice()
        }
        given => given.as_bytes(),
    };
    if json.len() > LONGEST {
        let problem = Problem::error(format!("`--{option}` is longer than 1 MiB, and was not taken"));
        return Err(Stopped::usage(problem.hint("put it into a file, and answer with its path")));
    }
    serde_json::from_slice(json)
        .map_err(|error| Stopped::usage(Problem::error(format!("`--{option}` is not JSON: {error}")).hint(hint)))
}

/// One byte more than may be is enough to know.
fn from_stdin(option: &str) -> Result<Vec<u8>, Stopped> {
    let (mut bytes, most) = (Vec::new(), u64::try_from(LONGEST + 1).unwrap_or(u64::MAX));
    let read = io::stdin().lock().take(most).read_to_end(&mut bytes);
    read.map_err(|error| Stopped::failed(Problem::error(format!("reading `--{option}` from stdin: {error}"))))?;
    Ok(bytes)
}

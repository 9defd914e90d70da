//! `turnbuckle resolve`: answers a call that waits, and carries its turn on.

use std::io::{self, Read as _};

use turnbuckle::conversation::ResolveError;
use turnbuckle::store::Answer;
use turnbuckle::{CallId, Conversations, TurnStatus};

use super::watch::{DisplayOptions, Expected, Watch};
use super::{KNOWN, Ready, named};
use crate::Stopped;
use crate::args::{Common, Resolve};
use crate::assemble::prepare;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::store::MADE_BY_RUN;

/// The longest answer: it becomes part of every later request to the model.
const LONGEST: usize = 1 << 20;

/// Answers a call that waits, and carries the turn on, or leaves that to the process that has it.
pub(crate) async fn resolve(args: Resolve, common: &Common) -> Result<Exit, Stopped> {
    let id = named(&args.id)?;
    let answer = answer(&args)?;
    let ready = Ready::of(prepare(common))?;
    let conversations = Conversations::builder(ready.agent.clone(), ready.store.existing(MADE_BY_RUN)?);
    let display = DisplayOptions { json: args.json, ..DisplayOptions::default() };
    let mut watch = Watch::begin(conversations, id, display, &ready, common, Expected::Existing).await?;
    watch.carry_on().await;
    let call = CallId::from(args.call.as_str());
    let handle = match watch.conversations.resolve(&watch.id, &call, answer, None, watch.scope.clone()).await {
        Ok(handle) => handle,
        Err(error) => return Ok(watch.refuse_answer(&error).await),
    };
    if handle.is_remote() {
        let id = &watch.id;
        watch.output.err(format!("handed over: another process has conversation {id} and carries its turn on\n"));
        return Ok(watch.finish(Exit::Completed).await);
    }
    let rest = watch.follow(handle).await;
    Ok(watch.conclude(rest).await)
}

impl Watch {
    /// Resumes the turn first: a question may have expired, and another process may have left an answer.
    async fn carry_on(&mut self) {
        // A conversation that another process has is that one's concern; any other trouble meets the answer, too.
        let Ok(Some(handle)) = self.conversations.resume(&self.id, self.scope.clone()).await else { return };
        if let Ok(TurnStatus::Ended(ended)) = self.follow(handle).await {
            self.settle().await;
            self.view.answer(&ended, &self.output);
        }
    }

    /// The answer was not taken.
    async fn refuse_answer(mut self, error: &ResolveError) -> Exit {
        // The turn may be under way here by another answer: it is not left in the middle.
        self.carry_on().await;
        let (id, options) = (&self.id, &self.hints.options);
        let hint = match error {
            ResolveError::Stale { .. } => format!("`turnbuckle show {id}{options}` says what it waits for, if it does"),
            ResolveError::Unfit { .. } => "`turnbuckle resolve --help` has the kinds of answers".to_owned(),
            ResolveError::NotFound { .. } => KNOWN.to_owned(),
            ResolveError::TooLong { .. } => "put it into a file, and answer with its path".to_owned(),
            ResolveError::Full { .. } => "nothing was answered: try again in a moment".to_owned(),
            _ => format!("nothing was answered: try again; `turnbuckle show {id}{options}` says where it stands"),
        };
        self.output.problem(&Problem::error(error.to_string()).hint(hint));
        self.finish(Exit::Failed).await
    }
}

fn answer(args: &Resolve) -> Result<Answer, Stopped> {
    match (&args.deny, args.answer.as_deref()) {
        (Some(reason), _) => Ok(Answer::Deny(reason.as_deref().map(Into::into))),
        (None, None) => Ok(Answer::Approve),
        (None, Some("-")) => parse(&from_stdin()?),
        (None, Some(json)) => parse(json.as_bytes()),
    }
}

fn parse(json: &[u8]) -> Result<Answer, Stopped> {
    if json.len() > LONGEST {
        let problem = Problem::error("the answer is longer than 1 MiB, and was not taken");
        return Err(Stopped::usage(problem.hint("put it into a file, and answer with its path")));
    }
    serde_json::from_slice(json).map(Answer::Result).map_err(|error| {
        let problem = Problem::error(format!("the answer is not JSON: {error}"));
        Stopped::usage(problem.hint("a text needs its quotes: --answer '\"blue\"'"))
    })
}

/// One byte more than may be is enough to know.
fn from_stdin() -> Result<Vec<u8>, Stopped> {
    let (mut bytes, most) = (Vec::new(), u64::try_from(LONGEST + 1).unwrap_or(u64::MAX));
    let read = io::stdin().lock().take(most).read_to_end(&mut bytes);
    read.map_err(|error| Stopped::failed(Problem::error(format!("reading the answer from stdin: {error}"))))?;
    Ok(bytes)
}

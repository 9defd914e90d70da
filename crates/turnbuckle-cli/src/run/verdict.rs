//! How a turn came out, to the shell and to the person.

use turnbuckle::conversation::TurnError;
use turnbuckle::event::{Cause, ModelErrorKind, Question};
use turnbuckle::hook::Point;
use turnbuckle::projection::Pending;
use turnbuckle::scope::Author;
use turnbuckle::store::StoreError;
use turnbuckle::{ConversationId, Outcome, TurnReport, TurnStatus};

use crate::args::Common;
use crate::assemble::{choose_model, holds_a_secret};
use crate::config;
use crate::exit::Exit;
use crate::model_trouble;
use crate::problem::{Problem, with_causes};
use crate::show::{self, quoted};
use crate::trust::Gate;

/// The exit code, and what to say on stderr.
pub(super) fn of(rest: &Result<TurnStatus, TurnError>, hints: &ResolveHints) -> (Exit, Vec<Problem>) {
    match rest {
        Ok(TurnStatus::Ended(ended)) => (ended.outcome.into(), ended_badly(ended).into_iter().collect()),
        Ok(TurnStatus::Waiting(pending)) => {
            let what = format!("the turn waits for {}", shown(pending));
            (Exit::Waiting, vec![Problem::error(what).hint(hints.hint(pending))])
        }
        Err(error) => (Exit::Failed, vec![stopped(error, hints)]),
    }
}

/// The turn could not be carried on; what was written stands.
fn stopped(error: &TurnError, hints: &ResolveHints) -> Problem {
    let problem = Problem::error(with_causes(error));
    let (id, options) = (&hints.id, &hints.options);
    match error {
        TurnError::Store(StoreError::Fenced { .. } | StoreError::WrongSeq { .. }) => problem.hint(format!(
            "another process took the conversation over while this one did not answer, and nothing more was written \
                 or run here; `turnbuckle show {id}{options}` says what became of the turn"
        )),
        _ if hints.durable => {
            problem.hint(format!("what was written stands; `turnbuckle run -c {id}{options}` finishes the turn"))
        }
        _ => problem,
    }
}

/// The turn already waited when the program started.
pub(super) fn busy(pending: &[Pending], hints: &ResolveHints) -> Problem {
    let what = format!("conversation {} is busy: its turn waits for {}", hints.id, shown(pending));
    Problem::error(what).hint(hints.hint(pending))
}

fn shown(pending: &[Pending]) -> String {
    let calls: Vec<String> = pending.iter().map(show::pending).collect();
    calls.join(" and for ")
}

/// The longest id of a call, in bytes, that is written into a command for a person to copy.
const LONGEST_SHOWN: usize = 200;

/// What a person must type to answer.
pub(crate) struct ResolveHints {
    pub(crate) id: ConversationId,
    /// Whether the question is kept until then.
    pub(crate) durable: bool,
    /// Options that lead to the same store.
    pub(crate) options: String,
}

impl ResolveHints {
    pub(crate) fn new(id: ConversationId, durable: bool, common: &Common) -> Self {
        Self { id, durable, options: common.same_store() }
    }

    /// As a person who was not there must type it: a turn that began with another model than is chosen now goes on with
    /// its own.
    pub(crate) fn for_turn_of(id: ConversationId, common: &Common, begun_with: Option<&str>) -> Self {
        let chosen = choose_model(common, &config::load(common, Gate::LeftOut).config).name;
        let other = |model: &&str| !model.is_empty() && *model != chosen && !holds_a_secret(&chosen);
        let mut common = common.clone();
        if let Some(model) = begun_with.filter(other) {
            common.model = Some(model.to_owned());
        }
        Self::new(id, true, &common)
    }

    /// One command, with the other answers that are possible.
    pub(crate) fn command(&self, pending: &Pending) -> String {
        let (answer, instead) = match pending.question {
            Question::Elicitation { .. } | Question::ClientExec { .. } => ("--answer JSON", "--deny [REASON]"),
            _ => ("--approve", "--deny [REASON]"),
        };
        let (id, options) = (&self.id, &self.options);
        let length = pending.call.as_str().len();
        if length > LONGEST_SHOWN {
            return format!(
                "`turnbuckle resolve {id} CALL {answer}{options}` (or {instead}), where CALL is the id of the call: it has \
                 {length} bytes, and `turnbuckle show {id}{options} --json` prints it, as `call` of the `suspension`"
            );
        }
        // The id of a call is the model's, and a person pastes this into a shell.
        let call = quoted(pending.call.as_str());
        match call.starts_with('-') {
            true => format!("`turnbuckle resolve {id} {answer}{options} -- {call}` (or {instead})"),
            false => format!("`turnbuckle resolve {id} {call} {answer}{options}` (or {instead})"),
        }
    }

    fn hint(&self, pending: &[Pending]) -> String {
        if !self.durable {
            return "the store `memory:` forgets, so this cannot be resolved later: `--store sqlite:PATH` keeps it; \
                    `approve = []` in [tools] asks for no approval, and a `before_tool` hook can judge calls instead"
                .to_owned();
        }
        let commands: Vec<String> = pending.iter().map(|pending| self.command(pending)).collect();
        commands.join(", ")
    }
}

fn ended_badly(ended: &TurnReport) -> Option<Problem> {
    let reason = ended.reason.as_deref().unwrap_or("no reason given");
    let by = match &ended.by {
        Some(Author::Hook(hook)) => format!(" by hook {hook}"),
        _ => String::new(),
    };
    let cause = ended.cause.as_ref();
    let (what, hint) = match ended.outcome {
        Outcome::Completed => return None,
        Outcome::Cancelled => return Some(Problem::error("the turn was cancelled")),
        Outcome::Halted => (format!("the turn was halted{by}: {reason}"), after_halt(cause).to_owned()),
        Outcome::Rejected => (format!("no reply was let through{by}: {reason}"), after_rejection(cause).to_owned()),
        Outcome::Exhausted => {
            (format!("the turn reached its limit: {reason}"), "the limits of a turn stand in [limits]".to_owned())
        }
        Outcome::Failed => (format!("the turn failed: {reason}"), after_failure(cause, reason)),
    };
    Some(Problem::error(what).hint(hint))
}

fn after_halt(cause: Option<&Cause>) -> &'static str {
    match cause {
        Some(Cause::Expired) => "answer in time, or raise `approval_timeout` in [limits]",
        _ => "change the message, or the hook",
    }
}

/// What helps depends on who rejected: a shape that does not fit is asked for once more, whatever the limits say.
fn after_rejection(cause: Option<&Cause>) -> &'static str {
    match cause {
        Some(Cause::SchemaMismatch) => {
            "the model was asked twice: say in the message what is wanted, simplify the schema, or choose another model"
        }
        Some(Cause::Regenerations { .. }) => "change the message or the hook, or raise `max_regenerations` in [limits]",
        Some(Cause::NotApproved) => "change the message: a person did not approve the reply",
        _ => "change the message, or the hook",
    }
}

fn after_failure(cause: Option<&Cause>, reason: &str) -> String {
    let hint = match cause {
        Some(Cause::HookFailed { point: Point::Stream, .. }) => {
            "on the stream a hook's failure always blocks; `redact` blocks only with `strategy = \"block\"`: another one \
             lets the rest of the text pass"
        }
        Some(Cause::HookFailed { .. }) => "repair the hook; `on_failure = \"ignore\"` lets a turn go on without it",
        Some(Cause::InjectionOverflow { .. }) => {
            "let the hook add less, give it `max_tokens` and what finds no room is left out, or raise `injection_reserve` \
             in [limits]"
        }
        Some(Cause::ContextTooLarge { .. }) => "send less, or raise `context_tokens` in [limits]",
        Some(Cause::Model { error: ModelErrorKind::ScriptExhausted, .. }) => {
            "add replies to the script, or set its `on_exhausted`"
        }
        Some(Cause::Model { status, error }) => match model_trouble::advice(*status, *error, reason) {
            Some(advice) => {
                return format!("{advice} (`turnbuckle doctor` says what is there and asks the model for one token)");
            }
            None => EVENTS,
        },
        _ => EVENTS,
    };
    hint.to_owned()
}

/// Where to look if nothing better is known.
const EVENTS: &str = "`run --json` shows every event of a turn";

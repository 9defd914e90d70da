//! One event: its matching handlers run side by side, each to its end, and their answers are merged.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use turnbuckle::feed::Level;
use turnbuckle::hook::{Decision, OnConversationContext, OnFailure, Record};
use turnbuckle::hooks::ToolServers;
use turnbuckle::id::CallId;
use turnbuckle::message::Text;
use turnbuckle::{Agent, BoxError, Turn};

use super::answer::{Answer, Outcome, Reading};
use super::bridge;
use super::dialect::Dialect;
use super::event::ClaudeEvent;
use super::handler::{ClaudeHandler, Waiting};
use super::later::{Aside, Ended};
use super::matcher::Matcher;
use super::merge::{Given, Merged, merge};
use super::patched::{FileView, Match, limit_allowed, within_limit};
use super::run::{Caller, PromptModels};
use super::session::Sessions;
use super::text::{plain, short};
use super::transcript::{self, Transcripts};
use crate::command::env::ProgramEnv;

/// Everything that handlers are run with.
#[derive(Clone, Debug)]
pub(super) struct Adapter {
    pub(super) name: Text,
    pub(super) handlers: Arc<[ClaudeHandler]>,
    pub(super) project: PathBuf,
    pub(super) transcripts: Transcripts,
    pub(super) env: ProgramEnv,
    pub(super) dialect: Dialect,
    pub(super) models: PromptModels,
    pub(super) servers: Option<Arc<dyn ToolServers>>,
    /// Whether the failure of every handler blocks, beside what the agent says of this hook.
    pub(super) fails_closed: bool,
    pub(super) aside: Arc<Aside>,
    pub(super) sessions: Arc<Sessions>,
}

/// Who is told what handlers say to the user.
#[derive(Clone, Copy)]
pub(super) enum Audience<'a> {
    Turn(&'a Turn),
    Conversation(&'a OnConversationContext),
    /// Between turns.
    Agent(&'a Agent),
    /// The turn is over.
    Nobody,
}

/// Something that happened in a turn.
pub(super) struct Occasion<'a> {
    pub(super) event: ClaudeEvent,
    /// The conversation, as stored. That of a sub-agent begins with its parent's and a `/`.
    pub(super) conversation: &'a str,
    pub(super) turn_id: &'a str,
    pub(super) agent: &'a str,
    pub(super) is_sub_agent: bool,
    pub(super) audience: Audience<'a>,
    /// What matchers are compared with.
    pub(super) subject: &'a str,
    /// The call, at events of tools: its id, and its input in the protocol's words.
    pub(super) call: Option<(&'a CallId, &'a Value)>,
    /// The files that the call changes, if it is a patch.
    pub(super) files: Vec<FileView>,
    /// What stands on stdin beyond the common fields.
    pub(super) more: Value,
}

impl<'a> Occasion<'a> {
    pub(super) fn of(turn: &'a Turn, event: ClaudeEvent, more: Value) -> Self {
        Self {
            event,
            conversation: turn.conversation().as_str(),
            turn_id: turn.id().as_str(),
            agent: turn.agent().name(),
            is_sub_agent: turn.parent_agent().is_some(),
            audience: Audience::Turn(turn),
            subject: "",
            call: None,
            files: Vec::new(),
            more,
        }
    }

    pub(super) fn turn(&self) -> Option<&'a Turn> {
        match self.audience {
            Audience::Turn(turn) => Some(turn),
            Audience::Conversation(_) | Audience::Agent(_) | Audience::Nobody => None,
        }
    }

    fn agent(&self) -> Option<&'a Agent> {
        match self.audience {
            Audience::Turn(turn) => Some(turn.agent()),
            Audience::Conversation(context) => Some(context.agent()),
            Audience::Agent(agent) => Some(agent),
            Audience::Nobody => None,
        }
    }

    /// How much trouble the agent's model takes, if that is configured.
    fn effort(&self) -> Option<&str> {
        self.agent()?.model().effort()
    }

    pub(super) fn caller(&self) -> Caller {
        Caller { session: self.session().to_owned(), effort: self.effort().map(str::to_owned) }
    }

    /// A sub-agent belongs to the conversation that called it.
    pub(super) fn session(&self) -> &str {
        match self.is_sub_agent {
            true => self.conversation.split('/').next().unwrap_or(self.conversation),
            false => self.conversation,
        }
    }
}

/// A handler of which nobody can tell whether it is for an event.
pub(super) struct Unreadable<'a> {
    pub(super) handler: &'a ClaudeHandler,
    pub(super) why: &'a str,
}

impl Unreadable<'_> {
    /// It blocks: a gate must not be gone in silence.
    pub(super) fn given(&self) -> Given {
        let block = self.handler.event.can_block().then(|| Some(self.why.to_owned()));
        let answer = Answer { block, message: Some(self.why.to_owned()), ..Answer::default() };
        Given { handler: self.handler.action.to_string(), answer }
    }
}

/// What one handler did.
struct Done {
    label: String,
    reading: Reading,
    took: Duration,
}

impl Adapter {
    /// Runs the handlers of an event and merges what they say. An error only if a program may not run.
    pub(super) async fn fire(&self, occasion: Occasion<'_>) -> Result<Merged, BoxError> {
        if let Some(turn) = occasion.turn() {
            self.note_aside(turn, occasion.session());
        }
        let (matching, unreadable) = self.matching(&occasion);
        if matching.is_empty() && unreadable.is_empty() {
            return Ok(Merged::default());
        }
        let (matching, beyond) = within_limit(matching);
        let told = unreadable.iter().map(Unreadable::given).chain(beyond);
        let mut given: Vec<(Option<usize>, Given)> = told.map(|given| (None, given)).collect();
        self.write_transcript(&occasion).await;
        let inputs = self.inputs(&occasion)?;
        // A short program may be over by the first look: then whether its start is told would be chance.
        tokio::task::yield_now().await;
        let (waited, aside): (Vec<Match<'_>>, Vec<_>) =
            matching.into_iter().partition(|(handler, _)| handler.waiting == Waiting::ForIt);
        for (handler, file) in aside {
            if !self.start_aside(handler, occasion.caller(), inputs.of(file)) {
                self.tell(&occasion, &format!("{} is left out: too many async handlers run already", handler.action));
            }
        }
        let runs = waited.iter().map(|(handler, file)| self.timed(handler, &occasion, inputs.of(*file)));
        for ((handler, file), done) in waited.iter().zip(join_all(runs).await) {
            let mut one = self.noted(&occasion, handler, done?);
            if let Some(view) = file.and_then(|file| occasion.files.get(file)) {
                view.limit(occasion.event, &mut one.answer);
            }
            given.push((*file, one));
        }
        limit_allowed(&mut given, occasion.files.len());
        let mut merged = merge(given.into_iter().map(|(_, given)| given).collect());
        self.shorten(&occasion, &mut merged).await?;
        for message in &merged.messages {
            self.tell(&occasion, message);
        }
        Ok(merged)
    }

    /// The handlers that are for this, each with the file of a patch that it is for, and those of which nobody can tell.
    pub(super) fn matching<'s>(&'s self, occasion: &Occasion<'_>) -> (Vec<Match<'s>>, Vec<Unreadable<'s>>) {
        let mut matching = Vec::new();
        let mut unreadable = Vec::new();
        // A patch whose files are known goes by its own name only to those who ask for that name.
        let names = match occasion.files.is_empty() {
            true => bridge::names_for_matchers(occasion.subject),
            false => vec![occasion.subject],
        };
        for handler in self.handlers.iter().filter(|handler| handler.event == occasion.event) {
            let fits = |names: &mut dyn Iterator<Item = &str>, input: Option<&Value>| -> Result<bool, &'s str> {
                let names: Vec<&str> = names.collect();
                let rule = |input: &Value| {
                    let rule = handler.rule.as_ref();
                    rule.is_none_or(|rule| names.iter().any(|name| rule.fits(name, input, &self.project)))
                };
                Ok(fits_any(&handler.fits, &names)? && input.is_none_or(rule))
            };
            let whole = fits(&mut names.iter().copied(), occasion.call.map(|(_, input)| input));
            let files = occasion.files.iter().enumerate();
            let fitting = files.filter(|(_, view)| fits(&mut view.names(), Some(&view.input)) == Ok(true));
            match whole {
                Ok(is_whole) => {
                    let whole = is_whole.then_some(None);
                    let each = whole.into_iter().chain(fitting.map(|(at, _)| Some(at)));
                    matching.extend(each.map(|file| (handler, file)));
                }
                Err(why) => unreadable.push(Unreadable { handler, why }),
            }
        }
        (matching, unreadable)
    }

    /// What handlers read on stdin.
    pub(super) fn inputs(&self, occasion: &Occasion<'_>) -> Result<Inputs, serde_json::Error> {
        let line = |event: &Map<String, Value>| {
            let mut line = serde_json::to_vec(event)?;
            // With none, `read` in a shell script fails on the last line.
            line.push(b'\n');
            Ok(line)
        };
        let whole = self.input(occasion);
        let files = occasion.files.iter().map(|view| line(&view.event(whole.clone()))).collect::<Result<_, _>>()?;
        Ok(Inputs { whole: line(&whole)?, files })
    }

    async fn timed(&self, handler: &ClaudeHandler, occasion: &Occasion<'_>, input: &[u8]) -> Result<Done, BoxError> {
        if let (Some(turn), Some(status)) = (occasion.turn(), &handler.status_message) {
            turn.hook_progress(&self.name, plain(status));
        }
        let began = Instant::now();
        let reading = self.run(handler, occasion, input).await?;
        Ok(Done { label: handler.action.to_string(), reading, took: began.elapsed() })
    }

    /// The answer of a handler, in which its failure is a block where it is to be one, and else a warning.
    pub(super) fn settled(&self, occasion: &Occasion<'_>, handler: &ClaudeHandler, reading: &Reading) -> Answer {
        let (mut answer, outcome) = (reading.answer.clone(), reading.outcome);
        if let Some(why) = &reading.failure {
            let why = format!("it failed ({}): {why}", outcome.name());
            match self.failure_blocks(occasion, handler) {
                true => answer.block = Some(Some(format!("{}: {why}", handler.action))),
                false => answer.warnings.push(format!("{why}; the turn goes on without it")),
            }
        }
        if outcome == Outcome::BlockedSuspect {
            answer
                .warnings
                .push("it blocks, and looks as if its program could not be run: is the path right?".to_owned());
        }
        answer
    }

    /// Whether the failure of a handler blocks: it says so itself, or this hook's configuration does for all of them.
    pub(super) fn failure_blocks(&self, occasion: &Occasion<'_>, handler: &ClaudeHandler) -> bool {
        let of_all = || self.fails_closed || occasion.agent().is_some_and(|agent| self.fails_closed_in(agent));
        occasion.event.can_block() && (handler.blocks_on_failure || of_all())
    }

    /// Leaves the record of a run.
    fn noted(&self, occasion: &Occasion<'_>, handler: &ClaudeHandler, done: Done) -> Given {
        let Done { label, reading, took } = done;
        let answer = self.settled(occasion, handler, &reading);
        let Reading { outcome, failure, .. } = reading;
        let blocked = matches!(outcome, Outcome::Blocked | Outcome::BlockedSuspect);
        let decision = match (&failure, occasion.event) {
            (Some(_), _) => Decision::Failed,
            (None, ClaudeEvent::Stop | ClaudeEvent::SubagentStop) if answer.stop.is_some() => Decision::Prevent,
            (None, _) if answer.stop.is_some() => Decision::Halt,
            (None, ClaudeEvent::Stop | ClaudeEvent::SubagentStop) if blocked => Decision::Refuse,
            (None, ClaudeEvent::Stop | ClaudeEvent::SubagentStop) => Decision::Accept,
            (None, ClaudeEvent::UserPromptSubmit) if blocked => Decision::Erase,
            (None, ClaudeEvent::PreToolUse | ClaudeEvent::PermissionRequest) if blocked => Decision::Deny,
            (None, ClaudeEvent::PostToolBatch) if blocked => Decision::Halt,
            (None, _) => Decision::Continue,
        };
        if let Some(turn) = occasion.turn() {
            let name = format!("{}: {label}", self.name).into();
            let mut record = Record::new(occasion.event.point(), name, decision, took);
            record.call = occasion.call.map(|(call, _)| call.clone());
            record.failure = failure.map(Into::into);
            record.outcome = Some(outcome.name().into());
            turn.record(record);
        } else if failure.is_some() || occasion.event != ClaudeEvent::SessionEnd {
            // `SessionEnd` is told by whoever fires it; seldom does a turn follow that could have the record.
            let is_told =
                matches!(occasion.audience, Audience::Conversation(_)) || occasion.event == ClaudeEvent::SessionEnd;
            let ended = Ended { event: occasion.event, label: label.clone(), outcome, failure, took, is_told };
            self.has_ended(occasion.session(), ended);
        }
        Given { handler: label, answer }
    }

    /// Whether `on_failure = "block"` stands in the configuration of this hook: then it holds for all its handlers.
    fn fails_closed_in(&self, agent: &Agent) -> bool {
        let own = agent.hooks().iter().find(|entry| entry.name() == &*self.name);
        own.is_some_and(|entry| entry.settings().on_failure == Some(OnFailure::Block))
    }

    pub(super) fn tell(&self, occasion: &Occasion<'_>, message: &str) {
        match occasion.audience {
            Audience::Turn(turn) => turn.notice(Level::Warning, &self.name, message),
            Audience::Conversation(context) => context.notice(Level::Warning, &self.name, message),
            Audience::Agent(_) | Audience::Nobody => tracing::warn!(hook = %self.name, "{message}"),
        }
    }

    fn input(&self, occasion: &Occasion<'_>) -> Map<String, Value> {
        let mut input = Map::new();
        let mut set = |key: &str, value: Value| input.insert(key.to_owned(), value);
        set("session_id", json!(occasion.session()));
        set("transcript_path", json!(self.transcripts.path(occasion.session())));
        set("cwd", json!(self.project));
        set("hook_event_name", json!(occasion.event.name()));
        if occasion.event.has_permission_mode() {
            set("permission_mode", json!("default"));
        }
        if let Some(level) = occasion.effort().filter(|_| occasion.event.has_effort()) {
            set("effort", json!({ "level": level }));
        }
        set("turn_id", json!(occasion.turn_id));
        if occasion.event != ClaudeEvent::SessionStart {
            set("prompt_id", json!(occasion.turn_id));
        }
        if let Some(turn) = occasion.turn() {
            set("model", json!(turn.agent().model().name()));
            if let Some(reply) = turn.assistant_message() {
                set("usage", json!(reply.usage));
            }
        }
        if occasion.is_sub_agent {
            set("agent_id", json!(occasion.conversation));
            set("agent_type", json!(occasion.agent));
            set("agent_transcript_path", json!(self.transcripts.path(occasion.conversation)));
        }
        if let Value::Object(more) = &occasion.more {
            input.extend(more.clone());
        }
        input
    }

    /// A transcript that cannot be written is told; handlers that need it say so themselves.
    pub(super) async fn write_transcript(&self, occasion: &Occasion<'_>) {
        let (lines, transcripts) =
            (occasion.turn().map(|turn| transcript::lines(turn, &self.project)), self.transcripts.clone());
        let id = occasion.conversation.to_owned();
        let write = move || match lines {
            Some(lines) => transcripts.write(&id, &lines),
            // Outside of a turn it is what the last event of one left.
            None => transcripts.make(&id),
        };
        let written = tokio::task::spawn_blocking(write).await;
        let failed = match written {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.tell(occasion, &format!("the transcript could not be written: {failed}"));
    }

    /// Long texts go to files.
    async fn shorten(&self, occasion: &Occasion<'_>, merged: &mut Merged) -> Result<(), BoxError> {
        let Merged { stop, blocks, permission, context, messages, .. } = merged;
        let reasons = stop.iter_mut().chain(permission.iter_mut().map(|(_, reason)| reason));
        for text in context.iter_mut().chain(blocks).chain(messages).chain(reasons) {
            *text = self.shortened(occasion.conversation, text).await?;
        }
        Ok(())
    }

    /// A text of a handler as a model or a person reads it. A long one goes to a file of the conversation.
    pub(super) async fn shortened(&self, conversation: &str, text: &str) -> Result<String, BoxError> {
        let text = plain(text);
        // A character has a byte at least.
        if text.len() <= self.dialect.most_text {
            return Ok(text);
        }
        let (transcripts, most) = (self.transcripts.clone(), self.dialect.most_text);
        let file = transcripts.text_file(conversation);
        Ok(tokio::task::spawn_blocking(move || short(&text, most, &transcripts.project, &file)).await?)
    }
}

/// What handlers read: the event, and the same for each file of a patch.
pub(super) struct Inputs {
    whole: Vec<u8>,
    files: Vec<Vec<u8>>,
}

impl Inputs {
    pub(super) fn of(&self, file: Option<usize>) -> &[u8] {
        file.and_then(|file| self.files.get(file)).unwrap_or(&self.whole)
    }
}

/// Whether the matcher fits any of the names by which a tool is known.
fn fits_any<'m>(matcher: &'m Matcher, names: &[&str]) -> Result<bool, &'m str> {
    for name in names {
        if matcher.fits(name)? {
            return Ok(true);
        }
    }
    Ok(false)
}

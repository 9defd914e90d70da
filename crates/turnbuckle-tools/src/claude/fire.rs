//! One event: its matching handlers run side by side, each to its end, and their answers are merged.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use turnbuckle::feed::Level;
use turnbuckle::hook::{Decision, OnFailure, Record};
use turnbuckle::id::CallId;
use turnbuckle::message::Text;
use turnbuckle::{BoxError, Turn};

use super::answer::{Answer, Outcome, Reading, read};
use super::dialect::Dialect;
use super::event::ClaudeEvent;
use super::merge::{Given, Merged, merge};
use super::settings::ClaudeHandler;
use super::text::short;
use super::transcript::{self, Transcripts};
use crate::command::CommandError;
use crate::command::env::ProgramEnv;
use crate::command::process::run_within;

/// Everything that handlers are run with.
#[derive(Clone, Debug)]
pub(super) struct Adapter {
    pub(super) name: Text,
    pub(super) handlers: Arc<[ClaudeHandler]>,
    pub(super) project: PathBuf,
    pub(super) transcripts: Transcripts,
    pub(super) env: ProgramEnv,
    pub(super) dialect: Dialect,
}

/// Something that happened in a turn.
pub(super) struct Occasion<'a> {
    pub(super) event: ClaudeEvent,
    /// The conversation, as stored. That of a sub-agent begins with its parent's and a `/`.
    pub(super) conversation: &'a str,
    pub(super) turn_id: &'a str,
    pub(super) agent: &'a str,
    pub(super) is_sub_agent: bool,
    /// None once the turn is over.
    pub(super) turn: Option<&'a Turn>,
    /// What matchers are compared with.
    pub(super) subject: &'a str,
    /// The call, at events of tools: its id, and its input in the protocol's words.
    pub(super) call: Option<(&'a CallId, &'a Value)>,
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
            turn: Some(turn),
            subject: "",
            call: None,
            more,
        }
    }

    /// A sub-agent belongs to the conversation that called it.
    fn session(&self) -> &str {
        match self.is_sub_agent {
            true => self.conversation.split('/').next().unwrap_or(self.conversation),
            false => self.conversation,
        }
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
        let mut matching = Vec::new();
        let mut given = Vec::new();
        for handler in self.handlers.iter().filter(|handler| handler.event == occasion.event) {
            match handler.fits.fits(occasion.subject) {
                Ok(false) => {}
                Ok(true) => {
                    let fits = |(_, input): (_, &Value)| {
                        handler.rule.as_ref().is_none_or(|rule| rule.fits(occasion.subject, input, &self.project))
                    };
                    if occasion.call.is_none_or(fits) {
                        matching.push(handler);
                    }
                }
                // Nobody can tell whether the gate is for this call, so it blocks.
                Err(why) => {
                    let block = handler.event.can_block().then(|| Some(why.to_owned()));
                    let answer = Answer { block, message: Some(why.to_owned()), ..Answer::default() };
                    given.push(Given { handler: handler.command.to_string(), answer });
                }
            }
        }
        if matching.is_empty() && given.is_empty() {
            return Ok(Merged::default());
        }
        self.write_transcript(&occasion).await;
        let mut input = serde_json::to_vec(&self.input(&occasion))?;
        // With none, `read` in a shell script fails on the last line.
        input.push(b'\n');
        // A short program may be over by the first look: then whether its start is told would be chance.
        tokio::task::yield_now().await;
        let runs = matching.iter().map(|handler| self.run(handler, &occasion, &input));
        for (handler, done) in matching.iter().zip(join_all(runs).await) {
            given.push(self.noted(&occasion, handler, done?));
        }
        let mut merged = merge(given);
        self.shorten(&occasion, &mut merged).await?;
        for message in &merged.messages {
            self.tell(&occasion, message);
        }
        Ok(merged)
    }

    async fn run(&self, handler: &ClaudeHandler, occasion: &Occasion<'_>, input: &[u8]) -> Result<Done, BoxError> {
        let project = self.project.to_string_lossy().into_owned();
        let mut set = vec![
            ("CLAUDECODE".to_owned(), "1".to_owned()),
            ("CLAUDE_CODE_CHILD_SESSION".to_owned(), "1".to_owned()),
            ("CLAUDE_CODE_SESSION_ID".to_owned(), occasion.session().to_owned()),
            ("CLAUDE_PID".to_owned(), std::process::id().to_string()),
            ("CLAUDE_PROJECT_DIR".to_owned(), project),
        ];
        if let Some(root) = &handler.plugin {
            set.push(("CLAUDE_PLUGIN_ROOT".to_owned(), root.to_string_lossy().into_owned()));
        }
        let began = Instant::now();
        let ran = run_within(&handler.command, &self.project, &self.env.with(set), input, Some(handler.timeout)).await;
        let reading = match ran {
            Ok(ran) => read(occasion.event, &self.dialect, &ran),
            // What would run is not what was accepted: that blocks, whatever the handler says of its failures.
            Err(error @ CommandError::NotAllowed { .. }) => return Err(error.into()),
            Err(error) => {
                let outcome = match error {
                    CommandError::TimedOut { .. } => Outcome::Timeout,
                    _ => Outcome::SpawnFailed,
                };
                Reading { outcome, answer: Answer::default(), failure: Some(error.to_string()) }
            }
        };
        Ok(Done { label: handler.command.to_string(), reading, took: began.elapsed() })
    }

    /// Leaves the record of a run, and makes a block of a failure where it is to be one.
    fn noted(&self, occasion: &Occasion<'_>, handler: &ClaudeHandler, done: Done) -> Given {
        let Done { label, reading: Reading { outcome, mut answer, failure }, took } = done;
        let blocks = handler.blocks_on_failure || occasion.turn.is_some_and(|turn| self.fails_closed(turn));
        if let Some(why) = &failure {
            let why = format!("it failed ({}): {why}", outcome.name());
            match blocks && occasion.event.can_block() {
                true => answer.block = Some(Some(format!("{label}: {why}"))),
                false => answer.warnings.push(format!("{why}; the turn goes on without it")),
            }
        }
        if outcome == Outcome::BlockedSuspect {
            answer
                .warnings
                .push("it blocks, and looks as if its program could not be run: is the path right?".to_owned());
        }
        let blocked = matches!(outcome, Outcome::Blocked | Outcome::BlockedSuspect);
        let decision = match (&failure, occasion.event) {
            (Some(_), _) => Decision::Failed,
            (None, ClaudeEvent::Stop | ClaudeEvent::SubagentStop) if blocked => Decision::Refuse,
            (None, ClaudeEvent::Stop | ClaudeEvent::SubagentStop) => Decision::Accept,
            (None, ClaudeEvent::UserPromptSubmit) if blocked => Decision::Erase,
            (None, ClaudeEvent::PreToolUse | ClaudeEvent::PermissionRequest) if blocked => Decision::Deny,
            (None, _) => Decision::Continue,
        };
        if let Some(turn) = occasion.turn {
            let name = format!("{}: {label}", self.name).into();
            let mut record = Record::new(occasion.event.point(), name, decision, took);
            record.call = occasion.call.map(|(call, _)| call.clone());
            record.failure = failure.map(Into::into);
            record.outcome = Some(outcome.name().into());
            turn.record(record);
        } else {
            tracing::debug!(hook = %self.name, handler = label, outcome = outcome.name(), ?failure, "handler ran");
        }
        Given { handler: label, answer }
    }

    /// Whether `on_failure = "block"` stands in the configuration of this hook: then it holds for all its handlers.
    fn fails_closed(&self, turn: &Turn) -> bool {
        let own = turn.agent().hooks().iter().find(|entry| entry.name() == &*self.name);
        own.is_some_and(|entry| entry.settings().on_failure == Some(OnFailure::Block))
    }

    pub(super) fn tell(&self, occasion: &Occasion<'_>, message: &str) {
        match occasion.turn {
            Some(turn) => turn.notice(Level::Warning, &self.name, message),
            None => tracing::warn!(hook = %self.name, "{message}"),
        }
    }

    fn input(&self, occasion: &Occasion<'_>) -> Value {
        let mut input = Map::new();
        let mut set = |key: &str, value: Value| input.insert(key.to_owned(), value);
        set("session_id", json!(occasion.session()));
        set("transcript_path", json!(self.transcripts.path(occasion.session())));
        set("cwd", json!(self.project));
        set("hook_event_name", json!(occasion.event.name()));
        set("permission_mode", json!("default"));
        set("turn_id", json!(occasion.turn_id));
        if occasion.is_sub_agent {
            set("agent_id", json!(occasion.conversation));
            set("agent_type", json!(occasion.agent));
            if occasion.event == ClaudeEvent::SubagentStop {
                set("agent_transcript_path", json!(self.transcripts.path(occasion.conversation)));
            }
        }
        if let Value::Object(more) = &occasion.more {
            input.extend(more.clone());
        }
        Value::Object(input)
    }

    /// A transcript that cannot be written is told; handlers that need it say so themselves.
    async fn write_transcript(&self, occasion: &Occasion<'_>) {
        let Some(turn) = occasion.turn else { return };
        let (lines, transcripts) = (transcript::lines(turn), self.transcripts.clone());
        let id = occasion.conversation.to_owned();
        let written = tokio::task::spawn_blocking(move || transcripts.write(&id, &lines)).await;
        let failed = match written {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.tell(occasion, &format!("the transcript could not be written: {failed}"));
    }

    /// Long texts go to files.
    async fn shorten(&self, occasion: &Occasion<'_>, merged: &mut Merged) -> Result<(), BoxError> {
        let mut texts = std::mem::take(&mut merged.context);
        let contexts = texts.len();
        texts.append(&mut merged.blocks);
        let (transcripts, most) = (self.transcripts.clone(), self.dialect.most_text);
        let id = occasion.conversation.to_owned();
        let shorten = move || -> Vec<String> {
            let short = |text: &String| short(text, most, &transcripts.project, &transcripts.text_file(&id));
            texts.iter().map(short).collect()
        };
        let mut texts = tokio::task::spawn_blocking(shorten).await?;
        merged.blocks = texts.split_off(contexts);
        merged.context = texts;
        let cut = |text: &mut String| *text = super::text::plain(text).chars().take(most).collect();
        merged.messages.iter_mut().for_each(cut);
        merged.stop.iter_mut().for_each(cut);
        merged.permission.iter_mut().for_each(|(_, reason)| cut(reason));
        Ok(())
    }
}

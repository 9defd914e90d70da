//! An event that is tried: its handlers run, and what each said and what follows from all of it is explained.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Map, Value};
use turnbuckle::BoxError;
use turnbuckle::id::CallId;

use super::ClaudeHooks;
use super::answer::{Answer, Outcome, Permission};
use super::bridge;
use super::event::ClaudeEvent;
use super::fire::{Audience, Occasion, Unreadable};
use super::handler::Waiting;
use super::merge::{Given, Merged, merge};
use super::patched::{files_of, limit_allowed, within_limit};

/// Conversation, turn, agent and call of an event that is tried, unless it names others.
const TRIAL: &str = "hooks-test";

/// What came of an event.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The handlers that matched, in the order in which they are merged.
    pub runs: Vec<TrialRun>,
    /// What they say together, in sentences.
    pub verdict: Vec<String>,
}

/// What one handler did.
#[derive(Clone, Debug)]
pub struct TrialRun {
    /// What it does.
    pub handler: String,
    /// The file that it stands in.
    pub file: PathBuf,
    /// `ok`, `blocked`, and so on: as records have it.
    pub outcome: &'static str,
    /// How long it took.
    pub took: Duration,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// What it said, in sentences.
    pub said: Vec<String>,
}

impl ClaudeHooks {
    /// Runs the handlers of `event` that match `payload`, which is what they read on stdin, and explains what follows. Nothing is
    /// decided by it. What `payload` lacks of the common fields is added.
    pub async fn try_event(&self, event: ClaudeEvent, payload: Map<String, Value>) -> Result<Trial, BoxError> {
        let adapter = &self.adapter;
        let text = |key: &str| payload.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let subject = event.subject().map(text).unwrap_or_default();
        let (id, input) = (CallId::from(TRIAL), payload.get("tool_input").cloned().unwrap_or_default());
        let occasion = Occasion {
            event,
            conversation: TRIAL,
            turn_id: TRIAL,
            agent: TRIAL,
            is_sub_agent: false,
            audience: Audience::Nobody,
            subject: &subject,
            call: event.is_about_a_tool().then_some((&id, &input)),
            files: match event.is_about_a_tool() {
                true => files_of(&subject, &input, &adapter.project),
                false => Vec::new(),
            },
            more: Value::Object(payload.clone()),
        };
        let stdin = adapter.inputs(&occasion)?;
        adapter.write_transcript(&occasion).await;
        let (matching, unreadable) = adapter.matching(&occasion);
        let (matching, beyond) = within_limit(matching);
        let timed = matching.iter().map(|(handler, file)| async {
            let began = Instant::now();
            (adapter.run(handler, &occasion, stdin.of(*file)).await, began.elapsed())
        });
        let (mut runs, mut given) = (Vec::new(), Vec::new());
        for Unreadable { handler, why } in &unreadable {
            let said = match event.can_block() {
                true => "it does not run, and what it could have been for is blocked",
                false => "it does not run",
            };
            runs.push(TrialRun {
                handler: handler.action.to_string(),
                file: handler.file.clone(),
                outcome: "unreadable_matcher",
                took: Duration::ZERO,
                failure: Some((*why).to_owned()),
                said: vec![said.to_owned()],
            });
        }
        given.extend(unreadable.iter().map(Unreadable::given).chain(beyond).map(|given| (None, given)));
        for ((handler, file), (reading, took)) in matching.iter().zip(join_all(timed).await) {
            let reading = reading?;
            let label = handler.action.to_string();
            let mut answer = adapter.settled(&occasion, handler, &reading);
            let view = file.and_then(|file| occasion.files.get(file));
            if let Some(view) = view {
                view.limit(event, &mut answer);
            }
            let mut said: Vec<String> =
                view.map(|view| format!("for {} {}", view.name, view.input)).into_iter().collect();
            said.extend(sentences(&reading.answer));
            if reading.failure.is_some() {
                said.push(match adapter.failure_blocks(&occasion, handler) {
                    true => "its failure blocks".to_owned(),
                    false => "its failure is ignored: the turn goes on without it".to_owned(),
                });
                if reading.stderr.lines().count() > 1 {
                    said.push(format!("stderr ended with\n{}", reading.stderr));
                }
            }
            if reading.outcome == Outcome::BlockedSuspect {
                said.push("it looks as if its program could not be run: is the path right?".to_owned());
            }
            match handler.waiting {
                Waiting::ForIt => given.push((*file, Given { handler: label.clone(), answer })),
                _ => said.push("nothing waits for it, so it decides nothing".to_owned()),
            }
            let (outcome, failure) = (reading.outcome.name(), reading.failure);
            runs.push(TrialRun { handler: label, file: handler.file.clone(), outcome, took, failure, said });
        }
        // Nothing of a trial is kept.
        let transcripts = adapter.transcripts.clone();
        tokio::task::spawn_blocking(move || transcripts.remove(TRIAL)).await??;
        limit_allowed(&mut given, occasion.files.len());
        let mut merged = merge(given.into_iter().map(|(_, given)| given).collect());
        if let Some(given) = merged.updated_output.take() {
            // As at the end of a call: the event says what the tool's own result was.
            match bridge::text_of_response(&subject, &given) {
                _ if payload.get("tool_response") == Some(&given) => {}
                Some(_) => merged.updated_output = Some(given),
                None => merged.messages.push(bridge::NOT_ITS_SHAPE.to_owned()),
            }
        }
        Ok(Trial { runs, verdict: verdict(event, &merged) })
    }
}

fn because(reason: Option<&String>) -> String {
    reason.map(|reason| format!(": {}", reason.trim())).unwrap_or_default()
}

fn sentences(answer: &Answer) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(reason) = &answer.stop {
        said.push(format!("ends the turn{}", because(reason.as_ref())));
    }
    if let Some(reason) = &answer.block {
        said.push(format!("blocks{}", because(reason.as_ref())));
    }
    if let Some((permission, reason)) = &answer.permission {
        said.push(format!("{}{}", word(*permission), because(reason.as_ref())));
    }
    said.extend(
        answer.updated_input.as_ref().map(|input| format!("changes the input to {}", Value::Object(input.clone()))),
    );
    said.extend(answer.updated_output.as_ref().map(|output| format!("changes the result to {output}")));
    said.extend(answer.context.as_ref().map(|context| format!("adds for the model: {}", context.trim())));
    said.extend(answer.env.as_ref().map(|lines| format!("sets for later commands: {}", lines.trim())));
    said.extend(answer.message.as_ref().map(|message| format!("tells the user: {message}")));
    said.extend(answer.warnings.iter().cloned());
    said
}

fn word(permission: Permission) -> &'static str {
    match permission {
        Permission::Allow => "allows",
        Permission::Ask => "asks a person",
        Permission::Defer => "defers, which asks a person",
        Permission::Deny => "denies",
    }
}

/// What follows from all of it, and what the user is told.
fn verdict(event: ClaudeEvent, merged: &Merged) -> Vec<String> {
    let mut verdict = decided(event, merged);
    verdict.extend(merged.messages.iter().map(|message| format!("the user is told: {message}")));
    if verdict.is_empty() {
        verdict.push("no decision: everything goes on as without these handlers".to_owned());
    }
    verdict
}

fn decided(event: ClaudeEvent, merged: &Merged) -> Vec<String> {
    let mut verdict = Vec::new();
    let blocked = merged.blocked();
    let denied = merged.permission.as_ref().filter(|(permission, _)| *permission == Permission::Deny);
    let reason = blocked.clone().or_else(|| denied.map(|(_, reason)| reason.clone()));
    let so = because(reason.as_ref());
    match (event, &merged.stop) {
        (event, Some(reason)) if event.can_end_turn() => {
            return vec![format!("the turn ends halted: {reason}")];
        }
        _ if reason.is_none() || !event.can_block() => {}
        (ClaudeEvent::UserPromptSubmit, _) => verdict.push(format!("the message is refused and not kept{so}")),
        (ClaudeEvent::PreToolUse | ClaudeEvent::PermissionRequest, _) => {
            return vec![format!("the call is denied, and the model reads why{so}")];
        }
        (ClaudeEvent::PreCompact, _) => verdict.push(format!("no summary is made{so}")),
        (ClaudeEvent::PostToolBatch, _) => verdict.push(format!("the turn ends before the next call of the model{so}")),
        (ClaudeEvent::Stop | ClaudeEvent::SubagentStop, _) => verdict.push(format!("the model goes on and reads{so}")),
        _ => verdict.push(format!("the reason stands beside the result{so}")),
    }
    if let (true, Some((permission, why))) = (event.is_about_a_tool(), &merged.permission) {
        verdict.push(match permission {
            Permission::Allow => {
                "the call runs without asking, unless a rule of [access] or another hook asks".to_owned()
            }
            _ => format!("a person is asked: {why}"),
        });
    }
    if merged.updated_input.is_some() {
        verdict.push("the call has the changed input".to_owned());
    }
    if merged.updated_output.is_some() {
        verdict.push("the model reads the changed result".to_owned());
    }
    if !merged.env.is_empty() {
        verdict.push("later commands of the shell tool begin with these lines".to_owned());
    }
    if !merged.context.is_empty() {
        verdict.push(match event {
            ClaudeEvent::Stop | ClaudeEvent::SubagentStop => "the model goes on, and reads what was added".to_owned(),
            _ => "the model reads what was added".to_owned(),
        });
    }
    verdict
}

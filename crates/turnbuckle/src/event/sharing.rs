//! Sharing what the events of a log repeat. A live turn's events share names and arguments; read back from a database, each event
//! has copies of its own, and those of the arguments alone can take more memory than what the conversation says. They are made text
//! as well: most of them are those of calls that are over.

use std::sync::Arc;

use serde_json::Value;

use super::{Approvals, Arguments, Event, EventKind, Question};
use crate::call_map::CallMap;
use crate::message::Text;
use crate::scope::Author;

/// How many different names are looked for. A log repeats those of its users, tools and models, which are few.
const NAMES: usize = 16;

/// Makes events that were read back share names and arguments that are the same, and keep arguments as text.
/// Events that others hold as well stay as they are: they were not read back.
pub(crate) fn share_repeated(log: &mut [Arc<Event>]) {
    let mut names = Names::default();
    let mut arguments_of: CallMap<Asked> = CallMap::default();
    for event in log.iter_mut().filter_map(Arc::get_mut) {
        match &mut event.kind {
            EventKind::UserMessage { by, .. } => names.share_author(by),
            EventKind::Injection { hook, .. } => names.share(hook),
            EventKind::AssistantMessage { model: Some(model), .. } => names.share(model),
            EventKind::ToolCall { call, name, arguments, .. } => {
                names.share(name);
                let value = arguments.value();
                *arguments = arguments.compact();
                arguments_of.insert(call.clone(), Asked { value, kept: arguments.clone() });
            }
            EventKind::ToolStarted { call, arguments, approvals, .. } => {
                *arguments = match arguments_of.get(call).filter(|asked| *arguments == *asked.value) {
                    Some(asked) => asked.kept.clone(),
                    None => arguments.compact(),
                };
                if let Some(Approvals { last, all, rule }) = approvals.as_deref_mut() {
                    last.iter_mut().chain(all).for_each(|by| names.share_author(by));
                    rule.iter_mut().for_each(|rule| names.share(rule));
                }
            }
            EventKind::Suspension { call, question, .. } => {
                if let Question::Approval { arguments, .. } | Question::ClientExec { arguments, .. } = &mut **question
                    && let Some(asked) = arguments_of.get(call).filter(|asked| asked.value == *arguments)
                {
                    *arguments = asked.value.clone();
                }
            }
            EventKind::Resolution { by, .. } => names.share_author(by),
            EventKind::ToolResult { call, .. } => drop(arguments_of.remove(call)),
            EventKind::AssistantMessage { .. } | EventKind::StopFeedback { .. } | EventKind::TurnEnded(_) => {}
        }
    }
}

/// What the model asked for in a call.
struct Asked {
    /// Until the result comes: what is compared with it, and what a question shows.
    value: Arc<Value>,
    /// What the event keeps.
    kept: Arguments,
}

/// The names that were seen first.
#[derive(Default)]
struct Names(Vec<Text>);

impl Names {
    fn share(&mut self, name: &mut Text) {
        match self.0.iter().find(|known| *known == name) {
            Some(known) => *name = known.clone(),
            None if self.0.len() < NAMES => self.0.push(name.clone()),
            None => {}
        }
    }

    fn share_author(&mut self, by: &mut Author) {
        if let Author::User(name) | Author::Hook(name) = by {
            self.share(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Executor;
    use serde_json::json;

    #[test]
    fn events_that_were_read_back_share_what_they_repeat() {
        let arguments = || Arguments::from(json!({ "path": "a" }));
        let call = || EventKind::ToolCall {
            call: "c".into(),
            name: "read".into(),
            arguments: arguments(),
            executor: Executor::Server,
        };
        let started = |arguments| EventKind::ToolStarted {
            call: "c".into(),
            arguments,
            digest: Text::from("d").into(),
            approvals: None,
        };
        let kinds = [call(), started(arguments()), started(json!({ "path": "b" }).into()), call()];
        let event = |kind| Arc::new(Event { seq: 1, turn: "t".into(), at: Default::default(), kind });
        let mut log: Vec<_> = kinds.into_iter().map(event).collect();
        let before: Vec<_> = log.iter().map(|event| (**event).clone()).collect();
        share_repeated(&mut log);
        assert!(log.iter().zip(&before).all(|(now, before)| **now == *before), "nothing says anything else");
        let of = |place: usize| match &log[place].kind {
            EventKind::ToolCall { arguments, .. } | EventKind::ToolStarted { arguments, .. } => arguments.clone(),
            _ => unreachable!(),
        };
        assert!(of(0).is_shared_with(&of(1)));
        let name = |place: usize| match &log[place].kind {
            EventKind::ToolCall { name, .. } => name.clone(),
            _ => unreachable!(),
        };
        assert!(Arc::ptr_eq(&name(0), &name(3)));
    }
}

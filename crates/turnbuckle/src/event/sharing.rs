//! Sharing what the events of a log repeat. A live turn's events share names and arguments; read back from a database, each event
//! has copies of its own, and those of the arguments alone can take more memory than what the conversation says.

use std::sync::Arc;

use serde_json::Value;

use super::{Event, EventKind, Question};
use crate::call_map::CallMap;
use crate::message::Text;
use crate::scope::Author;

/// How many different names are looked for. A log repeats those of its users, tools and models, which are few.
const NAMES: usize = 16;

/// Makes events that were read back share names and arguments that are the same. Events that others hold as well stay as they
/// are: they were not read back.
pub(crate) fn share_repeated(log: &mut [Arc<Event>]) {
    let mut names = Names::default();
    let mut arguments_of: CallMap<Arc<Value>> = CallMap::default();
    for event in log.iter_mut().filter_map(Arc::get_mut) {
        match &mut event.kind {
            EventKind::UserMessage { by, .. } => names.share_author(by),
            EventKind::Injection { hook, .. } => names.share(hook),
            EventKind::AssistantMessage { model: Some(model), .. } => names.share(model),
            EventKind::ToolCall { call, name, arguments, .. } => {
                names.share(name);
                arguments_of.insert(call.clone(), arguments.clone());
            }
            EventKind::ToolStarted { call, arguments, approved_by, approvals, rule, .. } => {
                share_value(arguments, arguments_of.get(call));
                approved_by.iter_mut().chain(approvals).for_each(|by| names.share_author(by));
                rule.iter_mut().for_each(|rule| names.share(rule));
            }
            EventKind::Suspension { call, question, .. } => {
                if let Question::Approval { arguments, .. } | Question::ClientExec { arguments, .. } = &mut **question {
                    share_value(arguments, arguments_of.get(call));
                }
            }
            EventKind::Resolution { by, .. } => names.share_author(by),
            EventKind::ToolResult { call, .. } => drop(arguments_of.remove(call)),
            EventKind::AssistantMessage { .. } | EventKind::StopFeedback { .. } | EventKind::TurnEnded(_) => {}
        }
    }
}

fn share_value(value: &mut Arc<Value>, known: Option<&Arc<Value>>) {
    if let Some(known) = known.filter(|known| *known == value) {
        *value = known.clone();
    }
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
        let arguments = || Arc::new(json!({ "path": "a" }));
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
            approved_by: None,
            approvals: Vec::new(),
            rule: None,
        };
        let kinds = [call(), started(arguments()), started(Arc::new(json!({ "path": "b" }))), call()];
        let event = |kind| Arc::new(Event { seq: 1, turn: "t".into(), at: Default::default(), kind });
        let mut log: Vec<_> = kinds.into_iter().map(event).collect();
        let before: Vec<_> = log.iter().map(|event| (**event).clone()).collect();
        share_repeated(&mut log);
        assert!(log.iter().zip(&before).all(|(now, before)| **now == *before), "nothing says anything else");
        let of = |place: usize| match &log[place].kind {
            EventKind::ToolCall { arguments, .. } | EventKind::ToolStarted { arguments, .. } => arguments.clone(),
            _ => unreachable!(),
        };
        assert!(Arc::ptr_eq(&of(0), &of(1)));
        let name = |place: usize| match &log[place].kind {
            EventKind::ToolCall { name, .. } => name.clone(),
            _ => unreachable!(),
        };
        assert!(Arc::ptr_eq(&name(0), &name(3)));
    }
}

//! How a turn ended, as the log has it.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{Cause, Outcome, is_nothing};
use crate::message::{Text, Usage};
use crate::scope::Author;

/// The end of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnEnded {
    /// How it came out.
    pub outcome: Outcome,
    /// What more there is to say; `None` for most turns, which simply complete. See [`EndDetails::boxed`].
    #[serde(flatten, with = "fields")]
    pub details: Option<Box<EndDetails>>,
    /// Attempts that reached a model.
    pub model_calls: u32,
    /// Over all attempts.
    pub usage: Usage,
    /// Dollars, over all attempts of models with a known price.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub cost: f64,
    /// Time the turn was at work, waiting left out.
    pub ms: u64,
    /// The name of the agent whose turn it was. `None` if an older program ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Text>,
}

impl TurnEnded {
    /// Why it did not simply complete, for people.
    pub fn reason(&self) -> Option<&Text> {
        self.details.as_ref()?.reason.as_ref()
    }

    /// Why it did not simply complete, for programs.
    pub fn cause(&self) -> Option<&Cause> {
        self.details.as_ref()?.cause.as_ref()
    }

    /// Who ended it, if not the model.
    pub fn by(&self) -> Option<&Author> {
        self.details.as_ref()?.by.as_ref()
    }

    /// The result shown, if an `after_agent` hook changed it.
    pub fn result(&self) -> Option<&Arc<Value>> {
        self.details.as_ref()?.result.as_ref()
    }

    /// What went wrong without ending the turn.
    pub fn warnings(&self) -> &[Warning] {
        self.details.as_ref().map_or(&[], |details| &details.warnings)
    }
}

/// What there is to say of an end of a turn beyond its outcome. Its fields stand among those of the event in JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndDetails {
    /// Why the turn did not simply complete, for people.
    pub reason: Option<Text>,
    /// Why it did not simply complete, for programs.
    #[serde(default)]
    pub cause: Option<Cause>,
    /// Who ended it, if not the model.
    pub by: Option<Author>,
    /// The result shown, if an `after_agent` hook changed it.
    pub result: Option<Arc<Value>>,
    /// What went wrong without ending the turn.
    pub warnings: Vec<Warning>,
}

impl EndDetails {
    /// In a box, if there is anything to say.
    pub fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

/// Something that people should know about a turn that went on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// The hook it is about.
    pub hook: Option<Text>,
    /// What happened, for people.
    pub text: Text,
    /// What happened, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// All fields of the details are there in any case, except that older logs have no `cause`.
mod fields {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        details: &Option<Box<EndDetails>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match details {
            Some(details) => details.serialize(serializer),
            None => EndDetails::default().serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<EndDetails>>, D::Error> {
        EndDetails::deserialize(deserializer).map(EndDetails::boxed)
    }
}

#[cfg(test)]
mod tests {
    use crate::event::EventKind;

    #[test]
    fn the_details_of_an_end_stand_among_the_fields_of_the_event() {
        let usage = r#""usage":{"input":1,"output":2,"cache_read":0,"cache_write":0}"#;
        for (details, is_there) in [
            (r#""reason":null,"cause":null,"by":null,"result":null,"warnings":[]"#, false),
            (
                r#""reason":"r","cause":{"kind":"limit","limit":"l"},"by":{"user":"ann"},"result":{"n":1},"warnings":[{"hook":null,"text":"w"}]"#,
                true,
            ),
            (r#""reason":null,"cause":null,"by":null,"result":null,"warnings":[{"hook":"h","text":"w"}]"#, true),
        ] {
            let json = format!(
                r#"{{"type":"turn_ended","outcome":"completed",{details},"model_calls":2,{usage},"cost":0.5,"ms":12}}"#
            );
            let kind: EventKind = serde_json::from_str(&json).unwrap();
            assert!(matches!(&kind, EventKind::TurnEnded(ended) if ended.details.is_some() == is_there));
            assert_eq!(serde_json::to_string(&kind).unwrap(), json);
        }
    }

    #[test]
    fn an_end_without_a_cause_is_from_an_older_version_and_can_be_read() {
        let json = r#"{"type":"turn_ended","outcome":"failed","reason":"r","by":null,"result":null,"warnings":[],"model_calls":2,"usage":{},"ms":12}"#;
        let EventKind::TurnEnded(ended) = serde_json::from_str(json).unwrap() else { unreachable!() };
        assert_eq!((ended.reason().map(|reason| &**reason), ended.cause()), (Some("r"), None));
    }
}

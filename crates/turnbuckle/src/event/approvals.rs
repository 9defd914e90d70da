//! Whose approvals let a call run, as the log has them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::message::Text;
use crate::scope::Author;

/// Whose approvals let a call run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approvals {
    /// The last one that was needed.
    #[serde(rename = "approved_by")]
    pub last: Option<Author>,
    /// Everyone who approved the call itself.
    #[serde(default, rename = "approvals", skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<Author>,
    /// The rule that let it run without a question, as the acting user gave it ([`AllowCalls`](crate::tool::AllowCalls)): then
    /// `last` is who gave the rule, and nobody saw this call before it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Text>,
}

impl Approvals {
    /// In a box, if there are any: most calls need none, and every event of a log would have room for them.
    pub fn boxed(self) -> Option<Box<Self>> {
        (!self.is_empty()).then(|| Box::new(self))
    }

    /// Whether nobody approved anything.
    pub fn is_empty(&self) -> bool {
        self.last.is_none() && self.all.is_empty() && self.rule.is_none()
    }
}

/// Their fields stand among those of the event, and `approved_by` is there in any case.
pub(super) mod fields {
    use super::*;

    pub(in crate::event) fn serialize<S: Serializer>(
        approvals: &Option<Box<Approvals>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match approvals {
            Some(approvals) => approvals.serialize(serializer),
            None => Approvals::default().serialize(serializer),
        }
    }

    pub(in crate::event) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Box<Approvals>>, D::Error> {
        Approvals::deserialize(deserializer).map(Approvals::boxed)
    }
}

#[cfg(test)]
mod tests {
    use crate::event::EventKind;

    #[test]
    fn their_fields_stand_among_those_of_the_event() {
        for (json, is_there) in [
            (r#"{"type":"tool_started","call":"c","arguments":{},"digest":"d","approved_by":null}"#, false),
            (r#"{"type":"tool_started","call":"c","arguments":{},"digest":"d","approved_by":{"user":"ann"}}"#, true),
            (
                r#"{"type":"tool_started","call":"c","arguments":{},"digest":"d","approved_by":{"user":"ann"},"approvals":[{"user":"bob"},{"user":"ann"}],"rule":"shell(ls)"}"#,
                true,
            ),
        ] {
            let kind: EventKind = serde_json::from_str(json).unwrap();
            assert!(matches!(&kind, EventKind::ToolStarted { approvals, .. } if approvals.is_some() == is_there));
            assert_eq!(serde_json::to_string(&kind).unwrap(), json);
        }
    }
}

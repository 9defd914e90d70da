//! What few replies have, as the log has it.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// What few replies have. Its fields stand among those of the event in JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplyExtras {
    /// The object, when a schema was asked for.
    pub object: Option<Arc<Value>>,
    /// What stream transformers put beside the reply: citations, for instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Arc<Value>>,
}

impl ReplyExtras {
    /// In a box, if there are any.
    pub fn boxed(self) -> Option<Box<Self>> {
        (self.object.is_some() || self.annotations.is_some()).then(|| Box::new(self))
    }
}

/// `object` is there in any case.
pub(super) mod fields {
    use super::*;

    pub(in crate::event) fn serialize<S: Serializer>(
        extras: &Option<Box<ReplyExtras>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match extras {
            Some(extras) => extras.serialize(serializer),
            None => ReplyExtras::default().serialize(serializer),
        }
    }

    pub(in crate::event) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Box<ReplyExtras>>, D::Error> {
        ReplyExtras::deserialize(deserializer).map(ReplyExtras::boxed)
    }
}

#[cfg(test)]
mod tests {
    use crate::event::EventKind;

    #[test]
    fn the_extras_of_a_reply_stand_among_the_fields_of_the_event() {
        for (fields, is_there) in [
            (r#""cost":0.25,"object":null,"model":"m""#, false),
            (r#""object":{"n":1}"#, true),
            (r#""object":null,"annotations":{"a":[1]},"model":"m""#, true),
        ] {
            let json = format!(
                r#"{{"type":"assistant_message","attempt":1,"content":[{{"type":"text","text":"t"}}],"stop_reason":"end","usage":{{"input":1,"output":2,"cache_read":0,"cache_write":0}},{fields}}}"#
            );
            let kind: EventKind = serde_json::from_str(&json).unwrap();
            assert!(matches!(&kind, EventKind::AssistantMessage { extras, .. } if extras.is_some() == is_there));
            assert_eq!(serde_json::to_string(&kind).unwrap(), json);
        }
    }
}

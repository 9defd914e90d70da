//! JSON in what a model answered. The answer is untrusted until it has been parsed and checked.

use serde::de::DeserializeOwned;
use turnbuckle::message::StopReason;
use turnbuckle::model::ModelError;
use turnbuckle::{Reply, Turn};

use crate::auxiliary_model::AuxiliaryModel;

const TRY_AGAIN: &str = "\n\nYour last answer could not be read. Answer with the JSON object alone.";

/// Why a model gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("it could not be asked: {0}")]
    Failed(#[from] ModelError),
    #[error("it refused to answer")]
    Refused,
    #[error("its answer has no {open}…{close} in it: {start:?}")]
    Missing { open: char, close: char, start: String },
    #[error("its answer cannot be read: {error}, in {start:?}")]
    Unreadable { error: serde_json::Error, start: String },
    #[error("its answer is incomplete: {0}")]
    Incomplete(&'static str),
}

/// The JSON between the first `open` and the last `close`, whatever text or code fence stands around it.
pub(crate) fn json<T: DeserializeOwned>(answer: &str, open: char, close: char) -> Result<T, NoAnswer> {
    let start = || answer.trim().chars().take(100).collect::<String>();
    let found = answer.find(open).zip(answer.rfind(close)).and_then(|(from, to)| answer.get(from..=to));
    let json = found.ok_or_else(|| NoAnswer::Missing { open, close, start: start() })?;
    serde_json::from_str(json).map_err(|error| NoAnswer::Unreadable { error, start: start() })
}

/// Asks for a JSON object. An unreadable answer, a refusal and a model error get one more try. Also returns the tokens
/// that both tries used.
pub(crate) async fn ask_for_object<T: DeserializeOwned>(
    model: &AuxiliaryModel,
    turn: &Turn,
    system: &str,
    question: &str,
) -> (Result<T, NoAnswer>, u64) {
    let (first, tokens) = ask_once(model, turn, system, question).await;
    match first {
        Ok(object) => (Ok(object), tokens),
        Err(NoAnswer::Failed(error @ (ModelError::Cancelled | ModelError::Exhausted { .. }))) => {
            (Err(error.into()), tokens)
        }
        Err(_) => {
            let (second, more) = ask_once(model, turn, system, &format!("{question}{TRY_AGAIN}")).await;
            (second, tokens.saturating_add(more))
        }
    }
}

async fn ask_once<T: DeserializeOwned>(
    model: &AuxiliaryModel,
    turn: &Turn,
    system: &str,
    question: &str,
) -> (Result<T, NoAnswer>, u64) {
    match model.ask(turn, system, question).await {
        Ok(reply) => (object_in(&reply), reply.usage.total()),
        Err(error) => (Err(error.into()), 0),
    }
}

fn object_in<T: DeserializeOwned>(reply: &Reply) -> Result<T, NoAnswer> {
    if reply.stop_reason == StopReason::Refusal {
        return Err(NoAnswer::Refused);
    }
    json(&reply.content.text(), '{', '}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_found_in_a_fence_and_between_words() {
        for answer in ["[1, 2]", "```json\n[1, 2]\n```", "Sure: ```JSON\n[1, 2]``` Enough?"] {
            assert_eq!(json::<Vec<u32>>(answer, '[', ']').ok(), Some(vec![1, 2]), "{answer}");
        }
        for answer in ["", "[", "] [", "none", "[1, x]"] {
            assert!(json::<Vec<u32>>(answer, '[', ']').is_err(), "{answer}");
        }
    }
}

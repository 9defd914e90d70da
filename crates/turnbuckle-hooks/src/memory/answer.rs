//! What a model answered: hostile until it is checked.

use serde::de::DeserializeOwned;
use turnbuckle::BoxError;

/// The longest memory, in bytes. One sentence.
pub(super) const LONGEST: usize = 500;

/// The JSON in an answer, whatever a model wrote around it.
pub(super) fn json<T: DeserializeOwned>(answer: &str, open: char, close: char) -> Result<T, BoxError> {
    let (Some(from), Some(to)) = (answer.find(open), answer.rfind(close)) else {
        return Err(format!("the model's answer has no {open}…{close} in it").into());
    };
    let json = answer.get(from..=to).unwrap_or_default();
    serde_json::from_str(json).map_err(|error| format!("the model's answer cannot be read: {error}").into())
}

/// One line of plain text; nothing if there is nothing in it or too much.
pub(super) fn sentence(text: &str) -> Option<String> {
    let plain: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    (!line.is_empty() && line.len() <= LONGEST).then_some(line)
}

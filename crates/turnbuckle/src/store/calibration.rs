//! What was learned about the estimates of tokens.

use serde::{Deserialize, Serialize};

use crate::cut::Factor;
use crate::message::Text;

/// What the tokens of a model come to, compared with the estimates. Conversations do not read it again and again: each keeps the
/// factor of its last cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    /// The model's name, as replies have it.
    pub model: Text,
    /// What estimates are multiplied by.
    pub factor: Factor,
}

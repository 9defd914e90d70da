//! What a conversation may be called.

use crate::message::Text;

/// The longest title, in characters.
const MAX_TITLE: usize = 100;

/// A text as a title: control characters and line ends become spaces, and 100 characters are kept. `None` for a text without any
/// letter or digit, which is no title.
pub(crate) fn plain_title(text: &str) -> Option<Text> {
    let plain = text.replace(char::is_control, " ");
    let plain: String = plain.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_TITLE).collect();
    plain.chars().any(char::is_alphanumeric).then(|| plain.into())
}

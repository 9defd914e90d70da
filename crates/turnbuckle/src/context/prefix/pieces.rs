//! The pieces that messages consist of, with their hashes, bytes and tokens.

use serde_json::Value;
use twox_hash::XxHash3_64;

use crate::context::tokens;
use crate::message::{File, Image, Message, Part, Text, Thought};

/// A piece of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) hash: u64,
    pub(super) bytes: u32,
    pub(super) tokens: u32,
}

/// What is done with the pieces of a message.
pub(super) trait PieceSink<'m> {
    /// The next piece, if this text is known to be what it was.
    fn known(&mut self, text: &Text) -> Option<Piece>;

    /// Takes the next piece, with its text where it has one text.
    fn add(&mut self, piece: Piece, text: Option<&'m str>);
}

impl<'m> PieceSink<'m> for Vec<(Piece, Option<&'m str>)> {
    fn known(&mut self, _: &Text) -> Option<Piece> {
        None
    }

    fn add(&mut self, piece: Piece, text: Option<&'m str>) {
        self.push((piece, text));
    }
}

pub(super) fn hash(text: &str) -> u64 {
    XxHash3_64::oneshot(text.as_bytes())
}

/// One round of a multiplicative hash: the order of pieces matters.
pub(super) fn mix(before: u64, piece: u64) -> u64 {
    (before.rotate_left(23) ^ piece).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

pub(super) fn pieces_in(message: &Message) -> usize {
    let calls = match message {
        Message::Assistant { calls, .. } => calls.len(),
        _ => 0,
    };
    1 + message.content().parts().len() + calls
}

/// Gives the pieces of a message to `sink`.
pub(super) fn pieces_of<'m>(message: &'m Message, sink: &mut impl PieceSink<'m>) {
    let (head, bytes) = match message {
        Message::User(_) => (1, 0),
        Message::Note(_) => (2, 0),
        Message::Assistant { .. } => (3, 0),
        Message::Result { call, name, ok, .. } => {
            (mix(mix(4 + u64::from(*ok), hash(call.as_str())), hash(name)), call.as_str().len() + name.len())
        }
    };
    sink.add(piece(head, bytes, tokens::FRAME), None);
    for part in message.content().parts() {
        if let Part::Text { text } = part {
            let known = sink.known(text);
            sink.add(known.unwrap_or_else(|| piece(hash(text), text.len(), tokens::of_text(text))), Some(text));
            continue;
        }
        let (hash, bytes, text) = of_part(part);
        sink.add(piece(hash, bytes, tokens::of_part(part)), text);
    }
    if let Message::Assistant { calls, .. } = message {
        for call in calls {
            let (arguments, bytes) = of_json(&call.arguments);
            let hash = mix(mix(hash(call.call.as_str()), hash(&call.name)), arguments);
            sink.add(piece(hash, call.call.as_str().len() + call.name.len() + bytes, tokens::of_call(call)), None);
        }
    }
}

fn piece(hash: u64, bytes: usize, tokens: u64) -> Piece {
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Piece { hash, bytes: small(bytes as u64), tokens: small(tokens) }
}

fn of_part(part: &Part) -> (u64, usize, Option<&str>) {
    let joined = |kind: u64, texts: &[Option<&str>]| {
        let texts = texts.iter().map(|text| text.unwrap_or_default());
        texts.fold((kind, 0), |(before, bytes), text| (mix(before, hash(text)), bytes + text.len()))
    };
    match part {
        Part::Text { text } => (hash(text), text.len(), Some(text)),
        Part::Thinking(thought) => {
            let Thought { text, signature } = &**thought;
            let (hash, bytes) = joined(1, &[Some(text), signature.as_deref()]);
            (hash, bytes, Some(text))
        }
        Part::Image(image) => {
            let Image { media_type, data, url } = &**image;
            let (hash, bytes) = joined(2, &[Some(media_type), data.as_deref(), url.as_deref()]);
            (hash, bytes, None)
        }
        Part::File(file) => {
            let File { media_type, name, data, url } = &**file;
            let (hash, bytes) = joined(3, &[Some(media_type), name.as_deref(), data.as_deref(), url.as_deref()]);
            (hash, bytes, None)
        }
        Part::Provider(own) => {
            let (block, bytes) = of_json(&own.block);
            (mix(hash(&own.provider), block), own.provider.len() + bytes, None)
        }
    }
}

/// The hash of a JSON value and about how many bytes it takes, without writing it out.
fn of_json(value: &Value) -> (u64, usize) {
    match value {
        Value::Null => (1, 4),
        Value::Bool(yes) => (2 + u64::from(*yes), 5),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(whole), _) => (mix(4, whole), digits(whole)),
            (None, Some(negative)) => (mix(5, negative.cast_unsigned()), 1 + digits(negative.unsigned_abs())),
            (None, None) => {
                let bits = number.as_f64().unwrap_or_default().to_bits();
                (mix(6, bits), 8)
            }
        },
        Value::String(text) => (mix(7, hash(text)), text.len() + 2),
        Value::Array(items) => items.iter().fold((8, 2), |(before, bytes), item| {
            let (hash, more) = of_json(item);
            (mix(before, hash), bytes + more + 1)
        }),
        Value::Object(fields) => fields.iter().fold((9, 2), |(before, bytes), (key, item)| {
            let (value, more) = of_json(item);
            (mix(mix(before, hash(key)), value), bytes + key.len() + more + 4)
        }),
    }
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |digits| digits as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conversation that was written by one release is compared by the next one.
    #[test]
    fn the_hashes_never_change() {
        let message = Message::Result { call: "c1".into(), name: "read".into(), ok: true, content: "text".into() };
        let mut pieces = Vec::new();
        pieces_of(&message, &mut pieces);
        let mark = pieces.iter().fold(0, |mark, (piece, _)| mix(mark, piece.hash));
        let (json, _) = of_json(&serde_json::json!({"a": [1, -2, 0.5, true, null, "x"]}));
        expect_test::expect![[r#"
            [
                17582700839727481537,
                7956179953648046802,
                361227375291456973,
            ]
        "#]]
        .assert_debug_eq(&[mark, json, hash("You are careful.")]);
    }
}

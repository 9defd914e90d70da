//! Token counts, estimated: from the kinds of characters in a text and of those before them.
//!
//! One token for every four bytes is right for English prose and wrong by half for numbers, base64 and logs. Here each byte
//! belongs to one of sixteen classes, and each pair of neighbouring classes has a weight: a lower-case letter behind another one
//! adds little, a digit behind a letter begins a new token. The weights were fitted to the counts of a public tokenizer over
//! prose, code, JSON, logs and texts in fifteen languages; `docs/context.md` has the error of each kind. Other tokenizers count
//! differently, and that is what [`Factor`](crate::cut::Factor) corrects.

use crate::event::{Event, EventKind};
use crate::message::{Content, Message, Part, ToolCall};
use crate::model::Definition;

/// What a picture or a document is taken to cost.
const ATTACHMENT: u64 = 1500;
/// What a message costs beyond its words.
pub(crate) const FRAME: u64 = 4;
/// Weights are in units of this part of a token.
const UNIT: u64 = 256;

/// Tokens of a text.
pub fn of_text(text: &str) -> u64 {
    units(text).div_ceil(UNIT)
}

/// Tokens of a text, in [`UNIT`]s.
fn units(text: &str) -> u64 {
    let mut before = usize::from(LINE);
    let mut sum = 0_u64;
    for byte in text.bytes() {
        let class = usize::from(CLASS[usize::from(byte)]);
        sum += u64::from(WEIGHT[before][class]);
        before = class;
    }
    sum
}

/// The class of line ends and tabs: a text begins as if it stood behind one.
const LINE: u8 = 4;

/// The class of each byte.
static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = class(byte as u8);
        byte += 1;
    }
    classes
}

const fn class(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' => 0,
        b'A'..=b'Z' => 1,
        b'0'..=b'9' => 2,
        b' ' => 3,
        b'\n' | b'\r' | b'\t' => LINE,
        b'_' | b'-' | b'.' | b',' | b'/' | b':' => 5,
        0..=0x7f => 6,
        // The later bytes of a character.
        0x80..=0xbf => 7,
        // The first byte says which script it is: Latin with accents; Greek and Cyrillic; Hebrew and Arabic; Indian scripts and
        // Thai; punctuation and symbols; Chinese and Japanese; Korean; emoji.
        0xc0..=0xcb => 8,
        0xcc..=0xd4 => 9,
        0xd5..=0xdf => 10,
        0xe0..=0xe1 => 11,
        0xe2 => 12,
        0xea..=0xed => 14,
        0xe3..=0xef => 13,
        0xf0..=0xff => 15,
    }
}

/// What a byte adds, by the class of the byte before it and its own.
#[rustfmt::skip]
static WEIGHT: [[u16; 16]; 16] = [
    [54, 143, 253, 0, 109, 29, 43, 64, 203, 67, 65, 64, 148, 82, 66, 64],
    [111, 74, 278, 89, 267, 45, 244, 64, 63, 64, 67, 64, 67, 0, 65, 64],
    [234, 755, 82, 96, 51, 104, 321, 64, 62, 67, 64, 64, 62, 50, 75, 64],
    [75, 37, 501, 3, 110, 271, 78, 64, 75, 477, 72, 0, 246, 202, 57, 211],
    [61, 179, 2, 180, 28, 50, 87, 64, 25, 515, 130, 67, 59, 70, 107, 66],
    [172, 0, 361, 176, 125, 4, 212, 64, 65, 98, 71, 65, 66, 89, 65, 64],
    [235, 219, 165, 169, 101, 95, 4, 64, 62, 164, 85, 174, 110, 150, 87, 151],
    [0, 25, 66, 48, 370, 236, 542, 11, 82, 0, 0, 99, 0, 66, 63, 162],
    [64, 64, 64, 64, 64, 64, 64, 187, 64, 64, 64, 64, 64, 64, 64, 64],
    [64, 64, 64, 64, 64, 64, 64, 0, 64, 64, 64, 64, 64, 64, 64, 64],
    [64, 64, 64, 64, 64, 64, 64, 71, 64, 64, 64, 64, 64, 64, 64, 64],
    [64, 64, 64, 64, 64, 64, 64, 0, 64, 64, 64, 64, 64, 64, 64, 64],
    [64, 64, 64, 64, 64, 64, 64, 138, 64, 64, 64, 64, 64, 64, 64, 64],
    [64, 64, 64, 64, 64, 64, 64, 111, 64, 64, 64, 64, 64, 64, 64, 64],
    [64, 64, 64, 64, 64, 64, 64, 93, 64, 64, 64, 64, 64, 64, 64, 64],
    [64, 64, 64, 64, 64, 64, 64, 397, 64, 64, 64, 64, 64, 64, 64, 64],
];

/// Tokens of content.
pub fn of_content(content: &Content) -> u64 {
    of_content_by(content, &of_text)
}

fn of_content_by(content: &Content, of_text: &dyn Fn(&str) -> u64) -> u64 {
    content.parts().iter().map(|part| of_part_by(part, of_text)).sum()
}

fn of_part_by(part: &Part, of_text: &dyn Fn(&str) -> u64) -> u64 {
    match part {
        Part::Text { text } => of_text(text),
        Part::Thinking(thought) => of_text(&thought.text),
        Part::Image(_) | Part::File(_) => ATTACHMENT,
        Part::Provider(own) => of_json(&own.block),
    }
}

/// Tokens of one part of a content.
pub(crate) fn of_part(part: &Part) -> u64 {
    of_part_by(part, &of_text)
}

pub(crate) fn of_call(call: &ToolCall) -> u64 {
    of_text(&call.name) + of_json(&call.arguments) + FRAME
}

/// Tokens of a tool as a model is told of it.
pub fn of_definition(tool: &Definition) -> u64 {
    of_text(&tool.name) + of_text(&tool.description) + of_json(&tool.parameters) + FRAME
}

/// Tokens of a tool definition, its texts counted by `of_text`.
pub fn of_definition_by(tool: &Definition, of_text: &dyn Fn(&str) -> u64) -> u64 {
    of_text(&tool.name) + of_text(&tool.description) + of_text(&tool.parameters.to_string()) + FRAME
}

/// Tokens of a JSON value, without writing it out.
pub(crate) fn of_json(value: &serde_json::Value) -> u64 {
    /// What quotes, commas and brackets add, in [`UNIT`]s.
    const SIGN: u64 = 160;
    fn sum(value: &serde_json::Value) -> u64 {
        use serde_json::Value::{Array, Bool, Null, Number, Object, String};
        match value {
            Null | Bool(_) => UNIT,
            // A token for three digits.
            Number(number) => UNIT + u64::from(number.is_f64()) * 2 * UNIT,
            String(text) => units(text) + SIGN,
            Array(items) => items.iter().map(|item| sum(item) + SIGN).sum::<u64>() + SIGN,
            Object(fields) => fields.iter().map(|(key, item)| units(key) + sum(item) + 2 * SIGN).sum::<u64>() + SIGN,
        }
    }
    sum(value).div_ceil(UNIT)
}

/// Tokens of a message.
pub fn of_message(message: &Message) -> u64 {
    of_message_by(message, &of_text)
}

fn of_message_by(message: &Message, of_text: &dyn Fn(&str) -> u64) -> u64 {
    let calls = match message {
        Message::Assistant { calls, .. } => calls.iter().map(of_call).sum(),
        _ => 0,
    };
    of_content_by(message.content(), of_text) + calls + FRAME
}

/// Tokens of messages.
pub fn of_messages(messages: &[Message]) -> u64 {
    messages.iter().map(of_message).sum()
}

/// Tokens of messages, their texts counted by `of_text`.
pub fn of_messages_by(messages: &[Message], of_text: &dyn Fn(&str) -> u64) -> u64 {
    messages.iter().map(|message| of_message_by(message, of_text)).sum()
}

/// Tokens of what an event adds to later contexts.
pub fn of_event(event: &Event) -> u64 {
    match &event.kind {
        EventKind::UserMessage { content, .. } | EventKind::Injection { content, .. } => of_content(content) + FRAME,
        EventKind::AssistantMessage { content, .. } | EventKind::ToolResult { content, .. } => {
            of_content(content) + FRAME
        }
        EventKind::ToolCall { name, arguments, .. } => of_text(name) + arguments.look(of_json) + FRAME,
        EventKind::StopFeedback { refusals } => {
            // With the words that say who refused.
            refusals.iter().map(|refusal| of_text(&refusal.feedback) + of_text(&refusal.hook) + 2 * FRAME).sum()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts with the tokens that o200k, a public tokenizer, makes of them.
    const COUNTED: &[(&str, u64)] = &[
        (
            "The committee will meet on Thursday to decide whether the bridge should be repaired or replaced. Both options have been studied for more than two years, and neither is cheap.",
            33,
        ),
        (
            "pub fn parse(text: &str) -> Result<Vec<Token>, ParseError> {\n    let mut tokens = Vec::new();\n    for (index, line) in text.lines().enumerate() {\n        tokens.push(Token { index, kind: Kind::of(line)? });\n    }\n    Ok(tokens)\n}\n",
            63,
        ),
        (
            "{\"id\":4711,\"name\":\"Ann Example\",\"email\":\"ann@example.com\",\"active\":true,\"tags\":[\"new\",\"paid\"],\"balance\":1042.55,\"address\":{\"city\":\"Graz\",\"zip\":\"8010\"}}",
            47,
        ),
        (
            "委员会将于星期四开会，决定这座桥应该修复还是更换。两种方案都已经研究了两年多，而且都不便宜。如果下雨，会议将在室内举行。",
            44,
        ),
        (
            "委員会は木曜日に会合を開き、橋を修理するか、架け替えるかを決定します。どちらの案も二年以上にわたって検討されてきましたが、安くはありません。",
            54,
        ),
        (
            "위원회는 목요일에 모여 다리를 수리할지 교체할지 결정할 예정입니다. 두 가지 방안 모두 이 년 넘게 검토되었으며 어느 쪽도 저렴하지 않습니다.",
            46,
        ),
        (
            "Комитет соберётся в четверг, чтобы решить, следует ли ремонтировать мост или заменить его. Оба варианта изучались более двух лет, и ни один из них не дешёв.",
            40,
        ),
        (
            "Der Ausschuss trifft sich am Donnerstag, um zu entscheiden, ob die Brücke repariert oder ersetzt werden soll. Beide Möglichkeiten wurden über zwei Jahre lang geprüft, und keine ist günstig.",
            37,
        ),
        (
            "aGVsbG8gd29ybGQsIHRoaXMgaXMgYSB0ZXN0IG9mIGJhc2U2NCBlbmNvZGVkIHRleHQgd2l0aCBubyBtZWFuaW5nIGF0IGFsbC4gUmFuZG9tOiA4c2pkN2ZoMjNrajRoMmszajRoMms0aA==",
            95,
        ),
        ("🎉🚀 shipped! 😀😅 looks good to me 👍🔥 let's celebrate 🍕🍺🎂 and rest 😴", 27),
        (
            "2026-01-31T12:00:00.123Z INFO worker[4711] 10.0.0.17 GET /api/v1/items/8812 200 12.4ms 5123 bytes\n2026-01-31T12:00:00.130Z WARN worker[4712] 10.0.0.18 POST /api/v1/items 429 1.1ms 0 bytes\n",
            96,
        ),
        ("คณะกรรมการจะประชุมกันในวันพฤหัสบดีเพื่อตัดสินใจว่าควรซ่อมแซมหรือเปลี่ยนสะพาน ทั้งสองทางเลือกได้รับการศึกษามากว่าสองปีแล้ว", 52),
    ];

    #[test]
    fn an_estimate_is_at_most_a_tenth_below_and_half_above_what_a_tokenizer_counts() {
        for (text, counted) in COUNTED {
            let percent = of_text(text) * 100 / counted;
            assert!((90..=150).contains(&percent), "{percent} % of {counted}: {text}");
        }
    }

    #[test]
    fn a_json_value_counts_about_like_its_text() {
        let value = serde_json::json!({"path": "src/main.rs", "edits": [{"old": "let a = 1;", "new": "let a = 2;"}], "all": true,
            "limit": 100, "content": "fn main() {\n    let a = \"hello\";\n}\n".repeat(10)});
        let (estimated, text) = (of_json(&value), of_text(&value.to_string()));
        assert!(estimated.abs_diff(text) * 100 / text <= 25, "{estimated} and {text}");
    }
}

//! What a server answers, as the model reads it: fenced, and never longer than a result may be.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, GetPromptResult, ReadResourceResult, ResourceContents};
use turnbuckle::hook::Fence;
use turnbuckle::hooks::ToolAnswer;
use turnbuckle::message::{Content, Image, Part};
use turnbuckle::tool::{MAX_RESULT_BYTES, Output};

use crate::connection::McpError;

/// Images of a result that are kept, and how large each may be.
const MOST_IMAGES: usize = 4;
const MOST_IMAGE: usize = 5 * 1024 * 1024;

/// The most characters of a media type that are repeated.
const MOST_TYPE: usize = 60;

/// The most bytes of an error that the model reads.
const MOST_ERROR: usize = 4 * 1024;

/// The result of a call.
pub(crate) fn of_call(server: &str, answer: CallToolResult, declined: &[String]) -> Output {
    let is_error = answer.is_error.unwrap_or_default();
    let mut texts = Vec::new();
    let mut images = Vec::new();
    for block in answer.content {
        match block {
            ContentBlock::Image(image) if images.len() < MOST_IMAGES && image.data.len() <= MOST_IMAGE => {
                match media_type_of(&image.mime_type, &image.data) {
                    Some(media_type) => {
                        let (media_type, data) = (media_type.into(), Some(image.data.into()));
                        images.push(Part::from(Image { media_type, data, url: None }));
                    }
                    None => texts.push(not_an_image(&image.mime_type, image.data.len())),
                }
            }
            other => texts.push(text_of(other)),
        }
    }
    // Older clients read the text, which is the same; some servers leave it out.
    if let (true, Some(object)) = (texts.is_empty() && images.is_empty(), &answer.structured_content) {
        texts.push(object.to_string());
    }
    texts.extend(asked(declined));
    let content: Content = fenced(server, &texts.join("\n")).into_iter().chain(images).collect();
    if is_error { Output::error(content) } else { Output::ok(content) }
}

/// Images that providers take, and how their files begin.
const IMAGES: [(&str, &[u8]); 4] = [
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/gif", b"GIF8"),
    ("image/webp", b"RIFF"),
];

/// The media type of an image that is one: a provider refuses a request with another, and the image would be part of every later one.
fn media_type_of(said: &str, data: &str) -> Option<&'static str> {
    let said = said.to_ascii_lowercase();
    let said = if said == "image/jpg" { "image/jpeg" } else { &said };
    let (media_type, beginning) = IMAGES.into_iter().find(|(name, _)| *name == said)?;
    let bytes = STANDARD.decode(data).ok()?;
    let is_webp = || bytes.get(8..12) == Some(b"WEBP");
    (bytes.starts_with(beginning) && (media_type != "image/webp" || is_webp())).then_some(media_type)
}

/// In the place of something that says that it is an image.
fn not_an_image(said: &str, length: usize) -> String {
    let said: String = said.chars().take(MOST_TYPE).flat_map(char::escape_default).collect();
    format!(
        "[left out: {length} bytes that the server calls an image of the type \"{said}\", which are none, or not PNG, JPEG, GIF or WebP]"
    )
}

/// The same for a program that reads the text.
pub(crate) fn answer(answer: CallToolResult) -> ToolAnswer {
    let mut texts: Vec<String> = answer.content.into_iter().map(text_of).collect();
    if let (true, Some(object)) = (texts.is_empty(), &answer.structured_content) {
        texts.push(object.to_string());
    }
    ToolAnswer { text: shortened(&texts.join("\n")), is_error: answer.is_error.unwrap_or_default() }
}

/// There is no result: what happened in our words, and why in words that may be the server's.
pub(crate) fn of_error(server: &str, what: String, error: &McpError, declined: &[String]) -> Output {
    let why = shortened_to(&error.to_string(), MOST_ERROR);
    let texts: Vec<String> = [why].into_iter().chain(asked(declined)).collect();
    let content = [Part::text(what)].into_iter().chain(fenced(server, &texts.join("\n")));
    Output::error(content.collect::<Content>())
}

/// There is no result yet, and nobody waits for it any longer.
pub(crate) fn too_slow(server: &str, limit: Duration, declined: &[String]) -> Output {
    let seconds = limit.as_secs();
    let what =
        format!("the MCP server {server} did not answer within {seconds} s; whether the call happened is unknown");
    let questions: Vec<String> = asked(declined).collect();
    let questions = (!questions.is_empty()).then(|| fenced(server, &questions.join("\n"))).flatten();
    Output::error([Part::text(what)].into_iter().chain(questions).collect::<Content>())
}

fn asked(declined: &[String]) -> impl Iterator<Item = String> {
    declined.iter().map(|question| format!("[the server wanted to ask a person, and {question}]"))
}

pub(crate) fn of_resource(server: &str, answer: ReadResourceResult) -> Output {
    let texts: Vec<String> = answer.contents.into_iter().map(resource).collect();
    Output::ok(fenced(server, &texts.join("\n")).into_iter().collect::<Content>())
}

pub(crate) fn of_prompt(server: &str, answer: GetPromptResult) -> Output {
    let message = |one: rmcp::model::PromptMessage| format!("{:?}: {}", one.role, text_of(one.content));
    let texts: Vec<String> = answer.messages.into_iter().map(message).collect();
    Output::ok(fenced(server, &texts.join("\n")).into_iter().collect::<Content>())
}

/// Lines of the server.
pub(crate) fn of_lines(server: &str, lines: &[String]) -> Output {
    Output::ok(fenced(server, &lines.join("\n")).into_iter().collect::<Content>())
}

fn fenced(server: &str, text: &str) -> Option<Part> {
    if text.is_empty() {
        return Some(Part::text("[no output]"));
    }
    // Before it is fenced, so that the end of the fence is not what is cut.
    Some(Fence::new(format!("mcp/{server}")).wrap(&shortened(text)))
}

/// Beginning and end, if it is longer than a result may be.
fn shortened(text: &str) -> String {
    shortened_to(text, MAX_RESULT_BYTES - 1024)
}

fn shortened_to(text: &str, room: usize) -> String {
    if text.len() <= room {
        return text.to_owned();
    }
    let (head, tail) = (text.floor_char_boundary(room * 3 / 4), text.ceil_char_boundary(text.len() - room / 4));
    format!("{}\n[… {} bytes left out …]\n{}", &text[..head], tail - head, &text[tail..])
}

fn text_of(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => format!("[an image, {}, {} bytes, left out]", image.mime_type, image.data.len()),
        ContentBlock::Audio(audio) => format!("[audio, {}, {} bytes, left out]", audio.mime_type, audio.data.len()),
        ContentBlock::Resource(embedded) => resource(embedded.resource),
        ContentBlock::ResourceLink(link) => format!("[resource {}: {}]", link.uri, link.name),
        _ => "[content of an unknown kind, left out]".to_owned(),
    }
}

fn resource(contents: ResourceContents) -> String {
    match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => format!("[{uri}]\n{text}"),
        ResourceContents::BlobResourceContents { uri, blob, .. } => {
            format!("[{uri}: {} bytes that are no text, left out]", blob.len())
        }
        _ => "[a resource of an unknown kind, left out]".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(media_type: &str, data: &str) -> Output {
        let image = serde_json::json!({ "content": [{ "type": "image", "mimeType": media_type, "data": data }] });
        of_call("test", serde_json::from_value(image).unwrap(), &[])
    }

    fn images(output: &Output) -> Vec<String> {
        let media_type = |part: &Part| match part {
            Part::Image(image) => Some(image.media_type.to_string()),
            _ => None,
        };
        output.content.parts().iter().filter_map(media_type).collect()
    }

    #[test]
    fn an_image_is_passed_on_only_if_it_is_one() {
        let png = STANDARD.encode(b"\x89PNG\r\n\x1a\n and more");
        let (jpeg, webp) = (STANDARD.encode(b"\xff\xd8\xff\xe0"), STANDARD.encode(b"RIFF\0\0\0\0WEBPVP8 "));
        assert_eq!(images(&of("image/png", &png)), ["image/png"]);
        assert_eq!(images(&of("image/jpg", &jpeg)), ["image/jpeg"]);
        assert_eq!(images(&of("image/webp", &webp)), ["image/webp"]);
        for (media_type, data) in [
            ("image/png", "not base64!"),
            ("image/png", ""),
            ("image/png", &*jpeg),
            ("image/webp", &*STANDARD.encode(b"RIFF\0\0\0\0WAVE")),
            ("image/svg+xml", &*png),
            ("image/png\r\nx: y", &*png),
            ("\u{1b}[2J", &*png),
        ] {
            let output = of(media_type, data);
            assert!(images(&output).is_empty(), "{media_type:?}");
            let text = output.content.text();
            assert!(text.contains("left out") && !text.contains(['\r', '\u{1b}']), "{text}");
        }
    }
}

//! What would run, for a person who decides about it.

use std::io::IsTerminal as _;
use std::path::Path;

use serde_json::Value;

use super::changes::{FileChange, changed_files};
use super::items::Item;
use super::records::AcceptedItem;
use crate::hooks::disclosed;
use crate::show::{and_list, clean, columns, log_line, name, terminal_width};

/// The most characters of one item that are shown: a flood must not push the rest off the screen. What runs comes first, so no
/// other option pushes it out.
const LONGEST: usize = 4000;

/// The options that decide what runs, and when. They are shown before the others, however those are called.
const FIRST: [&str; 5] = ["use", "name", "on", "run", "command"];

/// The columns of a terminal that does not say how many it has.
const USUAL_WIDTH: usize = 80;

/// A definition: of a table one line for each key.
pub(super) fn value(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let line = |(key, value): (&String, &Value)| format!("{} = {}", plain_name(key), as_written(key, value));
            let first = FIRST.iter().filter_map(|key| fields.get_key_value(*key));
            let rest = fields.iter().filter(|(key, _)| !FIRST.contains(&key.as_str()));
            first.chain(rest).map(line).collect::<Vec<_>>().join("\n")
        }
        other => as_written("", other).to_string(),
    }
}

/// Options that name what is contacted. They are run by nobody, so the secrets in them are left out whatever they look like.
const ADDRESSES: [&str; 4] = ["url", "endpoint", "model", "models"];

/// What an option says, without the secrets of addresses. A text that is more than an address is shown as it is: what looks like
/// the password of an address in a command may be run by a shell, and in a prompt it is read by the model.
fn as_written(key: &str, value: &Value) -> Value {
    let is_address =
        |text: &str| !text.contains(|sign: char| sign.is_whitespace() || "\"'`\\;|&$<>(){}".contains(sign));
    match value {
        Value::Array(items) => items.iter().map(|item| as_written(key, item)).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), as_written(key, value))).collect(),
        _ if key == "run" || key == "command" => value.clone(),
        Value::String(text) if !ADDRESSES.contains(&key) && !is_address(text) => value.clone(),
        other => disclosed(key, other),
    }
}

/// A name that a file has chosen, among words of ours: in quotes if it could be taken for one of them.
pub(super) fn plain_name(text: &str) -> String {
    let is_plain = |sign: char| sign.is_alphanumeric() || "_-./".contains(sign);
    let shown = name(text);
    if !shown.is_empty() && shown.chars().all(is_plain) { shown } else { Value::from(shown).to_string() }
}

/// The items, in lines, and of each whether it was among those accepted before, or which of its files changed since. What the file
/// says stands behind `|`, on every line, so it cannot be taken for what is said about it.
pub(super) fn items(items: &[Item], known: &[AcceptedItem], folder: &Path) -> String {
    let (out, err) = (std::io::stdout(), std::io::stderr());
    let is_terminal = err.is_terminal() || out.is_terminal();
    let width = terminal_width(&err).or_else(|| terminal_width(&out)).or_else(|| is_terminal.then_some(USUAL_WIDTH));
    let mut text = String::new();
    for item in items {
        let place = item.place.as_ref().map(|place| format!("  ({place})")).unwrap_or_default();
        let before = known.iter().any(|known| known.digest == item.digest);
        let changes = changed_files(known, item, folder);
        let note = match (before, changes.is_empty()) {
            (true, _) => ", as accepted before".to_owned(),
            (false, true) => String::new(),
            (false, false) => format!(", {}", listed(&changes)),
        };
        add(&mut text, ["  ", "    "], &format!("{}{place}{note}", item.title), width);
        let (shown, left_out) = cut(&item.shown.join("\n"), item);
        for line in shown.lines() {
            add(&mut text, ["      | ", "      | "], line, width);
        }
        for note in left_out.iter().chain(&item.notes) {
            add(&mut text, ["      ", "        "], note, width);
        }
    }
    text
}

/// One line, with a mark before it and before each row that it goes on in: a terminal would begin such a row without one.
fn add(text: &mut String, [first, next]: [&str; 2], line: &str, width: Option<usize>) {
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(next.len()).max(1));
    let (mut used, mut mark) = (0, first);
    text.push_str(mark);
    for sign in log_line(line).trim_end_matches('\n').chars() {
        let wide = columns(sign);
        if used + wide > room {
            mark = next;
            text.push('\n');
            text.push_str(mark);
            used = 0;
        }
        text.push(sign);
        used += wide;
    }
    text.push('\n');
}

/// Whole up to a bound; what is left out beyond it is said in a note of ours, not among the file's words.
fn cut(text: &str, item: &Item) -> (String, Option<String>) {
    let text = clean(text);
    match text.char_indices().nth(LONGEST) {
        None => (text, None),
        Some((end, _)) => {
            let left = text[end..].chars().count();
            let place = item.place.as_ref().map(ToString::to_string).unwrap_or_default();
            let note = format!("… and {left} more characters: read {place} before you accept this");
            (text[..end].to_owned(), Some(note))
        }
    }
}

/// The names of the items on one line.
pub(super) fn titles(items: &[Item]) -> String {
    const MOST: usize = 4;
    let mut names: Vec<String> = items.iter().take(MOST).map(|item| item.title.clone()).collect();
    if items.len() > MOST {
        names.push(format!("{} more", items.len() - MOST));
    }
    names.join(", ")
}

/// What became of files, one behind the other.
fn listed(changes: &[FileChange<'_>]) -> String {
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What an acceptance covers and what it does not.
pub(super) fn scope_of(items: &[Item], folder: &Path) -> String {
    let has_files = items.iter().any(|item| !item.files.is_empty());
    let runs = items.iter().any(|item| !item.commands.is_empty());
    let files = match (has_files, runs) {
        (true, _) => {
            "The contents of the files named above are part of it: read them. What they load in turn is not, nor what other \
             programs read (a Makefile, a build script).\n"
        }
        (false, true) => "What its programs read in the project (a Makefile, a build script) is not part of it.\n",
        (false, false) => "",
    };
    let read =
        read_unasked(folder).map(|read| format!("{read}, whether this is accepted or not.\n")).unwrap_or_default();
    format!("{files}{read}It would be accepted for {}, until it changes.\n", folder.display())
}

/// The files of a project that models are given although nobody accepted them: they can steer a model, and run nothing.
pub(crate) fn read_unasked(folder: &Path) -> Option<String> {
    let names = crate::assemble::instruction_files(folder);
    (!names.is_empty()).then(|| {
        let is = if names.len() == 1 { "is" } else { "are" };
        format!("{} of this folder {is} read into every turn, fenced as the project's words", and_list(&names))
    })
}

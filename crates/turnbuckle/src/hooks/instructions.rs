//! Instructions: files and a text of yours, read into every turn.
//!
//! # What it does
//!
//! At the beginning of a turn it reads files of the project (`AGENTS.md`, `CLAUDE.md`, whatever globs name) and puts
//! them behind the user's message, each in a [`Fence`] with its path: a file is not the user. Before them stands `text`,
//! with `{time}`, `{date}`, `{user}`, `{agent}` and `{folder}` filled in; it is yours, so it is not fenced.
//!
//! - All of it takes at most `share` tokens of the turn's injection reserve. A file that does not fit is cut at the end
//!   of a line, and what is left out is said; nothing is cut in silence.
//! - A file that is not there is passed over. So is one that leads out of the folder through a link.
//! - `*` and `?` in a path match within one name; there is no `**`. At most 50 files are read.
//!
//! # Points
//!
//! `before_agent`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `files` | `["AGENTS.md", "CLAUDE.md"]` | paths and globs, from the project's folder on, in order |
//! | `text` | none | a template |
//! | `share` | 2,000 | tokens, estimated |
//!
//! # Example
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use turnbuckle::hooks::instructions::{Instructions, InstructionsOptions};
//! use turnbuckle::testing::Recorder;
//! use turnbuckle::{Agent, models::Script};
//!
//! let model = Recorder::of(Script::says(["Hello!"]));
//! let options = InstructionsOptions { text: "You speak to {user}.".into(), ..InstructionsOptions::default() };
//! let instructions = Instructions::new(options, "/nowhere")?;
//! let agent = Agent::builder("greeter", model.clone()).hook(instructions).build()?;
//! agent.run("hi").await?;
//! assert_eq!(model.requests()[0].messages[0].content().text(), "hiYou speak to local.");
//! # Ok::<(), turnbuckle::BoxError>(()) }).unwrap();
//! ```

use std::borrow::Cow;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use wildmatch::WildMatch;

use super::template::Template;
use super::{ConfigHook, HookBuildContext, OptionError};
use crate::BoxError;
use crate::context::tokens;
use crate::hook::{BeforeAgent, BeforeAgentContext, Fence, Hook};
use crate::message::{Content, Part};

const PLACES: &[&str] = &["time", "date", "user", "agent", "folder"];
const MOST_FILES: usize = 50;
/// The most that is read of one file, in bytes. More would not fit into any share.
const MOST_BYTES: u64 = 1024 * 1024;
/// The size of a fence together with the note about what was left out, in bytes.
const FRAME: usize = 160;

/// Reads files and a text into every turn. See the [module](self) for options.
#[derive(Clone, Debug)]
pub struct Instructions {
    files: Vec<Vec<WildMatch>>,
    text: Option<Template>,
    share: u64,
    folder: PathBuf,
}

/// Options of [`Instructions`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InstructionsOptions {
    /// Paths and globs, relative to the folder.
    pub files: Vec<String>,
    /// A template that is filled and injected; empty for none.
    pub text: String,
    /// How many tokens the text and the files may take together.
    pub share: u64,
}

impl Default for InstructionsOptions {
    fn default() -> Self {
        Self { files: vec!["AGENTS.md".into(), "CLAUDE.md".into()], text: String::new(), share: 2000 }
    }
}

impl Instructions {
    /// Checks the options. Files are relative to `folder`, and paths that leave it are refused.
    pub fn new(options: InstructionsOptions, folder: impl Into<PathBuf>) -> Result<Self, OptionError> {
        if options.share < 50 {
            return Err(OptionError::new("share", "must be at least 50 tokens"));
        }
        if options.files.is_empty() && options.text.trim().is_empty() {
            return Err(OptionError::new("files", "is empty, and there is no `text`: nothing would be read"));
        }
        let steps = |(item, path): (usize, &String)| steps(path).map_err(|error| error.item(item));
        let files = options.files.iter().enumerate().map(steps).collect::<Result<_, _>>()?;
        let text = (!options.text.is_empty()).then(|| Template::parse("text", &options.text, PLACES)).transpose()?;
        Ok(Self { files, text, share: options.share, folder: folder.into() })
    }

    fn filled(&self, turn: &BeforeAgentContext) -> Option<String> {
        let now = turn.clock().now().to_string();
        let user = turn.scope().user_id().map_or("the system", |user| user);
        Some(self.text.as_ref()?.fill(|place| match place {
            "time" => Cow::Borrowed(now.as_str()),
            "date" => Cow::Borrowed(now.get(..10).unwrap_or(&now)),
            "user" => Cow::Borrowed(user),
            "agent" => Cow::Borrowed(turn.agent().name()),
            _ => self.folder.to_string_lossy(),
        }))
    }

    /// The files as they are now, fenced, within `room` bytes.
    fn read(&self, mut room: usize) -> Vec<Part> {
        let Ok(root) = self.folder.canonicalize() else { return Vec::new() };
        let mut paths = Vec::new();
        for steps in &self.files {
            find(&root, steps, &mut paths);
        }
        let mut parts = Vec::new();
        for path in paths.iter().take(MOST_FILES) {
            let Some(text) = text_of(path, &root) else { continue };
            let Some(left) = room.checked_sub(FRAME) else { break };
            let shown = path.strip_prefix(&root).unwrap_or(path).to_string_lossy();
            let part = Fence::new(shown).wrap(&shortened(text.trim_end(), left));
            room = room.saturating_sub(part.as_text().map_or(0, str::len));
            parts.push(part);
        }
        parts
    }
}

fn steps(path: &str) -> Result<Vec<WildMatch>, OptionError> {
    let refused = |why: &str| Err(OptionError::new("files", format!("has {path:?}, {why}")));
    if path.starts_with('/') || path.split('/').any(|step| step == "..") {
        return refused("which leads out of the project's folder");
    }
    if path.is_empty() || path.split('/').any(|step| step.contains("**")) {
        return refused("and a path is names with `*` and `?`, without `**`");
    }
    Ok(path.split('/').filter(|step| !step.is_empty() && *step != ".").map(WildMatch::new).collect())
}

/// Adds the paths that `steps` match, in the order of their names.
fn find(folder: &Path, steps: &[WildMatch], found: &mut Vec<PathBuf>) {
    let Some((step, rest)) = steps.split_first() else { return };
    let Ok(entries) = fs::read_dir(folder) else { return };
    let matching = entries.flatten().filter(|entry| step.matches(&entry.file_name().to_string_lossy()));
    let mut paths: Vec<PathBuf> = matching.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if found.len() >= MOST_FILES {
            return;
        }
        match rest {
            [] if !found.contains(&path) => found.push(path),
            [] => {}
            rest => find(&path, rest, found),
        }
    }
}

/// The text of a file inside `root`; `None` for everything else.
fn text_of(path: &Path, root: &Path) -> Option<String> {
    let real = path.canonicalize().ok()?;
    if !real.starts_with(root) || !real.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    fs::File::open(real).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The text, cut at the end of a line if it is longer than `most` bytes, with a note about what was left out.
fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let whole = &text[..text.floor_char_boundary(most)];
    let kept = whole.rfind('\n').map_or(whole, |end| &whole[..end]);
    Cow::Owned(format!(
        "{kept}\n[… {} of {} bytes left out: the share is used up]",
        text.len() - kept.len(),
        text.len()
    ))
}

impl Hook for Instructions {
    async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        if turn.is_steering() {
            // They stand behind the message that opened the turn.
            return Ok(BeforeAgent::Continue);
        }
        let text = self.filled(turn);
        let taken = text.as_deref().map_or(0, tokens::of_text);
        let Some(room) = self.share.checked_sub(taken) else {
            return Err(format!("`text` takes {taken} tokens, and the share is {}", self.share).into());
        };
        let this = self.clone();
        // On a blocking thread, so that a slow disk does not hold up other turns. Four bytes are about one token.
        let files = tokio::task::spawn_blocking(move || this.read(room.saturating_mul(4) as usize)).await?;
        let parts: Vec<Part> = text.map(Part::text).into_iter().chain(files).collect();
        if !parts.is_empty() {
            turn.inject(Content::from(parts));
        }
        Ok(BeforeAgent::Continue)
    }
}

impl ConfigHook for Instructions {
    const NAME: &'static str = "instructions";
    const SUMMARY: &'static str = "reads AGENTS.md, CLAUDE.md and texts of yours into every turn";
    type Options = InstructionsOptions;

    fn from_options(options: InstructionsOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Self::new(options, context.folder)
    }
}

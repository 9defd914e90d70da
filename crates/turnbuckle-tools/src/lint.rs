//! Lint: the model goes on while a program complains about the files that were touched in the turn.
//!
//! # What it does
//!
//! When the model says it is done, the program runs over the files that tools touched in this turn. Exit code 0 accepts;
//! any other refuses, and what the program printed goes back to the model, which goes on. If nothing was touched that
//! `files` speaks of, nothing runs. The refusals are bounded by the turn's `max_stop_refusals`.
//!
//! - A list is argv, and the files are its last arguments; a string is given to `sh -c`, and the files are `"$@"`. With
//!   `pass_files = false` the program is not told of them.
//! - No such program (also the shell's exit codes 126 and 127), a signal, or taking too long is the hook's own failure,
//!   not a complaint: `on_failure` decides, and ignores it unless told otherwise.
//! - Of what is printed, the model reads at most `max_output` bytes, beginning and end. A program that prints without end
//!   is drained and not kept.
//! - It runs in a process group of its own, which is killed as a whole when the time is up or the turn is cancelled.
//!
//! # Points
//!
//! `on_stop`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `run` | required | a string for `sh -c`, or a list |
//! | `files` | all | globs of paths or file names: `["*.rs"]` |
//! | `pass_files` | `true` | the touched files are arguments |
//! | `max_output` | 8,000 | bytes that the model reads, 200 to 60,000 |
//! | `pass_env` | `[]` | variables that are withheld from programs, and that this one gets |
//!
//! # Example
//!
//! ```
//! use turnbuckle::hook::{HookExt, OnFailure};
//! use turnbuckle_tools::{CommandLine, Lint, LintOptions};
//!
//! let ruff = CommandLine::Argv(vec!["ruff".into(), "check".into()]);
//! let lint = Lint::new(LintOptions { files: vec!["*.py".into()], ..LintOptions::new(ruff) }, ".")?;
//! let lint = lint.on_failure(OnFailure::Block);
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

use std::path::{Path, PathBuf};

use serde::Deserialize;
use turnbuckle::BoxError;
use turnbuckle::hook::{Hook, OnStop, OnStopContext};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, OptionError};
use wildmatch::WildMatch;

use crate::command::env::ProgramEnv;
use crate::command::process::{self, Kept, Ran};
use crate::command::{CommandError, CommandLine};

/// More arguments than this do not fit on every system's command line.
const MOST_FILES: usize = 500;

/// Runs a program over the files that were touched.
#[derive(Clone, Debug)]
pub struct Lint {
    options: LintOptions,
    files: Vec<WildMatch>,
    folder: PathBuf,
    env: ProgramEnv,
}

/// Options of [`Lint`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LintOptions {
    /// What runs.
    pub run: CommandLine,
    /// Globs of paths or file names; none: all.
    #[serde(default)]
    pub files: Vec<String>,
    /// The touched files are arguments.
    #[serde(default = "yes")]
    pub pass_files: bool,
    /// Bytes that the model reads.
    #[serde(default = "most_output")]
    pub max_output: usize,
    /// Variables that are withheld from programs, and that this one gets.
    #[serde(default)]
    pub pass_env: Vec<String>,
}

fn yes() -> bool {
    true
}

fn most_output() -> usize {
    8000
}

impl LintOptions {
    /// Runs this, over all files that were touched.
    pub fn new(run: CommandLine) -> Self {
        Self { run, files: Vec::new(), pass_files: true, max_output: most_output(), pass_env: Vec::new() }
    }
}

impl Lint {
    /// Runs in `folder`, which is where touched paths begin.
    pub fn new(options: LintOptions, folder: impl Into<PathBuf>) -> Result<Self, OptionError> {
        if options.run.is_empty() {
            return Err(OptionError::new("run", "names no program"));
        }
        if !(200..=60_000).contains(&options.max_output) {
            return Err(OptionError::new("max_output", "must be 200 to 60000 bytes"));
        }
        if let Some(item) = options.files.iter().position(|glob| glob.trim().is_empty()) {
            return Err(OptionError::new("files", "has an empty name; leave it out for all files").item(item));
        }
        let files = options.files.iter().map(|glob| WildMatch::new(glob)).collect();
        Ok(Self { options, files, folder: folder.into(), env: ProgramEnv::default() })
    }

    /// Withholds these variables from the program. Otherwise it has the whole environment of this process.
    #[must_use]
    pub fn without_env(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.env = ProgramEnv::without(names);
        self
    }

    /// The touched files that it is for and that are still there, as arguments that no program takes for options.
    fn touched(&self, turn: &OnStopContext) -> Vec<String> {
        let name = |path: &str| Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
        let minds = |path: &String| {
            let matches = |glob: &WildMatch| glob.matches(path) || name(path).is_some_and(|name| glob.matches(&name));
            self.files.is_empty() || self.files.iter().any(matches)
        };
        let there = |path: &String| self.folder.join(path).is_file();
        let plain = |path: String| if path.starts_with('-') { format!("./{path}") } else { path };
        turn.touched().into_iter().filter(minds).filter(there).map(plain).take(MOST_FILES).collect()
    }

    fn line(&self, files: Vec<String>) -> CommandLine {
        let files = if self.options.pass_files { files } else { Vec::new() };
        let words: Vec<String> = match &self.options.run {
            CommandLine::Shell(line) => ["sh", "-c", line, "sh"].map(str::to_owned).into(),
            CommandLine::Argv(words) => words.clone(),
        };
        CommandLine::Argv(words.into_iter().chain(files).collect())
    }

    fn judged(&self, ran: &Ran) -> Result<OnStop, BoxError> {
        match ran.status.code() {
            Some(0) => Ok(OnStop::Accept),
            Some(126 | 127) | None => {
                let (command, status) = (self.options.run.to_string(), ran.status);
                let stderr = shortened(&text_of(&ran.stderr), 500);
                Err(CommandError::Status { command, status, stderr }.into())
            }
            Some(code) => {
                let printed = format!("{}{}", text_of(&ran.stdout), text_of(&ran.stderr));
                let beyond = ran.stdout.beyond + ran.stderr.beyond;
                let more =
                    if beyond > 0 { format!("\n[… {beyond} further bytes were not kept]") } else { String::new() };
                let printed = shortened(printed.trim(), self.options.max_output);
                Ok(OnStop::Refuse(
                    format!("`{}` ended with exit code {code}:\n{printed}{more}", self.options.run).into(),
                ))
            }
        }
    }
}

fn text_of(kept: &Kept) -> String {
    String::from_utf8_lossy(&kept.bytes).into_owned()
}

/// Beginning and end, and how much is missing between.
fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(most / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - most / 2)..];
    format!("{head}\n[… {} bytes left out …]\n{tail}", text.len() - head.len() - tail.len())
}

impl Hook for Lint {
    async fn on_stop(&self, turn: &OnStopContext) -> Result<OnStop, BoxError> {
        let files = self.touched(turn);
        if files.is_empty() {
            return Ok(OnStop::Accept);
        }
        let word = if files.len() == 1 { "file" } else { "files" };
        turn.progress(format!("running {} over {} {word}…", self.options.run, files.len()));
        self.judged(&process::run(&self.line(files), &self.folder, &self.env, b"").await?)
    }
}

impl ConfigHook for Lint {
    const NAME: &'static str = "lint";
    const SUMMARY: &'static str = "sends the model back while a program complains about the touched files";
    type Options = LintOptions;

    fn from_options(options: LintOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        let env = ProgramEnv::of(context, &options.pass_env)?;
        Ok(Self { env, ..Self::new(options, context.folder)? })
    }
}

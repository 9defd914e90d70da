//! The tokens of a server that runs: read again when a file that names them changes, or what the user accepted does.

use std::path::PathBuf;

use turnbuckle_server::{Token, Tokens};

use super::{LOOK_EVERY, Never, Stamp, stamps};
use crate::args::Common;
use crate::config;
use crate::logging::CLI;
use crate::output;
use crate::problem::Problem;
use crate::show::quoted;
use crate::trust::{self, Gate};

/// Where the tokens of a server come from.
pub(super) struct TokenFiles {
    pub(super) files: Vec<PathBuf>,
    /// The folder of the project.
    pub(super) folder: PathBuf,
    pub(super) common: Common,
    /// As the files that counted as accepted had it last.
    pub(super) accepted: Vec<Token>,
}

/// What the files say now.
enum Reading {
    /// All of them count.
    Accepted(Vec<Token>),
    /// The project's file is not accepted. This is what it would make the list.
    NotAccepted(Vec<Token>),
    /// They have an error.
    Wrong(Problem),
}

impl TokenFiles {
    /// Takes tokens over that were added or removed in the files, while the server runs.
    pub(super) async fn follow(mut self, tokens: Tokens) -> Never {
        // Nothing is known at first: a change between the reading of the files at the start and the first look would be missed.
        let (mut seen, mut read) = (Vec::new(), Vec::new());
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = self.stamps();
            // A file that is being written is not read: without its end, tokens would seem to be removed.
            let is_at_rest = now == seen;
            seen = now;
            if !is_at_rest || seen == read {
                continue;
            }
            read.clone_from(&seen);
            let common = self.common.clone();
            match tokio::task::spawn_blocking(move || read_again(&common)).await {
                Ok(reading) => self.take_over(reading, &tokens).await,
                Err(error) => tracing::error!(target: CLI, %error, "reading the tokens again failed"),
            }
        }
    }

    /// The files, and what the user accepted of the project.
    fn stamps(&self) -> Vec<Option<Stamp>> {
        let record = trust::record_file(&self.folder);
        stamps(self.files.iter().chain(&record))
    }

    async fn take_over(&mut self, reading: Reading, tokens: &Tokens) {
        match reading {
            Reading::Accepted(list) => {
                tracing::info!(target: CLI, tokens = list.len(), "the tokens were read again");
                self.accepted.clone_from(&list);
                replace(tokens, list).await;
            }
            // A token that is written into a project's file by somebody else opens nothing. One that is gone from it is ended all
            // the same: that gives nobody a right.
            Reading::NotAccepted(list) => {
                let is_named =
                    |token: &&Token| list.iter().any(|named| named.has_text_of(token) && named.user() == token.user());
                let kept: Vec<Token> = self.accepted.iter().filter(is_named).cloned().collect();
                let cd = quoted(&self.folder.display().to_string());
                output::say(&format!(
                    "the project's file is not accepted as it is now: tokens that it adds or changes do not count yet, and those that it no \
                     longer has are ended; `cd {cd} && turnbuckle trust` shows what changed, and asks"
                ));
                tracing::info!(target: CLI, tokens = kept.len(), "the tokens were read again, and new ones left out");
                replace(tokens, kept).await;
            }
            Reading::Wrong(problem) => {
                output::say(&format!(
                    "the tokens stay as they were, because the configuration has an error: {problem}"
                ));
            }
        }
    }
}

/// The end of sessions is written to disk, on a thread for that.
async fn replace(tokens: &Tokens, list: Vec<Token>) {
    let tokens = tokens.clone();
    if let Err(error) = tokio::task::spawn_blocking(move || tokens.replace(list)).await {
        tracing::error!(target: CLI, %error, "taking over the tokens failed");
    }
}

/// Reads `[serve]` of the files. Nobody is asked.
fn read_again(common: &Common) -> Reading {
    let trust = common.trust;
    let gate = if trust.trust_hooks { Gate::Needed(trust) } else { Gate::LeftOut };
    let mut loaded = config::load_serve(common, gate);
    let is_accepted = loaded.standing.is_accepted();
    if !is_accepted && !loaded.problems.iter().any(Problem::is_error) {
        loaded = config::load_serve(common, Gate::Judged);
    }
    if let Some(problem) = loaded.problems.into_iter().find(Problem::is_error) {
        return Reading::Wrong(problem);
    }
    // Without a list nobody may call: a server that began with tokens does not become one without.
    let list = loaded.config.serve.tokens().unwrap_or_default();
    if is_accepted { Reading::Accepted(list) } else { Reading::NotAccepted(list) }
}

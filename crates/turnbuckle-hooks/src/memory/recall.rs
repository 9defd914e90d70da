//! Recall: what is remembered of the user and fits the message stands behind it.
//!
//! # What it does
//!
//! Looks for the words of the incoming message in the user's memories (full text, the best first) and injects what it
//! finds, fenced as `memory`: a memory is what some model once made of what some user once said, so the present model is
//! shown where it begins and ends. A memory that forges such a fence is made harmless. Nothing found, nothing injected.
//!
//! It keeps to `share` tokens of the injection reserve, leaves out what does not fit, and may itself be left out when
//! others need the room; the hook's record then says how many tokens were left out.
//!
//! # Points
//!
//! `before_agent`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `file` | `memories.db` in the `.turnbuckle` of the project | where memories are; `remember` has the same |
//! | `most` | 5 | how many are injected, 1 to 100 |
//! | `share` | 500 | how many tokens of the reserve they may take, at least 50 |
//!
//! # Example
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use turnbuckle::{Agent, Conversations, Scope, Timestamp, models::Script, testing::Recorder};
//! use turnbuckle_hooks::memory::{Memories, recall::Recall};
//!
//! # let folder = tempfile::tempdir()?;
//! let memories = Memories::in_file(folder.path().join("memories.db"));
//! let fact = vec!["Ann is allergic to nuts.".into()];
//! memories.keep("ann", &"c_1".into(), fact, Timestamp::from_millis(0), 100).await?;
//!
//! let model = Recorder::of(Script::says(["An apple tart."]));
//! let agent = Agent::builder("cook", model.clone()).hook(Recall::new(memories, Default::default())?).build()?;
//! Conversations::in_memory(agent).run("A cake without nuts?", Scope::user("ann")).await?;
//! assert!(format!("{:?}", model.requests()[0].messages).contains("Ann is allergic to nuts."));
//! # Ok::<(), turnbuckle::BoxError>(()) }).unwrap();
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use turnbuckle::BoxError;
use turnbuckle::context::tokens;
use turnbuckle::hook::{BeforeAgent, BeforeAgentContext, Fence, Hook, Settings};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, OptionError};
use turnbuckle::message::Part;
use turnbuckle::store::SideStore;

use super::{Memories, Memory, memories, owner};

/// The options of [`Recall`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecallOptions {
    /// The file with the memories, for a hook that is built from configuration.
    pub file: Option<PathBuf>,
    /// How many memories are injected.
    pub most: usize,
    /// How many tokens of the reserve they may take.
    pub share: u32,
}

impl Default for RecallOptions {
    fn default() -> Self {
        Self { file: None, most: 5, share: 500 }
    }
}

/// Injects the memories of the user that fit the message. See the [module](self) for rules and options.
#[derive(Debug)]
pub struct Recall {
    memories: Memories,
    most: usize,
    share: u32,
}

impl Recall {
    /// Checks the options. `memories` is used in place of the file in the options.
    pub fn new(memories: Memories, options: RecallOptions) -> Result<Self, OptionError> {
        let RecallOptions { file: _, most, share } = options;
        if !(1..=100).contains(&most) {
            return Err(OptionError::new("most", format!("must be 1 to 100, and is {most}")));
        }
        if share < 50 {
            return Err(OptionError::new("share", format!("must be at least 50, and is {share}")));
        }
        Ok(Self { memories, most, share })
    }

    /// As many of these as fit into the share, the best first.
    fn fenced(&self, found: &[Memory]) -> Option<Part> {
        let fence = Fence::new("memory");
        let mut text = String::new();
        let mut fitting = None;
        for memory in found {
            text.push_str(if text.is_empty() { "- " } else { "\n- " });
            text.push_str(&memory.text);
            let part = fence.wrap(&text);
            if part.as_text().map_or(0, tokens::of_text) > u64::from(self.share) {
                break;
            }
            fitting = Some(part);
        }
        fitting
    }
}

impl Hook for Recall {
    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.max_tokens = Some(self.share);
        settings
    }

    fn side_store(&self) -> Option<Arc<dyn SideStore>> {
        Some(Arc::new(self.memories.clone()))
    }

    async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        let found = self.memories.find(&owner(turn.scope()), &turn.user_message().text(), self.most).await?;
        if let Some(part) = self.fenced(&found) {
            turn.inject(part);
        }
        Ok(BeforeAgent::Continue)
    }
}

impl ConfigHook for Recall {
    const NAME: &'static str = "recall";
    const SUMMARY: &'static str = "injects what is remembered of the user and fits the message";
    type Options = RecallOptions;

    fn side_store_of(options: &RecallOptions, context: &HookBuildContext<'_>) -> Option<Arc<dyn SideStore>> {
        Some(Arc::new(memories(options.file.as_deref(), context)))
    }

    fn from_options(options: RecallOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Self::new(memories(options.file.as_deref(), context), options)
    }
}

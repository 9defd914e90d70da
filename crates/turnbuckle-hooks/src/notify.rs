//! Notify: a webhook for chosen events, signed.
//!
//! # What it does
//!
//! Posts an event as JSON, as `run --json` has it, to an address: a call that waits for an answer, a turn that is over.
//! The signature follows [Standard Webhooks](https://www.standardwebhooks.com), so receivers have libraries for it:
//! `webhook-id`, `webhook-timestamp`, and `webhook-signature: v1,BASE64`, an HMAC-SHA256 over `ID.TIMESTAMP.BODY`. The
//! id is the same for every try.
//!
//! A webhook that hangs does not hold up turns: a thread makes the posts, one after the other, each within
//! `give_up_after`; events that do not fit into its queue are lost and counted. An answer of 429 or 5xx, or none, is tried again after 0.5 s,
//! then twice that. Redirects are not followed. The end of the program waits at most three seconds for the queue.
//!
//! # Points
//!
//! `on_event`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `url` | must be given | `https://…` or `http://…` |
//! | `secret_env` | must be given | the environment variable with the secret; `whsec_…` is base64, anything else is taken as it is |
//! | `events` | `["suspension", "turn_ended"]` | which, by `type`: of the log, and `notice`, `hook_finished`, `attempt_discarded`, `suggestion` |
//! | `give_up_after` | `"10s"` | how long one post may take |
//! | `tries` | 3 | how often a post is tried, 1 to 10 |
//! | `queue` | 64 | how many events may wait, 1 to 10,000 |
//!
//! # Example
//!
//! ```
//! use turnbuckle_hooks::notify::{Notify, NotifyOptions};
//!
//! let options = NotifyOptions { url: "https://example.com/hook".into(), ..Default::default() };
//! let hook = Notify::new(options, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
//! assert!(!format!("{hook:?}").contains("MfKQ"), "the secret is not shown");
//! assert!(Notify::new(NotifyOptions::default(), "secret").is_err(), "there is no address");
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

mod kind;
mod post;

use std::time::Duration;

use serde::Deserialize;
use turnbuckle::BoxError;
use turnbuckle::feed::FeedEvent;
use turnbuckle::hook::Hook;
use turnbuckle::hooks::{ConfigHook, HookBuildContext, HumanDuration, OptionError};

use self::post::Post;
use crate::time;
use crate::worker::{WorkQueue, Worker};

/// The options of [`Notify`].
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NotifyOptions {
    /// The address to post to.
    pub url: String,
    /// The environment variable that holds the secret, for a hook that is built from configuration.
    pub secret_env: Option<String>,
    /// The types of the events to post.
    pub events: Vec<String>,
    /// How long one post may take.
    pub give_up_after: HumanDuration,
    /// How often a post is tried.
    pub tries: u32,
    /// How many events may be queued.
    pub queue: usize,
}

/// Without the address, which may have a password.
impl std::fmt::Debug for NotifyOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NotifyOptions").field("events", &self.events).finish_non_exhaustive()
    }
}

impl Default for NotifyOptions {
    fn default() -> Self {
        let events = ["suspension", "turn_ended"].map(str::to_owned).to_vec();
        let give_up_after = HumanDuration::secs(10);
        Self { url: String::new(), secret_env: None, events, give_up_after, tries: 3, queue: 64 }
    }
}

/// How long dropping the hook waits for queued events.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// Posts chosen events to a webhook. See the [module](self) for rules and options.
#[derive(Debug)]
pub struct Notify {
    events: Vec<String>,
    worker: Worker<FeedEvent>,
}

impl Notify {
    /// Checks the options. `secret` is what posts are signed with, whatever the options say of it.
    pub fn new(options: NotifyOptions, secret: &str) -> Result<Self, OptionError> {
        let NotifyOptions { url, secret_env: _, events, give_up_after, tries, queue } = options;
        if events.is_empty() {
            return Err(OptionError::new("events", "must name at least one"));
        }
        if let Some((index, event)) =
            events.iter().enumerate().find(|(_, event)| !kind::NAMES.contains(&event.as_str()))
        {
            let why = format!("has {event:?}, which is none of {}", kind::NAMES.join(", "));
            return Err(OptionError::new("events", why).item(index));
        }
        if !(1..=10).contains(&tries) {
            return Err(OptionError::new("tries", format!("must be 1 to 10, and is {tries}")));
        }
        if !(1..=10_000).contains(&queue) {
            return Err(OptionError::new("queue", format!("must be 1 to 10000, and is {queue}")));
        }
        let post = Post::new(&url, secret, time::checked("give_up_after", give_up_after)?, tries)?;
        let work = move |queue: &WorkQueue<FeedEvent>| {
            while let Some(told) = queue.next() {
                if !post.send(&told) {
                    queue.count_lost(1);
                }
            }
        };
        Ok(Self { events, worker: Worker::new("notify", queue, DRAIN_TIMEOUT, work) })
    }

    /// How many events were lost: the queue was full, or no try at posting them succeeded.
    pub fn lost(&self) -> u64 {
        self.worker.lost()
    }
}

impl Hook for Notify {
    async fn on_event(&self, told: &FeedEvent) -> Result<(), BoxError> {
        if kind::of(&told.item).is_some_and(|kind| self.events.iter().any(|event| event == kind)) {
            // An event that does not fit into the queue is counted as lost.
            let _ = self.worker.push(told.clone());
        }
        Ok(())
    }
}

impl ConfigHook for Notify {
    const NAME: &'static str = "notify";
    const SUMMARY: &'static str = "posts chosen events to a webhook, signed";
    type Options = NotifyOptions;

    fn from_options(options: NotifyOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        let Some(name) = &options.secret_env else {
            return Err(OptionError::new("secret_env", "must name the environment variable that holds the secret"));
        };
        let secret = std::env::var(name).map_err(|error| {
            OptionError::new("secret_env", format!("names {name}, which cannot be read")).because(error)
        })?;
        Self::new(options, &secret)
    }
}

//! Notify: a webhook for chosen events, signed.
//!
//! # What it does
//!
//! Posts an event as JSON, as `show --json` has it, to an address: a call that waits for an answer, a turn that is over.
//! The signature follows [Standard Webhooks](https://www.standardwebhooks.com), so receivers have libraries for it:
//! `webhook-id`, `webhook-timestamp`, and `webhook-signature: v1,BASE64`, an HMAC-SHA256 over `ID.TIMESTAMP.BODY`. The
//! id is the same for every try, also after a restart.
//!
//! - **Log events** are stored with the event itself, in the outbox: a crash loses none. A post that reaches nobody is told
//!   as a notice and kept; it is tried again up to eight times over about ten minutes, and then parked: `list`, `show` and
//!   `trace` show it. Another try is made by a process that looks after the store (`chat`, or `run_maintenance` in Rust),
//!   or when the conversation is taken up again.
//! - **Reminders**: with `reminders = [0.5, 0.9]` a question that has no answer is posted again, with
//!   `"reminder": 0.5`, when half and nine tenths of its time have passed, also if the process that asked is gone. An
//!   answer cancels them.
//! - **Live events** (`notice`, `hook_finished`, `attempt_discarded`, `suggestion`) are posted once and not kept: one that
//!   reaches nobody, or does not fit into the queue, is counted and logged.
//! - **Links**: with `link_for = "ann"` a question is posted with `"link": "https://…"`, under which this user can answer it once,
//!   with the rights that they have then; with `link_for = "nobody"` it can only be denied there. Whoever reads the message can use the
//!   link: send it where only that person reads. Each try and each reminder has a link of its own, and all are void once the
//!   question is answered or lapses. A question of a sub-agent has none: its parent asks it, too.
//! - A webhook that hangs does not hold up turns: a thread makes the posts, one after the other, each within
//!   `give_up_after`. An answer of 429 or 5xx, or none, is tried again after 0.5 s, then twice that, `tries` times
//!   altogether. Redirects are not followed. The end of the program waits at most three seconds for the queue.
//!
//! # Points
//!
//! `on_logged`; `on_event` for live events
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `url` | must be given | `https://…` or `http://…` |
//! | `secret_env` | must be given | the environment variable with the secret; `whsec_…` is base64, anything else is taken as it is |
//! | `events` | `["suspension", "turn_ended"]` | which, by `type`: of the log, and `notice`, `hook_finished`, `attempt_discarded`, `suggestion` |
//! | `reminders` | none | parts of a question's time after which it is posted again, above 0 and below 1; at most 8 |
//! | `link_for` | none | the user for whom questions have a link, or `"nobody"` |
//! | `give_up_after` | `"10s"` | how long one post may take |
//! | `tries` | 3 | how often a post is tried in a row, 1 to 10 |
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

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::oneshot;
use turnbuckle::event::EventKind;
use turnbuckle::feed::{FeedEvent, FeedItem};
use turnbuckle::hook::{Hook, LoggedContext, Point, Settings};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, HumanDuration, LinkMaker, OptionError};
use turnbuckle::projection::Pending;
use turnbuckle::{BoxError, Timestamp};

use self::post::{NotDelivered, Post};
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
    /// Parts of a question's time after which it is posted again, above 0 and below 1.
    pub reminders: Vec<f64>,
    /// The user for whom questions have a link; empty or `nobody` for one that can only deny.
    pub link_for: Option<String>,
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
        let (url, reminders) = (String::new(), Vec::new());
        Self { url, secret_env: None, events, reminders, link_for: None, give_up_after, tries: 3, queue: 64 }
    }
}

/// How long dropping the hook waits for queued events.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// The most reminders of one question.
const MAX_REMINDERS: usize = 8;

/// Posts chosen events to a webhook. See the [module](self) for rules and options.
#[derive(Debug)]
pub struct Notify {
    /// Of the log: they come through the outbox.
    logged: Vec<String>,
    /// Live ones.
    live: Vec<String>,
    /// In percent.
    reminders: Vec<u8>,
    /// How long the posts of one event may take, with what stands before it in the queue.
    longest: Duration,
    worker: Worker<Message>,
}

/// Links for one user, or for nobody in particular.
#[derive(Debug)]
struct Links {
    user: Option<String>,
    maker: Arc<dyn LinkMaker>,
}

impl Links {
    /// The link of an event, if it is a question that can be answered by itself.
    fn of(&self, event: &FeedEvent) -> Result<Option<String>, BoxError> {
        let FeedItem::Log(logged) = &event.item else { return Ok(None) };
        let EventKind::Suspension { call, question, rule, expires, .. } = &logged.kind else { return Ok(None) };
        if event.conversation.is_sub_agent() {
            return Ok(None);
        }
        let asked = Pending {
            call: call.clone(),
            question: (**question).clone(),
            expires: *expires,
            rule: rule.clone(),
            approvals: Vec::new(),
        };
        self.maker.link(&event.conversation, &asked, self.user.as_deref()).map(Some)
    }
}

/// What the thread posts.
struct Message {
    event: FeedEvent,
    /// The `webhook-id`.
    key: String,
    reminder: Option<u8>,
    /// The `webhook-timestamp`: receivers refuse what is too old, so each try of the outbox has its own.
    at: Timestamp,
    /// Told how it went; none for live events.
    done: Option<oneshot::Sender<Result<(), NotDelivered>>>,
}

impl Notify {
    /// Checks the options. `secret` is what posts are signed with, whatever the options say of it. With `link_for`, use
    /// [`with_links`](Self::with_links).
    pub fn new(options: NotifyOptions, secret: &str) -> Result<Self, OptionError> {
        Self::build(options, secret, None)
    }

    /// The same, with what makes the links of `link_for`, such as `AnswerLinks` of the server's crate.
    pub fn with_links(options: NotifyOptions, secret: &str, maker: Arc<dyn LinkMaker>) -> Result<Self, OptionError> {
        Self::build(options, secret, Some(maker))
    }

    fn build(options: NotifyOptions, secret: &str, maker: Option<Arc<dyn LinkMaker>>) -> Result<Self, OptionError> {
        let NotifyOptions { url, secret_env: _, events, reminders, link_for, give_up_after, tries, queue } = options;
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
        let reminders = percents(&reminders, &events)?;
        let links = links(link_for, maker, &events)?;
        let give_up_after = time::checked("give_up_after", give_up_after)?;
        let post = Post::new(&url, secret, give_up_after, tries)?;
        let longest = post.longest().saturating_mul(2);
        let work = move |queue: &WorkQueue<Message>| {
            while let Some(Message { event, key, reminder, at, done }) = queue.next() {
                // Here and not in the turn: the first link may have to read a file.
                let link = links.as_ref().map_or(Ok(None), |links| links.of(&event)).map_err(NotDelivered::NoLink);
                let posted = link.and_then(|link| post.send(&event, &key, (reminder, link.as_deref()), at));
                if let Err(error) = &posted {
                    tracing::warn!(conversation = %event.conversation, error = error as &dyn std::error::Error, "a webhook was not delivered");
                }
                match done {
                    // Nobody waits any more if the hook was cut off; then the outbox tries it again.
                    Some(done) => drop(done.send(posted)),
                    None if posted.is_err() => queue.count_lost(1),
                    None => {}
                }
            }
        };
        let (live, logged) = events.into_iter().partition(|event| kind::LIVE.contains(&event.as_str()));
        let worker = Worker::new("notify", queue, DRAIN_TIMEOUT, work);
        Ok(Self { logged, live, reminders, longest, worker })
    }

    /// How many live events were lost: the queue was full, or no try at posting them succeeded. Log events are not lost: they
    /// stay in the outbox.
    pub fn lost(&self) -> u64 {
        self.worker.lost()
    }
}

/// What makes the links of `link_for`.
fn links(
    link_for: Option<String>,
    maker: Option<Arc<dyn LinkMaker>>,
    events: &[String],
) -> Result<Option<Links>, OptionError> {
    let refused = |why: &str| OptionError::new("link_for", why);
    let Some(user) = link_for else { return Ok(None) };
    if !events.iter().any(|event| event == "suspension") {
        return Err(refused("is for questions, and `events` lacks \"suspension\""));
    }
    if user.contains(char::is_control) || user.trim() != user {
        return Err(refused("is no name of a user"));
    }
    let maker = maker.ok_or_else(|| refused("needs a server that takes the links"))?;
    Ok(Some(Links { user: Some(user).filter(|user| !matches!(user.as_str(), "" | "nobody")), maker }))
}

/// Parts of a question's time, as percent.
fn percents(reminders: &[f64], events: &[String]) -> Result<Vec<u8>, OptionError> {
    let refused = |why: String| OptionError::new("reminders", why);
    if !reminders.is_empty() && !events.iter().any(|event| event == "suspension") {
        return Err(refused("remind of questions, and `events` lacks \"suspension\"".to_owned()));
    }
    if reminders.len() > MAX_REMINDERS {
        return Err(refused(format!("are {}, and {MAX_REMINDERS} are the most", reminders.len())));
    }
    let mut found = Vec::with_capacity(reminders.len());
    for (index, part) in reminders.iter().enumerate() {
        let percent = (1..=99).find(|percent: &u8| (part * 100.0 - f64::from(*percent)).abs() < 1e-6);
        let Some(percent) = percent.filter(|percent| !found.contains(percent)) else {
            let why = format!("has {part}: each is a part of the time from 0.01 to 0.99, and stands there once");
            return Err(refused(why).item(index));
        };
        found.push(percent);
    }
    Ok(found)
}

impl Hook for Notify {
    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.logged = self.logged.iter().map(|event| event.as_str().into()).collect();
        settings.reminders.clone_from(&self.reminders);
        settings.timeout = Some(self.longest);
        // Without live events nothing needs to observe the feed.
        let points = [(Point::OnLogged, &self.logged), (Point::OnEvent, &self.live)];
        settings.only =
            Some(points.into_iter().filter(|(_, events)| !events.is_empty()).map(|(point, _)| point).collect());
        settings
    }

    async fn on_logged(&self, context: &LoggedContext) -> Result<(), BoxError> {
        let (done, posted) = oneshot::channel();
        let (event, key, reminder) = (context.event().clone(), context.key(), context.reminder());
        if !self.worker.offer(Message { event, key, reminder, at: context.now(), done: Some(done) }) {
            return Err("too many posts wait already".into());
        }
        Ok(posted.await.map_err(|_| "the thread that posts has ended")??)
    }

    async fn on_event(&self, told: &FeedEvent) -> Result<(), BoxError> {
        if kind::of(&told.item).is_some_and(|kind| self.live.iter().any(|event| event == kind)) {
            let key = format!("{}_{}", told.conversation, told.cursor);
            let message = Message { event: told.clone(), key, reminder: None, at: told.at, done: None };
            if !self.worker.push(message) {
                tracing::warn!(conversation = %told.conversation, "too many posts wait already: a webhook is lost");
            }
        }
        Ok(())
    }
}

impl ConfigHook for Notify {
    const NAME: &'static str = "notify";
    const SUMMARY: &'static str = "posts chosen events to a webhook, signed";
    type Options = NotifyOptions;

    fn from_options(options: NotifyOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        let Some(name) = &options.secret_env else {
            return Err(OptionError::new("secret_env", "must name the environment variable that holds the secret"));
        };
        let secret = std::env::var(name).map_err(|error| {
            OptionError::new("secret_env", format!("names {name}, which cannot be read")).because(error)
        })?;
        Self::build(options, &secret, context.link_maker.clone())
    }
}

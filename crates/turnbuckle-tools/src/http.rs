//! A hook that lives in a service: `use = "http"`.
//!
//! # What it does
//!
//! Each call of the hook is one POST: the body is the JSON-RPC request that a [worker](crate::worker) would be sent, and the
//! response with status 200 is its answer. There is no `initialize`; `params.hook` is the name of the hook in the configuration.
//! `docs/hook-workers.md` describes the messages.
//!
//! - Posts are signed as the Standard Webhooks say: `webhook-id`, `webhook-timestamp` and `webhook-signature`, an HMAC-SHA256 of
//!   `id.timestamp.body` with the secret. A receiver that checks it and the time knows who asks.
//! - Another status, no connection, no answer within the hook's `timeout`, an answer of more than 4 MiB, one that is no answer
//!   to this request or makes no sense at the point: all of these are the hook's failure and follow `on_failure`.
//! - Connections are kept open for the next post. Redirects are not followed, and no proxy is used.
//! - A host whose name leads to a private address is refused when it is connected to: what is checked is the address that the
//!   connection is made to. A private address must be written as such in the configuration; `localhost` is always this machine.
//!
//! # Points
//!
//! Those that `on` names: all but the wraps, where a service would have to call back.
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `on` | required | the points that the service serves, as a list |
//! | `url` | required | where it is |
//! | `secret_env` | required | the environment variable with the secret that posts are signed with; `whsec_…` is base64 |
//!
//! # Example
//!
//! ```toml
//! [[hooks]]
//! use = "http"
//! name = "policy"
//! on = ["before_tool"]
//! url = "https://hooks.example.com/policy"
//! secret_env = "POLICY_SECRET"
//! timeout = "5s"
//! on_failure = "block"
//! ```

mod address;
mod post;

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use turnbuckle::hook::{HookEntry, Point, Points};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, OptionError};

use crate::worker::{Endpoint, Remote, Service, WorkerPoints};
pub(crate) use address::is_private;
pub(crate) use post::{LONGEST_ANSWER, PostError, Poster, causes};

/// What a post may take at most; the hook's `timeout` is mostly shorter.
const LONGEST: Duration = Duration::from_secs(600);
/// Wraps run code around a call: a service cannot call back.
const WRAPS: &[Point] = &[Point::WrapModelCall, Point::WrapToolCall];

/// A hook that lives in a service; becomes a [`HookEntry`] at the points it was made for.
///
/// ```
/// use turnbuckle::hook::{HookEntry, Point};
/// use turnbuckle_tools::HttpHook;
///
/// let hook = HttpHook::new("policy", [Point::BeforeTool], "https://hooks.example.com/policy", "a secret")?;
/// assert!(HookEntry::from(hook).points().iter().eq([Point::BeforeTool]));
/// # Ok::<(), turnbuckle::hooks::OptionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HttpHook {
    name: String,
    points: Points,
    endpoint: Arc<Endpoint>,
}

impl HttpHook {
    /// Posts to `url`, signed with `secret`, at exactly these points. Nothing is connected to yet.
    ///
    /// # Errors
    ///
    /// There is no point, or one that a service cannot serve; the address or the secret cannot be used.
    pub fn new(
        name: impl Into<String>,
        points: impl IntoIterator<Item = Point>,
        url: &str,
        secret: &str,
    ) -> Result<Self, OptionError> {
        let points: Vec<Point> = points.into_iter().collect();
        if points.is_empty() {
            return Err(OptionError::new("on", "names no point: the hook would never run"));
        }
        if let Some(item) = points.iter().position(|point| WRAPS.contains(point)) {
            let why = format!("has {}, where a service would have to call back; a worker can", points[item]);
            return Err(OptionError::new("on", why).item(item));
        }
        let poster = Poster::new(url).map_err(|error| OptionError::new("url", error.to_string()))?;
        let endpoint = Endpoint::new(poster, secret, LONGEST)
            .map_err(|error| OptionError::new("secret_env", error.to_string()))?;
        Ok(Self { name: name.into(), points: points.into_iter().collect(), endpoint: Arc::new(endpoint) })
    }
}

impl From<HttpHook> for HookEntry {
    fn from(HttpHook { name, points, endpoint }: HttpHook) -> Self {
        let service = Service::new(&name, points, endpoint);
        WorkerPoints { name: name.into(), points, remote: Remote::Service(Arc::new(service)) }.into()
    }
}

impl ConfigHook for HttpHook {
    const NAME: &'static str = "http";
    const SUMMARY: &'static str = "asks a service by POST, signed, at the points it serves";
    type Options = HttpOptions;

    fn from_options(options: HttpOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        let secret = std::env::var(&options.secret_env).map_err(|error| {
            OptionError::new("secret_env", format!("names {}, which cannot be read", options.secret_env)).because(error)
        })?;
        Self::new(Self::NAME, options.on, &options.url, &secret)
    }

    fn entry(mut self, name: String) -> HookEntry {
        self.name = name;
        self.into()
    }
}

/// Options of [`HttpHook`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpOptions {
    /// The points that the service serves.
    pub on: Vec<Point>,
    /// Where it is.
    pub url: String,
    /// The environment variable with the secret that posts are signed with.
    pub secret_env: String,
}

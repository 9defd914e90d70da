//! `fetch`: reads a page of the web.
//!
//! A GET without cookies, credentials or a body. Pages are given to the model as text, inside a fence that says that it comes from
//! outside. Only addresses of the open internet are reached: a name is looked up, every address that it leads to is checked, and the
//! connection is made to those, so that a name which changes its address meanwhile gains nothing. Hosts of a private network must be
//! named in [`FetchOptions::private`].
//!
//! Whoever approves a call approves its host. So a redirect is followed on the same host only; another host is named in the result,
//! and the model may ask for it.
//!
//! A GET is safe to repeat: after a crash in the middle of one it runs again.

mod address;
mod client;
mod page;

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use serde_json::{Value, json};
use turnbuckle::hook::Fence;
use turnbuckle::message::{Content, ToolCall};
use turnbuckle::tool::{Approval, Effect, Normalize, Output, Spec, Tool};
use turnbuckle::{BoxError, BoxFuture, Turn};

pub use address::{AddressError, PrivateHost};
use client::{Client, Fetched};

use crate::shell::rules;

/// The most bytes of a page's text that the model is given.
const LONGEST_TEXT: usize = 100 * 1024;

/// What is fetched, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FetchOptions {
    /// Hosts of a private network, or of this machine, that may be reached.
    pub private: Vec<PrivateHost>,
    /// How long one call may take, redirects included.
    pub timeout: Duration,
    /// The most bytes of a page that are read.
    pub max_bytes: usize,
}

impl Default for FetchOptions {
    /// No private host, half a minute, 2 MiB.
    fn default() -> Self {
        Self { private: Vec::new(), timeout: Duration::from_secs(30), max_bytes: 2 * 1024 * 1024 }
    }
}

/// The tool `fetch {url}`. It needs approval unless the agent's rules allow the host.
///
/// ```
/// use turnbuckle::{Agent, models::Script};
/// use turnbuckle_tools::{Fetch, FetchOptions};
///
/// let agent = Agent::builder("reader", Script::says(["Done."])).tool(Fetch::new(FetchOptions::default())).build()?;
/// # Ok::<(), turnbuckle::BoxError>(())
/// ```
#[derive(Debug)]
pub struct Fetch {
    client: Client,
    spec: Spec,
    timeout: Duration,
}

impl Fetch {
    /// The tool's name.
    pub const NAME: &'static str = "fetch";

    /// A tool that fetches so. Nothing is connected to before the first call.
    pub fn new(options: FetchOptions) -> Self {
        let description = "Fetches a page or file of text from the web with a GET request, and returns its text. Redirects to \
                           another host are not followed but named in the result. Private addresses are refused.";
        let parameters = json!({
            "type": "object",
            "properties": { "url": { "type": "string", "description": "The whole address: https://host/path" } },
            "required": ["url"],
            "additionalProperties": false
        });
        let mut spec = Spec::server(Self::NAME, description, parameters, Effect::Pure);
        spec.approval = Approval::Required;
        // Its own limit comes first, and says what was waited for.
        spec.timeout = options.timeout * 2 + Duration::from_secs(5);
        spec.normalize = Some(Arc::new(NormalUrl));
        let timeout = options.timeout;
        Self { client: Client::new(options), spec, timeout }
    }

    /// The same without the need for approval.
    #[must_use]
    pub fn without_approval(mut self) -> Self {
        self.spec.approval = Approval::NotRequired;
        self
    }
}

impl Tool for Fetch {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn allowed_by(&self, rules: &[String], arguments: &Value) -> bool {
        rules::allow(rules, &self.spec.definition.name, arguments)
    }

    fn call<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        Box::pin(async move {
            let url = address::parse(call.arguments.get("url").and_then(Value::as_str).unwrap_or_default())?;
            turn.report_progress(format!("fetching from {}", url.host_str().unwrap_or_default()));
            let late = |_| client::FetchError::Late { limit: self.timeout };
            let fetched = tokio::time::timeout(self.timeout, self.client.get(url.clone()));
            let fetched = match fetched.await.map_err(late)? {
                Err(refused) if refused.is_refusal() => {
                    return Ok(Output::error(format!("nothing was fetched: {refused}")));
                }
                fetched => fetched?,
            };
            match fetched {
                Fetched::Elsewhere { status, url } => Ok(Output::error(format!(
                    "[status {status}: it is at {url}, on another host; nothing was fetched from there. Call fetch with that address if it is wanted]"
                ))),
                Fetched::Page(page) => {
                    let (ok, status, at) = (page.is_success(), page.status, page.url.clone());
                    // Parsing a large page takes a while, and would keep a worker from other turns.
                    let text = tokio::task::spawn_blocking(move || page.text());
                    let text = tokio::time::timeout(self.timeout, text).await.map_err(late)???;
                    Ok(result(&url, &at, (ok, status), text))
                }
            }
        })
    }
}

fn result(asked: &Url, at: &Url, (ok, status): (bool, u16), mut text: String) -> Output {
    if text.len() > LONGEST_TEXT {
        let (total, end) = (text.len(), text.floor_char_boundary(LONGEST_TEXT));
        text.truncate(end);
        text.push_str(&format!("\n[… {} of {total} bytes left out]", total - end));
    }
    let mut head = format!("[status {status}]");
    if at != asked {
        head.push_str(&format!(" [redirected to {at}]"));
    }
    let host = at.host_str().unwrap_or_default();
    let body = match text.trim().is_empty() {
        true => turnbuckle::message::Part::text("[no text in it]"),
        false => Fence::new(format!("{}/{host}", Fetch::NAME)).wrap(&text),
    };
    let content: Content = [turnbuckle::message::Part::text(head), body].into_iter().collect();
    if ok { Output::ok(content) } else { Output::error(content) }
}

/// One spelling of an address, for rules, hooks and people. What may not be fetched at all is refused here, before anybody is asked.
struct NormalUrl;

impl Normalize for NormalUrl {
    fn normalize<'a>(&'a self, arguments: &'a Value) -> BoxFuture<'a, Result<Option<Value>, BoxError>> {
        Box::pin(std::future::ready(normal(arguments)))
    }
}

fn normal(arguments: &Value) -> Result<Option<Value>, BoxError> {
    let Some(written) = arguments.get("url").and_then(Value::as_str) else { return Ok(None) };
    let url = address::parse(written)?;
    if url.as_str() == written {
        return Ok(None);
    }
    let mut normal = arguments.clone();
    normal["url"] = Value::String(url.into());
    Ok(Some(normal))
}

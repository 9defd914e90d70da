//! What many test files share: a puppet of a model, a tool that hangs, turns of several conversations.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnbuckle::conversation::TurnHandle;
use turnbuckle::feed::{FeedEvent, FeedItem, LiveEvent};
use turnbuckle::hooks::{ConfigHook, HookBuildContext};
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::tool::Effect;
use turnbuckle::tools::{FunctionTool, function_with_schema};
use turnbuckle::{BoxFuture, Reply, Scope, TurnReport, TurnStatus};

/// What a puppet does when it is called.
#[derive(Clone, Debug)]
pub enum Act {
    Says(&'static str),
    Chunks(&'static [&'static str]),
    /// Fails with this status.
    Fails(u16),
    /// Says this much, and then nothing for ever.
    HangsAfter(&'static str),
    /// Says this much, and then the connection breaks.
    BreaksAfter(&'static str),
    /// Calls `add` with these numbers.
    Adds(i64, i64),
}

/// A model that does one act after the other, then the last one again, and counts.
#[derive(Clone)]
pub struct Puppet {
    acts: Arc<Mutex<VecDeque<Act>>>,
    calls: Arc<AtomicUsize>,
}

impl Puppet {
    pub fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        Self { acts: Arc::new(Mutex::new(acts.into_iter().collect())), calls: Arc::default() }
    }
    /// How often it was called.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
    fn act(&self) -> Act {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut acts = self.acts.lock().unwrap();
        if acts.len() > 1 { acts.pop_front().unwrap() } else { acts[0].clone() }
    }
}

impl Model for Puppet {
    fn stream<'a>(&'a self, _: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let act = self.act();
        Box::pin(async move {
            match act {
                Act::Says(text) => Ok(Reply::text(text)),
                Act::Chunks(chunks) => {
                    for chunk in chunks {
                        out.text(chunk);
                    }
                    Ok(Reply::text(chunks.concat()))
                }
                Act::Fails(status) => Err(ModelError::Status { status, message: "no".into(), retry_after: None }),
                Act::HangsAfter(text) => {
                    out.text(text);
                    std::future::pending().await
                }
                Act::BreaksAfter(text) => {
                    out.text(text);
                    Err(ModelError::Transport { message: "cut".into(), source: None })
                }
                Act::Adds(a, b) => Ok(Reply {
                    calls: vec![turnbuckle::ToolCall {
                        call: "c1".into(),
                        name: "add".into(),
                        arguments: Arc::new(json!({"a": a, "b": b})),
                    }],
                    stop_reason: turnbuckle::message::StopReason::ToolCalls,
                    ..Reply::default()
                }),
            }
        })
    }
    fn name(&self) -> &str {
        "puppet"
    }
}

/// A tool that adds two numbers; `a` of 13 makes it fail, of 99 hang.
pub fn add() -> FunctionTool {
    let number = json!({"type": "integer"});
    let schema = json!({"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]});
    function_with_schema("add", "Adds.", schema, Effect::Pure, |_, args| async move {
        match args["a"].as_i64().unwrap() {
            13 => Err("unlucky".into()),
            99 => std::future::pending().await,
            a => Ok((a + args["b"].as_i64().unwrap()).to_string()),
        }
    })
}

/// Calls the adder, then says something.
pub fn adding(a: i64, then: &'static str) -> Script {
    Script::of([ScriptReply::calls("c1", "add", json!({"a": a, "b": 2})), ScriptReply::says(then)])
}

/// One turn of this conversation, begun.
pub async fn begin(rig: &Rig, conversation: &str, message: &str) -> TurnHandle {
    begin_as(rig, conversation, message, Scope::local()).await
}

/// One turn of this conversation, begun by somebody.
pub async fn begin_as(rig: &Rig, conversation: &str, message: &str, scope: Scope) -> TurnHandle {
    rig.conversations.send(&conversation.into(), message, scope).await.unwrap()
}

/// One turn of a new conversation of a user, to its end.
pub async fn turn_of(rig: &Rig, user: &str, message: &str) -> TurnReport {
    rig.conversations.run(message, Scope::user(user)).await.unwrap()
}

pub async fn end(handle: TurnHandle) -> TurnReport {
    match handle.wait().await.unwrap() {
        TurnStatus::Ended(ended) => *ended,
        TurnStatus::Waiting(pending) => panic!("it waits for {pending:?}"),
    }
}

/// The turn has come to nothing yet, however often others ran.
pub async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// The notices told, as text.
pub fn notices(told: &[FeedEvent]) -> Vec<String> {
    let notice = |told: &FeedEvent| match &told.item {
        FeedItem::Live(LiveEvent::Notice { text, hook, .. }) => {
            Some(format!("{}: {text}", hook.as_deref().unwrap_or_default()))
        }
        _ => None,
    };
    told.iter().filter_map(notice).collect()
}

/// The pieces of text told, in order.
pub fn pieces(told: &[FeedEvent]) -> Vec<String> {
    let piece = |told: &FeedEvent| match &told.item {
        FeedItem::Live(LiveEvent::TextDelta { text, .. }) => Some(text.to_string()),
        _ => None,
    };
    told.iter().filter_map(piece).collect()
}

/// Builds a hook as configuration does: from options as data. What is wrong with them, otherwise.
pub fn built<H: ConfigHook>(options: Value) -> Result<H, String> {
    built_in(Path::new("."), options)
}

/// The same, with this folder to keep things in.
pub fn built_in<H: ConfigHook>(folder: &Path, options: Value) -> Result<H, String> {
    let options = serde_json::from_value::<H::Options>(options).map_err(|error| error.to_string())?;
    let open_model = |name: &str| match name {
        "missing" => Err("there is no such model".into()),
        _ => Ok(Arc::new(Script::says(["[]"])) as Arc<dyn Model>),
    };
    let context = HookBuildContext {
        folder,
        data: folder,
        withheld_env: &[],
        open_model: &open_model,
        program_check: None,
        databases: None,
        tool_servers: None,
        link_maker: None,
        ignores_project: false,
        read_by_others: &[],
    };
    H::from_options(options, &context).map_err(|error| error.to_string())
}

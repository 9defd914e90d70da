//! A folder with its tools, a turn to call them in, and pipes to meet processes at.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tempfile::TempDir;
use turnbuckle::hook::{OnStop, OnStopContext, stop};
use turnbuckle::message::ToolCall;
use turnbuckle::models::Script;
use turnbuckle::testing::Rig;
use turnbuckle::tool::{Effect, Output};
use turnbuckle::{Agent, Turn};
use turnbuckle_tools::Workspace;

/// A workspace in a folder of its own, with another folder beside it that it must not reach.
pub(crate) struct Desk {
    base: TempDir,
    pub(crate) workspace: Workspace,
    pub(crate) turn: Turn,
}

impl Desk {
    pub(crate) async fn new() -> Self {
        let base = TempDir::new().unwrap();
        for folder in ["inside", "outside"] {
            fs::create_dir(base.path().join(folder)).unwrap();
        }
        let workspace = Workspace::open(base.path().join("inside")).unwrap();
        Self { base, workspace, turn: turn().await }
    }

    pub(crate) fn inside(&self, path: &str) -> PathBuf {
        self.base.path().join("inside").join(path)
    }

    pub(crate) fn outside(&self, path: &str) -> PathBuf {
        self.base.path().join("outside").join(path)
    }

    /// Puts a file there, and the folders on the way.
    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.inside(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.inside(path)).unwrap()
    }

    /// As a turn calls it: with its arguments in normal form.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Output {
        match self.normal(tool, arguments).await {
            Ok(arguments) => self.run(tool, arguments).await,
            Err(refusal) => Output::error(refusal),
        }
    }

    /// What hooks and people see of a call.
    pub(crate) async fn normal(&self, tool: &str, arguments: Value) -> Result<Value, String> {
        let spec = self.workspace.tool(tool).unwrap().spec().clone();
        let normal = spec.normalize.unwrap().normalize(&arguments).await.map_err(|refusal| refusal.to_string())?;
        Ok(normal.unwrap_or(arguments))
    }

    /// The tool alone.
    pub(crate) async fn run(&self, tool: &str, arguments: Value) -> Output {
        let tool = self.workspace.tool(tool).unwrap();
        tool.call(&self.turn, &call(tool.spec().definition.name.as_ref(), arguments)).await.unwrap()
    }

    pub(crate) async fn ok(&self, tool: &str, arguments: Value) -> String {
        let output = self.call(tool, arguments).await;
        assert!(output.ok, "{}", output.content.text());
        output.content.text()
    }

    pub(crate) async fn refused(&self, tool: &str, arguments: Value) -> String {
        let output = self.call(tool, arguments).await;
        assert!(!output.ok, "{}", output.content.text());
        output.content.text()
    }

    /// What the tool says of a call that was started before a crash.
    pub(crate) async fn reconcile(&self, tool: &str, arguments: Value) -> Option<Output> {
        let spec = self.workspace.tool(tool).unwrap().spec().clone();
        let Effect::Reconcile(world) = spec.effect else { panic!("{tool} does not reconcile") };
        world.reconcile(&self.turn, &call(tool, arguments)).await.unwrap()
    }
}

fn call(name: &str, arguments: Value) -> ToolCall {
    ToolCall { call: "c1".into(), name: name.into(), arguments: Arc::new(arguments) }
}

/// A turn, taken out of a stop hook.
async fn turn() -> Turn {
    let taken = Arc::new(Mutex::new(None));
    let into = taken.clone();
    let hook = stop("take", move |turn: OnStopContext| {
        *into.lock().unwrap() = Some(Turn::clone(&turn));
        async { Ok(OnStop::Accept) }
    });
    let agent = Agent::builder("coder", Script::says(["done"])).hook(hook).build().unwrap();
    Rig::new(agent).ended("go").await.unwrap();
    taken.lock().unwrap().take().unwrap()
}

pub(crate) fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Reads a pipe until everybody who writes to it is gone. `ready` fires at the first byte.
pub(crate) struct Ear {
    pub(crate) ready: tokio::sync::oneshot::Receiver<()>,
    pub(crate) heard: tokio::task::JoinHandle<String>,
}

pub(crate) fn listen(path: &Path) -> Ear {
    fifo(path);
    let (sender, ready) = tokio::sync::oneshot::channel();
    let path = path.to_owned();
    let heard = tokio::task::spawn_blocking(move || {
        let mut pipe = fs::File::open(path).unwrap();
        let mut text = vec![0];
        pipe.read_exact(&mut text).unwrap();
        let _ = sender.send(());
        pipe.read_to_end(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    });
    Ear { ready, heard }
}

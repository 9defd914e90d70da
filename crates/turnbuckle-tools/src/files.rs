//! The file tools, one file each, over one [`Folder`].

mod apply_patch;
mod blocking;
mod change;
mod closed;
mod diff;
mod edit;
mod folder;
mod ignored;
mod list;
mod normal;
mod patch;
mod read;
mod refusal;
mod replace;
mod search;
mod undo;
mod undo_files;
mod walk;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use turnbuckle::message::ToolCall;
use turnbuckle::store::ArgumentMatch;
use turnbuckle::tool::{Effect, Output, Preview, Reconcile, Spec, Tool};
use turnbuckle::{BoxError, BoxFuture, ConversationId, Turn, TurnId};

use apply_patch::NormalPatch;
use blocking::{CancelFlag, run_blocking};
use change::Plan;
pub use closed::resolved_path;
pub(crate) use folder::Folder;
use normal::NormalPath;
pub(crate) use patch::{FileChange, PatchedFile, files_of_patch};
use refusal::Refusal;
use replace::Readers;
pub use undo::Undone;
pub use undo_files::UndoFiles;

use crate::shell::rules;

/// What a tool did.
struct Done {
    output: Output,
    /// The files it changed, below the folder.
    touched: Vec<PathBuf>,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self { output, touched: Vec::new() }
    }
}

impl Done {
    /// Tells the turn what was changed.
    fn touch(&self, turn: &Turn) {
        self.touched.iter().for_each(|path| turn.touch(path.to_string_lossy()));
    }
}

/// What a file tool does with its arguments.
#[derive(Clone, Copy)]
enum Work {
    /// It only looks.
    Look(fn(&Folder, Value, &CancelFlag) -> Result<Done, Refusal>),
    /// It changes files. What it will do is known before it does anything.
    Change(fn(&Folder, Value) -> Result<Plan, Refusal>),
}

impl Work {
    fn run(
        self,
        folder: &Folder,
        of: (&ConversationId, &TurnId),
        arguments: Value,
        cancel: &CancelFlag,
    ) -> Result<Done, Refusal> {
        match self {
            Self::Look(look) => look(folder, arguments, cancel),
            Self::Change(plan) => {
                let _changing = folder.changing();
                let plan = plan(folder, arguments)?;
                let made = plan.missing_folders(folder);
                plan.carry_out(folder, cancel)?;
                let done = Done { output: Output::ok(plan.result()), touched: plan.touched() };
                folder.undo_log().note(of, plan.changes, made);
                Ok(done)
            }
        }
    }
}

/// Asks the files whether a call took effect before a crash. `happened` is `None` if it did not, and the call can run.
struct AskFiles {
    folder: Arc<Folder>,
    happened: fn(&Folder, Value) -> Option<Done>,
}

impl AskFiles {
    fn effect(folder: &Arc<Folder>, happened: fn(&Folder, Value) -> Option<Done>) -> Effect {
        Effect::Reconcile(Arc::new(Self { folder: folder.clone(), happened }))
    }
}

impl Reconcile for AskFiles {
    fn reconcile<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Option<Output>, BoxError>> {
        Box::pin(async move {
            let (folder, arguments, happened) = (self.folder.clone(), (*call.arguments).clone(), self.happened);
            let Some(done) = run_blocking(move |_| happened(&folder, arguments)).await? else { return Ok(None) };
            done.touch(turn);
            Ok(Some(done.output))
        })
    }
}

/// A file tool: blocking work that runs beside the async threads.
struct FileTool {
    spec: Spec,
    folder: Arc<Folder>,
    work: Work,
}

pub(crate) fn tool(name: &str, folder: &Arc<Folder>) -> Option<Arc<dyn Tool>> {
    let (mut spec, work) = match name {
        "read_file" => (read::spec(), Work::Look(read::run)),
        "write_file" => (write::spec(), Work::Change(write::plan)),
        "edit_file" => (edit::spec(folder), Work::Change(edit::plan)),
        "apply_patch" => (apply_patch::spec(folder), Work::Change(apply_patch::plan)),
        "list_files" => (list::spec(), Work::Look(list::run)),
        "search_files" => (search::spec(), Work::Look(search::run)),
        _ => return None,
    };
    spec.normalize = Some(match name {
        "apply_patch" => Arc::new(NormalPatch(folder.clone())),
        _ => Arc::new(NormalPath(folder.clone())),
    });
    Some(Arc::new(FileTool { spec, folder: folder.clone(), work }))
}

/// Puts what was said into the file at `path`, in one step, beside the async threads. Folders on the way are made, and only the
/// owner may read the file.
pub(crate) async fn replace(folder: &Arc<Folder>, path: String, content: Vec<u8>) -> Result<(), BoxError> {
    let folder = folder.clone();
    let replaced = run_blocking(move |cancel| {
        let path = folder.normal(&path)?;
        let _changing = folder.changing();
        folder.replace_for(Readers::Owner, &path, &content, cancel).map(drop)
    });
    replaced.await?.map_err(|refusal: Refusal| refusal.to_string().into())
}

/// Keeps what is changed from now on in files.
pub(crate) fn keep_undo(folder: &Folder, files: UndoFiles) {
    folder.undo_log().keep_in(files);
}

/// Puts back what a turn changed, beside the async threads.
pub(crate) async fn undo(folder: &Arc<Folder>, turn: &TurnId) -> Result<Option<Undone>, BoxError> {
    let (folder, turn) = (folder.clone(), turn.clone());
    Ok(run_blocking(move |_| undo::undo(&folder, &turn)).await??)
}

impl Tool for FileTool {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn allowed_by(&self, rules: &[String], arguments: &Value) -> bool {
        rules::allow(rules, &self.spec.definition.name, arguments)
    }

    fn standing_covers(&self, parts: &[ArgumentMatch], arguments: &Value) -> bool {
        rules::standing_covers(&self.spec.definition.name, parts, arguments)
    }

    fn call<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        Box::pin(async move {
            let (folder, arguments, work) = (self.folder.clone(), (*call.arguments).clone(), self.work);
            let (conversation, id) = (turn.conversation().clone(), turn.id().clone());
            let done = run_blocking(move |cancel| work.run(&folder, (&conversation, &id), arguments, cancel)).await?;
            Ok(match done {
                Ok(done) => {
                    done.touch(turn);
                    done.output
                }
                // A refusal is what the model should read, not a failure of the tool.
                Err(refusal) => Output::error(refusal.to_string()),
            })
        })
    }

    fn preview<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, Result<Option<Preview>, BoxError>> {
        let Work::Change(plan) = self.work else { return Box::pin(std::future::ready(Ok(None))) };
        Box::pin(async move {
            let (folder, arguments) = (self.folder.clone(), (*call.arguments).clone());
            let planned = run_blocking(move |_| plan(&folder, arguments).map(|plan| plan.preview())).await?;
            let diff = planned.map_err(|refusal: Refusal| refusal.to_string())?;
            Ok(Some(Preview::of_diff(diff)))
        })
    }
}

//! The file tools, one file each, over one [`Folder`].

mod blocking;
mod closed;
mod diff;
mod edit;
mod folder;
mod ignored;
mod list;
mod normal;
mod read;
mod refusal;
mod replace;
mod search;
mod walk;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use turnbuckle::message::ToolCall;
use turnbuckle::tool::{Output, Spec, Tool};
use turnbuckle::{BoxError, BoxFuture, Turn};

use blocking::{CancelFlag, run_blocking};
pub use closed::resolved_path;
pub(crate) use folder::Folder;
use normal::NormalPath;
use refusal::Refusal;
use replace::Readers;

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

type Run = fn(&Folder, Value, &CancelFlag) -> Result<Done, Refusal>;

/// A file tool: blocking work that runs beside the async threads.
struct FileTool {
    spec: Spec,
    folder: Arc<Folder>,
    run: Run,
}

pub(crate) fn tool(name: &str, folder: &Arc<Folder>) -> Option<Arc<dyn Tool>> {
    let (mut spec, run): (Spec, Run) = match name {
        "read_file" => (read::spec(), read::run),
        "write_file" => (write::spec(), write::run),
        "edit_file" => (edit::spec(folder), edit::run),
        "list_files" => (list::spec(), list::run),
        "search_files" => (search::spec(), search::run),
        _ => return None,
    };
    spec.normalize = Some(Arc::new(NormalPath(folder.clone())));
    Some(Arc::new(FileTool { spec, folder: folder.clone(), run }))
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

impl Tool for FileTool {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn call<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        Box::pin(async move {
            let (folder, arguments, run) = (self.folder.clone(), (*call.arguments).clone(), self.run);
            let done = run_blocking(move |cancel| run(&folder, arguments, cancel)).await?;
            Ok(match done {
                Ok(done) => {
                    done.touched.iter().for_each(|path| turn.touch(path.to_string_lossy()));
                    done.output
                }
                // A refusal is what the model should read, not a failure of the tool.
                Err(refusal) => Output::error(refusal.to_string()),
            })
        })
    }
}

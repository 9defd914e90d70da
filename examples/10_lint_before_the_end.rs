//! A stop hook that runs the linter over the files that were touched: the model says it is done, and nobody takes its word
//! for it.
//!
//! ```sh
//! cargo run --example 10_lint_before_the_end
//! ```

use serde_json::json;
use turnbuckle::feed::{FeedEvent, FeedItem, LiveEvent};
use turnbuckle::hook::{HookExt, OnFailure, observe};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::{Agent, BoxError};
use turnbuckle_tools::{CommandLine, Lint, LintOptions, Workspace};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let write = |id: &str, content: &str| {
        ScriptReply::calls(id, "write_file", json!({"path": "src/main.rs", "content": content}))
    };
    let model = Script::of([
        write("c1", "fn main() {\n    dbg!(1 + 1);\n}\n"),
        ScriptReply::says("Done."),
        write("c2", "fn main() {\n    println!(\"{}\", 1 + 1);\n}\n"),
        ScriptReply::says("Done, without the leftover."),
    ]);

    // Any linter will do; this one is everywhere. The touched files are its arguments.
    let no_leftovers = CommandLine::Shell("! grep -n 'dbg!' \"$@\"".into());
    let options = LintOptions { files: vec!["*.rs".into()], ..LintOptions::new(no_leftovers) };
    let lint = Lint::new(options, folder.path())?.on_failure(OnFailure::Block);

    let tools = Workspace::open(folder.path())?;
    let mut agent = Agent::builder("coder", model).hook(lint).hook(observe("viewer", |told: FeedEvent| async move {
        match &told.item {
            FeedItem::Live(LiveEvent::HookProgress { hook, text }) => println!("{hook}: {text}"),
            FeedItem::Live(LiveEvent::HookFinished { hook, decision, .. }) => println!("{hook}: {decision}"),
            _ => {}
        }
        Ok(())
    }));
    for tool in Workspace::NAMES.iter().filter_map(|name| tools.tool(name)) {
        agent = agent.shared_tool(tool);
    }
    let ended = agent.build()?.run("Print the sum of 1 and 1.").await?;
    println!("{} after {} model calls: {}", ended.outcome, ended.model_calls, ended.text());
    Ok(())
}

//! `lint` and `persist`, with real programs and real files.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use turnbuckle::hook::{HookEntry, HookExt, OnFailure};
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::{Agent, Outcome, TurnReport};
use turnbuckle_tools::{CommandLine, Lint, LintOptions, Persist, Persisted, Workspace};

fn shell(line: &str) -> LintOptions {
    LintOptions::new(CommandLine::Shell(line.into()))
}

fn lint(options: LintOptions, folder: &TempDir) -> Lint {
    Lint::new(options, folder.path()).unwrap()
}

/// Writes `first`, says it is done, writes `second` if it is sent back, and says it again.
async fn coder(folder: &TempDir, hook: impl Into<HookEntry>, path: &str) -> (TurnReport, Recorder, Rig) {
    let write =
        |id: &str, content: &str| ScriptReply::calls(id, "write_file", json!({"path": path, "content": content}));
    let script = [write("c1", "bad"), ScriptReply::says("done"), write("c2", "good"), ScriptReply::says("really done")];
    let model = Recorder::of(Script::of(script).when_exhausted(OnExhausted::Repeat));
    let tool = Workspace::open(folder.path()).unwrap().tool("write_file").unwrap();
    let agent = Agent::builder("coder", model.clone()).shared_tool(tool).hook(hook);
    let mut rig = Rig::new(agent.build().unwrap());
    let ended = rig.ended("write it").await.unwrap();
    (ended, model, rig)
}

#[tokio::test]
async fn no_turn_ends_while_the_program_complains_about_a_touched_file() {
    let folder = TempDir::new().unwrap();
    let hook = lint(shell("! grep -Hn bad \"$@\""), &folder);
    let (ended, model, _) = coder(&folder, hook, "a.txt").await;
    assert_eq!((ended.outcome, ended.text()), (Outcome::Completed, "really done".to_owned()));
    let feedback = format!("{:?}", model.requests()[2].messages.last());
    assert!(feedback.contains("ended with exit code 1") && feedback.contains("a.txt:1:bad"), "{feedback}");
}

#[tokio::test]
async fn files_that_it_is_not_for_are_none_of_its_business() {
    let folder = TempDir::new().unwrap();
    let only = |glob: &str| LintOptions { files: vec![glob.into()], ..shell("false") };
    assert_eq!(coder(&folder, lint(only("*.rs"), &folder), "a.txt").await.0.text(), "done");
    assert_eq!(coder(&folder, lint(only("*.txt"), &folder), "deep/a.txt").await.0.text(), "really done");
}

#[tokio::test]
async fn a_file_that_is_named_like_an_option_is_still_a_file() {
    let folder = TempDir::new().unwrap();
    let argv = ["sh", "-c", "printf '%s' \"$1\" > seen", "sh"].map(str::to_owned);
    let hook = lint(LintOptions::new(CommandLine::Argv(argv.into())), &folder);
    coder(&folder, hook, "--version").await;
    assert_eq!(fs::read_to_string(folder.path().join("seen")).unwrap(), "./--version");
}

#[tokio::test]
async fn a_program_that_prints_ten_megabytes_is_heard_in_a_few_thousand_bytes() {
    let folder = TempDir::new().unwrap();
    let hook = lint(shell("head -c 10000000 /dev/zero | tr '\\0' x; echo the end >&2; exit 3"), &folder);
    let (ended, model, _) = coder(&folder, hook.timeout(Duration::from_secs(600)), "a.txt").await;
    assert!(ended.is_completed());
    let text = model.requests()[2].messages.last().unwrap().content().text();
    assert!(text.len() < 9000, "{}", text.len());
    assert!(text.contains("exit code 3") && text.contains("the end") && text.contains("were not kept"), "{text}");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_a_failure_and_no_complaint() {
    for run in [CommandLine::Shell("no-such-linter".into()), CommandLine::Argv(vec!["no-such-linter".into()])] {
        let folder = TempDir::new().unwrap();
        let hook = lint(LintOptions::new(run), &folder);
        assert_eq!(coder(&folder, hook.clone(), "a.txt").await.0.text(), "done");
        let (ended, ..) = coder(&folder, hook.on_failure(OnFailure::Block), "a.txt").await;
        assert_eq!(ended.outcome, Outcome::Failed);
    }
}

#[test]
fn lint_options_are_checked() {
    assert_eq!(Lint::new(shell(" "), ".").unwrap_err().option, "run");
    let options = LintOptions { max_output: 1, ..shell("x") };
    assert_eq!(Lint::new(options, ".").unwrap_err().option, "max_output");
}

async fn answered(hook: impl Into<HookEntry>) -> TurnReport {
    let agent = Agent::builder("writer", Script::says(["the answer"])).hook(hook);
    Rig::new(agent.build().unwrap()).ended("the question").await.unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn the_result_is_in_the_file_and_nothing_else_is_left() {
    let folder = TempDir::new().unwrap();
    let hook = Persist::to_file("out/{conversation}-{date}.md", folder.path()).unwrap();
    for _ in 0..2 {
        answered(hook.clone()).await;
    }
    assert_eq!(names(&folder.path().join("out")), ["c_1-2026-01-31.md"]);
    let kept = fs::read_to_string(folder.path().join("out/c_1-2026-01-31.md")).unwrap();
    assert_eq!(kept, "the answer\n");
}

#[tokio::test]
async fn as_json_it_says_whose_it_is() {
    let folder = TempDir::new().unwrap();
    answered(Persist::to_file("a.json", folder.path()).unwrap().kept_as(Persisted::Json)).await;
    let kept: serde_json::Value = serde_json::from_slice(&fs::read(folder.path().join("a.json")).unwrap()).unwrap();
    assert_eq!((kept["conversation"].as_str(), kept["result"].as_str()), (Some("c_1"), Some("the answer")));
    assert_eq!((kept["message"].as_str(), kept["agent"].as_str()), (Some("the question"), Some("writer")));
}

#[tokio::test]
async fn a_program_reads_the_result_and_its_refusal_is_the_hooks_failure() {
    let folder = TempDir::new().unwrap();
    let program = |line: &str| Persist::to_program(CommandLine::Shell(line.into()), folder.path()).unwrap();
    answered(program("cat > kept")).await;
    assert_eq!(fs::read_to_string(folder.path().join("kept")).unwrap(), "the answer\n");
    assert!(answered(program("exit 1")).await.is_completed());
    assert_eq!(answered(program("exit 1").on_failure(OnFailure::Block)).await.outcome, Outcome::Failed);
}

#[tokio::test]
async fn no_path_leads_out_of_the_folder() {
    let (folder, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for path in ["../x", "/tmp/x", "", "a/", "a/../../x"] {
        assert_eq!(Persist::to_file(path, folder.path()).unwrap_err().option, "file", "{path}");
    }
    std::os::unix::fs::symlink(outside.path(), folder.path().join("link")).unwrap();
    let hook = Persist::to_file("link/x", folder.path()).unwrap().on_failure(OnFailure::Block);
    assert_eq!(answered(hook).await.outcome, Outcome::Failed);
    assert!(names(outside.path()).is_empty());
}

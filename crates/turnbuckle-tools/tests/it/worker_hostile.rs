//! Workers that stop in the middle, leave something behind, or say too much where a line alone is no breach of the protocol.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use turnbuckle::Outcome;
use turnbuckle::hook::{HookEntry, HookExt as _, OnFailure, Point};
use turnbuckle::models::ScriptReply;
use turnbuckle::testing::Rig;
use turnbuckle_tools::{CommandLine, WorkerHook};

use crate::worker::{agent, python};
use crate::worker_failures::{GO_ON, raw, reasons};

const PATIENCE: Duration = Duration::from_secs(60);

fn starts(folder: &TempDir) -> usize {
    // Until the first start it is not there.
    std::fs::read(folder.path().join("starts")).map(|starts| starts.len()).unwrap_or_default()
}

async fn appears(path: &Path) {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_worker_that_dies_is_noticed_while_its_child_holds_stdout() {
    let body = "if starts == 1:\n    import subprocess; subprocess.Popen(['sleep', '120'])\n    os._exit(3)";
    let (_folder, hook) = raw(&format!("{body}\n{GO_ON}"));
    // Time stands still for the hook, so nothing but the end of the process can end its call.
    let reasons = tokio::time::timeout(PATIENCE, reasons(hook, 2)).await.unwrap();
    assert!(reasons[0].as_deref().unwrap().contains("exit status: 3"), "{reasons:?}");
    assert_eq!(reasons[1], None);
}

#[tokio::test]
async fn an_answer_that_was_written_before_the_end_counts() {
    let (_folder, hook) = raw(&format!("{GO_ON}\nos._exit(0)"));
    let reasons = tokio::time::timeout(PATIENCE, reasons(hook, 1)).await.unwrap();
    assert_eq!(reasons, [None]);
}

#[tokio::test]
async fn a_worker_that_closes_a_pipe_and_goes_on_is_ended_at_once() {
    for pipe in ["0", "1"] {
        let (folder, hook) = raw(&format!("if starts == 1:\n    os.close({pipe})\n    time.sleep(1000)\n{GO_ON}"));
        let reasons = tokio::time::timeout(PATIENCE, reasons(hook, 2)).await.unwrap();
        assert!(reasons[0].as_deref().unwrap().contains("closed a pipe and went on"), "{pipe}: {reasons:?}");
        assert_eq!((&reasons[1], starts(&folder)), (&None, 2));
    }
}

#[tokio::test]
async fn a_worker_that_is_stopped_by_a_signal_is_replaced() {
    let stops = "if starts == 1:\n    open('asleep', 'w')\n    os.kill(os.getpid(), 19)";
    let (folder, hook) = raw(&format!("{stops}\n{GO_ON}"));
    let hook = hook.reaction_time(Duration::from_millis(50));
    let replies = std::iter::repeat_with(|| ScriptReply::says("done")).take(99);
    let mut rig = Rig::new(agent(replies).hook(hook).build().unwrap());
    let clock = rig.clock.clone();
    let time_is_up = async {
        appears(&folder.path().join("asleep")).await;
        clock.advance(HookEntry::DEFAULT_TIMEOUT);
    };
    let (ended, ()) = tokio::join!(rig.ended("go"), time_is_up);
    assert!(ended.unwrap().reason.unwrap().contains("took longer than 1m"));
    let replaced = async {
        while starts(&folder) < 2 {
            rig.ended("go").await.unwrap();
        }
        rig.ended("go").await.unwrap().outcome
    };
    assert_eq!(tokio::time::timeout(PATIENCE, replaced).await.unwrap(), Outcome::Completed);
}

#[tokio::test]
async fn a_second_answer_to_a_call_ends_the_worker() {
    let (folder, hook) = raw(&format!("{GO_ON}\nif starts == 1: {GO_ON}"));
    let replies = std::iter::repeat_with(|| ScriptReply::says("done")).take(99);
    let mut rig = Rig::new(agent(replies).hook(hook).build().unwrap());
    let replaced = async {
        // The second answer comes after the first, so the turn of the first may be over by then.
        while starts(&folder) < 2 {
            rig.ended("go").await.unwrap();
        }
        rig.ended("go").await.unwrap().outcome
    };
    assert_eq!(tokio::time::timeout(PATIENCE, replaced).await.unwrap(), Outcome::Completed);
}

#[tokio::test]
async fn a_flood_on_stderr_holds_nobody_up() {
    let (_folder, hook) = raw(&format!("sys.stderr.write('x' * 20000000)\nsys.stderr.flush()\n{GO_ON}"));
    let reasons = tokio::time::timeout(PATIENCE, reasons(hook, 2)).await.unwrap();
    assert_eq!(reasons, [None, None]);
}

#[tokio::test]
async fn progress_after_the_answer_is_left_out_and_the_worker_lives() {
    let script = "import asyncio\nfrom turnbuckle_hooks import *\nopen('starts', 'a').write('x')\nkept = []\n\
         async def later():\n    await asyncio.sleep(0.02)\n    progress('late')\n    open('said', 'w')\n\
         @hook('before_agent')\nasync def late(turn, prompt):\n    kept.append(asyncio.create_task(later()))\nrun()\n";
    let (folder, hook) = python(&[Point::BeforeAgent], script);
    let replies = std::iter::repeat_with(|| ScriptReply::says("done")).take(2);
    let mut rig = Rig::new(agent(replies).hook(hook).build().unwrap());
    assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Completed);
    tokio::time::timeout(PATIENCE, appears(&folder.path().join("said"))).await.unwrap();
    assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Completed);
    assert_eq!(starts(&folder), 1);
}

#[tokio::test]
async fn what_is_no_json_is_the_failure_of_its_call_in_python() {
    for answer in ["{'decision': object()}", "deny('\\ud800')"] {
        let script = format!(
            "from turnbuckle_hooks import *\nopen('starts', 'a').write('x')\n@hook('before_agent')\ndef odd(turn, prompt):\n    \
             return {answer} if prompt == 'odd' else None\nrun()\n"
        );
        let (folder, hook) = python(&[Point::BeforeAgent], &script);
        let mut rig = Rig::new(agent([ScriptReply::says("done")]).hook(hook).build().unwrap());
        let ended = rig.ended("odd").await.unwrap();
        assert!(ended.reason.as_deref().unwrap().contains("odd in the worker failed"), "{:?}", ended.reason);
        assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Completed);
        assert_eq!(starts(&folder), 1);
    }
}

#[tokio::test]
async fn a_transformer_cannot_make_a_reply_grow_without_end() {
    let script =
        "from turnbuckle_hooks import hook, run\n@hook('stream')\ndef grow(text):\n    return 'x' * 1500000\nrun()\n";
    let (_folder, hook) = python(&[Point::Stream], script);
    let mut rig = Rig::new(agent([ScriptReply::chunks(["a", "b", "c", "d"])]).hook(hook).build().unwrap());
    let ended = rig.ended("go").await.unwrap();
    assert_eq!(ended.outcome, Outcome::Failed);
    let reason = ended.reason.unwrap();
    assert!(reason.contains("beyond what the model said") || reason.contains("more than 4194304 bytes"), "{reason}");
}

#[tokio::test]
async fn a_worker_without_the_declared_hooks_blocks_where_failures_are_ignored() {
    for hooks in ["[]", "[{'name': 'h', 'point': 'on_sunday'}]", "[{'name': 'h', 'point': 'on_stop'}] * 2"] {
        let folder = TempDir::new().unwrap();
        let script = format!(
            "import json, sys\nfor line in sys.stdin:\n    m = json.loads(line)\n    \
             print(json.dumps({{'jsonrpc': '2.0', 'id': m['id'], 'result': {{'protocol': 1, 'hooks': {hooks}}}}}), flush=True)\n"
        );
        std::fs::write(folder.path().join("hooks.py"), script).unwrap();
        let line = CommandLine::Argv(vec!["python3".into(), "hooks.py".into()]);
        let hook = WorkerHook::new("raw", [Point::OnStop], line, folder.path()).unwrap();
        let reasons = reasons(hook.on_failure(OnFailure::Ignore), 1).await;
        assert!(reasons[0].is_some(), "{hooks}");
    }
}

//! Workers that die, hang, flood or lie: calls fail, nothing hangs, and the next call finds a new worker.

use std::fmt::Write as _;
use std::time::Duration;

use tempfile::TempDir;
use turnbuckle::Outcome;
use turnbuckle::hook::{HookEntry, Point};
use turnbuckle::models::ScriptReply;
use turnbuckle::testing::Rig;
use turnbuckle_tools::{CommandLine, WorkerHook};

use crate::worker::agent;

/// A worker without an SDK. `body` is run for each call, with its `id` and the `count` of calls in this process.
pub(crate) fn raw(body: &str) -> (TempDir, WorkerHook) {
    let folder = TempDir::new().unwrap();
    let mut script = String::from(
        "import json, os, sys, time\n\
         def send(**m): print(json.dumps(dict(m, jsonrpc='2.0')), flush=True)\n\
         open('starts', 'a').write('x')\n\
         starts, count = os.path.getsize('starts'), 0\n\
         for line in sys.stdin:\n\
         \x20   m = json.loads(line); id = m.get('id')\n\
         \x20   if m['method'] == 'initialize':\n\
         \x20       send(id=id, result={'protocol': 1, 'hooks': [{'name': 'h', 'point': 'before_agent'}]})\n\
         \x20       continue\n\
         \x20   if m['method'] == 'cancel': continue\n\
         \x20   count += 1\n",
    );
    for line in body.lines() {
        let _ = writeln!(script, "    {line}");
    }
    std::fs::write(folder.path().join("hooks.py"), script).unwrap();
    let line = CommandLine::Argv(vec!["python3".into(), "hooks.py".into()]);
    let hook = WorkerHook::new("raw", [Point::BeforeAgent], line, folder.path()).unwrap();
    (folder, hook)
}

pub(crate) const GO_ON: &str = "send(id=id, result={'decision': 'continue'})";

pub(crate) async fn reasons(hook: impl Into<HookEntry>, turns: usize) -> Vec<Option<String>> {
    let replies = std::iter::repeat_with(|| ScriptReply::says("done")).take(turns);
    let mut rig = Rig::new(agent(replies).hook(hook).build().unwrap());
    let mut reasons = Vec::new();
    for _ in 0..turns {
        let ended = rig.ended("go").await.unwrap();
        assert_eq!(ended.outcome == Outcome::Failed, ended.reason.is_some());
        reasons.push(ended.reason.map(|reason| reason.to_string()));
    }
    reasons
}

#[tokio::test]
async fn one_process_answers_many_calls() {
    let (folder, hook) = raw(GO_ON);
    assert_eq!(reasons(hook, 5).await, vec![None; 5]);
    assert_eq!(std::fs::read_to_string(folder.path().join("starts")).unwrap(), "x");
}

#[tokio::test]
async fn a_decision_beside_half_of_a_sign_is_read() {
    let cut =
        r#"print('{"jsonrpc":"2.0","id":%d,"result":{"decision":"halt","reason":"not \\ud83d"}}' % id, flush=True)"#;
    let (_folder, hook) = raw(cut);
    let mut rig = Rig::new(agent([]).hook(hook).build().unwrap());
    let ended = rig.ended("go").await.unwrap();
    assert_eq!((ended.outcome, ended.reason.as_deref()), (Outcome::Halted, Some("not \u{fffd}")));
}

#[tokio::test]
async fn a_worker_that_dies_fails_its_call_and_is_started_again() {
    let (folder, hook) = raw(&format!("if starts == 1: sys.exit('out of luck')\n{GO_ON}"));
    let reasons = reasons(hook, 2).await;
    let first = reasons[0].as_deref().unwrap();
    assert!(first.contains("exit status: 1") && first.contains("out of luck"), "{first}");
    assert_eq!(reasons[1], None);
    assert_eq!(std::fs::read_to_string(folder.path().join("starts")).unwrap(), "xx");
}

#[tokio::test]
async fn a_worker_that_keeps_dying_is_started_ever_more_rarely() {
    let (folder, hook) = raw("sys.exit(1)");
    let began = std::time::Instant::now();
    let reasons = reasons(hook, 8).await;
    assert!(reasons.iter().all(Option::is_some));
    assert!(reasons[7].as_deref().unwrap().contains("is started again in"), "{reasons:?}");
    assert!(std::fs::read(folder.path().join("starts")).unwrap().len() < 8);
    assert!(began.elapsed() < Duration::from_secs(20), "calls do not wait for long pauses");
}

#[tokio::test]
async fn what_is_no_protocol_ends_the_worker_and_says_why() {
    for (lie, why) in [
        ("print('hello', flush=True)", "logs belong on stderr"),
        ("send(id=999, result={'decision': 'continue'})", "answer to call 999"),
        ("send(method='progress', params={'call': 999, 'text': 'x'})", "progress of call 999"),
        ("send(method='launch', id=1, params={})", "\"launch\""),
        ("send(id=id)", "neither an answer"),
        ("sys.stdout.write('x' * 5000000); sys.stdout.flush()", "more than 4194304 bytes"),
        ("for n in range(100000): send(method='progress', params={'call': id, 'text': 'x'})", "more than 1000 reports"),
        ("print('[' * 200000, flush=True)", "logs belong on stderr"),
        (
            "print('{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":%s' % (id, '[' * 1000 + ']' * 1000 + '}'), flush=True)",
            "recursion limit",
        ),
        (
            "sys.stdout.buffer.write(b'{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"decision\":\"\\xff\"}}\\n' % id); sys.stdout.flush()",
            "no message",
        ),
        ("while True: sys.stdout.write('x' * 65536)", "more than 4194304 bytes"),
        ("send(id=id, result={'decision': 'continue'}, error={'code': 1, 'message': 'x'})", "neither an answer"),
        ("send(id=str(id), result={'decision': 'continue'})", "neither an answer"),
    ] {
        let (_folder, hook) = raw(&format!("if starts == 1:\n    {lie}\nelse: {GO_ON}"));
        let reasons = reasons(hook, 2).await;
        assert!(reasons[0].as_deref().is_some_and(|reason| reason.contains(why)), "{lie}: {reasons:?}");
        assert_eq!(reasons[1], None, "{lie}");
    }
}

#[tokio::test]
async fn an_answer_that_the_point_does_not_take_fails_the_call_only() {
    for answer in
        ["{'decision': 'deny', 'reason': 'x'}", "{}", "{'decision': 'halt'}", "{'decision': 'continue', 'x': 1}"]
    {
        let (folder, hook) = raw(&format!("if count == 1: send(id=id, result={answer})\nelse: {GO_ON}"));
        let reasons = reasons(hook, 2).await;
        assert!(reasons[0].as_deref().unwrap().contains("`before_agent` does not take"), "{reasons:?}");
        assert_eq!(reasons[1], None);
        assert_eq!(std::fs::read_to_string(folder.path().join("starts")).unwrap(), "x");
    }
}

#[tokio::test]
async fn a_worker_that_hangs_is_replaced_once_it_ignored_a_cancellation() {
    let (folder, hook) = raw(&format!("if starts == 1:\n    open('asleep', 'w')\n    time.sleep(1000)\n{GO_ON}"));
    let hook = hook.reaction_time(Duration::from_millis(50));
    let replies = std::iter::repeat_with(|| ScriptReply::says("done")).take(9);
    let mut rig = Rig::new(agent(replies).hook(hook).build().unwrap());
    let clock = rig.clock.clone();
    let time_is_up = async {
        while !folder.path().join("asleep").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        clock.advance(HookEntry::DEFAULT_TIMEOUT);
    };
    let (ended, ()) = tokio::join!(rig.ended("go"), time_is_up);
    let reason = ended.unwrap().reason.unwrap();
    assert!(reason.contains("took longer than 1m"), "{reason}");
    // Whether the next call is still given to the worker that hangs depends on the reaction time; it fails then, and no later.
    while std::fs::read(folder.path().join("starts")).unwrap().len() < 2 {
        rig.ended("go").await.unwrap();
    }
    assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Completed);
}

#[tokio::test]
async fn a_worker_must_serve_the_points_that_were_declared() {
    let (folder, _) = raw(GO_ON);
    let line = CommandLine::Argv(vec!["python3".into(), "hooks.py".into()]);
    let points = [Point::BeforeAgent, Point::BeforeTool];
    let hook = WorkerHook::new("raw", points, line, folder.path()).unwrap();
    let reasons = reasons(hook, 1).await;
    let reason = reasons[0].as_deref().unwrap();
    assert!(reason.contains("serves before_agent, and `on` says before_agent, before_tool"), "{reason}");
}

#[test]
fn a_worker_may_be_at_any_point_but_not_at_none() {
    let built = |points: &[Point]| WorkerHook::new("raw", points.to_vec(), CommandLine::Shell("true".into()), ".");
    assert!(Point::ALL.into_iter().all(|point| built(&[point]).is_ok()));
    assert_eq!(built(&[]).unwrap_err().option, "on");
}

#[tokio::test]
async fn a_worker_ends_with_its_agent() {
    let (folder, hook) = raw(&format!("open('pid', 'w').write(str(os.getpid()))\n{GO_ON}"));
    assert_eq!(reasons(hook, 1).await, [None]);
    let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap();
    let alive = || std::path::Path::new("/proc").join(&pid).join("exe").read_link().is_ok();
    for _ in 0..500 {
        if !alive() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it is still there");
}

//! A thousand calls that wait, answered by fifty processes at once: each answer that was acknowledged is in the log, each
//! approval is used exactly once, and no two answers that contradict each other are acknowledged.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::json;
use turnbuckle::access::RoleAccess;
use turnbuckle::conversation::ResolveError;
use turnbuckle::event::{EventKind, Resolved};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::Answer;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Conversations, Scope, TurnStatus};
use turnbuckle_stores::SqliteStore;

use crate::program::Folder;

const CALLS: usize = 1_000;
const PROCESSES: usize = 50;
/// The processes that answer a call, from its number on. Their distances are odd, so that some approve and some deny.
const CONTENDERS: [usize; 3] = [0, 17, 33];
/// How many turns are under way at once.
const AT_ONCE: usize = 64;
/// Set for a process that answers: the database, and its number.
const WORKER: &str = "TURNBUCKLE_LOAD_WORKER";

fn name(call: usize) -> String {
    format!("talk{call:04}")
}

fn answer_of(worker: usize) -> Answer {
    if worker.is_multiple_of(2) { Answer::Approve } else { Answer::Deny(Some("no".into())) }
}

/// How often the tool ran, by conversation.
type Paid = Arc<Mutex<HashMap<String, usize>>>;

fn clerk(paid: &Paid, store: SqliteStore) -> Conversations {
    let paid = paid.clone();
    let refund = function_with_schema("refund", "Pays.", json!({ "type": "object" }), Effect::Never, move |turn, _| {
        *paid.lock().unwrap().entry(turn.conversation().to_string()).or_default() += 1;
        async { Ok("paid") }
    });
    let script = Script::of([ScriptReply::calls("c1", "refund", json!({})), ScriptReply::says("done")]);
    let agent = Agent::builder("clerk", script).tool(refund.requires_approval()).build().unwrap();
    let access = RoleAccess { answer: vec!["manager".into()], ..RoleAccess::default() };
    Conversations::builder(agent, store).access(access).build()
}

/// Does something in every conversation, some of them at once.
async fn for_all<F: Future<Output = ()> + Send + 'static>(mut work: impl FnMut(usize) -> F) {
    let mut tasks = tokio::task::JoinSet::new();
    for call in 0..CALLS {
        if tasks.len() >= AT_ONCE {
            tasks.join_next().await.unwrap().unwrap();
        }
        tasks.spawn(work(call));
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

/// One of the processes. It is this test program, started once more.
#[tokio::test]
#[ignore = "started by the test below"]
async fn worker_process() {
    let Ok(given) = std::env::var(WORKER) else { return };
    let (worker, file) = given.split_once(' ').unwrap();
    let worker: usize = worker.parse().unwrap();
    let desk = Conversations::without_agent(SqliteStore::open(file).unwrap()).build();
    let scope = Scope::user(format!("w{worker}")).role("manager");
    println!("\nready");
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    for call in 0..CALLS {
        if !CONTENDERS.iter().any(|distance| (call + distance) % PROCESSES == worker) {
            continue;
        }
        match desk.answer(&name(call).into(), &"c1".into(), answer_of(worker), None, scope.clone()).await {
            Ok(recorded) => println!("ack {call} {}", recorded.is_stored_for_owner),
            Err(ResolveError::Stale { .. }) => println!("stale {call}"),
            Err(error) => println!("trouble {call} {error:?}"),
        }
    }
    println!("over");
}

fn start(worker: usize, file: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["load::worker_process", "--exact", "--ignored", "--nocapture"]);
    command.env(WORKER, format!("{worker} {file}")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim() != "ready" {
        line.clear();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "worker {worker} did not start");
    }
    (child, out)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_answered_by_fifty_processes_at_once_are_each_answered_and_used_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let (paid, began) = (Paid::default(), Instant::now());
    let desk = clerk(&paid, SqliteStore::open(&path).unwrap());
    for_all(|call| {
        let desk = desk.clone();
        async move {
            let status = desk.turn(&name(call).into(), "pay", Scope::user("ann")).await.unwrap();
            assert!(matches!(status, TurnStatus::Waiting(_)));
        }
    })
    .await;
    let asked = began.elapsed();
    let mia = Scope::user("mia").role("manager");
    let listing = Instant::now();
    assert_eq!(desk.pending(mia.clone()).await.unwrap().len(), CALLS);
    let listing = listing.elapsed();

    let mut workers: Vec<_> = (0..PROCESSES).map(|worker| start(worker, path.to_str().unwrap())).collect();
    let answering = Instant::now();
    workers.iter_mut().for_each(|(child, _)| child.stdin.take().unwrap().write_all(b"go\n").unwrap());
    // By call: who was told that their answer counts. They run side by side, and each is read to its end.
    let (mut acknowledged, mut stale) = (BTreeMap::<usize, Vec<usize>>::new(), 0);
    for (worker, (child, out)) in workers.iter_mut().enumerate() {
        let lines: Vec<String> = out.lines().map(Result::unwrap).collect();
        assert!(lines.iter().any(|line| line == "over"), "worker {worker}: {lines:?}");
        for line in &lines {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["ack", call, _] => acknowledged.entry(call.parse().unwrap()).or_default().push(worker),
                ["stale", _] => stale += 1,
                ["trouble", ..] => panic!("worker {worker}: {line}"),
                _ => {}
            }
        }
        assert!(child.wait().unwrap().success());
    }
    let answering = answering.elapsed();
    assert_eq!(acknowledged.len(), CALLS, "every call has an answer");
    for (call, by) in &acknowledged {
        assert_eq!(by.len(), 1, "call {call}: several were told that their answer counts: {by:?}");
    }
    assert_eq!(stale, CALLS * (CONTENDERS.len() - 1), "and everybody else that theirs does not");
    assert!(desk.pending(mia).await.unwrap().is_empty());

    let carrying_on = Instant::now();
    for_all(|call| {
        let desk = desk.clone();
        async move {
            if let Some(turn) = desk.resume(&name(call).into(), Scope::user("ann")).await.unwrap() {
                assert!(matches!(turn.wait().await.unwrap(), TurnStatus::Ended(_)));
            }
        }
    })
    .await;
    let carrying_on = carrying_on.elapsed();
    for (call, by) in &acknowledged {
        let log = desk.log(&name(*call).into(), Scope::user("ann")).await.unwrap();
        let resolutions = log.iter().filter_map(|event| match &event.kind {
            EventKind::Resolution { decision, by, .. } => Some((*decision, by.to_string())),
            _ => None,
        });
        let approved = by[0].is_multiple_of(2);
        let decision = if approved { Resolved::Approved } else { Resolved::Denied };
        assert_eq!(resolutions.collect::<Vec<_>>(), [(decision, format!("user w{}", by[0]))], "call {call}");
        let started = log.iter().filter(|event| matches!(event.kind, EventKind::ToolStarted { .. })).count();
        let ran = paid.lock().unwrap().get(&name(*call)).copied().unwrap_or_default();
        assert_eq!((started, ran), (usize::from(approved), usize::from(approved)), "call {call}");
    }
    println!(
        "{CALLS} calls asked in {asked:?}, listed in {listing:?}, {} answers of {PROCESSES} processes in {answering:?}, turns \
         carried on in {carrying_on:?}",
        CALLS * CONTENDERS.len()
    );
}

#[test]
fn of_fifty_commands_that_answer_one_call_at_once_one_is_told_that_it_counts() {
    let write =
        r#"{ "tool_calls": [{ "id": "c1", "name": "write_file", "arguments": { "path": "a", "content": "x" } }] }"#;
    let folder = Folder::with_script(&format!(r#"{write}, {{ "text": "done" }}"#));
    folder.run(&["run", "-c", "w", "go"]).exits(4);
    let answer = |nth: usize| if nth.is_multiple_of(2) { "--approve" } else { "--deny" };
    let start = |nth: usize| folder.command(&["answer", "w", "c1", answer(nth), "--json"]).spawn().unwrap();
    let children: Vec<Child> = (0..PROCESSES).map(start).collect();
    let outputs: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    let taken: Vec<usize> = (0..PROCESSES).filter(|nth| outputs[*nth].status.code() == Some(0)).collect();
    for output in outputs.iter().filter(|output| output.status.code() != Some(0)) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("stale"), "{said}");
    }
    let [taken] = taken[..] else { panic!("{taken:?} were told that their answer counts") };
    folder.run(&["run", "-c", "w"]).exits(0).prints("done\n");
    let shown = folder.run(&["show", "w", "--json"]);
    let decision = if taken.is_multiple_of(2) { "approved" } else { "denied" };
    assert_eq!(shown.event("resolution")["decision"], decision);
    assert_eq!(shown.out.matches("\"resolution\"").count(), 1);
    assert_eq!(folder.read("a"), if taken.is_multiple_of(2) { "x" } else { "" });
}

//! Calls that several people must approve, answered by many processes at once that approve, deny and change arguments. What is
//! acknowledged is in the log and counts; nothing else is. Nothing that was acknowledged stays in an inbox.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnbuckle::access::{ApproveRule, RoleAccess};
use turnbuckle::conversation::ResolveError;
use turnbuckle::event::{EventKind, Resolved};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::{Answer, ConversationStatus, InboxFilter, Store as _};
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Conversations, Scope, TurnStatus};
use turnbuckle_stores::SqliteStore;

const CALLS: usize = 30;
const PROCESSES: usize = 10;
/// Set for a process that answers: its number, and the database.
const WORKER: &str = "TURNBUCKLE_SEVERAL_WORKER";

fn name(call: usize) -> String {
    format!("talk{call:03}")
}

/// Most approve. Each call has other people who deny it and who change it.
fn answer_of(worker: usize, call: usize) -> Answer {
    match (worker * 7 + call * 3) % 10 {
        0 => Answer::Deny(Some("no".into())),
        1 | 2 if call.is_multiple_of(2) => Answer::ApproveWith(Arc::new(json!({ "euro": worker + 100 }))),
        _ => Answer::Approve,
    }
}

/// What ran, by conversation.
type Paid = Arc<Mutex<BTreeMap<String, Vec<Value>>>>;

fn clerk(paid: &Paid, store: SqliteStore, n: u32) -> Conversations {
    let paid = paid.clone();
    let schema = json!({ "type": "object", "properties": { "euro": { "type": "integer" } } });
    let refund = function_with_schema("refund", "Pays.", schema, Effect::Never, move |turn, arguments| {
        paid.lock().unwrap().entry(turn.conversation().to_string()).or_default().push(arguments);
        async { Ok("paid") }
    });
    let script = Script::of([ScriptReply::calls("c1", "refund", json!({ "euro": 5 })), ScriptReply::says("done")]);
    let agent = Agent::builder("clerk", script).tool(refund).build().unwrap();
    let rule = ApproveRule { tool: "refund".into(), by: vec!["manager".into()], not_requester: true, n };
    Conversations::builder(agent, store).access(RoleAccess { approve: vec![rule], ..RoleAccess::default() }).build()
}

/// One of the processes. It is this test program, started once more. Each answer is given in a runtime of its own, which ends
/// with the acknowledgement, as the program does.
#[test]
#[ignore = "started by the test below"]
fn several_worker_process() {
    let Ok(given) = std::env::var(WORKER) else { return };
    let (worker, file) = given.split_once(' ').unwrap();
    let worker: usize = worker.parse().unwrap();
    let scope = Scope::user(format!("w{worker}")).role("manager");
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = SqliteStore::open(file).unwrap();
    println!("\nready");
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    for call in 0..CALLS {
        let (id, answer) = (name(call).into(), answer_of(worker, call));
        let told = runtime().block_on(async {
            if worker % 5 == 4 {
                // Someone at another agent's desk: the answer is recorded, the turn is left to its own agent.
                let shop = Agent::builder("shop", Script::says(["hello"])).build().unwrap();
                let desk = Conversations::builder(shop, store.clone()).build();
                desk.resolve(&id, &"c1".into(), answer, None, scope.clone()).await.map(|_| ())
            } else {
                let desk = Conversations::without_agent(store.clone()).build();
                desk.answer(&id, &"c1".into(), answer, None, scope.clone()).await.map(|_| ())
            }
        });
        match told {
            Ok(()) => println!("ack {call}"),
            Err(ResolveError::Stale { .. }) => println!("stale {call}"),
            Err(error) => println!("trouble {call} {error:?}"),
        }
    }
    println!("over");
}

fn start(worker: usize, file: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["several::several_worker_process", "--exact", "--ignored", "--nocapture"]);
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

/// What the log has of one answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Logged {
    Approved(String),
    Edited(String, i64),
    Denied(String),
}

/// Who was told that their answer counts, by call.
fn acknowledged(file: &str) -> BTreeMap<usize, Vec<usize>> {
    let mut workers: Vec<_> = (0..PROCESSES).map(|worker| start(worker, file)).collect();
    workers.iter_mut().for_each(|(child, _)| child.stdin.take().unwrap().write_all(b"go\n").unwrap());
    let mut told = BTreeMap::<usize, Vec<usize>>::new();
    for (worker, (child, out)) in workers.iter_mut().enumerate() {
        let lines: Vec<String> = out.lines().map(Result::unwrap).collect();
        assert!(lines.iter().any(|line| line == "over"), "worker {worker}: {lines:?}");
        for line in &lines {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["ack", call] => told.entry(call.parse().unwrap()).or_default().push(worker),
                ["trouble", ..] => panic!("worker {worker}: {line}"),
                _ => {}
            }
        }
        assert!(child.wait().unwrap().success());
    }
    told
}

async fn answers_of(n: u32) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let (paid, store) = (Paid::default(), SqliteStore::open(&path).unwrap());
    let (desk, ann) = (clerk(&paid, store.clone(), n), Scope::user("ann"));
    for call in 0..CALLS {
        let status = desk.turn(&name(call).into(), "pay", ann.clone()).await.unwrap();
        assert!(matches!(status, TurnStatus::Waiting(_)));
    }
    let told = acknowledged(path.to_str().unwrap());
    let fresh = Scope::user("zoe").role("manager");
    let waiting: Vec<_> = desk.pending(fresh).await.unwrap().iter().map(|one| one.conversation.to_string()).collect();
    let listed = store.list().await.unwrap();
    for call in 0..CALLS {
        let (id, about) = (name(call).into(), format!("n = {n}, {}", name(call)));
        assert!(store.inbox(&id, InboxFilter::All).await.unwrap().is_empty(), "{about}: an answer is stranded");
        let log = desk.log(&id, ann.clone()).await.unwrap();
        let mut logged = Vec::new();
        let (mut approvals, mut is_denied, mut euro) = (0, false, 5);
        for event in &log {
            let EventKind::Resolution { decision, by, evidence, .. } = &event.kind else { continue };
            assert!(!is_denied && approvals < n, "{about}: {by} answered what was settled: {log:#?}");
            let by = by.to_string();
            match (decision, &evidence.arguments) {
                (Resolved::Denied, _) => (is_denied, _) = (true, logged.push(Logged::Denied(by))),
                (_, Some(arguments)) => {
                    (approvals, euro) = (1, arguments["euro"].as_i64().unwrap());
                    logged.push(Logged::Edited(by, euro));
                }
                (_, None) => {
                    approvals += 1;
                    logged.push(Logged::Approved(by));
                }
            }
            assert_eq!(evidence.open, !is_denied && approvals < n, "{about}");
        }
        let mut claimed: Vec<_> = told
            .get(&call)
            .into_iter()
            .flatten()
            .map(|worker| {
                let by = format!("user w{worker}");
                match answer_of(*worker, call) {
                    Answer::Approve => Logged::Approved(by),
                    Answer::ApproveWith(_) => Logged::Edited(by, *worker as i64 + 100),
                    _ => Logged::Denied(by),
                }
            })
            .collect();
        claimed.sort();
        logged.sort();
        assert_eq!(claimed, logged, "{about}: what was acknowledged is what the log has");
        let is_open = !is_denied && approvals < n;
        let status = listed.iter().find(|one| one.id == id).unwrap().status;
        assert_eq!(matches!(status, ConversationStatus::Waiting { .. }), is_open, "{about}: {status:?}");
        assert_eq!(waiting.contains(&name(call)), is_open, "{about}: pending says otherwise than the log");
        if is_open {
            continue;
        }
        let turn = desk.resume(&id, ann.clone()).await.unwrap().unwrap();
        assert!(matches!(turn.wait().await.unwrap(), TurnStatus::Ended(_)));
        let ran = paid.lock().unwrap().get(&name(call)).cloned().unwrap_or_default();
        assert_eq!(ran, if is_denied { vec![] } else { vec![json!({ "euro": euro })] }, "{about}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_answers_at_once_those_that_are_acknowledged_are_those_that_count() {
    for n in 1..=3 {
        answers_of(n).await;
    }
}

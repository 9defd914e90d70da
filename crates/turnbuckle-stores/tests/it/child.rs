//! Another process: this very binary, told by the environment what to do. It says what it did line by line.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use turnbuckle::ConversationId;
use turnbuckle::store::{Batch, ConversationStatus, LEASE, Lease, Store, StoreError};
use turnbuckle_stores::SqliteStore;

use crate::kit::{NOW, batch, claim, job, said};

const ROLE: &str = "TURNBUCKLE_TEST_CHILD";
const FILE: &str = "TURNBUCKLE_TEST_FILE";

/// A child at work; killed when dropped.
pub struct Other {
    pub process: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    pub fn start(role: &str, file: &Path) -> Self {
        Self::of(Command::new(std::env::current_exe().unwrap()), role, file)
    }

    /// Without the super-user's rights, if the tests have them.
    pub fn start_as_nobody(role: &str, file: &Path) -> Self {
        const NOBODY: u32 = 65534;
        let mut command = Command::new(std::env::current_exe().unwrap());
        if rustix::process::getuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        Self::of(command, role, file)
    }

    fn of(mut command: Command, role: &str, file: &Path) -> Self {
        let mut process = command
            .args(["child::child", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(FILE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, input, lines: BufReader::new(output).lines() }
    }

    /// The next thing it says; `None` when it is gone.
    pub fn next(&mut self) -> Option<String> {
        self.lines.by_ref().map_while(Result::ok).find_map(|line| line.strip_prefix("> ").map(str::to_owned))
    }

    pub fn tell(&mut self) {
        self.input.write_all(b"go\n").unwrap();
        self.input.flush().unwrap();
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _waited = self.process.wait();
    }
}

/// In one write, so that a line is whole or not there, also when the process is killed.
fn say(text: &str) {
    std::io::stdout().lock().write_all(format!("\n> {text}\n").as_bytes()).unwrap();
}

/// Not a test: what the other process does. In the test's own process it does nothing.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let file = std::env::var_os(FILE).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async move {
        if role == "migrate" {
            return migrate(&file);
        }
        let open = || SqliteStore::open(&file).unwrap();
        match role.as_str() {
            "append" => append_for_ever(open()).await,
            "hold" => hold(open()).await,
            "work" => work(open()).await,
            "look" => look(SqliteStore::open_read_only(&file).unwrap()).await,
            other => panic!("no role {other}"),
        }
    });
}

/// Four conversations, each as fast as it can; every acknowledged seq is said.
async fn append_for_ever(store: SqliteStore) {
    let tasks: Vec<_> = (0..4)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move {
                let id = ConversationId::from(format!("c{n}"));
                let claimed = match claim(&store, &id, "w", NOW).await {
                    Err(StoreError::InUse { .. }) => return,
                    claimed => claimed.unwrap(),
                };
                let mut seq = claimed.seq;
                loop {
                    let events =
                        [said(seq + 1, &format!("{id} {}", seq + 1)), said(seq + 2, &format!("{id} {}", seq + 2))];
                    store.append(batch(&id, claimed.epoch, seq, &events)).await.unwrap();
                    seq += 2;
                    say(&format!("{n} {seq}"));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Claims `c`, and writes to it when it is told to.
async fn hold(store: SqliteStore) {
    let id = ConversationId::from("c");
    let claimed = claim(&store, &id, "child", NOW).await.unwrap();
    say("claimed");
    for line in std::io::stdin().lock().lines() {
        line.unwrap();
        let event = [said(claimed.seq + 1, "of the child")];
        let written = store.append(batch(&id, claimed.epoch, claimed.seq, &event)).await;
        say(match written {
            Ok(()) => "written",
            Err(StoreError::Fenced { .. }) => "fenced",
            Err(_) => "failed",
        });
    }
}

/// A turn that runs, and a job that is held; then it waits for its end.
async fn work(store: SqliteStore) {
    let turn = ConversationId::from("turn");
    let epoch = claim(&store, &turn, "child", NOW).await.unwrap().epoch;
    let status = Some(ConversationStatus::Running);
    store.append(Batch { status, ..batch(&turn, epoch, 0, &[said(1, "hi")]) }).await.unwrap();
    let id = ConversationId::from("jobs");
    let epoch = claim(&store, &id, "child", NOW).await.unwrap().epoch;
    let (jobs, job_lease, lease) = (vec![job("memory")], LEASE * 100, Lease::Release);
    store.append(Batch { jobs, job_lease, lease, ..batch(&id, epoch, 0, &[said(1, "hi")]) }).await.unwrap();
    say("at work");
    let _until_killed = std::io::stdin().lock().lines().next();
}

/// Opens the file when it is told to, and says whether it was the one that migrated it.
fn migrate(file: &std::ffi::OsStr) {
    say("ready");
    let _told = std::io::stdin().lock().lines().next();
    match SqliteStore::open(file) {
        Ok(store) => say(if store.backup().is_some() { "migrated" } else { "opened" }),
        Err(error) => say(&format!("failed: {error}")),
    }
    let _until_killed = std::io::stdin().lock().lines().next();
}

/// Says what it sees.
async fn look(store: SqliteStore) {
    let listed = store.list().await.unwrap();
    let log = store.log(&listed[0].id, 1, 99).await.unwrap();
    say(&format!("{} conversations, {} events", listed.len(), log.len()));
}

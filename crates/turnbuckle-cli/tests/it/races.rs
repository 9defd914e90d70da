//! Several processes at one conversation at once: every one of them ends, and says what the log says.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{Folder, Ran};

/// How long a process may take on a busy machine. One that hangs would take for ever.
const LIMIT: Duration = Duration::from_secs(60);

fn write(call: &str) -> String {
    format!(r#"{{ "id": "{call}", "name": "write_file", "arguments": {{ "path": "{call}.txt", "content": "x" }} }}"#)
}

/// An answer on its way: the call, the process that gives it, and how the log has it if it counts.
struct Answering {
    call: String,
    decision: &'static str,
    child: Child,
}

fn answer(folder: &Folder, call: &str, decision: &'static str) -> Answering {
    let options: &[&str] = if decision == "approved" { &["--approve"] } else { &["--deny", "no"] };
    let child = folder.command(&[&["resolve", "w", call], options].concat()).spawn().unwrap();
    Answering { call: call.to_owned(), decision, child }
}

/// The process ends before the limit.
fn ended(mut child: Child) -> Ran {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("it did not end: {:?}", Ran::from(child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ran::from(child.wait_with_output().unwrap())
}

/// How each call was resolved. A call has one resolution.
fn resolutions(folder: &Folder) -> HashMap<String, String> {
    let mut found = HashMap::new();
    for event in folder.run(&["show", "w", "--json"]).exits(0).events() {
        if event["type"] == "resolution" {
            let text = |key: &str| event[key].as_str().unwrap().to_owned();
            assert_eq!(found.insert(text("call"), text("decision")), None, "{event}");
        }
    }
    found
}

/// Whether the answer counts, by the exit code. If it does, the log has it.
fn counts(ran: &Ran, call: &str, decision: &str, resolutions: &HashMap<String, String>) -> bool {
    // 0: the turn is over or was handed over; 4: it waits for another call.
    let counts = [0, 4].contains(&ran.code);
    if counts {
        assert_eq!(resolutions.get(call).map(String::as_str), Some(decision), "call {call}: {ran:?}");
    }
    counts
}

#[test]
fn answers_and_a_cancellation_at_once_all_end_and_agree_with_the_log() {
    for round in 0..40 {
        let folder = Folder::with_script(&format!(
            r#"{{ "tool_calls": [{}, {}] }}, {{ "text": "done" }}"#,
            write("c1"),
            write("c2")
        ));
        folder.run(&["run", "-c", "w", "go"]).exits(4);
        let mut given = [("c1", "approved"), ("c2", "approved"), ("c1", "denied"), ("c2", "denied")];
        given.rotate_left(round % 4);
        // The cancellation is started before, between or after the answers.
        let (first, second) = given.split_at(round % 5);
        let start = |given: &[(&str, &'static str)]| -> Vec<Answering> {
            given.iter().map(|(call, decision)| answer(&folder, call, decision)).collect()
        };
        let first = start(first);
        let cancel = folder.command(&["cancel", "w"]).spawn().unwrap();
        let answers = first.into_iter().chain(start(second));
        let ran: Vec<_> = answers.map(|given| (given.call, given.decision, ended(given.child))).collect();
        ended(cancel).exits(0);
        let resolved = resolutions(&folder);
        for (call, decision, ran) in ran {
            counts(&ran, &call, decision, &resolved);
        }
        for call in ["c1", "c2"] {
            let approved = resolved.get(call).is_some_and(|decision| decision == "approved");
            let exists = folder.path().join(format!("{call}.txt")).exists();
            // Between the approval and the tool the turn may be cancelled.
            assert!(approved || !exists, "round {round}: {call} ran without approval");
        }
        folder.run(&["run", "-c", "w"]).exits(0).says("has no open turn");
    }
}

#[test]
fn of_two_answers_without_an_owner_one_counts_and_it_is_that_of_the_log() {
    for round in 0..16 {
        let folder = Folder::with_script(&format!(r#"{{ "tool_calls": [{}] }}, {{ "text": "done" }}"#, write("c1")));
        folder.run(&["run", "-c", "w", "go"]).exits(4);
        check_contradiction(&folder, &["c1"], round);
        assert_eq!(folder.path().join("c1.txt").exists(), resolutions(&folder)["c1"] == "approved");
    }
}

#[test]
fn of_two_answers_to_an_owner_one_counts_and_it_is_that_of_the_log() {
    let folder = Folder::new();
    let calls: Vec<String> = (0..16).map(|number| format!("c{number}")).collect();
    let writes: Vec<String> = calls.iter().map(|call| write(call)).collect();
    // The sub-agent keeps the owner at work until it is cancelled.
    let slow = format!(r#"{{ "chunks": [{}"end"], "delay_ms": 100 }}"#, "\"x \",".repeat(3_000));
    let reviewer = r#"{ "id": "r", "name": "reviewer", "arguments": { "task": "look" } }"#;
    folder.file(
        "script.json",
        &format!(
            r#"{{ "replies": [{{ "tool_calls": [{}, {reviewer}] }}], "agents": {{ "reviewer": [{slow}] }} }}"#,
            writes.join(", ")
        ),
    );
    folder.file("turnbuckle.toml", "[agent]\nmodel = \"script:script.json\"\n[[agents]]\nname = \"reviewer\"\n");
    let told = std::fs::File::create(folder.path().join("told")).unwrap();
    let owner = folder.command(&["run", "-c", "w", "--json", "go"]).stdout(told).spawn().unwrap();
    let began = Instant::now();
    while folder.read("told").matches("\"suspension\"").count() < calls.len()
        || !folder.read("told").contains("tool_progress")
    {
        assert!(began.elapsed() < LIMIT, "{}", folder.read("told"));
        std::thread::sleep(Duration::from_millis(20));
    }
    for (round, some) in calls.chunks(4).enumerate() {
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        check_contradiction(&folder, &some, round);
    }
    folder.run(&["cancel", "w"]).exits(0).says("was cancelled by the process that has it");
    ended(owner).exits(130);
    for (call, decision) in resolutions(&folder) {
        let exists = folder.path().join(format!("{call}.txt")).exists();
        assert_eq!(exists, decision == "approved", "{call}: {decision}");
    }
}

/// Two processes answer each of the calls, one with yes and one with no.
fn check_contradiction(folder: &Folder, calls: &[&str], round: usize) {
    let mut decisions = ["approved", "denied"];
    decisions.rotate_left(round % 2);
    let given: Vec<Answering> =
        calls.iter().flat_map(|call| decisions.map(|decision| answer(folder, call, decision))).collect();
    let ran: Vec<_> = given.into_iter().map(|given| (given.call, given.decision, ended(given.child))).collect();
    let resolved = resolutions(folder);
    for call in calls {
        let of_call = ran.iter().filter(|(answered, ..)| answered == call);
        let counted = of_call.filter(|(_, decision, ran)| counts(ran, call, decision, &resolved)).count();
        assert_eq!(counted, 1, "round {round}, call {call}: {ran:?}");
    }
}

/// Processor time, in seconds, of a turn with so many calls. It does not depend on what else the machine does, as time on the
/// clock would.
fn work(calls: usize) -> f64 {
    let call = |number| format!(r#"{{ "id": "c{number}", "name": "read_file", "arguments": {{ "path": "a" }} }}"#);
    let calls: Vec<String> = (0..calls).map(call).collect();
    let replies = format!(r#"{{ "tool_calls": [{}] }}, {{ "text": "done" }}"#, calls.join(", "));
    let folder = Folder::with_config(&replies, "[limits]\ncontext_tokens = 1000000\n");
    folder.file("a", "x");
    let run = folder.command(&["run", "-c", "w", "--json", "go"]);
    // The second line of `times` is the time of the shell's children, in the form 0m0.130s 0m0.030s.
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\" >/dev/null || exit 1; times", "sh"]).arg(run.get_program()).args(run.get_args());
    shell.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let times = Ran::of(shell).exits(0).out;
    let seconds = |time: &str| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
        minutes.parse::<f64>().unwrap() * 60.0 + seconds.replace(',', ".").parse::<f64>().unwrap()
    };
    times.lines().nth(1).unwrap().split_whitespace().map(seconds).sum()
}

#[test]
fn a_reply_with_many_calls_costs_as_much_as_its_calls() {
    let work = [500, 1_000, 2_000].map(work);
    for pair in work.windows(2) {
        assert!(pair[1] < 3.0 * pair[0], "twice the calls, and more than three times the work: {work:?}");
    }
}

/// A process that has conversation `w`, whose call `c1` waits while a sub-agent speaks, and its output: if nobody had that, the
/// turn would be cancelled.
pub(crate) fn busy_owner(folder: &Folder) -> (Child, impl Iterator<Item = String>) {
    let slow = format!(r#"{{ "chunks": [{}"fine"], "delay_ms": 100 }}"#, "\"x \",".repeat(300));
    let review = r#"{ "id": "s1", "name": "reviewer", "arguments": { "task": "look" } }"#;
    let replies = format!(r#"{{ "tool_calls": [{}, {review}] }}, {{ "text": "done" }}"#, write("c1"));
    folder.file("script.json", &format!(r#"{{ "replies": [{replies}], "agents": {{ "reviewer": [{slow}] }} }}"#));
    folder.file("turnbuckle.toml", "[agent]\nmodel = \"script:script.json\"\n[[agents]]\nname = \"reviewer\"\n");
    let mut owner = folder.command(&["run", "-c", "w", "--json", "go"]).spawn().unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (mut asked, mut speaks) = (false, false);
    while !(asked && speaks) {
        let line = lines.next().unwrap();
        asked |= line.contains("\"suspension\"");
        speaks |= line.contains("tool_progress");
    }
    (owner, lines)
}

/// An answer that is in an inbox was acknowledged. Whoever ends the turn records it, with the standing approval that it begins,
/// also if the process that it was handed over to is gone.
#[test]
fn an_answer_that_was_handed_over_and_its_standing_approval_are_recorded_though_the_owner_dies_and_the_turn_is_cancelled()
 {
    for command in ["answer", "resolve"] {
        // The process looks into its inbox every second: mostly it is gone before it finds the answer.
        for _ in 0..5 {
            check_answer_to_an_owner_that_is_killed(command);
        }
    }
}

fn check_answer_to_an_owner_that_is_killed(command: &str) {
    let folder = Folder::new();
    let (mut owner, _lines) = busy_owner(&folder);
    let giving = folder.command(&[command, "w", "c1", "--approve", "--always"]).spawn().unwrap();
    // What has an answer in the inbox is no longer listed.
    let patience = Instant::now() + LIMIT;
    while !folder.run(&["pending"]).exits(0).out.is_empty() {
        assert!(Instant::now() < patience, "nothing was handed over");
        std::thread::sleep(Duration::from_millis(5));
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    folder.run(&["cancel", "w"]).exits(0);
    let ran = ended(giving);
    assert_eq!(resolutions(&folder).get("c1").map(String::as_str), Some("approved"), "{ran:?}");
    let kept = folder.run(&["approvals", "--json"]).exits(0).events();
    assert_eq!(kept.len(), 1, "{ran:?}\n{kept:?}");
}

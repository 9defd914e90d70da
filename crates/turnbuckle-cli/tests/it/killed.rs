//! `run` on SQLite killed with SIGKILL at random moments: what was told is in the store, and the turn ends all the same.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::program::{Folder, Ran};

/// Over all workers.
const KILLS: usize = 200;
const WORKERS: usize = 2;
/// So often one turn is killed before it is left in peace.
const KILLS_A_TURN: usize = 4;

const CONFIG: &str = "[store]\nurl = \"sqlite:kept/here.db\"\n[tools]\napprove = []\n";
const REPLIES: &str = r#"
    { "chunks": ["let ", "me ", "look"], "delay_ms": 4, "tool_calls": [
        { "id": "c1", "name": "list_files", "arguments": {} },
        { "id": "c2", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } } ] },
    { "chunks": ["and ", "read"], "delay_ms": 4, "tool_calls": [
        { "id": "c3", "name": "read_file", "arguments": { "path": "a.txt" } } ] },
    { "chunks": ["it ", "is ", "done"], "delay_ms": 4 }"#;

/// A small generator: the same seed, the same moments.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Events by seq, cursors aside: a log line is told with one and read back with another.
type Log = BTreeMap<u64, Value>;

fn log_of(lines: &str) -> Log {
    // A line that the kill cut short was not told.
    let whole = lines.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let events = whole.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let logged = events.filter(|event| event["plane"] == "log").map(|mut event| {
        event.as_object_mut().unwrap().remove("cursor");
        (event["seq"].as_u64().unwrap(), event)
    });
    logged.collect()
}

/// One conversation with one turn, told by processes that die.
struct Talk<'a> {
    folder: &'a Folder,
    id: String,
    told: Log,
}

impl Talk<'_> {
    fn stored(&self) -> Log {
        let shown = self.folder.run(&["show", &self.id, "--json"]);
        if shown.code == 0 { log_of(&shown.out) } else { Log::new() }
    }

    /// To go on, or to say it anew.
    fn arguments(&self, anew: bool) -> Vec<&str> {
        let mut arguments = vec!["run", "--json", "-c", &self.id];
        arguments.extend(anew.then_some("go"));
        arguments
    }

    /// Starts a process and kills it; true if it still lived.
    fn kill_after(&mut self, life: Duration, anew: bool) -> bool {
        let mut child = self.folder.command(&self.arguments(anew)).spawn().unwrap();
        std::thread::sleep(life);
        let lived = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        child.wait().unwrap();
        self.told.append(&mut log_of(&out));
        lived
    }

    /// What was told is in the store, as it was told, and nothing is missing before it.
    fn check(&self, when: &str) -> Log {
        let stored = self.stored();
        for (seq, event) in &self.told {
            assert_eq!(stored.get(seq), Some(event), "{} {when}: event {seq} was told", self.id);
        }
        assert!(stored.keys().copied().eq(1..=stored.len() as u64), "{} {when}: {stored:#?}", self.id);
        stored
    }

    /// Finishes the open turn, if there is one.
    fn go_on(&mut self) -> Ran {
        let ran = self.folder.run(&self.arguments(false));
        self.told.append(&mut log_of(&ran.out));
        ran
    }

    /// Left in peace, the turn ends: once, with one result for every call.
    fn finish(&mut self) {
        let mut ran = self.go_on();
        if self.stored().is_empty() {
            // It died before the message was stored.
            ran = self.folder.run(&self.arguments(true));
        }
        let Ran { out, .. } = ran.exits(0);
        self.told.append(&mut log_of(&out));
        let stored = self.check("at its end");
        let count = |kind: &str, call: Option<&str>| {
            let is = |event: &&Value| event["type"] == kind && call.is_none_or(|call| event["call"] == call);
            stored.values().filter(is).count()
        };
        assert_eq!((count("user_message", None), count("turn_ended", None)), (1, 1), "{stored:#?}");
        assert_eq!(stored.values().last().unwrap()["outcome"], "completed", "{stored:#?}");
        for call in ["c1", "c2", "c3"] {
            let (called, results) = (count("tool_call", Some(call)), count("tool_result", Some(call)));
            assert_eq!((called, results), (1, 1), "{} {call}: {stored:#?}", self.id);
            assert!(count("tool_started", Some(call)) <= 1, "{} {call}: {stored:#?}", self.id);
        }
    }
}

fn has_ended(log: &Log) -> bool {
    log.values().any(|event| event["type"] == "turn_ended")
}

/// Kills until it has killed often enough; says at how many different lengths of the log.
fn work(mut dice: Dice, kills: usize) -> usize {
    let folder = Folder::with_config(REPLIES, CONFIG);
    let (mut killed, mut lengths) = (0, std::collections::BTreeSet::new());
    // As long as a turn takes that nobody kills, on this machine and now, so that kills come everywhere in it.
    let began = Instant::now();
    folder.run(&["run", "--json", "-c", "undisturbed", "go"]).exits(0);
    let longest_life = u64::try_from(began.elapsed().as_micros()).unwrap();
    for number in 0.. {
        let mut talk = Talk { folder: &folder, id: format!("talk{number}"), told: Log::new() };
        for round in 0..KILLS_A_TURN {
            // From outside nobody can tell whether a message that left no event was stored: going on does.
            if round > 0 && talk.stored().is_empty() {
                talk.go_on();
            }
            let stored = talk.stored();
            if has_ended(&stored) {
                break;
            }
            let lived = talk.kill_after(Duration::from_micros(dice.below(longest_life)), stored.is_empty());
            let stored = talk.check("after a kill");
            if lived {
                killed += 1;
                lengths.insert(stored.len());
            }
        }
        talk.finish();
        if killed >= kills {
            return lengths.len();
        }
    }
    lengths.len()
}

#[test]
fn killed_two_hundred_times_nothing_told_is_lost_and_every_turn_ends() {
    let given = std::env::var("TURNBUCKLE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64);
    println!("seed {seed}: run again with TURNBUCKLE_SEED={seed}");
    let began = Instant::now();
    let lengths: usize = std::thread::scope(|scope| {
        let seeds =
            (0..WORKERS as u64).map(|worker| (seed | 1).wrapping_add(worker.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let workers: Vec<_> =
            seeds.map(|seed| scope.spawn(move || work(Dice(seed), KILLS.div_ceil(WORKERS)))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).max().unwrap()
    });
    println!("{KILLS} kills at {lengths} lengths of the log in {:?}", began.elapsed());
    assert!(lengths > 4, "the kills came at {lengths} lengths of the log only");
}

//! The process that watches: it waits for the other one to end, and ends what that one left.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, setsid};

use super::identity::{group_leaders, group_lives, now, started};
use super::{BY_PIPE, VARIABLE, has_variable, noted, record};

/// How long a program is looked for that was started in the moment in which its process was killed.
pub(super) const SEARCH: Duration = Duration::from_millis(700);
/// How long to wait until the killed are gone. A process in the middle of a disk access may take longer.
pub(super) const GOING: Duration = Duration::from_millis(500);
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// A program that the other process has started or was about to start.
#[derive(Default)]
struct Program {
    group: Option<Group>,
}

struct Group {
    leader: u32,
    /// When its leader started, to know it again; `None` if it was over by then, or this cannot be found out.
    started: Option<u64>,
}

/// Watches until stdin closes, then ends what is left.
pub(super) fn run(file: Option<&Path>) -> ExitCode {
    match watch(file) {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody reads its stderr: that it never says it watches is what the other process notices.
        Err(_) => ExitCode::FAILURE,
    }
}

fn watch(file: Option<&Path>) -> io::Result<()> {
    // Away from the terminal: Ctrl-C and a closed window are for the process that is watched.
    setsid()?;
    let held = file.map(record::hold).transpose()?;
    io::stdout().write_all(b"\n")?;
    io::stdout().flush()?;
    let (mut programs, mut by_pipe) = (BTreeMap::new(), false);
    for line in io::stdin().lock().lines() {
        // A line that cannot be read ends the watch like the end of the pipe: what is known is ended.
        let Ok(line) = line else { break };
        by_pipe |= line == BY_PIPE;
        note(&mut programs, &line);
    }
    if let (false, Some(file)) = (by_pipe, &held) {
        programs = noted(&record::notes_in(file), now());
    }
    end(programs);
    if let Some(file) = file {
        // Another process that waited for this one may have removed it.
        let _ = std::fs::remove_file(file);
    }
    drop(held);
    Ok(())
}

fn note(programs: &mut BTreeMap<String, Program>, line: &str) {
    let mut words = line.split(' ');
    let (Some(what), Some(token)) = (words.next(), words.next()) else { return };
    let leader = words.next().and_then(|word| word.parse().ok());
    match (what, leader) {
        ("start", _) => drop(programs.insert(token.to_owned(), Program::default())),
        ("group", Some(leader)) => {
            let group = Some(Group { leader, started: started(leader) });
            programs.insert(token.to_owned(), Program { group });
        }
        _ => drop(programs.remove(token)),
    }
}

/// The programs that the notes have. Until its process has reaped the leader of a group, and then notes that it is over, no other
/// process has the leader's number; so one that started after the process ended, which is `now`, is a stranger.
fn noted(notes: &str, now: Option<u64>) -> BTreeMap<String, Program> {
    let mut found = BTreeMap::new();
    for (token, leader) in noted::programs(notes) {
        let group = leader.map(|leader| Group { leader, started: started(leader) });
        let is_stranger = group.as_ref().and_then(|group| group.started).zip(now).is_some_and(|(at, now)| at > now);
        if !is_stranger {
            found.insert(token, Program { group });
        }
    }
    found
}

fn end(programs: BTreeMap<String, Program>) {
    let began = Instant::now();
    let (mut killed, mut sought) = (Vec::new(), Vec::new());
    for (token, program) in programs {
        match program.group {
            Some(group) => killed.extend(group.kill()),
            None => sought.push(format!("{VARIABLE}={token}\0")),
        }
    }
    while !sought.is_empty() && began.elapsed() < SEARCH {
        for leader in group_leaders() {
            let Ok(environment) = std::fs::read(format!("/proc/{leader}/environ")) else { continue };
            let at = sought.iter().position(|token| has_variable(&environment, token.as_bytes()));
            if let Some(at) = at {
                sought.swap_remove(at);
                killed.extend(Group { leader, started: started(leader) }.kill());
            }
        }
        std::thread::sleep(PAUSE);
    }
    let began = Instant::now();
    while began.elapsed() < GOING && killed.iter().any(|group| group_lives(*group)) {
        std::thread::sleep(PAUSE);
    }
}

impl Group {
    /// Kills it, unless its number is another's by now: a process that started at another time has it.
    fn kill(&self) -> Option<u32> {
        let group = i32::try_from(self.leader).ok().filter(|leader| *leader > 1).and_then(Pid::from_raw)?;
        let now = started(self.leader);
        if now.is_some() && now != self.started {
            return None;
        }
        // It may have ended in this moment.
        kill_process_group(group, Signal::KILL).ok().map(|()| self.leader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_another_process_has_by_now_is_not_killed() {
        let mut stranger = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = stranger.id();
        // It leads no group, so nothing could be killed; what is asked is whether it is tried at all.
        let earlier = started(pid).map(|at| at - 1);
        assert!(Group { leader: pid, started: earlier }.kill().is_none());
        assert!(Group { leader: pid, started: None }.kill().is_none());
        assert!(Group { leader: 1, started: started(1) }.kill().is_none());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    #[test]
    fn programs_are_known_from_their_start_to_their_end() {
        let mut programs = BTreeMap::new();
        note(&mut programs, "start a");
        note(&mut programs, "start b");
        note(&mut programs, "group a 12");
        assert_eq!(programs["a"].group.as_ref().map(|group| group.leader), Some(12));
        assert!(programs["b"].group.is_none());
        note(&mut programs, "over a");
        note(&mut programs, "over b");
        note(&mut programs, "");
        assert!(programs.is_empty());
    }

    #[test]
    fn a_leader_that_started_after_the_process_ended_is_a_stranger() {
        let mut program = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let notes = format!("start a\ngroup a {}\nstart b\nstart c\nover c\nstart d", program.id());
        let at = started(program.id()).unwrap();
        assert!(now().unwrap() >= at, "the clock is that of starts");
        let known = noted(&notes, Some(at));
        assert!(known["a"].group.as_ref().is_some_and(|group| group.started == Some(at)));
        assert!(known["b"].group.is_none() && known.len() == 2, "c is over, and the line of d was cut off");
        assert!(!noted(&notes, Some(at - 1)).contains_key("a"));
        program.kill().unwrap();
        program.wait().unwrap();
    }

    #[test]
    fn a_variable_is_compared_as_a_whole() {
        assert!(has_variable(b"A=1\0TURNBUCKLE_PROGRAM=1-2\0", b"TURNBUCKLE_PROGRAM=1-2\0"));
        assert!(!has_variable(b"TURNBUCKLE_PROGRAM=1-23\0", b"TURNBUCKLE_PROGRAM=1-2\0"));
        assert!(!has_variable(b"XTURNBUCKLE_PROGRAM=1-2\0", b"TURNBUCKLE_PROGRAM=1-2\0"));
    }
}

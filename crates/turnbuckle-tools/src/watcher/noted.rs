//! Ending programs by the notes of a process that was killed together with its watcher.
//!
//! Process ids in notes may be others' by now. So nothing is killed but a group in which a process has the token of the program
//! in its environment: that was given to this one program alone.

use std::collections::BTreeMap;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process_group};

use super::identity::{group_lives, processes_with_groups};
use super::server::{GOING, PAUSE, SEARCH};
use super::{VARIABLE, has_variable};

/// Kills the groups of all programs that are noted and not over, and waits until they are gone. False if one lives on.
pub(super) fn end(notes: &str) -> bool {
    let mut programs = programs(notes);
    let began = Instant::now();
    let mut killed = Vec::new();
    while !programs.is_empty() {
        for (process, group) in processes_with_groups() {
            let is_of = |(token, leader): &(&String, &Option<u32>)| match leader {
                Some(leader) => group == *leader && has_token(process, token),
                // It was killed in the moment of starting it: whoever leads a group and has the token is the program.
                None => group == process && has_token(process, token),
            };
            let Some(token) = programs.iter().find(is_of).map(|(token, _)| token.clone()) else { continue };
            programs.remove(&token);
            if kill(group) {
                killed.push(group);
            }
        }
        // A program whose group is known and has no process any more is over. One that was about to start is looked for a while.
        programs.retain(|_, leader| leader.is_none());
        if programs.is_empty() || began.elapsed() > SEARCH {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    let began = Instant::now();
    while killed.iter().any(|group| group_lives(*group)) {
        if began.elapsed() > GOING {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// Those that are not over, by token, with their groups as far as they are noted. A last line without an end was cut off.
pub(super) fn programs(notes: &str) -> BTreeMap<String, Option<u32>> {
    let mut programs = BTreeMap::new();
    for line in notes.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next().and_then(|word| word.parse().ok())) {
            (Some("start"), Some(token), _) => drop(programs.insert(token.to_owned(), None)),
            (Some("group"), Some(token), Some(leader)) => drop(programs.insert(token.to_owned(), Some(leader))),
            (Some("over"), Some(token), _) => drop(programs.remove(token)),
            _ => {}
        }
    }
    programs
}

fn has_token(process: u32, token: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    has_variable(&environment, format!("{VARIABLE}={token}\0").as_bytes())
}

fn kill(group: u32) -> bool {
    let group = i32::try_from(group).ok().filter(|group| *group > 1).and_then(Pid::from_raw);
    // It may have ended in this moment.
    group.is_some_and(|group| kill_process_group(group, Signal::KILL).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command};

    fn sleeping(token: &str) -> Child {
        Command::new("sleep").arg("60").env(VARIABLE, token).process_group(0).spawn().unwrap()
    }

    #[test]
    fn only_a_group_with_the_token_of_the_program_is_killed() {
        let token = format!("test-{}", std::process::id());
        let (mut named, mut starting) = (sleeping(&format!("{token}-a")), sleeping(&format!("{token}-b")));
        let (mut over, mut stranger) = (sleeping(&format!("{token}-c")), sleeping("other"));
        let (leader, other) = (named.id(), stranger.id());
        let notes = format!(
            "start {token}-a\ngroup {token}-a {leader}\nstart {token}-b\nstart {token}-c\nover {token}-c\n\
             start {token}-d\ngroup {token}-d {other}\ngroup {token}-e 1\nover {token}-c"
        );
        assert!(end(&notes));
        assert!(!named.wait().unwrap().success() && !starting.wait().unwrap().success());
        for alive in [&mut over, &mut stranger] {
            assert!(alive.try_wait().unwrap().is_none());
            alive.kill().unwrap();
            alive.wait().unwrap();
        }
    }
}

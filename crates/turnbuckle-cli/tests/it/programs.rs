//! Programs of hooks end with the program that started them, also when it is killed.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::program::Folder;

fn hook(on: &str, run: &str) -> String {
    format!("[[hooks]]\nuse = \"command\"\nname = \"h-{on}\"\non = \"{on}\"\nrun = '''{run}'''\ntimeout = \"10m\"\n")
}

fn folder(hooks: &str) -> Folder {
    Folder::with_config(r#"{ "text": "done" }"#, hooks)
}

/// Processes that work in the folder, dead ones aside.
fn working_in(folder: &Path) -> Vec<u32> {
    let numbers = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter(|pid| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder)).collect()
}

fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if done() {
            return true;
        }
        if began.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn killed_with_sigkill_the_program_takes_the_whole_group_of_a_hook_along() {
    let folder = folder(&hook("before_agent", "exec 3>pipe; (sleep 1000; true) & echo ready >&3; wait"));
    assert!(Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap().success());
    let mut child = folder.command(&["run", "go"]).spawn().unwrap();
    let mut pipe = BufReader::new(std::fs::File::open(folder.path().join("pipe")).unwrap());
    pipe.read_line(&mut String::new()).unwrap();
    let killed = Instant::now();
    kill(&mut child);
    // All of the group hold the pipe, so its end comes when the last of them is gone.
    pipe.read_to_end(&mut Vec::new()).unwrap();
    assert!(killed.elapsed() < SECOND, "{:?}", killed.elapsed());
}

#[test]
fn no_program_survives_a_kill_at_whatever_moment_it_comes() {
    let folder = folder(&hook("before_agent", "sleep 1000 & sleep 1000"));
    let mut ran = 0;
    for round in 0..60 {
        let mut child = folder.command(&["run", "go"]).spawn().unwrap();
        // First the very moments in which the program is started, then later ones.
        let seen = until(Duration::from_secs(20), || working_in(folder.path()).len() > 1 + usize::from(round % 2 == 0));
        assert!(seen || round % 2 == 0);
        std::thread::sleep(Duration::from_micros(round * 50));
        ran += usize::from(seen);
        kill(&mut child);
        let gone = until(SECOND, || working_in(folder.path()).is_empty());
        assert!(gone, "round {round}: {:?} are left", working_in(folder.path()));
    }
    assert!(ran > 30);
}

#[test]
fn a_revived_turn_does_not_start_a_hook_beside_the_one_that_was_left() {
    // The second one looks whether the first still lives. The first ends only when it is killed.
    let run = "if test -e first; then grep -qs '^State:.[^ZX]' /proc/$(cat first)/status && echo beside > beside; exit 0; fi; \
               echo $$ > first.new; mv first.new first; sleep 1000";
    for _ in 0..15 {
        let folder = folder(&hook("before_agent", run));
        let mut child = folder.command(&["run", "-c", "a", "go"]).spawn().unwrap();
        assert!(until(Duration::from_secs(20), || folder.path().join("first").exists()));
        child.kill().unwrap();
        folder.run(&["run", "-c", "a"]).exits(0).prints("done\n");
        assert!(!folder.path().join("beside").exists(), "it ran beside the first");
        child.wait().unwrap();
    }
}

#[test]
fn what_a_program_left_in_the_background_lives_on() {
    let leaves = hook("before_agent", "sleep 60 > /dev/null 2>&1 & echo $! > left; exit 0");
    let lives = |folder: &Folder| {
        let pid: u32 = folder.read("left").trim().parse().unwrap();
        working_in(folder.path()).contains(&pid)
    };
    let end = |folder: &Folder| {
        Command::new("kill").args(["-9", folder.read("left").trim()]).status().unwrap();
    };
    let folder = folder(&leaves);
    folder.run(&["run", "go"]).exits(0);
    assert!(lives(&folder), "after the program ended by itself");
    end(&folder);

    let folder = self::folder(&format!("{leaves}{}", hook("stop", "touch stopping; sleep 1000")));
    let mut child = folder.command(&["run", "go"]).spawn().unwrap();
    assert!(until(Duration::from_secs(20), || folder.path().join("stopping").exists()));
    kill(&mut child);
    let one_left = until(SECOND, || working_in(folder.path()).len() == 1);
    assert!(one_left && lives(&folder), "after the program was killed in another hook");
    end(&folder);
}

/// The process that watches for the one that `of` is.
fn watcher(of: &Child) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", of.id()));
    let tasks = std::fs::read_dir(format!("/proc/{}/task", of.id())).ok()?.flatten();
    let all = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok()).chain(children);
    let pids: Vec<u32> =
        all.flat_map(|line| line.split_whitespace().flat_map(str::parse).collect::<Vec<u32>>()).collect();
    let is = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"turnbuckle-watcher"))
    };
    pids.into_iter().find(is)
}

#[test]
fn there_is_one_watcher_it_ends_with_the_program_and_a_killed_one_is_replaced() {
    let hooks = format!(
        "{}{}",
        hook("before_agent", "touch one; while test ! -e go; do sleep 0.01; done"),
        hook("stop", "touch two; sleep 1000")
    );
    let folder = folder(&hooks);
    let mut child = folder.command(&["run", "go"]).spawn().unwrap();
    let there = |name: &str| until(Duration::from_secs(20), || folder.path().join(name).exists());
    assert!(there("one"));
    let first = watcher(&child).unwrap();
    let environment = std::fs::read(format!("/proc/{first}/environ")).unwrap();
    assert!(environment.is_empty(), "it has an environment: {environment:?}");
    Command::new("kill").args(["-9", &first.to_string()]).status().unwrap();
    folder.file("go", "");
    assert!(there("two"));
    let second = watcher(&child).unwrap();
    assert_ne!(first, second);
    kill(&mut child);
    assert!(until(SECOND, || working_in(folder.path()).is_empty()));
    // Of a process that has ended and is not waited for, nothing is to be read.
    assert!(until(SECOND, || std::fs::read(format!("/proc/{second}/cmdline")).unwrap_or_default().is_empty()));
}

/// Kills the watcher first: it has no time to end anything.
fn kill_with_watcher(child: &mut Child) {
    let watcher = watcher(child).unwrap();
    assert!(
        Command::new("kill").args(["-9", &watcher.to_string(), &child.id().to_string()]).status().unwrap().success()
    );
    child.wait().unwrap();
}

#[test]
fn what_is_left_when_program_and_watcher_are_killed_ends_before_the_next_program_starts() {
    let run = "if test -e first; then grep -qs '^State:.[^ZX]' /proc/$(cat first)/status && echo beside > beside; exit 0; fi; \
               sleep 1000 & echo $$ > first.new; mv first.new first; sleep 1000";
    for round in 0..5 {
        let folder = folder(&hook("before_agent", run));
        let mut child = folder.command(&["run", "-c", "a", "go"]).spawn().unwrap();
        assert!(until(Duration::from_secs(20), || folder.path().join("first").exists()));
        kill_with_watcher(&mut child);
        assert!(working_in(folder.path()).len() > 1, "nobody is left who could end them");
        if round % 2 == 0 {
            folder.run(&["run", "-c", "a"]).exits(0).prints("done\n");
        } else {
            // Whichever process of the user comes first.
            self::folder(&hook("before_agent", "true")).run(&["run", "go"]).exits(0);
        }
        assert!(!folder.path().join("beside").exists(), "it ran beside the first");
        assert!(until(SECOND, || working_in(folder.path()).is_empty()), "{:?}", working_in(folder.path()));
    }
}

#[test]
fn what_was_left_in_the_background_lives_on_when_program_and_watcher_are_killed() {
    let leaves = hook("before_agent", "sleep 60 > /dev/null 2>&1 & echo $! > left; exit 0");
    let folder = folder(&format!("{leaves}{}", hook("stop", "touch stopping; sleep 1000")));
    let mut child = folder.command(&["run", "go"]).spawn().unwrap();
    assert!(until(Duration::from_secs(20), || folder.path().join("stopping").exists()));
    kill_with_watcher(&mut child);
    self::folder(&hook("before_agent", "true")).run(&["run", "go"]).exits(0);
    let left: u32 = folder.read("left").trim().parse().unwrap();
    assert!(until(SECOND, || working_in(folder.path()) == [left]), "{:?}", working_in(folder.path()));
    Command::new("kill").args(["-9", &left.to_string()]).status().unwrap();
}

#[test]
fn programs_end_with_a_program_that_is_stopped_by_a_signal_twice() {
    let folder = folder(&hook("before_agent", "trap '' TERM INT; touch one; sleep 1000"));
    let mut child = folder.command(&["run", "go"]).spawn().unwrap();
    assert!(until(Duration::from_secs(20), || folder.path().join("one").exists()));
    for _ in 0..2 {
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(until(SECOND, || working_in(folder.path()).is_empty()));
}

//! The demo plays to its end anywhere, and ends with a repaired file.

use std::time::{Duration, Instant};

use crate::program::{Folder, Ran};
use crate::screen::Screen;

#[track_caller]
fn tells_the_story(ran: &Ran) {
    let order = [
        "accept    Please tidy up prices.py.",
        "dispatch  read_file(prices.py) = ",
        "dispatch  write_file(prices.py, …) = ",
        "hook      syntax: checking prices.py with ",
        "hook      syntax: refuse (on_stop",
        "refuse    syntax: prices.py does not compile:",
        "dispatch  edit_file(prices.py, …) = ",
        "hook      syntax: accept (on_stop",
        "end       completed",
        "-     return t",
        "+     return sum(prices)\n",
        "turnbuckle run",
    ];
    let mut rest = ran.out.as_str();
    for line in order {
        let at = rest.find(line).unwrap_or_else(|| panic!("{line:?} is missing or too early:\n{}", ran.out));
        rest = &rest[at + line.len()..];
    }
}

#[test]
fn without_a_terminal_it_plays_at_once_and_exits() {
    let began = Instant::now();
    let ran = Folder::new().run(&[]).exits(0);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    tells_the_story(&ran);
    assert_eq!(ran.err, "");
    assert!(!ran.out.contains("pacer"));
}

#[test]
fn without_python_a_bracket_check_does_it_and_it_is_said() {
    let folder = Folder::new();
    let mut command = folder.command(&[]);
    command.env("PATH", folder.path());
    let ran = Ran::of(command).exits(0);
    tells_the_story(&ran);
    assert!(ran.out.contains("a small bracket check") && ran.out.contains("'(' was never closed"));
}

#[test]
fn slowed_down_it_tells_the_same_and_not_who_slows_it_down() {
    let folder = Folder::new();
    let mut command = folder.command(&[]);
    command.env("TURNBUCKLE_DEMO_PACE", "0.02");
    let ran = Ran::of(command).exits(0);
    tells_the_story(&ran);
    assert!(!ran.out.contains("pacer"));
}

#[test]
fn it_leaves_nothing_behind() {
    let folder = Folder::new();
    let scratch = folder.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let mut command = folder.command(&[]);
    command.env("TMPDIR", &scratch);
    Ran::of(command).exits(0);
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
}

#[test]
fn what_it_says_and_what_a_person_can_do_are_paragraphs_of_their_own() {
    let ran = Folder::new().run(&["run", "--quiet", "--model", "demo", "hello there"]).exits(0);
    assert!(ran.out.contains("You said: hello there\n\nA real model answers with a key"), "{}", ran.out);
}

#[test]
fn in_a_terminal_the_story_is_not_played_again_where_conversations_are() {
    let folder = Folder::new();
    folder.run(&["run", "hi"]).exits(0);
    let mut screen = Screen::open(&folder, &[]);
    screen.shows("`turnbuckle | cat` plays its story again");
    screen.shows("conversation c_");
    assert_eq!(screen.count("the turn and the hooks on it"), 0);
    screen.types("\u{4}");
    screen.exits(0);
}

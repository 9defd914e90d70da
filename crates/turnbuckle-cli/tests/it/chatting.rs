//! A chat, from a pipe and in a terminal.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::program::Folder;
use crate::races::busy_owner;
use crate::screen::Screen;

const WRITE: &str = r#"{ "text": "I will. ", "tool_calls": [
    { "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } } ] }, { "text": "done" }"#;

#[test]
fn a_pipe_is_read_line_by_line_and_ends_with_its_input() {
    let folder = Folder::with_script(r#"{ "text": "one" }, { "text": "two" }"#);
    let ran = folder.run_with_stdin(&["chat", "-c", "talk"], b"first\n\n  second").exits(0).prints("one\ntwo\n");
    ran.says("accept    first").says("accept    second");
    let goes_on = folder.run_with_stdin(&["chat", "-c", "talk"], b"third\n").exits(1);
    goes_on.says("the script has 2 replies");
    folder.run_with_stdin(&["chat"], b"").exits(0).prints("");
    folder.run_with_stdin(&["chat"], b"/help\n/nonsense\n/quit\nnever\n").exits(0).prints("").says("y approves");
}

#[test]
fn where_nothing_can_be_drawn_a_question_is_shown_whole_with_what_it_would_change() {
    let command: String = (0..100).map(|number| format!("echo line-{number}\n")).collect();
    let calls = serde_json::json!([
        { "id": "c1", "name": "shell", "arguments": { "command": command } },
        { "id": "c2", "name": "edit_file", "arguments": { "path": "a.txt", "old": "two", "new": "TWO" } },
    ]);
    let script =
        format!(r#"{{ "tool_calls": [{}] }}, {{ "tool_calls": [{}] }}, {{ "text": "done" }}"#, calls[0], calls[1]);
    let folder = Folder::with_script(&script);
    folder.file("a.txt", "one\ntwo\n");
    let ran = folder.run_with_stdin(&["chat", "-c", "w"], b"go\nn\ny\n").exits(0).prints("done\n");
    ran.says("may shell run?")
        .says("echo line-99")
        .says("y, n, or why not")
        .says("may edit_file run?")
        .says("-two")
        .says("+TWO");
    assert_eq!(folder.read("a.txt"), "one\nTWO\n");
}

#[test]
fn from_a_pipe_the_next_line_answers_what_is_asked() {
    let folder = Folder::with_script(WRITE);
    let ran = folder.run_with_stdin(&["chat", "-c", "w"], b"write it\n").exits(4).prints("");
    let ran = ran.says("waiting: the turn waits for c1").says("resolve w c1 --digest ");
    let place = |text: &str| ran.err.find(text).unwrap_or_else(|| panic!("{text:?} is not in\n{}", ran.err));
    assert!(place("may write_file run?") < place("waiting: "), "{}", ran.err);
    assert!(place("waiting: ") < place("y, n, or why not"), "what can be typed comes last: {}", ran.err);
    assert!(!ran.err.contains("error:"), "{}", ran.err);
    folder.run_with_stdin(&["chat", "-c", "w"], b"\ny\n").exits(0).prints("done\n").says("c1: approved by user local");
    assert_eq!(folder.read("a.txt"), "x");
    let folder = Folder::with_script(WRITE);
    folder.run_with_stdin(&["chat", "-c", "w"], b"write it\nnot today\n").exits(0).says("not today");
    assert_eq!(folder.read("a.txt"), "");
}

#[test]
fn from_a_pipe_a_question_that_another_process_answered_is_not_asked_again() {
    let folder = Folder::with_script(&format!(r#"{WRITE}, {{ "text": "and more" }}"#));
    let mut chat = folder.command(&["chat", "-c", "w"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut say = chat.stdin.take().unwrap();
    say.write_all(b"write it\n").unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    while folder.run(&["resolve", "w", "c1", "--deny", "not here"]).code != 0 {
        assert!(Instant::now() < patience, "nothing was asked");
        std::thread::sleep(Duration::from_millis(20));
    }
    // The first line answers what is no longer asked; the second is a message again.
    say.write_all(b"y\nhello\n").unwrap();
    drop(say);
    let ended = chat.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(ended.stdout).unwrap(), "and more\n");
    assert_eq!(ended.status.code(), Some(1), "a line was lost");
    assert_eq!(folder.read("a.txt"), "");
}

#[test]
fn from_a_pipe_commands_are_taken_and_commands_for_the_shell_are_not() {
    let folder = Folder::with_script(r#"{ "text": "one" }, { "text": "two" }"#);
    let input = b"first\n/tools\n!touch made\n/clear\nsecond\n";
    let ran = folder.run_with_stdin(&["chat", "-c", "w"], input).exits(0).prints("one\none\n");
    ran.says("write_file (asks first)").says("run in a terminal only");
    assert!(!folder.path().join("made").exists());
    let listed = folder.run(&["list", "--json"]).exits(0).out;
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let ran = folder.run_with_stdin(&["chat", "-c", "w"], b"/model nonsense:x\n/clear\nthird\n").exits(1);
    assert!(
        ran.out.ends_with("one\n"),
        "a line that came to nothing is a failure, whatever comes behind it: {}",
        ran.out
    );
}

#[test]
fn from_a_pipe_no_line_chooses_the_model_the_conversation_or_what_is_put_back() {
    let folder = Folder::with_script(r#"{ "text": "one" }, { "text": "two" }"#);
    folder.run(&["run", "-c", "other", "secret"]).exits(0);
    for refused in
        ["/model openai@http://127.0.0.1:9/v1:x", "/resume other", "/resume", "/undo", "/permissions revoke s_1"]
    {
        let id = format!("c{}", refused.len());
        let input = format!("{refused}\nfirst\n");
        let ran = folder.run_with_stdin(&["chat", "-c", &id], input.as_bytes()).exits(1).prints("one\n");
        let word = refused.split(' ').next().unwrap();
        ran.says(&format!("{word} is for a person at a terminal"));
    }
    let help = folder.run_with_stdin(&["chat"], b"/help\n").exits(0).says("/tools");
    assert!(!help.err.contains("/undo"), "{}", help.err);
}

#[test]
fn from_a_pipe_a_new_conversation_keeps_the_exit_code_of_the_last_turn() {
    let folder = Folder::with_script(r#"{ "text": "one" }"#);
    folder.run_with_stdin(&["chat", "-c", "w"], b"first\nsecond\n/clear\n").exits(1).says("the script has 1 reply");
    folder.run_with_stdin(&["chat"], b"first\nsecond\n/clear\nthird\n").exits(0).prints("one\none\n");
    let folder = Folder::with_script(WRITE);
    folder.run_with_stdin(&["chat"], b"write it\n").exits(4);
}

#[test]
fn rubbish_from_a_pipe_is_an_error() {
    let folder = Folder::with_script(r#"{ "text": "one" }"#);
    folder.run_with_stdin(&["chat"], b"\xff\xfe\n").exits(1).prints("").says("not UTF-8");
    folder.run_with_stdin(&["chat"], &vec![b'x'; 2 << 20]).exits(1).prints("").says("longer than 1 MiB");
}

#[test]
fn without_a_terminal_options_alone_are_bad_usage() {
    let folder = Folder::with_script(r#"{ "text": "one" }"#);
    folder.run(&["--model", "demo"]).exits(2).says("there is no terminal to chat in").says("turnbuckle chat");
}

#[test]
fn in_a_terminal_the_question_is_answered_in_place() {
    let folder = Folder::with_script(&format!(r#"{WRITE}, {{ "text": "again" }}"#));
    let mut screen = Screen::open(&folder, &["chat", "-c", "w"]);
    screen.shows("› ");
    screen.types("write it\r");
    screen.shows("user      write it");
    screen.shows("agent     I will.");
    screen.shows("ask       may write_file run? (call c1)");
    screen.shows("path: a.txt");
    screen.shows("y, n, or why not › ");
    screen.types("y\r");
    screen.shows("resolve   c1: approved by user local");
    screen.shows("agent     done");
    screen.shows("end       completed");
    assert_eq!(folder.read("a.txt"), "x");
    screen.types("on\r");
    screen.shows("agent     again");
    screen.types("/quit\r");
    screen.shows("Go on: `turnbuckle chat -c w`");
    screen.exits(0);
}

/// B13: only `y`, `Y`, `yes` and `Yes` were a yes.
#[test]
fn in_a_terminal_a_yes_is_a_yes_however_it_is_written() {
    let folder = Folder::with_script(WRITE);
    let mut screen = Screen::open(&folder, &["chat", "-c", "w"]);
    screen.shows("› ");
    screen.types("write it\r");
    screen.shows("y, n, or why not › ");
    screen.types("YES\r");
    screen.shows("resolve   c1: approved by user local");
    screen.shows("end       completed");
    screen.types("/quit\r");
    screen.exits(0);
}

#[test]
fn in_a_terminal_it_is_asked_whether_a_turn_goes_on_without_what_its_agent_lost() {
    let guard = "[[hooks]]\nuse = \"guard\"\n[[hooks.rules]]\nphrases = [\"x\"]\nthen = \"reject\"\n";
    let folder = Folder::with_config(WRITE, guard);
    folder.run(&["run", "-c", "w", "write it"]).exits(4);
    folder.file("turnbuckle.toml", "[agent]\nmodel = \"script:script.json\"\n");
    let mut screen = Screen::open(&folder, &["chat", "-c", "w"]);
    screen.shows("y, n, or why not › ");
    screen.types("y\r");
    screen.shows("ask       agent turnbuckle has changed since the turn began: it lacks");
    screen.shows("y or n › ");
    screen.types("perhaps\r");
    screen.shows("y carries the turn on without what the agent lacks, n leaves it");
    screen.types("n\r");
    screen.shows("the turn stays as it is");
    assert!(!folder.run(&["show", "w", "--json"]).out.contains("resolution"), "nothing was written");
    screen.shows("y, n, or why not › ");
    screen.types("y\r");
    screen.shows("y or n › ");
    screen.types("Y\r");
    // The answer that was typed before is given again: it is not asked for twice.
    screen.shows("agent     done");
    screen.types("/quit\r");
    screen.exits(0);
    let shown = folder.run(&["show", "w"]).exits(0).out;
    assert!(shown.contains("because user local insisted"), "{shown}");
}

const TWO: &str = "[access]\nsay = [\"manager\"]\ncancel = [\"manager\"]\n\
                   approve = [ { tool = \"write_file\", by = [\"manager\"], n = 2 } ]\n";

fn resolutions(folder: &Folder) -> Vec<(String, String)> {
    let log = folder.run_as(("ann", ""), &["show", "w", "--json"]).exits(0).events();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let resolutions = log.iter().filter(|event| event["type"] == "resolution");
    resolutions.map(|event| (text(&event["by"]["user"]), text(&event["decision"]))).collect()
}

#[test]
fn from_a_pipe_the_first_of_two_approvers_is_asked_once_and_the_next_line_is_no_answer() {
    let folder = Folder::with_config(WRITE, TWO);
    folder.run_as(("ann", ""), &["run", "-c", "w", "write it"]).exits(4);
    let mut chat = folder.command_as(("mia", "manager"), &["chat", "-c", "w"]).stdin(Stdio::piped()).spawn().unwrap();
    chat.stdin.take().unwrap().write_all(b"y\nthank you\ny\n").unwrap();
    let ran = crate::program::Ran::from(chat.wait_with_output().unwrap()).exits(1).prints("");
    let ran = ran.says("role manager; 2 of them must approve; 1 approval is still missing; you have approved it");
    assert_eq!(ran.err.matches("is busy: its turn waits for c1").count(), 2, "two lines were not sent: {}", ran.err);
    assert_eq!(resolutions(&folder), [("mia".to_owned(), "approved".to_owned())]);
    let max = folder.run_as(("max", "manager"), &["resolve", "w", "c1", "--approve"]).exits(0).prints("done\n");
    max.says("c1: approved by user max");
    assert_eq!(folder.read("a.txt"), "x");
}

#[test]
fn in_a_terminal_the_first_of_two_approvers_is_told_who_else_must_and_is_not_asked_again() {
    let folder = Folder::with_config(&format!(r#"{WRITE}, {{ "text": "welcome" }}"#), TWO);
    folder.run_as(("ann", ""), &["run", "-c", "w", "write it"]).exits(4);
    let mut screen = Screen::of(folder.command_as(("mia", "manager"), &["chat", "-c", "w"]));
    screen.shows("y, n, or why not › ");
    screen.types("y\r");
    screen.shows("approved by user mia, and others must approve as well");
    screen.shows("1 approval is still missing");
    screen.shows("› ");
    screen.types("thank you\r");
    screen.shows("thank you");
    assert_eq!(resolutions(&folder), [("mia".to_owned(), "approved".to_owned())]);
    folder.run_as(("max", "manager"), &["answer", "w", "c1", "--approve"]).exits(0);
    screen.shows("resolve   c1: approved by user max");
    screen.shows("agent     done");
    screen.shows("agent     welcome");
    screen.types("/quit\r");
    screen.exits(0);
    assert_eq!(folder.read("a.txt"), "x");
}

#[test]
fn in_a_terminal_an_answer_that_another_process_takes_up_is_not_asked_for_again() {
    let folder = Folder::new();
    let (mut owner, lines) = busy_owner(&folder);
    let mut screen = Screen::open(&folder, &["chat", "-c", "w"]);
    screen.shows("y, n, or why not › ");
    screen.types("y\r");
    screen.shows("resolve   c1: approved by user local");
    assert_eq!(screen.count("may write_file run? (call c1)"), 1);
    folder.run(&["cancel", "w"]).exits(0);
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.contains("\"approved\"")), "{rest:#?}");
    assert_eq!(owner.wait().unwrap().code(), Some(130));
    screen.types("/quit\r");
    screen.exits(0);
    assert_eq!(folder.read("c1.txt"), "x");
}

#[test]
fn in_a_terminal_what_another_approver_changed_is_asked_anew() {
    let folder = Folder::with_config(WRITE, TWO);
    folder.run_as(("ann", ""), &["run", "-c", "w", "write it"]).exits(4);
    let mut screen = Screen::of(folder.command_as(("mia", "manager"), &["chat", "-c", "w"]));
    screen.shows("y, n, or why not › ");
    let edited = r#"{ "path": "b.txt", "content": "y" }"#;
    folder.run_as(("max", "manager"), &["answer", "w", "c1", "--approve", "--arguments", edited]).exits(0);
    screen.shows("path: b.txt");
    screen.shows("so far by user max");
    screen.types("y\r");
    screen.shows("agent     done");
    screen.types("/quit\r");
    screen.exits(0);
    assert_eq!((folder.read("a.txt"), folder.read("b.txt")), (String::new(), "y".to_owned()));
}

#[test]
fn in_a_terminal_what_others_must_answer_is_shown_and_not_asked() {
    let rule = "[access]\napprove = [ { tool = \"write_file\", by = [\"manager\"], not_requester = true } ]\n";
    let folder = Folder::with_config(WRITE, rule);
    let mut screen = Screen::open(&folder, &["chat", "-c", "w"]);
    screen.shows("› ");
    screen.types("write it\r");
    screen.shows("ask       may write_file run? (call c1)");
    screen.shows("call c1 is for others to answer: role manager, but not user local,");
    screen.shows("who asked");
    folder.run_as(("mia", "manager"), &["answer", "w", "c1", "--approve"]).exits(0);
    screen.shows("resolve   c1: approved by user mia");
    screen.shows("agent     done");
    screen.types("/quit\r");
    screen.exits(0);
}

#[test]
fn in_a_terminal_a_message_is_queued_until_the_turn_is_over() {
    let slow = r#"{ "chunks": ["x ", "x ", "x ", "x"], "delay_ms": 300 }"#;
    let folder = Folder::with_script(&format!(r#"{slow}, {{ "text": "second answer" }}"#));
    let mut screen = Screen::open(&folder, &["chat", "-c", "w"]);
    screen.shows("› ");
    screen.types("first\r");
    screen.shows("agent     x");
    screen.types("second\r");
    screen.shows("queued    second");
    screen.shows("agent     second answer");
    screen.shows("\n› ");
    screen.interrupt();
    screen.shows("\n          Ctrl-C again leaves");
    screen.interrupt();
    screen.exits(130);
}

#[test]
fn in_a_terminal_ctrl_c_cancels_the_turn_and_what_is_queued_and_again_leaves() {
    let slow = format!(r#"{{ "chunks": [{}"x"], "delay_ms": 50 }}"#, "\"x \",".repeat(2000));
    let folder = Folder::with_script(&format!(r#"{slow}, {slow}"#));
    let mut screen = Screen::open(&folder, &["chat", "-c", "w"]);
    screen.shows("› ");
    screen.types("first\r");
    screen.shows("agent     x x x");
    screen.types("second\r");
    screen.shows("queued    second");
    screen.interrupt();
    screen.shows("cancelling the turn and the message that is queued; Ctrl-C again");
    // At rest, the second turn being over as well: until then the prompt says what goes on.
    screen.shows(" s)\n\n› ");
    screen.interrupt();
    screen.exits(130);
    let shown = folder.run(&["show", "w", "--json"]).exits(0);
    let ends = shown.out.lines().filter(|line| line.contains(r#""type":"turn_ended""#));
    let outcomes: Vec<bool> = ends.map(|line| line.contains(r#""outcome":"cancelled""#)).collect();
    assert_eq!(outcomes, [true, true], "{}", shown.out);
}

#[test]
fn a_terminal_that_goes_away_cancels_the_turn_and_closes_its_books() {
    for signal in ["-HUP", "-TERM"] {
        let folder =
            Folder::with_script(&format!(r#"{{ "chunks": [{}"x"], "delay_ms": 50 }}"#, "\"x \",".repeat(2000)));
        let mut screen = Screen::open(&folder, &["chat", "-c", "w"]);
        screen.shows("› ");
        screen.types("first\r");
        screen.shows("agent     x x x");
        screen.signal(signal);
        screen.exits(130);
        assert_eq!(folder.run(&["show", "w", "--json"]).exits(0).event("turn_ended")["outcome"], "cancelled");
    }
}

#[test]
fn an_answer_given_elsewhere_takes_the_question_off_the_screen() {
    let folder = Folder::with_script(WRITE);
    let mut screen = Screen::open(&folder, &["chat", "-c", "w"]);
    screen.shows("› ");
    screen.types("write it\r");
    screen.shows("y, n, or why not › ");
    folder.run(&["resolve", "w", "c1", "--approve"]).exits(0).prints("done\n");
    screen.shows("resolve   c1: approved by user local");
    screen.shows("agent     done");
    screen.shows("\n› ");
    screen.types("/quit\r");
    screen.exits(0);
}

#[test]
fn the_log_stands_above_the_line_that_is_being_typed() {
    let folder = Folder::with_script(r#"{ "text": "hello" }"#);
    let mut screen = Screen::open(&folder, &["chat", "-c", "w", "-vv"]);
    screen.shows("› ");
    screen.types("half a line");
    screen.shows("› half a line");
    folder.run(&["run", "-c", "other", "--model", "demo", "hi"]).exits(0);
    screen.types("\r");
    screen.shows("\nlog       ");
    screen.shows("command taken");
    screen.shows("agent     hello");
    screen.shows("\n› ");
    screen.types("/quit\r");
    screen.exits(0);
}

#[test]
fn a_terminal_is_given_back_as_it_was() {
    let folder = Folder::with_script(r#"{ "text": "one" }"#);
    let mut screen = Screen::open(&folder, &["chat"]);
    let before = rustix::termios::tcgetattr(&screen.keys).unwrap().local_modes;
    screen.shows("› ");
    assert_ne!(rustix::termios::tcgetattr(&screen.keys).unwrap().local_modes, before, "keys come one by one");
    screen.types("\u{4}");
    let keys = screen.keys.try_clone().unwrap();
    screen.exits(0);
    assert_eq!(rustix::termios::tcgetattr(&keys).unwrap().local_modes, before);
}

#[test]
fn in_a_terminal_the_program_alone_plays_its_story_and_then_chats() {
    let folder = Folder::new();
    let mut screen = Screen::open(&folder, &[]);
    screen.shows("Turnbuckle: the turn and the hooks on it");
    screen.interrupt();
    screen.shows("conversation c_");
    screen.types("hi\r");
    screen.shows("agent     I am the demo model");
    screen.types("\u{4}");
    screen.exits(0);
}

#[test]
fn a_chat_takes_up_what_a_crash_left_in_the_same_store() {
    let folder = Folder::with_script(r#"{ "text": "slow", "delay_ms": 60000 }"#);
    let mut dead = folder.command(&["run", "-c", "other", "hi"]).spawn().unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    while !folder.run(&["show", "other", "--json"]).out.contains("user_message") {
        assert!(Instant::now() < patience);
        std::thread::sleep(Duration::from_millis(20));
    }
    dead.kill().unwrap();
    dead.wait().unwrap();
    folder.file("script.json", r#"{ "replies": [{ "text": "finished" }] }"#);
    let mut chat = folder.command(&["chat"]).stdin(Stdio::piped()).spawn().unwrap();
    while !folder.run(&["show", "other"]).out.contains("agent     finished") {
        assert!(Instant::now() < patience, "nobody finished the other conversation");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(chat.stdin.take());
    assert_eq!(chat.wait().unwrap().code(), Some(0));
}

#[test]
fn a_chat_says_which_turns_of_other_conversations_go_on_in_it() {
    let folder = Folder::with_config(WRITE, "");
    folder.run(&["run", "-c", "w", "write it"]).exits(4);
    folder.run(&["answer", "w", "c1", "--approve"]).exits(0);
    let mut screen = Screen::open(&folder, &["chat", "-c", "mine"]);
    screen.shows("notice    the turn of conversation w, which no process carried on, goes on");
    screen.shows("here, with script:script.json");
    screen.types("/quit\r");
    screen.exits(0);
}

#[test]
fn a_chat_says_that_a_turn_goes_on_with_another_model_than_it_began_with() {
    let folder = Folder::with_config(WRITE, "");
    folder.run(&["run", "-c", "w", "write it"]).exits(4);
    folder.run(&["answer", "w", "c1", "--approve"]).exits(0);
    folder.file("other.json", r#"{ "replies": [{ "text": "by another" }] }"#);
    let mut screen = Screen::open(&folder, &["chat", "-c", "mine", "--model", "script:other.json"]);
    screen.shows("here, with script:other.json instead of script:script.json");
    screen.types("/quit\r");
    screen.exits(0);
}

#[test]
fn a_chat_says_that_another_process_carries_its_turn_on_and_with_which_model() {
    let folder = Folder::with_config(WRITE, "");
    folder.file("other.json", r#"{ "replies": [{ "text": "by another" }, { "text": "by another" }] }"#);
    let mut screen = Screen::open(&folder, &["chat", "-c", "w"]);
    screen.shows("› ");
    screen.types("write it\r");
    screen.shows("a approves");
    folder.run(&["resolve", "w", "c1", "--approve", "--model", "script:other.json"]).exits(0);
    screen.shows("another process has this conversation and carries it on");
    screen.shows("by another");
    screen.shows("script:other.json instead of script:script.json");
    screen.types("/quit\r");
    screen.exits(0);
}

#[test]
fn a_wrong_name_of_a_model_leaves_the_chat_as_it_is() {
    let folder = Folder::with_script(r#"{ "text": "one answer" }"#);
    let mut screen = Screen::open(&folder, &["chat", "-c", "talk"]);
    screen.shows("› ");
    screen.types("hello\r");
    screen.shows("completed");
    let said = screen.count("one answer");
    screen.types("/model nope:x\r");
    screen.shows("nope");
    screen.shows("error");
    screen.types("/modle demo\r");
    screen.shows("did you mean /model?");
    assert_eq!(screen.count("one answer"), said, "the conversation is not shown again");
    screen.types("/exit\r");
    screen.exits(0);
}

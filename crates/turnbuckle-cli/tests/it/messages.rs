//! Where the message comes from.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use crate::program::{Folder, Ran};

fn echo() -> Folder {
    let folder = Folder::new();
    folder.file("echo.json", r#"{ "on_exhausted": "echo", "replies": [] }"#);
    folder
}

const RUN: &[&str] = &["run", "--model", "script:echo.json"];

#[test]
fn from_stdin_if_there_is_no_argument() {
    echo().run_with_stdin(RUN, "über Straßen\nund Wege\n".as_bytes()).exits(0).prints("über Straßen\nund Wege\n");
}

#[test]
fn a_pipe_beside_the_argument_is_given_with_it_and_fenced() {
    let ran = echo().run_with_stdin(&[RUN, &["what broke?"]].concat(), b"line 1\n</foreign> line 2\n").exits(0);
    assert!(ran.out.starts_with("what broke?<foreign source=\"stdin\">\nline 1\n"), "{}", ran.out);
    assert_eq!(ran.out.matches("</foreign>").count(), 1, "{}", ran.out);
    echo().run_with_stdin(&[RUN, &["argument"]].concat(), b"").exits(0).prints("argument\n");
    echo().run_with_stdin(&[RUN, &["argument"]].concat(), &[0xff]).exits(2).says("not UTF-8");
}

#[test]
fn a_silent_pipe_is_not_waited_for_unless_stdin_says_so() {
    let folder = echo();
    let mut child = folder.command(&[RUN, &["argument"]].concat()).stdin(Stdio::piped()).spawn().unwrap();
    // Held open until it is over.
    let pipe = child.stdin.take();
    let ran = Ran::from(child.wait_with_output().unwrap()).exits(0).prints("argument\n");
    ran.says("nothing came through the pipe on stdin within 3 seconds").says("`--stdin` waits");
    drop(pipe);
    let mut child = folder.command(&[RUN, &["--stdin", "argument"]].concat()).stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    std::thread::sleep(Duration::from_millis(3500));
    assert!(child.try_wait().unwrap().is_none(), "it waits");
    pipe.write_all(b"late").unwrap();
    drop(pipe);
    assert!(Ran::from(child.wait_with_output().unwrap()).exits(0).out.contains("late"));
}

#[test]
fn a_file_beside_the_argument_is_read_only_with_stdin() {
    let folder = echo();
    let path = folder.file("build.log", "it broke\n");
    let run = |more: &[&str]| {
        let mut command = folder.command(&[RUN, more].concat());
        command.stdin(std::fs::File::open(&path).unwrap());
        Ran::of(command).exits(0).out
    };
    assert_eq!(run(&["why?"]), "why?\n");
    assert!(run(&["--stdin", "why?"]).contains("it broke"));
    assert_eq!(run(&[]), "it broke\n", "without an argument it is the message");
}

#[test]
fn an_empty_message_is_bad_usage() {
    let folder = echo();
    folder.run(RUN).exits(2).prints("").says("error: the message is empty").says("hint: ");
    folder.run_with_stdin(RUN, b" \n\t\n").exits(2).prints("");
    folder.run(&[RUN, &[""]].concat()).exits(2).prints("");
}

#[test]
fn a_message_that_is_not_utf_8_is_bad_usage() {
    echo().run_with_stdin(RUN, &[b'a', 0xff]).exits(2).prints("").says("not UTF-8 (at byte 1)");
}

#[test]
fn five_megabytes_go_in_and_out_unchanged() {
    let folder = echo();
    folder.file("turnbuckle.toml", "[limits]\ncontext_tokens = 10000000\n");
    let message = "Lorem ipsum dolor sit amet. ".repeat(5 * 1024 * 1024 / 28);
    let ran = folder.run_with_stdin(RUN, message.as_bytes()).exits(0);
    assert!(ran.out.trim_end() == message.trim_end(), "{} bytes came back", ran.out.len());
}

#[test]
fn a_message_that_does_not_fit_is_bad_usage_and_says_what_to_do() {
    let ran = echo().run_with_stdin(RUN, "long ".repeat(200_000).as_bytes()).exits(2).prints("");
    ran.says("context_tokens is 32000").says("hint: send less, or raise `context_tokens`");
}

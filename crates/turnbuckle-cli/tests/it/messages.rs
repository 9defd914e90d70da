//! Where the message comes from.

use crate::program::Folder;

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
fn the_argument_wins_over_stdin() {
    echo().run_with_stdin(&[RUN, &["argument"]].concat(), b"stdin").exits(0).prints("argument\n");
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
fn a_message_that_does_not_fit_fails_and_says_what_to_do() {
    let ran = echo().run_with_stdin(RUN, "long ".repeat(200_000).as_bytes()).exits(1).prints("");
    ran.says("context_tokens is 32000").says("hint: send less, or raise `context_tokens`");
}

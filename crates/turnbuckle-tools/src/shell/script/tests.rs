//! Lines of every kind, by a shell that waited and by `sh -c`.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::thread;

use tempfile::TempDir;

use super::*;

/// Lines that run as a part of the script where the shell does the same with them.
const SIMPLE: [&str; 61] = [
    "true",
    "false",
    "",
    "\n",
    "  \t ",
    "\n\necho a\n\n\nnosuch\n\n",
    "echo a; echo b;",
    "echo a && echo b || echo c",
    "false || echo c",
    "false && echo c",
    "echo a |\n\n cat",
    "true && nosuch-program --with 'an argument'",
    "nosuch-program",
    "nosuch-program; echo goes on",
    "nosuch-program | cat",
    "/nowhere/program",
    "./not-executable",
    "./no-interpreter",
    "./without-interpreter a b",
    "./without-interpreter 'a b' | cat",
    "/",
    "./killed 9",
    "./killed 11",
    "./killed 15; echo then",
    "./killed 13 | cat",
    "cat | ./killed 9",
    "./exits 3",
    "./exits 3; true",
    "true; ./exits 255",
    "./exits 4 | true",
    "true | ./exits 4",
    "exit",
    "exit 3",
    "exit 256",
    "exit abc",
    "false; exit",
    "echo a; exit 7; echo b",
    "exit 3 | cat",
    "return 3",
    "return 3; echo x",
    "break; echo x",
    "continue",
    "exec ./exits 5",
    "exec ./killed 9",
    "exec nosuch-program; echo x",
    "exec 2>/dev/null; nosuch-program",
    "command -v sh",
    "type nosuch-program",
    "cd /nowhere; echo x",
    "cd sub && pwd && ./here",
    "cat",
    "cat - /dev/stdin; echo end",
    "ls /proc/self/fd",
    "printf 'a\\0b'; printf '%s|' \"a b\" 'c\nd' e\\ f \\' '\"'",
    "echo \"it's\" 'ĀāĂăĄąĆćĈ' ĀāĂăĄąĆćĈ '日本' '\u{1f600}'",
    "echo one >&2; echo two; echo three 1>&2; echo four 2>/dev/null >&2",
    "2>/dev/null nosuch-program",
    "umask; ulimit -n; times >/dev/null; jobs; wait; pwd",
    "yes | head -n 1",
    "kill -0 999999999; test a = b; test 1 -eq",
    "sh -c 'exit 9'; env | sort",
];

/// Others, which a new shell gets.
const OTHERS: [&str; 66] = [
    "echo $0 $- $# $? $1",
    "echo $PPID >/dev/null; echo \"$LINENO\"; \n echo $LINENO",
    "echo `echo a` $(echo b) ${UNSET-c} $((1 + 2))",
    "echo ${UNSET?is missing}; echo x",
    "set -u; echo $UNSET; echo x",
    "set -e; false; echo x",
    "set -e; echo a | false; echo x",
    "set -x; echo a; nosuch-program",
    "set -- a b; echo $2 $#",
    "set -n; echo a",
    "for i in 1 2 3; do echo $i; done",
    "while false; do :; done; echo $?",
    "if nosuch-program; then echo a; else echo b; fi",
    "case a in a) echo yes;; esac",
    "echo '\u{80}\u{81}\u{82}\u{83}\u{84}\u{85}\u{86}\u{87}\u{88}\u{1}\u{7f}'",
    "command nosuch-program; [ 1 -eq",
    "{ echo a; }; (echo b; exit 3); echo $?",
    "! true",
    "f() { echo \"$1\"; return 4; }; f x; echo $?",
    "f() { exit 6; }; f",
    "trap 'echo bye $?' EXIT; exit 3",
    "trap 'echo bye' EXIT; ./killed 9",
    "trap 'echo term' TERM; kill -TERM $$; echo after",
    "trap '' PIPE; yes 2>/dev/null | head -n 1",
    "kill -9 $$",
    "kill -TERM $$; echo not",
    "kill -PIPE $$",
    "./exits 3 & wait $!",
    "sleep 0 & echo a; wait",
    "(cat; echo end) &\nwait",
    "cat <<end\nit's $((1 + 1)) 'quoted' \"too\"\nend\necho after",
    "cat <<'end'\n$HOME `id` \\ '\nend\n",
    "cat <<-end\n\ta\n\tend",
    "cat <<end\nnever ends",
    "read a; echo \"got $? <$a>\"",
    "while read a; do echo $a; done; echo end",
    "printf 'x\\ny\\n' | while read a; do echo \"<$a>\"; done",
    "echo a > made; cat made; cat < made; rm made",
    "echo a > /nowhere/file; echo $?",
    "cat < /nowhere/file",
    "if",
    "echo a; if",
    "echo a\nif true; then\n",
    "echo a\n)\necho b",
    "}",
    "}; echo outside",
    "echo a }; echo b",
    "'",
    "echo 'never ends",
    "echo \"never ends",
    "echo `never ends",
    "echo $(never ends",
    "echo a &&",
    "echo a\\",
    "echo a\\\nb",
    "# a remark",
    "echo a # a remark's quote",
    "echo * sub/*; echo ~root; echo a{b,c}",
    "A=1 sh -c 'echo $A'; A=2; echo $A; export A; env | grep ^A=",
    "unset PATH; ls",
    "PATH=/nowhere; ls; echo $?",
    "alias e=echo; e a\ne b",
    "eval 'exit 5'; echo not",
    "eval 'if'",
    ". ./sourced; echo $sourced",
    "exec 3>made; echo a >&3; cat made; rm made; ls /proc/self/fd\r",
];

/// A folder to run in, with programs.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let mut made = Command::new("sh");
    made.arg("-c").current_dir(folder.path()).arg(
        "mkdir sub; printf '#!/bin/sh\\nkill -$1 $$' > killed; printf '#!/bin/sh\\nexit $1' > exits; \
         printf '#!/bin/sh\\necho here' > sub/here; printf '#!/nowhere' > no-interpreter; echo 'echo $0 \"$@\"' > without-interpreter; \
         echo x > not-executable; echo sourced=yes > sourced; chmod +x killed exits sub/here no-interpreter without-interpreter",
    );
    assert!(made.status().unwrap().success());
    folder
}

/// The shells of this machine, each as `sh`: links, since shells go by their names.
fn shells(folder: &TempDir) -> Vec<PathBuf> {
    let named = ["dash", "bash", "busybox"].map(|name| (name, Path::new("/bin").join(name)));
    let mut shells = vec![PathBuf::from(SHELL)];
    for (name, path) in named.into_iter().filter(|(_, path)| path.exists()) {
        let link = folder.path().join(format!("as-{name}"));
        std::fs::create_dir(&link).unwrap();
        symlink(path.canonicalize().unwrap(), link.join("sh")).unwrap();
        shells.push(link.join("sh"));
    }
    assert!(shells.len() > 1, "neither dash nor bash is here");
    shells
}

/// How it ended, and both outputs.
type Ran = (ExitStatus, String);

fn ran(mut command: Command, folder: &TempDir, write: impl FnOnce()) -> Ran {
    let (mut reader, writer) = io::pipe().unwrap();
    command.stdout(writer.try_clone().unwrap()).stderr(writer).current_dir(folder.path());
    let mut child = command.spawn().unwrap();
    drop(command);
    let read = thread::spawn(move || {
        let mut output = Vec::new();
        reader.read_to_end(&mut output).unwrap();
        String::from_utf8_lossy(&output).into_owned()
    });
    write();
    (child.wait().unwrap(), read.join().unwrap())
}

fn behind_c(shell: &Path, folder: &TempDir, line: &str) -> Ran {
    let mut command = Command::new(shell);
    command.arg("-c").arg(line).stdin(Stdio::null());
    ran(command, folder, || {})
}

/// By a shell that waited. The socket stays open, as long as nothing else is said, until the command has ended.
fn after_waiting(shell: &Path, folder: &TempDir, texts: &[&str]) -> Ran {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(shell);
    command.stdin(OwnedFd::from(theirs));
    let ran = ran(command, folder, || texts.iter().for_each(|text| (&ours).write_all(text.as_bytes()).unwrap()));
    drop(ours);
    ran
}

/// What [`opening`] makes of a line for a shell.
fn opening_for(shell: &Path, line: &str, is_same: bool) -> String {
    assert_eq!(way(line, false), Way::Anew);
    match way(line, is_same) {
        Way::Itself => format!("{{ exec </dev/null; {line}"),
        Way::Anew => opening(line).unwrap().replacen(SHELL, &shell.display().to_string(), 1),
    }
}

#[test]
fn a_shell_that_waited_does_with_each_line_what_a_new_one_does() {
    let folder = folder();
    let long = format!("echo '{}' | wc -c", "long \u{81}'\\''\n".repeat(4000));
    for shell in shells(&folder) {
        let is_same = is_same(&shell).unwrap();
        for line in SIMPLE.iter().chain(&OTHERS).copied().chain([long.as_str()]) {
            let expected = behind_c(&shell, &folder, line);
            let told = opening_for(&shell, line, is_same);
            let result = after_waiting(&shell, &folder, &[&told, BEGIN]);
            assert_eq!(result, expected, "{} of {line:?}, told as {told:?}", shell.display());
        }
    }
}

#[test]
fn simple_commands_run_in_the_shell_that_waited_and_other_lines_in_a_new_one() {
    for line in SIMPLE {
        assert_eq!((way(line, true), way(line, false)), (Way::Itself, Way::Anew), "{line:?}");
    }
    for line in OTHERS {
        assert_eq!(way(line, true), Way::Anew, "{line:?}");
    }
}

#[test]
fn without_the_word_to_begin_nothing_of_a_line_runs() {
    let folder = folder();
    let mark = folder.path().join("ran");
    for shell in shells(&folder) {
        for line in [
            "echo x > ran",
            "touch ran",
            "touch ran\ntouch ran;",
            "}\ntouch ran",
            "'\ntouch ran\n'",
            "} ; touch ran ; {",
        ] {
            for is_same in [false, true] {
                let told = opening_for(&shell, line, is_same);
                // Whoever told it has ended, or it never began to.
                for begun in ["", "\n", "\nexit", "\nexit\n"] {
                    let (ours, theirs) = UnixStream::pair().unwrap();
                    let mut command = Command::new(&shell);
                    command.stdin(OwnedFd::from(theirs));
                    let (status, text) = ran(command, &folder, || {
                        (&ours).write_all(format!("{told}{begun}").as_bytes()).unwrap();
                        ours.shutdown(Shutdown::Both).unwrap();
                    });
                    assert!(!status.success() && !mark.exists(), "{} of {told:?}: {text}", shell.display());
                }
            }
        }
    }
}

/// What lines are made of that could close the group.
const PIECES: [&str; 30] = [
    " ",
    " ",
    "\n",
    ";",
    "&&",
    "||",
    "|",
    "&",
    "'",
    "\"",
    "\\",
    "#",
    "{",
    "}",
    "(",
    ")",
    "!",
    "if",
    "then",
    "fi",
    "do",
    "done",
    "esac",
    "exit",
    "echo a",
    "touch ran",
    "nosuch",
    "2>&1",
    ">/dev/null",
    "ā",
];

#[test]
fn no_mixture_of_signs_runs_before_the_word_to_begin_or_otherwise_than_behind_c() {
    let folder = folder();
    let (mark, shell) = (folder.path().join("ran"), Path::new(SHELL));
    let is_same = is_same(shell).unwrap();
    // The same numbers each time.
    let mut state = 1_u64;
    let mut number = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 40).unwrap() % below
    };
    let lines = (0..20_000).map(|_| (0..=number(12)).map(|_| PIECES[number(PIECES.len())]).collect::<String>());
    let lines: Vec<String> = lines.filter(|line| way(line, true) == Way::Itself).take(300).collect();
    assert_eq!(lines.len(), 300);
    for line in lines {
        let told = opening_for(shell, &line, is_same);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut command = Command::new(shell);
        command.stdin(OwnedFd::from(theirs));
        let (status, _) = ran(command, &folder, || {
            (&ours).write_all(told.as_bytes()).unwrap();
            ours.shutdown(Shutdown::Both).unwrap();
        });
        assert!(!status.success() && !mark.exists(), "{told:?}");
        let expected = behind_c(shell, &folder, &line);
        let result = after_waiting(shell, &folder, &[&told, BEGIN]);
        // Both sides of a pipe write when they come to it, and messages in several pieces.
        let sorted = |(status, text): &Ran| {
            let mut signs: Vec<char> = text.chars().collect();
            signs.sort_unstable();
            (*status, signs)
        };
        assert_eq!(sorted(&result), sorted(&expected), "{told:?}: {result:?}, behind -c {expected:?}");
        if mark.exists() {
            std::fs::remove_file(&mark).unwrap();
        }
    }
}

#[test]
fn a_line_that_no_program_could_be_given_is_refused() {
    assert!(opening("echo '\0'").is_err());
    assert_eq!(opening(&"x".repeat(LONGEST_ARGUMENT)).unwrap_err().kind(), io::ErrorKind::ArgumentListTooLong);
    assert!(opening(&"x".repeat(LONGEST_ARGUMENT - 1)).is_ok());
}

#[test]
fn a_shell_of_another_name_is_not_taken_for_one_that_is_known() {
    assert!(is_same(Path::new("/nowhere/sh")).is_err());
    assert!(!is_same(Path::new("/bin/bash")).unwrap_or_default());
}

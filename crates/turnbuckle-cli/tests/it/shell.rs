//! The shell tool in the program: it asks, rules allow, and commands end with the program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::program::Folder;

fn calls(command: &str) -> String {
    let arguments = serde_json::json!({ "command": command });
    format!(
        r#"{{ "tool_calls": [{{ "id": "c1", "name": "shell", "arguments": {arguments} }}] }}, {{ "text": "done" }}"#
    )
}

#[test]
fn the_shell_is_offered_and_asks() {
    let folder = Folder::with_script(&calls("echo hello"));
    let ran = folder.run(&["run", "--json", "go"]).exits(4);
    assert_eq!(ran.event("suspension")["prompt"]["tool"], "shell");
}

#[test]
fn a_list_that_does_not_know_the_shell_does_not_free_it() {
    for tools in ["approve = []", "approve = [\"write_file\"]"] {
        Folder::with_config(&calls("touch ran"), &format!("[tools]\n{tools}\n")).run(&["run", "go"]).exits(4);
    }
    let free = "[tools]\nbuiltin = [\"shell\"]\napprove = []\n";
    let folder = Folder::with_config(&calls("touch ran"), free);
    folder.run(&["run", "go"]).exits(0).prints("done\n");
    assert!(folder.path().join("ran").exists());
}

#[test]
fn a_cloned_project_gets_no_shell_by_naming_it() {
    let config = "[tools]\nbuiltin = [\"shell\"]\napprove = []\n";
    let folder = Folder::cloned(&calls("touch ran"), config);
    folder.run(&["run", "go"]).exits(2).says("[tools] builtin and approve");
    assert!(!folder.path().join("ran").exists());
    let folder = Folder::cloned(&calls("touch ran"), "[tools.shell]\nsandbox = \"off\"\n");
    folder.run(&["run", "go"]).exits(2).says("[tools] shell");
}

#[test]
fn a_rule_allows_a_command_for_this_run_and_the_log_says_which_and_whose() {
    let folder = Folder::with_script(&calls("echo one && echo two | cat"));
    let ran = folder.run(&["run", "--json", "--allow", "shell(echo *)", "--allow", "shell(cat)", "go"]).exits(0);
    assert_eq!(ran.event("tool_started")["approved_by"]["user"], "local");
    assert_eq!(ran.event("tool_started")["rule"], "shell(echo *), shell(cat)");
    assert_eq!(ran.event("tool_result")["content"][0]["text"], "one\ntwo\n");
    folder.run(&["run", "--allow", "shell(echo *)", "go"]).exits(4);
    let tricky = Folder::with_script(&calls("echo $(touch ran)"));
    tricky.run(&["run", "--allow", "shell", "go"]).exits(4);
    assert!(!tricky.path().join("ran").exists());
}

#[test]
fn rules_are_for_files_too_and_a_wrong_rule_is_refused() {
    let write = r#"{ "tool_calls": [{ "id": "c1", "name": "write_file", "arguments": { "path": "./src/../src/a", "content": "x" } }] }, { "text": "done" }"#;
    let folder = Folder::with_script(write);
    std::fs::create_dir(folder.path().join("src")).unwrap();
    folder.run(&["run", "--allow", "write_file(docs/**)", "go"]).exits(4);
    folder.run(&["run", "--allow", "write_file(src/**)", "go"]).exits(0);
    assert_eq!(folder.read("src/a"), "x");
    for (rule, says) in [("shell(ls; rm)", "not one simple command"), ("shel", "did you mean `shell`?")] {
        Folder::with_script(write).run(&["run", "--allow", rule, "go"]).exits(2).says(says);
    }
}

#[test]
fn a_rule_never_answers_what_access_asks_for() {
    let config = "[access]\napprove = [{ tool = \"shell\", by = [\"manager\"] }]\n";
    Folder::with_config(&calls("echo hi"), config).run(&["run", "--allow", "shell", "go"]).exits(4);
}

#[test]
fn a_command_has_a_session_of_its_own_no_terminal_and_no_keys() {
    let line = "ps -o sid= -p $$ | tr -d ' '; echo $$; echo key=$ANTHROPIC_API_KEY token=$MY_TOKEN plain=$PLAIN; cat </dev/tty";
    let free = "[tools]\nbuiltin = [\"shell\"]\napprove = []\n[tools.shell]\npass_env = [\"OTHER_TOKEN\"]\n";
    let folder = Folder::with_config(&calls(&format!("{line}; echo other=$OTHER_TOKEN")), free);
    let mut command = folder.command(&["run", "--json", "go"]);
    command
        .env("MY_TOKEN", "HUNTER2")
        .env("PLAIN", "seen")
        .env("ANTHROPIC_API_KEY", "HUNTER2")
        .env("OTHER_TOKEN", "passed");
    let ran = crate::program::Ran::of(command).exits(0);
    let text = ran.event("tool_result")["content"][0]["text"].as_str().unwrap().to_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], lines[1], "its session is not its own: {text}");
    assert!(text.contains("key= token= plain=seen\n") && text.contains("other=passed"), "{text}");
    assert!(text.contains("/dev/tty"), "it opened a terminal: {text}");
}

#[test]
fn killed_with_sigkill_the_program_takes_the_whole_group_of_a_command_along() {
    let free = "[tools]\nbuiltin = [\"shell\"]\napprove = []\n";
    let folder = Folder::with_config(&calls("sleep 1000 & touch begun; sleep 1000"), free);
    for _ in 0..5 {
        let mut child = folder.command(&["run", "go"]).spawn().unwrap();
        let began = Instant::now();
        while !folder.path().join("begun").exists() {
            assert!(began.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let killed = Instant::now();
        let left = || {
            let found = Command::new("sh").args(["-c", "ls -l /proc/[0-9]*/cwd 2>/dev/null"]).output().unwrap();
            String::from_utf8_lossy(&found.stdout).contains(&*folder.path().to_string_lossy())
        };
        while left() {
            assert!(killed.elapsed() < Duration::from_secs(1), "something is left");
        }
        std::fs::remove_file(folder.path().join("begun")).unwrap();
    }
}

#[test]
fn a_standing_approval_covers_this_very_command_and_no_pattern() {
    let folder = Folder::with_script(&format!("{}, {}", calls("echo hi"), calls("echo hi")));
    folder.run(&["run", "-c", "a", "go"]).exits(4);
    folder
        .run(&["resolve", "a", "c1", "--approve", "--always", "--like", r#"{"command": "echo *"}"#])
        .exits(1)
        .says("not for commands");
    folder.run(&["resolve", "a", "c1", "--approve", "--always"]).exits(0);
    folder.run(&["run", "-c", "a", "again"]).exits(0);
}

#[test]
fn a_launcher_that_was_told_a_command_runs_nothing_before_the_word_to_begin() {
    for (word, runs) in [(&[][..], false), (&[0], false), (&[1], true)] {
        let folder = Folder::foreign();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut launcher = Command::new(env!("CARGO_BIN_EXE_turnbuckle"));
        launcher.arg0("turnbuckle-shell").arg(std::process::id().to_string()).stdin(OwnedFd::from(theirs));
        let mut launcher = launcher.current_dir(folder.path()).spawn().unwrap();
        let line = b": > ran\0";
        ours.write_all(&u32::try_from(line.len()).unwrap().to_le_bytes()).unwrap();
        ours.write_all(line).unwrap();
        ours.write_all(word).unwrap();
        // Whoever made the call is gone.
        drop(ours);
        assert_eq!((launcher.wait().unwrap().success(), folder.path().join("ran").exists()), (runs, runs), "{word:?}");
    }
}

/// What a launcher is told that waits as a shell, and the line, but not the word to begin.
const WAITING: &[u8] = b"\x01\0\0\0\0\x02{ exec </dev/null; exec /bin/sh -c ': > ran'";

#[test]
fn a_launcher_that_waits_as_a_shell_runs_nothing_before_the_word_to_begin() {
    for (word, runs) in [("", false), ("\n", false), ("\nexit\n", false), ("\nexit\n}\n", true)] {
        let folder = Folder::foreign();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut launcher = Command::new(env!("CARGO_BIN_EXE_turnbuckle"));
        launcher.arg0("turnbuckle-shell").arg(std::process::id().to_string()).stdin(OwnedFd::from(theirs));
        let mut launcher = launcher.current_dir(folder.path()).spawn().unwrap();
        // All at once: the launcher leaves to the shell what is the shell's.
        ours.write_all(&[WAITING, word.as_bytes()].concat()).unwrap();
        drop(ours);
        assert_eq!((launcher.wait().unwrap().success(), folder.path().join("ran").exists()), (runs, runs), "{word:?}");
    }
}

/// Starts a launcher, tells it all but the word to begin, and waits to be killed.
const KILLED_IN_BETWEEN: &str = "
import os, socket, sys, time
ours, theirs = socket.socketpair()
launcher = os.fork()
if launcher == 0:
    os.dup2(theirs.fileno(), 0)
    os.execv(sys.argv[1], ['turnbuckle-shell', str(os.getppid())])
theirs.close()
ours.sendall(bytes.fromhex(sys.argv[2]))
while open('/proc/%d/comm' % launcher).read() != 'sh\\n':
    time.sleep(0.001)
print(launcher, flush=True)
time.sleep(1000)
";

#[test]
fn killed_with_sigkill_between_a_line_and_the_word_to_begin_nothing_runs() {
    let folder = Folder::foreign();
    let told: String = WAITING.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut caller = Command::new("python3");
    caller.args(["-c", KILLED_IN_BETWEEN, env!("CARGO_BIN_EXE_turnbuckle"), &told]).current_dir(folder.path());
    let mut caller = caller.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut launcher = String::new();
    BufReader::new(caller.stdout.as_mut().unwrap()).read_line(&mut launcher).unwrap();
    caller.kill().unwrap();
    caller.wait().unwrap();
    let (killed, waiting) = (Instant::now(), Path::new("/proc").join(launcher.trim()));
    // Nobody may wait for it here, so it can stay as an entry without a command line.
    while std::fs::read(waiting.join("cmdline")).is_ok_and(|line| !line.is_empty()) {
        assert!(killed.elapsed() < Duration::from_secs(20), "the shell still waits");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!launcher.trim().is_empty() && !folder.path().join("ran").exists());
}

/// Lines of every kind: what stands in the script of a shell that waits, and what a new shell gets.
const LINES: [&str; 21] = [
    "true",
    "exit 3",
    "echo it\\'s \"a b\" 'c\nd'; nosuch-program; pwd",
    "nosuch-program --with 'arguments'",
    "cat; cat /dev/stdin; echo end",
    "sh -c 'kill -9 $$'",
    "sh -c 'kill -9 $$'; echo then",
    "kill -9 $$",
    "echo $0 $- $# $HOME; umask",
    "echo $LINENO;\necho $LINENO",
    "if",
    "echo 'never ends",
    "}; echo outside",
    "set -e; false; echo not",
    "trap 'echo bye' EXIT; exit 4",
    "cat <<'end'\n$HOME `id` '\nend\n",
    "echo Ā '\u{81}' '\u{1f600}'",
    "sh -c 'exit 9' | cat; sh -c 'exit 7'",
    "(echo a; exit 5) & wait $!",
    "exec sh -c 'exit 6'",
    "env | grep -v -e ^TMPDIR= -e ^TURNBUCKLE_PROGRAM= | sort",
];

/// Here it is known what comes: the shell of the test may have files open that it inherited.
const OPEN_FILES: (&str, &str) = ("ls /proc/self/fd | tr '\\n' ' '", "0 1 2 3 ");

#[test]
fn a_shell_that_waited_gives_the_result_of_a_new_one_in_and_without_the_sandbox() {
    // A pause in which the next shell is started.
    let replies = LINES.iter().chain([&OPEN_FILES.0]).enumerate().map(|(number, line)| {
        let call = serde_json::json!({ "id": format!("c{number}"), "name": "shell", "arguments": { "command": line } });
        serde_json::json!({ "delay_ms": 60, "tool_calls": [call] }).to_string()
    });
    let replies = format!("{}, {{ \"text\": \"done\" }}", replies.collect::<Vec<_>>().join(", "));
    for sandbox in ["on", "off"] {
        let config = format!("[tools]\nbuiltin = [\"shell\"]\napprove = []\n[tools.shell]\nsandbox = \"{sandbox}\"\n");
        let folder = Folder::with_config(&replies, &config);
        let ran = crate::program::Ran::of(folder.command(&["run", "--json", "go"])).exits(0);
        let results = ran.events().into_iter().filter(|event| event["type"] == "tool_result");
        let results: Vec<_> = results.map(|event| event["content"][0]["text"].as_str().unwrap().to_owned()).collect();
        assert_eq!((results.len(), results[LINES.len()].as_str()), (LINES.len() + 1, OPEN_FILES.1));
        for (line, result) in LINES.iter().zip(results) {
            let program = folder.command(&[]);
            // Through another shell, so that both outputs are one.
            let mut command = Command::new("sh");
            command.args(["-c", "exec /bin/sh -c \"$1\" 2>&1 </dev/null", "sh", line]).current_dir(folder.path());
            for (name, value) in program.get_envs() {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            let output = command.output().unwrap();
            let mut expected = String::from_utf8(output.stdout).unwrap();
            if !output.status.success() {
                let how = output
                    .status
                    .code()
                    .map_or(format!("[{}]", output.status), |code| format!("[exit status: {code}]"));
                let gap = if expected.is_empty() || expected.ends_with('\n') { "" } else { "\n" };
                expected = format!("{expected}{gap}{how}");
            } else if expected.is_empty() {
                expected = "[no output]".to_owned();
            }
            assert_eq!(result, expected, "{line:?}, sandbox {sandbox}");
        }
    }
}

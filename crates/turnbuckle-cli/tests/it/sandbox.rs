//! What a command of the shell tool can reach. Each test is a command that tries, run by the real program.
//!
//! They need user namespaces, Landlock and seccomp, as `doctor` reports them, and are about what is refused where these are there.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Command;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;
use tempfile::TempDir;

use crate::program::{Folder, Ran};

/// Everything runs unasked: the sandbox is the only guard.
const FREE: &str = "[tools]\nbuiltin = [\"shell\"]\napprove = []\n";

fn call(arguments: &serde_json::Value) -> String {
    format!(
        r#"{{ "tool_calls": [{{ "id": "c1", "name": "shell", "arguments": {arguments} }}] }}, {{ "text": "done" }}"#
    )
}

/// A project in which the model makes one call.
pub(super) struct Desk {
    pub(super) folder: Folder,
}

impl Desk {
    pub(super) fn new(command: &str, config: &str) -> Self {
        Self { folder: Folder::with_config(&call(&json!({ "command": command })), &format!("{FREE}{config}")) }
    }

    fn home(&self, name: &str, text: &str) {
        let path = self.folder.home().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Whether the command ended well, and what it wrote.
    pub(super) fn result(&self) -> (bool, String) {
        let mut command = self.folder.command(&["run", "--json", "go"]);
        command.env_remove("CARGO_HOME");
        let ran = Ran::of(command).exits(0);
        let result = ran.event("tool_result");
        (result["ok"].as_bool().unwrap(), result["content"][0]["text"].as_str().unwrap().to_owned())
    }
}

fn of(command: &str) -> (bool, String) {
    Desk::new(command, "").result()
}

#[test]
fn work_in_the_project_goes_on_as_usual() {
    let line = "mkdir -p a/b && echo x > a/b/c && mv a/b/c a/d && cat a/d && ln -s d a/link && rm -r a/b && \
                echo t > $TMPDIR/t && cat $TMPDIR/t && echo s > /tmp/s 2>/dev/null || true; git init -q . && git status --short | head -1; \
                python3 -c 'import tempfile; tempfile.NamedTemporaryFile()'; echo gone > /dev/null && echo end";
    let desk = Desk::new(line, "");
    let (ok, text) = desk.result();
    assert!(ok && text.starts_with("x\nt\n") && text.contains("end\n"), "{text}");
    assert!(desk.folder.path().join("a/link").exists());
}

#[test]
fn a_command_has_folders_for_temporary_files_of_its_own() {
    let line = "echo mine > /tmp/turnbuckle-test-file && cat /tmp/turnbuckle-test-file && ls $TMPDIR && \
                python3 -c 'import multiprocessing; multiprocessing.Lock(); print(\"locked\")'";
    // A project below /tmp keeps the real /tmp, so this one must be elsewhere, also if the checkout is below /tmp.
    let folder = Folder::below(Path::new("/var/tmp"));
    let desk = Desk { folder: folder.filled(&call(&json!({ "command": line })), FREE) };
    let (ok, text) = desk.result();
    assert!(ok && text == "mine\nturnbuckle-test-file\nlocked\n", "{text}");
    assert!(!Path::new("/tmp/turnbuckle-test-file").exists());
}

/// Whether commands do not even see this checkout's folder for tests: they have a `/tmp` and a `/var/tmp` of their own.
fn checkout_is_hidden() -> bool {
    ["/tmp", "/var/tmp"].iter().any(|hidden| Path::new(env!("CARGO_TARGET_TMPDIR")).starts_with(hidden))
}

#[test]
fn nothing_outside_the_project_is_changed() {
    let outside = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(outside.path().join("file"), "before").unwrap();
    let path = outside.path().display();
    for line in [
        format!("echo x > {path}/new"),
        format!("echo x > {path}/file"),
        format!("truncate -s 0 {path}/file"),
        format!("rm {path}/file"),
        format!("mv {path}/file ."),
        format!("ln {path}/file hard && echo x > hard"),
        format!("ln -s {path}/file soft && echo x > soft"),
        format!("chmod 777 {path}/file && echo x > {path}/file"),
        format!("sh -c 'cd {path} && echo x > file'"),
        format!("python3 -c \"open('{path}/file', 'w').write('x')\""),
        "touch /etc/turnbuckle-was-here".to_owned(),
        "touch /usr/turnbuckle-was-here".to_owned(),
    ] {
        let (ok, text) = of(&line);
        assert!(!ok, "{line}: {text}");
        assert!(checkout_is_hidden() || text.contains("[the sandbox may have refused this"), "{line}: {text}");
        assert_eq!(fs::read_to_string(outside.path().join("file")).unwrap(), "before", "{line}");
        assert!(!outside.path().join("new").exists(), "{line}");
    }
}

#[test]
fn files_that_turnbuckle_inherited_are_not_open_in_commands() {
    let outside = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = outside.path().join("file");
    fs::write(&file, "before").unwrap();
    // Two commands: the second has a launcher that waited for it.
    let line = "echo x >&7; echo x > /proc/self/fd/7; cat <&8; ls /proc/self/fd | tr '\\n' ' '";
    let calls = ["c1", "c2"].map(|id| {
        let arguments = json!({ "command": line });
        json!({ "tool_calls": [{ "id": id, "name": "shell", "arguments": arguments }] }).to_string()
    });
    let folder = Folder::with_config(&format!("{}, {{ \"text\": \"done\" }}", calls.join(", ")), FREE);
    let plain = folder.command(&["run", "--json", "go"]);
    let mut command = Command::new("sh");
    command.args(["-c", "file=$1; shift; exec \"$@\" 7>>\"$file\" 8<\"$file\"", "sh"]).arg(&file);
    command.arg(plain.get_program()).args(plain.get_args()).current_dir(plain.get_current_dir().unwrap()).env_clear();
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("PATH", env::var_os("PATH").unwrap());
    let ran = Ran::of(command).exits(0);
    assert_eq!(fs::read_to_string(&file).unwrap(), "before", "{ran:?}");
    // What `ls` itself opens to list them is the third.
    assert_eq!(ran.out.matches("0 1 2 3 \"").count(), 2, "{ran:?}");
    assert!(!ran.out.contains("before"), "{ran:?}");
}

#[test]
fn the_home_directory_is_not_read_but_its_toolchains_are() {
    let desk = Desk::new(
        "cat $HOME/secret; cat $HOME/.ssh/id; ls $HOME; cat $HOME/.cargo/config.toml; cat $HOME/.cargo/credentials.toml",
        "",
    );
    for (path, text) in [
        ("secret", "HUNTER2"),
        (".ssh/id", "HUNTER2"),
        (".cargo/config.toml", "fine"),
        (".cargo/credentials.toml", "HUNTER2"),
    ] {
        desk.home(path, text);
    }
    let (_, text) = desk.result();
    assert!(!text.contains("HUNTER2") && text.contains("fine"), "{text}");
}

#[test]
fn what_is_typed_in_another_terminal_is_not_read_and_harmless_devices_work() {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let terminal = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let _terminal = fs::File::options()
        .read(true)
        .write(true)
        .custom_flags(OFlags::NOCTTY.bits().cast_signed())
        .open(&terminal)
        .unwrap();
    rustix::io::write(&master, b"HUNTER2\n").unwrap();
    let line = format!("timeout 20 head -n 1 {terminal}; timeout 20 sh -c 'echo x > {terminal}'; ls /dev/pts");
    let (ok, text) = of(&line);
    assert!(!ok && !text.contains("HUNTER2") && text.matches("ermission denied").count() == 3, "{text}");
    let line = "echo a | cat /dev/stdin && echo b > /dev/stdout && echo c > /dev/stderr && bash -c 'cat <(echo d)' && \
                head -c 3 /dev/zero | wc -c && head -c 3 /dev/urandom | wc -c && head -c 3 /dev/random | wc -c && \
                cat /dev/null && echo x > /dev/null && ! echo x 2>/dev/null > /dev/full";
    assert_eq!(of(line), (true, "a\nb\nc\nd\n3\n3\n3\n".to_owned()));
}

#[test]
fn the_keys_of_the_program_are_not_found_in_its_process() {
    let desk = Desk::new("cat /proc/$PPID/environ | tr '\\0' '\\n'; grep -az HUNTER2 /proc/[0-9]*/environ", "");
    let mut command = desk.folder.command(&["run", "--json", "go"]);
    command.env("ANTHROPIC_API_KEY", "HUNTER2").env("MY_TOKEN", "HUNTER2");
    let ran = Ran::of(command).exits(0);
    let text = ran.event("tool_result")["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(!text.contains("KEY=HUNTER2") && !text.contains("TOKEN=HUNTER2"), "{text}");
}

#[test]
fn no_socket_of_any_family_is_opened_and_network_on_opens_them() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let program = |family: &str, address: &str| {
        format!("import socket; s = socket.socket(socket.{family}); s.connect({address}); print('rea' + 'ched')")
    };
    let unix = |path: &Path| format!("'{}'", path.display());
    let desk = Desk::new("true", "");
    let path = desk.folder.path().join("socket");
    let _listening = UnixListener::bind(&path).unwrap();
    for (family, address) in
        [("AF_INET", format!("('127.0.0.1', {port})")), ("AF_UNIX", unix(&path)), ("AF_NETLINK", "(0, 0)".to_owned())]
    {
        desk.folder.file("try.py", &program(family, &address));
        desk.folder
            .file("script.json", &format!("{{\"replies\": [{}]}}", call(&json!({ "command": "python3 try.py" }))));
        let (ok, text) = desk.result();
        assert!(!ok && text.contains("Permission") && !text.contains("reached"), "{family}: {text}");
    }
    let open = Desk::new("python3 try.py", "[tools.shell]\nnetwork = \"on\"\n");
    open.folder.file("try.py", &program("AF_INET", &format!("('127.0.0.1', {port})")));
    let (ok, text) = open.result();
    assert!(ok && text.contains("reached"), "{text}");
}

#[test]
fn a_pair_of_sockets_reaches_nobody_but_its_own_ends() {
    let desk = Desk::new("python3 try.py", "");
    let path = desk.folder.path().join("socket");
    let listening = UnixDatagram::bind(&path).unwrap();
    listening.set_nonblocking(true).unwrap();
    let tries = "import socket\n\
        for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_RDM):\n\
        \tfor flags in (0, socket.SOCK_CLOEXEC, socket.SOCK_NONBLOCK):\n\
        \t\ttry:\n\t\t\tsocket.socketpair(socket.AF_UNIX, kind | flags)[0].sendto(b'out', 'socket')\n\
        \t\texcept OSError as error: print(type(error).__name__)\n\
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):\n\
        \ta, b = socket.socketpair(socket.AF_UNIX, kind)\n\
        \ttry:\n\t\ta.connect('socket')\n\
        \texcept OSError as error: print('stays connected')\n\
        \ta.send(b'in')\n\tprint(b.recv(9))\n";
    desk.folder.file("try.py", tries);
    let (ok, text) = desk.result();
    let refused = "PermissionError\n".repeat(9);
    assert!(ok && text == format!("{refused}stays connected\nb'in'\nstays connected\nb'in'\n"), "{text}");
    assert_eq!(listening.recv(&mut [0; 9]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn what_decides_over_runs_outside_stays_as_it_is() {
    for line in [
        "echo x >> turnbuckle.toml",
        "rm turnbuckle.toml",
        "mv turnbuckle.toml other",
        "echo x > .git/hooks/pre-commit",
        "echo x >> .git/config",
        "git config core.hooksPath evil",
        "echo x > .git/commondir",
        "rm .git/commondir",
        "echo x > new && mv new .git/commondir",
        "echo x > .git/config.worktree",
        "rm .git/config.worktree",
        "mv .git moved",
        "mv .git/hooks .git/other",
        "rm -rf .claude",
        "echo x > .claude/settings.json",
        "echo x > .mcp.json",
        "echo x > .turnbuckle/new",
        "rm .turnbuckle/turnbuckle.db",
        "umount turnbuckle.toml; echo x >> turnbuckle.toml",
        "mount -o remount,rw,bind turnbuckle.toml; echo x >> turnbuckle.toml",
        "unshare -Urm sh -c 'umount .mcp.json; mount -o remount,rw,bind .mcp.json; echo x > .mcp.json'",
    ] {
        let desk = Desk::new(line, "");
        let folder = desk.folder.path();
        fs::create_dir_all(folder.join(".git/hooks")).unwrap();
        fs::create_dir_all(folder.join(".claude")).unwrap();
        for (path, text) in [
            (".git/HEAD", "ref: refs/heads/main\n"),
            (".git/config", "[core]\n\trepositoryformatversion = 0\n"),
            (".git/config.worktree", "[core]\n"),
            (".git/commondir", ".\n"),
            (".claude/settings.json", "{}"),
            (".mcp.json", "{}"),
        ] {
            fs::write(folder.join(path), text).unwrap();
        }
        let before = fs::read_to_string(folder.join("turnbuckle.toml")).unwrap();
        let (ok, text) = desk.result();
        assert!(!ok, "{line}: {text}");
        assert_eq!(fs::read_to_string(folder.join("turnbuckle.toml")).unwrap(), before, "{line}");
        assert_eq!(fs::read_to_string(folder.join(".mcp.json")).unwrap(), "{}", "{line}");
        assert_eq!(fs::read_to_string(folder.join(".claude/settings.json")).unwrap(), "{}", "{line}");
        assert_eq!(fs::read_dir(folder.join(".git/hooks")).unwrap().count(), 0, "{line}");
        assert!(!fs::read_to_string(folder.join(".git/config")).unwrap().contains('x'), "{line}");
        assert_eq!(fs::read_to_string(folder.join(".git/config.worktree")).unwrap(), "[core]\n", "{line}");
        assert_eq!(fs::read_to_string(folder.join(".git/commondir")).unwrap(), ".\n", "{line}");
        assert!(
            folder.join(".turnbuckle/turnbuckle.db").exists() && !folder.join(".turnbuckle/new").exists(),
            "{line}"
        );
    }
}

#[test]
fn one_that_was_not_there_is_reported_when_a_command_makes_it() {
    let desk = Desk::new("echo '{}' > .mcp.json", "");
    let (ok, text) = desk.result();
    assert!(ok && text.contains("[changed while a command ran: .mcp.json]"), "{text}");
}

#[test]
fn a_repository_gets_no_hooks_and_settings_from_a_command_also_if_it_had_none() {
    let line = "mkdir .git/hooks; echo x > .git/hooks/pre-commit; echo x > .git/config; echo x > .git/config.worktree; \
                rm -r .git/hooks; rm .git/config; git status --short && git add made.txt && git -c user.name=a -c user.email=a@b commit -qm one && echo committed";
    let desk = Desk::new(line, "");
    let folder = desk.folder.path();
    let git = |arguments: &[&str]| {
        assert!(Command::new("git").arg("-C").arg(folder).args(arguments).output().unwrap().status.success());
    };
    git(&["init", "-q", "."]);
    desk.folder.file("made.txt", "x");
    fs::remove_dir_all(folder.join(".git/hooks")).unwrap();
    fs::remove_file(folder.join(".git/config")).unwrap();
    let (ok, text) = desk.result();
    assert!(ok && text.contains("committed") && text.matches("Read-only file system").count() >= 3, "{text}");
    assert!(!text.contains("[changed while"), "{text}");
    assert_eq!(fs::read_dir(folder.join(".git/hooks")).unwrap().count(), 0);
    for name in [".git/config", ".git/config.worktree"] {
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), "", "{name}");
    }
    git(&["log", "-1"]);
}

#[test]
fn a_guarded_file_that_is_made_after_the_call_is_reported_by_whoever_comes_next() {
    let waits = "setsid sh -c 'until [ -e go ]; do sleep 0.05; done; echo {} > .mcp.json; mkdir .claude' >/dev/null 2>&1 & echo started";
    let second =
        r#"{ "tool_calls": [{ "id": "c2", "name": "shell", "arguments": { "command": "true" } }] }, { "text": "end" }"#;
    for next in ["run", "the next command"] {
        let folder = Folder::with_config(&format!("{}, {second}", call(&json!({ "command": waits }))), FREE);
        let ran = folder.run(&["run", "-c", "a", "go"]).exits(0);
        assert!(!ran.err.contains("made since"), "{}", ran.err);
        folder.file("go", "");
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !folder.path().join(".claude").exists() {
            assert!(std::time::Instant::now() < patience, "what was left in the background did not go on");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let told = "made since the last command";
        if next == "run" {
            folder.run(&["run", "-c", "a", "again"]).exits(0).says(told).says(".claude, .mcp.json");
            let again = folder.run(&["run", "--model", "demo", "hello"]).exits(0);
            assert!(!again.err.contains(told), "it is told once: {}", again.err);
        } else {
            // `--quiet` leaves it to the command itself.
            let ran = folder.run(&["run", "--json", "--quiet", "-c", "a", "again"]).exits(0);
            let text = ran.event("tool_result")["content"][0]["text"].as_str().unwrap().to_owned();
            assert!(text.contains("[made since the last command ended: .claude, .mcp.json]"), "{text}");
        }
    }
}

#[test]
fn a_command_that_moves_the_hooks_and_settings_of_the_repository_is_reported() {
    let line = "mkdir elsewhere && echo ../elsewhere > .git/commondir && echo '[core]' > .git/config.worktree";
    let desk = Desk::new(line, "");
    fs::create_dir_all(desk.folder.path().join(".git/hooks")).unwrap();
    let (ok, text) = desk.result();
    assert!(ok && text.contains("[changed while a command ran: .git/config.worktree, .git/commondir]"), "{text}");
}

#[test]
fn turnbuckles_own_folders_are_unreachable_also_if_the_home_directory_is_allowed() {
    let desk = Desk::new(
        "cat $HOME/.config/turnbuckle/accepted; ls -A $HOME/.config/turnbuckle; cat $HOME/.config/other",
        "[tools.shell]\nwritable = [\"~/\"]\n",
    );
    desk.home(".config/turnbuckle/accepted", "HUNTER2");
    desk.home(".config/other", "readable");
    let (_, text) = desk.result();
    assert!(!text.contains("HUNTER2") && text.contains("readable"), "{text}");
}

#[test]
fn further_folders_can_be_read_or_changed_where_the_configuration_says_so() {
    let outside = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir(outside.path().join("read")).unwrap();
    fs::create_dir(outside.path().join("write")).unwrap();
    fs::write(outside.path().join("read/file"), "seen").unwrap();
    let path = outside.path().display();
    let config = format!("[tools.shell]\nreadable = [\"{path}/read\"]\nwritable = [\"{path}/write\"]\n");
    let line = format!(
        "cat {path}/read/file && echo x > {path}/write/file && cat {path}/write/file; echo x > {path}/read/new"
    );
    let (ok, text) = Desk::new(&line, &config).result();
    assert!(!ok && text.starts_with("seenx\n"), "{text}");
    assert!(!outside.path().join("read/new").exists());
}

#[test]
fn no_process_outside_is_signalled_and_forks_end_with_the_call() {
    let desk = Desk::new(
        "kill -0 $PPID && echo signalled; for i in 1 2 3; do sleep 1000 & done; wait",
        "[tools.shell]\ntimeout = \"2s\"\n",
    );
    let (ok, text) = desk.result();
    assert!(!ok && !text.contains("signalled") && text.contains("[killed: it took longer than 2 s]"), "{text}");
}

#[test]
fn one_command_runs_outside_only_if_a_person_says_so_whatever_else_allows_it() {
    let outside = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let line = format!("touch {}/ran", outside.path().display());
    let arguments = json!({ "command": line, "outside_sandbox": true });
    let script = format!("{}, {}", call(&arguments), call(&arguments));
    // Neither a configuration without approvals nor a rule lets it run.
    let folder = Folder::with_config(&script, FREE);
    let ran = folder.run(&["run", "--json", "--allow", "shell(touch *)", "-c", "a", "go"]).exits(4);
    let why = ran.event("suspension")["prompt"]["why"].as_str().unwrap().to_owned();
    assert!(why.contains("outside the sandbox"), "{why}");
    assert!(!outside.path().join("ran").exists());
    // Nor does a standing approval.
    folder.run(&["resolve", "a", "c1", "--approve", "--always"]).exits(1);
    folder.run(&["resolve", "a", "c1", "--approve"]).exits(0);
    assert!(outside.path().join("ran").exists());
    folder.run(&["run", "-c", "a", "again"]).exits(4);
}

#[test]
fn doctor_reports_what_can_be_enforced() {
    let ran = Folder::with_script("").run(&["doctor", "--model", "demo"]).exits(0);
    assert!(ran.out.contains("sandbox can enforce"), "{}", ran.out);
}

#[test]
fn modes_owners_times_and_attributes_outside_the_project_stay_as_they_are() {
    let outside = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = outside.path().join("file");
    fs::write(&file, "before").unwrap();
    let about = || {
        let about = fs::metadata(&file).unwrap();
        (about.mode(), about.uid(), about.mtime(), about.ctime(), about.ctime_nsec())
    };
    let before = about();
    let desk = Desk::new("python3 try.py; chmod 700 try.py && touch -d @1 try.py && echo inside", "");
    let path = file.display();
    desk.folder.file(
        "try.py",
        &format!(
            "import os\nfor change in (lambda f: os.chmod(f, 0o777), lambda f: os.chown(f, os.getuid(), os.getgid()),\n\
             \tlambda f: os.utime(f, (1, 1)), lambda f: os.setxattr(f, 'user.a', b'b')):\n\
             \ttry:\n\t\tchange('{path}')\n\t\tprint('chan' + 'ged')\n\texcept OSError as error:\n\t\tprint(error.errno)\n"
        ),
    );
    let (ok, text) = desk.result();
    // A file system that is read-only, or no such file.
    let expected = if checkout_is_hidden() { "2\n2\n2\n2\ninside\n" } else { "30\n30\n30\n30\ninside\n" };
    assert!(ok && text == expected, "{text}");
    assert_eq!(about(), before);
}

#[test]
fn keys_that_the_kernel_keeps_are_not_reached_also_with_network() {
    for config in ["", "[tools.shell]\nnetwork = \"on\"\n"] {
        let desk = Desk::new("python3 try.py", config);
        // keyctl, by its numbers on x86-64 and elsewhere.
        let number = if cfg!(target_arch = "x86_64") { 250 } else { 219 };
        let program = format!(
            "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\nprint(c.syscall({number}, 0, -3, 0), ctypes.get_errno())\n"
        );
        desk.folder.file("try.py", &program);
        assert_eq!(desk.result(), (true, "-1 13\n".to_owned()), "{config}");
    }
}

#[test]
fn what_a_guarded_link_leads_to_stays_as_it_is_and_a_new_git_file_is_reported() {
    let desk = Desk::new("echo x > real/settings.json; echo 'gitdir: real' > .git", "");
    let folder = desk.folder.path();
    fs::create_dir(folder.join("real")).unwrap();
    fs::write(folder.join("real/settings.json"), "{}").unwrap();
    symlink("real", folder.join(".claude")).unwrap();
    let (_, text) = desk.result();
    assert!(text.contains("Read-only file system") && text.contains("[changed while a command ran: .git]"), "{text}");
    assert_eq!(fs::read_to_string(folder.join("real/settings.json")).unwrap(), "{}");
}

#[test]
fn a_second_command_is_confined_by_how_the_files_are_then() {
    // The launcher of the second command was started when the first had ended. Meanwhile a hook replaces a guarded file, which takes a mount away.
    let calls = ["true", "echo x >> turnbuckle.toml"].map(|line| call(&json!({ "command": line })));
    let calls = calls.map(|call| call.trim_end_matches(r#", { "text": "done" }"#).to_owned());
    let replace = "cp turnbuckle.toml new && mv new turnbuckle.toml && sleep 0.5";
    let config = format!(
        "{FREE}\n[[hooks]]\nuse = \"command\"\nname = \"replace\"\non = \"before_tool\"\nrun = \"{replace}\"\n"
    );
    let replies = format!("{}, {}, {{ \"text\": \"done\" }}", calls[0], calls[1].replace("\"c1\"", "\"c2\""));
    let folder = Folder::with_config(&replies, &config);
    let before = fs::read_to_string(folder.path().join("turnbuckle.toml")).unwrap();
    let ran = Ran::of(folder.command(&["run", "--json", "--trust-hooks", "go"])).exits(0);
    assert_eq!(fs::read_to_string(folder.path().join("turnbuckle.toml")).unwrap(), before, "{ran:?}");
}

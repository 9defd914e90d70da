//! A folder of its own, and the program run in it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;

/// What the person who runs the tests may have set. With a key of theirs a turn would reach a real provider.
fn foreign_variables() -> impl Iterator<Item = &'static str> {
    let providers = turnbuckle_models::providers().iter();
    let read = providers.flat_map(|provider| provider.key_variables().iter().copied().chain(provider.base_variable()));
    read.chain(["TURNBUCKLE_PRICES", "TURNBUCKLE_LOG", "TURNBUCKLE_LOG_FILE"]).chain([
        "XDG_CONFIG_HOME",
        "XDG_STATE_HOME",
        "CLICOLOR_FORCE",
        "TURNBUCKLE_DEMO_PACE",
    ])
}

/// A project, and the home of a user beside it.
pub(crate) struct Folder {
    project: TempDir,
    home: Arc<TempDir>,
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Folder {
    /// The user's own project: they accepted whatever its files say.
    pub(crate) fn new() -> Self {
        let folder = Self::foreign();
        folder.run(&["trust", "--folder", "--yes"]).exits(0);
        folder
    }

    /// A project of which the user accepted nothing.
    pub(crate) fn foreign() -> Self {
        Self { project: tempfile::tempdir().unwrap(), home: Arc::new(tempfile::tempdir().unwrap()) }
    }

    /// The user's own project, below a folder of the test's choice instead of the one for temporary files.
    pub(crate) fn below(place: &Path) -> Self {
        let folder =
            Self { project: tempfile::tempdir_in(place).unwrap(), home: Arc::new(tempfile::tempdir().unwrap()) };
        folder.run(&["trust", "--folder", "--yes"]).exits(0);
        folder
    }

    /// Another project of the same user, accepted as well.
    pub(crate) fn another(&self) -> Self {
        let folder = Self { project: tempfile::tempdir().unwrap(), home: self.home.clone() };
        folder.run(&["trust", "--folder", "--yes"]).exits(0);
        folder
    }

    /// Where the user's own files are.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// The user's own configuration.
    pub(crate) fn users_file(&self, text: &str) {
        let path = self.home().join(".config/turnbuckle/turnbuckle.toml");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// With a `script.json` of these replies, and a configuration that names it.
    pub(crate) fn with_script(replies: &str) -> Self {
        Self::with_config(replies, "")
    }

    /// And more configuration behind it.
    pub(crate) fn with_config(replies: &str, config: &str) -> Self {
        Self::new().filled(replies, config)
    }

    /// The same, as somebody else made it: nothing of it was accepted.
    pub(crate) fn cloned(replies: &str, config: &str) -> Self {
        Self::foreign().filled(replies, config)
    }

    pub(crate) fn filled(self, replies: &str, config: &str) -> Self {
        let folder = self;
        folder.file("script.json", &format!("{{\"replies\": [{replies}]}}"));
        folder.file("turnbuckle.toml", &format!("[agent]\nmodel = \"script:script.json\"\n{config}"));
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        self.project.path()
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    /// Not started yet. Nothing of this machine's own configuration is read.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnbuckle"));
        command.args(arguments).current_dir(self.path()).env("HOME", self.home());
        for name in foreign_variables() {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments))
    }

    /// The same for a person with a file of their own, which says who they are. A role may be empty.
    pub(crate) fn command_as(&self, (user, role): (&str, &str), arguments: &[&str]) -> Command {
        let home = format!("homes/{user}-{role}");
        let roles = if role.is_empty() { String::new() } else { format!("{role:?}") };
        let scope = format!("[scope]\nuser = {user:?}\nroles = [{roles}]\n");
        self.file(&format!("{home}/.config/turnbuckle/turnbuckle.toml"), &scope);
        let of_theirs = |arguments: &[&str]| {
            let mut command = self.command(arguments);
            command.env("HOME", self.path().join(&home));
            command
        };
        // Each of them accepted whatever the files of the project say, and its database once it is there.
        let database = self.path().join(".turnbuckle/turnbuckle.db").exists();
        let accepted = self.path().join(&home).join(if database { "with-database" } else { "project" });
        if !accepted.exists() {
            Ran::of(of_theirs(&["trust", "--folder", "--yes"])).exits(0);
            Ran::of(of_theirs(&["trust", "--yes"])).exits(0);
            std::fs::write(accepted, "").unwrap();
        }
        of_theirs(arguments)
    }

    pub(crate) fn run_as(&self, person: (&str, &str), arguments: &[&str]) -> Ran {
        Ran::of(self.command_as(person, arguments))
    }

    /// A command that the program printed, run by a shell as a person would paste it.
    pub(crate) fn paste(&self, command: &str) -> Ran {
        let mut shell = self.command(&[]);
        let program = Path::new(shell.get_program()).parent().unwrap().to_path_buf();
        let variables: Vec<_> =
            shell.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
        let mut pasted = Command::new("sh");
        pasted.args(["-c", command]).current_dir(self.path()).stdin(Stdio::null());
        for (name, value) in variables {
            match value {
                Some(value) => pasted.env(name, value),
                None => pasted.env_remove(name),
            };
        }
        shell = pasted;
        shell.env("PATH", path);
        Ran::of(shell)
    }

    pub(crate) fn run_with_stdin(&self, arguments: &[&str], stdin: &[u8]) -> Ran {
        Ran::of_with_stdin(self.command(arguments), stdin)
    }
}

impl Ran {
    pub(crate) fn of_with_stdin(mut command: Command, stdin: &[u8]) -> Self {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let (mut pipe, stdin) = (child.stdin.take().unwrap(), stdin.to_vec());
        // Who does not read it all may close it early.
        let writer = std::thread::spawn(move || drop(pipe.write_all(&stdin)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Self::from(output)
    }

    pub(crate) fn of(mut command: Command) -> Self {
        Self::from(command.output().unwrap())
    }

    /// What `--json` printed.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The first event of a type.
    pub(crate) fn event(&self, kind: &str) -> Value {
        self.events().into_iter().find(|event| event["type"] == kind).unwrap_or_default()
    }

    pub(crate) fn types(&self) -> Vec<String> {
        self.events().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.err.contains(text), "{text:?} is not in stderr:\n{}", self.err);
        self
    }

    /// The first command in backticks that stdout or stderr shows and that has this word.
    #[track_caller]
    pub(crate) fn command_shown(&self, word: &str) -> String {
        let text = format!("{}{}", self.out, self.err);
        let mut quoted = text.split('`').skip(1).step_by(2);
        let found = quoted.find(|part| part.contains("turnbuckle ") && part.contains(word));
        found.unwrap_or_else(|| panic!("no command with {word:?} in:\n{text}")).replace("\n          ", " ")
    }

    #[track_caller]
    pub(crate) fn prints(self, text: &str) -> Self {
        assert_eq!(self.out, text, "stderr:\n{}", self.err);
        self
    }
}

impl From<std::process::Output> for Ran {
    fn from(output: std::process::Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

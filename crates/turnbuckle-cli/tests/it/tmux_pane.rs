//! A terminal of its own for a test: tmux, with the program in it.
//!
//! Every expectation is waited for; nothing depends on how fast the machine is. Without tmux nothing is tested; `scripts/test`
//! installs it and insists.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::program::Folder;

/// How long something may take to appear.
const PATIENCE: Duration = Duration::from_secs(40);
/// A question counts as read after half a second.
pub(crate) const READ: Duration = Duration::from_millis(700);

/// Where the shell in the pane writes the program's process and exit status.
const PID: &str = "tmux.pid";
const STATUS: &str = "tmux.status";
/// Runs the program and keeps its exit status: tmux sometimes misses the end of a process, which then stays a zombie, and its
/// `pane_dead_status` stays empty. Ctrl-C is for the program, not for this shell.
const KEEPER: &str = r#"trap : INT
sh -c 'echo $$ >tmux.pid; exec "$@"' sh "$@"
echo $? >tmux.status.new && mv tmux.status.new tmux.status"#;

/// A terminal of its own, with the program in it.
pub(crate) struct Tmux {
    socket: String,
    folder: PathBuf,
}

impl Tmux {
    /// `None` if there is no tmux, where nobody insists on it.
    pub(crate) fn open(
        folder: &Folder,
        arguments: &[&str],
        (width, height): (u16, u16),
        env: &[(&str, &str)],
    ) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            assert!(std::env::var_os("TURNBUCKLE_TEST_TMUX").is_none(), "tmux is not installed");
            return None;
        }
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let socket = format!("turnbuckle-{}-{number}", std::process::id());
        let this = Self { socket, folder: folder.path().to_owned() };
        let command = folder.command(arguments);
        for file in [PID, STATUS] {
            drop(std::fs::remove_file(folder.path().join(file)));
        }
        let mut words: Vec<String> = ["sh", "-c", KEEPER, "sh", "env"].map(str::to_owned).into();
        for (name, _) in command.get_envs().filter(|(_, value)| value.is_none()) {
            words.extend(["-u".to_owned(), name.to_str().unwrap().to_owned()]);
        }
        for (name, value) in command.get_envs() {
            words.extend(value.map(|value| format!("{}={}", name.to_str().unwrap(), value.to_str().unwrap())));
        }
        words.extend(env.iter().map(|(name, value)| format!("{name}={value}")));
        words.push(command.get_program().to_str().unwrap().to_owned());
        words.extend(command.get_args().map(|word| word.to_str().unwrap().to_owned()));
        let quoted: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
        let (width, height) = (width.to_string(), height.to_string());
        let started = this.tmux(&[
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            "-c",
            folder.path().to_str().unwrap(),
            &quoted.join(" "),
            ";",
            "set-option",
            "-g",
            "remain-on-exit",
            "on",
        ]);
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        Some(this)
    }

    pub(crate) fn tmux(&self, arguments: &[&str]) -> Output {
        // Its own server and no configuration: nothing of the person who runs the tests.
        Command::new("tmux").args(["-L", &self.socket, "-f", "/dev/null", "-u"]).args(arguments).output().unwrap()
    }

    /// Types text as it is.
    pub(crate) fn types(&self, text: &str) {
        assert!(self.tmux(&["send-keys", "-l", "--", text]).status.success());
    }

    /// Presses keys by their names: `Enter`, `C-c`, `Escape`.
    pub(crate) fn presses(&self, keys: &[&str]) {
        let arguments: Vec<&str> = ["send-keys"].into_iter().chain(keys.iter().copied()).collect();
        assert!(self.tmux(&arguments).status.success());
    }

    pub(crate) fn pane(&self, options: &[&str]) -> String {
        let arguments: Vec<&str> = ["capture-pane", "-p", "-J"].into_iter().chain(options.iter().copied()).collect();
        String::from_utf8_lossy(&self.tmux(&arguments).stdout).into_owned()
    }

    /// Its rows as they stand there, what has scrolled away included.
    pub(crate) fn rows(&self) -> Vec<String> {
        let captured = self.tmux(&["capture-pane", "-p", "-S", "-"]).stdout;
        String::from_utf8_lossy(&captured).lines().map(str::to_owned).collect()
    }

    /// Everything, what has scrolled away included.
    pub(crate) fn all(&self) -> String {
        self.pane(&["-S", "-"])
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let patience = Instant::now() + PATIENCE;
        loop {
            let pane = self.all();
            if is_so(&pane) {
                return;
            }
            assert!(Instant::now() < patience && !pane.contains("Pane is dead"), "not so: {what}\n{pane}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    pub(crate) fn shows(&self, text: &str) {
        self.until(&format!("{text:?} is on the screen"), |pane| pane.contains(text));
    }

    #[track_caller]
    pub(crate) fn lacks(&self, text: &str) {
        self.until(&format!("{text:?} is not on the screen"), |pane| !pane.contains(text));
    }

    /// Ready for the next message.
    #[track_caller]
    pub(crate) fn rests(&self) {
        // The prompt, and the status below it, are the last that is written.
        let last = |pane: &str| pane.lines().rev().filter(|line| !line.trim().is_empty()).nth(1).map(str::to_owned);
        self.until("the prompt waits", |pane| last(pane).is_some_and(|line| line.trim_end() == "›"));
    }

    #[track_caller]
    pub(crate) fn exits(&self, code: i32) {
        let patience = Instant::now() + PATIENCE;
        loop {
            if let Ok(status) = std::fs::read_to_string(self.folder.join(STATUS)) {
                assert_eq!(status.trim(), code.to_string(), "its exit status:\n{}", self.all());
                return;
            }
            assert!(Instant::now() < patience, "it has not ended:\n{}", self.all());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the program as nothing else can.
    pub(crate) fn kills(&self) {
        self.sends("-KILL");
        self.exits(128 + 9);
    }

    /// Sends the program a signal.
    pub(crate) fn sends(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.pid()]).status().unwrap().success());
    }

    /// Closes the terminal, and waits until the program has ended.
    #[track_caller]
    pub(crate) fn closes(&self) {
        let status = PathBuf::from(format!("/proc/{}/stat", self.pid()));
        assert!(self.tmux(&["kill-session"]).status.success());
        let patience = Instant::now() + PATIENCE;
        // Nobody may be there to take its exit status.
        while std::fs::read_to_string(&status).is_ok_and(|status| !status.contains(") Z ")) {
            assert!(Instant::now() < patience, "it has not ended");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn pid(&self) -> String {
        std::fs::read_to_string(self.folder.join(PID)).unwrap().trim().to_owned()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

//! Programs and words of the shell that run others: in which commands the program may be another word than the first, and in which
//! it cannot be told what runs.

/// Words of the shell behind which a command begins.
pub(super) const CONTROL: &[&str] = &["if", "then", "elif", "else", "while", "until", "do", "!", "{", "time"];

/// Words of the shell behind which a program may stand, or which give one another name.
pub(super) const SHELL_WORDS: &[&str] =
    &["coproc", "function", "exec", "command", "builtin", "eval", "trap", "alias", "hash"];

/// Programs that run another one, which their arguments name.
const RUNNERS: &[&str] = &[
    "abduco",
    "bwrap",
    "busybox",
    "capsh",
    "cgexec",
    "chpst",
    "choom",
    "chroot",
    "chrt",
    "daemonize",
    "dbus-launch",
    "dbus-run-session",
    "direnv",
    "doas",
    "docker",
    "dtach",
    "eatmydata",
    "entr",
    "env",
    "faketime",
    "fakeroot",
    "find",
    "firejail",
    "flock",
    "gdb",
    "i386",
    "ionice",
    "kexec",
    "ld.so",
    "linux32",
    "linux64",
    "ltrace",
    "nice",
    "nohup",
    "nsenter",
    "npx",
    "numactl",
    "parallel",
    "perf",
    "pkexec",
    "podman",
    "prlimit",
    "proot",
    "proxychains",
    "proxychains4",
    "rlwrap",
    "runcon",
    "runuser",
    "screen",
    "script",
    "setarch",
    "setpriv",
    "setsid",
    "sg",
    "softlimit",
    "ssh",
    "ssh-agent",
    "start-stop-daemon",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "tmux",
    "torsocks",
    "toybox",
    "unbuffer",
    "uname26",
    "unshare",
    "valgrind",
    "watch",
    "x86_64",
    "xargs",
    "xvfb-run",
];

/// Those that read a text as commands.
const SHELLS: &[&str] = &[
    "ash", "bash", "busybox", "csh", "dash", "elvish", "es", "fish", "ksh", "ksh93", "lksh", "mksh", "nu", "oksh",
    "osh", "pdksh", "posh", "pwsh", "rbash", "rc", "rksh", "rzsh", "sh", "tcsh", "toybox", "xonsh", "yash", "zsh",
];

/// Programs and words of the shell that run nothing else, whatever their arguments are: a name of a program among these is text.
const ORDINARY: &[&str] = &[
    ":", "[", "[[", "basename", "break", "cat", "cd", "chmod", "chown", "continue", "cp", "cut", "date", "df",
    "dirname", "du", "echo", "egrep", "exit", "export", "false", "fgrep", "file", "for", "grep", "head", "ln", "ls",
    "mkdir", "mv", "printf", "pwd", "readlink", "realpath", "return", "rm", "rmdir", "seq", "set", "shift", "sleep",
    "stat", "tail", "test", "touch", "tr", "true", "type", "uniq", "unset", "wc", "which",
];

/// Words of the shell that evaluate what they are given as arithmetic or as the name of a variable, in which a substitution counts.
const EVALUATING: &[&str] = &[
    "[",
    "[[",
    "break",
    "continue",
    "declare",
    "exit",
    "export",
    "getopts",
    "let",
    "local",
    "mapfile",
    "printf",
    "read",
    "readarray",
    "readonly",
    "return",
    "shift",
    "test",
    "typeset",
    "ulimit",
    "unset",
    "wait",
];

/// Programs and words of the shell that are given commands as a text, and have a shell read it.
const EVALUATORS: &[&str] =
    &["eval", "entr", "flock", "parallel", "runuser", "screen", "script", "sg", "ssh", "su", "tmux", "trap", "watch"];

/// Words of the shell that run a text or a file, or change what a later word means.
const OPAQUE: &[&str] = &[".", "alias", "bind", "compgen", "complete", "enable", "fc", "function", "hash", "source"];

/// Programs that put what they read into the command that they run.
const CARRIERS: &[&str] = &["entr", "find", "parallel", "xargs"];

pub(super) fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

pub(super) fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name.strip_suffix('+').unwrap_or(name));
    name.is_some_and(|name| !name.is_empty() && name.chars().all(|ch| ch.is_ascii_alphanumeric() || ch == '_'))
}

pub(super) fn is_shell(word: &str) -> bool {
    SHELLS.contains(&base_name(word))
}

/// Whether it runs what its arguments name.
pub(super) fn is_runner(word: &str) -> bool {
    let name = base_name(word);
    RUNNERS.contains(&name) || is_shell(name) || name.starts_with("ld-linux") || name.starts_with("ld-musl")
}

/// Whether a shell reads what it is given once more.
pub(super) fn evaluates_text(name: &str) -> bool {
    EVALUATORS.contains(&name) || is_shell(name)
}

/// The words of a command, redirections and what they name left out, and the place of the program among them.
fn words_of(command: &str) -> (Vec<&str>, usize) {
    let mut words = Vec::new();
    let mut is_target = false;
    for word in command.split_whitespace() {
        let mut parts = word.split(['<', '>']);
        let before = parts.next().unwrap_or_default();
        let (is_redirection, names_target) = (before.len() < word.len(), parts.any(|part| !part.is_empty()));
        // What stands before the sign is the number of a file, or a word.
        let is_number = is_redirection && before.chars().all(|sign| sign.is_ascii_digit());
        if !std::mem::replace(&mut is_target, is_redirection && !names_target) && !is_number {
            words.push(before);
        }
    }
    let program = words.iter().position(|word| !CONTROL.contains(word) && !is_assignment(word)).unwrap_or(words.len());
    (words, program)
}

/// Whether the program may be another word than the first one: behind an assignment, a redirection or a word of the shell, or as an
/// argument of a program that is not known to run no others.
pub(super) fn may_run_another(command: &str) -> bool {
    let first = command.split_whitespace().next().unwrap_or_default();
    let (words, program) = words_of(command);
    first.contains(['=', '<', '>', '{'])
        || CONTROL.contains(&first)
        || words.get(program).is_some_and(|program| !ORDINARY.contains(&base_name(program)))
}

/// Whether it cannot be told what a command runs: a shell that reads a file, a pipe or more than the text that stands here, a word
/// that evaluates a text, a program that puts what it reads into a command.
pub(super) fn is_opaque(command: &str) -> bool {
    let (words, at) = words_of(command);
    // The reader left these only where quotes kept the shell from them; what evaluates the text does not know the quotes.
    let has_substitution = |text: &str| text.contains("$(") || text.contains('`') || text.contains("${");
    let starts_shell = |word: &&str| word.starts_with("BASH_ENV=") || word.starts_with("ENV=");
    if words[..at].iter().any(|word| has_substitution(word) || starts_shell(word)) {
        return true;
    }
    let Some((program, rest)) = words[at..].split_first() else { return false };
    let name = base_name(program);
    if has_substitution(program)
        || OPAQUE.contains(program)
        || EVALUATING.contains(program) && has_substitution(command)
    {
        return true;
    }
    let is_option = |word: &&&str, sign: char| word.starts_with('-') && !word.starts_with("--") && word.contains(sign);
    match name {
        "mapfile" | "readarray" => return rest.iter().any(|word| is_option(&word, 'C')),
        "command" | "builtin" if rest.iter().any(|word| OPAQUE.contains(word) || EVALUATING.contains(word)) => {
            return true;
        }
        // The command may be joined to the option, as in `-crm`.
        "script" | "su" | "runuser" | "flock" | "sg"
            if rest.iter().any(|word| is_option(&word, 'c') && !word.ends_with('c')) =>
        {
            return true;
        }
        "env" if rest.iter().any(|word| is_option(&word, 'S') || word.starts_with("--split")) => return true,
        "parallel" => return true,
        "xargs" if carries_program(rest) => return true,
        _ if ORDINARY.contains(&name) => return false,
        _ => {}
    }
    let carries = CARRIERS.contains(&name);
    let is_text = matches!(name, "eval" | "trap");
    let shells = words[at..].iter().enumerate().filter(|(_, word)| is_shell(word));
    // `busybox sh` is two of them, and one shell.
    let first = shells.map(|(place, _)| place).next().or(is_text.then_some(0));
    let Some(shell) = first.map(|place| at + place) else { return false };
    let applet = matches!(base_name(words[shell]), "busybox" | "toybox");
    let given = &words[shell + 1..];
    if applet && !given.first().is_some_and(|applet| is_shell(applet)) {
        // Another program of the same file, named by the next word.
        return false;
    }
    let given = if applet { &given[1..] } else { given };
    let text = match is_text {
        true => Some(given),
        false => given.iter().position(|word| is_option(&word, 'c')).map(|place| &given[place + 1..]),
    };
    let is_told = matches!(given, ["--version" | "--help"]);
    let runs_more = |text: &[&str]| {
        let signs = |sign: char| ";|&()<>{}'\"".contains(sign);
        let mut words = text.iter().flat_map(|word| word.split(signs));
        words.any(|word| is_shell(word) || matches!(word, "eval") || OPAQUE.contains(&word))
    };
    !is_told && (carries || text.is_none_or(runs_more))
}

/// Whether `xargs` runs what it reads: as its program, or as that of a program that runs others.
fn carries_program(words: &[&str]) -> bool {
    let mut replaced = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "-i" | "--replace" => replaced = Some("{}"),
            "-I" => replaced = words.next().copied(),
            "-n" | "-L" | "-P" | "-s" | "-d" | "-a" | "-E" => drop(words.next()),
            word if word.starts_with("-I") || word.starts_with("-i") => replaced = Some(&word[2..]),
            word if word.starts_with("--replace=") => replaced = word.split_once('=').map(|(_, sign)| sign),
            word if word.starts_with('-') => {}
            program => {
                let is_replaced = replaced.is_some_and(|sign| !sign.is_empty() && program.contains(sign));
                return is_replaced || is_runner(program) || words.any(|word| is_runner(word));
            }
        }
    }
    false
}

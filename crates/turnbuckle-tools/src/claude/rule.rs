//! The `if` of a handler: one permission rule, `Tool` or `Tool(pattern)`. Where it cannot be told whether a rule fits, the
//! handler runs: a gate is rather asked once too often.

use std::path::{Path, PathBuf};

use ignore::gitignore::GitignoreBuilder;
use regex::Regex;
use serde_json::Value;

use super::commands::simple_commands;
use super::programs::{base_name, may_run_another};

/// A rule as it is written.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    tool: String,
    pattern: Option<String>,
}

impl Rule {
    /// `None` if it is no rule.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (tool, pattern) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => (tool, Some(rest.strip_suffix(')')?.to_owned())),
        };
        let is_name = |ch: char| ch.is_ascii_alphanumeric() || ch == '_' || ch == '-' || ch == '*';
        let pattern = pattern.filter(|pattern| !pattern.is_empty() && pattern != "*");
        (!tool.is_empty() && tool.chars().all(is_name)).then(|| Self { tool: tool.to_owned(), pattern })
    }

    /// Whether it fits a call, given in the protocol's names.
    pub(super) fn fits(&self, tool: &str, input: &Value, cwd: &Path) -> bool {
        if !glob(&self.tool, tool) {
            return false;
        }
        let Some(pattern) = &self.pattern else { return true };
        let text = |key: &str| input.get(key).and_then(Value::as_str);
        match tool {
            "Bash" | "PowerShell" => text("command").is_none_or(|command| fits_command(pattern, command)),
            "Read" | "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => {
                text("file_path").is_none_or(|path| fits_path(pattern, Path::new(path), cwd))
            }
            "Glob" | "Grep" => text("path").is_none_or(|path| fits_path(pattern, Path::new(path), cwd)),
            _ => true,
        }
    }
}

/// `*` is any run of characters.
pub(super) fn glob(pattern: &str, text: &str) -> bool {
    let parts: Vec<String> = pattern.split('*').map(regex::escape).collect();
    Regex::new(&format!("(?s)^{}$", parts.join(".*"))).is_ok_and(|regex| regex.is_match(text))
}

fn fits_command(pattern: &str, command: &str) -> bool {
    let pattern = pattern.strip_suffix(":*").map_or_else(|| pattern.to_owned(), |start| format!("{start} *"));
    let start = pattern.trim_end_matches('*').trim_end();
    let names_arguments = start.contains([' ', '*']);
    // What a variable or a substitution stands for is not known here.
    if names_arguments && command.contains(['$', '`']) {
        return true;
    }
    let Some(commands) = simple_commands(command) else { return true };
    if names_arguments && commands.is_unclear {
        return true;
    }
    let takes_any = !names_arguments && pattern.ends_with('*');
    // A rule that names a program with its folder is for the program, however the command finds it.
    let (first, rest) = pattern.split_once(' ').unwrap_or((&pattern, ""));
    let without_folder = first.contains('/').then(|| format!("{} {rest}", base_name(first)).trim_end().to_owned());
    // Commands are compared without their quotes.
    let quotes = ['\'', '"', '\\'];
    let without_quotes = pattern.contains(quotes).then(|| pattern.replace(quotes, ""));
    std::iter::once(pattern.clone()).chain(without_folder).chain(without_quotes).any(|pattern| {
        let Some(fitting) = Fitting::of(&pattern) else { return true };
        // Of a command with a pattern among its words only the program is known.
        let Some(program) = Fitting::of(&program_of(&pattern)) else { return true };
        commands
            .found
            .iter()
            .any(|one| fitting.fits(&one.text) || one.is_expanded && !takes_any && program.fits(&one.text))
    })
}

/// The rule for all commands with the program of a rule.
fn program_of(pattern: &str) -> String {
    let end = pattern.find([' ', '*']).unwrap_or(pattern.len());
    let sign = if pattern[end..].starts_with('*') { "*" } else { " *" };
    format!("{}{sign}", &pattern[..end])
}

/// A rule's pattern for commands, compiled once for all commands of a line: a model can write lines with thousands of them.
struct Fitting {
    /// Of the whole command.
    whole: Regex,
    /// Of the command from any place on where a program may begin.
    end: Regex,
}

impl Fitting {
    fn fits(&self, command: &str) -> bool {
        self.whole.is_match(command) || may_run_another(command) && self.end.is_match(command)
    }

    /// `None` if the pattern is too large to be compiled.
    fn of(pattern: &str) -> Option<Self> {
        let escaped = |text: &str| text.split('*').map(regex::escape).collect::<Vec<_>>().join(".*");
        // Behind a program a shell may also have a sign that means something to it, without a blank.
        let expression = match pattern.strip_suffix(" *") {
            // The blank is a word's end: `ls *` is `ls` and `ls -la`, not `lsof`.
            Some(start) => format!(r"{}(?:[\s;&|()<>}}].*)?", escaped(start)),
            None => escaped(pattern),
        };
        let compiled = |before: &str| Regex::new(&format!("(?s){before}(?:{expression})$")).ok();
        Some(Self { whole: compiled("^")?, end: compiled(r#"(?:^|[\s;&|(){}=/'"`!<>])"#)? })
    }
}

/// Like a line of a `.gitignore` in the project's folder: `src/**` is below it, `**/src/**` is anywhere, `//` is the root.
fn fits_path(pattern: &str, path: &Path, cwd: &Path) -> bool {
    let whole = cwd.join(path);
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let (root, pattern) = match (pattern.strip_prefix("~/"), pattern.strip_prefix("//"), pattern.strip_prefix("./")) {
        (Some(below), _, _) => match home {
            Some(home) => (home, format!("/{below}")),
            // Nobody can tell which folder is meant.
            None => return true,
        },
        (_, Some(absolute), _) => (PathBuf::from("/"), format!("/{absolute}")),
        (_, _, Some(below)) => (cwd.to_owned(), format!("/{below}")),
        // These are signs of the file's, not of a rule's.
        _ if pattern.starts_with(['!', '#']) => (cwd.to_owned(), format!("\\{pattern}")),
        _ => (cwd.to_owned(), pattern.to_owned()),
    };
    let is_anywhere = pattern.starts_with("**") || !pattern.trim_end_matches('/').contains('/');
    let below = match whole.strip_prefix(&root) {
        Ok(below) => below,
        Err(_) if is_anywhere => whole.strip_prefix("/").unwrap_or(&whole),
        Err(_) => return false,
    };
    let mut lines = GitignoreBuilder::new("/");
    let Ok(rules) = lines.add_line(None, &pattern).map(|_| ()).and_then(|()| lines.build()) else { return true };
    // What says nothing, or is no path below a folder, cannot be compared.
    if rules.is_empty() || below.has_root() {
        return true;
    }
    // A call may be about a folder as well, and a new one may be meant.
    [false, true].into_iter().any(|is_dir| rules.matched_path_or_any_parents(below, is_dir).is_ignore())
}

#[cfg(test)]
mod spellings;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rule_for_commands_is_read_word_by_word() {
        for (rule, command, fits) in [
            ("Bash", "anything", true),
            ("Bash(git *)", "git push", true),
            ("Bash(git *)", "gitk", false),
            ("Bash(ls:*)", "ls -la", true),
            ("Bash(ls *)", "ls", true),
            ("Bash(ls *)", "lsof", false),
            ("Bash(git *)", "FOO=1 git status", true),
            ("Bash(git *)", "cd x && git status", true),
            ("Bash(rm *)", "echo $(rm -rf x)", true),
            ("Bash(rm *)", "echo `rm x`", true),
            ("Bash(rm *)", "echo 'rm x; rm y'", false),
            ("Bash(rm *)", "echo \"unfinished", true),
            ("Bash(git push *)", "git $VERB origin", true),
            ("Bash(git push *)", "git status", false),
            ("Bash(rm *)", "FOO=\"a b\" rm -rf x", true),
            ("Bash(rm *)", "{ rm -rf x; }", true),
            ("Bash(rm *)", "if true; then rm -rf x; fi", true),
            ("Bash(rm *)", ">/dev/null rm -rf x", true),
            ("Bash(rm *)", "env A=1 rm -rf x", true),
            ("Bash(rm *)", "echo rm", false),
            ("Read(x)", "ls", false),
            ("Bash(touch *)", "/usr/bin/touch x", true),
            ("Bash(touch *)", "../bin/touch x", true),
            ("Bash(/usr/bin/touch *)", "touch x", true),
            ("Bash(touch *)", "$'touch' x", true),
            ("Bash(touch *)", "$'\\x74ouch' x", true),
            ("Bash(touch *)", "$\"touch\" x", true),
            ("Bash(touch *)", "t\\ou'c'\"h\" x", true),
            ("Bash(touch *)", "to$(true)uch x", true),
            ("Bash(touch *)", "to`true`uch x", true),
            ("Bash(touch *)", "${T:-touch} x", true),
            ("Bash(touch *)", "A=1 $T x", true),
            ("Bash(touch *)", "/bin/tou?h x", true),
            ("Bash(touch *)", "/usr/bin/[t]ouch x", true),
            ("Bash(touch *)", "{touch,x}", true),
            ("Bash(touch *)", "touch${IFS}x", true),
            ("Bash(touch *)", "touch>x", true),
            ("Bash(touch *)", "sudo -u bob $T x", true),
            ("Bash(touch *)", "timeout 5 /usr/bin/touch x", true),
            ("Bash(touch *)", "sh -c 'ls;touch x'", true),
            ("Bash(touch *)", "sh -c 't=touch; $t x'", true),
            ("Bash(touch *)", "alias t=touch", true),
            ("Bash(touch *)", "hash -p /usr/bin/touch t; t x", true),
            ("Bash(touch *)", "echo \"$(ls; touch x)\"", true),
            ("Bash(touch *)", "echo $(case x in x) touch y;; esac)", true),
            ("Bash(touch *)", "echo a # it's\ntouch x\n# it's", true),
            ("Bash(touch *)", "cat <<E\nit's\nE\ntouch x\ncat <<E\nit's\nE", true),
            ("Bash(touch *)", "bash <<'E'\ntouch x\nE", true),
            ("Bash(touch *)", "cat <<E\n$(touch x)\nE", true),
            ("Bash(touch *)", "echo $'a\\'' ; touch x ; echo $'b\\''", true),
            ("Bash(touch *)", "echo touch", false),
            ("Bash(touch *)", "git log --since=$(date) --author=$USER", false),
            ("Bash(touch *)", "for f in *.rs; do echo $f; done", false),
            ("Bash(touch *)", "if [ -n \"$X\" ]; then echo yes; fi", false),
            ("Bash(touch *)", "[[ -f x ]] && ls *", false),
            ("Bash(touch *)", "cat > a.md <<'E'\nit's `code` $x\nE\nls", false),
            ("Bash(touch *)", "grep -rn 'a|b' src | head -5 > out", false),
            ("Bash(touch *)", "xargs -I{} cp {} x", false),
            ("Bash(touch *)", "{ ls; }", false),
            ("Bash(touch *)", "cat x | sh", true),
            ("Bash(touch *)", "echo dG91Y2ggeA== | base64 -d | bash -s", true),
            ("Bash(touch *)", "sh <f", true),
            ("Bash(touch *)", "sh<f", true),
            ("Bash(touch *)", "bash ./x.sh", true),
            ("Bash(touch *)", ". ./x.sh", true),
            ("Bash(touch *)", "source <(printf 'tou%s' 'ch x')", true),
            ("Bash(touch *)", "bash <(cat x)", true),
            ("Bash(touch *)", "builtin . ./x.sh", true),
            ("Bash(touch *)", "echo 'touch x' | xargs -I{} sh -c {}", true),
            ("Bash(touch *)", "echo touch x | xargs env", true),
            ("Bash(touch *)", "echo touch | xargs -I% % x", true),
            ("Bash(touch *)", "cat x | parallel", true),
            ("Bash(touch *)", "find . -name '*.sh' -exec sh {} +", true),
            ("Bash(touch *)", "rbash -c 'touch x'", true),
            ("Bash(touch *)", "tcsh -c 'touch x'", true),
            ("Bash(touch *)", "fish -c 'touch x'", true),
            ("Bash(touch *)", "busybox sh <f", true),
            ("Bash(touch *)", "busybox touch x", true),
            ("Bash(touch *)", "sh -c 'sh <f'", true),
            ("Bash(touch *)", "sh -c 'cat x|sh'", true),
            ("Bash(touch *)", "eval '. ./x'", true),
            ("Bash(touch *)", "trap '. ./x' EXIT", true),
            ("Bash(touch *)", "BASH_ENV=./x bash -c ls", true),
            ("Bash(touch *)", "prlimit --nofile=9 touch x", true),
            ("Bash(touch *)", "setarch x86_64 touch x", true),
            ("Bash(touch *)", "ssh-agent touch x", true),
            ("Bash(touch *)", "fakeroot $T x", true),
            ("Bash(touch *)", "pkexec touch x", true),
            ("Bash(touch *)", "systemd-run --user touch x", true),
            ("Bash(touch *)", "dbus-run-session touch x", true),
            ("Bash(touch *)", "/lib64/ld-linux-x86-64.so.2 /usr/bin/touch x", true),
            ("Bash(touch *)", "some-program-that-nobody-knows --run touch x", true),
            ("Bash(touch *)", "some-program-that-nobody-knows sh ./x", true),
            ("Bash(touch *)", "script -qc'touch x' /dev/null", true),
            ("Bash(touch *)", "script -c'touch x' /dev/null", true),
            ("Bash(touch *)", "env -S'touch x'", true),
            ("Bash(touch *)", "test -v 'a[$(touch x)]'", true),
            ("Bash(touch *)", "[[ 'a[$(touch x)]' -eq 0 ]]", true),
            ("Bash(touch *)", "let 'a[$(touch x)]'", true),
            ("Bash(touch *)", "declare 'a[$(touch x)]=1'", true),
            ("Bash(touch *)", "x='a[`touch x`]'; (( x ))", true),
            ("Bash(touch *)", "compgen -C 'tou''ch x'", true),
            ("Bash(touch *)", "mapfile -C 'touch x' -c 1 <f", true),
            ("Bash(touch *)", "function echo { \"$@\"; }; echo touch x", true),
            ("Bash(touch *)", "alias echo=env\necho touch x", true),
            ("Bash(touch *)", "A=$(date) ls", false),
            ("Bash(touch *)", "git add . && git commit -m 'a message'", false),
            ("Bash(touch *)", "mapfile -t lines <f", false),
            ("Bash(touch *)", "bash --version", false),
            ("Bash(touch *)", "bash -c 'ls -la'", false),
            ("Bash(touch *)", "cargo test --workspace 2>/dev/null | tail -5", false),
            ("Bash(touch *)", "printf '%s\\n' touch", false),
            ("Bash(touch *)", "test -f x && echo touch", false),
            ("Bash(touch *)", "busybox ls", false),
            ("Bash(touch *)", "echo $HOME > $OUT", false),
        ] {
            let fit = Rule::parse(rule).unwrap().fits("Bash", &json!({"command": command}), Path::new("/p"));
            assert_eq!(fit, fits, "{rule} on {command:?}");
        }
    }

    /// Pieces of lines that mean something to a shell, most of them in the wrong place. None of them can loop.
    const PIECES: [&str; 55] = [
        "spy",
        "spy",
        "spy x",
        "s",
        "py",
        " ",
        " ",
        " ",
        "'",
        "\"",
        "\\",
        "\n",
        ";",
        "|",
        "&",
        "&&",
        "$(",
        ")",
        "`",
        "(",
        "{ ",
        ";}",
        "#",
        " # it's\n",
        "$'",
        "'spy'",
        "\"spy\"",
        "$x",
        "${x}",
        "x=spy ",
        "eval ",
        "sh -c ",
        "exec ",
        "echo ",
        "echo $(",
        "<<E\n",
        "\nE\n",
        "<<'E'\n",
        ">o ",
        "<i ",
        "\\\n",
        "if ",
        "then ",
        "; fi",
        "case x in x) ",
        ";; esac",
        "?",
        "env ",
        " | sh",
        "sh <f",
        ". ./f",
        "test -v ",
        "'a[$(spy)]'",
        "$((",
        "))",
    ];

    #[test]
    fn no_line_that_starts_a_program_gets_past_a_rule_that_names_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let programs = folder.path().join("programs");
        std::fs::create_dir(&programs).unwrap();
        let spy = programs.join("spy");
        std::fs::write(&spy, "#!/bin/sh\n: > \"$RAN\"\n").unwrap();
        std::fs::set_permissions(&spy, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(programs.join("f"), "spy\n").unwrap();
        for name in ["sh", "env"] {
            let real =
                ["/bin", "/usr/bin"].map(|place| Path::new(place).join(name)).into_iter().find(|path| path.exists());
            std::os::unix::fs::symlink(real.unwrap(), programs.join(name)).unwrap();
        }
        // A sequence of numbers that looks random and is always the same.
        let mut state = 7_u64;
        let mut below = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % end
        };
        let rounds = std::env::var("RULE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(400);
        let (rule, mut started) = (Rule::parse("Bash(spy *)").unwrap(), 0);
        for round in 0..rounds {
            let length = 2 + below(9);
            let line: String = (0..length).map(|_| PIECES[below(PIECES.len())]).collect();
            // A function could call itself without end.
            if line.split_whitespace().collect::<String>().contains("()") {
                continue;
            }
            for shell in ["sh", "bash"] {
                // A file of its own: what the line put into the background may run later.
                let ran = folder.path().join(format!("ran-{round}-{shell}"));
                let mut run = std::process::Command::new(shell);
                run.args(["-c", "PATH=$PROGRAMS; export PATH; eval \"$LINE\""]);
                run.env("LINE", &line).env("RAN", &ran).env("PROGRAMS", &programs).env("x", "spy");
                let none = std::process::Stdio::null;
                run.current_dir(&programs).stdin(none()).stdout(none()).stderr(none()).status().unwrap();
                if ran.exists() {
                    started += 1;
                    let fits = rule.fits("Bash", &json!({ "command": line }), Path::new("/p"));
                    assert!(fits, "{shell} starts the program in {line:?}");
                }
            }
        }
        assert!(started > 20, "only {started} lines started the program");
    }

    #[test]
    fn a_rule_for_files_is_like_a_line_of_gitignore() {
        let home = format!("{}/.ssh/id", std::env::var("HOME").unwrap());
        for (rule, path, fits) in [
            ("Edit(src/**)", "/p/src/a/b.rs", true),
            ("Edit(src/**)", "/p/x/src/b.rs", false),
            ("Edit(**/src/**)", "/p/x/src/b.rs", true),
            ("Edit(*.rs)", "/p/x/b.rs", true),
            ("Edit(*.rs)", "/p/x/b.py", false),
            ("Edit(//etc/**)", "/etc/passwd", true),
            ("Edit(src/**)", "/etc/src/x", false),
            ("Edit(~/.ssh/**)", &home, true),
            ("Edit(~/.aws/**)", &home, false),
            ("Edit(src/)", "/p/src/a.rs", true),
            ("Edit(src/)", "/p/x/src/a.rs", true),
            ("Edit(src/)", "/p/srcs/a.rs", false),
            ("Edit(/src/)", "/p/src/a/b.rs", true),
            ("Edit(/src/)", "/p/x/src/a.rs", false),
            ("Edit(src/[ab].rs)", "/p/src/a.rs", true),
            ("Edit(src/[ab].rs)", "/p/src/c.rs", false),
            ("Edit(./src/*.rs)", "/p/src/c.rs", true),
            ("Edit(.env)", "/p/x/.env", true),
            ("Edit(.env)", "/elsewhere/.env", true),
            ("Edit(!x)", "/p/!x", true),
            ("Edit(#x)", "/p/#x", true),
            ("Edit(src)", "/p/src/a/b.rs", true),
            ("Edit(a?c)", "/p/abc", true),
        ] {
            let fit = Rule::parse(rule).unwrap().fits("Edit", &json!({"file_path": path}), Path::new("/p"));
            assert_eq!(fit, fits, "{rule} on {path:?}");
        }
        assert!(Rule::parse("Edit(src").is_none() && Rule::parse("").is_none());
    }
}

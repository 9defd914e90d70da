//! Which standing approvals make sense for a call, from narrow to broad.

use serde_json::Value;
use turnbuckle::store::ArgumentMatch;

use super::address::host_of;
use super::{Rule, Subject, simple_commands, subject_of};

/// Programs that run what they are given: after their name, `*` would allow every program.
const RUNS_OTHERS: [&str; 46] = [
    ".", "ash", "awk", "bash", "builtin", "bun", "chroot", "command", "csh", "dash", "deno", "doas", "env", "eval",
    "exec", "find", "fish", "flock", "gawk", "gdb", "ionice", "ksh", "lua", "make", "nice", "node", "nohup", "npx",
    "parallel", "perl", "php", "ruby", "script", "setsid", "sh", "source", "ssh", "stdbuf", "strace", "su", "sudo",
    "tcsh", "time", "timeout", "xargs", "zsh",
];

/// Commands that change the shell itself: the same words again, and nothing else.
const OF_THE_SHELL: [&str; 12] =
    ["alias", "cd", "export", "hash", "popd", "pushd", "read", "set", "shift", "trap", "umask", "unset"];

/// Programs whose second word says what they do.
const WITH_SUBCOMMANDS: [&str; 34] = [
    "apt",
    "apt-get",
    "brew",
    "bundle",
    "cargo",
    "composer",
    "conda",
    "deno",
    "docker",
    "dotnet",
    "gh",
    "git",
    "go",
    "gradle",
    "helm",
    "hg",
    "just",
    "kubectl",
    "mix",
    "mvn",
    "npm",
    "pip",
    "pip3",
    "pnpm",
    "podman",
    "poetry",
    "rustup",
    "swift",
    "systemctl",
    "terraform",
    "turnbuckle",
    "uv",
    "yarn",
    "zig",
];

/// Subcommands that run what the word behind them names.
const RUNS_NAMED: [&str; 6] = ["dlx", "exec", "run", "run-script", "tool", "x"];

/// What a standing approval made of this call may cover, from narrow to broad. The first is always there: the same arguments, or for a
/// change of a file the same file. Each covers the call itself. Paths are in their normal form.
///
/// ```
/// use serde_json::json;
/// use turnbuckle_tools::rules::choices;
///
/// let offered = choices("shell", &json!({ "command": "cd src && cargo test -p core" }));
/// let words: Vec<String> = offered.iter().map(|parts| parts[0].to_string()).collect();
/// assert_eq!(words[1], "what shell(cd src) and shell(cargo test *) allows");
/// // Nobody knows what the shell would make of this.
/// assert_eq!(choices("shell", &json!({ "command": "cargo test $(id)" })).len(), 1);
/// ```
pub fn choices(tool: &str, arguments: &Value) -> Vec<Vec<ArgumentMatch>> {
    let same = vec![ArgumentMatch::equals("", arguments.clone())];
    let text = |key: &str| arguments.get(key).and_then(Value::as_str);
    let (first, rules) = match subject_of(tool) {
        Subject::Command => (same, text("command").and_then(of_command).into_iter().collect()),
        Subject::Path => match text("path") {
            Some(path) => (vec![ArgumentMatch::equals("/path", path.into())], of_path(tool, path)),
            None => (same, Vec::new()),
        },
        Subject::Host => {
            (same, text("url").and_then(host_of).map(|host| vec![format!("{tool}({host})")]).into_iter().collect())
        }
        // Whatever it is called with: no rule says less.
        Subject::Nothing => return vec![same, Vec::new()],
    };
    let covers = |rules: &Vec<String>| super::allow(rules, tool, arguments);
    let by_rules = rules.into_iter().filter(covers).map(|rules| vec![ArgumentMatch::allowed_by(rules)]);
    std::iter::once(first).chain(by_rules).collect()
}

/// One rule for each command of a line; `None` if a rule would say no more than the line itself, or too much.
fn of_command(line: &str) -> Option<Vec<String>> {
    let commands = simple_commands(line).ok().filter(|commands| !commands.is_empty())?;
    let mut rules: Vec<String> = Vec::new();
    let mut is_open = false;
    for words in &commands {
        let (kept, has_rest) = kept(words)?;
        is_open |= has_rest;
        let words: Vec<String> = words.iter().take(kept).map(|word| quoted(word)).collect();
        let rule = format!("shell({}{})", words.join(" "), if has_rest { " *" } else { "" });
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    is_open.then_some(rules)
}

/// How many words of a command stay the same, and whether others may follow. `None` if nobody can say what would run then.
fn kept(words: &[String]) -> Option<(usize, bool)> {
    let program = words.first()?;
    let is = |list: &[&str]| list.contains(&program.as_str());
    // `python3.12 -c`, `/usr/bin/env`: by another name or path they are the same.
    let name = program.rsplit('/').next().unwrap_or(program);
    if RUNS_OTHERS.contains(&name) || name.starts_with("python") || name.starts_with("pypy") {
        return None;
    }
    if is(&OF_THE_SHELL) {
        return Some((words.len(), false));
    }
    if !WITH_SUBCOMMANDS.contains(&name) {
        return Some((1, true));
    }
    // Behind an option before the subcommand (`git -c alias.x=…`) anything could stand.
    let is_plain = |word: &&String| {
        word.starts_with(|sign: char| sign.is_ascii_alphanumeric())
            && word.chars().all(|sign| sign.is_ascii_alphanumeric() || "-_:.".contains(sign))
    };
    let subcommand = words.get(1).filter(is_plain)?;
    if !RUNS_NAMED.contains(&subcommand.as_str()) || name == "cargo" {
        return Some((2, true));
    }
    words.get(2).filter(is_plain).map(|_| (3, true))
}

/// A word as a rule has it: quoted if a sign in it would mean something else.
fn quoted(word: &str) -> String {
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "_-./:=@%+,".contains(sign);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The folder of the file, with those below it, and the whole project.
fn of_path(tool: &str, path: &str) -> Vec<Vec<String>> {
    let mut patterns = Vec::new();
    match path.rsplit_once('/') {
        // A name with a sign of the patterns in it would stand for other folders, too.
        Some((folder, _)) if !folder.contains(['*', '?', '(', ')']) => {
            patterns.extend([format!("{folder}/*"), format!("{folder}/**")]);
        }
        Some(_) => {}
        None => patterns.push("*".to_owned()),
    }
    patterns.push("**".to_owned());
    patterns.into_iter().map(|pattern| vec![format!("{tool}({pattern})")]).collect()
}

/// Whether rules allow a call of this tool. One that cannot be read, or is for another tool, allows nothing and spoils the others.
pub(crate) fn allow(rules: &[String], tool: &str, arguments: &Value) -> bool {
    let parsed: Result<Vec<Rule>, _> = rules.iter().map(|rule| rule.parse::<Rule>()).collect();
    parsed.is_ok_and(|parsed| parsed.iter().all(|rule| rule.tool() == tool) && Rule::allow(&parsed, tool, arguments))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::TRICKS;
    use super::*;

    fn offered(tool: &str, arguments: &Value) -> Vec<String> {
        let words =
            |parts: &Vec<ArgumentMatch>| parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        choices(tool, arguments).iter().skip(1).map(words).collect()
    }

    fn rules_of(command: &str) -> Vec<String> {
        of_command(command).unwrap_or_default()
    }

    #[test]
    fn a_command_is_offered_as_the_rule_that_says_what_runs() {
        assert_eq!(rules_of("cargo test -p core"), ["shell(cargo test *)"]);
        assert_eq!(rules_of("ls -l src | head -5"), ["shell(ls *)", "shell(head *)"]);
        assert_eq!(rules_of("cd 'my src' && git diff"), ["shell(cd 'my src')", "shell(git diff *)"]);
        assert_eq!(rules_of("npm run build"), ["shell(npm run build *)"]);
    }

    #[test]
    fn no_rule_is_offered_that_would_let_any_program_run() {
        let commands = [
            "sh -c 'rm -rf .'",
            "/bin/bash x",
            "env X=1 ls",
            "python3 -c 1",
            "python3.12 x.py",
            "find . -name x",
            "xargs rm",
            "git -c alias.x=!sh x",
            "npm exec -- sh",
            "uv run --with x sh",
            "sudo ls",
            "ls && sh x",
            "make",
            "cd src",
        ];
        for command in commands {
            assert_eq!(rules_of(command), Vec::<String>::new(), "{command}");
        }
    }

    #[test]
    fn what_is_offered_for_a_command_allows_none_of_the_tricks_and_every_offer_covers_its_call() {
        let harmless = ["git status", "git log -1", "cargo test", "ls -l", "grep -n x src"];
        for command in harmless {
            let rules = rules_of(command);
            for trick in TRICKS.iter().filter(|trick| simple_commands(trick).is_err()) {
                assert!(!allow(&rules, "shell", &json!({ "command": trick })), "{command}: {trick}");
            }
            assert!(allow(&rules, "shell", &json!({ "command": command })), "{command}");
            assert!(!allow(&rules, "shell", &json!({ "command": format!("{command}; rm -rf .") })), "{command}");
            let outside = json!({ "command": command, "outside_sandbox": true });
            assert!(!allow(&rules, "shell", &outside), "{command}");
        }
        for trick in TRICKS {
            let arguments = json!({ "command": trick });
            let unparsed = simple_commands(trick).is_err();
            assert!(!unparsed || offered("shell", &arguments).is_empty(), "{trick}");
        }
    }

    #[test]
    fn a_file_is_offered_with_its_folder_and_the_project() {
        let path = |path: &str| offered("write_file", &json!({ "path": path, "content": "x" }));
        let expected =
            ["what write_file(src/a/*) allows", "what write_file(src/a/**) allows", "what write_file(**) allows"];
        assert_eq!(path("src/a/b.rs"), expected);
        assert_eq!(path("a.txt"), ["what write_file(*) allows", "what write_file(**) allows"]);
        assert_eq!(path("s*c/b.rs"), ["what write_file(**) allows"]);
        assert_eq!(path("../b.rs"), Vec::<String>::new());
    }

    #[test]
    fn an_address_is_offered_with_its_host_and_others_with_any_arguments() {
        let url = |url: &str| offered("fetch", &json!({ "url": url }));
        assert_eq!(url("https://docs.rs/serde?x=1"), ["what fetch(docs.rs) allows"]);
        assert_eq!(url("http://localhost:8080/"), ["what fetch(localhost:8080) allows"]);
        assert_eq!(url("https://user@docs.rs/"), Vec::<String>::new());
        assert_eq!(choices("mcp__x__y", &json!({ "a": 1 }))[1], Vec::new());
    }

    #[test]
    fn a_rule_that_cannot_be_read_or_is_for_another_tool_allows_nothing() {
        let arguments = json!({ "command": "ls" });
        let allowed =
            |rules: &[&str]| allow(&rules.iter().map(ToString::to_string).collect::<Vec<_>>(), "shell", &arguments);
        assert!(allowed(&["shell(ls)"]));
        for rules in [&["shell(ls)", "shell("][..], &["shell(ls)", "fetch(docs.rs)"], &["ls"], &[]] {
            assert!(!allowed(rules), "{rules:?}");
        }
    }
}

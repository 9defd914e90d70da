//! Which standing approvals make sense for a call, from narrow to broad.

use serde_json::Value;
use turnbuckle::store::{ArgumentMatch, MustBe};

use super::address::host_of;
use super::{Change, Rule, Subject, guarded_names, names_files, simple_commands, subject_of};

/// Programs that only read and print, whatever their arguments are: they write no file, run nothing, and change nothing of the shell. Not here are, for
/// an option of theirs: `sort` and `tree` (`-o`), `uniq` and `xxd` (a second file), `file` (`-C`), `date` and `hostname` (they set it), `rg` (`--pre`),
/// `sed`, `awk`, `find` and `tar`.
const READ_ONLY: [&str; 42] = [
    "basename",
    "cat",
    "cksum",
    "cmp",
    "comm",
    "cut",
    "df",
    "diff",
    "dirname",
    "du",
    "echo",
    "egrep",
    "expand",
    "false",
    "fgrep",
    "fold",
    "grep",
    "head",
    "id",
    "jq",
    "ls",
    "md5sum",
    "nl",
    "od",
    "paste",
    "pwd",
    "readlink",
    "realpath",
    "rev",
    "seq",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "sleep",
    "stat",
    "tac",
    "tail",
    "tr",
    "true",
    "uname",
    "wc",
    "whoami",
];

/// The same of `git`. Not here is what takes options of `git diff`: `--output` writes a file.
const READ_ONLY_OF_GIT: [&str; 7] =
    ["cat-file", "describe", "ls-files", "ls-tree", "merge-base", "rev-parse", "status"];

/// Programs, and subcommands of them, that build and test the project. They run what is in it, and their options can name other programs, which
/// [`remark`] says.
const BUILDS: [(&str, &[&str]); 12] = [
    ("cargo", &["bench", "build", "check", "clippy", "doc", "fmt", "test"]),
    ("dotnet", &["build", "test"]),
    ("go", &["build", "test", "vet"]),
    ("gradle", &["build", "check", "test"]),
    ("mix", &["compile", "test"]),
    ("mvn", &["compile", "package", "test", "verify"]),
    ("npm", &["test"]),
    ("pnpm", &["test"]),
    ("pytest", &[]),
    ("swift", &["build", "test"]),
    ("yarn", &["test"]),
    ("zig", &["build", "test"]),
];

/// Programs whose `run NAME` runs a script of the project's own.
const WITH_SCRIPTS: [&str; 2] = ["npm", "pnpm"];

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
        Subject::Path(_) => match text("path") {
            // Beside a file that decides what runs lie others that do.
            Some(path) if guarded_names(tool, arguments) != Some(0) => {
                (vec![ArgumentMatch::equals("/path", path.into())], Vec::new())
            }
            Some(path) => (vec![ArgumentMatch::equals("/path", path.into())], of_path(tool, path)),
            None => (same, Vec::new()),
        },
        Subject::Host => {
            (same, text("url").and_then(host_of).map(|host| vec![format!("{tool}({host})")]).into_iter().collect())
        }
        // The rule without a pattern: any patch, but for what no rule without a name allows.
        Subject::Patch => (same, vec![vec![tool.to_owned()]]),
        // Whatever it is called with: no rule says less.
        Subject::Nothing => return vec![same, Vec::new()],
    };
    let covers = |rules: &Vec<String>| super::allow(rules, tool, arguments);
    let by_rules = rules.into_iter().filter(covers).map(|rules| vec![ArgumentMatch::allowed_by(rules)]);
    std::iter::once(first).chain(by_rules).collect()
}

/// What a standing approval of [`choices`] covers, in the words of a person who chooses among them. `None` for another one.
///
/// ```
/// use serde_json::json;
/// use turnbuckle_tools::rules::{choices, in_words};
///
/// let offered = choices("write_file", &json!({ "path": "src/a.rs", "content": "" }));
/// let words: Vec<&str> = offered.iter().filter_map(|parts| in_words("write_file", parts)).collect();
/// assert_eq!(words[0], "this file, whatever is written into it");
/// assert_eq!(words[3], "any file of the project");
/// ```
pub fn in_words(tool: &str, parts: &[ArgumentMatch]) -> Option<&'static str> {
    let subject = subject_of(tool);
    let rules = match parts {
        [] if matches!(subject, Subject::Nothing) => return Some("any arguments"),
        [ArgumentMatch { must: MustBe::AllowedBy(rules), .. }] => rules,
        [ArgumentMatch { must: MustBe::Equals(_), pointer, .. }] => {
            return Some(match (subject, pointer.as_str()) {
                (Subject::Command, "") => "exactly this command",
                (Subject::Path(Change::Contents), "/path") => "this file, whatever is written into it",
                (Subject::Path(Change::None), "/path") => "this path, whatever the other arguments are",
                (Subject::Host, "") => "this address",
                (Subject::Patch, "") => "the same patch",
                (_, "") => "the same arguments",
                _ => return None,
            });
        }
        _ => return None,
    };
    let pattern =
        rules.first().and_then(|rule| rule.split_once('(')).map_or("", |(_, rest)| rest.trim_end_matches(')'));
    Some(match subject {
        Subject::Command => "these commands, with any arguments where * stands",
        Subject::Path(_) if pattern == "**" => "any file of the project",
        Subject::Path(_) if pattern.ends_with("/**") => "files of its folder and of the folders below",
        Subject::Path(_) if pattern == "*" || pattern.ends_with("/*") => "files of its folder",
        Subject::Host => "any address of this host",
        Subject::Patch => "any patch",
        Subject::Path(_) | Subject::Nothing => return None,
    })
}

/// One rule for each command of a line; `None` if a rule would say no more than the line itself, or too much.
fn of_command(line: &str) -> Option<Vec<String>> {
    let commands = simple_commands(line).ok().filter(|commands| !commands.is_empty())?;
    let mut rules: Vec<String> = Vec::new();
    let mut is_open = false;
    for words in &commands {
        // What is not known by name is not kept exactly either: a rule that is open might give it something else to read.
        let kept = match &**words {
            // The same folder, and nothing else.
            [program, ..] if program == "cd" => words.len(),
            words => open_after(words)?,
        };
        let has_rest = words.first().is_some_and(|program| program != "cd");
        is_open |= has_rest;
        let words: Vec<String> = words.iter().take(kept).map(|word| quoted(word)).collect();
        let rule = format!("shell({}{})", words.join(" "), if has_rest { " *" } else { "" });
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    is_open.then_some(rules)
}

/// Behind how many words of a command anything may follow. `None` if it is not known what would happen then.
fn open_after(words: &[String]) -> Option<usize> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match &*words {
        [program, ..] if READ_ONLY.contains(program) => Some(1),
        ["git", subcommand, ..] if READ_ONLY_OF_GIT.contains(subcommand) => Some(2),
        words => build_of(words),
    }
}

/// How many words of a command say that it builds or tests the project.
fn build_of(words: &[&str]) -> Option<usize> {
    // Behind an option before the name (`npm run --prefix x y`) anything could stand.
    let is_plain = |word: &str| {
        word.starts_with(|sign: char| sign.is_ascii_alphanumeric())
            && word.chars().all(|sign| sign.is_ascii_alphanumeric() || "-_:.".contains(sign))
    };
    match words {
        [program, "run", script, ..] if WITH_SCRIPTS.contains(program) && is_plain(script) => Some(3),
        [program, rest @ ..] => {
            let (_, subcommands) = BUILDS.iter().find(|(build, _)| build == program)?;
            match rest.first() {
                _ if subcommands.is_empty() => Some(1),
                Some(subcommand) if subcommands.contains(subcommand) => Some(2),
                _ => None,
            }
        }
        [] => None,
    }
}

/// What a person should know who is offered a standing approval of a tool's calls, beside the rules themselves.
pub fn remark(tool: &str, offered: &[ArgumentMatch]) -> Option<String> {
    let rules: Vec<&String> = offered
        .iter()
        .filter_map(|part| match &part.must {
            MustBe::AllowedBy(rules) => Some(rules),
            _ => None,
        })
        .flatten()
        .collect();
    match subject_of(tool) {
        Subject::Command => {
            let builds = rules.iter().filter_map(|rule| {
                let pattern = rule.strip_prefix("shell(")?.strip_suffix(" *)")?;
                let words: Vec<&str> = pattern.split(' ').collect();
                build_of(&words).map(|_| pattern)
            });
            let builds: Vec<&str> = builds.collect();
            let what = "runs what is in the project, and other programs if its options name them";
            (!builds.is_empty()).then(|| format!("{}: {what}", builds.join(", ")))
        }
        Subject::Path(Change::Contents) | Subject::Patch if !offered.iter().any(names_files) => Some(
            "not turnbuckle.toml, .mcp.json, and what is in .turnbuckle, .claude and .git: only a rule that names them covers those"
                .to_owned(),
        ),
        _ => None,
    }
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
        assert_eq!(rules_of("cd 'my src' && git status"), ["shell(cd 'my src')", "shell(git status *)"]);
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
            "poetry run sh x",
            "uv run python x.py",
            "uv tool run x",
            "npm exec sh x",
            "npm run --prefix x y",
            "npm --prefix x run y",
            "conda run sh x",
            "docker exec web ls",
            "yarn node x.js",
            "cargo run",
            "cargo --config x test",
            "busybox ls",
            "mawk 1",
            "watch ls",
            "unshare ls",
            "taskset 1 ls",
            "chrt 1 ls",
            "pkexec ls",
            "entr ls",
            "tclsh x",
            "Rscript x",
            "git bisect run x",
            "git submodule foreach x",
            "git grep x",
            "git log",
            "git diff",
            "ed x",
            "vim x",
            "rsync a b",
            "sed s/a/b/ x",
            "tar -xf x",
            "rg x",
            "sort x",
            "uniq x",
            "date",
            "printf x",
            "test -f x",
            "readonly X=1 && ls -l",
            "enable x && ls",
            "./ls",
            "/bin/ls",
        ];
        for command in commands {
            assert_eq!(rules_of(command), Vec::<String>::new(), "{command}");
        }
    }

    #[test]
    fn an_offer_that_runs_what_is_in_the_project_says_so() {
        let remark_of = |command: &str| remark("shell", &[ArgumentMatch::allowed_by(rules_of(command))]);
        let said = remark_of("cd src && cargo test -p core | head -5 && npm run build").unwrap();
        assert!(said.starts_with("cargo test, npm run build: runs what is in the project"), "{said}");
        assert!(remark_of("pytest -q").is_some());
        assert_eq!(remark_of("git status && ls"), None);
        assert_eq!(remark("shell", &[ArgumentMatch::equals("", json!({ "command": "cargo test *" }))]), None);
    }

    #[test]
    fn what_is_offered_for_a_command_allows_none_of_the_tricks_and_every_offer_covers_its_call() {
        let harmless = ["git status", "git ls-files -m", "cargo test", "ls -l", "grep -n x src"];
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
    fn no_offer_covers_a_file_that_decides_what_runs() {
        let guarded = [
            "turnbuckle.toml",
            "Turnbuckle.TOML",
            ".mcp.json",
            ".claude/settings.json",
            ".git/config",
            ".git/hooks/pre-commit",
            ".git/modules/sub/config",
            ".git/info/exclude",
            "sub/.git",
            "a/b/.git/config",
        ];
        let calls = |path: &str| {
            let patch = format!("*** Begin Patch\n*** Add File: x\n+a\n*** Add File: {path}\n+b\n*** End Patch\n");
            [
                ("write_file", json!({ "path": path, "content": "x" })),
                ("edit_file", json!({ "path": path, "edits": [] })),
                ("apply_patch", json!({ "patch": patch })),
            ]
        };
        for (tool, arguments) in calls("README.md").into_iter().chain(calls("src/a.rs")) {
            let offered = choices(tool, &arguments);
            assert!(offered.len() > 1, "{tool}");
            for parts in offered {
                let is_rule = parts.iter().any(|part| matches!(part.must, MustBe::AllowedBy(_)));
                assert_eq!(remark(tool, &parts).is_some(), is_rule, "{tool}");
                for path in guarded {
                    for (other, changed) in calls(path).into_iter().filter(|(other, _)| *other == tool) {
                        let covers = parts.iter().all(|part| match &part.must {
                            MustBe::AllowedBy(rules) => allow(rules, other, &changed),
                            _ => part.covers(&changed),
                        });
                        assert!(!covers, "{parts:?} covers {other} {path}");
                        assert_eq!(choices(other, &changed).len(), 1, "{other} {path}");
                    }
                }
            }
        }
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

//! The corpus of tricks, and the parser against real shells.

use std::process::Command;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// What a person allows who wants the agent to look around and to run tests.
const ALLOWED: [&str; 8] = [
    "shell(git status)",
    "shell(git log *)",
    "shell(cargo test *)",
    "shell(head *)",
    "shell(echo *)",
    "shell(cat *.md)",
    "shell(ls -l)",
    "shell(grep -n * src)",
];

/// None of these is only what the rules allow.
pub(super) const TRICKS: [&str; 127] = [
    "git status; rm -rf .",
    "git status;rm -rf .",
    "git status && rm -rf .",
    "git status&&rm -rf .",
    "git status || rm -rf .",
    "git status | sh",
    "git status|sh",
    "git status |& sh",
    "git status & rm -rf .",
    "git status &",
    "git status\nrm -rf .",
    "git status\r\nrm -rf .",
    "git status\rrm -rf .",
    "git status \\\n; rm -rf .",
    "git status $(rm -rf .)",
    "git status `rm -rf .`",
    "git status \"$(rm -rf .)\"",
    "git status \"`rm -rf .`\"",
    "echo ${x:-$(rm -rf .)}",
    "echo $((a[$(rm -rf .)]))",
    "echo $[1]",
    "echo $HOME",
    "echo \"$HOME\"",
    "echo $'\\x3b'",
    "echo $\"text\"",
    "echo ${PATH}",
    "echo $1",
    "echo <(rm -rf .)",
    "echo >(rm -rf .)",
    "echo x > file",
    "echo x>file",
    "echo x >> file",
    "echo x >| file",
    "echo x &> file",
    "echo x >& file",
    "echo x 2> file",
    "echo x 3> file",
    "echo x 12> /dev/null",
    "echo x <> file",
    "echo x > /dev/nullx",
    "echo x > /dev/null/../../etc/passwd",
    "echo x > '/dev/null'x",
    "echo x >/dev/tcp/host/80",
    "echo x >&3",
    "echo x >&1file",
    "echo x >&-",
    "cat < /etc/passwd.md",
    "cat a.md < b",
    "cat a.md << END\nrm\nEND",
    "cat a.md <<< word",
    "> file",
    "< /dev/null",
    "X=1 git status",
    "LD_PRELOAD=./evil.so git status",
    "PATH=. git status",
    "GIT_PAGER='rm -rf .' git log",
    "X=1",
    "export PATH=.; git status",
    "alias git=rm; git status",
    "cd /tmp && git status",
    "git() { rm -rf .; }; git status",
    "function git { rm; }; git status",
    "(git status)",
    "(git status; rm -rf .)",
    "{ git status; }",
    "! git status",
    "if git status; then rm -rf .; fi",
    "while git status; do rm; done",
    "for x in a; do rm; done",
    "case x in x) rm;; esac",
    "until git status; do rm; done",
    "[[ -f x ]]",
    "[ -f x ]",
    "time git status",
    "coproc git status",
    "select x in a; do rm; done",
    "git status # comment\nrm",
    "# comment",
    "git status ;; rm",
    "git status ; ; rm",
    "; git status",
    "&& git status",
    "| git status",
    "git status &&",
    "git status ||",
    "git status |",
    "git status &&& git status",
    "git status ||| git status",
    "git status -- *",
    "git status .",
    "git status --short",
    "git  statu",
    "git statuss",
    "git 'status '",
    "git ' status'",
    "git ''status ''",
    "'git status'",
    "git\\ status",
    "./git status",
    "/tmp/git status",
    "git/status",
    "GIT status",
    "git -c alias.status='!rm -rf .' status",
    "git --exec-path=. status",
    "sudo git status",
    "env git status",
    "command git status",
    "exec git status",
    "eval git status",
    "sh -c 'git status'",
    "xargs git status",
    "nohup git status",
    ". ./git status",
    "source status",
    "echo *",
    "echo ?",
    "echo [ab]",
    "echo {a,b}",
    "echo ~",
    "echo ~root/x",
    "echo --file=~/x",
    "echo a:~/x",
    "echo 'open",
    "echo \"open",
    "echo open\\",
    "echo a\u{0}b",
    "echo a\u{1b}[2K",
];

/// These are, however they are written.
const HARMLESS: [&str; 36] = [
    "git status",
    "  git status  ",
    "\tgit\tstatus",
    "git status;",
    "git status\n",
    "\n\ngit status",
    "'git' \"status\"",
    "g'i't s\"tat\"us",
    "\\git status",
    "git status && git status",
    "git status&&git log -3",
    "git status || echo none",
    "git status; echo done",
    "git status\necho done\n",
    "git status &&\n  git log",
    "git log | head -5",
    "git log 2>&1 | head -5",
    "git log 2>/dev/null",
    "git log > /dev/null 2>&1",
    "git log </dev/null",
    "git log >>/dev/null",
    "git log HEAD~1..HEAD",
    "git log --format='%h $x `y` * ; rm'",
    "git log \"--format=%h; rm -rf .\"",
    "cargo test",
    "cargo test --lib -- name",
    "cargo test 2>&1 | head -50",
    "echo a\\;b",
    "echo a=b c=d",
    "echo \"a\\$b\"",
    "echo ''",
    "echo a#b",
    "echo !x",
    "cat README.md",
    "ls -l",
    "grep -n 'fn main' src",
];

fn allows(rules: &[Rule], command: &str) -> bool {
    Rule::allow(rules, "shell", &json!({ "command": command }))
}

#[test]
fn no_rule_allows_more_than_it_says() {
    let rules = rules(&ALLOWED);
    for trick in TRICKS {
        assert!(!allows(&rules, trick), "{trick:?} was allowed");
    }
}

#[test]
fn a_rule_allows_what_it_says_however_it_is_written() {
    let rules = rules(&ALLOWED);
    for command in HARMLESS {
        assert!(allows(&rules, command), "{command:?} was not allowed: {:?}", simple_commands(command));
    }
}

#[test]
fn a_rule_for_all_commands_allows_only_what_can_be_parsed() {
    for rule in ["shell", "shell(*)"] {
        let rules = rules(&[rule]);
        assert!(allows(&rules, "rm -rf . && sudo reboot"));
        for command in ["", "\n", "rm $x", "(rm)", "rm *", "rm > x"] {
            assert!(!allows(&rules, command), "{command:?}");
        }
    }
}

#[test]
fn a_quoted_or_escaped_star_of_a_rule_is_the_sign_itself() {
    for rule in ["shell(echo '*')", "shell(echo \"*\")", "shell(echo \\*)"] {
        let rules = rules(&[rule]);
        assert!(allows(&rules, "echo '*'") && allows(&rules, "echo \\*"), "{rule}");
        for command in ["echo", "echo a", "echo a b", "echo '*' b", "echo 'a*'"] {
            assert!(!allows(&rules, command), "{rule} allows {command:?}");
        }
    }
    let rules = rules(&["shell(find . -name '*.'* -type f)", "shell(grep 'a?' *)"]);
    assert!(allows(&rules, "find . -name '*.rs' -type f") && !allows(&rules, "find . -name 'x.rs' -type f"));
    assert!(allows(&rules, "grep 'a?' x y") && !allows(&rules, "grep ab x"));
}

#[test]
fn what_changes_the_shell_itself_is_allowed_by_no_rule() {
    let rules = rules(&["shell", "shell(*)", "shell(printf *)", "shell(ls *)"]);
    for command in [
        "readonly PATH=./evil && ls -l",
        "readonly 'PATH=./evil' && ls -l",
        "'readonly' PATH=./evil && ls -l",
        "declare PATH=./evil; ls",
        "local PATH=./evil; ls",
        "typeset PATH=./evil; ls",
        "export PATH=./evil; ls",
        "getopts a PATH ./evil; ls",
        "enable -f ./evil.so ls; ls",
        "alias ls=./evil; ls",
        "hash -p ./evil ls; ls",
        "trap ./evil EXIT; ls",
        "set -a; ls",
        "unset 'a[b]'",
        "read PATH; ls",
        "mapfile -C ./evil; ls",
        "eval PATH=./evil; ls",
        ". ./evil; ls",
        "source ./evil; ls",
        "command export PATH=./evil; ls",
        "builtin export PATH=./evil; ls",
        "printf -v PATH ./evil; ls",
        "printf -vPATH ./evil; ls",
        "printf 'evil%n' PATH; ls",
        "printf -- '%s%5.*ln' x 1 PATH; ls",
        "test x -o -v 'a[b]'",
        "wait -np PATH; ls",
    ] {
        assert!(!allows(&rules, command), "{command}");
    }
    for command in ["cd src && ls", "command -v ls", "printf '%s' -v", "printf '%s no 100%%' '%n'", "test -f x", "wait"]
    {
        assert!(allows(&rules, command), "{command}");
    }
    for rule in ["shell(readonly *)", "shell(enable *)", "shell(trap * EXIT)", "shell(export X=1)"] {
        let error = rule.parse::<Rule>().unwrap_err();
        assert!(matches!(error, RuleError::Command { source: Unparsed::ShellState, .. }), "{rule}: {error}");
    }
}

#[test]
fn arguments_that_no_rule_is_about_are_not_allowed_by_one() {
    let rules = rules(&["shell"]);
    assert!(Rule::allow(&rules, "shell", &json!({ "command": "ls", "timeout": 5 })));
    for arguments in [json!({ "command": "ls", "outside": true }), json!({}), json!({ "command": ["ls"] }), json!("ls")]
    {
        assert!(!Rule::allow(&rules, "shell", &arguments), "{arguments}");
    }
}

#[test]
fn paths_match_name_by_name() {
    let allows = |rule: &str, path: &str| Rule::allow(&rules(&[rule]), "write_file", &json!({ "path": path }));
    for path in ["src/a.rs", "src/a/b.rs", "src/.hidden"] {
        assert!(allows("write_file(src/**)", path), "{path}");
    }
    for path in ["src", "srcs/a", "src/../turnbuckle.toml", "/src/a", "./src/a", "src//a", "a/src/b", "src/", ""] {
        assert!(!allows("write_file(src/**)", path), "{path}");
    }
    assert!(allows("write_file(docs/*.md)", "docs/a.md") && !allows("write_file(docs/*.md)", "docs/a/b.md"));
    assert!(allows("write_file(**/*.md)", "a.md") && allows("write_file(**/*.md)", "a/b/c.md"));
    assert!(allows("write_file", "anything") && !Rule::allow(&rules(&["write_file"]), "edit_file", &json!({})));
}

#[test]
fn a_file_that_decides_what_runs_is_allowed_only_by_a_rule_that_names_it() {
    let allows = |rule: &str, path: &str| {
        let (tool, _) = rule.split_once('(').unwrap_or((rule, ""));
        Rule::allow(&rules(&[rule]), tool, &json!({ "path": path }))
    };
    for rule in ["write_file", "edit_file", "write_file(**)", "write_file(**/*)", "write_file(*)", "write_file(.c*/**)"]
    {
        for path in
            ["turnbuckle.toml", ".mcp.json", ".MCP.json", ".claude/a", ".git/hooks/a", "sub/.git", "a/.git/config"]
        {
            assert!(!allows(rule, path), "{rule} {path}");
        }
    }
    for (rule, path) in [
        ("write_file(turnbuckle.toml)", "turnbuckle.toml"),
        ("write_file(.claude/**)", ".claude/agents/a.md"),
        ("edit_file(.git/hooks/*)", ".git/hooks/pre-commit"),
        ("write_file(sub/.git)", "sub/.git"),
        ("write_file(**)", "docs/turnbuckle.toml"),
        ("write_file(**)", ".gitignore"),
        ("read_file(**)", "turnbuckle.toml"),
        ("read_file", ".mcp.json"),
    ] {
        assert!(allows(rule, path), "{rule} {path}");
    }
    for (rule, path) in [("write_file(.git/**)", ".git/config"), ("write_file(*/.git/config)", "a/.git/config")] {
        assert!(!allows(rule, path), "{rule} {path}");
    }
    let standing =
        |parts: &[ArgumentMatch]| standing_covers("write_file", parts, &json!({ "path": "turnbuckle.toml" }));
    assert!(!standing(&[]) && !standing(&[ArgumentMatch::like("/path", "*.toml")]));
    assert!(standing(&[ArgumentMatch::equals("/path", "turnbuckle.toml".into())]));
}

#[test]
fn hosts_match_plain_addresses_only() {
    let allows = |rule: &str, url: &str| Rule::allow(&rules(&[rule]), "fetch", &json!({ "url": url }));
    for url in ["https://docs.rs", "https://docs.rs/x?y#z", "http://DOCS.rs:80/", "https://docs.rs:443/"] {
        assert!(allows("fetch(docs.rs)", url), "{url}");
    }
    for url in [
        "https://docs.rs.evil.com/",
        "https://evil.com/docs.rs",
        "https://docs.rs@evil.com/",
        "https://evil.com#@docs.rs/",
        "https://evil.com\\@docs.rs/",
        "https://docs.rs\\.evil.com/",
        "https://docs.rs:8080/",
        "https://docs.rs:@evil.com/",
        "https://xdocs.rs/",
        "https://docs.rs./",
        "https://docs%2ers/",
        "https://d\u{f6}cs.rs/",
        "ftp://docs.rs/",
        "file://docs.rs/",
        "//docs.rs/",
        "docs.rs",
        "https:///docs.rs",
        " https://docs.rs",
    ] {
        assert!(!allows("fetch(docs.rs)", url), "{url}");
    }
    assert!(allows("fetch(*.docs.rs)", "https://a.docs.rs/") && !allows("fetch(*.docs.rs)", "https://docs.rs/"));
    assert!(!allows("fetch(*.docs.rs)", "https://evildocs.rs/") && allows("fetch(a:81)", "http://a:81/"));
}

#[test]
fn a_rule_that_says_less_than_its_author_thinks_is_refused() {
    let error = |text: &str| text.parse::<Rule>().unwrap_err();
    for text in ["", "()", "shell(", "shell()", "shell(ls", "two words", "she*l(ls)", "shell)"] {
        assert_eq!(error(text), RuleError::Form(text.to_owned()), "{text}");
    }
    for text in ["shell(ls; rm)", "shell(ls | rm)", "shell(ls $x)", "shell(ls `x`)", "shell(ls ?)", "shell(X=1 ls)"] {
        assert!(matches!(error(text), RuleError::Command { .. }), "{text}");
    }
    for text in ["shell(*/git status)", "shell(gi* status)", "shell(* status)"] {
        assert!(matches!(error(text), RuleError::Program(_)), "{text}");
    }
    for text in ["write_file(/etc/*)", "write_file(../x)", "write_file(a//b)", "write_file(a**)", "read_file(a?)"] {
        assert!(matches!(error(text), RuleError::Path(_)), "{text}");
    }
    for text in ["fetch(https://docs.rs)", "fetch(*)", "fetch(*docs.rs)", "fetch(a@b)", "fetch(a:b)", "fetch(a/b)"] {
        assert!(matches!(error(text), RuleError::Host(_)), "{text}");
    }
    assert_eq!(error("todo(x)"), RuleError::NoPattern("todo".to_owned()));
}

/// The words that a real shell makes of the line, if it runs `printf` exactly once.
fn words_of(shell: &str, line: &str) -> Option<Vec<u8>> {
    let program = Command::new(shell).args(["-c", line]).env_clear().env("PATH", "/usr/bin:/bin").output();
    program.ok().map(|ran| ran.stdout)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_line_that_is_parsed_means_the_same_to_real_shells(
        rest in "([ab=:~!#%^@2\\\\'\" \t,.+-]|[$*?;&|<>(){}\\[\\]`\n]|\\\\.|'[^'\n]{0,5}'|\"[^\"\n]{0,5}\"){0,14}"
    ) {
        let line = format!("printf '<%s>' x {rest}");
        let Ok(commands) = simple_commands(&line) else { return Ok(()) };
        let [words] = &*commands else { return Ok(()) };
        let expected: String = words[2..].iter().map(|word| format!("<{word}>")).collect();
        for shell in ["dash", "bash"] {
            let Some(printed) = words_of(shell, &line) else { continue };
            // To /dev/null, or into the other output.
            if printed.is_empty() && line.contains('>') { continue }
            prop_assert_eq!(String::from_utf8_lossy(&printed), &*expected, "{} of {:?}", shell, &line);
        }
    }
}

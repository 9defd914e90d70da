//! Rules that name more than a program, compared with what shells make of a command.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::Rule;

fn fits(rule: &str, command: &str) -> bool {
    Rule::parse(rule).unwrap().fits("Bash", &json!({ "command": command }), Path::new("/p"))
}

#[test]
fn a_rule_that_names_arguments_fits_them_however_they_are_spelt() {
    for command in [
        "git 2>/dev/null push x",
        "git 2>&1 push x",
        "git>&2 push x",
        "git </dev/null push x",
        "git</dev/null push x",
        "git >out push x",
        "git >|out push x",
        "git &>f push x",
        "git &>>f push x",
        "git<<<x push x",
        "git <<E push x\nE\n",
        "git <<'a b' push x\na b\n",
        "git <<'' push x\n\n",
        "git >'a b' push x",
        "git >\"o\"ut push x",
        "git >a\u{a0}b push x",
        "git 2>a<b push x",
        "git > >(cat) push x",
        "git {push,x}",
        "git pus[h]",
        "git pus?",
        "git pu* x",
        "git @(push) x",
        "HOME=push; git ~",
        "git pu\"s\"h x",
        "git \\p\\u\\s\\h x",
        "git $'push' x",
        "git push>out",
        "git pu\\\nsh x",
        "echo ' '#; git push x",
        "echo ''#; git push x",
        "echo \\ #; git push x",
        "echo x\u{a0}#; git push x",
        "echo <(true)#; git push x",
        "eval git pu'\"s\"'h x",
        "eval 'git 2>/dev/null push x'",
        "sh -c 'git pu\"s\"h x'",
        "sh -c 'git 2>/dev/null push x'",
        "sh -c 'git pus[h] x'",
        "ssh host git pu\\'s\\'h x",
        "some-program-that-nobody-knows 'git pu\"s\"h x'",
        "env git 2>/dev/null push x",
        "if true; then git 2>/dev/null push x; fi",
        "bash <<'E'\ngit 2>/dev/null push x\nE",
    ] {
        for rule in ["git push *", "git push:*", "git push*", "git*push*", "git* push*"] {
            assert!(fits(&format!("Bash({rule})"), command), "{rule} on {command:?}");
        }
    }
    for (rule, command) in [
        ("Bash(rm -rf *)", "rm 2>/dev/null -rf x"),
        ("Bash(git push)", "git push >out"),
        ("Bash(git push)", "git 2>&1 push"),
        ("Bash(git)", "git >out"),
        ("Bash(git)", "git $X"),
        ("Bash(/usr/bin/git push *)", "git 2>/dev/null push"),
        ("Bash(git commit -m \"fix*)", "git commit -m 'fix it'"),
        ("Bash(git 12 *)", "git \"12\">f x"),
        ("Bash(touch *)", "sh -c 'to\"u\"ch x'"),
        ("Bash(touch *)", "echo ' '#; touch x"),
    ] {
        assert!(fits(rule, command), "{rule} on {command:?}");
    }
}

#[test]
fn a_rule_that_names_arguments_leaves_other_commands_alone() {
    for command in [
        "git status",
        "git status 2>&1 | head -3",
        "git status &> push",
        "git diff > push",
        "ls *.rs",
        "cp {a,b} ~/x && git status",
        "git commit -m \"don't *do* {that}\"",
        "git commit -m 'it (really) <works>'",
        "timeout 5 git commit -m \"don't\"",
        "git log # git push",
        "echo git push",
        "bash -c 'ls *.txt'",
        "git log <<'E'\nit's\nE",
        "[ -f x ] && git status",
        "find . -exec cp {} y \\;",
    ] {
        for rule in ["git push *", "git push:*", "git push*", "git push"] {
            assert!(!fits(&format!("Bash({rule})"), command), "{rule} on {command:?}");
        }
    }
    assert!(!fits("Bash(make)", "echo $HOME; make test"));
}

/// A sequence of numbers that looks random and is always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn some(&mut self, pieces: &[&str], most: usize) -> String {
        let count = self.below(most + 1);
        (0..count).map(|_| pieces[self.below(pieces.len())]).collect()
    }
}

/// What may stand in front of the program.
const BEFORE: &[&str] = &[
    "echo ",
    "echo ' '#;",
    "x=push;",
    "a ",
    "\n",
    ";",
    "#",
    "'",
    "\"",
    "# it's\n",
    "if true; then ",
    "{ ",
    "env ",
    "eval ",
    "sh -c '",
    "2>o ",
    "&>o ",
    "<<E\nit's\nE\n",
    "(",
    "A=1 ",
    "set -- push;",
    "shopt -s extglob\n",
    "\u{a0}",
    "echo <(true)",
    "cd . && ",
    "|| ",
];
/// What may stand between the program and its first argument.
const BETWEEN: &[&str] = &[
    " ",
    " ",
    " ",
    " ",
    "2>o ",
    ">o ",
    ">|o ",
    "&>o ",
    "&>>o ",
    "<i ",
    "<<<i ",
    "2>&1 ",
    ">&2 ",
    "12>o ",
    "<<E ",
    "<<'a b' ",
    ">'a b' ",
    "\\\n",
    "\t",
    "''",
    "> >(true) ",
    "2>",
    ">",
    "\"\"",
    "<>o ",
    ">a\u{a0}b ",
    ">\\ o ",
    "# x\n",
];
/// How an argument may be spelt.
const SPELT: &[&str] = &[
    "push",
    "pu\"s\"h",
    "'push'",
    "\"push\"",
    "\\p\\u\\sh",
    "pus[h]",
    "pus?",
    "pu*",
    "{push,x}",
    "p{ush,}",
    "$'push'",
    "$x",
    "$1",
    "@(push)",
    "~",
    "pu\\\nsh",
    "p''ush",
    "`echo push`",
    "pu$(true)sh",
    "push'",
    "pu\"\\\"\"s",
    "pu'\"s\"'h",
    "push>o",
    "x",
];
/// What may follow.
const BEHIND: &[&str] =
    &[" x", "'", "\"", ";", "\nE\n", "\na b\n", " # it's\n", ")", "; fi", ";}", " x'", ">o", "&", " <i", "`", "|cat"];

#[test]
fn no_line_whose_program_gets_an_argument_gets_past_a_rule_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let spy = programs.join("spy");
    std::fs::write(&spy, "#!/bin/sh\n[ \"$1\" = push ] && : > \"$RAN\"\n").unwrap();
    std::fs::set_permissions(&spy, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(programs.join("i"), "x\n").unwrap();
    for name in ["sh", "env", "cat"] {
        let real = ["/bin", "/usr/bin"].map(|place| Path::new(place).join(name)).into_iter().find(|path| path.exists());
        symlink(real.unwrap(), programs.join(name)).unwrap();
    }
    let (mut numbers, mut given) = (Numbers(13), 0);
    let rounds = std::env::var("RULE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(300);
    for round in 0..rounds {
        let before = numbers.some(BEFORE, 3);
        let between = numbers.some(BETWEEN, 3);
        let spelt = SPELT[numbers.below(SPELT.len())];
        let line = format!("{before}spy {between}{spelt}{}", numbers.some(BEHIND, 3));
        for shell in ["sh", "bash"] {
            // Patterns find it; and a file of its own says what ran: what was put into the background may run later.
            std::fs::write(programs.join("push"), "").unwrap();
            let ran = folder.path().join(format!("ran-{round}-{shell}"));
            let mut run = Command::new(shell);
            run.args(["-c", "PATH=$PROGRAMS; export PATH; eval \"$LINE\""]);
            run.env("LINE", &line).env("RAN", &ran).env("PROGRAMS", &programs).env("HOME", "push");
            run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            run.current_dir(&programs).status().unwrap();
            if ran.exists() {
                given += 1;
                for rule in ["Bash(spy push *)", "Bash(spy push*)", "Bash(spy*push*)"] {
                    assert!(fits(rule, &line), "{shell} gives it to the program in {line:?}, and {rule} does not fit");
                }
            }
        }
    }
    assert!(given > 50, "only {given} lines gave it to the program");
}

//! Spellings of files, and what is hidden in them.

use super::*;
use serde_json::json;

#[test]
fn every_word_that_is_a_file_of_the_project_is_found() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().canonicalize().unwrap();
    std::fs::create_dir_all(folder.join("scripts/sub")).unwrap();
    for name in ["scripts/lint.sh", "scripts/two words.sh", "conf.toml", "x"] {
        std::fs::write(folder.join(name), name).unwrap();
    }
    let absolute = folder.join("x").display().to_string();
    let lint = "scripts/lint.sh";
    for (command, expected) in [
        (json!("scripts/lint.sh --fix"), vec![lint]),
        (json!("sh ./scripts/../scripts//lint.sh;ls"), vec![lint]),
        (json!("cat <conf.toml|sh scripts/lint.sh&&true"), vec!["conf.toml", lint]),
        (json!("\"$CLAUDE_PROJECT_DIR\"/scripts/lint.sh"), vec![lint]),
        (json!("${CLAUDE_PROJECT_DIR}/scripts/'two words.sh'"), vec!["scripts/two words.sh"]),
        (json!("scripts/two\\ words.sh"), vec!["scripts/two words.sh"]),
        (json!("sh -c 'exec scripts/lint.sh'"), vec![lint]),
        (json!("echo \"$(scripts/lint.sh)\" `x`"), vec![lint, "x"]),
        (json!("scripts/lint.sh >> x 2>conf.toml"), vec![lint]),
        (json!("echo > x; sh x"), vec!["x"]),
        (json!("tool --config=conf.toml"), vec!["conf.toml"]),
        (json!(["sh", "scripts/lint.sh", "scripts", "scripts/sub", "none"]), vec![lint]),
        (json!([absolute]), vec!["x"]),
        (json!(["scripts/two words.sh"]), vec!["scripts/two words.sh"]),
        (json!(["sh", "-c", "./scripts/lint.sh --fix; . conf.toml > x"]), vec!["conf.toml", lint]),
        (json!("cargo check --quiet || exit 2"), vec![]),
        (json!("cat /etc/hostname ../x"), vec![]),
        (json!(7), vec![]),
    ] {
        let found: Vec<PathBuf> =
            FileReader::new(&folder).named_by(&Command::from(command.clone())).unwrap().into_keys().collect();
        assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{command}");
    }
}

#[test]
fn a_file_that_becomes_a_link_or_another_one_is_told_apart() {
    let (place, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = place.path().canonicalize().unwrap();
    let script = folder.join("a.sh");
    let now = || FileReader::new(&folder).named_by(&Command::from(json!("sh a.sh"))).unwrap();
    std::fs::write(&script, "one").unwrap();
    let first = now();
    std::fs::write(&script, "two").unwrap();
    assert_ne!(now(), first);
    // The same text by a link: what it leads to may change without a change in the project.
    std::fs::write(elsewhere.path().join("a.sh"), "one").unwrap();
    std::fs::remove_file(&script).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("a.sh"), &script).unwrap();
    assert_ne!(now(), first);
    std::fs::remove_file(&script).unwrap();
    assert_ne!(now(), first);
    std::fs::write(&script, "one").unwrap();
    assert_eq!(now(), first);
}

/// Every one of these runs or reads `a.sh`, or the file that is named behind it, and a change of that file must be noticed.
#[test]
fn no_spelling_of_a_script_hides_it() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().canonicalize().unwrap();
    std::fs::create_dir_all(folder.join("sub/deep")).unwrap();
    std::os::unix::fs::symlink("sub/deep", folder.join("link")).unwrap();
    let names = [
        "a.sh",
        "my a.sh",
        "sub/a.sh",
        "sub/b.sh",
        "a\u{a0}b.sh",
        "a\\b c",
        "> a",
        "my\na.sh",
        "x=y.sh",
        "ä.sh",
        "a\r",
    ];
    for name in names {
        std::fs::write(folder.join(name), name).unwrap();
    }
    let last = folder.file_name().unwrap().to_str().unwrap().to_owned();
    let (a, my) = ("a.sh", "my a.sh");
    for (command, expected) in [
        (json!("sh <a.sh"), a),
        (json!("ls a.sh/ a.sh/.; sh a.sh"), a),
        (json!("sh<>a.sh"), a),
        (json!("sh 0<> a.sh"), a),
        (json!("exec 3<>a.sh; sh <&3"), a),
        (json!("sh a\\\n.sh"), a),
        (json!("sh \"a\\\n.sh\""), a),
        (json!("sh a''.\"sh\""), a),
        (json!("sh \\a.s\\h"), a),
        (json!("sh \"a\\b c\""), "a\\b c"),
        (json!("sh $'a\\x2esh'"), a),
        (json!("sh $'\\141.sh' $'\\u0061.sh'"), a),
        (json!("sh $'my\\x20a.sh'"), my),
        (json!("sh $\"my a.sh\""), my),
        (json!("$CLAUDE_PROJECT_DIR/a.sh"), a),
        (json!("\"${CLAUDE_PROJECT_DIR}\"/a.sh"), a),
        (json!("\"$PWD\"/a.sh"), a),
        (json!("$PWD/sub/a.sh"), "sub/a.sh"),
        (json!("${PWD}/my\\ a.sh"), my),
        (json!("\"$(pwd)/my a.sh\""), my),
        (json!("`pwd`/'my a.sh'"), my),
        (json!("\"$(git rev-parse --show-toplevel)\"/sub/a.sh"), "sub/a.sh"),
        (json!("sh ${X:-a.sh}"), a),
        (json!("sh \"${X:-my a.sh}\""), my),
        (json!("A=a.sh; sh $A"), a),
        (json!("A=x=y.sh sh $A"), "x=y.sh"),
        (json!("~+/a.sh"), a),
        (json!("/proc/self/cwd/a.sh"), a),
        (json!("./a.sh;"), a),
        (json!("(./a.sh)"), a),
        (json!("{ ./a.sh; }"), a),
        (json!("./a.sh&"), a),
        (json!("true&&./a.sh||true"), a),
        (json!("if ./a.sh\nthen true; fi"), a),
        (json!("sh <<X\n. './my a.sh'\nX"), my),
        (json!("cat <<X\nit's\nX\nsh 'my a.sh'"), my),
        (json!(": # it's\nsh 'my a.sh'"), my),
        (json!(": # >\na.sh"), a),
        (json!(": # > \\\na.sh"), a),
        (json!("cat <<X\nit's >\nX\na.sh"), a),
        (json!("true > #x\na.sh"), a),
        (json!("sh 'my\na.sh'"), "my\na.sh"),
        (json!("echo > a.sh; sh a.sh"), a),
        (json!("sh -c 'sh a.sh' >> a.sh"), a),
        (json!("sh -c '. ./a.sh' >> a.sh"), a),
        (json!("eval \"sh a.sh\" > a.sh"), a),
        (json!("sh /dev/fd/3 3>>a.sh"), a),
        (json!("sh /de''v/f\\d/3 3>>a.sh"), a),
        (json!("sh /proc/self/fd/3 3>> \"a.sh\""), a),
        (json!("echo > >(./a.sh)"), a),
        (json!("tee >(./a.sh)"), a),
        (json!("echo \\> a.sh"), a),
        (json!("echo '>' a.sh"), a),
        (json!("\"$(sh \"> a\")\""), "> a"),
        (json!("\"$(case x in x) sh \"> a\" ;; esac)\""), "> a"),
        (json!("cd sub && sh b.sh"), "sub/b.sh"),
        (json!("cd sub; cd deep; sh ../b.sh"), "sub/b.sh"),
        (json!("env -C sub ./b.sh"), "sub/b.sh"),
        (json!("sh link/../b.sh"), "sub/b.sh"),
        (json!(format!("sh ../{last}/a.sh")), a),
        (json!("sh a\u{a0}b.sh"), "a\u{a0}b.sh"),
        (json!("sh a\r\n"), "a\r"),
        (json!("sh ä.sh"), "ä.sh"),
        (json!("awk -fa.sh"), a),
        (json!("curl -d @a.sh http://x"), a),
        (json!("tool --x=y:a.sh,b"), a),
        (json!(["bash", "-c", "sh <(cat a.sh)"]), a),
        (json!(["sh", "-c", "sh a.sh >> a.sh"]), a),
        (json!(["perl", "-e", "1>do'./a.sh'"]), a),
        (json!(["ruby", "-e", "1>load 'a.sh'"]), a),
        (json!(["python3", "-c", "exec(open('a.sh').read())"]), a),
        (json!(["sh", "my a.sh"]), my),
        (json!("echo \"$(sh 'my a.sh')\""), my),
        (json!("sh -c \"sh \\\"my a.sh\\\"\""), my),
        (json!("sh -c 'sh \"my a\".sh'"), my),
        (json!("sh -c 'sh my\\ a.sh'"), my),
        (json!("eval sh 'my\\ a.sh'"), my),
        (json!("eval \"sh 'my\" \"a.sh'\""), my),
        (json!("eval 'eval \"sh my\\\\ a.sh\"'"), my),
        (json!(["sh", "-c", "sh -c 'sh my\\ a.sh'"]), my),
        (json!("bash -c 'bash {sub/b,}.sh'"), "sub/b.sh"),
        (json!("bash {x,sub/{a,b}}.sh"), "sub/b.sh"),
        (json!("bash $PWD/{'my a',}.sh"), my),
        (json!("{bash,a.sh}"), a),
        (json!("bash {x,{a,b}.sh"), a),
        (json!(": $'\\' >'; sh a.sh; : ''"), a),
        (json!(": $'\\' | tee '; sh a.sh; : ''"), a),
        (json!("tee a.sh; sh a.sh"), a),
        (json!("tee x < a.sh | sh"), a),
        (json!("tee x <a.sh"), a),
        (json!("tee x <<<y a.sh; cat a.sh"), a),
        (json!("sh <(cat) tee a.sh"), a),
        (json!("sh &> log tee a.sh"), a),
        (json!("X=(tee a.sh); sh ${X[1]}"), a),
        (json!("sh ${X:-tee a.sh}"), a),
        (json!("`tee a.sh`"), a),
        (json!("echo tee a.sh | sh"), a),
        (json!("xargs tee a.sh"), a),
        (json!("'if' tee a.sh"), a),
        (json!("X=1 tee a.sh"), a),
        (json!("tee(){ sh \"$1\"; }; tee a.sh"), a),
        (json!("tee () { sh \"$1\"; }; tee a.sh"), a),
        (json!("tee \\\n( ) { sh \"$1\"; }; tee a.sh"), a),
        (json!("function tee { sh \"$1\"; }; tee a.sh"), a),
        (json!("alias tee=sh\ntee a.sh"), a),
        (json!("ali''as tee=sh\ntee a.sh"), a),
        (json!("PATH=.:$PATH\ntee a.sh"), a),
        (json!("hash -p /bin/sh tee; tee a.sh"), a),
        (json!(". ./lib; tee a.sh"), a),
        (json!("eval \"$X\"; tee a.sh"), a),
        (json!("touch a.sh; sh $_"), a),
        (json!("touch a.sh; sh ${_}"), a),
        (json!("tee /dev/fd/3 3<>a.sh"), a),
        (json!("t\"e\"e a.sh"), a),
        (json!("./tee a.sh"), a),
        (json!("touch \"$(sh a.sh)\""), a),
        (json!("touch `sh a.sh`"), a),
        (json!("sh -c 'date | tee a.sh'"), a),
        (json!(["env", "PATH=.", "sh", "-c", "tee a.sh"]), a),
        (json!(["tee", "a.sh"]), a),
        (json!("cat <<X | sh\ntee a.sh\nX"), a),
    ] {
        let found = FileReader::new(&folder).named_by(&Command::from(command.clone())).unwrap();
        assert!(found.contains_key(Path::new(expected)), "{command}: {:?}", found.keys());
    }
}

#[test]
fn what_a_command_only_writes_to_is_not_part_of_it() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().canonicalize().unwrap();
    std::fs::create_dir_all(folder.join("logs")).unwrap();
    for name in ["log", "logs/my log", "logs/log"] {
        std::fs::write(folder.join(name), name).unwrap();
    }
    for command in [
        "date >> log",
        "date>log 2>&1",
        "x=$(date); echo $x >> \"$CLAUDE_PROJECT_DIR\"/log",
        "date >| log; date 2> logs/log",
        "date &> log",
        "cat >> 'logs/my log' # all of it",
        "date >> \"$PWD/logs/my log\"",
        "cat <<X >> log\ntext\nX\n",
        "cd logs && date >> log",
        "# all of it\ndate >> log",
        "date | tee log",
        "cargo check 2>&1 | tee log; test $? -eq 0 || exit 2",
        "tee -a log logs/log > /dev/null",
        "touch log",
        "mkdir -p logs && cd logs && tee -a log",
        "rm -f log; date | tee 'logs/my log'",
        "truncate -s 0 \"$CLAUDE_PROJECT_DIR\"/log",
        "if true; then touch log; fi",
        "x=\"$(date | tee log)\"",
        "(cd logs; touch log)",
        "tee log < /dev/null 2>&1",
        "echo x >> log; tail -1 log",
        "echo x >> log; tail -1 ./log >&2",
        "echo \"$(date)\" >> \"$PWD\"/log; tail -1 \"$PWD\"/log",
        "cargo check > log 2>&1 || { tail -20 log >&2; exit 2; }",
        "sh -e none.sh > log || cat log",
        "date | tee -a log | wc -l; grep -q x log && [ -s log ]",
        "date >> log; wc -l < log",
        "date >> log\nif test -s log; then head log | cut -c1; fi",
    ] {
        let found = FileReader::new(&folder).named_by(&Command::from(json!(command))).unwrap();
        assert!(found.is_empty(), "{command}: {:?}", found.keys());
    }
    let found = FileReader::new(&folder).named_by(&Command::from(json!(["sh", "-c", "date | tee -a log"]))).unwrap();
    assert!(found.is_empty(), "{:?}", found.keys());
    // Written and read: it is part of it, and it is said that it will change.
    let command = json!("sh log; date >> ./log");
    let reader = FileReader::new(&folder);
    let found = reader.named_by(&Command::from(command.clone())).unwrap();
    assert_eq!(
        reader.written_by(&Command::from(command.clone()), &found).unwrap(),
        BTreeSet::from([PathBuf::from("log")])
    );
}

/// What `a.sh` or `log` holds is run.
#[test]
fn a_file_that_a_command_writes_and_may_run_is_part_of_it() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().canonicalize().unwrap();
    std::fs::create_dir(folder.join("sub")).unwrap();
    for name in ["log", "a.sh", "sub/log"] {
        std::fs::write(folder.join(name), name).unwrap();
    }
    for command in [
        "date >> log; ./log",
        "date >> log; . ./log",
        "date >> log; source log",
        "date >> log; sh log",
        "date >> log; node log",
        "date >> log; awk -f log",
        "date >> log; jq -f log x",
        "date >> log; cat log | sh",
        "date >> log; cat log |& python3",
        "date >> log; (cat log) | sh",
        "date >> log; { cat log; } | node",
        "date >> log; eval \"$(cat log)\"",
        "date >> log; $(cat log)",
        "date >> log; `cat log`",
        "date >> log; echo $(cat log)",
        "date >> log; sh <(cat log)",
        "date >> log; cat log > >(sh)",
        "date >> log; sh -c 'cat log; s\"h\" l\"o\"g'",
        "date >> log; cat log; sh l'o'g",
        "date >> log; cat log; A=log; sh $A",
        "date >> log; cat log; sh l*",
        "date >> log; cat log; cd sub; sh ../log",
        "date >> log; cat log > run; sh ./run",
        "date >> log; xargs sh < log",
        "date >> log; cat log | xargs sh",
        "date >> log; cat(){ sh \"$1\"; }; cat log",
        "date >> log; PATH=.:$PATH; cat log",
        "date >> log; ./cat log",
        "date >> log; cat log <<X\nX",
        "echo log; date",
        "cat log",
    ] {
        let found = FileReader::new(&folder).named_by(&Command::from(json!(command))).unwrap();
        assert!(found.contains_key(Path::new("log")), "{command}: {:?}", found.keys());
    }
}

#[test]
fn a_link_out_of_the_project_is_found_however_its_folder_is_spelt() {
    let (place, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = place.path().canonicalize().unwrap();
    std::fs::create_dir(folder.join("sub")).unwrap();
    std::fs::write(elsewhere.path().join("a.sh"), "one").unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("a.sh"), folder.join("a.sh")).unwrap();
    for command in ["sh a.sh", "sh sub/../a.sh", "cd sub; sh ../a.sh"] {
        let found = FileReader::new(&folder).named_by(&Command::from(json!(command))).unwrap();
        assert!(found[Path::new("a.sh")].leads_to.is_absolute(), "{command}");
    }
}

#[test]
fn a_command_of_a_stranger_costs_a_bounded_time() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().canonicalize().unwrap();
    let refused =
        |command: String| FileReader::new(&folder).named_by(&Command::from(json!(command))).unwrap_err().to_string();
    assert!(refused("> a ".repeat(100_000)).contains("16384 are the most"));
    assert!(refused("a\n".repeat(1_000)).contains("128 are the most"));
    assert!(refused(format!("{} {}", "=".repeat(8_000), ":".repeat(8_000))).contains("4096"));
    // Unfinished on each line: every start reads to the end.
    for unfinished in ["$(\n", "'\"`\n", "> a ", "${a"] {
        let _named_or_refused =
            FileReader::new(&folder).named_by(&Command::from(json!(unfinished.repeat(16_000 / unfinished.len()))));
    }
}

#[test]
fn a_file_is_read_once_and_all_files_together_are_bounded() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().canonicalize().unwrap();
    for name in ["a", "b"] {
        std::fs::File::create(folder.join(name)).unwrap().set_len(digest::LARGEST / 2 + 1).unwrap();
    }
    for number in 0..1_000 {
        std::os::unix::fs::symlink("a", folder.join(format!("l{number}"))).unwrap();
    }
    let reader = FileReader::new(&folder);
    for number in 0..1_000 {
        reader.named_by(&Command::from(json!(format!("cat l{number}")))).unwrap();
    }
    assert!(matches!(reader.named_by(&Command::from(json!("cat b"))), Err(FileError::TooLarge)));
}

#[test]
fn a_name_that_many_commands_have_is_looked_for_once() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().canonicalize().unwrap();
    let reader = FileReader::new(&folder);
    let lookups = |number: usize| {
        reader.named_by(&Command::from(json!(format!("node hooks/check --only none --number={number}")))).unwrap();
        reader.spent.borrow().lookups
    };
    let (first, second) = (lookups(1), lookups(2));
    let third = lookups(3);
    assert!(third - second < first / 2, "{first}, {second}, {third}");
    assert_eq!(lookups(3), third);
}

#[test]
fn a_command_that_computes_names_is_told_from_one_that_spells_them() {
    let computes = |command: Value| words::names(&command).unwrap().computed;
    for command in [
        "sh scripts/*.sh",
        "sh l.s?",
        "sh [ab].sh",
        "A=a; sh $A.sh",
        "sh \"$1\"",
        "sh $(cat list)",
        "sh `cat list`",
        "find . -name x",
        "cat list | xargs sh",
        "eval 'sh $A.sh'",
        "sh -c 'sh *.sh'",
        "bash {1..3}.sh",
        "bash {a,'{'}.sh",
    ] {
        assert!(computes(json!(command)), "{command}");
        assert!(computes(json!(["sh", "-c", command])), "{command}");
    }
    for command in [
        "cargo check --quiet || exit 2",
        "sh \"$PWD/a.sh\" $(pwd)/b `pwd`/c",
        "\"$CLAUDE_PROJECT_DIR\"/a.sh \"$(git rev-parse --show-toplevel)/a.sh\"",
        "jq '.a[0] // \"*\"' | grep -q 'x.*y'",
        "test $? -eq 0 || { echo failed; exit 2; }",
        "[ -e a.sh ] && sh a.sh",
        "date >> \"$LOG\"",
        "bash {a,b}.sh",
    ] {
        assert!(!computes(json!(command)), "{command}");
    }
    assert!(!computes(json!(["ls", "*", "$A"])));
}

#[test]
fn scripts_that_an_interpreter_finds_without_their_ending_as_a_module_or_by_their_folder_are_found() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().canonicalize().unwrap();
    for name in [
        "hooks/gate.js",
        "py/__init__.py",
        "py/gate.py",
        "dir/__main__.py",
        "index/index.js",
        "pack/lib/start.js",
        "ts/gate.ts",
    ] {
        std::fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        std::fs::write(folder.join(name), name).unwrap();
    }
    std::fs::write(folder.join("pack/package.json"), r#"{"main": "./lib/start"}"#).unwrap();
    for (command, expected) in [
        (json!("node hooks/gate"), vec!["hooks/gate.js"]),
        (json!("node \"$CLAUDE_PROJECT_DIR\"/hooks/gate --fast"), vec!["hooks/gate.js"]),
        (json!(["bun", "ts/gate"]), vec!["ts/gate.ts"]),
        (json!("python3 -m py.gate"), vec!["py/__init__.py", "py/gate.py"]),
        (json!("cd py && python3 -m gate"), vec!["py/__init__.py", "py/gate.py"]),
        (json!("python3 dir"), vec!["dir/__main__.py"]),
        (json!("node ./index/"), vec!["index/index.js"]),
        (json!("node ./pack"), vec!["pack/lib/start.js", "pack/package.json"]),
        (json!("hooks/gate"), vec![]),
    ] {
        let found: Vec<PathBuf> =
            FileReader::new(&folder).named_by(&Command::from(command.clone())).unwrap().into_keys().collect();
        assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{command}");
    }
}

#[test]
fn a_shell_that_runs_what_another_program_prints_is_named() {
    for (line, is_named) in [
        ("curl -s localhost | sh", true),
        ("cat gate|bash -s", true),
        ("decode <x | sudo sh 2>/dev/null", true),
        ("cat x | grep y", false),
        ("true || sh gate.sh", false),
        ("cat x | sh gate.sh", false),
    ] {
        assert_eq!(Command::from(json!(line)).computes_names(), is_named, "{line}");
    }
}

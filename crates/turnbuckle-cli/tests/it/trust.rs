//! What a repository brings along runs only if the user accepted it. Each test is a way in which one might slip something in.

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use crate::program::{Folder, Ran};

const HI: &str = r#"{ "text": "hi" }"#;
const WRITE: &str = r#"{ "tool_calls": [
    { "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } } ] }, { "text": "done" }"#;

fn hook(on: &str, run: &str) -> String {
    format!("[[hooks]]\nuse = \"command\"\nname = \"h-{on}\"\non = \"{on}\"\nrun = '''{run}'''\n")
}

/// Refused with the command that accepts.
#[track_caller]
fn refused(ran: Ran) -> Ran {
    ran.exits(2).prints("").says("accepted").says("hint: `turnbuckle trust`")
}

#[test]
fn what_needs_acceptance_does_not_take_effect_without_it() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "the secret").unwrap();
    let (secret, db) = (secret.display(), outside.path().join("their.db"));
    let db = db.display();
    let ways = [
        ("a command", hook("before_agent", "touch ran")),
        ("a linter", "[[hooks]]\nuse = \"lint\"\nrun = \"touch ran\"\npass_files = false\n".to_owned()),
        ("a program for the result", "[[hooks]]\nuse = \"persist\"\nrun = \"touch ran\"\n".to_owned()),
        ("a hook without a program", "[[hooks]]\nuse = \"notify\"\nurl = \"http://127.0.0.1:9/x\"\n".to_owned()),
        ("an inline hook", "hooks = [{ use = 'command', on = 'stop', run = 'touch ran' }]\n".to_owned()),
        ("a hook in another shape", "[hooks]\nuse = \"command\"\non = \"stop\"\nrun = \"touch ran\"\n".to_owned()),
        ("an MCP server", "[[tools.mcp]]\nname = \"x\"\ncommand = [\"touch\", \"ran\"]\n".to_owned()),
        ("the sandbox", "[tools.shell]\nsandbox = \"off\"\n".to_owned()),
        ("a shell", "[tools]\nbuiltin = [\"shell\"]\n".to_owned()),
        ("the network", "[tools]\nbuiltin = [\"read_file\", \"fetch\"]\n".to_owned()),
        ("no approvals", "[tools]\napprove = []\n".to_owned()),
        ("a tool without approval", "[tools]\napprove = [\"write_file\"]\n".to_owned()),
        ("a tool without approval, by keys", "tools.approve = [\"edit_file\"]\n".to_owned()),
        ("a sub-agent", "[[agents]]\nname = \"helper\"\nsystem = \"obey\"\n".to_owned()),
        ("an actor", "[scope]\nuser = \"root\"\nroles = [\"manager\"]\n".to_owned()),
        ("access", "[access]\nread = [\"everyone\"]\n".to_owned()),
        ("a server", "[serve]\nlisten = \"0.0.0.0:80\"\n".to_owned()),
        ("a system prompt", "[agent]\nsystem = \"obey\"\n".to_owned()),
        ("a system prompt, quoted", "\"agent\".\"system\" = \"obey\"\n".to_owned()),
        ("a prompt in a file", "[agent]\nsystem_file = \"script.json\"\n".to_owned()),
        ("somebody's file as a prompt", format!("[agent]\nsystem_file = \"{secret}\"\n")),
        ("a model elsewhere", "[agent]\nmodel = \"openai@http://127.0.0.1:9/v1:m\"\n".to_owned()),
        ("a summary elsewhere", "[context]\nsummary_model = \"openai@http://127.0.0.1:9/v1:m\"\n".to_owned()),
        ("somebody's database", format!("[store]\nurl = \"sqlite:{db}\"\n")),
        ("a database above", "[store]\nurl = \"sqlite:x/../../their.db\"\n".to_owned()),
        ("a database elsewhere", "[store]\nurl = \"postgres://ann@127.0.0.1:9/x\"\n".to_owned()),
        ("no sub-agents instead of the user's", "agents = []\n".to_owned()),
        ("a list of hooks with nothing in it", "hooks = []\n".to_owned()),
        ("an empty list where a section belongs", "tools = []\n".to_owned()),
        ("a section with nothing in it", "[serve]\n".to_owned()),
        ("a hook by dotted keys", "hooks.use = \"command\"\nhooks.run = \"touch ran\"\n".to_owned()),
        ("a key with other letters", "\"h\\u043Eoks\" = [{ use = \"command\", run = \"touch ran\" }]\n".to_owned()),
        ("a later version's section", "[plugins]\nrun = \"touch ran\"\n".to_owned()),
        ("a later version's key", "[agent]\nrun_first = \"touch ran\"\n".to_owned()),
    ];
    for (way, config) in ways {
        let folder = Folder::foreign();
        folder.file("script.json", &format!("{{\"replies\": [{HI}]}}"));
        folder.file("turnbuckle.toml", &config);
        let event = br#"{"prompt": "hi"}"#;
        for ran in [
            folder.run(&["run", "--model", "script:script.json", "hi"]),
            folder.run(&["resolve", "a", "c1", "--approve"]),
            folder.run_with_stdin(&["chat"], b"hi\n"),
            folder.run_with_stdin(&["hooks", "test", "before_agent"], event),
        ] {
            assert!(ran.err.contains("turnbuckle.toml is not accepted"), "{way}: {}", ran.err);
            refused(ran);
        }
        for arguments in [&["check"][..], &["hooks"], &["list"], &["show", "a"], &["trace", "a"], &["cancel", "a"]] {
            folder.run(arguments);
        }
        let left: Vec<PathBuf> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left.len(), 2, "{way}: {left:?}");
        assert!(!std::path::Path::new(&db.to_string()).exists(), "{way}");
    }
}

#[test]
fn what_needs_none_takes_effect_unasked() {
    let config = "name = \"coder\"\ndefault_retry = false\n[limits]\nmax_model_calls = 3\n[store]\nurl = \"sqlite:data/c.db\"\n\
                  [tools]\nbuiltin = [\"read_file\", \"write_file\"]\napprove = [\"write_file\"]\n";
    let folder = Folder::cloned(HI, config);
    folder.run(&["run", "-c", "a", "hello"]).exits(0).prints("hi\n");
    assert!(folder.path().join("data/c.db").exists());
    folder.run(&["run", "-c", "a", "--model", "demo", "again"]).exits(0);
    let checked = folder.run(&["check"]).exits(0);
    assert!(!checked.out.contains("trust ") && !checked.err.contains("accepted"), "{}{}", checked.out, checked.err);
}

#[test]
fn once_accepted_it_runs_until_it_changes() {
    let folder = Folder::cloned(HI, &hook("before_agent", "sh scripts/a.sh; cat more >> ran"));
    folder.file("scripts/a.sh", "echo one >> ran");
    folder.file("more", "more\n");
    refused(folder.run(&["run", "hi"])).says("[[hooks]] h-before_agent");
    let shown = folder.run(&["trust"]).exits(2).says("--yes").out;
    assert!(
        shown.contains("run = \"sh scripts/a.sh; cat more >> ran\"") && shown.contains("file scripts/a.sh"),
        "{shown}"
    );
    refused(folder.run(&["run", "hi"]));
    folder.run(&["trust", "--yes"]).exits(0).says("accepted for ");
    folder.run(&["run", "hi"]).exits(0).prints("hi\n");
    assert_eq!(folder.read("ran"), "one\nmore\n");
    folder.run(&["trust"]).exits(0).says("accepted at");
    for (name, text, back) in [
        ("scripts/a.sh", "echo two >> ran", "echo one >> ran"),
        ("more", "other", "more\n"),
        ("turnbuckle.toml", "[agent]\nsystem = \"obey\"\n", ""),
    ] {
        let before = if back.is_empty() { folder.read(name) } else { back.to_owned() };
        folder.file(name, text);
        let ran = refused(folder.run(&["run", "hi"])).says("changed since it was accepted");
        assert_eq!(ran.err.contains(&format!("names {name}, which changed")), name != "turnbuckle.toml", "{}", ran.err);
        folder.file(name, &before);
        folder.run(&["run", "hi"]).exits(0);
    }
    // What it does not name may change: comments, limits, other files.
    folder.file(
        "turnbuckle.toml",
        &format!("# a remark\n{}[limits]\nmax_model_calls = 9\n", folder.read("turnbuckle.toml")),
    );
    folder.file("other", "x");
    folder.run(&["run", "hi"]).exits(0);
}

#[test]
fn a_script_that_changes_between_load_and_start_does_not_run_and_blocks() {
    for change in ["echo touch ran2 > b.sh", "rm b.sh", "rm b.sh; ln -s other.sh b.sh", "touch ./b2.sh"] {
        let config = hook("before_agent", change) + &hook("stop", "sh b.sh; test -e b2.sh && sh b2.sh; exit 0");
        let folder = Folder::cloned(HI, &config);
        folder.file("b.sh", "touch ran");
        folder.file("other.sh", "touch ran");
        folder.run(&["trust", "--yes"]).exits(0);
        // At `stop` a failure is ignored unless told otherwise; this one is not.
        let ran = folder.run(&["run", "hi"]).exits(1).says("changed since it was accepted");
        let ran = ran.says("hint: `turnbuckle trust` shows what changed, and asks");
        assert!(ran.err.contains("h-stop"), "{change}: {}", ran.err);
        assert!(!folder.path().join("ran").exists() && !folder.path().join("ran2").exists(), "{change}");
    }
}

#[test]
fn a_script_that_changes_during_a_run_does_not_run_however_it_was_accepted() {
    let script = r#"
        {"tool_calls": [{"id": "c1", "name": "write_file", "arguments": {"path": "guard.sh", "content": "touch ran"}}]},
        {"tool_calls": [{"id": "c2", "name": "write_file", "arguments": {"path": "a.txt", "content": "x"}}]},
        {"text": "done"}"#;
    let config = format!("[tools]\napprove = []\n{}", hook("before_tool", "sh ./guard.sh"));
    let start = || {
        let folder = Folder::cloned(script, &config);
        folder.file("guard.sh", "exit 0");
        folder
    };
    let (trusted, named, users) = (start(), start(), start());
    trusted.run(&["run", "--trust-hooks", "hi"]).exits(0).says("guard.sh changed since");
    named.run(&["run", "--config", "turnbuckle.toml", "hi"]).exits(0).says("guard.sh changed since");
    users.users_file(&named.read("turnbuckle.toml"));
    let model = ["--model", "script:script.json", "hi"];
    users.run(&[&["run", "--ignore-project"], &model[..]].concat()).exits(0).says("guard.sh changed since");
    for folder in [trusted, named, users] {
        assert_eq!(folder.read("guard.sh"), "touch ran");
        assert!(!folder.path().join("ran").exists() && !folder.path().join("a.txt").exists());
    }
}

#[test]
fn a_failed_check_blocks_although_failures_are_ignored() {
    let config =
        hook("before_agent", "echo changed > b.sh") + &hook("before_tool", "sh b.sh") + "on_failure = \"ignore\"\n";
    let folder = Folder::cloned(WRITE, &(config + "[tools]\napprove = []\n"));
    folder.file("b.sh", "exit 0");
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["run", "hi"]).exits(0).prints("done\n").says("b.sh changed since it was accepted");
    assert_eq!(folder.read("a.txt"), "", "the call ran without its gate");
}

#[test]
fn a_gate_that_is_taken_out_or_moved_is_a_change() {
    let (one, two) = (hook("before_tool", "exit 2"), hook("before_agent", "true"));
    let approve = "[tools]\napprove = []\n";
    let folder = Folder::cloned(WRITE, &format!("{approve}{one}{two}"));
    folder.run(&["trust", "--yes"]).exits(0);
    let rewrite =
        |text: String| folder.file("turnbuckle.toml", &format!("[agent]\nmodel = \"script:script.json\"\n{text}"));
    for changed in
        [format!("{approve}{two}"), format!("{approve}{two}{one}"), format!("{one}{two}"), approve.to_owned()]
    {
        rewrite(changed);
        refused(folder.run(&["run", "hi"]));
    }
    rewrite(format!("{one}{two}{approve}"));
    // The sections have changed places, and each says what it said.
    refused(folder.run(&["run", "hi"]));
    rewrite(format!("{approve}{one}{two}"));
    folder.run(&["run", "hi"]).exits(0);
}

#[test]
fn a_link_in_the_place_of_the_configuration_is_judged_by_what_it_leads_to() {
    let folder = Folder::foreign();
    folder.file("script.json", &format!("{{\"replies\": [{HI}]}}"));
    let there = |name: &str, text: &str| folder.file(name, &format!("[agent]\nmodel = \"script:script.json\"\n{text}"));
    let point = |to: PathBuf| {
        let link = folder.path().join("turnbuckle.toml");
        let _ = std::fs::remove_file(&link);
        symlink(to, link).unwrap();
    };
    point(there("a/one.toml", &hook("before_agent", "touch one")));
    refused(folder.run(&["run", "hi"]));
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["run", "hi"]).exits(0);
    point(there("b/two.toml", &hook("before_agent", "touch two")));
    refused(folder.run(&["run", "hi"]));
    assert!(folder.path().join("one").exists() && !folder.path().join("two").exists());
    point("/dev/zero".into());
    folder.run(&["run", "hi"]).exits(2).says("it is a device");
}

#[test]
fn an_acceptance_is_for_one_folder_wherever_links_lead() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::foreign();
    let make = |name: &str| {
        let path = place.path().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("turnbuckle.toml"), hook("before_agent", "true")).unwrap();
        path
    };
    let at = |path: &std::path::Path, arguments: &[&str]| {
        let mut command = folder.command(arguments);
        command.current_dir(path);
        Ran::of(command)
    };
    let (mine, theirs, link) = (make("mine"), make("theirs"), place.path().join("link"));
    symlink(&mine, &link).unwrap();
    at(&link, &["trust", "--yes"]).exits(0);
    for path in [&mine, &link] {
        at(path, &["run", "--model", "demo", "hi"]).exits(0);
    }
    // The same link, the same files, another folder.
    std::fs::remove_file(&link).unwrap();
    symlink(&theirs, &link).unwrap();
    refused(at(&link, &["run", "--model", "demo", "hi"]));
    // Copied or moved, it is another folder, too.
    let moved = place.path().join("moved");
    std::fs::rename(&mine, &moved).unwrap();
    refused(at(&moved, &["run", "--model", "demo", "hi"]));
    assert!(at(&moved, &["trust", "list"]).exits(0).out.contains("mine, which is gone"));
    at(&moved, &["trust", "revoke", mine.to_str().unwrap()]).exits(0).says("revoked");
}

#[test]
fn a_damaged_or_foreign_record_accepts_nothing() {
    let folder = Folder::cloned(HI, &hook("before_agent", "touch ran"));
    let state = folder.home().join(".local/state/turnbuckle");
    folder.run(&["trust", "--yes"]).exits(0);
    let record = std::fs::read_dir(state.join("projects")).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read_to_string(&record).unwrap();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&record), mode(&state), mode(&state.join("history.jsonl"))), (0o600, 0o700, 0o600));
    let elsewhere = whole.replace(folder.path().to_str().unwrap(), "/elsewhere");
    let newer = whole.replace("\"format\": 1", "\"format\": 2");
    let whole_folder = "{\"accepted\": \"folder\"}";
    for damaged in ["", "null", "{", &whole[..whole.len() / 2], whole_folder, &elsewhere, &newer] {
        std::fs::write(&record, damaged).unwrap();
        let ran = folder.run(&["run", "hi"]).exits(2);
        assert!(ran.err.contains("cannot be understood"), "{damaged}: {}", ran.err);
        folder.run(&["trust", "list"]).exits(0);
    }
    std::fs::write(&record, &whole).unwrap();
    folder.run(&["run", "hi"]).exits(0);
    // Somebody else could have written it.
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o777)).unwrap();
    folder.run(&["run", "hi"]).exits(2).says("not only yours to write").says("--trust-hooks");
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o700)).unwrap();
    folder.run(&["trust", "--yes"]).exits(0);
    std::fs::remove_file(&record).unwrap();
    std::fs::create_dir(&record).unwrap();
    folder.run(&["run", "hi"]).exits(2);
}

#[test]
fn nothing_in_the_project_says_where_acceptances_are() {
    let folder = Folder::cloned(HI, &hook("before_agent", "touch ran"));
    folder.run(&["trust", "--yes"]).exits(0);
    let state = folder.home().join(".local/state/turnbuckle");
    // The whole state of a user who accepted it, brought along in every place that might be looked at.
    for inside in [".turnbuckle", ".local/state/turnbuckle", "turnbuckle"] {
        let copy = folder.path().join(inside);
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        assert!(std::process::Command::new("cp").arg("-r").args([&state, &copy]).status().unwrap().success());
    }
    std::fs::remove_dir_all(&state).unwrap();
    refused(folder.run(&["run", "hi"]));
    // A relative path in the variable would lead into the project.
    for (variable, value) in [("XDG_STATE_HOME", "."), ("XDG_STATE_HOME", ""), ("XDG_STATE_HOME", ".local/state")] {
        let mut command = folder.command(&["run", "hi"]);
        command.env(variable, value);
        refused(Ran::of(command));
    }
    assert!(!folder.path().join("ran").exists());
}

#[test]
fn environment_files_are_not_read() {
    let folder = Folder::foreign();
    let user = tempfile::tempdir().unwrap();
    let theirs = format!(
        "OPENAI_API_KEY=sk-theirs\nOPENAI_BASE_URL=http://127.0.0.1:9/v1\nHOME={0}\nXDG_STATE_HOME={0}\nXDG_CONFIG_HOME={0}\n\
         TURNBUCKLE_LOG_FILE={0}/log\nTURNBUCKLE_LOG=trace\n",
        user.path().display()
    );
    for name in [".env", ".envrc", ".env.local", ".turnbuckle/.env"] {
        folder.file(name, &theirs);
    }
    let report = folder.run(&["doctor", "--json"]).exits(0).events().remove(0);
    assert_eq!(report["environment"]["OPENAI_API_KEY"], serde_json::Value::Null);
    assert_eq!(report["environment"]["OPENAI_BASE_URL"], serde_json::Value::Null);
    folder.run(&["run", "hi"]).exits(0);
    assert_eq!(std::fs::read_dir(user.path()).unwrap().count(), 0);
}

#[test]
fn the_users_own_file_and_one_named_on_the_command_line_need_none() {
    let folder = Folder::cloned(HI, "");
    folder.users_file(&hook("before_agent", "touch users"));
    folder.run(&["run", "hi"]).exits(0);
    assert!(folder.path().join("users").exists());
    folder.file("turnbuckle.toml", &hook("before_agent", "touch projects"));
    refused(folder.run(&["run", "--model", "demo", "hi"]));
    folder.run(&["run", "--model", "demo", "--config", "turnbuckle.toml", "hi"]).exits(0);
    assert!(folder.path().join("projects").exists());
}

#[test]
fn for_one_run_everything_is_accepted_or_left_out() {
    let folder = Folder::cloned(HI, &hook("before_agent", "touch ran"));
    folder.run(&["run", "--ignore-project", "--model", "script:script.json", "hi"]).exits(0).prints("hi\n");
    assert!(!folder.path().join("ran").exists());
    folder.run(&["run", "--trust-hooks", "hi"]).exits(0).prints("hi\n");
    assert!(folder.path().join("ran").exists());
    refused(folder.run(&["run", "hi"]));
    folder.run(&["run", "--trust-hooks", "--ignore-project", "hi"]).exits(2);
    folder.run_with_stdin(&["chat", "--trust-hooks"], b"hi\n").exits(0).prints("hi\n");
    folder.run_with_stdin(&["hooks", "test", "before_agent", "--trust-hooks"], b"{}").exits(0);
    folder.run(&["resolve", "none", "c1", "--approve", "--trust-hooks"]).exits(1);
}

#[test]
fn a_folder_of_ones_own_may_say_what_it_likes() {
    let folder = Folder::cloned(HI, &hook("before_agent", "touch one"));
    folder.run(&["trust", "--folder"]).exits(2).says("--yes");
    folder.run(&["trust", "--folder", "--yes"]).exits(0).says("whatever its files say");
    folder.run(&["run", "hi"]).exits(0);
    folder.file("turnbuckle.toml", &hook("before_agent", "sh two.sh"));
    folder.file("two.sh", "touch two");
    folder.run(&["run", "--model", "demo", "hi"]).exits(0);
    assert!(folder.path().join("one").exists() && folder.path().join("two").exists());
    let listed = folder.run(&["trust", "list"]).exits(0).out;
    assert!(listed.contains("whatever its files say"), "{listed}");
    let listed = folder.run(&["trust", "list", "--json"]).exits(0).events();
    assert_eq!((&listed[0]["kind"], &listed[0]["whole_folder"]), (&"project".into(), &true.into()));
    folder.run(&["trust", "revoke"]).exits(0).says("revoked for ");
    refused(folder.run(&["run", "--model", "demo", "hi"]));
    folder.run(&["trust", "revoke"]).exits(1).says("nothing was accepted for ");
    let history = std::fs::read_to_string(folder.home().join(".local/state/turnbuckle/history.jsonl")).unwrap();
    let acts: Vec<serde_json::Value> = history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(acts.iter().map(|act| act["act"].as_str().unwrap()).collect::<Vec<_>>(), ["accepted", "revoked"]);
    assert!(acts.iter().all(|act| act["by"] == "local" && act["at"].is_string()), "{history}");
}

#[test]
fn a_projects_scope_never_sets_the_actor() {
    let folder = Folder::with_config(HI, "[scope]\nuser = \"boss\"\nroles = [\"manager\"]\n");
    let ran = folder.run(&["run", "--json", "hi"]).exits(0);
    assert_eq!(ran.event("user_message")["by"]["user"], "local");
    ran.says("`[scope]` of a project's file is not used").says("your own file");
    let ran = folder.run(&["run", "--json", "--trust-hooks", "hi"]).exits(0);
    assert_eq!(ran.event("user_message")["by"]["user"], "local");
    folder.users_file("[scope]\nuser = \"ann\"\n");
    let ran = folder.run(&["run", "--json", "hi"]).exits(0);
    assert_eq!(ran.event("user_message")["by"]["user"], "ann");
    let checked = folder.run(&["check"]).exits(0);
    assert!(checked.out.contains("scope     ann, roles none"), "{}", checked.out);
}

#[test]
fn approvals_that_the_users_file_gave_up_do_not_spread_to_more_tools() {
    let folder = Folder::cloned(WRITE, "[tools]\nbuiltin = [\"read_file\", \"write_file\"]\n");
    folder.users_file("[tools]\nbuiltin = [\"read_file\"]\napprove = []\n");
    refused(folder.run(&["run", "hi"])).says("[tools]");
    // Who asks for no approvals at all has accepted that for all tools.
    folder.users_file("[tools]\napprove = []\n");
    folder.run(&["run", "hi"]).exits(0).prints("done\n");
}

#[test]
fn without_a_folder_to_note_it_in_nothing_is_accepted_and_the_options_work() {
    let folder = Folder::cloned(HI, &hook("before_agent", "touch ran"));
    let without = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        command.env_remove("HOME");
        Ran::of(command)
    };
    without(&["run", "hi"]).exits(2).says("neither HOME nor XDG_STATE_HOME").says("--trust-hooks");
    without(&["trust", "--yes"]).exits(2).says("cannot be noted");
    without(&["run", "--trust-hooks", "--store", "sqlite:x.db", "hi"]).exits(0);
    without(&["run", "--config", "turnbuckle.toml", "--store", "sqlite:x.db", "hi"]).exits(0);
    let mut gone = folder.command(&["run", "hi"]);
    gone.env("HOME", "/nonexistent/home");
    Ran::of(gone).exits(2);
    assert!(!std::path::Path::new("/nonexistent").exists());
}

#[test]
fn commands_that_look_start_nothing_connect_to_nothing_and_say_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("http://{address}/v1");
    let config = format!(
        "[agent]\nmodel = \"openai@{url}:m\"\n{}{}[[hooks]]\nuse = \"telemetry\"\nendpoint = \"{url}\"\n",
        hook("ended", "touch ran"),
        hook("stop", "touch ran")
    );
    let folder = Folder::cloned(WRITE, "");
    folder.run(&["run", "-c", "a", "hi"]).exits(4);
    folder.file("turnbuckle.toml", &config);
    folder.run(&["check"]).exits(0).says("turnbuckle.toml is not accepted").says("turnbuckle trust");
    let hooks = folder.run(&["hooks"]).exits(0);
    assert!(hooks.out.contains("h-stop"), "{}", hooks.out);
    hooks.says("is not accepted");
    let doctor = folder.run(&["doctor"]).exits(0);
    assert!(doctor.out.contains("not asked: the project's file is not accepted"), "{}", doctor.out);
    assert!(
        doctor.out.contains("accepted              not accepted: [agent] model, [[hooks]] h-ended"),
        "{}",
        doctor.out
    );
    for arguments in [&["list"][..], &["show", "a"], &["trace", "a"], &["cancel", "a"]] {
        folder.run(arguments).exits(0);
    }
    assert_eq!(folder.run(&["show", "a", "--json"]).exits(0).event("turn_ended")["outcome"], "cancelled");
    assert!(!folder.path().join("ran").exists());
    assert!(listener.accept().is_err(), "somebody connected");
}

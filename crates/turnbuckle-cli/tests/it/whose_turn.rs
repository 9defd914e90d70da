//! Whose turn it is: a turn is carried on by its own agent, with everything that guards it, or it is left, and people see it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use crate::program::{Folder, Ran};

const WRITE: &str = r#"{ "replies": [ { "text": "I will write it. ", "tool_calls": [
    { "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } } ] }, { "text": "done" } ] }"#;
const GUARD: &str = "[[hooks]]\nuse = \"guard\"\nrelease = \"on_accept\"\n[[hooks.rules]]\nphrases = [\"forbidden\"]\nthen = \"reject\"\n";

/// A folder with the agents `coder`, which is guarded; `weak`, the same without its guard; `bare`, without the tool; and
/// `other`, of another name. A turn of `coder` waits.
fn waiting() -> Folder {
    let folder = Folder::new();
    folder.file("s.json", WRITE);
    let coder = "[agent]\nname = \"coder\"\nmodel = \"script:s.json\"\n";
    folder.file("coder.toml", &format!("{coder}{GUARD}"));
    folder.file("weak.toml", coder);
    folder.file("bare.toml", &format!("{coder}[tools]\nbuiltin = [\"read_file\"]\n{GUARD}"));
    folder.file("other.toml", "[agent]\nname = \"other\"\nmodel = \"script:s.json\"\n");
    folder.run(&["run", "-c", "w", "--config", "coder.toml", "write it"]).exits(4);
    folder
}

fn log(folder: &Folder) -> String {
    folder.run(&["show", "w", "--json"]).exits(0).out
}

/// B1: a turn that a crash left was finished by whoever ran a chat on the store, with another agent and without its guards.
#[test]
fn a_turn_that_a_crash_left_is_not_finished_by_another_agent_that_runs_on_the_store() {
    let folder = Folder::new();
    let slow = format!(r#"{{ "chunks": [{}"forbidden"], "delay_ms": 50 }}"#, "\"x \",".repeat(100));
    folder.file("slow.json", &format!(r#"{{ "replies": [{slow}, {{ "text": "a forbidden word" }}] }}"#));
    folder.file("free.json", r#"{ "on_exhausted": "repeat", "replies": [{ "text": "a forbidden word" }] }"#);
    folder.file("strict.toml", &format!("[agent]\nname = \"strict\"\nmodel = \"script:slow.json\"\n{GUARD}"));
    let mut child = folder.command(&["run", "-c", "w", "--config", "strict.toml", "--json", "go"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("\"user_message\"")), "it did not begin");
    child.kill().unwrap();
    child.wait().unwrap();

    let chat = ["chat", "-c", "other", "--model", "script:free.json", "-v"];
    let mut chat = folder.command(&chat).stdin(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(chat.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut seen = String::new();
    // What runs on the store has looked at the turn, and the chat tells its user. Either may come first.
    let both =
        ["turnbuckle::conversation::conversations: a turn is left", "turns that this agent does not carry on: w"];
    while !both.iter().all(|line| seen.contains(line)) {
        seen += &told.next().unwrap_or_else(|| panic!("{seen}"));
        seen.push('\n');
    }
    chat.stdin.take().unwrap().write_all(b"hi\n").unwrap();
    assert_eq!(chat.wait().unwrap().code(), Some(0));
    drop(told);
    assert!(!log(&folder).contains("turn_ended"), "{}", log(&folder));
    assert!(folder.run(&["list"]).exits(0).out.contains("left     go  [a turn of agent strict]"));

    // Its own agent finishes it, with its guard. The script's next reply is the forbidden one.
    let shown = folder.run(&["show", "w"]).exits(0);
    folder.paste(&shown.command_shown("run -c w")).exits(3).prints("").says("no reply was let through by hook guard");
}

/// B2: an approver with another agent burnt the approval: it was recorded, there was no tool, and the turn was over.
#[test]
fn resolving_with_another_agent_records_the_answer_for_the_right_one() {
    let folder = waiting();
    let ran = folder.run(&["resolve", "w", "c1", "--approve", "--config", "other.toml"]).exits(0).prints("");
    let ran = ran.says("recorded: the answer of user local; agent coder carries the turn on: ");
    assert_eq!(folder.read("a.txt"), "");
    assert!(!log(&folder).contains("tool_result") && !log(&folder).contains("turn_ended"));
    folder.run(&["resolve", "w", "c1", "--deny", "--config", "other.toml"]).exits(1).says("stale");
    for message in
        [&["run", "-c", "w", "--config", "other.toml"][..], &["run", "-c", "w", "--config", "other.toml", "hi"]]
    {
        let refused = folder.run(message).exits(1).prints("");
        let refused = refused.says("it is a turn of agent coder, and only that agent carries it on").says("hint: ");
        refused.says("`name = \"coder\"`");
    }
    // Nobody can insist on that.
    let insist = ["run", "-c", "w", "--config", "other.toml", "--accept-changes"];
    folder.run(&insist).exits(1).says("only that agent carries it on");
    folder.paste(&ran.command_shown("run -c w")).exits(0).prints("done\n");
    assert_eq!(folder.read("a.txt"), "x");
    assert_eq!(log(&folder).matches("\"tool_started\"").count(), 1, "the approval was used once");
}

/// A program could not tell an answer that is only recorded from a turn that is over: nothing was printed.
#[test]
fn an_answer_that_is_only_recorded_is_one_json_object_and_insisting_changes_nothing_about_it() {
    for insist in [&[][..], &["--accept-changes"]] {
        let folder = waiting();
        let resolve = ["resolve", "w", "c1", "--approve", "--json", "--config", "other.toml"];
        let ran = folder.run(&[&resolve[..], insist].concat()).exits(0).says("recorded: the answer of user local");
        let [recorded] = &ran.events()[..] else { panic!("{}", ran.out) };
        assert_eq!((&recorded["agent"], &recorded["decision"]), (&"coder".into(), &"approved".into()), "{recorded}");
        assert_eq!((&recorded["handed_over"], &recorded["open"]), (&false.into(), &false.into()), "{recorded}");
        assert_eq!(recorded["conversation"], "w");
        assert_eq!(folder.run(&["list", "--acts"]).exits(0).out, "", "nobody insisted on anything");
    }
}

#[test]
fn an_answer_that_is_stale_does_not_insist() {
    let folder = waiting();
    folder.run(&["answer", "w", "c1", "--approve"]).exits(0);
    let resolve = ["resolve", "w", "c1", "--approve", "--accept-changes", "--config", "weak.toml"];
    folder.run(&resolve).exits(1).prints("").says("stale");
    assert_eq!(folder.run(&["list", "--acts"]).exits(0).out, "");
}

#[test]
fn resolving_with_an_agent_that_lacks_the_tool_or_a_guard_writes_nothing() {
    let folder = waiting();
    let before = log(&folder);
    for (config, lacks) in [("bare.toml", "it lacks tool write_file"), ("weak.toml", "it lacks hook guard")] {
        let ran = folder.run(&["resolve", "w", "c1", "--approve", "--config", config]).exits(1).prints("");
        ran.says(lacks).says("hint: nothing was written: `turnbuckle answer w c1").says("--accept-changes");
        assert_eq!(log(&folder), before);
    }
    folder.run(&["answer", "w", "c1", "--approve", "--config", "weak.toml"]).exits(0);
    let listed = |config: &str| folder.run(&["list", "--json", "--config", config]).exits(0).events().remove(0);
    let weak = listed("weak.toml");
    assert_eq!((&weak["left"], &weak["left_reason"]), (&true.into(), &"changed".into()));
    assert_eq!((&weak["agent"], &weak["missing"][0]), (&"coder".into(), &"hook guard".into()));
    assert_eq!(listed("coder.toml")["left_reason"], "answered");
    assert_eq!(listed("other.toml")["left_reason"], "other_agent");
    let text = folder.run(&["list", "--config", "weak.toml"]).exits(0).out;
    assert!(text.contains("left     write it  [its agent has changed: it lacks hook guard]"), "{text}");
}

#[test]
fn a_person_can_insist_and_the_log_says_who_did() {
    for insist in [&["run", "-c", "w"][..], &["chat", "-c", "w"], &["resolve", "w", "c1", "--approve"]] {
        let folder = waiting();
        if insist[0] != "resolve" {
            folder.run(&["answer", "w", "c1", "--approve"]).exits(0);
            let refused = folder.run(&[insist, &["--config", "weak.toml"]].concat()).exits(1).prints("");
            refused.says("agent coder has changed since the turn began: it lacks hook guard").says("--accept-changes");
        }
        let ran = folder.run(&[insist, &["--config", "weak.toml", "--accept-changes"]].concat()).exits(0);
        ran.prints("done\n").says("it is carried on without hook guard, because user local insisted");
        let ended = folder.run(&["show", "w", "--json"]).event("turn_ended");
        assert!(ended["warnings"][0].to_string().contains("user local insisted"), "{ended}");
        assert_eq!(folder.read("a.txt"), "x");
    }
}

#[test]
fn what_changed_otherwise_does_not_leave_a_turn() {
    let folder = waiting();
    let more = "[agent]\nname = \"coder\"\nmodel = \"script:s.json\"\nsystem = \"Be careful.\"\n";
    let guard = GUARD.replace("\"forbidden\"", "\"forbidden\", \"more\"");
    folder.file("coder.toml", &format!("{more}{guard}[[hooks]]\nuse = \"redact\"\n"));
    let ran = folder.run(&["resolve", "w", "c1", "--approve", "--config", "coder.toml"]).exits(0).prints("done\n");
    ran.says("hook guard has other options, hook redact was added");
}

/// B16: the command that `show` printed went on without the hooks of the turn's own `--config`.
#[test]
fn the_commands_that_are_shown_work_as_printed_wherever_they_are_pasted() {
    let folder = waiting();
    let elsewhere = folder.another();
    let store = format!("sqlite:{}", folder.path().join(".turnbuckle/turnbuckle.db").display());
    for (from, options) in [(&folder, &[][..]), (&elsewhere, &["--store", &store])] {
        for looking in [&["show", "w"][..], &["show", "w", "--config"]] {
            let config = folder.path().join("other.toml");
            let config: &[&str] = if looking.len() == 3 { &[config.to_str().unwrap()] } else { &[] };
            let shown = from.run(&[looking, config, options].concat()).exits(0);
            let command = shown.command_shown("resolve w c1");
            let own = folder.path().canonicalize().unwrap().join("coder.toml");
            assert!(command.contains(&format!("--config {}", own.display())), "{command}");
            let before = std::fs::read(folder.path().join(".turnbuckle/turnbuckle.db")).unwrap();
            from.paste(&command).exits(0).prints("done\n");
            assert_eq!(folder.read("a.txt"), "x");
            // And once more from the same state.
            std::fs::write(folder.path().join(".turnbuckle/turnbuckle.db"), before).unwrap();
            std::fs::remove_file(folder.path().join("a.txt")).unwrap();
        }
    }
}

#[test]
fn a_turn_of_a_projects_own_agent_can_be_answered_from_another_folder() {
    let folder = Folder::new();
    folder.file("s.json", WRITE);
    folder.file(
        "turnbuckle.toml",
        "[agent]\nname = \"coder\"\nmodel = \"script:s.json\"\n[store]\nurl = \"sqlite:t.db\"\n",
    );
    folder.run(&["run", "-c", "w", "write it"]).exits(4);
    let (elsewhere, store) = (folder.another(), folder.path().join("t.db"));
    elsewhere.file("turnbuckle.toml", &format!("[store]\nurl = \"sqlite:{}\"\n", store.display()));
    let command = elsewhere.run(&["show", "w"]).exits(0).command_shown("resolve w c1");
    assert!(command.starts_with("cd ") && command.contains(" && turnbuckle resolve w c1 --digest "), "{command}");
    elsewhere.paste(&command).exits(0).prints("done\n");
    assert_eq!(folder.read("a.txt"), "x");
}

#[test]
fn how_a_turn_was_started_is_recorded_with_it() {
    let folder = Folder::new();
    folder.file("s.json", WRITE);
    let run = ["run", "-c", "w", "--model", "script:s.json", "--store", "sqlite:t.db", "--trust-hooks", "go"];
    let ran = folder.run(&run).exits(4);
    assert!(ran.command_shown("resolve").ends_with(" --store sqlite:t.db --model script:s.json --trust-hooks"));
    folder.file("turnbuckle.toml", "[store]\nurl = \"sqlite:t.db\"\n");
    let shown = folder.run(&["show", "w"]).exits(0).command_shown("resolve");
    assert!(shown.starts_with("turnbuckle resolve w c1 --digest "), "{shown}");
    assert!(shown.ends_with(" --store sqlite:t.db --model script:s.json --trust-hooks"), "{shown}");
    let database = std::fs::read(folder.path().join("t.db")).unwrap();
    assert!(!String::from_utf8_lossy(&database).contains("quiet"));
}

/// The project's file names another agent and another store: without `--ignore-project` the command found neither.
#[test]
fn a_turn_that_left_the_project_out_is_gone_on_with_in_the_same_way() {
    for command in ["run", "chat"] {
        let folder = Folder::new();
        folder.file("s.json", WRITE);
        folder.users_file(&format!(
            "[agent]\nname = \"mine\"\nmodel = \"script:{}\"\n",
            folder.path().join("s.json").display()
        ));
        folder.file("turnbuckle.toml", "[agent]\nname = \"theirs\"\n[store]\nurl = \"sqlite:theirs.db\"\n");
        let ran = match command {
            "run" => folder.run(&["run", "-c", "w", "--ignore-project", "write it"]),
            _ => folder.run_with_stdin(&["chat", "-c", "w", "--ignore-project"], b"write it\n"),
        };
        let printed = ran.exits(4).command_shown("resolve w c1");
        assert!(printed.ends_with(" --store sqlite:.turnbuckle/turnbuckle.db --ignore-project"), "{printed}");
        let shown = folder.run(&["show", "w", "--store", "sqlite:.turnbuckle/turnbuckle.db"]).exits(0);
        let shown = shown.command_shown("resolve w c1");
        assert!(shown.ends_with(" --store sqlite:.turnbuckle/turnbuckle.db --ignore-project"), "{shown}");
        let before = std::fs::read(folder.path().join(".turnbuckle/turnbuckle.db")).unwrap();
        for command in [printed, shown] {
            std::fs::write(folder.path().join(".turnbuckle/turnbuckle.db"), &before).unwrap();
            folder.paste(&command).exits(0).prints("done\n");
            let late = folder.paste(&command).exits(1).says("stale");
            assert!(!late.err.contains("theirs.db"), "{}", late.err);
        }
        assert!(!folder.path().join("theirs.db").exists());
    }
}

#[test]
fn a_program_of_ones_own_is_answered_with_answer_and_carries_the_turn_on_itself() {
    use turnbuckle::models::{Script, ScriptReply};
    let folder = Folder::new();
    let schema = serde_json::json!({ "type": "object" });
    let refund = turnbuckle::tools::function_with_schema(
        "refund",
        "Pays.",
        schema,
        turnbuckle::tool::Effect::Never,
        |_, _| async { Ok("paid") },
    );
    let script = Script::of([ScriptReply::calls("c1", "refund", serde_json::json!({})), ScriptReply::says("Paid.")]);
    let agent = turnbuckle::Agent::builder("support", script).tool(refund.requires_approval()).build().unwrap();
    let store = turnbuckle_stores::SqliteStore::open(folder.path().join("t.db")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let conversations = turnbuckle::Conversations::builder(agent, store).build();
    let id = "w".into();
    runtime.block_on(conversations.turn(&id, "pay", turnbuckle::Scope::local())).unwrap();

    let options = ["--store", "sqlite:t.db"];
    let shown = folder.run(&[&["show", "w"][..], &options].concat()).exits(0).command_shown("c1");
    assert!(shown.starts_with("turnbuckle answer w c1 --digest "), "{shown}");
    assert!(shown.ends_with(" --store sqlite:t.db"), "{shown}");
    folder.paste(&shown).exits(0).says("agent support carries the turn on, in the program that runs it");
    let listed = folder.run(&[&["list"][..], &options].concat()).exits(0).out;
    assert!(listed.contains("[a turn of agent support]"), "{listed}");
    let turn = runtime.block_on(conversations.resume(&id, turnbuckle::Scope::local())).unwrap().unwrap();
    assert!(
        matches!(runtime.block_on(turn.wait()), Ok(turnbuckle::TurnStatus::Ended(report)) if report.text() == "Paid.")
    );
}

#[test]
fn a_script_that_is_named_from_another_folder_is_the_same_model() {
    let folder = Folder::new();
    folder.file("script.json", WRITE);
    folder.file("turnbuckle.toml", "[agent]\nname = \"coder\"\n");
    for name in [".git", "it's"] {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    let below = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        command.current_dir(folder.path().join("it's"));
        Ran::of(command)
    };
    below(&["run", "-c", "w", "--model", "script:../script.json", "go"]).exits(4);
    let shown = folder.run(&["show", "w"]).exits(0);
    assert!(shown.out.contains("--model script:script.json"), "{}", shown.out);
    let there = below(&["show", "w"]).exits(0).command_shown("resolve");
    assert!(there.contains("/script.json") && !there.contains(".."), "{there}");
    let ran = folder.paste(&shown.command_shown("resolve")).exits(0).prints("done\n");
    assert!(!ran.err.contains("changed") && !ran.err.contains("instead of"), "{}", ran.err);
}

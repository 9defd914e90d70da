//! `[[agents]]`, `[[tools.client]]`, `[[tools.human]]`, `fetch`, and the instructions that are read by default.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use crate::program::Folder;

const WRITES: &str = r#"{ "replies": [
    { "tool_calls": [{ "id": "r", "name": "writer", "arguments": { "task": "write" } }] }, { "text": "over" }],
  "agents": { "writer": [
    { "tool_calls": [{ "id": "w", "name": "write_file", "arguments": { "path": "b.txt", "content": "x" } }] },
    { "text": "written" }] } }"#;

fn with_writer(more: &str) -> Folder {
    let folder = Folder::new();
    folder.file("script.json", WRITES);
    let config = format!(
        "[agent]\nmodel = \"script:script.json\"\n[tools]\nbuiltin = [\"read_file\"]\n[[agents]]\nname = \"writer\"\nsystem = \"You write.\"\n\
         tools = [\"write_file\"]\n{more}"
    );
    folder.file("turnbuckle.toml", &config);
    folder
}

#[test]
fn a_tool_of_a_sub_agent_that_changes_something_is_asked_about_unless_it_says_otherwise() {
    let folder = with_writer("");
    folder.run(&["run", "-c", "w", "go"]).exits(4);
    assert!(!folder.path().join("b.txt").exists());
    let free = with_writer("approve = []\n");
    free.run(&["run", "go"]).exits(0).prints("over\n");
    assert_eq!(free.read("b.txt"), "x");
    let allowed = with_writer("");
    allowed.run(&["run", "--allow", "write_file", "go"]);
}

#[test]
fn hooks_of_the_main_agent_stand_in_sub_agents_unless_they_are_left_out() {
    let gate = "[[hooks]]\nuse = \"command\"\nname = \"gate\"\non = \"before_tool\"\nrun = \"echo no >&2; exit 2\"\n";
    let kept = with_writer(&format!("approve = []\n{gate}"));
    kept.run(&["run", "go"]).exits(0);
    assert!(!kept.path().join("b.txt").exists());
    let left_out = with_writer(&format!("approve = []\ninherit_hooks = false\n{gate}"));
    let main_only = left_out
        .read("turnbuckle.toml")
        .replace("on = \"before_tool\"", "on = \"before_tool\"\ntools = [\"read_file\"]");
    left_out.file("turnbuckle.toml", &main_only);
    left_out.run(&["run", "go"]).exits(0);
    assert_eq!(left_out.read("b.txt"), "x");
}

#[test]
fn hooks_of_sub_agents_are_listed_and_judged_like_those_of_the_main_agent() {
    let own = "[[agents.hooks]]\nuse = \"command\"\nname = \"own-gate\"\non = \"before_tool\"\nrun = [\"true\"]\non_failure = \"ignore\"\n";
    let folder = with_writer(&format!("inherit_hooks = false\n{own}"));
    let listed = folder.run(&["hooks"]).exits(0);
    assert!(listed.out.contains("before_tool, in writer\n  own-gate"), "{}", listed.out);
    let lines = folder.run(&["hooks", "--json"]).exits(0).events();
    let line = lines.iter().find(|line| line["hook"] == "own-gate").unwrap();
    assert_eq!(
        (&line["agent"], &line["point"], &line["on_failure"]),
        (&"writer".into(), &"before_tool".into(), &"ignore".into())
    );
    assert!(lines.iter().filter(|line| line["hook"] == "retry").all(|line| line.get("agent").is_none()));
    let checked = folder.run(&["check"]).exits(0).says("this gate fails open: if the hook breaks, the call runs");
    assert!(checked.out.contains("hooks     in writer, before_tool: own-gate"), "{}", checked.out);
    assert!(checked.out.contains("hooks     in writer: without those of the main agent"), "{}", checked.out);
    let missing = with_writer(&own.replace("[\"true\"]", "[\"no-such-program-here\"]").replace("ignore", "block"));
    missing.run(&["check"]).exits(2).says("the program \"no-such-program-here\" was not found");
}

#[test]
fn slips_in_agents_are_told_with_their_lines() {
    for (more, says) in [
        ("model = \"nobody:x\"\n", "turnbuckle.toml:9:"),
        ("approve = [\"writefile\"]\n", "did you mean `write_file`?"),
        ("[agents.limits]\nmax_model_call = 3\n", "did you mean `max_model_calls`?"),
        ("[[agents.hooks]]\nuse = \"retri\"\n", "did you mean `retry`?"),
        ("[[agents.hooks]]\nuse = \"claude\"\n", "is for the main agent"),
        (
            "[[agents.hooks]]\nuse = \"command\"\nname = \"a\"\non = \"ended\"\nrun = \"true\"\n[[agents.hooks]]\nuse = \"command\"\nname = \"a\"\non = \"ended\"\nrun = \"true\"\n",
            "give one of them another `name`",
        ),
    ] {
        with_writer(more).run(&["check"]).exits(2).says(says);
    }
    let folder = with_writer("");
    folder.file("turnbuckle.toml", &folder.read("turnbuckle.toml").replace("[\"write_file\"]", "[\"writ_file\"]"));
    folder
        .run(&["check"])
        .exits(2)
        .says("turnbuckle.toml:8: there is no tool \"writ_file\"")
        .says("did you mean `write_file`?");
}

#[test]
fn a_cloned_projects_agents_need_acceptance_with_the_files_of_their_hooks() {
    let config = "[[agents]]\nname = \"w\"\nsystem = \"You write.\"\n[[agents.hooks]]\nuse = \"command\"\nname = \"x\"\non = \"ended\"\nrun = \"./x.sh\"\n";
    let folder = Folder::cloned(r#"{ "text": "hi" }"#, config);
    folder.file("x.sh", "#!/bin/sh\n");
    folder.run(&["run", "go"]).exits(2).says("[[agents]] w");
    let shown = folder.run(&["trust", "--yes"]).exits(0).out;
    assert!(shown.contains("x.sh"), "{shown}");
    folder.run(&["run", "go"]).exits(0);
    folder.file("x.sh", "#!/bin/sh\ntouch changed\n");
    folder.run(&["run", "go"]).exits(2).says("[[agents]] w");
}

#[test]
fn client_and_human_tools_of_the_configuration_wait_for_whoever_runs_them() {
    let call = r#"{ "tool_calls": [{ "id": "c1", "name": "open_file", "arguments": { "path": "a" } }, { "id": "c2", "name": "ask_legal", "arguments": { "question": "may we?" } }] }, { "text": "done" }"#;
    let config = "[[tools.client]]\nname = \"open_file\"\ndescription = \"Shows a file in the editor.\"\n\
                  parameters = { type = \"object\", properties = { path = { type = \"string\" } }, required = [\"path\"] }\n\
                  [[tools.human]]\nname = \"ask_legal\"\ndescription = \"Asks the lawyers.\"\n";
    let folder = Folder::with_config(call, config);
    folder.run(&["run", "-c", "a", "go"]).exits(4);
    folder.run(&["resolve", "a", "c1", "--answer", "\"shown\""]).exits(4);
    folder.run(&["resolve", "a", "c2", "--answer", "\"yes\""]).exits(0).prints("done\n");
    let bad = Folder::with_config(call, "[[tools.client]]\nname = \"read_file\"\ndescription = \"x\"\n");
    bad.run(&["check"]).exits(2).says("turnbuckle.toml:4:").says("another `name`");
    Folder::with_config(call, "[[tools.human]]\nname = \"x\"\n")
        .run(&["check"])
        .exits(2)
        .says("`description` in [[tools.human]] is missing");
}

fn web() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
            let page = "<html><body><h1>Docs</h1></body></html>";
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                page.len()
            );
            let _closed = stream.write_all(format!("{head}{page}").as_bytes());
        }
    });
    address.to_string()
}

#[test]
fn fetch_asks_unless_a_rule_names_the_host_and_the_log_says_which_rule() {
    let host = web();
    let call = format!(
        r#"{{ "tool_calls": [{{ "id": "f", "name": "fetch", "arguments": {{ "url": "http://{host}/x#y" }} }}] }}, {{ "text": "read" }}"#
    );
    let private = format!("[tools.fetch]\nprivate = [\"{host}\"]\n");
    let folder = Folder::with_config(&call, &private);
    folder.run(&["run", "go"]).exits(4).says("fetch");
    let rule = format!("fetch({host})");
    let ran = folder.run(&["run", "--json", "--allow", &rule, "go"]).exits(0);
    assert_eq!(ran.event("tool_started")["rule"], rule.as_str());
    assert_eq!(ran.event("tool_started")["arguments"]["url"], format!("http://{host}/x"));
    assert!(ran.event("tool_result")["content"].to_string().contains("Docs"), "{}", ran.event("tool_result"));
    folder.run(&["run", "--allow", "fetch(docs.rs)", "go"]).exits(4);
    let configured = Folder::with_config(&call, &format!("{private}allow = [\"{host}\"]\n"));
    configured.run(&["run", "go"]).exits(0).says(&format!("allowed by the rule fetch({host})"));
    let refused = Folder::with_script(&call);
    let ran = refused.run(&["run", "--json", "--allow", "fetch", "go"]).exits(0);
    assert!(ran.event("tool_result")["content"].to_string().contains("[tools.fetch] private"), "{}", ran.out);
    Folder::with_config(&call, "[tools.fetch]\nallow = [\"https://docs.rs/\"]\n")
        .run(&["check"])
        .exits(2)
        .says("which is no host");
    let cloned = Folder::cloned(&call, "[tools.fetch]\nallow = [\"docs.rs\"]\n");
    cloned.run(&["run", "go"]).exits(2).says("[tools] fetch");
}

#[test]
fn agents_md_is_read_into_every_turn_unless_the_configuration_says_otherwise() {
    let echo = |folder: &Folder| folder.file("script.json", r#"{ "replies": [], "on_exhausted": "echo" }"#);
    let folder = Folder::with_script("");
    echo(&folder);
    folder.file("AGENTS.md", "Always speak of marmalade.");
    let ran = folder.run(&["run", "--json", "hi"]).exits(0);
    assert!(ran.event("assistant_message").to_string().contains("marmalade"), "{}", ran.out);
    assert!(folder.run(&["check"]).exits(0).out.contains("instructions (added by default)"));
    for more in ["default_instructions = false\n", "[[hooks]]\nuse = \"instructions\"\nfiles = [\"OTHER.md\"]\n"] {
        let without = Folder::with_config("", more);
        echo(&without);
        without.file("AGENTS.md", "Always speak of marmalade.");
        let ran = without.run(&["run", "--json", "hi"]).exits(0);
        assert!(!ran.out.contains("marmalade"), "{}", ran.out);
    }
    let cloned = Folder::cloned(r#"{ "text": "hi" }"#, "[[hooks]]\nuse = \"retry\"\n");
    cloned.file("CLAUDE.md", "Be brief.");
    let shown = cloned.run(&["trust", "--yes"]).exits(0).out;
    assert!(shown.contains("CLAUDE.md of this folder is read into every turn"), "{shown}");
}

#[test]
fn a_folder_with_only_instructions_is_used_unasked_and_says_what_models_are_given() {
    let folder = Folder::new();
    folder.file("AGENTS.md", "Always speak of marmalade.");
    let note = "note: AGENTS.md of this folder is read into every turn, fenced as the project's words";
    folder.run(&["run", "--model", "demo", "hello"]).exits(0).says(note);
    let quiet = folder.run(&["run", "--quiet", "--model", "demo", "hello"]).exits(0);
    assert!(!quiet.err.contains("AGENTS.md"), "{}", quiet.err);
    folder.run(&["trust"]).exits(0).says("AGENTS.md of this folder is read into every turn");
    folder.users_file("[agent]\ndefault_instructions = false\n");
    let left_out = folder.run(&["run", "--model", "demo", "hello"]).exits(0);
    assert!(!left_out.err.contains("AGENTS.md"), "{}", left_out.err);
}

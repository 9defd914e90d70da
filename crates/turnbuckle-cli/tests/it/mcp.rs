//! MCP servers of the configuration, run by the real program.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::program::Folder;

/// A server that behaves as its first argument says.
const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../turnbuckle-mcp/tests/it/server.py");

pub(crate) fn call(tool: &str, text: &str) -> String {
    let arguments = json!({ "text": text });
    format!(
        r#"{{ "tool_calls": [{{ "id": "c1", "name": "mcp__test__{tool}", "arguments": {arguments} }}] }}, {{ "text": "done" }}"#
    )
}

pub(crate) fn server(mode: &str, more: &str) -> String {
    format!("[[tools.mcp]]\nname = \"test\"\ncommand = [\"python3\", \"{SERVER}\", \"{mode}\"]\n{more}\n")
}

#[test]
fn a_tool_of_a_server_asks_and_the_question_says_whose_it_is() {
    let folder = Folder::with_config(&call("echo", "hello"), &server("good", ""));
    let ran = folder.run(&["run", "--json", "-c", "a", "go"]).exits(4);
    let why = ran.event("suspension")["prompt"]["why"].as_str().unwrap().to_owned();
    assert!(why.contains("a tool of the MCP server test, which says that it only reads"), "{why}");
    let ran = folder.run(&["resolve", "a", "c1", "--approve", "--json"]).exits(0);
    let result = ran.event("tool_result");
    assert_eq!(result["content"][0]["text"], "<foreign source=\"mcp/test\">\nhello\n</foreign>");
}

#[test]
fn rules_hints_and_lists_decide_what_is_asked_about() {
    let echo = call("echo", "hello");
    for (more, exit) in
        [("approve = []", 0), ("approve = [\"write\"]", 0), ("hints = \"trust\"", 0), ("deny = [\"wr*\"]", 4)]
    {
        Folder::with_config(&echo, &server("good", more)).run(&["run", "go"]).exits(exit);
    }
    let folder = Folder::with_config(&echo, &server("good", ""));
    folder.run(&["run", "--allow", "mcp__test__echo", "go"]).exits(0);
    // A tool that is not offered is none.
    let folder = Folder::with_config(&echo, &server("good", "deny = [\"echo\"]"));
    let ran = folder.run(&["run", "--json", "go"]).exits(0);
    assert!(ran.event("tool_result")["content"][0]["text"].as_str().unwrap().contains("there is no tool named"));
}

#[test]
fn a_server_that_cannot_be_used_is_told_and_takes_nothing_down() {
    let config = "[[tools.mcp]]\nname = \"gone\"\ncommand = [\"no-such-program-anywhere\"]\n".to_owned()
        + &server("good", "approve = []");
    let folder = Folder::with_config(&call("echo", "hello"), &config);
    folder.run(&["run", "go"]).exits(0).prints("done\n").says("MCP server gone: its program could not be started");
    let unset = "[[tools.mcp]]\nname = \"far\"\nurl = \"https://127.0.0.1:1/${NO_SUCH_VARIABLE}\"\n";
    let folder = Folder::with_config(r#"{ "text": "done" }"#, unset);
    folder.run(&["run", "go"]).exits(0).says("the variable NO_SUCH_VARIABLE is not set");
}

#[test]
fn a_changed_description_is_told_and_asked_about_and_can_be_accepted() {
    let script = format!("{}, {}, {}", call("echo", "one"), call("echo", "two"), call("echo", "three"));
    let folder = Folder::with_config(&script, &server("good", "approve = []"));
    // The same command, which behaves in another way later.
    let copy = folder.file("server.py", &std::fs::read_to_string(SERVER).unwrap());
    let config = format!(
        "[agent]\nmodel = \"script:script.json\"\n[[tools.mcp]]\nname = \"test\"\napprove = []\ncommand = [\"python3\", \"{}\"]\n",
        copy.display()
    );
    folder.file("turnbuckle.toml", &config);
    folder.run(&["run", "-c", "a", "go"]).exits(0);
    let changed = std::fs::read_to_string(SERVER).unwrap().replace("mode == \"changed\"", "True");
    folder.file("server.py", &changed);
    let ran = folder.run(&["run", "--json", "-c", "a", "go"]).exits(0);
    assert!(
        ran.event("tool_result")["content"][0]["text"].as_str().unwrap().contains("its definition has changed since")
    );
    folder.run(&["run", "--json", "-c", "b", "go"]).exits(0).says("offers other tools than those you accepted");
    let shown = folder.run(&["trust", "--yes"]).exits(0).out;
    assert!(shown.contains("changed echo") && shown.contains("reads your keys"), "{shown}");
    let ran = folder.run(&["run", "--json", "-c", "c", "go"]).exits(0);
    assert!(ran.event("tool_result")["content"][0]["text"].as_str().unwrap().contains("one"), "{}", ran.out);
}

#[test]
fn an_offer_that_the_server_took_back_is_not_asked_about_and_never_accepted() {
    let script = ["one", "two", "three", "four"].map(|text| call("echo", text)).join(", ");
    let folder = Folder::with_config(&script, "");
    let genuine = std::fs::read_to_string(SERVER).unwrap();
    let copy = folder.file("server.py", &genuine);
    let config = format!(
        "[agent]\nmodel = \"script:script.json\"\n[[tools.mcp]]\nname = \"test\"\napprove = []\ncommand = [\"python3\", \"{}\"]\n",
        copy.display()
    );
    folder.file("turnbuckle.toml", &config);
    let warning = "offers other tools than those you accepted";
    let result = |ran: &crate::program::Ran| ran.event("tool_result")["content"][0]["text"].to_string();
    folder.run(&["run", "-c", "a", "go"]).exits(0);
    folder.file("server.py", &genuine.replace("mode == \"changed\"", "True"));
    let ran = folder.run(&["run", "--json", "-c", "a", "go"]).exits(0);
    assert!(result(&ran).contains("its definition has changed since"), "{}", ran.out);
    // Its offer is noted until it is called again.
    folder.file("server.py", &genuine);
    let ran = folder.run(&["run", "--json", "-c", "a", "go"]).exits(0).says(warning);
    assert!(result(&ran).contains("three"), "{}", ran.out);
    let shown = folder.run(&["trust", "--yes"]).exits(0).out;
    assert!(!shown.contains("echo") && !shown.contains("reads your keys"), "{shown}");
    let ran = folder.run(&["run", "--json", "-c", "a", "go"]).exits(0);
    assert!(result(&ran).contains("four") && !ran.err.contains(warning), "{} {}", ran.out, ran.err);
}

#[test]
fn tools_of_a_server_that_was_never_listed_can_be_named_everywhere() {
    let sub_agent = |tool: &str| {
        format!(
            "[tools]\napprove = [\"{tool}\"]\n{}[[access.approve]]\ntool = \"{tool}\"\nby = [\"boss\"]\n\
             [[agents]]\nname = \"helper\"\nsystem = \"Help.\"\ntools = [\"{tool}\"]\napprove = [\"{tool}\"]\n",
            server("good", "")
        )
    };
    let folder = Folder::with_config(r#"{ "text": "done" }"#, &sub_agent("mcp__test__echo"));
    let said = "whether there is a tool \"mcp__test__echo\" is not known: the MCP server test has not been listed";
    let checked = folder.run(&["check"]).exits(0);
    assert_eq!(format!("{}{}", checked.out, checked.err).matches(said).count(), 4, "{}{}", checked.out, checked.err);
    // A run lists it, and from then on it is known what there is.
    folder.run(&["run", "go"]).exits(0);
    let checked = folder.run(&["check"]).exits(0);
    assert!(!format!("{}{}", checked.out, checked.err).contains("mcp__test__echo\" is not known"), "{}", checked.out);
    folder
        .file("turnbuckle.toml", &format!("[agent]\nmodel = \"script:script.json\"\n{}", sub_agent("mcp__test__ehco")));
    folder.run(&["check"]).exits(2).says("mcp__test__ehco");
    // Of a server that there is not, nothing is known at all.
    folder
        .file("turnbuckle.toml", &format!("[agent]\nmodel = \"script:script.json\"\n{}", sub_agent("mcp__tset__echo")));
    folder.run(&["check"]).exits(2).says("mcp__tset__echo");
}

#[test]
fn a_cloned_project_starts_no_server_and_a_changed_program_is_asked_about_again() {
    let folder = Folder::cloned(&call("echo", "hello"), "");
    folder.file("server.py", &format!("open('ran', 'w')\n{}", std::fs::read_to_string(SERVER).unwrap()));
    let config = "[agent]\nmodel = \"script:script.json\"\n[[tools.mcp]]\nname = \"test\"\napprove = []\ncommand = [\"python3\", \"server.py\"]\n";
    folder.file("turnbuckle.toml", config);
    folder.run(&["run", "go"]).exits(2).says("[[tools.mcp]] test");
    folder.run(&["check"]).exits(0);
    folder.run(&["run", "--ignore-project", "--model", "script:script.json", "go"]).exits(0);
    assert!(!folder.path().join("ran").exists());
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["run", "go"]).exits(0);
    assert!(folder.path().join("ran").exists());
    folder.file("server.py", "open('evil', 'w')\n");
    folder.run(&["run", "go"]).exits(2);
    assert!(!folder.path().join("evil").exists());
}

#[test]
fn servers_come_from_mcp_json_where_the_configuration_says_so() {
    let folder = Folder::with_config(&call("echo", "hello"), "");
    let servers = json!({ "mcpServers": { "test": { "command": "python3", "args": [SERVER, "good"] } } });
    folder.file(".mcp.json", &servers.to_string());
    // The model calls a tool that the agent does not have.
    let ran = folder.run(&["run", "--json", "go"]).exits(0);
    assert!(ran.event("tool_result")["content"][0]["text"].as_str().unwrap().contains("there is no tool named"));
    folder.file("turnbuckle.toml", "[agent]\nmodel = \"script:script.json\"\n[tools]\nmcp_json = true\n");
    folder.run(&["run", "go"]).exits(4);
    folder.run(&["run", "--allow", "mcp__test__echo", "go"]).exits(0);
    let clone = Folder::cloned("", "[tools]\nmcp_json = true\n");
    clone.file(".mcp.json", &servers.to_string());
    clone.run(&["run", "go"]).exits(2).says("mcp_json");
}

#[test]
fn a_turn_is_carried_on_although_a_server_offers_other_tools_now() {
    let folder = Folder::with_config(&call("echo", "hello"), &server("good", ""));
    folder.run(&["run", "-c", "a", "go"]).exits(4);
    folder.file(
        "turnbuckle.toml",
        &format!("[agent]\nmodel = \"script:script.json\"\n{}", server("good", "deny = [\"write\"]")),
    );
    folder.run(&["resolve", "a", "c1", "--approve"]).exits(0);
}

#[test]
fn check_shows_what_tools_cost_without_starting_anything() {
    let folder = Folder::with_config(r#"{ "text": "done" }"#, &server("good", ""));
    let shown = folder.run(&["check"]).exits(0).out;
    assert!(shown.contains("mcp       test: not listed yet"), "{shown}");
    folder.run(&["run", "go"]).exits(0);
    let shown = folder.run(&["check"]).exits(0).out;
    assert!(shown.contains("mcp       test: 5 tools, about ") && shown.contains("tokens"), "{shown}");
}

#[test]
fn a_server_ends_with_the_program_also_when_that_is_killed() {
    let folder = Folder::with_config(&call("slow", ""), &server("good", "approve = []"));
    let running = |folder: &Path| {
        let found = Command::new("sh").args(["-c", "ls -l /proc/[0-9]*/cwd 2>/dev/null"]).output().unwrap();
        String::from_utf8_lossy(&found.stdout).matches(&*folder.to_string_lossy()).count()
    };
    let mut child = folder.command(&["run", "--json", "go"]).spawn().unwrap();
    let began = Instant::now();
    // The program and the server, which works at the call.
    while running(folder.path()) < 2 {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    while running(folder.path()) > 0 {
        assert!(killed.elapsed() < Duration::from_secs(30), "the server is left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_section_that_means_nothing_is_refused_with_its_line() {
    for (section, says) in [
        ("name = \"a\"", "needs a `command` or a `url`"),
        ("name = \"a b\"\ncommand = [\"x\"]", "must be 1 to 24"),
        ("name = \"a\"\nurl = \"ftp://x\"", "must begin with http"),
        ("name = \"a\"\ncommand = [\"x\"]\ncomand = 1", "unknown key"),
        ("name = \"a\"\ncommand = [\"x\"]\nenv = { A = 1 }", "must be a table of strings"),
    ] {
        let folder = Folder::with_config("", &format!("[[tools.mcp]]\n{section}\n"));
        folder.run(&["check"]).exits(2).says(says).says("turnbuckle.toml:");
    }
}

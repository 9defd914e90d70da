//! Answers that are only recorded, edited arguments, and approvals that hold for more than one call.

use crate::program::Folder;

const WRITE: &str = r#"{ "text": "I will write it. ", "tool_calls": [
    { "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } } ] }, { "text": "done" }"#;

fn waiting(config: &str) -> Folder {
    let folder = Folder::with_config(WRITE, config);
    folder.run(&["run", "-c", "w", "write it"]).exits(4);
    folder
}

fn resolutions(folder: &Folder) -> Vec<serde_json::Value> {
    let events = folder.run(&["show", "w", "--json"]).exits(0).events();
    events.into_iter().filter(|event| event["type"] == "resolution").collect()
}

#[test]
fn an_answer_is_only_recorded_and_run_takes_the_turn_up() {
    let folder = waiting("");
    let ran = folder.run(&["answer", "w", "c1", "--approve"]).exits(0).prints("");
    let ran = ran.says("recorded: call c1 is approved by user local; agent turnbuckle carries the turn on: ");
    assert_eq!(folder.read("a.txt"), "", "nothing runs");
    assert!(folder.run(&["list"]).exits(0).out.contains("left     write it  [answered, and not taken up yet]"));
    folder.run(&["answer", "w", "c1", "--deny"]).exits(1).prints("").says("stale").says("hint: ");
    folder.paste(&ran.command_shown("run -c w")).exits(0).prints("done\n");
    assert_eq!(folder.read("a.txt"), "x");
    assert_eq!(resolutions(&folder).len(), 1, "and the log names who answered");
    assert_eq!(resolutions(&folder)[0]["by"]["user"], "local");
}

#[test]
fn answering_needs_no_model_no_key_and_no_sound_configuration_of_hooks() {
    let folder = waiting("");
    folder.file(
        "turnbuckle.toml",
        "[agent]\nmodel = \"anthropic:claude-sonnet-4-5\"\nsystem_file = \"gone.md\"\n[[hooks]]\nuse = \"nonsense\"\n",
    );
    folder.run(&["run", "-c", "w"]).exits(2);
    assert_eq!(folder.run(&["pending"]).exits(0).err, "");
    folder.run(&["answer", "w", "c1", "--deny", "not today"]).exits(0);
    folder.run(&["list"]).exits(0);
    folder.run(&["show", "w"]).exits(0);
    folder.run(&["cancel", "w"]).exits(0).says("was cancelled");
    // Who may do what is not guessed from a file with errors there.
    for broken in ["[scope]\nuser = 7\n", "[access]\nanswers = []\n", "[store]\nurl = 1\n", "no toml"] {
        folder.file("turnbuckle.toml", broken);
        for command in [&["answer", "w", "c1", "--approve"][..], &["pending"], &["list"], &["cancel", "w"]] {
            folder.run(command).exits(2).prints("").says("turnbuckle.toml:");
        }
    }
}

#[test]
fn what_was_recorded_is_one_json_object() {
    let folder = waiting("");
    let [recorded] = &folder.run(&["answer", "w", "c1", "--approve", "--json"]).exits(0).events()[..] else { panic!() };
    let is = |key: &str, value: serde_json::Value| assert_eq!(recorded[key], value, "{recorded}");
    is("conversation", "w".into());
    is("call", "c1".into());
    is("agent", "turnbuckle".into());
    is("decision", "approved".into());
    is("by", serde_json::json!({ "user": "local" }));
    is("open", false.into());
    is("handed_over", false.into());
    is("standing", serde_json::Value::Null);
    let turn = folder.run(&["show", "w", "--json"]).events()[0]["turn"].clone();
    is("turn", turn);
}

#[test]
fn the_questions_of_a_tool_are_found_by_its_name() {
    let ask = r#"{ "tool_calls": [ { "id": "q", "name": "ask_human", "arguments": { "question": "colour?" } } ] }"#;
    let folder = Folder::with_script(ask);
    folder.run(&["run", "-c", "w", "ask"]).exits(4);
    for (glob, count) in [("ask*", 1), ("ask_human", 1), ("write_*", 0)] {
        let found = folder.run(&["pending", "--tool", glob, "--json"]).exits(0).events();
        assert_eq!(found.len(), count, "{glob}: {found:?}");
    }
}

#[test]
fn edited_arguments_run_and_stand_in_the_log_as_the_approvers() {
    for command in ["answer", "resolve"] {
        let folder = waiting("");
        let edited = r#"{ "path": "b.txt", "content": "y" }"#;
        let ran = folder.run(&[command, "w", "c1", "--approve", "--arguments", edited]).exits(0);
        if command == "answer" {
            folder.run(&["run", "-c", "w"]).exits(0).prints("done\n");
        } else {
            ran.says("c1: approved by user local, with other arguments: ").prints("done\n");
        }
        assert_eq!((folder.read("a.txt"), folder.read("b.txt")), (String::new(), "y".to_owned()));
        let resolution = &resolutions(&folder)[0];
        assert_eq!(resolution["arguments"]["path"], "b.txt");
        let shown = folder.run(&["show", "w"]).exits(0).out;
        assert!(shown.contains("dispatch  write_file(b.txt, …) = "), "{shown}");
        let started = folder.run(&["show", "w", "--json"]).event("tool_started");
        assert_eq!((&started["digest"], &started["arguments"]["path"]), (&resolution["digest"], &"b.txt".into()));
    }
    let folder = waiting("");
    let resolve = |arguments: &str| folder.run(&["resolve", "w", "c1", "--approve", "--arguments", arguments]);
    resolve("{nonsense").exits(2).says("`--arguments` is not JSON");
    let ran = resolve(r#"{ "path": 7 }"#).exits(1).prints("").says("cannot be answered like that");
    ran.says("hint: ").says("`turnbuckle resolve --help`");
    assert!(resolutions(&folder).is_empty());
}

#[test]
fn edited_arguments_that_do_not_fit_are_asked_about_again_and_do_not_use_up_the_approval() {
    let folder = waiting("");
    let ran = folder.run(&["answer", "w", "c1", "--approve", "--arguments", r#"{"pth":"b.txt"}"#]).exits(0);
    ran.says("whether the arguments fit is checked then, and asked again if they do not");
    let ran = folder.run(&["run", "-c", "w"]).exits(4).prints("").says("c1 (approval of write_file(a.txt, x))");
    let shown = folder.run(&["show", "w"]).exits(0).out;
    assert!(shown.contains("why: the arguments that user local gave do not fit: "), "{shown}");
    assert_eq!(folder.read("a.txt"), "");
    folder.paste(&ran.command_shown("resolve")).exits(0).prints("done\n");
    assert_eq!(folder.read("a.txt"), "x");
}

/// An address in the arguments, which the approver must not see.
const MAIL: &str = r#"{ "tool_calls": [
    { "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "ann@example.com" } } ] }, { "text": "done" }"#;

#[test]
fn whoever_approves_redacted_arguments_is_told_and_cannot_write_a_placeholder() {
    let folder = Folder::with_config(MAIL, "[[hooks]]\nuse = \"redact\"\non = [\"stream\", \"tool_arguments\"]\n");
    folder.run(&["run", "-c", "w", "write it"]).exits(4);
    for command in [&["pending"][..], &["show", "w"]] {
        let text = folder.run(command).exits(0).out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("content: [email] redacted: parts of this are placeholders"), "{text}");
    }
    for command in ["answer", "resolve"] {
        let copied = r#"{"path":"b.txt","content":"[email]"}"#;
        let ran = folder.run(&[command, "w", "c1", "--approve", "--arguments", copied]).exits(1);
        ran.says("`/content` is the redacted form that was shown");
        let ran = folder.run(&[command, "w", "c1", "--approve", "--always"]).exits(1);
        ran.says("its arguments are redacted");
    }
    folder.run(&["resolve", "w", "c1", "--approve"]).exits(0).prints("done\n");
    assert_eq!(folder.read("a.txt"), "ann@example.com");
}

const RULE: &str = "[access]\nsay = []\nanswer = [\"manager\"]\n\
                    approve = [ { tool = \"write_file\", by = [\"manager\"], n = 2 } ]\n";

#[test]
fn commands_are_printed_for_those_who_may_give_them() {
    let folder = Folder::with_config(WRITE, RULE);
    folder
        .run_as(("ann", ""), &["run", "-c", "w", "write it"])
        .exits(4)
        .says("call c1 is for others to answer: role manager");
    let shown = folder.run_as(("ann", ""), &["show", "w"]).exits(0).out;
    assert!(shown.contains("call c1 is for others to answer: role manager"), "{shown}");
    let mia = folder.run_as(("mia", "manager"), &["resolve", "w", "c1", "--approve"]).exits(4);
    let mia = mia.says("and others must approve as well").says("you have approved it");
    assert!(!mia.err.contains("`turnbuckle resolve"), "{}", mia.err);
    let max = folder.run_as(("max", "manager"), &["answer", "w", "c1", "--approve"]).exits(0);
    let max = max.says("agent turnbuckle carries the turn on once someone takes it up who may: ");
    assert!(!max.err.contains("run -c"), "{}", max.err);
    let shown = folder.run_as(("max", "manager"), &["show", "w"]).exits(0).out;
    assert!(!shown.contains("run -c"), "{shown}");
    let shown = folder.run_as(("ann", ""), &["show", "w"]).exits(0);
    assert!(shown.command_shown("run -c w").contains("turnbuckle run -c w"));
}

#[test]
fn who_may_answer_may_carry_the_turn_on_with_resolve() {
    let folder = Folder::with_config(WRITE, "[access]\nsay = []\nanswer = [\"manager\"]\n");
    folder.run_as(("ann", ""), &["run", "-c", "w", "write it"]).exits(4);
    folder.run_as(("mia", "manager"), &["run", "-c", "w"]).exits(1).says("you may not say here");
    folder.run_as(("mia", "manager"), &["resolve", "w", "c1", "--approve"]).exits(0).prints("done\n");
    folder.run_as(("mia", "manager"), &["hold", "w"]).exits(1).says("you may not delete or hold here");
}

/// Only the rule that is stored with the question lets mia answer: her own configuration has no `[access]`.
#[test]
fn who_may_answer_by_the_stored_rule_alone_can_resolve_and_sees_nothing_else() {
    let folder = Folder::with_config(WRITE, "[access]\nanswer = [\"manager\"]\n");
    folder.run_as(("ann", ""), &["run", "-c", "w", "a secret plan"]).exits(4);
    folder.file("turnbuckle.toml", "[agent]\nmodel = \"script:script.json\"\n");
    let mia = ("mia", "manager");
    folder.run_as(mia, &["show", "w"]).exits(1).says("there is no conversation w");
    let resolve = ["resolve", "w", "c1", "--approve"];
    folder.run_as(("eve", ""), &resolve).exits(1).prints("").says("there is no conversation w");
    let insists = folder.run_as(mia, &[&resolve[..], &["--accept-changes"]].concat()).exits(1).prints("");
    insists.says("not insist that its turn is carried on");
    let ran = folder.run_as(mia, &resolve).exits(0).prints("");
    let ran = ran.says("[access] here does not let you read its conversation").says("the turn is over: completed");
    assert!(!ran.err.contains("secret") && !ran.err.contains("done"), "{}", ran.err);
    assert_eq!(folder.read("a.txt"), "x");
    let resolution = &folder.run_as(("ann", ""), &["show", "w", "--json"]).exits(0).event("resolution");
    assert_eq!((&resolution["by"]["user"], &resolution["decision"]), (&"mia".into(), &"approved".into()));
    // Who was asked and is late is told that.
    folder.run_as(mia, &resolve).exits(1).prints("").says("stale");
    folder.run_as(("eve", ""), &resolve).exits(1).says("there is no conversation w");
}

#[test]
fn what_a_hook_changes_of_edited_arguments_is_shown_to_the_approver_once_more() {
    let hook = r#"[[hooks]]
use = "command"
name = "upper"
on = "before_tool"
run = '''if grep -q '"content":"y"'; then echo '{"decision":"allow","input":{"path":"b.txt","content":"Y"}}'; fi'''
"#;
    let folder = waiting(hook);
    let edited = r#"{ "path": "b.txt", "content": "y" }"#;
    let ran = folder.run(&["resolve", "w", "c1", "--approve", "--arguments", edited]).exits(4).prints("");
    let ran = ran.says("approval of write_file(b.txt, Y)");
    let shown = folder.run(&["show", "w"]).exits(0);
    assert!(shown.out.contains("why: a hook changed the arguments that user local edited"), "{}", shown.out);
    assert!(shown.out.contains("a second look: these are the arguments that would run now"), "{}", shown.out);
    assert_eq!(folder.read("b.txt"), "");
    folder.paste(&ran.command_shown("resolve")).exits(0).prints("done\n");
    assert_eq!(folder.read("b.txt"), "Y");
}

#[test]
fn an_answer_counts_only_for_what_was_shown() {
    for command in ["answer", "resolve"] {
        let folder = Folder::with_config(WRITE, RULE);
        folder.run_as(("ann", ""), &["run", "-c", "w", "write it"]).exits(4);
        let (mia, max) = (("mia", "manager"), ("max", "manager"));
        let shown = folder.run_as(mia, &["pending"]).exits(0).command_shown("answer w c1");
        let digest = shown.split("--digest ").nth(1).and_then(|rest| rest.split(" ").next()).unwrap();
        let whole =
            folder.run_as(mia, &["pending", "--json"]).events()[0]["prompt"]["digest"].as_str().unwrap().to_owned();
        assert!(whole.starts_with(digest) && digest.len() == 16, "{shown}");
        // Another approver puts other arguments in the place of those that mia was shown.
        let edited = r#"{ "path": "b.txt", "content": "y" }"#;
        folder.run_as(max, &["answer", "w", "c1", "--approve", "--arguments", edited]).exits(0);
        let before = folder.run_as(("ann", ""), &["show", "w", "--json"]).exits(0).out;
        for old in [digest, &whole, &whole.to_uppercase()] {
            for answer in [&["--approve"][..], &["--deny"], &["--approve", "--arguments", edited]] {
                let given = [&[command, "w", "c1", "--digest", old], answer].concat();
                let ran = folder.run_as(mia, &given).exits(1).prints("");
                ran.says("error: the answer to call c1 is stale: it was shown with other arguments").says("hint: ");
            }
        }
        assert_eq!(folder.run_as(("ann", ""), &["show", "w", "--json"]).exits(0).out, before, "nothing was written");
        let now = folder.run_as(mia, &["pending"]).exits(0).command_shown("answer w c1");
        let now = now.split("--digest ").nth(1).and_then(|rest| rest.split(" ").next()).unwrap();
        folder.run_as(mia, &[command, "w", "c1", "--approve", "--digest", now]).exits(0);
        for bad in ["", "12345678901", "not hexadecimal", &format!("{whole}0")] {
            let ran = folder.run_as(mia, &[command, "w", "c1", "--approve", "--digest", bad]).exits(2).prints("");
            ran.says("a digest has 64 hexadecimal digits");
        }
    }
}

#[test]
fn a_question_without_a_digest_takes_no_answer_for_one() {
    let ask = r#"{ "tool_calls": [{ "id": "q", "name": "ask_human", "arguments": { "question": "Which?" } }] }"#;
    let folder = Folder::with_script(&format!(r#"{ask}, {{ "text": "so be it" }}"#));
    let command = folder.run(&["run", "-c", "w", "choose"]).exits(4).command_shown("resolve w q");
    assert!(!command.contains("--digest"), "{command}");
    let given = ["answer", "w", "q", "--answer", "1", "--digest", "0123456789ab"];
    folder.run(&given).exits(1).says("stale: it was shown with other arguments");
}

#[test]
fn always_is_shown_first_holds_from_now_on_and_can_be_revoked() {
    let folder = waiting("");
    let always = ["answer", "w", "c1", "--approve", "--always", "--until", "1h", "--times", "2"];
    let ran = folder.run(&always).exits(0);
    let rule = r#"always: agent turnbuckle may call write_file with arguments = {"content":"x","path":"a.txt"} for user local in "#;
    assert!(ran.err.starts_with(rule), "{}", ran.err);
    assert!(ran.err.contains(", 2 times\nrecorded: "), "{}", ran.err);
    folder.run(&["run", "-c", "w"]).exits(0).prints("done\n");
    let [listed] = &folder.run(&["approvals", "--json"]).exits(0).events()[..] else { panic!() };
    assert_eq!(
        (&listed["tool"], &listed["usable"], &listed["uses_left"]),
        (&"write_file".into(), &true.into(), &2.into())
    );
    let id = listed["id"].as_str().unwrap();
    let used = folder.run(&["run", "-c", "next", "again"]).exits(0).prints("done\n");
    used.says(&format!("c1: approved by user local, as always (standing approval {id})"));
    let evidence = folder.run(&["show", "next", "--json"]).event("resolution");
    assert_eq!((&evidence["standing"], &evidence["by"]["user"]), (&id.into(), &"local".into()));
    let text = folder.run(&["approvals"]).exits(0).out;
    assert!(text.contains(id) && text.contains(", once, given by user local"), "{text}");
    folder.run(&["run", "-c", "more", "again"]).exits(0);
    let text = folder.run(&["approvals"]).exits(0).out;
    assert!(text.contains("[used up] ") && !text.contains("0 times"), "{text}");
    // Another user has none of it.
    assert_eq!(folder.run_as(("eve", ""), &["approvals"]).exits(0).out, "");
    folder.run_as(("eve", ""), &["approvals", "revoke", id]).exits(1).says("there is no standing approval");
    folder.run(&["approvals", "revoke", id]).exits(0).says("revoked");
    folder.run(&["approvals", "revoke", id]).exits(1).prints("").says("hint: `turnbuckle approvals` lists them");
    folder.run(&["run", "-c", "third", "again"]).exits(4);
}

const FOUR: &str = r#"{ "tool_calls": [
        { "id": "c1", "name": "write_file", "arguments": { "path": "docs/a.md", "content": "x" } } ] }, { "text": "one" },
    { "tool_calls": [
        { "id": "c2", "name": "write_file", "arguments": { "path": "docs/deep/b.md", "content": "y" } } ] }, { "text": "two" },
    { "tool_calls": [
        { "id": "c3", "name": "write_file", "arguments": { "path": "docs/../c.md", "content": "z" } } ] }, { "text": "three" }"#;

#[test]
fn always_like_covers_what_the_pattern_says_and_is_shown_first() {
    for command in ["answer", "resolve"] {
        let folder = Folder::with_script(FOUR);
        folder.run(&["run", "-c", "w", "write it"]).exits(4);
        let always = |like: &str| folder.run(&[command, "w", "c1", "--approve", "--always", "--like", like]);
        for (like, why) in [
            (r#"{ "path": "src/*" }"#, r#"path is "docs/a.md", and the pattern wants "src/*""#),
            (r#"{ "path": "docs/*", "mode": "x" }"#, "mode is null"),
            (r#""*""#, "the pattern wants"),
        ] {
            let ran = always(like).exits(1).prints("").says("`--like` does not cover this call itself");
            ran.says(why).says("hint: ");
        }
        always("{nonsense").exits(2).says("`--like` is not JSON");
        folder.run(&[command, "w", "c1", "--approve", "--like", "{}"]).exits(2).says("--always");
        assert!(resolutions(&folder).is_empty());
        assert_eq!(folder.run(&["approvals"]).exits(0).out, "");
        let ran = always(r#"{ "path": "docs/*", "content": "*" }"#).exits(0);
        let rule = r#"always: agent turnbuckle may call write_file with any content and path like "docs/*" and no other arguments for user local"#;
        assert!(ran.err.contains(rule), "{}", ran.err);
        folder.run(&["run", "-c", "w"]).exits(0);
        folder.run(&["run", "-c", "w", "and more"]).exits(0).prints("two\n").says("as always");
        assert_eq!(folder.read("docs/deep/b.md"), "y");
        // Another way to write a path out of there is no way: the pattern sees where it leads.
        folder.run(&["run", "-c", "w", "and more"]).exits(4).says("c3 (approval of write_file(c.md, z))");
    }
}

#[test]
fn a_standing_approval_whose_call_was_not_approved_is_not_kept() {
    let folder = waiting("[limits]\napproval_timeout = \"1s\"\n");
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    for command in ["answer", "resolve"] {
        folder.run(&[command, "w", "c1", "--approve", "--always"]).exits(1).says("stale");
        assert_eq!(folder.run(&["approvals"]).exits(0).out, "");
    }
}

#[test]
fn always_is_refused_where_a_hook_or_a_rule_wants_to_be_asked_each_time() {
    let asks = "[[hooks]]\nuse = \"approval\"\nrules = [ { tool = \"write_file\" } ]\n";
    let rule = "[access]\nanswer = [\"boss\"]\napprove = [ { tool = \"write_file\", n = 2 } ]\n";
    for config in [asks, rule] {
        let folder = waiting(config);
        let ran = folder.run(&["answer", "w", "c1", "--approve", "--always"]).exits(1);
        ran.says("a hook or a rule wants to be asked each time");
        assert!(resolutions(&folder).is_empty());
    }
}

#[test]
fn answers_that_make_no_sense_are_refused() {
    let folder = waiting("");
    for bad in [
        &["answer", "w", "c1"][..],
        &["answer", "w"],
        &["answer", "w", "c1", "--approve", "--deny"],
        &["answer", "w", "c1", "--deny", "--always"],
        &["answer", "w", "c1", "--approve", "--until", "1h"],
        &["answer", "w", "c1", "--approve", "--always", "--until", "soon"],
        &["answer", "w", "c1", "--approve", "--always", "--until", "0s"],
        &["answer", "w", "c1", "--approve", "--always", "--times", "0"],
        &["answer", "w", "c1", "--approve", "--always", "--arguments", "{}"],
        &["answer", "w", "c1", "--answer", "blue"],
        &["answer", "w w", "c1", "--approve"],
    ] {
        folder.run(bad).exits(2).prints("").says("error: ");
    }
    let until = |time: &str| folder.run(&["answer", "w", "c1", "--approve", "--always", "--until", time]);
    until("foo").says("it is no time; write 30m, 1h or 7d");
    until("0s").says("it must hold for some time");
    folder.run(&["answer", "w", "c9", "--approve"]).exits(1).says("stale");
    folder.run(&["answer", "nobody", "c1", "--approve"]).exits(1).says("there is no conversation nobody");
    folder.run(&["answer", "w", "c1", "--answer", "\"blue\""]).exits(1).says("wants to be approved or denied");
    folder.run(&["answer", "w", "c1", "--approve", "--store", "sqlite:gone.db"]).exits(1).says("there is no database");
    assert!(!folder.path().join("gone.db").exists());
    assert!(resolutions(&folder).is_empty());
}

#[test]
fn pending_lists_what_someone_can_answer_over_all_conversations() {
    let folder = waiting("");
    folder.run(&["run", "-c", "x", "me too"]).exits(4);
    let ran = folder.run(&["pending"]).exits(0);
    let heads: Vec<&str> = ran.out.lines().filter(|line| line.starts_with("pending   ")).collect();
    assert!(heads[0].starts_with("pending   w, agent turnbuckle, asked ") && heads[1].contains(" x, "), "{}", ran.out);
    assert!(ran.out.contains("content: x") && ran.out.contains("`turnbuckle answer w c1 --digest "), "{}", ran.out);
    let count = |more: &[&str]| folder.run(&[&["pending", "--json"], more].concat()).exits(0).events().len();
    assert_eq!(count(&[]), 2);
    assert_eq!(
        [count(&["--tool", "write_file"]), count(&["--tool", "edit*"]), count(&["--tool", "write_*"])],
        [2, 0, 2]
    );
    assert_eq!([count(&["--agent", "turnbuckle"]), count(&["--agent", "other"])], [2, 0]);
    assert_eq!([count(&["--older", "0s"]), count(&["--older", "1h"])], [2, 0]);
    let first = &folder.run(&["pending", "--json"]).events()[0];
    assert_eq!((&first["kind"], &first["prompt"]["tool"]), (&"approval".into(), &"write_file".into()));
    assert_eq!((&first["requester"]["user"], &first["agent"]), (&"local".into(), &"turnbuckle".into()));
    folder.run(&["pending", "--older", "soon"]).exits(2);
    assert_eq!(folder.run_as(("eve", ""), &["pending"]).exits(0).out, "");
    folder.run(&["answer", "w", "c1", "--deny"]).exits(0);
    assert_eq!(count(&[]), 1);
}

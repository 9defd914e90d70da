//! Configuration: two files come together key by key, and every mistake has its file, its line and a hint.

use crate::program::{Folder, Ran};

/// `check` and `run` refuse this file, naming the line and what to do.
#[track_caller]
fn refused(config: &str, error: &str, hint: &str) {
    let folder = Folder::new();
    folder.file("turnbuckle.toml", config);
    for arguments in [&["check"][..], &["run", "hi"]] {
        let ran = folder.run(arguments).exits(2).prints("");
        let at = ran.err.find(error).unwrap_or_else(|| panic!("{error:?} is not in:\n{}", ran.err));
        // `check` shows the line of the file, indented, before the hint.
        let hinted = ran.err[at..].lines().skip(1).find(|line| !line.starts_with("  ")).unwrap_or_default();
        assert!(hinted.starts_with("hint: ") && hinted.contains(hint), "{hint:?} is not in {hinted:?}");
    }
}

#[test]
fn a_relative_folder_of_configuration_and_a_home_that_is_the_project_are_told_of() {
    let folder = Folder::with_script(r#"{ "text": "hi" }"#);
    for arguments in [&["run", "--model", "demo", "--store", "memory:", "hi"][..], &["doctor"], &["list"]] {
        let mut relative = folder.command(arguments);
        relative.env("XDG_CONFIG_HOME", "conf");
        Ran::of(relative).says("warning: XDG_CONFIG_HOME is \"conf\", which is not an absolute path: it is not used");
    }
    for arguments in [&["run", "--model", "demo", "--store", "memory:", "hi"][..], &["doctor"]] {
        assert!(!folder.run(arguments).err.contains("XDG_CONFIG_HOME"));
        let mut at_home = folder.command(arguments);
        at_home.env("HOME", folder.path());
        Ran::of(at_home).exits(0).says("warning: the project is your home directory");
    }
}

#[test]
fn unknown_keys_are_errors_with_the_nearest_right_name() {
    refused("[agent]\n\nmodle = \"demo\"\n", "error: turnbuckle.toml:3: unknown key `modle` in [agent]", "`model`");
    refused("[limit]\n", "error: turnbuckle.toml:1: unknown key `limit`", "`limits`");
    refused("[limits]\nmax_token = 1\n", "turnbuckle.toml:2: unknown key `max_token` in [limits]", "`max_tokens`");
    refused("[store]\npath = \"x\"\n", "turnbuckle.toml:2: unknown key `path` in [store]", "url");
    refused("[agent]\napprove = []\n", ":2: unknown key `approve` in [agent]", "`approve` belongs in [tools]");
    refused("approve = []\n", ":1: unknown key `approve`", "`approve` belongs in [tools]");
    refused("[agent]\nmax_cost = 1\n", ":2: unknown key `max_cost` in [agent]", "`max_cost` belongs in [limits]");
    refused("[tools]\naprove = []\n", "turnbuckle.toml:2: unknown key `aprove` in [tools]", "`approve`");
    refused(
        "[[hooks]]\nuse = \"command\"\non = \"stop\"\nrun = \"true\"\ntimout = \"1s\"\n",
        "turnbuckle.toml:5: unknown key `timout` in [[hooks]]",
        "`timeout`",
    );
    refused("[[agents]]\nname = \"a\"\nsistem = \"x\"\n", "turnbuckle.toml:3: unknown key `sistem`", "`system`");
}

#[test]
fn wrong_types_and_values_are_errors_with_their_line() {
    refused("[agent]\nname = 5\n", "turnbuckle.toml:2: `name` in [agent] must be a string, not 5", "name = \"…\"");
    refused("[limits]\nmax_tokens = -1\n", "turnbuckle.toml:2: `max_tokens`", "max_tokens = 1000");
    refused("[limits]\nmax_cost = -0.5\n", "turnbuckle.toml:2: `max_cost`", "max_cost = 0.5");
    refused("[limits]\nturn_timeout = \"soon\"\n", "turnbuckle.toml:2: `turn_timeout`", "\"30m\"");
    refused("[limits]\nmax_model_calls = 5000000000\n", "turnbuckle.toml:2: `max_model_calls`", "= 8");
    refused("agent = 1\n", "turnbuckle.toml:1: `agent` must be a table", "agent = {");
    refused("[agent\n", "error: turnbuckle.toml:1: not TOML", "toml.io");
    refused("[tools]\napprove = \"all\"\n", "turnbuckle.toml:2: `approve` in [tools] must be a list of strings", "[");
}

#[test]
fn settings_that_mean_nothing_are_refused_and_the_hook_is_named() {
    for (used, options, key) in [
        ("redact", "emails = false\ncards = false\nkeys = false\n", "emails"),
        ("redact", "salt = \"12345678\"\n", "salt"),
        ("redact", "patterns = [ { name = \"\", pattern = \"a\" } ]\n", "patterns"),
        ("retry", "around = \"model_calls\"\nrepeat = [\"x\"]\n", "repeat"),
        ("retry", "around = \"tool_calls\"\nafter_text = true\n", "after_text"),
        ("retry", "repeat = [\"\"]\n", "repeat"),
        ("validate_input", "max_chars = 0\n", "max_chars"),
        ("validate_input", "pattern = \"a*\"\n", "pattern"),
        ("validate_input", "schema = {}\n", "schema"),
        ("quota", "requests = 0\n", "requests"),
        ("instructions", "files = []\n", "files"),
        ("refine", "brief = \" \"\n", "brief"),
        ("critic", "model = \"demo\"\nbrief = \"\"\n", "brief"),
        ("critic", "critics = [ { name = \"a\", model = \"demo\", weight = 2.0 } ]\n", "critics"),
        ("critic", "critics = [ { name = \"\", model = \"demo\" } ]\n", "critics"),
        ("guard", "rules = [ { max_chars = 0 } ]\n", "rules"),
        ("guard", "rules = [ { require = \".*\" } ]\n", "rules"),
        ("permit", "rules = [ { role = \"\", allow = [\"*\"] } ]\n", "rules"),
        ("permit", "rules = [ { allow = [\"\"] } ]\n", "rules"),
        ("check_result", "schema = {}\n", "schema"),
        ("lint", "run = \"true\"\nfiles = [\"\"]\n", "files"),
        ("format", "template = \"\"\n", "template"),
        ("monitor", "", "max_error_rate"),
        ("rate_limit", "per = [\"tool\"]\n", "per"),
        ("timeout", "users = [\"\"]\n", "users"),
        ("suggest", "model = \"demo\"\nbrief = \"\"\n", "brief"),
        ("retry", "max_wait = \"1000y\"\n", "max_wait"),
    ] {
        refused(&format!("[[hooks]]\nuse = \"{used}\"\n{options}"), &format!("`{key}` in [[hooks]] "), used);
    }
    for (setting, hint) in
        [("timeout = \"0s\"", "default"), ("tools = []", "all tools"), ("max_tokens = 0", "no limit")]
    {
        let key = setting.split(' ').next().unwrap_or_default();
        let hook = format!("[[hooks]]\nuse = \"instructions\"\n{setting}\n");
        refused(&hook, &format!("turnbuckle.toml:3: `{key}` in [[hooks]] "), hint);
    }
}

#[test]
fn settings_that_change_nothing_are_warned_of() {
    for (config, warning) in [
        ("[[hooks]]\nuse = \"redact\"\ntimeout = \"5s\"\n", "turnbuckle.toml:3: `timeout` changes nothing"),
        ("[[hooks]]\nuse = \"retry\"\nmax_attempts = 1\n", "nothing is tried again"),
        (
            "[[hooks]]\nuse = \"permit\"\nrules = [ { deny = [\"shel\"] } ]\n",
            "name \"shel\", and the agent has no such",
        ),
        (
            "[[hooks]]\nuse = \"approval\"\nrules = [ { tool = \"write_fle\" } ]\n",
            "name \"write_fle\", and the agent has no such",
        ),
        ("[[hooks]]\nuse = \"lint\"\nrun = \"true\"\n", "a stop hook without `on_failure`"),
        ("[[hooks]]\nuse = \"instructions\"\nshare = 9000\n", "turnbuckle.toml:3: `share = 9000`"),
        ("[agent]\nsystem = \" \"\n", "turnbuckle.toml:2: the system prompt is empty"),
        ("[[agents]]\nname = \"r\"\n", "turnbuckle.toml:2: the sub-agent `r` has no `system` prompt"),
    ] {
        let folder = Folder::new();
        folder.file("turnbuckle.toml", config);
        folder.run(&["check"]).exits(0).says("warning: ").says(warning);
    }
}

#[test]
fn who_is_acting_is_checked() {
    refused("[scope]\nuser = \" \"\n", "turnbuckle.toml:2: `user` in [scope] is empty", "`local`");
    refused("[scope]\nroles = [\n  \"a\",\n  \"a\",\n]\n", "turnbuckle.toml:4: `roles` in [scope] has \"a\" twice", "");
    refused("[scope]\nroles = [\"\"]\n", "turnbuckle.toml:2: `roles` in [scope] has an empty role", "");
    refused("[scope]\nuser = \"a\\nb\"\n", "turnbuckle.toml:2: `user` in [scope] has a character", "\"ann\"");
    refused("[scope]\nrole = \"a\"\n", "turnbuckle.toml:2: unknown key `role` in [scope]", "`roles`");
    let folder = Folder::new();
    folder.users_file("[scope]\nuser = \"ann\"\nroles = [\"editor\"]\n");
    let ran = folder.run(&["check"]).exits(0);
    assert!(ran.out.contains("scope     ann, roles editor"), "{}", ran.out);
}

#[test]
fn who_may_do_what_is_checked() {
    let rule = |rule: &str| format!("[access]\napprove = [ {{ {rule} }} ]\n");
    refused("[access]\nraed = [\"a\"]\n", ":2: unknown key `raed` in [access]", "`read`");
    refused("[access]\nread = \"a\"\n", ":2: `read` in [access] must be a list of strings", "[\"…\"]");
    refused("[access]\nsay = [\"a\", \"a\"]\n", ":2: `say` in [access] has \"a\" twice", "take it out");
    refused("[access]\ncancel = [\" \"]\n", ":2: `cancel` in [access] has an empty role", "take it out");
    refused(&rule("by = [\"m\"]"), ":2: `tool` in [[access.approve]] is missing", "tool = ");
    refused(&rule("tool = \"write_file\", bye = [\"m\"]"), "unknown key `bye` in [[access.approve]]", "`by`");
    refused(&rule("tool = \"write_fle\""), ":2: `approve` in [access] names \"write_fle\", and", "`write_file`");
    refused(&rule("tool = \"sx*\""), "names \"sx*\", and the agent has no such tool", "its tools are ");
    refused(&rule("tool = \"ask_human\", by = [\"m\"]"), "whose calls a person answers anyway", "`answer`");
    refused(&rule("tool = \"write_file\", n = 0"), "`n` in [[access.approve]] is 0", "at least one");
    refused(&rule("tool = \"write_file\", by = []"), "`by` in [[access.approve]] names no role", "take it out");
    refused(
        &rule("tool = \"write_file\", n = 2"),
        ":2: `approve` in [access]: nobody could approve write_file",
        "`by`",
    );
    refused(&rule("tool = \"write_file\", not_requester = true"), "nobody could approve write_file", "`answer`");
    let folder = Folder::new();
    let check = |config: &str| {
        folder.file("turnbuckle.toml", config);
        folder.run(&["check"]).exits(0)
    };
    let both = "approve = [ { tool = \"*\", by = [\"m\"] }, { tool = \"write_file\", by = [\"n\"], n = 2 } ]\n";
    check(&format!("[access]\n{both}"))
        .says(":2: this rule of `approve` in [access] never counts")
        .says("put it first");
    let ruled = "[tools]\napprove = []\n[access]\nread = [\"support\"]\nanswer = [\"m\", \"n\"]\n\
                 approve = [ { tool = \"*_file\", not_requester = true, n = 2 }, { tool = \"apply_patch\", by = [\"m\"] } ]\n";
    let ran = check(ruled);
    assert_eq!(ran.err, "", "what a rule guards is not unguarded");
    for line in [
        "approve   shell, fetch, read_file, write_file, edit_file, apply_patch\n",
        "access    read: support; answer: m, n\n",
        "rule      *_file is approved by whoever may answer, not the one who asked, 2 people\n",
    ] {
        assert!(ran.out.contains(line), "{line:?} is not in:\n{}", ran.out);
    }
}

#[test]
fn access_comes_together_key_by_key() {
    let folder = Folder::new();
    folder.users_file("[access]\nread = [\"all\"]\ncancel = [\"operator\"]\n");
    folder.file("turnbuckle.toml", "[access]\nread = [\"support\"]\n");
    let out = folder.run(&["check"]).exits(0).out;
    assert!(out.contains("access    read: support; cancel: operator\n"), "{out}");
}

#[test]
fn a_conversation_is_its_owners_whatever_roles_they_have_today() {
    let folder = Folder::new();
    let look = |config: &str, arguments: &[&str]| {
        folder.users_file(config);
        folder.run(arguments)
    };
    let ann = "[scope]\nuser = \"ann\"\n";
    look(ann, &["run", "-c", "mine", "--model", "demo", "hi"]).exits(0);
    let later = "[scope]\nuser = \"ann\"\nroles = [\"editor\"]\n";
    assert!(look(later, &["list"]).exits(0).out.contains("mine"));
    look(later, &["show", "mine"]).exits(0);
    look(later, &["run", "-c", "mine", "--model", "demo", "again"]).exits(0);
    for arguments in [&["show", "mine"][..], &["trace", "mine"], &["cancel", "mine"], &["run", "-c", "mine", "hi"]] {
        look("", arguments).exits(1).says("mine");
    }
    assert_eq!(look("", &["list"]).exits(0).out, "");
}

#[test]
fn hooks_are_checked_to_the_last_option() {
    let hook = |rest: &str| format!("[[hooks]]\n{rest}");
    refused(&hook("name = \"x\"\n"), "turnbuckle.toml:1: `use` in [[hooks]] is missing", "use = ");
    for name in ["a\\nb", "\\u001b[31mred", &"x".repeat(65)] {
        let named = hook(&format!("use = \"redact\"\nname = \"{name}\"\n"));
        refused(&named, "turnbuckle.toml:3: `name` in [[hooks]] must be at most 64 characters that can be shown", "");
    }
    refused(
        &hook("use = \"quota\"\nrequests = 99999999999999999999\n"),
        "turnbuckle.toml:3: `requests` in [[hooks]] must be a whole number, not `99999999999999999999`\n",
        "quota",
    );
    refused(
        &hook("use = \"recall\"\nshare = 9000\n"),
        "turnbuckle.toml:3: hook \"recall\" may add 9000 tokens, and injection_reserve is 4000",
        "lower it",
    );
    refused(&hook("use = \"comand\"\n"), "turnbuckle.toml:2: `use` in [[hooks]] is \"comand\"", "`command`");
    refused(&hook("use = \"command\"\nrun = \"x\"\n"), "turnbuckle.toml:1: `on` in [[hooks]] is missing", "on = ");
    refused(&hook("use = \"command\"\non = \"stop\"\n"), "turnbuckle.toml:1: `run` in [[hooks]] is missing", "run = ");
    refused(&hook("use = \"command\"\non = \"stopp\"\nrun = \"x\"\n"), "turnbuckle.toml:3: `on`", "`stop`");
    refused(
        &hook("use = \"command\"\non = \"stop\"\nrun = []\n"),
        "turnbuckle.toml:4: `run` in [[hooks]] names no program",
        "`turnbuckle schema` lists the options of",
    );
    refused(
        &hook("use = \"command\"\non = \"stop\"\nrun = 5\n"),
        "turnbuckle.toml:4: `run` in [[hooks]] must be a string or",
        "",
    );
    refused(&hook("use = \"redact\"\non_failure = \"explode\"\n"), "turnbuckle.toml:3: `on_failure`", "block, ignore");
    refused(&hook("use = \"redact\"\nrelease = \"never\"\n"), "turnbuckle.toml:3: `release`", "on_accept");
    refused(&hook("use = \"redact\"\nstrategy = \"mas\"\n"), "turnbuckle.toml:3: `strategy`", "`mask`");
    refused(
        &hook("use = \"redact\"\npatterns = [\n  { name = \"n\", pattern = \"[0-9]+\" },\n]\n"),
        "turnbuckle.toml:4: `patterns` in [[hooks]] cannot be used: pattern `n` has no longest match",
        "`turnbuckle schema` lists the options of",
    );
    refused(
        &hook("use = \"redact\"\nemails = 1\n"),
        "turnbuckle.toml:3: `emails` in [[hooks]] must be true or false, not `1`",
        "",
    );
    refused(
        &hook("use = \"redact\"\npatterns = [\n  { name = \"n\", patern = \"a\" },\n]\n"),
        "turnbuckle.toml:4: unknown key `patern` in [[hooks]]",
        "`pattern`",
    );
    refused(
        &hook("use = \"retry\"\non = [\"model\"]\n"),
        "turnbuckle.toml:3: unknown key `on` in [[hooks]]",
        "write `around = \"model_calls\"`, `\"tool_calls\"` or `\"both\"`",
    );
    refused(
        &hook("use = \"retry\"\naround = \"model\"\n"),
        "turnbuckle.toml:3: `around`",
        "model_calls, tool_calls, both",
    );
    refused(
        &hook("use = \"redact\"\npriority = 1\n"),
        "turnbuckle.toml:3: `priority` in [[hooks]] without `max_tokens`",
        "left out",
    );
}

#[test]
fn what_the_agent_refuses_is_put_back_to_its_line() {
    refused(
        "[limits]\ninjection_reserve = 99999\n",
        "turnbuckle.toml:2: injection_reserve (99999)",
        "injection_reserve",
    );
    refused("[limits]\nmax_model_calls = 0\n", "turnbuckle.toml:2: max_model_calls must not be 0", "default");
    refused("[agent]\nname = \"a b\"\n", "turnbuckle.toml:2: agent name \"a b\"", "another name");
    refused("[tools]\napprove = [\n\"write_fil\"]\n", "turnbuckle.toml:3: approve names \"write_fil\"", "`write_file`");
    refused(
        "[tools]\napprove = [\"ask_human\"]\n",
        "turnbuckle.toml:2: tool \"ask_human\" requires approval",
        "take it out",
    );
    refused("[[agents]]\nname = \"read_file\"\n", "turnbuckle.toml:2: two tools are named \"read_file\"", "another");
    let twice = "[[hooks]]\nuse = \"redact\"\nname = \"a\"\n[[hooks]]\nuse = \"redact\"\nname = \"a\"\n";
    refused(twice, "turnbuckle.toml:6: two hooks are named \"a\"", "another `name`");
    let idle = "[[hooks]]\nuse = \"redact\"\ntools = [\"write_file\"]\n";
    refused(idle, "turnbuckle.toml:3: hook \"redact\" has tools", "take the setting out");
    let held = "[[hooks]]\nuse = \"command\"\non = \"stop\"\nrun = \"true\"\nrelease = \"on_accept\"\n";
    refused(held, "turnbuckle.toml:5: hook \"command\" has release = on_accept", "choose another point");
    let gone = "[[hooks]]\nuse = \"command\"\non = \"before_tool\"\nrun = \"true\"\ntools = [\"wirte_*\"]\n";
    refused(gone, "turnbuckle.toml:5: hook \"command\" names \"wirte_*\"", "");
}

#[test]
fn what_this_version_lacks_is_refused_clearly() {
    refused("[store]\nurl = \"sqlite:\"\n", "turnbuckle.toml:2: store \"sqlite:\" names no file", "sqlite:PATH");
    refused("[store]\nurl = \"sqlite://x\"\n", "turnbuckle.toml:2: store \"sqlite://x\"", "sqlite:PATH");
    let folder = Folder::new();
    folder.run(&["run", "--store", "postgres://x", "hi"]).exits(2).says("no client for PostgreSQL");
    folder.run(&["run", "--model", "gpt", "hi"]).exits(2).says("there is no model \"gpt\"");
}

#[test]
fn all_mistakes_are_told_at_once_in_order() {
    let folder = Folder::new();
    folder.file(
        "turnbuckle.toml",
        "[tools]\nbuiltin = [\"raed_file\"]\n[agent]\nmodel = \"nope\"\nnam = 1\n[limits]\nmax_cost = \"a\"\n",
    );
    let ran = folder.run(&["check"]).exits(2);
    let lines: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("error: ")).map(|line| &line[..25]).collect();
    let expected: Vec<String> = [2, 4, 5, 7].iter().map(|line| format!("error: turnbuckle.toml:{line}:")).collect();
    assert_eq!(lines, expected, "{}", ran.err);
}

#[test]
fn a_malformed_script_has_its_file_line_and_hint() {
    let folder = Folder::new();
    folder.file("bad.json", "{\"replies\": [\n  {\"txet\": \"a\"}\n]}");
    let ran = folder.run(&["run", "--model", "script:bad.json", "hi"]).exits(2).prints("");
    ran.says("error: bad.json:2: ").says("unknown field `txet`").says("hint: did you mean `text`?");
    folder.run(&["run", "--model", "script:gone.json", "hi"]).exits(2).says("gone.json cannot be read");
}

/// Reads the user's file under `$XDG_CONFIG_HOME`.
fn run_with_user_file(folder: &Folder, arguments: &[&str]) -> Ran {
    let mut command = folder.command(arguments);
    command.env("XDG_CONFIG_HOME", folder.path().join("xdg"));
    Ran::of(command)
}

#[test]
fn the_projects_file_stands_on_top_of_the_users_key_by_key() {
    let folder = Folder::new();
    let user =
        "[agent]\nname = \"user\"\nmodel = \"script:user.json\"\n[[hooks]]\nuse = \"redact\"\nname = \"first\"\n";
    folder.file("xdg/turnbuckle/turnbuckle.toml", user);
    folder.file("xdg/turnbuckle/user.json", r#"{ "replies": [{ "text": "from the user's script" }] }"#);
    folder.file("turnbuckle.toml", "[agent]\nname = \"project\"\n[[hooks]]\nuse = \"redact\"\nname = \"second\"\n");
    let ran = run_with_user_file(&folder, &["check"]).exits(0);
    assert!(ran.out.contains("agent     project, model script:user.json"), "{}", ran.out);
    assert!(ran.out.contains("stream: first, second"), "{}", ran.out);
    run_with_user_file(&folder, &["run", "hi"]).exits(0).prints("from the user's script\n");
    let only = folder.file("only.toml", "[agent]\nname = \"only\"\n");
    let ran = run_with_user_file(&folder, &["check", "--config", only.to_str().unwrap()]).exits(0);
    assert!(ran.out.contains("agent     only, model demo"), "{}", ran.out);
    folder.run(&["check", "--config", "gone.toml"]).exits(2).says("error: gone.toml: cannot be read");
}

#[test]
fn options_win_over_files() {
    let folder = Folder::with_script(r#"{ "text": "configured" }"#);
    folder.file("other.json", r#"{ "replies": [{ "text": "chosen" }] }"#);
    folder.run(&["run", "--model", "script:other.json", "hi"]).exits(0).prints("chosen\n");
    folder.run(&["--model", "script:other.json", "run", "hi"]).exits(0).prints("chosen\n");
    folder.run(&["run", "--store", "memory:", "hi"]).exits(0).prints("configured\n");
}

#[test]
fn the_system_prompt_may_stand_in_a_file() {
    let folder = Folder::new();
    folder.file("turnbuckle.toml", "[agent]\nsystem_file = \"prompt.md\"\n");
    folder.run(&["check"]).exits(2).says("turnbuckle.toml:2: `system_file` prompt.md cannot be read");
    folder.file("prompt.md", "Be brief.");
    folder.run(&["check"]).exits(0);
    refused("[agent]\nsystem = \"a\"\nsystem_file = \"b\"\n", "`system` and `system_file` are both given", "keep one");
}

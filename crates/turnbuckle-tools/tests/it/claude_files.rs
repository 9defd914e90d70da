//! The files that Claude-style settings stand in: what is there and cannot be read is never taken for absent, and nothing hangs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use turnbuckle_tools::ClaudeOptions;
use turnbuckle_tools::claude::{ClaudeAction, ClaudePlaces, ClaudePlugin, ClaudeSettings};

const GATE: &str = r#"{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "exit 2"}]}]}}"#;

fn load(project: &Path, plugins: &[&str]) -> ClaudeSettings {
    ClaudeSettings::load(&ClaudePlaces {
        project: project.to_owned(),
        reads_project: true,
        home: None,
        managed: None,
        plugins: plugins.iter().map(|folder| ClaudePlugin::Folder(folder.into())).collect(),
    })
}

fn fifo(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// One complaint, which names the file.
fn complains(settings: &ClaudeSettings, file: &str, why: &str) {
    assert_eq!(settings.unsupported.len(), 1, "{:?}", settings.unsupported);
    let place = &settings.unsupported[0].place;
    assert!(settings.unsupported[0].kind == "file" && place.contains(file) && place.contains(why), "{place}");
}

#[test]
fn a_pipe_a_device_or_a_folder_in_the_place_of_a_settings_file_is_refused_and_never_waited_for() {
    let project = TempDir::new().unwrap();
    let settings = project.path().join(".claude/settings.json");
    fifo(&settings);
    complains(&load(project.path(), &[]), "settings.json", "it is a pipe");
    fs::remove_file(&settings).unwrap();
    symlink("/dev/zero", &settings).unwrap();
    complains(&load(project.path(), &[]), "settings.json", "it is a device");
    fs::remove_file(&settings).unwrap();
    fs::create_dir(&settings).unwrap();
    complains(&load(project.path(), &[]), "settings.json", "it is a folder");
    fs::remove_dir(&settings).unwrap();
    fs::File::create(&settings).unwrap().set_len(1 << 40).unwrap();
    complains(&load(project.path(), &[]), "settings.json", "larger than 4 MiB");
}

#[test]
fn files_of_a_plugin_are_read_with_the_same_care_and_none_of_them_is_missed_in_silence() {
    let project = TempDir::new().unwrap();
    complains(&load(project.path(), &["plugin"]), "plugin", "cannot be read");
    let (hooks, manifest) = ("plugin/hooks/hooks.json", "plugin/.claude-plugin/plugin.json");
    fifo(&project.path().join(hooks));
    complains(&load(project.path(), &["plugin"]), "hooks.json", "it is a pipe");
    fs::remove_file(project.path().join(hooks)).unwrap();
    fifo(&project.path().join(manifest));
    complains(&load(project.path(), &["plugin"]), "plugin.json", "it is a pipe");
    fs::remove_file(project.path().join(manifest)).unwrap();
    fs::write(project.path().join(manifest), r#"{"hooks": "./more.json"}"#).unwrap();
    complains(&load(project.path(), &["plugin"]), "more.json", "No such file");
    fs::write(project.path().join("plugin/more.json"), GATE).unwrap();
    assert_eq!(load(project.path(), &["plugin"]).handlers.len(), 1);
}

#[test]
fn a_file_that_is_there_and_leads_nowhere_is_not_taken_for_absent() {
    let project = TempDir::new().unwrap();
    fs::create_dir(project.path().join(".claude")).unwrap();
    assert!(load(project.path(), &[]).unsupported.is_empty(), "no file at all is no complaint");
    let settings = project.path().join(".claude/settings.json");
    symlink("gone.json", &settings).unwrap();
    complains(&load(project.path(), &[]), "settings.json", "No such file");
    fs::remove_file(&settings).unwrap();
    symlink("settings.json", &settings).unwrap();
    complains(&load(project.path(), &[]), "settings.json", "cannot be read");
    fs::remove_file(&settings).unwrap();
    fs::write(&settings, r#"{"hooks": []}"#).unwrap();
    let loaded = load(project.path(), &[]);
    assert!(loaded.unsupported[0].place.contains("`hooks` is not an object"), "{:?}", loaded.unsupported);
}

#[test]
fn a_folder_of_settings_that_is_a_link_to_nowhere_is_not_taken_for_absent() {
    let project = TempDir::new().unwrap();
    let path = |name: &str| project.path().join(name);
    let mut places = ClaudePlaces {
        project: path("p"),
        reads_project: true,
        home: Some(path("home")),
        managed: Some(path("etc")),
        plugins: Vec::new(),
    };
    fs::create_dir(path("p")).unwrap();
    assert!(ClaudeSettings::load(&places).unsupported.is_empty(), "folders that are not there are no complaint");
    symlink("gone", path("p/.claude")).unwrap();
    let told = |settings: &ClaudeSettings| -> Vec<String> {
        assert!(settings.unsupported.iter().all(|one| one.kind == "file"));
        settings.unsupported.iter().map(|one| one.place.clone()).collect()
    };
    let complaints = told(&ClaudeSettings::load(&places));
    assert_eq!(complaints.len(), 2, "{complaints:?}");
    assert!(complaints[0].contains(".claude/settings.json cannot be read"), "{complaints:?}");
    assert!(complaints[1].contains(".claude/settings.local.json cannot be read"), "{complaints:?}");
    places.reads_project = false;
    assert!(ClaudeSettings::load(&places).unsupported.is_empty(), "nobody asked for the project's settings");
    fs::create_dir(path("home")).unwrap();
    symlink("gone", path("home/.claude")).unwrap();
    fs::create_dir(path("etc")).unwrap();
    symlink("gone", path("etc/managed-settings.d")).unwrap();
    let complaints = told(&ClaudeSettings::load(&places)).join("\n");
    for name in ["home/.claude/settings.json", "etc/managed-settings.d"] {
        assert!(complaints.contains(name), "{name} in {complaints}");
    }
    fs::create_dir(path("plugin")).unwrap();
    symlink("gone", path("plugin/hooks")).unwrap();
    complains(&load(project.path(), &["plugin"]), "hooks/hooks.json", "No such file");
}

#[test]
fn a_handler_is_refused_if_nobody_can_tell_whether_its_failure_blocks() {
    let project = TempDir::new().unwrap();
    fs::create_dir(project.path().join(".claude")).unwrap();
    let with = |key: &str, value: Value| {
        let mut handler = json!({"type": "command", "command": "./gate"});
        handler[key] = value;
        let settings = json!({"hooks": {"PreToolUse": [{"hooks": [handler]}]}});
        fs::write(project.path().join(".claude/settings.json"), settings.to_string()).unwrap();
        load(project.path(), &[])
    };
    for key in ["onFailure", "on_failure"] {
        for value in [json!(true), json!(["block"]), json!({"do": "block"}), json!(1), json!("Block")] {
            let settings = with(key, value.clone());
            assert!(settings.handlers.is_empty(), "{key}: {value}");
            assert!(
                settings.unsupported[0].place.contains(&format!("`onFailure` {value}")),
                "{:?}",
                settings.unsupported
            );
        }
        for (value, blocks) in [(json!("block"), true), (json!("ignore"), false), (Value::Null, false)] {
            let settings = with(key, value.clone());
            assert!(settings.unsupported.is_empty(), "{key}: {value}: {:?}", settings.unsupported);
            assert_eq!(settings.handlers[0].blocks_on_failure, blocks, "{key}: {value}");
        }
    }
}

#[test]
fn a_field_of_the_wrong_kind_is_an_error_of_its_entry_and_not_absent() {
    let project = TempDir::new().unwrap();
    fs::create_dir(project.path().join(".claude")).unwrap();
    for (key, value) in
        [("if", json!(5)), ("async", json!("true")), ("asyncRewake", json!(1)), ("type", json!(["command"]))]
    {
        let mut handler = json!({"type": "command", "command": "./gate"});
        handler[key] = value;
        let settings = json!({"hooks": {"PreToolUse": [{"hooks": [handler]}]}});
        fs::write(project.path().join(".claude/settings.json"), settings.to_string()).unwrap();
        let settings = load(project.path(), &[]);
        assert!(
            settings.handlers.is_empty() && settings.unsupported[0].place.contains(key),
            "{:?}",
            settings.unsupported
        );
    }
}

#[test]
fn a_plugin_cannot_disable_hooks_and_an_administrator_says_where_posts_may_go() {
    let project = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = project.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let post = |url: &str| json!({"type": "http", "url": url, "allowedEnvVars": ["HOME", "TOKEN"]});
    let settings = json!({
        "hooks": {"PreToolUse": [{"hooks": [post("https://ok.example/x"), post("https://other.example/x")]}]},
        "httpHookAllowedEnvVars": ["HOME"],
    });
    file(".claude/settings.json", &settings.to_string());
    file("plugin/hooks/hooks.json", r#"{"disableAllHooks": true, "hooks": {}}"#);
    file("etc/managed-settings.json", r#"{"allowedHttpHookUrls": ["https://ok.example/*"]}"#);
    let places = ClaudePlaces {
        project: project.path().to_owned(),
        reads_project: true,
        home: None,
        managed: Some(project.path().join("etc")),
        plugins: vec![ClaudePlugin::Folder("plugin".into())],
    };
    let handlers = ClaudeSettings::load(&places).handlers;
    let forbidden: Vec<bool> = handlers
        .iter()
        .map(|handler| match &handler.action {
            ClaudeAction::Http(http) => {
                assert_eq!(http.allowed_env, ["HOME"]);
                http.is_forbidden
            }
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(forbidden, [false, true]);
}

#[test]
fn a_link_of_the_project_to_the_machines_settings_switches_no_managed_handler_off() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["p/.claude", "etc/managed-settings.d"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    fs::write(path("etc/managed-settings.json"), GATE).unwrap();
    fs::write(path("etc/managed-settings.d/more.json"), GATE.replace("exit 2", "./more")).unwrap();
    let places = ClaudePlaces {
        project: path("p"),
        reads_project: true,
        home: None,
        managed: Some(path("etc")),
        plugins: Vec::new(),
    };
    let both_run = |why: &str| {
        let settings = ClaudeSettings::load(&places);
        let files: Vec<_> = settings.handlers.iter().map(|handler| handler.file.clone()).collect();
        let managed = [path("etc/managed-settings.json"), path("etc/managed-settings.d/more.json")];
        assert!(managed.iter().all(|file| files.contains(file)), "{why}: {files:?}");
        settings
    };
    let local = path("p/.claude/settings.local.json");
    for target in ["etc/managed-settings.json", "etc/managed-settings.d/more.json"] {
        symlink(path(target), &local).unwrap();
        fs::write(path("p/.claude/settings.json"), r#"{"disableAllHooks": true}"#).unwrap();
        assert_eq!(both_run(target).handlers.len(), 2);
        fs::remove_file(&local).unwrap();
    }
    fs::remove_file(path("p/.claude/settings.json")).unwrap();
    // The same handler, with a time in which no program can answer.
    let hurried = GATE.replace(r#""exit 2""#, r#""exit 2", "timeout": 0.001"#);
    fs::write(path("p/.claude/settings.json"), hurried).unwrap();
    let settings = both_run("a copy in the project's file");
    let managed = settings.handlers.iter().find(|handler| handler.file.starts_with(path("etc"))).unwrap();
    assert_eq!(managed.timeout.as_secs(), 600);
}

#[test]
fn each_part_of_a_manifest_and_each_plugin_has_its_handlers_though_they_share_a_file() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let part = |command: &str| serde_json::from_str::<Value>(&GATE.replace("exit 2", command)).unwrap();
    let manifest = json!({"name": "inline", "hooks": [part("./one"), part("./two"), part("./two")["hooks"]]});
    file("inline/.claude-plugin/plugin.json", &manifest.to_string());
    assert_eq!(load(folder.path(), &["inline"]).handlers.len(), 3, "every object of the list counts");

    file("shared.json", GATE);
    for plugin in ["a", "b"] {
        fs::create_dir_all(folder.path().join(plugin).join("hooks")).unwrap();
        symlink(folder.path().join("shared.json"), folder.path().join(plugin).join("hooks/hooks.json")).unwrap();
    }
    let roots: Vec<String> = load(folder.path(), &["a", "b"])
        .handlers
        .iter()
        .map(|handler| handler.plugin.as_ref().unwrap().name.clone())
        .collect();
    assert_eq!(roots, ["a", "b"], "each plugin runs the shared file in its own folder");

    file("a/.claude-plugin/plugin.json", r#"{"hooks": "./hooks/hooks.json"}"#);
    assert_eq!(load(folder.path(), &["a"]).handlers.len(), 1, "a manifest may name the plugin's own file");

    let with = |value: &str| json!({"folder": "a", "options": {"rule": value}});
    let plugins = [with("x"), with("y")].map(|plugin| serde_json::from_value(plugin).unwrap()).to_vec();
    let project = folder.path().to_owned();
    let places = ClaudePlaces { project, reads_project: true, home: None, managed: None, plugins };
    let options: Vec<String> = ClaudeSettings::load(&places)
        .handlers
        .iter()
        .map(|handler| handler.plugin.as_ref().unwrap().options["rule"].clone())
        .collect();
    assert_eq!(options, ["x", "y"], "the same plugin with other options is another gate");
}

/// A folder with the same handlers in the machine's settings and in the project's.
fn managed_and_own(hooks: &Value, project_only: &Value) -> (TempDir, ClaudePlaces) {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("p/.claude")).unwrap();
    fs::create_dir(path("etc")).unwrap();
    fs::write(path("etc/managed-settings.json"), json!({"hooks": hooks}).to_string()).unwrap();
    let mut own = project_only.clone();
    own["hooks"] = hooks.clone();
    fs::write(path("p/.claude/settings.json"), own.to_string()).unwrap();
    let places = ClaudePlaces {
        project: path("p"),
        reads_project: true,
        home: None,
        managed: Some(path("etc")),
        plugins: Vec::new(),
    };
    (folder, places)
}

#[test]
fn no_option_takes_a_managed_handler_out() {
    let hooks = json!({"PreToolUse": [{"hooks": [
        {"type": "command", "command": "./gate"},
        {"type": "http", "url": "https://gate.example/x"},
        {"type": "prompt", "prompt": "may it?"},
        {"type": "mcp_tool", "server": "s", "tool": "t"},
        {"type": "command", "command": "./later", "async": true},
    ]}]});
    let (folder, places) = managed_and_own(&hooks, &json!({}));
    let all = ClaudeSettings::load(&places);
    assert_eq!(all.handlers.len(), 10);
    let options: ClaudeOptions = serde_json::from_value(json!({
        "replaced": [{"event": "PreToolUse", "command": "./gate"}],
        "leave_out": ["http", "prompt", "mcp_tool", "async", "agent"],
    }))
    .unwrap();
    let settings = options.narrow(all);
    let managed = folder.path().join("etc/managed-settings.json");
    assert_eq!(settings.handlers.len(), 5, "the project's own are out");
    assert!(settings.handlers.iter().all(|handler| handler.file == managed), "{:?}", settings.handlers);
    let told = settings.notices.join("\n");
    for option in ["`replaced` has \"./gate\"", "\"http\"", "\"prompt\"", "\"mcp_tool\"", "\"async\""] {
        assert!(told.contains(option), "{option} in {told}");
    }
    assert!(!told.contains("\"agent\""), "there is none: {told}");
}

#[test]
fn what_only_the_machine_asks_for_and_cannot_be_run_is_marked_as_such() {
    let hooks = json!({"PreToolUse": [{"hooks": [{"type": "agent", "prompt": "may it?"}, {"type": "sing"}]}, 7]});
    let (folder, places) = managed_and_own(&hooks, &json!({}));
    let unsupported = ClaudeSettings::load(&places).unsupported;
    assert_eq!(unsupported.len(), 6, "{unsupported:?}");
    let managed = folder.path().join("etc/managed-settings.json");
    for one in &unsupported {
        assert_eq!(one.is_managed, one.file.as_ref() == Some(&managed), "{one:?}");
    }
}

#[test]
fn limits_of_a_project_for_http_handlers_do_not_switch_managed_ones_off() {
    let hooks = json!({"PreToolUse": [{"hooks": [
        {"type": "http", "url": "https://gate.example/x", "headers": {"k": "$TOKEN"}, "allowedEnvVars": ["TOKEN"]},
    ]}]});
    let (_folder, places) = managed_and_own(&hooks, &json!({"allowedHttpHookUrls": [], "httpHookAllowedEnvVars": []}));
    let handlers = ClaudeSettings::load(&places).handlers;
    let http = |at: usize| match &handlers[at].action {
        ClaudeAction::Http(http) => (http.is_forbidden, http.allowed_env.len()),
        other => panic!("{other}"),
    };
    assert_eq!(handlers.len(), 2);
    assert_eq!(http(0), (true, 0), "the project's own");
    assert_eq!(http(1), (false, 1), "the machine's");
}

#[test]
fn plugins_that_are_switched_on_and_not_loaded_are_told_and_so_are_hooks_of_agents_and_skills() {
    let folder = TempDir::new().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(
        ".claude/settings.json",
        r#"{"enabledPlugins": {"guard@m": true, "log@m": true, "old@m": false, "off@m": true}}"#,
    );
    write(".claude/settings.local.json", r#"{"enabledPlugins": {"off@m": false}}"#);
    write(".claude/agents/r.md", "---\nname: r\nhooks:\n  Stop: []\n---\ntext\n");
    write(".claude/agents/plain.md", "---\nname: plain\n---\nhooks: are not in the head\n");
    write(".claude/skills/s/SKILL.md", "---\nname: s\nhooks: {}\n---\n");
    write("plugins/log/.claude-plugin/plugin.json", r#"{"name": "log"}"#);
    let load = |plugins: Vec<ClaudePlugin>| {
        let project = folder.path().to_owned();
        ClaudeSettings::load(&ClaudePlaces { project, reads_project: true, home: None, managed: None, plugins })
    };
    let told = |settings: &ClaudeSettings| settings.plugins_not_run(&[]).join("\n");
    let without = load(Vec::new());
    assert!(
        told(&without).contains("guard@m, log@m: ") && told(&without).contains("`plugins = "),
        "{}",
        told(&without)
    );
    assert!(!told(&without).contains("old@m") && !told(&without).contains("off@m"), "{}", told(&without));
    let with = load(vec![ClaudePlugin::Folder("plugins/log".into())]);
    assert!(told(&with).contains(" guard@m: "), "{}", told(&with));
    assert!(with.plugins_not_run(&["guard".to_owned()]).is_empty(), "another section loads it");
    let warned = without.warnings.join("\n");
    assert!(warned.contains("agents/r.md") && warned.contains("skills/s/SKILL.md"), "{warned}");
    assert!(!warned.contains("plain.md"), "{warned}");
}

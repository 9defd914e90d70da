//! What of a project's file needs to be accepted, section by section and key by key.
//!
//! The rule names what takes effect unasked; everything else needs acceptance, also sections and keys that a later version adds.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use turnbuckle::hooks::ConfigHook as _;
use turnbuckle_models::without_password;
use turnbuckle_tools::{ClaudeHooks, resolved_path};

use super::claude::Named;
use super::digest;
use super::files::{Command, FileError, FileReader, Files};
use super::show::plain_name;
use crate::assemble::unapproved;
use crate::config::{MCP_JSON, MOST_AGENTS, MOST_HOOKS, Setting, ToolsPart, commands_of_json};
use crate::model_name::ModelName;
use crate::problem::Place;
use crate::read_file::{CONFIGURATION, read_file};
use crate::store::StoreName;

/// Something that takes effect only if it was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// What it is, for people.
    pub(crate) title: String,
    /// What would run or take effect, as the file says it, in lines.
    pub(crate) shown: Vec<String>,
    /// What there is to say about it, in lines: what it leads to, and the files whose contents are part of it.
    pub(crate) notes: Vec<String>,
    pub(crate) place: Option<Place>,
    /// The section, and the keys of it; none: all.
    pub(crate) section: String,
    pub(crate) keys: Vec<String>,
    /// Which one it is of a list such as `[[hooks]]`.
    pub(crate) index: Option<usize>,
    /// The commands that it runs, if it runs any.
    pub(crate) commands: Vec<Command>,
    /// Files whose contents are part of it.
    pub(crate) files: Files,
    /// Of the definition and the files.
    pub(crate) digest: String,
    /// Of the definition alone.
    pub(crate) definition: String,
}

impl Item {
    fn new(title: String, definition: &Value, files: Files) -> Self {
        let states = files.iter().map(|(path, state)| json!([path, state.leads_to, state.digest]));
        let whole = json!([title, definition, states.collect::<Vec<_>>()]);
        let digest = digest::of_bytes(whole.to_string().as_bytes());
        let definition = digest::of_bytes(json!([title, definition]).to_string().as_bytes());
        let (section, keys, shown, notes) = (String::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            title,
            shown,
            notes,
            place: None,
            section,
            keys,
            index: None,
            commands: Vec::new(),
            files,
            digest,
            definition,
        }
    }
}

/// What the rule is judged by beside the file itself.
pub(super) struct Surroundings<'a> {
    /// In the project's folder; none if it need not be known what files hold.
    pub(super) files: Option<FileReader<'a>>,
    /// The project's folder, absolute, links resolved.
    pub(super) folder: &'a Path,
    /// The tools of the user's own file.
    pub(super) tools: &'a ToolsPart,
    /// The database, if neither `--store` nor a file chooses one.
    pub(super) default_store: Option<&'a Path>,
}

/// Why it cannot be told what needs acceptance.
#[derive(Debug, thiserror::Error)]
pub(super) enum ItemError {
    /// Nobody would read them all.
    #[error("there are {count} {what}, and {most} are the most")]
    TooMany { count: usize, what: String, most: usize, place: Place },
    #[error(transparent)]
    File(#[from] FileError),
}

/// The most settings of one file that need acceptance. A person is shown them all.
const MOST_ITEMS: usize = 1024;

/// Everything in the file that needs acceptance, in the order of the file.
pub(super) fn of(settings: &[Setting], around: &Surroundings<'_>) -> Result<Vec<Item>, ItemError> {
    check_lists(settings)?;
    let mut items = Vec::new();
    for setting in settings {
        if let Some(mut item) = item(setting, settings, around)? {
            item.place = Some(setting.place.clone());
            item.section = setting.section.clone();
            item.index = setting.index;
            items.push(item);
            if items.len() > MOST_ITEMS {
                let (count, what) = (settings.len(), "settings".to_owned());
                return Err(ItemError::TooMany { count, what, most: MOST_ITEMS, place: setting.place.clone() });
            }
        }
    }
    items.extend(default_store(around));
    Ok(items)
}

/// What hooks of the user's own file, or of one named with `--config`, would run of the project: their file is accepted, and
/// what they find in this folder is not.
pub(super) fn led_to(hooks: &[Setting], around: &Surroundings<'_>) -> Result<Vec<Item>, ItemError> {
    let mut items = Vec::new();
    for setting in hooks {
        let found = match &around.files {
            Some(reader) => {
                !super::claude::read(&setting.value, Named::ByUser, around.folder, reader)?.files.is_empty()
            }
            None => true,
        };
        if found {
            let mut item = hook(setting, Named::ByUser, around)?;
            item.notes.push(format!("run by {}", setting.place));
            item.place = Some(setting.place.clone());
            items.push(item);
        }
    }
    Ok(items)
}

/// Lists such as `[[hooks]]` that are longer than may be are not looked at any further.
fn check_lists(settings: &[Setting]) -> Result<(), ItemError> {
    let Some(over) = settings.iter().find(|one| one.index.is_some_and(|index| index >= most_of(&one.section))) else {
        return Ok(());
    };
    let count = settings.iter().filter(|one| one.index.is_some() && one.section == over.section).count();
    let (what, place) = (format!("[[{}]]", over.section), over.place.clone());
    Err(ItemError::TooMany { count, what, most: most_of(&over.section), place })
}

fn most_of(section: &str) -> usize {
    if section == "agents" { MOST_AGENTS } else { MOST_HOOKS }
}

fn item(setting: &Setting, all: &[Setting], around: &Surroundings<'_>) -> Result<Option<Item>, FileError> {
    let Setting { section, key, value, .. } = setting;
    let whole = |title: String, shown: Vec<String>, notes: Vec<String>| {
        let keys = key.iter().cloned().collect();
        Item { shown, notes, keys, ..Item::new(title, value, Files::new()) }
    };
    Ok(match (section.as_str(), key.as_deref()) {
        // Without a key such a section says nothing. An empty list does: it takes the place of the user's.
        ("agent" | "limits" | "context" | "store" | "tools", None) if *value == json!({}) => None,
        ("agent", Some("name" | "default_retry" | "default_instructions")) => None,
        ("agent", Some("temperature" | "top_p" | "max_output_tokens" | "stop" | "thinking" | "effort")) => None,
        ("limits", Some(_)) | ("context", Some("reducers" | "summary_timeout" | "tool_results")) => None,
        ("store", Some("audit" | "audit_ttl" | "audit_rows" | "audit_bytes")) => None,
        ("agent", Some("model")) | ("context", Some("summary_model")) => match has_address(value) {
            true => Some(whole(title(setting), Vec::new(), vec![format!("requests go to {}", quoted(value))])),
            false => None,
        },
        ("agent", Some("system_file")) => Some(system_file(setting, around)?),
        ("agent", Some("system")) => {
            Some(whole("[agent] system: the system prompt".to_owned(), vec![text_of(value)], Vec::new()))
        }
        ("store", Some("url")) => {
            leaves_project(value, around.folder).map(|why| whole(title(setting), Vec::new(), vec![why]))
        }
        ("tools", Some("builtin" | "approve")) => tools(setting, all, around),
        ("hooks", None) if setting.index.is_some() => Some(hook(setting, Named::ByProject, around)?),
        ("tools.mcp", None) if setting.index.is_some() => Some(mcp_server(setting, around)?),
        ("agents", None) if setting.index.is_some() => Some(sub_agent(setting, around)?),
        ("tools", Some("mcp_json")) => match value {
            Value::Bool(false) => None,
            _ => Some(mcp_json(setting, around)?),
        },
        ("scope", Some(_)) => Some(whole(
            title(setting),
            vec![super::show::value(value)],
            vec!["not used: a project's file does not say who you are".to_owned()],
        )),
        _ => Some(whole(title(setting), vec![super::show::value(value)], Vec::new())),
    })
}

/// What a setting is called in the question: `[store] url`. The names are the file's.
fn title(setting: &Setting) -> String {
    let section = setting.section.split('.').map(plain_name).collect::<Vec<_>>().join(".");
    match (&setting.key, setting.index) {
        (Some(key), _) => format!("[{section}] {}", plain_name(key)),
        (None, Some(_)) => match setting.value.get("name").and_then(Value::as_str) {
            Some(name) => format!("[[{section}]] {}", plain_name(name)),
            None => format!("[[{section}]]"),
        },
        (None, None) => section,
    }
}

/// A hook, with every file that its command names.
fn hook(setting: &Setting, named: Named, around: &Surroundings<'_>) -> Result<Item, FileError> {
    let (value, text) = (&setting.value, |key: &str| setting.value.get(key).and_then(Value::as_str));
    let mut commands: Vec<Command> = value.get("run").cloned().map(Command::from).into_iter().collect();
    let (mut files, mut written, mut notes) = (Files::new(), BTreeSet::new(), Vec::new());
    let mut shown = vec![super::show::value(value)];
    if let Some(reader) = &around.files {
        if text("use") == Some(ClaudeHooks::NAME) {
            let claude = super::claude::read(value, named, around.folder, reader)?;
            shown.extend(claude.shown);
            notes.extend(claude.notes);
            commands.extend(claude.commands);
            files.extend(claude.files);
        }
        let (named, own) = named_by(&commands, around)?;
        files.extend(named);
        written.extend(own);
        for script in scripts(value) {
            if let Some(state) = reader.state(&around.folder.join(script))? {
                files.insert(script.into(), state);
            }
        }
    }
    let name = text("name").or(text("use")).unwrap_or("without a name");
    let title = format!("[[hooks]] {}", plain_name(name));
    let mut item = program(title, value, shown, commands, files, &written);
    item.notes.splice(..0, notes);
    Ok(item)
}

/// A sub-agent, with every file that commands of its hooks name, and its prompt.
fn sub_agent(setting: &Setting, around: &Surroundings<'_>) -> Result<Item, FileError> {
    let (value, shown) = (&setting.value, vec![super::show::value(&setting.value)]);
    let hooks = value.get("hooks").and_then(Value::as_array).into_iter().flatten();
    let commands: Vec<Command> = hooks.filter_map(|hook| hook.get("run")).cloned().map(Command::from).collect();
    let (mut files, written) = named_by(&commands, around)?;
    let prompt = value.get("system_file").and_then(Value::as_str);
    for name in prompt.into_iter().chain(scripts(value)) {
        let state = around.files.as_ref().map(|reader| reader.state(&around.folder.join(name))).transpose()?.flatten();
        files.extend(state.map(|state| (PathBuf::from(name), state)));
    }
    Ok(program(title(setting), value, shown, commands, files, &written))
}

/// A server, with every file that its command names.
fn mcp_server(setting: &Setting, around: &Surroundings<'_>) -> Result<Item, FileError> {
    let (value, shown) = (&setting.value, vec![super::show::value(&setting.value)]);
    let commands: Vec<Command> = value.get("command").cloned().map(Command::from).into_iter().collect();
    let (files, written) = named_by(&commands, around)?;
    Ok(program(title(setting), value, shown, commands, files, &written))
}

/// The servers of `.mcp.json`, which is part of it as it is.
fn mcp_json(setting: &Setting, around: &Surroundings<'_>) -> Result<Item, FileError> {
    let path = around.folder.join(MCP_JSON);
    let text = read_file(&path, CONFIGURATION).unwrap_or_default();
    let commands: Vec<Command> = commands_of_json(&text).into_iter().map(Command::from).collect();
    let (mut files, written) = named_by(&commands, around)?;
    if let Some(state) = around.files.as_ref().map(|reader| reader.state(&path)).transpose()?.flatten() {
        files.insert(MCP_JSON.into(), state);
    }
    let shown = commands.iter().map(|command| super::show::value(&command.line)).collect();
    let item = program(
        "[tools] mcp_json: the servers of .mcp.json".to_owned(),
        &setting.value,
        shown,
        commands,
        files,
        &written,
    );
    // The check before each start is kept by section and index.
    Ok(Item { keys: vec!["mcp_json".to_owned()], ..item })
}

/// The files of the project that commands name, and those of them that they write to.
fn named_by(commands: &[Command], around: &Surroundings<'_>) -> Result<(Files, BTreeSet<PathBuf>), FileError> {
    let (mut files, mut written) = (Files::new(), BTreeSet::new());
    if let Some(reader) = &around.files {
        for command in commands {
            let named = reader.named_by(command)?;
            written.extend(reader.written_by(command, &named)?);
            files.extend(named);
        }
    }
    Ok((files, written))
}

/// Something that starts programs, with what there is to say about their files.
fn program(
    title: String,
    value: &Value,
    shown: Vec<String>,
    commands: Vec<Command>,
    files: Files,
    written: &BTreeSet<PathBuf>,
) -> Item {
    let mut notes: Vec<String> = Vec::new();
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    if let (Some("http"), Some(url)) = (text("use"), text("url")) {
        notes.push(format!("what happens in turns is posted to {}", quoted(&json!(url))));
    }
    notes.extend(files.iter().map(|(path, state)| {
        let link = match state.leads_to == *path {
            true => String::new(),
            false => format!(", a link to {}", path_name(&state.leads_to)),
        };
        let own = match written.contains(path) {
            true => {
                ", which the command writes to as well: once it has changed, the hook blocks until it is accepted again"
            }
            false => "",
        };
        format!("file {}{link}{own}", path_name(path))
    }));
    notes.extend(uncovered(&commands));
    Item { shown, notes, commands, ..Item::new(title, value, files) }
}

/// What of commands an acceptance does not cover, because it is known only when they run.
fn uncovered(commands: &[Command]) -> Option<String> {
    const MOST: usize = 4;
    let lines: Vec<String> =
        commands.iter().filter(|command| command.computes_names()).map(|command| command.line.to_string()).collect();
    let which = match &lines[..] {
        [] => return None,
        [_] if commands.len() == 1 => "this command computes names".to_owned(),
        lines => {
            let more = lines.len().saturating_sub(MOST);
            let shown = lines.iter().take(MOST).map(|line| shortened(line)).collect::<Vec<_>>().join(", ");
            let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
            format!("computed names are in {shown}{rest}")
        }
    };
    Some(format!(
        "{which} (patterns, variables, outputs): what they lead to is not looked at, and may change without being asked about"
    ))
}

/// Enough of a command to find it above.
fn shortened(line: &str) -> String {
    match line.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Scripts that answer in the place of a model of a hook: `script:FILE`, in whatever option.
fn scripts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => text.strip_prefix("script:").into_iter().collect(),
        Value::Array(items) => items.iter().flat_map(scripts).collect(),
        Value::Object(fields) => fields.values().flat_map(scripts).collect(),
        _ => Vec::new(),
    }
}

/// The prompt is what the file holds, wherever it is.
fn system_file(setting: &Setting, around: &Surroundings<'_>) -> Result<Item, FileError> {
    let name = setting.value.as_str().unwrap_or_default();
    let path = around.folder.join(name);
    let state = match &around.files {
        Some(reader) => reader.state(&path)?,
        None => None,
    };
    let outside = state.as_ref().is_some_and(|state| state.leads_to.is_absolute());
    let mut notes = vec![format!("file {}", path_name(Path::new(name)))];
    if outside {
        notes.push(format!("it is outside the project: {}", path_name(&resolved_path(&path))));
    }
    let files = state.into_iter().map(|state| (name.into(), state)).collect();
    let title = "[agent] system_file: the system prompt".to_owned();
    Ok(Item { notes, keys: setting.key.iter().cloned().collect(), ..Item::new(title, &setting.value, files) })
}

/// `shell` and `fetch` among the tools, or a tool that would change something without being asked about. The two lists are one
/// item: which tools need approval follows from both.
fn tools(setting: &Setting, all: &[Setting], around: &Surroundings<'_>) -> Option<Item> {
    let of = |key: &str| all.iter().find(|one| one.section == "tools" && one.key.as_deref() == Some(key));
    let (builtin, approve) = (of("builtin"), of("approve"));
    // One of the two stands for both.
    if setting.key.as_deref() == Some("approve") && builtin.is_some() {
        return None;
    }
    let listed = |found: Option<&Setting>| found.map(|found| strings(&found.value));
    let named = |found: &Option<crate::config::Found<Vec<crate::config::Found<String>>>>| {
        found.as_ref().map(|found| found.value.iter().map(|name| name.value.clone()).collect::<Vec<_>>())
    };
    let (users_builtin, users_approve) = (named(&around.tools.builtin), named(&around.tools.approve));
    let before = unapproved(users_builtin.as_deref(), users_approve.as_deref());
    let (now_builtin, now_approve) = (listed(builtin).or(users_builtin), listed(approve).or(users_approve));
    let mut free = unapproved(now_builtin.as_deref(), now_approve.as_deref());
    free.retain(|tool| !before.contains(tool));
    let reaching: Vec<String> = listed(builtin).unwrap_or_default();
    let reaching: Vec<String> =
        reaching.into_iter().filter(|tool| ["shell", "fetch"].contains(&tool.as_str())).collect();
    let mut notes = Vec::new();
    if !free.is_empty() {
        notes.push(format!("{} would run without being approved", crate::show::and_list(&free)));
    }
    if !reaching.is_empty() {
        notes.push(format!("the model may use {}", crate::show::and_list(&reaching)));
    }
    let definition = json!({ "builtin": builtin.map(|one| &one.value), "approve": approve.map(|one| &one.value) });
    let keys = [builtin, approve].into_iter().flatten().filter_map(|one| one.key.clone()).collect();
    let title = "[tools] builtin and approve".to_owned();
    (!notes.is_empty()).then(|| Item { notes, keys, ..Item::new(title, &definition, Files::new()) })
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Why a store is not simply a file in the project.
fn leaves_project(url: &Value, folder: &Path) -> Option<String> {
    let Some(url) = url.as_str() else { return Some(quoted(url)) };
    match StoreName::path_in(url) {
        None if url == "memory:" => None,
        None => Some(format!("conversations are kept at {}", quoted(&json!(url)))),
        Some(path) => {
            let real = resolved_path(&folder.join(path));
            (!real.starts_with(folder))
                .then(|| format!("conversations are kept outside the project: {}", path_name(&real)))
        }
    }
}

/// The default database, if a link leads out of the project.
fn default_store(around: &Surroundings<'_>) -> Option<Item> {
    let real = resolved_path(&around.folder.join(around.default_store?));
    if real.starts_with(around.folder) {
        return None;
    }
    let notes = vec![format!("a link leads out of the project: {}", path_name(&real))];
    let item = Item::new("the database".to_owned(), &json!(real), Files::new());
    Some(Item { notes, ..item })
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A path among words of ours. It is not cut: its end says which file it is.
fn path_name(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |sign: char| sign.is_alphanumeric() || "_-./".contains(sign);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { Value::from(text).to_string() }
}

fn quoted(value: &Value) -> String {
    without_password(&value.to_string()).into_owned()
}

/// Whether a model's name has an address that requests go to. What cannot be understood is judged by its look.
fn has_address(name: &Value) -> bool {
    let Some(name) = name.as_str() else { return true };
    match ModelName::parse(name) {
        Ok(ModelName::Provider(name)) => name.url().is_some(),
        Ok(ModelName::Demo | ModelName::Script(_)) => false,
        Err(_) => name.contains("://") || name.contains('@'),
    }
}

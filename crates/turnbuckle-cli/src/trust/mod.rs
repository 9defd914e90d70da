//! What may run: which parts of a project's file take effect only if the user accepted them, and which databases are carried on.
//!
//! `items` says what needs acceptance, `files` which files a command names, `records` what was accepted, in the user's own
//! folder. [`judge`] puts them together for one project's file, `stores` does the same for a database, and `command` is
//! `turnbuckle trust`.

mod changes;
mod claude;
mod command;
mod digest;
mod files;
mod hook_databases;
mod items;
mod options;
mod records;
mod shared_check;
mod show;
pub(crate) mod stores;
mod words;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use turnbuckle::Timestamp;
use turnbuckle::clock::{Clock as _, SystemClock};
use turnbuckle::hooks::ProgramCheck;

pub(crate) use command::trust;
pub(crate) use digest::of_bytes as digest_of;
pub(crate) use hook_databases::{HookDatabases, default_memories};
pub(crate) use items::Item;
pub(crate) use options::{Gate, IGNORE_PROJECT, TRUST_HOOKS, TrustOptions};
use records::{AcceptedItem, AcceptedProject, Extent, RecordError, Records};
pub(crate) use show::read_unasked;

use crate::config::{Setting, ToolsPart};
use crate::confirm;
use crate::problem::Problem;
use crate::project::Project;
use changes::{FileChange, changed_files};
use files::{FileError, FileReader};
use items::{ItemError, Surroundings};
use shared_check::SharedCheck;

/// How a project's file stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There is none, or nothing in it needs acceptance.
    NotNeeded,
    /// It is not read: `--config` or `--ignore-project`.
    NotRead,
    /// As it is now.
    Accepted {
        at: Timestamp,
    },
    /// Whatever it says.
    Folder {
        at: Timestamp,
    },
    /// By the option `--trust-hooks`, and noted nowhere.
    ForThisRun,
    NotAccepted,
}

/// What came of looking at a project's file.
pub(crate) struct Judgement {
    pub(crate) standing: Standing,
    /// What needs acceptance.
    pub(crate) items: Vec<Item>,
    pub(crate) problems: Vec<Problem>,
    /// The checks before each start of a program that the file names.
    pub(crate) checks: ProgramChecks,
}

/// A project's file that was read and not understood yet.
pub(crate) struct ProjectFile<'a> {
    pub(crate) project: &'a Project,
    /// As it is reached from the current folder.
    pub(crate) path: &'a Path,
    pub(crate) settings: &'a [Setting],
    /// Hooks of the user's own file that run what they find in the project.
    pub(crate) led_to: &'a [Setting],
    /// The tools of the user's own file.
    pub(crate) tools: &'a ToolsPart,
    /// The default database, if nobody chose another one.
    pub(crate) default_store: Option<&'a Path>,
    /// Who accepts: the user of the user's own file.
    pub(crate) by: &'a str,
}

/// Says how the file stands, and asks if that is possible and needed.
pub(crate) fn judge(file: &ProjectFile<'_>, gate: Gate) -> Judgement {
    let folder = &file.project.folder;
    let record = accepted(folder);
    // Where nothing was accepted, those who look need not know what files hold: it takes no effect whatever they hold.
    let is_unknown = matches!(gate, Gate::LeftOut) && !matches!(record, Ok(Some(_)));
    let files = (!is_unknown).then(|| FileReader::new(folder));
    let around = Surroundings { files, folder, tools: file.tools, default_store: file.default_store };
    let trusted = gate.options().trust_hooks;
    let all = items::of(file.settings, &around).and_then(|mut items| {
        items.extend(items::led_to(file.led_to, &around)?);
        Ok(items)
    });
    let (items, mut problems) = match all {
        Ok(items) => (items, Vec::new()),
        Err(error) => (Vec::new(), vec![unjudged(&error, file.path, gate)]),
    };
    let done = |standing, items, problems| Judgement { standing, items, problems, checks: HashMap::new() };
    if trusted {
        let checks = program_checks(&items, folder, Since::Started);
        let problems = problems.into_iter().map(|_| unchecked(file.path)).collect();
        return Judgement { standing: Standing::ForThisRun, items, problems, checks };
    }
    if let Ok(Some(AcceptedProject { accepted: Extent::Folder, at, .. })) = record {
        return done(Standing::Folder { at }, items, Vec::new());
    }
    if !problems.is_empty() {
        return done(Standing::NotAccepted, items, problems);
    }
    if items.is_empty() {
        return done(Standing::NotNeeded, items, problems);
    }
    let known = known_items(&record);
    if let (Ok(Some(record)), true) = (&record, is_same(known, &items)) {
        let checks = program_checks(&items, folder, Since::Accepted);
        return Judgement { standing: Standing::Accepted { at: record.at }, items, problems, checks };
    }
    if matches!(gate, Gate::Needed(_)) {
        let broken = record.as_ref().err().map(ToString::to_string);
        match ask(file, &items, known, broken.or_else(|| cannot_accept().map(|error| error.to_string()))) {
            Ok(()) => {
                let (checks, at) = (program_checks(&items, folder, Since::Accepted), SystemClock::default().now());
                return Judgement { standing: Standing::Accepted { at }, items, problems, checks };
            }
            Err(problem) => problems.push(problem),
        }
    } else if let Err(error @ (RecordError::Shared { .. } | RecordError::Unreadable { .. })) = &record {
        problems.push(Problem::warning(error.to_string()));
    }
    done(Standing::NotAccepted, items, problems)
}

/// What is said of a file of which it cannot be told what needs acceptance: nothing of it takes effect.
fn unjudged(error: &ItemError, path: &Path, gate: Gate) -> Problem {
    let what = format!("{} cannot be accepted as it is: {error}", path.display());
    match (error, gate) {
        // Those who judge read the sections as well, and find the same error there.
        (ItemError::TooMany { place, .. }, Gate::Judged) => Problem::warning(what).at(place),
        (ItemError::TooMany { place, .. }, _) => Problem::error(what)
            .at(place)
            .hint("take out what is not needed: nobody reads that much before accepting it"),
        (ItemError::File(_), Gate::Needed(_)) => Problem::error(what).hint(HOW_WHATEVER),
        (ItemError::File(_), _) => Problem::warning(what).hint(HOW_WHATEVER),
    }
}

const HOW_WHATEVER: &str = "`turnbuckle trust --folder` accepts whatever this folder's files say";

/// The checks of a file that counts as accepted. Nobody noted how the files that its hooks name were, so they must stay as they
/// are now: a tool of the model may write them while hooks run.
pub(crate) fn checks_from_now(path: &Path, settings: &[Setting], folder: &Path) -> Result<ProgramChecks, Problem> {
    let files = Some(FileReader::new(folder));
    let around = Surroundings { files, folder, tools: &ToolsPart::default(), default_store: None };
    match items::of(settings, &around) {
        Ok(items) => Ok(program_checks(&items, folder, Since::Started)),
        Err(_) => Err(unchecked(path)),
    }
}

/// Whether what these hooks run of the project was accepted, by the whole folder or one by one. For a file named with
/// `--config`, beside which the project's own file is not read.
pub(crate) fn covers(hooks: &[Setting], folder: &Path) -> bool {
    let around = Surroundings {
        files: Some(FileReader::new(folder)),
        folder,
        tools: &ToolsPart::default(),
        default_store: None,
    };
    let record = accepted(folder);
    if matches!(record, Ok(Some(AcceptedProject { accepted: Extent::Folder, .. }))) {
        return true;
    }
    let known = known_items(&record);
    items::led_to(hooks, &around)
        .is_ok_and(|items| items.iter().all(|item| known.iter().any(|known| known.digest == item.digest)))
}

/// A file that a hook names cannot be read, so a change of it would not be seen.
fn unchecked(path: &Path) -> Problem {
    let what = format!("{}: programs of its hooks are started unchecked", path.display());
    Problem::warning(what).hint("a file that one of them names cannot be read; what it says is not known")
}

/// Why nothing can be accepted for good, if nothing can: there is no folder of the user's that it can be noted in.
fn cannot_accept() -> Option<RecordError> {
    Records::open().and_then(|records| records.check_writable()).err()
}

/// What was accepted of the project in `folder`.
fn accepted(folder: &Path) -> Result<Option<AcceptedProject>, RecordError> {
    Records::open()?.project(folder)
}

/// The file that says what was accepted of the project in `folder`; it need not be there. `None` if nothing can be noted.
pub(crate) fn record_file(folder: &Path) -> Option<PathBuf> {
    Records::open().ok().map(|records| records.project_file(folder))
}

/// The items of the project in `folder` that were accepted, as they were then.
fn accepted_items(folder: &Path) -> Vec<AcceptedItem> {
    known_items(&accepted(folder)).to_vec()
}

/// Whether anything was accepted of the project in `folder`: then its owner does not matter.
pub(crate) fn is_known(folder: &Path) -> bool {
    matches!(accepted(folder), Ok(Some(_)))
}

fn known_items(record: &Result<Option<AcceptedProject>, RecordError>) -> &[AcceptedItem] {
    match record {
        Ok(Some(AcceptedProject { accepted: Extent::Items(items), .. })) => items,
        _ => &[],
    }
}

/// The same definitions in the same order: a gate that is taken out is a change, too.
fn is_same(known: &[AcceptedItem], items: &[Item]) -> bool {
    known.iter().map(|item| &item.digest).eq(items.iter().map(|item| &item.digest))
}

fn record_of(items: &[Item]) -> Extent {
    let one = |item: &Item| AcceptedItem {
        title: item.title.clone(),
        digest: item.digest.clone(),
        definition: Some(item.definition.clone()),
        files: item.files.iter().map(|(path, state)| (path.clone(), state.digest.clone())).collect(),
    };
    Extent::Items(items.iter().map(one).collect())
}

const HOW: &str = "`turnbuckle trust` shows what it would run, and asks; `--trust-hooks` accepts it for this run, \
                   `--ignore-project` leaves it out";

/// Without a file there is nothing to leave out.
const HOW_LINKED: &str =
    "`turnbuckle trust` shows where it leads, and asks; `--store sqlite:PATH` names a database for this run";
const HOW_CHANGED: &str = "`turnbuckle trust` shows what changed, and asks";

/// Asks the person in front of the terminal; without one, or if they refuse, the problem.
fn ask(file: &ProjectFile<'_>, items: &[Item], known: &[AcceptedItem], broken: Option<String>) -> Result<(), Problem> {
    let folder = &file.project.folder;
    let path = subject(file.path);
    let change = items.iter().find_map(|item| Some((&item.title, *changed_files(known, item, folder).first()?)));
    let how = match file.settings.is_empty() {
        true if !items.iter().any(|item| item.title.starts_with("[[hooks]]")) => HOW_LINKED,
        _ if change.is_some() => HOW_CHANGED,
        _ => HOW,
    };
    let changed = match (known, change) {
        ([], _) => "is not accepted".to_owned(),
        (_, None) => "changed since it was accepted".to_owned(),
        (_, Some((title, FileChange { path, kind }))) => {
            let name = show::plain_name(&path.display().to_string());
            format!("has {title}, which names {name}, which {}", kind.told())
        }
    };
    let refused = || Problem::error(format!("{path} {changed}; it has: {}", show::titles(items))).hint(how);
    if let Some(error) = broken {
        let hint =
            "`--trust-hooks` accepts the project's files for this run, `--config FILE` names the only file to read";
        return Err(Problem::error(format!("{path} {changed}, and cannot be: {error}")).hint(hint));
    }
    if !confirm::is_possible() {
        return Err(refused());
    }
    let text =
        format!("{path} {changed}. It has:\n{}{}", show::items(items, known, folder), show::scope_of(items, folder));
    if !confirm::ask(&text, "Accept it?") {
        return Err(refused());
    }
    accept(folder, items, file.by)
}

/// What is asked about: the project's file, or the folder if there is none.
fn subject(file: &Path) -> String {
    if file.exists() { file.display().to_string() } else { "this folder".to_owned() }
}

fn cannot_note(error: &RecordError) -> Problem {
    Problem::error(format!("the acceptance cannot be noted: {error}"))
        .hint("`--trust-hooks` accepts the project's files for this run")
}

/// What the files that a hook names are compared with.
#[derive(Clone, Copy)]
enum Since {
    /// What the user accepted.
    Accepted,
    /// What they were when this process began: nobody noted how they were before.
    Started,
}

impl Since {
    /// What became of a file, which `was_there` or not.
    fn told(self, path: &Path, was_there: bool) -> String {
        let file = show::plain_name(&path.display().to_string());
        let new = if was_there { "" } else { ": it was not there then" };
        match self {
            Self::Accepted => format!("{file} changed since it was accepted{new}"),
            Self::Started => format!(
                "{file} changed since Turnbuckle was started{new}; start it again to use the file as it is now. A file that the hook \
                 itself writes belongs behind `>` or `tee`, or into a script"
            ),
        }
    }
}

/// By the list of sections and the place in it.
pub(crate) type ProgramChecks = HashMap<(String, usize), ProgramCheck>;

/// For each hook or server that runs a command: whether the files that the command names are still what was accepted.
fn program_checks(items: &[Item], folder: &Path, since: Since) -> ProgramChecks {
    let check = |item: &Item| {
        if item.commands.is_empty() {
            return None;
        }
        let (commands, accepted, folder) = (item.commands.clone(), item.files.clone(), folder.to_owned());
        let scripts: Vec<PathBuf> = accepted.keys().cloned().collect();
        let files_now = move || {
            let reader = FileReader::new(&folder);
            let mut now = files::Files::new();
            for command in &commands {
                now.extend(reader.named_by(command)?);
            }
            for path in &scripts {
                if let Some(state) = reader.state(&folder.join(path))? {
                    now.insert(path.clone(), state);
                }
            }
            Ok(now)
        };
        let shared = SharedCheck::new(move || {
            let now = files_now().map_err(|error: FileError| error.to_string())?;
            let changed = now.iter().find(|(path, state)| accepted.get(*path) != Some(state));
            let gone = accepted.keys().find(|path| !now.contains_key(*path));
            match changed.map(|(path, _)| path).or(gone) {
                None => Ok(()),
                Some(path) => Err(since.told(path, accepted.contains_key(path))),
            }
        });
        let check: ProgramCheck = std::sync::Arc::new(move || Ok(shared.ask()?));
        // Of `mcp_json` there is one, which stands in no list.
        match (item.index, item.keys.as_slice()) {
            (Some(index), _) => Some(((item.section.clone(), index), check)),
            (None, [key]) if key == "mcp_json" => Some((("tools.mcp_json".to_owned(), 0), check)),
            (None, _) => None,
        }
    };
    items.iter().filter_map(check).collect()
}

/// Notes that the user accepts these items of the project in `folder`. A command that writes a project's file itself accepts it
/// with this, too.
pub(crate) fn accept(folder: &Path, items: &[Item], by: &str) -> Result<(), Problem> {
    let noted = Records::open().and_then(|records| records.accept(folder, record_of(items), by));
    noted.map_err(|error| cannot_note(&error))
}

impl Standing {
    /// As `check` and `doctor` say it.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::NotNeeded => "nothing here needs to be accepted".to_owned(),
            Self::NotRead => "the project's files are not read".to_owned(),
            Self::Accepted { at } => format!("accepted at {at}"),
            Self::Folder { at } => format!("accepted at {at}, whatever this folder's files say"),
            Self::ForThisRun => "accepted for this run".to_owned(),
            Self::NotAccepted => "not accepted".to_owned(),
        }
    }

    pub(crate) fn is_accepted(&self) -> bool {
        *self != Self::NotAccepted
    }
}

/// The note of commands that judge or list a file that was not accepted.
pub(crate) fn not_accepted(path: &Path) -> Problem {
    Problem::warning(format!("{} is not accepted: `run`, `chat`, `resolve` and `hooks test` refuse it", path.display()))
        .hint(match cannot_accept() {
            None => "`turnbuckle trust` shows what it would run, and asks".to_owned(),
            Some(error) => format!("`--trust-hooks` accepts it for a run; it cannot be accepted for good: {error}"),
        })
}

//! `turnbuckle trust`: what this project's files would run, and whether the user accepts it.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::hook_databases;
use super::records::{AcceptedProject, Extent, KnownStore, RecordError, Records, StoreOrigin};
use super::stores::{self, StoreStanding};
use super::{Gate, Item, Standing, TrustOptions, accept, accepted_items, cannot_note, show};
use crate::Stopped;
use crate::args::{Common, Trust, TrustCommand};
use crate::config::{self, Loaded};
use crate::confirm;
use crate::exit::Exit;
use crate::inspect::{print, unprintable};
use crate::mcp::review::Offers;
use crate::output;
use crate::problem::Problem;
use crate::project::Project;
use crate::show::{json_line, name};
use crate::store::{StoreFile, StoreName};

/// Shows, asks and notes; or lists, or takes back.
pub(crate) fn trust(args: &Trust, common: &Common) -> Result<Exit, Stopped> {
    match &args.command {
        Some(TrustCommand::List { json }) => list(*json),
        Some(TrustCommand::Revoke { path, json }) => revoke(path.as_deref(), *json, common),
        None => accept_here(args, common),
    }
}

fn accept_here(args: &Trust, common: &Common) -> Result<Exit, Stopped> {
    // `--config` names a file that needs no acceptance; the project's own file is what is asked about.
    let common = Common { config: None, ..common.clone() };
    let found = Project::discover().map_err(Stopped::usage)?;
    if let Some(problem) = config::above_of_another(&found, TrustOptions::default()) {
        return Err(Stopped::usage(problem));
    }
    let loaded = config::load(&common, Gate::Judged);
    let by = loaded.user();
    let folder = loaded.project.folder.clone();
    let store = unknown_store(&loaded, &common);
    if args.folder {
        // What the file cannot say now it may say later. A database that is elsewhere is not part of the folder.
        let inside = store.unwrap_or_default().filter(|(file, _)| stores::is_in_project(file));
        return accept_folder(args, &loaded, inside, &by);
    }
    let store = store?;
    let pending: &[Item] = if loaded.standing == Standing::NotAccepted { &loaded.items } else { &[] };
    if pending.is_empty() && (!loaded.standing.is_accepted() || loaded.problems.iter().any(Problem::is_error)) {
        return Err(Stopped { problems: loaded.problems, exit: Exit::Usage });
    }
    // Whoever stands below a project of another user must have accepted it, although nothing in it needs that.
    let is_new = loaded.project.is_anothers() && !super::is_known(&folder);
    let memories = hook_databases::told(&folder);
    // Of servers that are not accepted nothing was listed.
    let offers = Offers::of(&loaded.config.tools.mcp, &folder);
    let servers = offers.told();
    let told = Told { folder: &folder, items: pending, store: store.as_ref(), servers: &servers, whole_folder: false };
    if pending.is_empty() && store.is_none() && memories.is_none() && !is_new && servers.is_empty() {
        if args.json {
            return told.print(true);
        }
        output::say(&format!("{}: {}", folder.display(), loaded.standing.told()));
        if let Some(read) = show::read_unasked(&folder) {
            output::say(&read);
        }
        return Ok(Exit::Completed);
    }
    let mut text = String::new();
    if is_new {
        text += &format!("{} belongs to another user.\n", folder.display());
    }
    if !pending.is_empty() {
        text += &has(&loaded, pending);
        text += &show::scope_of(pending, &folder);
    }
    text += &told_store(store.as_ref());
    text += memories.as_deref().unwrap_or_default();
    text += &servers;
    if args.json && !args.yes {
        return told.print(false).map(|_| Exit::Usage);
    }
    confirmed(args, &text, "Accept it?")?;
    if is_new || !pending.is_empty() {
        accept(&folder, &loaded.items, &by).map_err(Stopped::usage)?;
    }
    if let Some((file, _)) = &store {
        stores::accept(file, &by)?;
    }
    if memories.is_some() {
        hook_databases::accept(&folder, &by)?;
    }
    output::report(&offers.accept());
    if args.json {
        return told.print(true);
    }
    output::say(&format!("accepted for {}", folder.display()));
    Ok(Exit::Completed)
}

/// What `--json` prints.
struct Told<'a> {
    folder: &'a Path,
    /// What of the files is not accepted, or was not until now.
    items: &'a [Item],
    store: Option<&'a (StoreFile, Option<PathBuf>)>,
    /// What is new about MCP servers, in words.
    servers: &'a str,
    whole_folder: bool,
}

impl Told<'_> {
    fn print(&self, is_accepted: bool) -> Result<Exit, Stopped> {
        let items = self.items.iter().map(|item| {
            let at = item.place.as_ref().map(ToString::to_string);
            json!({ "title": item.title, "shown": item.shown, "notes": item.notes, "at": at, "digest": item.digest })
        });
        let line = json!({
            "folder": self.folder, "accepted": is_accepted, "whole_folder": self.whole_folder, "items": items.collect::<Vec<_>>(),
            "store": self.store.map(|(file, _)| &file.path), "servers": self.servers.lines().collect::<Vec<_>>(),
        });
        print(&json_line(&line).map_err(unprintable)?).map(|_| Exit::Completed)
    }
}

/// What the project's file has that needs acceptance.
fn has(loaded: &Loaded, items: &[Item]) -> String {
    let folder = &loaded.project.folder;
    format!("{} has:\n{}", super::subject(&loaded.project.file()), show::items(items, &accepted_items(folder), folder))
}

/// What there is to know about a database that is asked about.
fn told_store(store: Option<&(StoreFile, Option<PathBuf>)>) -> String {
    let told = |(file, moved_from): &(StoreFile, Option<PathBuf>)| {
        let what = stores::unknown(&file.path, moved_from.as_deref());
        format!("{what}.\nOpen turns and approvals in it would be carried on.\n")
    };
    store.map(told).unwrap_or_default()
}

/// The project's database, if it is there and nobody knows it.
fn unknown_store(loaded: &Loaded, common: &Common) -> Result<Option<(StoreFile, Option<PathBuf>)>, Stopped> {
    let chosen = StoreName::choose(common, &loaded.config, &loaded.project).map_err(Stopped::usage)?;
    let StoreName::Sqlite(file) = chosen else { return Ok(None) };
    Ok(match stores::standing(&file) {
        Ok(StoreStanding::Unknown { moved_from }) => Some((file, moved_from)),
        Ok(StoreStanding::Adoptable) => Some((file, None)),
        // What is no database is told by whoever uses it.
        _ => None,
    })
}

fn accept_folder(
    args: &Trust,
    loaded: &Loaded,
    store: Option<(StoreFile, Option<PathBuf>)>,
    by: &str,
) -> Result<Exit, Stopped> {
    let folder = &loaded.project.folder;
    let now = if loaded.items.is_empty() { String::new() } else { has(loaded, &loaded.items) };
    let memories = hook_databases::told(folder);
    let text = format!(
        "{now}{}{}Whatever the files in {} say, now and later, would run without being asked about: whoever can change them, with a \
         commit for instance, decides what runs as you.\n",
        told_store(store.as_ref()),
        memories.as_deref().unwrap_or_default(),
        folder.display()
    );
    let told = Told { folder, items: &loaded.items, store: store.as_ref(), servers: "", whole_folder: true };
    if args.json && !args.yes {
        return told.print(false).map(|_| Exit::Usage);
    }
    confirmed(args, &text, "Accept the folder?")?;
    let noted = Records::open().and_then(|records| records.accept(folder, Extent::Folder, by));
    noted.map_err(|error| Stopped::usage(cannot_note(&error)))?;
    if let Some((file, _)) = &store {
        stores::accept(file, by)?;
    }
    if memories.is_some() {
        hook_databases::accept(folder, by)?;
    }
    if args.json {
        return told.print(true);
    }
    output::say(&format!("accepted for {}, whatever its files say", folder.display()));
    Ok(Exit::Completed)
}

/// Shows what it is about, on stdout: it may be long, and be read with a pager. Without `--yes` a person must say yes, who sees it.
fn confirmed(args: &Trust, text: &str, question: &str) -> Result<(), Stopped> {
    if args.json {
        return Ok(());
    }
    print(text)?;
    if args.yes {
        return Ok(());
    }
    if !confirm::is_possible() || !std::io::stdout().is_terminal() {
        let problem = Problem::error("nothing was accepted: there is no terminal to ask on");
        return Err(Stopped::usage(problem.hint("with `--yes`, `turnbuckle trust` accepts what is shown above")));
    }
    match confirm::ask("", question) {
        true => Ok(()),
        false => Err(Stopped::usage(Problem::error("nothing was accepted"))),
    }
}

fn revoke(path: Option<&Path>, json: bool, common: &Common) -> Result<Exit, Stopped> {
    let by = config::load(common, Gate::LeftOut).user();
    let folder = match path {
        // A folder that is gone is known by its old path.
        Some(path) => path.canonicalize().or_else(|_| std::path::absolute(path)),
        None => Ok(Project::discover().map_err(Stopped::usage)?.folder),
    };
    let folder = folder.map_err(|error| Stopped::usage(Problem::error(format!("the folder: {error}"))))?;
    let revoked = Records::open().and_then(|records| records.revoke(&folder, &by));
    let failed = |error: RecordError| Stopped::failed(Problem::error(error.to_string()));
    let shown = folder.display();
    if !revoked.map_err(failed)? {
        let problem = Problem::error(format!("nothing was revoked: nothing was accepted for {shown}"));
        let project = Project::discover().ok().map(|project| project.folder).filter(|found| *found != folder);
        return Err(Stopped::failed(problem.hint(match project.filter(|found| super::is_known(found)) {
            Some(project) => format!("the project here is {}: `turnbuckle trust revoke` revokes it", project.display()),
            None => "`turnbuckle trust list` says what was accepted".to_owned(),
        })));
    }
    if json {
        let line = json_line(&json!({ "folder": folder, "revoked": true })).map_err(unprintable)?;
        return print(&line).map(|_| Exit::Completed);
    }
    output::say(&format!("revoked for {shown}"));
    Ok(Exit::Completed)
}

fn list(json: bool) -> Result<Exit, Stopped> {
    let records = Records::open().map_err(|error| Stopped::failed(Problem::error(error.to_string())))?;
    let (mut text, mut problems) = (String::new(), Vec::new());
    let mut unreadable = |error: RecordError| problems.push(Problem::warning(format!("not listed: {error}")));
    for project in records.projects() {
        match project {
            Ok(project) if json => text += &project_json(&project)?,
            Ok(project) => text += &project_line(&project),
            Err(error) => unreadable(error),
        }
    }
    let mut known: Vec<KnownStore> = Vec::new();
    records.stores().into_iter().for_each(|store| match store {
        Ok(store) => known.push(store),
        Err(error) => unreadable(error),
    });
    // Of a database that was made anew at the same path the last one counts.
    known.sort_by(|a, b| a.path.cmp(&b.path).then(b.at.cmp(&a.at)));
    known.dedup_by(|a, b| a.path == b.path);
    for store in &known {
        text += &match json {
            true => store_json(store)?,
            false => store_line(store),
        };
    }
    if text.is_empty() && !json {
        output::say("nothing was accepted yet");
    }
    // A closed stdout is not an error.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    output::report(&problems);
    Ok(Exit::Completed)
}

fn project_line(project: &AcceptedProject) -> String {
    let gone = if project.folder.is_dir() { "" } else { ", which is gone" };
    let what = match &project.accepted {
        Extent::Folder => "whatever its files say".to_owned(),
        Extent::Items(items) if items.is_empty() => "nothing that runs".to_owned(),
        Extent::Items(items) => items.iter().map(|item| name(&item.title)).collect::<Vec<_>>().join(", "),
    };
    format!("project   {}{gone}: {what} (by {}, {})\n", project.folder.display(), name(&project.by), project.at)
}

fn project_json(project: &AcceptedProject) -> Result<String, Stopped> {
    let items = match &project.accepted {
        Extent::Folder => None,
        Extent::Items(items) => Some(items),
    };
    let line = json!({
        "kind": "project", "folder": project.folder, "whole_folder": items.is_none(), "items": items,
        "by": project.by, "at": project.at, "exists": project.folder.is_dir(),
    });
    json_line(&line).map_err(unprintable)
}

fn store_line(store: &KnownStore) -> String {
    let gone = if store.path.exists() { "" } else { ", which is gone" };
    format!("store     {}{gone}: {} ({})\n", store.path.display(), store.origin.told(), store.at)
}

fn store_json(store: &KnownStore) -> Result<String, Stopped> {
    let line = json!({
        "kind": "store", "path": store.path, "id": store.id, "origin": store.origin, "at": store.at,
        "exists": store.path.exists(),
    });
    json_line(&line).map_err(unprintable)
}

impl StoreOrigin {
    /// For people.
    pub(crate) fn told(self) -> &'static str {
        match self {
            Self::Made => "made by your Turnbuckle",
            Self::Adopted => "made by an older version of your Turnbuckle",
            Self::Accepted => "accepted by you",
        }
    }
}

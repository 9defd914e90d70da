//! What `doctor` says about this project: what is accepted, which store is in use and who made it, how large it all is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use turnbuckle_models::without_password;
use turnbuckle_tools::Support;

use crate::args::Common;
use crate::config::{Config, Loaded};
use crate::erasure::Erasure;
use crate::problem::with_causes;
use crate::show::name;
use crate::store::{StoreFile, StoreName};
use crate::trust::Standing;
use crate::trust::stores::{self, StoreStanding};

/// What SQLite keeps beside a database, and the database itself.
const DATABASE: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// This project.
pub(super) struct Here {
    folder: PathBuf,
    standing: Standing,
    /// What of the project's file needs acceptance.
    items: Vec<String>,
    store: Option<StoreReport>,
    kept: Vec<Kept>,
}

struct StoreReport {
    name: String,
    made: String,
    /// None if nothing is kept in a file.
    bytes: Option<u64>,
}

/// Files of hooks that keep something.
struct Kept {
    what: &'static str,
    /// From the project's folder on.
    path: PathBuf,
    bytes: u64,
}

impl Here {
    pub(super) fn of(loaded: &Loaded, common: &Common) -> Self {
        // What was not accepted names no file to look at.
        let nothing = Config::default();
        let config = if loaded.standing.is_accepted() { &loaded.config } else { &nothing };
        let erasure = Erasure::of(config, &loaded.project);
        let store = StoreName::choose(common, &loaded.config, &loaded.project).ok().map(|name| StoreReport::of(&name));
        Self {
            folder: loaded.project.folder.clone(),
            standing: loaded.standing.clone(),
            items: loaded.items.iter().map(|item| name(&item.title)).collect(),
            store,
            kept: erasure
                .side_stores()
                .into_iter()
                .filter_map(|side| Kept::of(side.what(), side.files(), &loaded.project.folder))
                .collect(),
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{:<22}{}", "project", self.folder.display())];
        let what = if self.items.is_empty() { String::new() } else { format!(": {}", self.items.join(", ")) };
        let hint = if self.standing.is_accepted() { "" } else { " (`turnbuckle trust` shows it, and asks)" };
        lines.push(format!("{:<22}{}{what}{hint}", "accepted", self.standing.told()));
        if let Some(store) = &self.store {
            let size = store.bytes.map(|bytes| format!(", {}", size(bytes))).unwrap_or_default();
            lines.push(format!("{:<22}{} ({}{size})", "store", store.name, store.made));
        }
        let kept = |kept: &Kept| format!("{:<22}{} ({})", kept.what, kept.path.display(), size(kept.bytes));
        lines.extend(self.kept.iter().map(kept));
        let enforced = |(what, is): (&str, bool)| format!("{what}: {}", if is { "yes" } else { "no" });
        let sandbox: Vec<String> = Support::here().parts().into_iter().map(enforced).collect();
        lines.push(format!("{:<22}{}", "sandbox can enforce", sandbox.join("; ")));
        lines
    }

    pub(super) fn json(&self) -> Value {
        let kept = |kept: &Kept| json!({ "what": kept.what, "path": kept.path, "bytes": kept.bytes });
        let store = self.store.as_ref();
        json!({
            "project": self.folder, "accepted": self.standing.is_accepted(), "because": self.standing.told(),
            "needs_acceptance": self.items,
            "store": store.map(|store| json!({ "url": store.name, "made": store.made, "bytes": store.bytes })),
            "kept": self.kept.iter().map(kept).collect::<Vec<_>>(),
            "sandbox": Support::here().parts().into_iter().collect::<BTreeMap<_, _>>(),
        })
    }
}

impl StoreReport {
    fn of(name: &StoreName) -> Self {
        let (made, bytes) = match name {
            StoreName::Memory => ("forgotten with the process".to_owned(), None),
            StoreName::Sqlite(file) => (who_made(file), database_size(&file.path)),
        };
        Self { name: without_password(&name.to_string()).into_owned(), made, bytes }
    }
}

fn who_made(file: &StoreFile) -> String {
    match stores::standing(file) {
        Ok(StoreStanding::NotThere) => "not there yet".to_owned(),
        Ok(StoreStanding::Known(origin)) => origin.told().to_owned(),
        Ok(StoreStanding::Adoptable) => "made by an older version of your Turnbuckle".to_owned(),
        Ok(StoreStanding::Unknown { moved_from: Some(old) }) => format!("not accepted; moved from {}", old.display()),
        Ok(StoreStanding::Unknown { moved_from: None }) => {
            "not accepted: it was not made by your Turnbuckle".to_owned()
        }
        Err(error) => with_causes(&error),
    }
}

impl Kept {
    /// Of files that are there; the first stands for all.
    fn of(what: &'static str, mut files: Vec<PathBuf>, project: &Path) -> Option<Self> {
        files.sort();
        let sizes = files.iter().filter_map(|file| file.symlink_metadata().ok()).map(|about| about.len());
        let bytes = sizes.reduce(u64::saturating_add)?;
        let path = files.first()?;
        Some(Self { what, path: path.strip_prefix(project).unwrap_or(path).to_owned(), bytes })
    }
}

/// With what SQLite keeps beside it; `None` if there is no such file.
fn database_size(path: &Path) -> Option<u64> {
    let of = |end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        Path::new(&name).symlink_metadata().ok().map(|about| about.len())
    };
    of("")?;
    Some(DATABASE.iter().filter_map(|end| of(end)).sum())
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

//! What was accepted of each server, and what it offered since: files in the user's own folder.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use turnbuckle_mcp::Listing;

use super::definition;
use crate::config::McpPart;
use crate::read_file::{CONFIGURATION, read_file};
use crate::trust::digest_of;
use crate::user_folders;

const FOLDER: &str = "mcp";

/// Where the tools of one server of one project are noted.
#[derive(Clone)]
pub(crate) struct Pin {
    pub(super) server: String,
    /// None without a folder of the user's: then nothing can be accepted for good.
    file: Option<PathBuf>,
}

/// What stands in the file.
#[derive(Default, Serialize, Deserialize)]
struct Noted {
    format: u32,
    server: String,
    project: PathBuf,
    accepted: Listing,
    /// What the server listed later, if that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offered: Option<Listing>,
}

impl Pin {
    /// Another project, or another command or address, is another pin.
    pub(super) fn of(part: &McpPart, project: &Path) -> Self {
        let what = json!([project, part.name.value, definition(part)]);
        let name = format!("{}.json", digest_of(what.to_string().as_bytes()));
        let file = user_folders::state().map(|folder| folder.join(FOLDER).join(name));
        Self { server: part.name.value.clone(), file }
    }

    fn read(&self) -> Option<Noted> {
        let text = read_file(self.file.as_ref()?, CONFIGURATION).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// What the model is told.
    pub(super) fn accepted(&self) -> Option<Listing> {
        self.read().map(|noted| noted.accepted)
    }

    /// What was accepted, and what the server offers instead.
    pub(super) fn changed(&self) -> Option<(Listing, Listing)> {
        let noted = self.read()?;
        let offered = noted.offered.filter(|offered| *offered != noted.accepted)?;
        Some((noted.accepted, offered))
    }

    pub(super) fn accept(&self, listing: &Listing) -> io::Result<()> {
        self.write(&Noted { format: 1, server: self.server.clone(), accepted: listing.clone(), ..Noted::default() })
    }

    /// What the server offers now. If it is not what was accepted, a person is asked with the next start.
    pub(super) fn note_offer(&self, listing: &Listing) {
        let Some(mut noted) = self.read() else { return };
        let offered = (noted.accepted != *listing).then(|| listing.clone());
        if noted.offered == offered {
            return;
        }
        noted.offered = offered;
        if let Err(error) = self.write(&noted) {
            tracing::warn!(server = %self.server, %error, "what an MCP server offers now could not be noted");
        }
    }

    /// Beside its place and then moved there: a reader sees it whole or not at all.
    fn write(&self, noted: &Noted) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Err(io::Error::other("there is no folder to note it in: HOME leads to none"));
        };
        let folder = file.parent().unwrap_or(Path::new("/"));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let beside = file.with_extension(format!("{}.tmp", std::process::id()));
        let mut out = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        out.write_all(serde_json::to_string(noted)?.as_bytes())?;
        fs::rename(&beside, file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(description: &str) -> Listing {
        let tool = json!({ "name": "echo", "description": description, "parameters": { "type": "object" } });
        serde_json::from_value(json!({ "tools": [tool] })).unwrap()
    }

    #[test]
    fn an_offer_that_was_taken_back_is_not_asked_about() {
        let folder = tempfile::tempdir().unwrap();
        let pin = Pin { server: "test".to_owned(), file: Some(folder.path().join("mcp/pin.json")) };
        let (first, second) = (listing("says it again"), listing("reads your keys"));
        pin.accept(&first).unwrap();
        pin.note_offer(&second);
        assert!(pin.changed().is_some_and(|(accepted, offered)| accepted == first && offered == second));
        pin.note_offer(&first);
        assert!(pin.changed().is_none());
        assert!(pin.read().is_some_and(|noted| noted.offered.is_none()));
        // Were it kept, the next acceptance would bring it back.
        pin.accept(&second).unwrap();
        assert!(pin.changed().is_none());
    }
}

//! How a turn was started. It is recorded with the turn, so that the command that goes on with it can be printed for
//! anyone, in any folder.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use turnbuckle_models::without_password;

use crate::args::Common;
use crate::assemble::holds_a_secret;
use crate::show::quoted;
use crate::trust::{IGNORE_PROJECT, TRUST_HOOKS, TrustOptions};

const CONFIG: &str = "--config";
const STORE: &str = "--store";
const MODEL: &str = "--model";
const SCRIPT: &str = "script:";
const SQLITE: &str = "sqlite:";

/// Options of the command line that lead to the same agent and the same store. Paths are absolute, and no password is in
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StartedWith {
    pub(crate) config: Option<String>,
    pub(crate) store: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) trust: TrustOptions,
}

impl StartedWith {
    /// As the options were given to this process.
    pub(crate) fn of(common: &Common) -> Self {
        let store = common.store.as_deref().map(|url| without_password(url).into_owned());
        let model = common.model.as_deref().filter(|model| !holds_a_secret(model));
        Self {
            config: common.config.as_deref().map(|path| absolute(path).display().to_string()),
            store: store.map(|url| with_absolute_path(&url, SQLITE)),
            model: model.map(|model| with_absolute_path(model, SCRIPT)),
            trust: common.trust,
        }
    }

    /// As a process has it that is started with these options.
    pub(crate) fn into_common(self) -> Common {
        let Self { config, store, model, trust } = self;
        Common { config: config.map(PathBuf::from), store, model, trust, ..Common::default() }
    }

    /// As words of a command line.
    pub(crate) fn words(&self) -> Vec<String> {
        let pairs = [(CONFIG, &self.config), (STORE, &self.store), (MODEL, &self.model)];
        let given = pairs.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value.clone()?]));
        given.flatten().chain(self.trust.given().map(str::to_owned)).collect()
    }

    /// From what a turn has recorded. Words that are none of these options are left out.
    pub(crate) fn from_words(words: &[String]) -> Self {
        let (mut found, mut words) = (Self::default(), words.iter());
        while let Some(word) = words.next() {
            match word.as_str() {
                CONFIG => found.config = words.next().cloned(),
                STORE => found.store = words.next().cloned(),
                MODEL => found.model = words.next().cloned(),
                TRUST_HOOKS => found.trust = TrustOptions { trust_hooks: true, ignore_project: false },
                IGNORE_PROJECT => found.trust = TrustOptions { trust_hooks: false, ignore_project: true },
                _ => {}
            }
        }
        found
    }

    /// What of it another user is shown. What the one accepted for a run the other did not: `--trust-hooks`, and a file of
    /// `--config` that is not the other's own.
    pub(crate) fn for_another(self) -> Self {
        let config = self.config.filter(|path| is_own(Path::new(path)));
        Self { config, trust: TrustOptions { trust_hooks: false, ..self.trust }, ..self }
    }

    /// To be written behind a command that is run in `folder`, each with a space before it. A store or a script in that
    /// folder is named from there.
    pub(crate) fn shown_in(&self, folder: &Path) -> String {
        let shorter =
            |value: &Option<String>, scheme: &str| value.as_deref().map(|value| relative(value, scheme, folder));
        let short = Self { store: shorter(&self.store, SQLITE), model: shorter(&self.model, SCRIPT), ..self.clone() };
        let words = short.words();
        words.iter().map(|word| format!(" {}", quoted(&without_password(word)))).collect()
    }
}

/// Whether a file belongs to this account, or to the administrator.
fn is_own(path: &Path) -> bool {
    let me = rustix::process::geteuid().as_raw();
    path.metadata().is_ok_and(|about| [me, 0].contains(&about.uid()))
}

/// From the root on, and without `..` where its folder is there: so the same file has the same name from every folder. The
/// file itself may be a link, and stays one.
fn absolute(path: &Path) -> PathBuf {
    // A path that cannot be made absolute, because there is no current folder, is kept as it is.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return path };
    folder.canonicalize().map_or_else(|_| path.clone(), |folder| folder.join(name))
}

/// A model's name as it is recorded with a turn: a script by its place in the project, from whichever folder it was named.
pub(crate) fn model_in(project: &Path, model: &str, folder: &Path) -> String {
    match model.strip_prefix(SCRIPT) {
        Some(path) if !path.is_empty() => {
            let path = absolute(&folder.join(path));
            relative(&format!("{SCRIPT}{}", path.display()), SCRIPT, project)
        }
        _ => model.to_owned(),
    }
}

/// A model's name as [`model_in`] made it, for a command in any folder.
pub(crate) fn model_anywhere(project: &Path, model: &str) -> String {
    match model.strip_prefix(SCRIPT) {
        Some(path) if !path.is_empty() => format!("{SCRIPT}{}", absolute(&project.join(path)).display()),
        _ => model.to_owned(),
    }
}

/// `sqlite:a.db` with the path from the root on.
pub(crate) fn with_absolute_path(value: &str, scheme: &str) -> String {
    match value.strip_prefix(scheme) {
        Some(path) if !path.is_empty() => format!("{scheme}{}", absolute(Path::new(path)).display()),
        _ => value.to_owned(),
    }
}

fn relative(value: &str, scheme: &str, folder: &Path) -> String {
    let inside = value.strip_prefix(scheme).and_then(|path| Path::new(path).strip_prefix(folder).ok());
    inside.map_or_else(|| value.to_owned(), |path| format!("{scheme}{}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_is_found_again_and_what_is_unknown_is_left_out() {
        let common = Common {
            config: Some("/a/my own.toml".into()),
            store: Some("sqlite:/b/t.db".into()),
            model: Some("script:/b/talk.json".into()),
            trust: TrustOptions { trust_hooks: true, ignore_project: false },
            ..Common::default()
        };
        let started = StartedWith::of(&common);
        let mut words = started.words();
        assert_eq!(StartedWith::from_words(&words), started);
        words.extend(["--quiet".to_owned(), "rm".to_owned()]);
        assert_eq!(StartedWith::from_words(&words), started);
        let shown = started.shown_in(Path::new("/b"));
        assert_eq!(shown, " --config '/a/my own.toml' --store sqlite:t.db --model script:talk.json --trust-hooks");
    }

    /// Leaving the project's file out gives nobody anything, so it is kept for others.
    #[test]
    fn another_user_is_shown_that_the_project_was_left_out_and_not_that_it_was_trusted() {
        let shown = |trust_hooks, ignore_project| {
            let trust = TrustOptions { trust_hooks, ignore_project };
            let recorded = StartedWith::of(&Common { trust, ..Common::default() }).words();
            StartedWith::from_words(&recorded).for_another().words()
        };
        assert_eq!(shown(false, true), ["--ignore-project"]);
        assert!(shown(true, false).is_empty());
    }

    #[test]
    fn no_password_is_recorded() {
        let common = Common { model: Some("openai@http://ann:pw@host/v1:m".into()), ..Common::default() };
        assert!(StartedWith::of(&common).words().is_empty());
    }
}

//! `[[hooks]]`: `use` names a ready-made hook, the rest are its options and what every hook has.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use turnbuckle::BoxError;
use turnbuckle::hook::{OnFailure, Release};
use turnbuckle::hooks::{ConfigHook as _, HookBuildContext};
use turnbuckle::model::Model;
use turnbuckle::store::SideStore;
use turnbuckle_models::ModelOptions;
use turnbuckle_tools::ClaudeHooks;

use super::Found;
use super::options::Options;
use super::reader::Section;
use crate::assemble::holds_a_secret;
use crate::catalogue::{CATALOGUE, Maker, Row};
use crate::links::hook_links;
use crate::mcp::hook_servers;
use crate::model_name::{ModelName, NamedModel, provider_variables};
use crate::problem::{Place, Problem};
use crate::project::OWN_FOLDER;
use crate::trust::Gate;

/// One `[[hooks]]` section.
#[derive(Debug)]
pub(crate) struct HookPart {
    pub(crate) place: Place,
    /// As given; without one the hook is called after its `use`.
    pub(crate) name: Option<Found<String>>,
    pub(crate) used: &'static Row,
    /// Taken when the agent is built.
    pub(crate) maker: Option<Maker>,
    /// As given, for people to read.
    pub(crate) options: Vec<(String, Found<Value>)>,
    pub(crate) settings: HookSettings,
    /// Settings files that another section with the same `use` reads.
    pub(crate) read_by_others: Vec<PathBuf>,
    /// Whether what it finds in the project is left out (`--ignore-project`).
    pub(crate) ignores_project: bool,
}

/// What every hook has.
#[derive(Debug)]
pub(crate) struct HookSettings {
    pub(crate) on_failure: Option<Found<OnFailure>>,
    pub(crate) timeout: Option<Found<Duration>>,
    pub(crate) tools: Option<Found<Vec<Found<String>>>>,
    pub(crate) main_agent_only: bool,
    /// `release = "on_accept"`: nothing is told until every guard has accepted.
    pub(crate) release: Option<Found<Release>>,
    /// What it takes out is not in records.
    pub(crate) hides_changes: bool,
    /// What it injects joins the log.
    pub(crate) durable: Option<Found<bool>>,
    /// What it injects may be left out.
    pub(crate) max_tokens: Option<Found<u32>>,
    pub(crate) priority: Option<Found<i32>>,
}

/// What hooks keep of conversations beside the store.
#[derive(Default)]
pub(crate) struct SideStores(pub(crate) Vec<Arc<dyn SideStore>>);

impl fmt::Debug for SideStores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|side| side.name())).finish()
    }
}

impl HookPart {
    /// An option, as given.
    pub(crate) fn option(&self, name: &str) -> Option<&Value> {
        self.found(name).map(|found| &found.value)
    }

    /// Where an option stands.
    pub(crate) fn option_place(&self, name: &str) -> Option<&Place> {
        self.found(name).map(|found| &found.place)
    }

    fn found(&self, name: &str) -> Option<&Found<Value>> {
        self.options.iter().find(|(key, _)| key == name).map(|(_, found)| found)
    }
}

/// A name stands in lines that people read.
const LONGEST_NAME: usize = 64;

fn is_fit(name: &str) -> bool {
    name.chars().count() <= LONGEST_NAME && !name.chars().any(char::is_control)
}

const POLICIES: &[(&str, OnFailure)] = &[("block", OnFailure::Block), ("ignore", OnFailure::Ignore)];
/// The other one is how it is without the key.
const RELEASES: &[(&str, Release)] = &[("on_accept", Release::OnAccept)];

/// The section of the main agent's hooks.
const SECTION: &str = "hooks";

/// The most `[[hooks]]` of one file.
pub(crate) const MOST_HOOKS: usize = 256;

pub(super) fn read(sections: Vec<Section<'_>>) -> Vec<HookPart> {
    few(sections).into_iter().enumerate().filter_map(|(index, section)| hook(section, (SECTION, index))).collect()
}

/// Those of a section such as `[[agents]]`, which was accepted as a whole: `accepted` says which one it is.
pub(super) fn read_in(sections: Vec<Section<'_>>, accepted: (&str, usize)) -> Vec<HookPart> {
    let read = |section: Section<'_>| {
        let (source, part) = (section.source(), hook(section, accepted)?);
        if part.used.name == ClaudeHooks::NAME {
            let what = "`use = \"claude\"` is for the main agent: its handlers hear of sub-agents there";
            source.tell(Problem::error(what).at(&part.place).hint("move it to [[hooks]]"));
            return None;
        }
        Some(part)
    };
    few(sections).into_iter().filter_map(read).collect()
}

/// What the hooks keep of conversations beside the store. None of them is made.
pub(super) fn side_stores(sections: Vec<Section<'_>>) -> SideStores {
    let kept = few(sections).into_iter().enumerate().filter_map(|(index, section)| kept(section, (SECTION, index)));
    SideStores(kept.collect())
}

/// The same for those of a section such as `[[agents]]`.
pub(super) fn side_stores_in(sections: Vec<Section<'_>>, accepted: (&str, usize)) -> SideStores {
    SideStores(few(sections).into_iter().filter_map(|section| kept(section, accepted)).collect())
}

fn kept(mut section: Section<'_>, accepted: (&str, usize)) -> Option<Arc<dyn SideStore>> {
    section.string("name");
    HookSettings::read(&mut section);
    let used = used(&mut section)?;
    with_options(accepted, section, |options, context| options.side_store(used, context))?
}

/// None, if there are too many.
fn few(sections: Vec<Section<'_>>) -> Vec<Section<'_>> {
    if let Some(first) = sections.get(MOST_HOOKS) {
        let what = format!("there are {} [[hooks]], and {MOST_HOOKS} are the most", sections.len());
        let problem = Problem::error(what).at(first.place());
        first.source().tell(problem.hint("one command hook can run a program that does several things"));
        return Vec::new();
    }
    sections
}

fn hook(mut section: Section<'_>, accepted: (&str, usize)) -> Option<HookPart> {
    let place = section.place().clone();
    let name = section.string("name");
    let settings = HookSettings::read(&mut section);
    if let Some(given) = name.as_ref().filter(|name| !is_fit(&name.value)) {
        let what = format!("{} must be at most {LONGEST_NAME} characters that can be shown", section.named("name"));
        section
            .source()
            .tell(Problem::error(what).at(&given.place).hint("it stands in lines of a trace: keep it short"));
    }
    let used = used(&mut section)?;
    if used.name == ClaudeHooks::NAME && !section.source().covers_project() && !section.source().ignores_project() {
        let what = "`use = \"claude\"` runs what this folder's .claude says, which was not accepted";
        let hint = "`turnbuckle trust --folder` accepts whatever this folder's files say, `--trust-hooks` accepts it for this run, and \
                    `--ignore-project`, or `project = false` in the hook, leaves the folder's handlers out";
        section.source().tell(Problem::error(what).at(&place).hint(hint));
        return None;
    }
    let read_by_others = match accepted {
        (SECTION, index) => section.source().read_by_others(index),
        _ => Vec::new(),
    };
    let ignores_project = section.source().ignores_project();
    let (options, made) =
        with_options(accepted, section, |options, context| (options.shown(), options.read(used, context)));
    Some(HookPart { place, name, used, maker: Some(made?), options, settings, read_by_others, ignores_project })
}

/// Without `use` it is not known which other keys the section may have.
fn used(section: &mut Section<'_>) -> Option<&'static Row> {
    let uses: Vec<(&str, &'static Row)> = CATALOGUE.iter().map(|row| (row.name, row)).collect();
    let used = section.word("use", &uses);
    section.required("use", "\"command\"", used).map(|found| found.value)
}

/// Reads the keys that are left, with what a hook is given.
fn with_options<T>(
    (accepted, index): (&str, usize),
    section: Section<'_>,
    read: impl FnOnce(Options<'_>, &HookBuildContext<'_>) -> T,
) -> T {
    let source = section.source();
    let read_by_others = if accepted == SECTION { source.read_by_others(index) } else { Vec::new() };
    let open_model = |name: &str| open_model(name, source.folder(), source.gate());
    let folder = source.project();
    let (data, secrets) = (folder.join(OWN_FOLDER), source.secret_variables());
    // `pass_env` gives one to a program all the same.
    let withheld_env: Vec<&str> = provider_variables().into_iter().chain(secrets.iter().map(String::as_str)).collect();
    let context = HookBuildContext {
        folder,
        data: &data,
        withheld_env: &withheld_env,
        open_model: &open_model,
        program_check: source.check_of(accepted, index),
        databases: Some(source.databases()),
        tool_servers: Some(hook_servers()),
        link_maker: Some(hook_links()),
        ignores_project: source.ignores_project(),
        read_by_others: &read_by_others,
    };
    section.rest(|options| read(options, &context))
}

impl HookSettings {
    fn read(section: &mut Section<'_>) -> Self {
        let settings = Self {
            on_failure: section.word("on_failure", POLICIES),
            timeout: section.duration("timeout"),
            tools: section.strings("tools"),
            main_agent_only: section.boolean("main_agent_only").is_some_and(|found| found.value),
            hides_changes: section.boolean("hides_changes").is_some_and(|found| found.value),
            release: section.word("release", RELEASES),
            durable: section.boolean("durable"),
            max_tokens: section.small("max_tokens"),
            priority: section.integer("priority"),
        };
        settings.refuse_idle(section);
        if let (Some(priority), None) = (&settings.priority, &settings.max_tokens) {
            let what = format!("{} without `max_tokens` means nothing", section.named("priority"));
            let hint = "with `max_tokens` an injection may be left out, the lowest priority first";
            section.source().tell(Problem::error(what).at(&priority.place).hint(hint));
        }
        settings
    }
}

impl HookSettings {
    /// What can be read, and cannot be meant.
    fn refuse_idle(&self, section: &Section<'_>) {
        let tell = |key: &str, why: &str, place: &Place, hint: &str| {
            section.source().tell(Problem::error(format!("{} {why}", section.named(key))).at(place).hint(hint));
        };
        if let Some(found) = self.timeout.as_ref().filter(|found| found.value.is_zero()) {
            tell("timeout", "is 0: the hook would always fail", &found.place, "take the line out for the default");
        }
        if let Some(found) = self.tools.as_ref().filter(|found| found.value.is_empty()) {
            tell(
                "tools",
                "names no tool: the hook would never run there",
                &found.place,
                "take the line out for all tools",
            );
        }
        if let Some(found) = self.max_tokens.as_ref().filter(|found| found.value == 0) {
            tell(
                "max_tokens",
                "is 0: nothing could be injected",
                &found.place,
                "take the line out for no limit of its own",
            );
        }
    }
}

/// A model for a hook that asks one itself. A script's path is relative to the file that names it. Its replies are logged
/// under the name in the file, unless that has a password in it. Its server is asked how many tokens it takes: a context that was
/// made for the agent's model must fit there, too.
pub(crate) fn open_model(name: &str, folder: &Path, gate: Gate) -> Result<Arc<dyn Model>, BoxError> {
    let open = |name: ModelName| name.open_for(gate, folder, &ModelOptions::default());
    let model = ModelName::parse(name).and_then(open).map_err(|problem| problem.what().to_owned())?;
    Ok(match holds_a_secret(name) {
        true => Arc::new(model),
        false => Arc::new(NamedModel { name: name.to_owned(), model }),
    })
}

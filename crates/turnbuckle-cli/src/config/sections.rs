//! The plain sections: `[agent]`, `[limits]`, `[store]`, `[tools]`, `[[agents]]`.

use std::time::Duration;

use turnbuckle::Limits;
use turnbuckle_tools::rules::Rule;

use super::reader::Section;
use super::shell::ShellPart;
use super::{Found, Over};
use crate::problem::{Place, Problem};
use crate::read_file::{CONFIGURATION, read_file};

/// The section `[agent]`.
#[derive(Debug, Default)]
pub(crate) struct AgentPart {
    pub(crate) name: Option<Found<String>>,
    pub(crate) model: Option<Found<ModelSetting>>,
    /// From `system` or `system_file`: the two are one setting.
    pub(crate) system: Option<Found<String>>,
    /// Whether a `retry` hook is added if `[[hooks]]` has none; it is, unless this is false.
    pub(crate) default_retry: Option<Found<bool>>,
}

/// A model's name, and the folder of the file that names it: scripts are relative to that.
#[derive(Clone, Debug)]
pub(crate) struct ModelSetting {
    pub(crate) name: String,
    pub(crate) folder: std::path::PathBuf,
}

impl ModelSetting {
    fn read(section: &mut Section<'_>, folder: &std::path::Path) -> Option<Found<Self>> {
        let Found { value: name, place } = section.string("model")?;
        Some(Found { value: Self { name, folder: folder.to_path_buf() }, place })
    }
}

impl AgentPart {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let folder = section.source().folder().to_path_buf();
        let model = ModelSetting::read(&mut section, &folder);
        let (name, default_retry) = (section.string("name"), section.boolean("default_retry"));
        let part = Self { name, model, system: system(&mut section), default_retry };
        section.finish();
        part
    }

    /// Its name and its model; the rest of the section is not looked at.
    pub(super) fn read_for_hints(mut section: Section<'_>) -> Self {
        let folder = section.source().folder().to_path_buf();
        Self { name: section.string("name"), model: ModelSetting::read(&mut section, &folder), ..Self::default() }
    }
}

fn system(section: &mut Section<'_>) -> Option<Found<String>> {
    let (said, file) = (section.string("system"), section.string("system_file"));
    let Some(file) = file else { return said };
    let tell = |problem: Problem| section.source().tell(problem.at(&file.place));
    if said.is_some() {
        tell(Problem::error("`system` and `system_file` are both given").hint("keep one of the two"));
        return said;
    }
    let path = section.source().folder().join(&file.value);
    match read_file(&path, CONFIGURATION) {
        Ok(value) => Some(Found { value, place: file.place }),
        Err(error) => {
            let what = format!("`system_file` {} cannot be read: {error}", path.display());
            tell(Problem::error(what).hint(error.hint("it is relative to the folder of this file")));
            None
        }
    }
}

impl Over for AgentPart {
    fn over(self, base: Self) -> Self {
        Self {
            name: self.name.over(base.name),
            model: self.model.over(base.model),
            system: self.system.over(base.system),
            default_retry: self.default_retry.over(base.default_retry),
        }
    }
}

macro_rules! limits {
    ($($key:ident: $type:ty = $read:ident),+ $(,)?) => {
        /// The section `[limits]`.
        #[derive(Debug, Default)]
        pub(crate) struct LimitsPart {
            $(pub(crate) $key: Option<Found<$type>>,)+
        }

        impl LimitsPart {
            pub(super) fn read(mut section: Section<'_>) -> Self {
                let part = Self { $($key: section.$read(stringify!($key)),)+ };
                section.finish();
                part
            }

            /// With the core's defaults where nothing is said.
            pub(crate) fn limits(&self) -> Limits {
                let mut limits = Limits::default();
                $(if let Some(found) = &self.$key { limits.$key = found.value; })+
                limits
            }

            /// Where a limit was set.
            pub(crate) fn place(&self, key: &str) -> Option<&Place> {
                match key {
                    $(stringify!($key) => self.$key.as_ref().map(|found| &found.place),)+
                    _ => None,
                }
            }
        }

        impl Over for LimitsPart {
            fn over(self, base: Self) -> Self {
                Self { $($key: self.$key.over(base.$key),)+ }
            }
        }
    };
}

limits! {
    context_tokens: u64 = whole,
    injection_reserve: u64 = whole,
    max_model_calls: u32 = small,
    max_tokens: u64 = whole,
    max_cost: f64 = amount,
    max_regenerations: u32 = small,
    max_stop_refusals: u32 = small,
    turn_timeout: Duration = duration,
    approval_timeout: Duration = duration,
}

/// The section `[store]`.
#[derive(Debug, Default)]
pub(crate) struct StorePart {
    pub(crate) url: Option<Found<String>>,
    /// How long a conversation is kept in which nothing happens. Without it: for ever.
    pub(crate) retain: Option<Found<Duration>>,
}

/// The shortest time for which conversations are kept: with less, one could go while a person thinks about the next message.
const LEAST_RETAINED: Duration = Duration::from_secs(60);

impl StorePart {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let part = Self { url: section.string("url"), retain: section.duration("retain") };
        if let Some(retain) = part.retain.as_ref().filter(|retain| retain.value < LEAST_RETAINED) {
            let what = format!("{} is less than a minute", section.named("retain"));
            let hint = "conversations are deleted when they are that old: write `retain = \"90d\"`, for example";
            section.source().tell(Problem::error(what).at(&retain.place).hint(hint));
        }
        let (audit, _) = (section.boolean("audit"), section.duration("audit_ttl"));
        if let Some(audit) = audit.filter(|audit| audit.value) {
            let problem = Problem::error("`audit = true` is not in this version: nothing would be kept");
            section.source().tell(problem.at(&audit.place).hint("write `audit = false`"));
        }
        section.finish();
        part
    }
}

impl Over for StorePart {
    fn over(self, base: Self) -> Self {
        Self { url: self.url.over(base.url), retain: self.retain.over(base.retain) }
    }
}

/// The section `[tools]`.
#[derive(Debug, Default)]
pub(crate) struct ToolsPart {
    pub(crate) builtin: Option<Found<Vec<Found<String>>>>,
    pub(crate) approve: Option<Found<Vec<Found<String>>>>,
    pub(crate) shell: ShellPart,
    /// Rules of `run --allow`; a file has none.
    pub(crate) allow: Vec<Rule>,
}

impl ToolsPart {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let (builtin, approve) = (section.strings("builtin"), section.strings("approve"));
        let shell = section.section("shell").map(ShellPart::read).unwrap_or_default();
        let part = Self { builtin, approve, shell, allow: Vec::new() };
        for server in section.sections("mcp").unwrap_or_default() {
            let problem = Problem::error("`[[tools.mcp]]`: this version has no MCP client").at(server.place());
            server.source().tell(problem.hint("take the section out"));
        }
        section.finish();
        part
    }
}

impl Over for ToolsPart {
    fn over(self, base: Self) -> Self {
        Self {
            builtin: self.builtin.over(base.builtin),
            approve: self.approve.over(base.approve),
            shell: self.shell.over(base.shell),
            allow: Vec::new(),
        }
    }
}

/// One of the sections `[[agents]]`.
#[derive(Debug)]
pub(crate) struct SubAgentPart {
    pub(crate) name: Found<String>,
    pub(crate) system: Option<Found<String>>,
}

/// The most `[[agents]]` of one file.
pub(crate) const MOST_AGENTS: usize = 64;

pub(super) fn sub_agents(sections: Vec<Section<'_>>) -> Vec<SubAgentPart> {
    if let Some(first) = sections.get(MOST_AGENTS) {
        let what = format!("there are {} [[agents]], and {MOST_AGENTS} are the most", sections.len());
        let problem = Problem::error(what).at(first.place());
        first.source().tell(problem.hint("each is offered to the model as a tool, and a model chooses well among few"));
        return Vec::new();
    }
    let read = |mut section: Section<'_>| {
        let name = section.string("name");
        let name = section.required("name", "\"reviewer\"", name);
        let system = section.string("system");
        section.finish();
        Some(SubAgentPart { name: name?, system })
    };
    sections.into_iter().filter_map(read).collect()
}

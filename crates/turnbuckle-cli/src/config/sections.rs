//! The plain sections: `[agent]`, `[limits]`, `[store]`, `[tools]`.

use std::time::Duration;

use serde_json::Value;
use turnbuckle::{Limits, OnBudget};
use turnbuckle_tools::rules::Rule;

use super::asked_tools::{self, AskedTool};
use super::fetch::FetchPart;
use super::mcp::{self, McpPart};
use super::model_options::ModelOptionsPart;
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
    /// Whether AGENTS.md and CLAUDE.md are read into every turn if `[[hooks]]` has no `instructions`; they are, unless this is false.
    pub(crate) default_instructions: Option<Found<bool>>,
    /// How the model answers.
    pub(crate) options: ModelOptionsPart,
}

/// A model's name, and the folder of the file that names it: scripts are relative to that.
#[derive(Clone, Debug)]
pub(crate) struct ModelSetting {
    pub(crate) name: String,
    pub(crate) folder: std::path::PathBuf,
}

impl ModelSetting {
    pub(super) fn read(section: &mut Section<'_>, folder: &std::path::Path) -> Option<Found<Self>> {
        Self::read_key(section, "model", folder)
    }

    pub(super) fn read_key(
        section: &mut Section<'_>,
        key: &'static str,
        folder: &std::path::Path,
    ) -> Option<Found<Self>> {
        let Found { value: name, place } = section.string(key)?;
        Some(Found { value: Self { name, folder: folder.to_path_buf() }, place })
    }
}

impl AgentPart {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let folder = section.source().folder().to_path_buf();
        let model = ModelSetting::read(&mut section, &folder);
        let part = Self {
            name: section.string("name"),
            model,
            system: system(&mut section),
            default_retry: section.boolean("default_retry"),
            default_instructions: section.boolean("default_instructions"),
            options: ModelOptionsPart::read(&mut section),
        };
        section.finish();
        part
    }

    /// Its name and its model; the rest of the section is not looked at.
    pub(super) fn read_for_hints(mut section: Section<'_>) -> Self {
        let folder = section.source().folder().to_path_buf();
        Self { name: section.string("name"), model: ModelSetting::read(&mut section, &folder), ..Self::default() }
    }
}

pub(super) fn system(section: &mut Section<'_>) -> Option<Found<String>> {
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
            default_instructions: self.default_instructions.over(base.default_instructions),
            options: self.options.over(base.options),
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
                self.limits_over(Limits::default())
            }

            /// With these where nothing is said.
            pub(crate) fn limits_over(&self, mut limits: Limits) -> Limits {
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
    on_budget: OnBudget = on_budget,
    show_budget: bool = boolean,
    turn_timeout: Duration = duration,
    approval_timeout: Duration = duration,
}

/// The section `[store]`.
#[derive(Debug, Default)]
pub(crate) struct StorePart {
    pub(crate) url: Option<Found<String>>,
    /// How long a conversation is kept in which nothing happens. Without it: for ever.
    pub(crate) retain: Option<Found<Duration>>,
    /// Whether what models are sent is recorded.
    pub(crate) audit: Option<Found<bool>>,
    /// How long that is kept.
    pub(crate) audit_ttl: Option<Found<Duration>>,
    /// How many calls are kept.
    pub(crate) audit_rows: Option<Found<u64>>,
    /// How many bytes of what they were sent.
    pub(crate) audit_bytes: Option<Found<u64>>,
}

/// The shortest time for which conversations are kept: with less, one could go while a person thinks about the next message.
const LEAST_RETAINED: Duration = Duration::from_secs(60);

impl StorePart {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let part = Self {
            url: section.string("url"),
            retain: section.duration("retain"),
            audit: section.boolean("audit"),
            audit_ttl: section.duration("audit_ttl"),
            audit_rows: section.whole("audit_rows"),
            audit_bytes: section.whole("audit_bytes"),
        };
        if let Some(retain) = part.retain.as_ref().filter(|retain| retain.value < LEAST_RETAINED) {
            let what = format!("{} is less than a minute", section.named("retain"));
            let hint = "conversations are deleted when they are that old: write `retain = \"90d\"`, for example";
            section.source().tell(Problem::error(what).at(&retain.place).hint(hint));
        }
        if let Some(ttl) = part.audit_ttl.as_ref().filter(|ttl| ttl.value < LEAST_RETAINED) {
            let what = format!("{} is less than a minute", section.named("audit_ttl"));
            let hint = "write `audit_ttl = \"7d\"`, for example; `audit = false` records nothing";
            section.source().tell(Problem::error(what).at(&ttl.place).hint(hint));
        }
        for (name, cap) in [("audit_rows", &part.audit_rows), ("audit_bytes", &part.audit_bytes)] {
            if let Some(cap) = cap.as_ref().filter(|cap| cap.value == 0) {
                let what = format!("{} is 0: nothing would be kept", section.named(name));
                section.source().tell(Problem::error(what).at(&cap.place).hint("`audit = false` records nothing"));
            }
        }
        section.finish();
        part
    }
}

impl Over for StorePart {
    fn over(self, base: Self) -> Self {
        Self {
            url: self.url.over(base.url),
            retain: self.retain.over(base.retain),
            audit: self.audit.over(base.audit),
            audit_ttl: self.audit_ttl.over(base.audit_ttl),
            audit_rows: self.audit_rows.over(base.audit_rows),
            audit_bytes: self.audit_bytes.over(base.audit_bytes),
        }
    }
}

/// The section `[tools]`.
#[derive(Debug, Default)]
pub(crate) struct ToolsPart {
    pub(crate) builtin: Option<Found<Vec<Found<String>>>>,
    pub(crate) approve: Option<Found<Vec<Found<String>>>>,
    pub(crate) shell: ShellPart,
    pub(crate) fetch: FetchPart,
    /// The user's servers first.
    pub(crate) mcp: Vec<McpPart>,
    /// Tools that clients run; the project's list, or else the user's, as with the two below.
    pub(crate) client: Option<Vec<AskedTool>>,
    /// Tools that people answer.
    pub(crate) human: Option<Vec<AskedTool>>,
    /// Tools that the model's provider runs.
    pub(crate) provider: Option<Vec<Found<Value>>>,
    /// Rules of `run --allow`, and those that follow from `[tools.fetch] allow`.
    pub(crate) allow: Vec<Rule>,
}

impl ToolsPart {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let (builtin, approve) = (section.strings("builtin"), section.strings("approve"));
        let shell = section.section("shell").map(ShellPart::read).unwrap_or_default();
        let fetch = section.section("fetch").map(FetchPart::read).unwrap_or_default();
        let mut mcp = mcp::read(section.sections("mcp").unwrap_or_default());
        if let Some(found) = section.boolean("mcp_json").filter(|found| found.value) {
            mcp.extend(mcp::read_json(section.source(), &found.place));
        }
        let client = section.sections("client").map(asked_tools::clients);
        let human = section.sections("human").map(asked_tools::humans);
        let provider = section.sections("provider").map(asked_tools::provider);
        let part = Self { builtin, approve, shell, fetch, mcp, client, human, provider, allow: Vec::new() };
        section.finish();
        part
    }
}

impl ToolsPart {
    /// Tools that the model's provider runs.
    pub(crate) fn of_provider(&self) -> &[Found<Value>] {
        self.provider.as_deref().unwrap_or_default()
    }
}

impl Over for ToolsPart {
    fn over(self, base: Self) -> Self {
        Self {
            builtin: self.builtin.over(base.builtin),
            approve: self.approve.over(base.approve),
            shell: self.shell.over(base.shell),
            fetch: self.fetch.over(base.fetch),
            mcp: base.mcp.into_iter().chain(self.mcp).collect(),
            client: self.client.over(base.client),
            human: self.human.over(base.human),
            provider: self.provider.over(base.provider),
            allow: Vec::new(),
        }
    }
}

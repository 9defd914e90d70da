//! A hook with its name and settings, as an agent holds it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::erased::DynHook;
use super::parallel::Parallel;
use super::{Hook, HookFailure, OnFailure, Point, Points};
use crate::message::Text;

/// When text of a reply is told, seen from a hook that judges it at `after_model`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// As the model says it; a rejected attempt is taken back.
    #[default]
    AtOnce,
    /// When every guard has accepted: no byte of a rejected attempt is ever told.
    OnAccept,
}

/// Every hook has these. What is `None` has a default that depends on the point.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Default: [`Point::default_on_failure`].
    pub on_failure: Option<OnFailure>,
    /// Default 60 s. A wrap is timed only if it is set here, since its time holds what it wraps.
    pub timeout: Option<Duration>,
    /// Tool points fire only for tools whose name matches one of these globs. Empty: for all.
    pub tools: Vec<String>,
    /// Not in sub-agents.
    pub main_agent_only: bool,
    /// What it injects joins the log and is rendered in its place ever after.
    pub durable: bool,
    /// With this set, an injection that finds no room is left out, which its record says, instead of failing the turn.
    pub max_tokens: Option<u32>,
    /// Of injections that may be left out, the lowest goes first.
    pub priority: i32,
    /// When text is told, for a hook that judges replies.
    pub release: Release,
    /// The types of log events that [`on_logged`](Hook::on_logged) is given, by their names in JSON. Empty: `suspension` and
    /// `turn_ended`.
    pub logged: Vec<Text>,
    /// When [`on_logged`](Hook::on_logged) is given a question again that has no answer: percent of its time that have passed.
    pub reminders: Vec<u8>,
    /// Whether [`redact_arguments`](Hook::redact_arguments) is asked for the form of arguments that the log has.
    pub redacts_arguments: bool,
    /// What it takes out must not be stored: its record says that it changed something and not what was there before, and nobody
    /// else's record has it either, as far as [`redact_text`](Hook::redact_text) finds it. Records of what was changed can be read by
    /// everybody who may read the conversation.
    pub hides_changes: bool,
    /// A refused stop in the same words as the last one is fed back as well, until `max_stop_refusals`. Without this it is taken
    /// for no progress, and overruled.
    pub repeats_refusals: bool,
    /// Of the points that it implements, only these. For a hook whose options say where it works.
    pub only: Option<Points>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            on_failure: None,
            timeout: None,
            tools: Vec::new(),
            main_agent_only: false,
            durable: false,
            max_tokens: None,
            priority: 0,
            release: Release::AtOnce,
            logged: Vec::new(),
            reminders: Vec::new(),
            redacts_arguments: false,
            hides_changes: false,
            repeats_refusals: false,
            only: None,
        }
    }
}

impl Settings {
    /// By stable names, for a digest. What only records have is not in it: a turn is not another for that.
    pub(crate) fn stable(&self) -> serde_json::Value {
        serde_json::json!({
            "on_failure": self.on_failure.map(|policy| policy == OnFailure::Block),
            "timeout": self.timeout,
            "tools": self.tools,
            "main_agent_only": self.main_agent_only,
            "durable": self.durable,
            "max_tokens": self.max_tokens,
            "priority": self.priority,
            "on_accept": self.release == Release::OnAccept,
            "redacts_arguments": self.redacts_arguments,
            "only": self.only.map(|points| points.iter().map(Point::name).collect::<Vec<_>>()),
        })
    }
}

pub(crate) enum Code {
    Hook(Arc<dyn DynHook>),
    Group(Parallel),
}

/// A hook as an agent holds it: code, name, settings, points. Cheap to clone.
#[derive(Clone)]
pub struct HookEntry {
    pub(crate) name: Text,
    pub(crate) settings: Arc<Settings>,
    pub(crate) code: Arc<Code>,
    points: Points,
    /// `settings.tools`, compiled.
    tools: Arc<[wildmatch::WildMatch]>,
    /// Whether its transformer answers later.
    transforms_later: bool,
    /// Where it comes from, if a configuration made it: its `use`, and the digest of its options.
    configured: Option<Arc<(Text, Text)>>,
}

impl HookEntry {
    /// The limit where none is set.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

    pub(crate) fn of_group(name: Text, group: Parallel, point: Point) -> Self {
        let points = Points::default().set(point, true);
        Self {
            name,
            settings: Arc::default(),
            code: Arc::new(Code::Group(group)),
            points,
            tools: Arc::new([]),
            transforms_later: false,
            configured: None,
        }
    }

    /// Unique in an agent.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As they are in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The points it runs at: of those that it implements, all or the ones it was narrowed to.
    pub fn points(&self) -> Points {
        self.points
    }

    /// Says that a configuration made this hook: `used` is what its `use` says, and `options` are its options as written. The
    /// first and a digest of the second are recorded with each turn. A turn is carried on only by an agent that has its
    /// blocking hooks under the same name and `use`; other options are told as a change.
    pub fn configured(mut self, used: impl Into<Text>, options: &serde_json::Value) -> Self {
        self.configured = Some(Arc::new((used.into(), crate::digest::of(options))));
        self
    }

    /// What `use` says of it, if a configuration made it.
    pub fn configured_use(&self) -> Option<&Text> {
        self.configured.as_ref().map(|configured| &configured.0)
    }

    /// What `use` says of it in a configuration; `code` for a hook that a program made.
    pub(crate) fn used(&self) -> Text {
        self.configured.as_ref().map_or_else(|| "code".into(), |configured| configured.0.clone())
    }

    /// The digest of its options, if a configuration made it.
    pub(crate) fn options_digest(&self) -> Option<&Text> {
        self.configured.as_ref().map(|configured| &configured.1)
    }

    /// What its failure means at `point`. Transformers always block: what they did not let through is not told.
    pub fn failure_policy(&self, point: Point) -> OnFailure {
        match point {
            Point::Stream => OnFailure::Block,
            _ => self.settings.on_failure.unwrap_or(point.default_on_failure()),
        }
    }

    /// The same in words, for people: what becomes of the turn or the call when this hook fails at `point`.
    pub fn failure_in_words(&self, point: Point) -> &'static str {
        match (self.failure_policy(point), point) {
            (_, Point::Background | Point::OnLogged) => "it is tried again, then parked",
            (OnFailure::Ignore, Point::OnStop) => "ignored: nobody judges in its place, and the turn may end",
            (OnFailure::Ignore, Point::BeforeCompaction) => "ignored: the summary is made without it",
            (OnFailure::Ignore, _) => "ignored: the turn goes on without it",
            (OnFailure::Block, Point::BeforeTool | Point::WrapToolCall | Point::AfterTool) => {
                "the call ends with an error result"
            }
            (OnFailure::Block, Point::BeforeCompaction) => {
                "no summary is made now; after three times none of these turns"
            }
            (OnFailure::Block, Point::OnEnded) => "it is told, and no more: the turn is over",
            (OnFailure::Block, _) => "the turn ends failed",
        }
    }

    /// Whether a failure at `point` is ignored: one that [must block](HookFailure::must_block) never is.
    pub(crate) fn ignores(&self, point: Point, failure: &HookFailure) -> bool {
        self.failure_policy(point) == OnFailure::Ignore && !failure.must_block()
    }

    pub(crate) fn time_limit(&self) -> Duration {
        self.settings.timeout.unwrap_or(Self::DEFAULT_TIMEOUT)
    }

    /// Whether its transformer answers later.
    pub(crate) fn transforms_later(&self) -> bool {
        self.transforms_later && self.points.contains(Point::Stream)
    }

    /// The code of a single hook; a group has its own way to run.
    pub(crate) fn hook(&self) -> Option<&dyn DynHook> {
        match &*self.code {
            Code::Hook(hook) => Some(&**hook),
            Code::Group(_) => None,
        }
    }

    /// The types of events that `on_logged` is given; none if the hook does not run there.
    pub(crate) fn logged_types(&self) -> Vec<Text> {
        match self.points.contains(Point::OnLogged) {
            false => Vec::new(),
            true if self.settings.logged.is_empty() => vec!["suspension".into(), "turn_ended".into()],
            true => self.settings.logged.clone(),
        }
    }

    pub(crate) fn matches_tool(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|glob| glob.matches(tool))
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self.points = narrowed(self.points, &self.settings);
        self.tools = compiled(&self.settings);
        self
    }
}

impl<H: Hook> From<H> for HookEntry {
    fn from(hook: H) -> Self {
        let (name, settings) = (hook.name().into(), Arc::new(hook.settings()));
        let points = narrowed(DynHook::points(&hook), &settings);
        let tools = compiled(&settings);
        let transforms_later = points.contains(Point::Stream) && hook.async_transformer().is_some();
        let code = Arc::new(Code::Hook(Arc::new(hook)));
        Self { name, settings, points, tools, code, transforms_later, configured: None }
    }
}

fn compiled(settings: &Settings) -> Arc<[wildmatch::WildMatch]> {
    settings.tools.iter().map(|glob| wildmatch::WildMatch::new(glob)).collect()
}

fn narrowed(points: Points, settings: &Settings) -> Points {
    settings.only.map_or(points, |only| points.intersection(only))
}

impl fmt::Debug for HookEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookEntry").field("name", &self.name).field("points", &self.points).finish_non_exhaustive()
    }
}

/// Settings from outside: `MyHook.named("strict").timeout(…)`.
pub trait HookExt: Into<HookEntry> {
    /// Under another name.
    fn named(self, name: impl Into<Text>) -> HookEntry {
        let mut entry = self.into();
        entry.name = name.into();
        entry
    }
    /// What its failure means, at every point but the stream.
    fn on_failure(self, on_failure: OnFailure) -> HookEntry {
        self.into().with(|settings| settings.on_failure = Some(on_failure))
    }
    /// How long one run may take.
    fn timeout(self, timeout: Duration) -> HookEntry {
        self.into().with(|settings| settings.timeout = Some(timeout))
    }
    /// Only for tools whose name matches one of these globs.
    fn for_tools<G: Into<String>>(self, globs: impl IntoIterator<Item = G>) -> HookEntry {
        let globs = globs.into_iter().map(Into::into).collect();
        self.into().with(|settings| settings.tools = globs)
    }
    /// Not in sub-agents.
    fn main_agent_only(self) -> HookEntry {
        self.into().with(|settings| settings.main_agent_only = true)
    }
    /// What it injects joins the log.
    fn durable(self) -> HookEntry {
        self.into().with(|settings| settings.durable = true)
    }
    /// Left out, which its record says, lowest priority first, when there is no room for at most so many tokens.
    fn sheddable(self, max_tokens: u32, priority: i32) -> HookEntry {
        self.into().with(|settings| {
            settings.max_tokens = Some(max_tokens);
            settings.priority = priority;
        })
    }
    /// Of the points that it implements, only these. Settings that concern none of them are dropped: they would be refused as idle.
    fn only_at(self, points: impl IntoIterator<Item = Point>) -> HookEntry {
        let points = points.into_iter().collect();
        let entry = self.into().with(|settings| settings.only = Some(points));
        let left = entry.points();
        let at = |wanted: &[Point]| wanted.iter().any(|point| left.contains(*point));
        let (injects_early, injects) = (at(&[Point::BeforeAgent, Point::OnConversation]), at(&[Point::BeforeModel]));
        let (at_tools, judges) =
            (at(&[Point::BeforeTool, Point::WrapToolCall, Point::AfterTool]), at(&[Point::AfterModel]));
        entry.with(|settings| {
            settings.durable &= injects_early;
            settings.max_tokens = settings.max_tokens.filter(|_| injects_early || injects);
            if !at_tools && !settings.redacts_arguments {
                settings.tools.clear();
            }
            if !judges {
                settings.release = Release::default();
            }
        })
    }
    /// Holds the stream until every guard has accepted.
    fn release_on_accept(self) -> HookEntry {
        self.into().with(|settings| settings.release = Release::OnAccept)
    }
    /// What it takes out is not in records of what hooks changed.
    fn hides_changes(self) -> HookEntry {
        self.into().with(|settings| settings.hides_changes = true)
    }
    /// Which log events `on_logged` is given, by their `type` in JSON.
    fn for_logged<T: Into<Text>>(self, types: impl IntoIterator<Item = T>) -> HookEntry {
        let types = types.into_iter().map(Into::into).collect();
        self.into().with(|settings| settings.logged = types)
    }
    /// Reminds `on_logged` of a question without an answer when so many percent of its time have passed.
    fn reminders(self, percents: impl IntoIterator<Item = u8>) -> HookEntry {
        let percents = percents.into_iter().collect();
        self.into().with(|settings| settings.reminders = percents)
    }
}

impl<E: Into<HookEntry>> HookExt for E {}

/// `my_crate::hooks::RateLimit<T>` is `rate_limit`.
pub(super) fn snake_case(type_name: &str) -> String {
    let path = type_name.split('<').next().unwrap_or(type_name);
    let short = path.rsplit("::").next().unwrap_or(path);
    let mut name = String::with_capacity(short.len() + 4);
    for (index, ch) in short.chars().enumerate() {
        if ch.is_uppercase() && index > 0 {
            name.push('_');
        }
        name.extend(ch.to_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_named_after_its_type() {
        assert_eq!(snake_case("a::hooks::RateLimit<alloc::string::String>"), "rate_limit");
        assert_eq!(snake_case("Polite"), "polite");
    }

    #[test]
    fn a_hook_can_be_narrowed_to_some_of_its_points() {
        struct Both;
        impl Hook for Both {
            async fn on_ended(&self, _: &crate::TurnReport) -> Result<(), crate::BoxError> {
                Ok(())
            }
            async fn background(&self, _: &crate::hook::BackgroundContext) -> Result<(), crate::BoxError> {
                Ok(())
            }
        }
        assert!(HookEntry::from(Both).points().iter().eq([Point::Background, Point::OnEnded]));
        let entry = Both.only_at([Point::OnEnded, Point::OnStop]);
        assert!(entry.points().iter().eq([Point::OnEnded]), "a point that it does not implement is not won");
    }

    #[test]
    fn settings_from_outside_win() {
        struct Quiet;
        impl Hook for Quiet {}
        let entry = Quiet.named("loud").timeout(Duration::from_secs(1)).for_tools(["write_*"]);
        assert_eq!(entry.name(), "loud");
        assert_eq!(entry.time_limit(), Duration::from_secs(1));
        assert!(entry.matches_tool("write_file") && !entry.matches_tool("read_file"));
    }
}

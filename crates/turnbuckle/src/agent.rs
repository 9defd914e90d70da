//! An agent: an immutable definition, validated when it is built.

mod build;
mod build_error;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use wildmatch::WildMatch;

pub use crate::agent_parts::{AgentParts, HookPart, MissingPart};
pub use build::AgentBuilder;
pub use build_error::{BuildError, NamedBy};

use crate::BoxError;
use crate::cache_break::SegmentMark;
use crate::context::plan::{Retention, ToolFacts};
use crate::context::reducer::Reducer;
use crate::context::reducers;
use crate::cut::{Factor, Recovery};
use crate::event::StandingBasis;
use crate::hook::{HookEntry, OnFailure, Point};
use crate::id::{CallId, NameMap};
use crate::json_schema::JsonSchema;
use crate::limits::Limits;
use crate::message::{Reply, Text, ToolCall};
use crate::model::{Model, ModelError, Request, SUMMARY_AGENT, Sink};
use crate::output_schema::OutputSchema;
use crate::store::{JobKind, JobSelector, SideStore};
use crate::tool::{AllowCalls, Approval, Definition, Effect, Executor, Preview, Spec, Tool};

/// Name, model, system prompt, tools, hooks, limits. Cheap to clone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use turnbuckle::{Agent, models::Script};
/// let agent = Agent::builder("greeter", Script::says(["Hello!"])).build()?;
/// let ended = agent.run("hi").await?;
/// assert_eq!(ended.text(), "Hello!");
/// # Ok::<(), turnbuckle::BoxError>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Agent(Arc<Inner>);

struct Inner {
    name: Text,
    /// The name by which people choose the model.
    model_choice: Text,
    model: Arc<dyn Model>,
    system: Text,
    definitions: Arc<[Definition]>,
    /// Tokens of system prompt and tools, which are in every context.
    fixed_tokens: u64,
    /// Hashes and sizes of the tools and of the system prompt.
    fixed: [SegmentMark; 2],
    tools: NameMap<Text, CompiledTool>,
    hooks: Vec<HookEntry>,
    chains: Chains,
    /// What makes contexts smaller, in order.
    reducers: Arc<[Arc<dyn Reducer>]>,
    /// What makes summaries; `None`: the agent's own model.
    summary_model: Option<Arc<dyn Model>>,
    /// How long that may take.
    summary_timeout: Duration,
    /// What is said of tools' results beside what the tools say.
    retentions: Retentions,
    limits: Limits,
    /// Rules that allow calls without asking.
    allow: Option<Arc<dyn AllowCalls>>,
    /// What every answer must look like.
    schema: Option<OutputSchema>,
    /// Of everything that shapes a turn: says whether a revived turn meets the configuration it began under.
    digest: Text,
    /// What is recorded with each turn, so that another process knows whether it may carry the turn on.
    parts: Arc<AgentParts>,
    /// Whether it is only a name in the place of an agent that this process does not have.
    is_stand_in: bool,
}

/// How long making a summary may take, unless the agent says otherwise.
const SUMMARY_TIMEOUT: Duration = Duration::from_secs(120);

/// A tool with its compiled schema.
pub(crate) struct CompiledTool {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) schema: JsonSchema,
    /// Whether a person must allow each call: the tool says so, or the agent's builder.
    pub(crate) approval: Approval,
    /// What a standing approval of a call is bound to.
    pub(crate) standing: Arc<StandingBasis>,
}

impl CompiledTool {
    /// What is wrong with the arguments, for the model to read.
    pub(crate) fn complaint(&self, arguments: &Value) -> Option<String> {
        if let Value::String(raw) = arguments {
            let start: String = raw.chars().take(200).collect();
            return Some(format!("the arguments are not a JSON object: {start}"));
        }
        let complaint = self.schema.complaint(arguments)?;
        Some(format!("the arguments do not fit the tool's schema: {complaint}"))
    }
}

/// The hooks of each point, in order.
struct Chains([Box<[HookEntry]>; Point::ALL.len()]);

impl Chains {
    fn of(hooks: &[HookEntry]) -> Self {
        Self(Point::ALL.map(|point| hooks.iter().filter(|entry| entry.points().contains(point)).cloned().collect()))
    }
}

impl Agent {
    /// Begins a definition.
    pub fn builder(name: impl Into<Text>, model: impl Model) -> AgentBuilder {
        AgentBuilder::new(name.into(), Arc::new(model))
    }

    /// The agent's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn shared_name(&self) -> &Text {
        &self.0.name
    }

    /// The model that it asks.
    pub fn model(&self) -> &Arc<dyn Model> {
        &self.0.model
    }

    pub(crate) fn system(&self) -> &Text {
        &self.0.system
    }

    /// What models are told of its tools.
    pub fn tools(&self) -> &Arc<[Definition]> {
        &self.0.definitions
    }

    /// What one of its tools is: its effect, for a wrap that must know whether it may run it again.
    pub fn spec(&self, tool: &str) -> Option<&Spec> {
        self.tool(tool).map(|compiled| compiled.tool.spec())
    }

    /// What a call would change, as its tool says: see [`Tool::preview`](crate::tool::Tool::preview). `None` if the agent has no
    /// such tool.
    pub async fn preview(&self, call: &CallId, tool: &str, arguments: Arc<Value>) -> Result<Option<Preview>, BoxError> {
        let Some(compiled) = self.tool(tool) else { return Ok(None) };
        let call = ToolCall { call: call.clone(), name: tool.into(), arguments };
        compiled.tool.preview(&call).await
    }

    /// Whether a call of this tool waits for an approval, unless a hook or a standing approval gives it. Rules of
    /// `[access] approve` are not looked at.
    pub fn needs_approval(&self, tool: &str) -> bool {
        self.tool(tool).is_some_and(|compiled| compiled.approval == crate::tool::Approval::Required)
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&CompiledTool> {
        self.0.tools.get(name)
    }

    /// Its hooks, in order.
    pub fn hooks(&self) -> &[HookEntry] {
        &self.0.hooks
    }

    /// The hooks that implement a point, in order.
    pub(crate) fn hooks_at(&self, point: Point) -> &[HookEntry] {
        &self.0.chains.0[point as usize]
    }

    /// The hooks that run after a turn.
    fn post_turn_hooks(&self) -> impl Iterator<Item = &HookEntry> {
        self.hooks_at(Point::OnEnded).iter().chain(self.hooks_at(Point::Background))
    }

    /// The hooks whose work comes from the outbox.
    fn job_hooks(&self) -> impl Iterator<Item = &HookEntry> {
        self.post_turn_hooks().chain(self.hooks_at(Point::OnLogged))
    }

    /// Whether log events are given to an `on_logged` hook, here or by the agent that this one stands in for.
    pub(crate) fn delivers(&self) -> bool {
        let of_another = || self.parts().hooks.iter().any(|hook| !hook.logged.is_empty());
        !self.hooks_at(Point::OnLogged).is_empty() || (self.is_stand_in() && of_another())
    }

    /// How long the hooks that run after a turn may take together.
    pub(crate) fn time_for_jobs(&self) -> Duration {
        self.post_turn_hooks().map(HookEntry::time_limit).fold(Duration::ZERO, Duration::saturating_add)
    }

    /// How long one of them may take.
    pub(crate) fn time_for_a_job(&self) -> Duration {
        let summary = self.wants_summaries().then_some(self.summary_timeout());
        self.job_hooks().map(HookEntry::time_limit).chain(summary).max().unwrap_or_default()
    }

    /// The jobs that its hooks do.
    pub(crate) fn job_selectors(&self) -> Vec<JobSelector> {
        let select = |point, kind| {
            let hooks = self.hooks_at(point).iter();
            hooks.map(move |entry| JobSelector {
                hook: entry.name.clone(),
                used: entry.configured_use().cloned(),
                kind,
            })
        };
        let post_turn = select(Point::OnEnded, JobKind::Ended).chain(select(Point::Background, JobKind::Background));
        let summary = self.wants_summaries().then(|| JobSelector {
            hook: SUMMARY_AGENT.into(),
            used: None,
            kind: JobKind::Summary,
        });
        post_turn.chain(select(Point::OnLogged, JobKind::Logged)).chain(summary).collect()
    }

    /// The sub-agent of this name, its own or one of theirs.
    pub(crate) fn sub_agent(&self, name: &str) -> Option<&Self> {
        let mut inside = self.sub_agents();
        inside.find_map(|agent| if agent.name() == name { Some(agent) } else { agent.sub_agent(name) })
    }

    /// Whether a hook redacts arguments of calls.
    pub(crate) fn redacts_arguments(&self) -> bool {
        self.hooks().iter().any(|entry| entry.settings().redacts_arguments)
    }

    /// What its hooks, and those of its sub-agents, keep beside the store.
    pub(crate) fn side_stores(&self) -> Vec<Arc<dyn SideStore>> {
        let own = self.hooks().iter().filter_map(|entry| entry.hook()?.side_store());
        own.chain(self.sub_agents().flat_map(Self::side_stores)).collect()
    }

    fn sub_agents(&self) -> impl Iterator<Item = &Self> {
        self.0.tools.values().filter_map(|compiled| compiled.tool.spec().sub_agent.as_ref())
    }

    /// Whether it or a sub-agent has hooks whose work comes from the outbox.
    pub(crate) fn does_jobs(&self) -> bool {
        self.job_hooks().next().is_some() || self.wants_summaries() || self.sub_agents().any(Self::does_jobs)
    }

    /// Its limits.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Tokens of system prompt and tools, which are in every context: estimated once, because they never change.
    pub fn fixed_tokens(&self) -> u64 {
        self.0.fixed_tokens
    }

    /// Hashes and sizes of the tools and of the system prompt, which are the same in every request.
    pub(crate) fn fixed(&self) -> [SegmentMark; 2] {
        self.0.fixed
    }

    /// Estimated tokens left for history and the turn itself, where estimates are corrected by `factor`. A turn keeps the limits
    /// it began with, so they are given.
    pub(crate) fn history_capacity(&self, limits: &Limits, factor: Factor) -> u64 {
        factor.room(limits.without_reserve()).saturating_sub(self.fixed_tokens()).max(1)
    }

    /// Tokens that history and open turn are reduced to once they are beyond [`history_capacity`](Self::history_capacity), so
    /// that the whole context is down to 60 % of what it may hold. Something is left even if system prompt and tools take more.
    pub(crate) fn history_target(&self, limits: &Limits, factor: Factor) -> u64 {
        let whole = factor.room(limits.without_reserve()) / 5 * 3;
        whole.saturating_sub(self.fixed_tokens()).max(self.history_capacity(limits, factor) / 4)
    }

    /// Estimated tokens of the end of a log that is read first: about what contexts show.
    pub(crate) fn read_ahead(&self) -> u64 {
        self.history_capacity(self.limits(), Factor::ONE)
    }

    /// Tokens of ended turns that are kept in memory while no cut is recorded: more than a context may show, so that reducers
    /// see what they decide about.
    pub(crate) fn window_capacity(&self) -> u64 {
        self.read_ahead().saturating_mul(2)
    }

    /// What makes its contexts smaller, in order.
    pub fn reducers(&self) -> impl Iterator<Item = &dyn Reducer> + Clone {
        self.0.reducers.iter().map(|reducer| &**reducer)
    }

    /// Whether its contexts show summaries, and it has a model that makes them.
    pub(crate) fn wants_summaries(&self) -> bool {
        self.reducers().any(Reducer::wants_summaries) && self.summary_model().summarises()
    }

    /// The model that makes summaries.
    pub(crate) fn summary_model(&self) -> &Arc<dyn Model> {
        self.0.summary_model.as_ref().unwrap_or(&self.0.model)
    }

    /// How long making one may take.
    pub fn summary_timeout(&self) -> Duration {
        self.0.summary_timeout
    }

    /// What reducers must know about a tool. Results of one that the agent does not have any more are like those of any other
    /// that cannot be called again.
    pub(crate) fn tool_facts(&self, tool: &str) -> ToolFacts {
        let Some(spec) = self.spec(tool) else {
            let retention = self.0.retentions.of(tool, Retention::default());
            return ToolFacts { retention, recovery: Recovery::AskUser };
        };
        let may_repeat =
            spec.executor == Executor::Server && matches!(spec.effect, Effect::Pure) && spec.sub_agent.is_none();
        let recovery = if may_repeat { Recovery::CallAgain } else { Recovery::AskUser };
        ToolFacts { retention: self.0.retentions.of(tool, spec.retention), recovery }
    }

    pub(crate) fn output_schema(&self) -> Option<&OutputSchema> {
        self.0.schema.as_ref()
    }

    pub(crate) fn model_choice(&self) -> &Text {
        &self.0.model_choice
    }

    pub(crate) fn digest(&self) -> &Text {
        &self.0.digest
    }

    /// What it is made of, as it is recorded with each turn.
    pub fn parts(&self) -> &Arc<AgentParts> {
        &self.0.parts
    }

    /// Stands in for an agent that this process does not have: it can end a turn of that agent and write down answers, and
    /// nothing else. It has no tools and no hooks.
    pub(crate) fn stand_in(name: Text, parts: Arc<AgentParts>) -> Self {
        Self(Arc::new(Inner {
            name,
            model_choice: NoModel.name().into(),
            model: Arc::new(NoModel),
            system: "".into(),
            definitions: Arc::new([]),
            fixed_tokens: 0,
            fixed: Default::default(),
            tools: NameMap::default(),
            hooks: Vec::new(),
            chains: Chains::of(&[]),
            reducers: reducers::standard(),
            summary_model: None,
            summary_timeout: SUMMARY_TIMEOUT,
            retentions: Retentions::default(),
            limits: Limits::default().for_window(None),
            allow: None,
            schema: None,
            digest: "".into(),
            parts,
            is_stand_in: true,
        }))
    }

    /// No agent at all, for those who only look and answer. No turn has this name.
    pub(crate) fn nobody() -> Self {
        Self::stand_in("".into(), Arc::default())
    }

    /// The rule that allows a call which would need approval, if there is one.
    pub(crate) fn allows(&self, tool: &str, arguments: &Value) -> Option<Text> {
        self.0.allow.as_ref().and_then(|rules| rules.allows(tool, arguments))
    }

    /// See [`stand_in`](Self::stand_in).
    pub(crate) fn is_stand_in(&self) -> bool {
        self.0.is_stand_in
    }

    /// The same agent under these access rules: what they require of its calls is recorded with its turns.
    pub(crate) fn under(self, access: &dyn crate::access::Access) -> Self {
        let approvals = self.parts().rules_of(access);
        if approvals == self.parts().approvals {
            return self;
        }
        let mut agent = self.remade(self.hooks().to_vec(), self.model().clone(), Arc::clone);
        if let Some(inner) = Arc::get_mut(&mut agent.0) {
            inner.digest = crate::digest::of(&serde_json::json!([inner.digest, approvals]));
            inner.parts = Arc::new(AgentParts { approvals, ..(*inner.parts).clone() });
        }
        agent
    }

    /// As a sub-agent: without the hooks that are for the main agent only.
    pub(crate) fn as_sub_agent(&self) -> Self {
        let hooks: Vec<_> = self.hooks().iter().filter(|entry| !entry.settings().main_agent_only).cloned().collect();
        if hooks.len() == self.hooks().len() {
            return self.clone();
        }
        self.remade(hooks, self.model().clone(), Arc::clone)
    }

    /// The same definition with other hooks, another model and tools in place of tools. The digest stays: a
    /// turn of one can be revived with the other.
    pub(crate) fn remade(
        &self,
        hooks: Vec<HookEntry>,
        model: Arc<dyn Model>,
        tool: impl Fn(&Arc<dyn Tool>) -> Arc<dyn Tool>,
    ) -> Self {
        let inner = &self.0;
        let equip = |compiled: &CompiledTool| CompiledTool {
            tool: tool(&compiled.tool),
            schema: compiled.schema.clone(),
            approval: compiled.approval,
            standing: compiled.standing.clone(),
        };
        let parts = Arc::new(AgentParts { hooks: hook_parts(&hooks), ..(*inner.parts).clone() });
        Self(Arc::new(Inner {
            name: inner.name.clone(),
            model,
            system: inner.system.clone(),
            definitions: inner.definitions.clone(),
            model_choice: inner.model_choice.clone(),
            fixed_tokens: inner.fixed_tokens,
            fixed: inner.fixed,
            tools: inner.tools.iter().map(|(name, compiled)| (name.clone(), equip(compiled))).collect(),
            chains: Chains::of(&hooks),
            reducers: inner.reducers.clone(),
            summary_model: inner.summary_model.clone(),
            summary_timeout: inner.summary_timeout,
            retentions: inner.retentions.clone(),
            hooks,
            limits: inner.limits.clone(),
            allow: inner.allow.clone(),
            schema: inner.schema.clone(),
            digest: inner.digest.clone(),
            parts,
            is_stand_in: inner.is_stand_in,
        }))
    }
}

/// Hooks as they are recorded with a turn.
/// Which results may be shortened, where that is said beside the tools.
#[derive(Clone, Debug, Default)]
struct Retentions {
    /// Of the tools that a pattern matches. The first match counts.
    by_tool: Vec<(WildMatch, Retention)>,
    /// Of tools that say nothing themselves.
    default: Option<Retention>,
}

impl Retentions {
    /// That of `tool`, which asks for `own` itself.
    fn of(&self, tool: &str, own: Retention) -> Retention {
        let said = self.by_tool.iter().find(|(tools, _)| tools.matches(tool)).map(|(_, retention)| *retention);
        let default = self.default.filter(|_| own == Retention::default());
        said.or(default).unwrap_or(own)
    }
}

fn hook_parts(hooks: &[HookEntry]) -> Vec<HookPart> {
    let part = |entry: &HookEntry| HookPart {
        name: entry.name.clone(),
        used: entry.used(),
        blocks: entry.points().iter().any(|point| entry.failure_policy(point) == OnFailure::Block),
        options: entry.options_digest().cloned(),
        on_ended: entry.points().contains(Point::OnEnded),
        logged: entry.logged_types(),
        reminders: entry.settings().reminders.clone(),
    };
    hooks.iter().map(part).collect()
}

/// The model of an agent that stands in for another. It is never asked: no turn runs with it.
struct NoModel;

impl Model for NoModel {
    fn name(&self) -> &str {
        "none"
    }
    fn stream<'a>(&'a self, _: &'a Request, _: &'a mut dyn Sink) -> crate::BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(std::future::ready(Err(ModelError::Cancelled)))
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<_> = self.0.definitions.iter().map(|tool| &tool.name).collect();
        f.debug_struct("Agent")
            .field("name", &self.0.name)
            .field("model", &self.0.model.name())
            .field("tools", &tools)
            .field("hooks", &self.0.hooks)
            .finish_non_exhaustive()
    }
}

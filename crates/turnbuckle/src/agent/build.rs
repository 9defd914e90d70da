//! Building an agent: everything that can be wrong with a definition is an error here, naming the culprit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use wildmatch::WildMatch;

use super::build_error::{BuildError, NamedBy};
use super::{Agent, AgentParts, Chains, CompiledTool, Inner, Retentions, hook_parts};
use crate::context::reducer::Reducer;
use crate::context::{prefix, reducers, tokens};
use crate::event::{Executor, StandingBasis};
use crate::hook::{HookEntry, Point, Release};
use crate::id::NameMap;
use crate::json_schema::JsonSchema;
use crate::limits::Limits;
use crate::message::Text;
use crate::model::Model;
use crate::output_schema::OutputSchema;
use crate::tool::{AllowCalls, Approval, Definition, Retention, Spec, Tool};

/// A definition under way.
#[must_use = "a definition does nothing until it is built"]
pub struct AgentBuilder {
    name: Text,
    model: Arc<dyn Model>,
    system: Text,
    tools: Vec<Arc<dyn Tool>>,
    hooks: Vec<HookEntry>,
    approve: Vec<String>,
    allow: Option<Arc<dyn AllowCalls>>,
    /// `None`: the standard ones.
    reducers: Option<Vec<Arc<dyn Reducer>>>,
    summary_model: Option<Arc<dyn Model>>,
    summary_timeout: Duration,
    retentions: Retentions,
    limits: Limits,
    schema: Option<Value>,
    model_choice: Option<Text>,
    started_with: Vec<String>,
}

impl AgentBuilder {
    pub(super) fn new(name: Text, model: Arc<dyn Model>) -> Self {
        Self {
            name,
            model,
            system: "".into(),
            tools: Vec::new(),
            hooks: Vec::new(),
            approve: Vec::new(),
            allow: None,
            reducers: None,
            summary_model: None,
            summary_timeout: super::SUMMARY_TIMEOUT,
            retentions: Retentions::default(),
            limits: Limits::default(),
            schema: None,
            model_choice: None,
            started_with: Vec::new(),
        }
    }

    /// The system prompt.
    pub fn system(mut self, system: impl Into<Text>) -> Self {
        self.system = system.into();
        self
    }

    /// The name by which people choose the model, if it is not the model's own. It is stored with an open
    /// turn, for the process that carries it on, so there must be no secret in it.
    pub fn model_choice(mut self, name: impl Into<Text>) -> Self {
        self.model_choice = Some(name.into());
        self
    }

    /// The options of the command line that lead to this agent. They are stored with an open turn and shown to people
    /// who carry it on, so there must be no secret among them.
    pub fn started_with<O: Into<String>>(mut self, options: impl IntoIterator<Item = O>) -> Self {
        self.started_with = options.into_iter().map(Into::into).collect();
        self
    }

    /// What every answer must look like: a JSON schema. No tools are offered then; see [`OutputSchema`].
    pub fn schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// One more tool.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// One more tool that is shared already.
    pub fn shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds a hook behind those before it.
    ///
    /// # Order
    ///
    /// Hooks of a point run in the order in which they were added. Of two wraps the one that was added first is the outer
    /// one: it sees the request first and the reply last.
    ///
    /// ```text
    /// .hook(a).hook(b)
    ///
    /// before_model     a, then b
    /// wrap_model_call  a( b( model ) )      a: before, b: before, model, b: after, a: after
    /// after_model      a, then b
    /// ```
    ///
    /// So `.hook(retry).hook(cache)` looks into the cache again with every retry, and `.hook(cache).hook(retry)` retries
    /// only what the cache does not have. Stop hooks are the exception: they run concurrently, and all finish.
    #[doc(alias = "with_lifecycle")]
    pub fn hook(mut self, hook: impl Into<HookEntry>) -> Self {
        self.hooks.push(hook.into());
        self
    }

    /// Calls of these tools need a person's approval, whatever the tool says of itself.
    pub fn approve<N: Into<String>>(mut self, tools: impl IntoIterator<Item = N>) -> Self {
        self.approve.extend(tools.into_iter().map(Into::into));
        self
    }

    /// Calls that need approval and that these rules allow run without being asked about. The log names the acting user as the
    /// one who approved them. Calls that the system makes are asked about all the same.
    pub fn allow(mut self, rules: Arc<dyn AllowCalls>) -> Self {
        self.allow = Some(rules);
        self
    }

    /// What makes contexts smaller that have become too large, behind those that were given before. An agent that is given none
    /// has [`ToolResults`](reducers::ToolResults) and [`Window`](reducers::Window); one that is given any has only those.
    pub fn reducer(mut self, reducer: impl Reducer) -> Self {
        self.reducers.get_or_insert_default().push(Arc::new(reducer));
        self
    }

    /// Exactly these reducers, in this order, in the place of those that were given before. Without any, a context that becomes
    /// too large fails its turn.
    pub fn reducers(mut self, reducers: impl IntoIterator<Item = Arc<dyn Reducer>>) -> Self {
        self.reducers = Some(reducers.into_iter().collect());
        self
    }

    /// The model that makes summaries of old turns, if not the agent's own: a cheaper one.
    pub fn summary_model(mut self, model: impl Model) -> Self {
        self.summary_model = Some(Arc::new(model));
        self
    }

    /// How long making a summary may take. Default: 2 minutes.
    pub fn summary_timeout(mut self, most: Duration) -> Self {
        self.summary_timeout = most;
        self
    }

    /// Which results of the tools that match `tools` may be shortened, whatever the tools say themselves. `*` and `?` match any
    /// text and any character; of several patterns that match, the first one counts.
    ///
    /// ```
    /// use turnbuckle::{Agent, models::Script};
    /// use turnbuckle::tool::Retention;
    /// let agent = Agent::builder("a", Script::says(["hi"]))
    ///     .retention("read_*", Retention::Last(3))
    ///     .default_retention(Retention::Turns(1));
    /// # agent.build().unwrap();
    /// ```
    pub fn retention(mut self, tools: &str, retention: Retention) -> Self {
        self.retentions.by_tool.push((WildMatch::new(tools), retention));
        self
    }

    /// The same for tools that say nothing themselves. Default: [`Retention::default`].
    pub fn default_retention(mut self, retention: Retention) -> Self {
        self.retentions.default = Some(retention);
        self
    }

    /// Limits of a turn.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The agent, or what is wrong with it.
    pub fn build(mut self) -> Result<Agent, BuildError> {
        check_name("agent", &self.name)?;
        // Of the limits as they were given: a window that becomes known makes no other agent of it.
        let given = self.limits.clone();
        self.limits = given.clone().for_window(self.model.context_window());
        if self.limits.context_tokens < given.context_tokens {
            let (given, cut) = (given.context_tokens, self.limits.context_tokens);
            tracing::warn!(agent = &*self.name, given, cut, "context_tokens is more than 75 % of the model's window");
        }
        self.check_limits()?;
        let tools = self.equip()?;
        self.check_hooks()?;
        let schema = self.schema.clone().map(OutputSchema::new).transpose();
        let schema = schema.map_err(|source| BuildError::BadAnswerSchema { source })?;
        let definitions: Arc<[Definition]> = self.tools.iter().map(|tool| tool.spec().definition.clone()).collect();
        let offered: u64 = definitions.iter().map(tokens::of_definition).sum();
        Ok(Agent(Arc::new(Inner {
            digest: self.digest(&given),
            parts: Arc::new(self.parts()),
            is_stand_in: false,
            fixed_tokens: tokens::of_text(&self.system) + offered,
            fixed: [prefix::of_tools(&definitions), prefix::of_system(&self.system)],
            chains: Chains::of(&self.hooks),
            reducers: self.reducers.map_or_else(reducers::standard, Arc::from),
            summary_model: self.summary_model,
            summary_timeout: self.summary_timeout,
            retentions: self.retentions,
            name: self.name,
            model_choice: self.model_choice.unwrap_or_else(|| self.model.name().into()),
            model: self.model,
            system: self.system,
            definitions,
            tools,
            hooks: self.hooks,
            limits: self.limits,
            allow: self.allow,
            schema,
        })))
    }

    fn check_limits(&self) -> Result<(), BuildError> {
        let Limits { context_tokens: context, injection_reserve: reserve, .. } = self.limits;
        if reserve >= context {
            return Err(BuildError::ReserveTooLarge { reserve, context });
        }
        if self.limits.max_model_calls == 0 {
            return Err(BuildError::ZeroLimit { limit: "max_model_calls" });
        }
        if self.limits.turn_timeout.is_zero() {
            return Err(BuildError::ZeroLimit { limit: "turn_timeout" });
        }
        if self.limits.approval_timeout.is_zero() {
            return Err(BuildError::ZeroLimit { limit: "approval_timeout" });
        }
        Ok(())
    }

    fn equip(&self) -> Result<NameMap<Text, CompiledTool>, BuildError> {
        let mut tools = NameMap::default();
        for tool in &self.tools {
            let spec = tool.spec();
            let name = spec.definition.name.clone();
            check_name("tool", &name)?;
            let approval = self.approval_of(spec);
            check_approval(spec, approval)?;
            check_standing_by(spec)?;
            let schema = JsonSchema::compile_object(&spec.definition.parameters)
                .map_err(|source| BuildError::BadSchema { tool: name.clone(), source })?;
            let definition = crate::digest::of(&serde_json::json!(spec.definition));
            let standing = Arc::new(StandingBasis {
                agent: Some(self.name.clone()),
                definition,
                arguments: spec.standing_by.clone(),
            });
            let compiled = CompiledTool { tool: tool.clone(), schema, approval, standing };
            if tools.insert(name.clone(), compiled).is_some() {
                return Err(BuildError::DuplicateTool { tool: name });
            }
        }
        for tool in &self.approve {
            if !tools.contains_key(tool.as_str()) {
                return Err(self.unknown_tool(NamedBy::Approve, tool));
            }
        }
        Ok(tools)
    }

    fn check_hooks(&self) -> Result<(), BuildError> {
        let mut names = BTreeSet::new();
        for (index, entry) in self.hooks.iter().enumerate() {
            let members = match &*entry.code {
                crate::hook::Code::Group(group) => group.members.iter().map(|member| &member.name).collect(),
                crate::hook::Code::Hook(_) => vec![&entry.name],
            };
            for name in members {
                if name.trim().is_empty() {
                    return Err(BuildError::NamelessHook { place: index + 1 });
                }
                if !names.insert(name) {
                    return Err(BuildError::DuplicateHook { hook: name.clone() });
                }
            }
            self.check_settings(entry)?;
        }
        Ok(())
    }

    /// Nothing a hook's settings can say is accepted and then ignored.
    fn check_settings(&self, entry: &HookEntry) -> Result<(), BuildError> {
        let (settings, points) = (entry.settings(), entry.points());
        let at = |wanted: &[Point]| wanted.iter().any(|point| points.contains(*point));
        let idle = |setting| Err(BuildError::IdleSetting { hook: entry.name.clone(), setting });
        if settings.release == Release::OnAccept && !at(&[Point::AfterModel]) {
            return idle("release = on_accept");
        }
        if settings.durable && !at(&[Point::BeforeAgent, Point::OnConversation]) {
            return idle("durable");
        }
        if settings.max_tokens.is_some() && !at(&[Point::BeforeAgent, Point::BeforeModel, Point::OnConversation]) {
            return idle("max_tokens");
        }
        let at_tools = at(&[Point::BeforeTool, Point::WrapToolCall, Point::AfterTool]) || settings.redacts_arguments;
        if !settings.tools.is_empty() && !at_tools {
            return idle("tools");
        }
        let is_asked = entry.logged_types().iter().any(|kind| **kind == *"suspension");
        if !settings.reminders.is_empty() && !is_asked {
            return idle("reminders");
        }
        for glob in &settings.tools {
            let known = |tool: &Arc<dyn Tool>| wildmatch::WildMatch::new(glob).matches(&tool.spec().definition.name);
            if !self.tools.iter().any(known) {
                return Err(self.unknown_tool(NamedBy::Hook(entry.name.clone()), glob));
            }
        }
        let reserve = self.limits.injection_reserve;
        match settings.max_tokens {
            Some(tokens) if u64::from(tokens) > reserve => {
                Err(BuildError::HookBeyondReserve { hook: entry.name.clone(), tokens, reserve })
            }
            _ => Ok(()),
        }
    }

    fn unknown_tool(&self, named_by: NamedBy, tool: &str) -> BuildError {
        let known = self.tools.iter().map(|tool| tool.spec().definition.name.clone()).collect();
        BuildError::UnknownTool { named_by, tool: tool.to_owned(), known }
    }

    /// What is recorded with each turn.
    fn parts(&self) -> AgentParts {
        let specs = || self.tools.iter().map(|tool| tool.spec());
        let name = |spec: &Spec| spec.definition.name.clone();
        let tools = specs().filter(|spec| spec.origin.is_none()).map(name).collect();
        let offered = specs().filter(|spec| spec.origin.is_some()).map(name).collect();
        let inside = self.tools.iter().filter_map(|tool| tool.spec().sub_agent.as_ref());
        let sub_agents = inside.map(|agent| (agent.shared_name().clone(), agent.parts().clone())).collect();
        let (approve, hooks) = (Some(self.gated_tools()), hook_parts(&self.hooks));
        let (approvals, started_with) = (Vec::new(), self.started_with.clone());
        AgentParts { tools, offered, approve, approvals, hooks, sub_agents, started_with }
    }

    /// The tools whose calls need approval, because they say so or because the agent does.
    fn gated_tools(&self) -> Vec<Text> {
        let specs = self.tools.iter().map(|tool| tool.spec());
        specs
            .filter(|spec| self.approval_of(spec) == Approval::Required)
            .map(|spec| spec.definition.name.clone())
            .collect()
    }

    fn approval_of(&self, spec: &Spec) -> Approval {
        let is_asked_for = self.approve.iter().any(|approve| **approve == *spec.definition.name);
        if is_asked_for { Approval::Required } else { spec.approval }
    }

    /// Of the configuration as it is written, by stable names: another version of the program has the same, also if it
    /// describes its tools in other words.
    fn digest(&self, limits: &Limits) -> Text {
        let AgentParts { tools, offered, approve, hooks, .. } = self.parts();
        let approve: Vec<Text> = approve.into_iter().flatten().filter(|tool| !offered.contains(tool)).collect();
        let parts = serde_json::json!([
            self.name,
            self.model_choice.as_deref().unwrap_or(self.model.name()),
            self.system,
            tools,
            approve,
            hooks,
            self.hooks.iter().map(|entry| entry.settings().stable()).collect::<Vec<_>>(),
            limits,
            self.schema
        ]);
        crate::digest::of(&parts)
    }
}

impl std::fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentBuilder").field("name", &self.name).field("hooks", &self.hooks).finish_non_exhaustive()
    }
}

fn check_name(what: &'static str, name: &Text) -> Result<(), BuildError> {
    match crate::ConversationId::parse(name) {
        Ok(_) => Ok(()),
        Err(_) => Err(BuildError::BadName { what, name: name.clone() }),
    }
}

fn check_approval(spec: &Spec, approval: Approval) -> Result<(), BuildError> {
    let can_be_gated = matches!(spec.executor, Executor::Server | Executor::Client);
    if approval == Approval::Required && !can_be_gated {
        return Err(BuildError::IllegalGate { tool: spec.definition.name.clone(), executor: spec.executor });
    }
    Ok(())
}

fn check_standing_by(spec: &Spec) -> Result<(), BuildError> {
    let known = spec.definition.parameters.get("properties").and_then(serde_json::Value::as_object);
    let names_argument = |pointer: &Text| {
        let first = pointer.strip_prefix('/')?.split('/').next()?.replace("~1", "/").replace("~0", "~");
        known.is_none_or(|known| known.contains_key(&first)).then_some(())
    };
    match spec.standing_by.iter().find(|pointer| names_argument(pointer).is_none()) {
        Some(pointer) => {
            Err(BuildError::BadStandingBy { tool: spec.definition.name.clone(), pointer: pointer.clone() })
        }
        None => Ok(()),
    }
}

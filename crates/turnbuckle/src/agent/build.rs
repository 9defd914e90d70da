//! Building an agent: everything that can be wrong with a definition is an error here, naming the culprit.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::{Agent, AgentParts, Chains, CompiledTool, Inner, hook_parts};
use crate::context::reducer::Reducer;
use crate::context::{reducers, tokens};
use crate::event::{Executor, StandingBasis};
use crate::hook::{HookEntry, Point, Release};
use crate::id::NameMap;
use crate::json_schema::{JsonSchema, SchemaError};
use crate::limits::Limits;
use crate::message::Text;
use crate::model::Model;
use crate::output_schema::OutputSchema;
use crate::tool::{AllowCalls, Approval, Definition, Spec, Tool};

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
    reducers: Vec<Arc<dyn Reducer>>,
    limits: Limits,
    schema: Option<Value>,
    model_choice: Option<Text>,
    started_with: Vec<String>,
}

/// What is wrong with a definition.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A name that cannot be one.
    #[error("{what} name {name:?} is not made of 1 to 64 of A-Z a-z 0-9 _ -")]
    BadName {
        /// What is named so: an agent or a tool.
        what: &'static str,
        /// The name that was given.
        name: Text,
    },
    /// Two hooks, or members of groups, with one name.
    #[error("two hooks are named {hook:?}")]
    DuplicateHook {
        /// The name that was given.
        hook: Text,
    },
    /// A hook with an empty name.
    #[error("hook number {place} has an empty name")]
    NamelessHook {
        /// Counted from 1.
        place: usize,
    },
    /// Two tools with one name.
    #[error("two tools are named {tool:?}")]
    DuplicateTool {
        /// The name that was given.
        tool: Text,
    },
    /// A name or a glob that means no tool of the agent.
    #[error("{named_by} names {tool:?}, and the agent has no such tool; it has: {}", list(.known))]
    UnknownTool {
        /// What names it.
        named_by: NamedBy,
        /// The name or glob.
        tool: String,
        /// The tools that the agent has.
        known: Vec<Text>,
    },
    /// Approval is required for a tool that a person or the provider runs.
    #[error(
        "tool {tool:?} requires approval, and is run by the {executor:?}: only server and client tools can be gated"
    )]
    IllegalGate {
        /// The tool's name.
        tool: Text,
        /// Who runs the tool.
        executor: Executor,
    },
    /// A pointer by which a standing approval would know a call again names no argument of the tool: the approval would cover
    /// every call.
    #[error(
        "`standing_by` of tool {tool:?} has {pointer:?}, which is not the JSON pointer of an argument, like \"/path\""
    )]
    BadStandingBy {
        /// The tool.
        tool: Text,
        /// The pointer that was given.
        pointer: Text,
    },
    /// The parameters of a tool are not the JSON schema of an object.
    #[error("the parameters of tool {tool:?} are not the JSON schema of an object: {}", .source.problem())]
    BadSchema {
        /// The tool's name.
        tool: Text,
        /// What is wrong with it.
        source: SchemaError,
    },
    /// What answers must look like is no schema.
    #[error("the schema of the agent's answers cannot be used")]
    BadAnswerSchema {
        /// What is wrong.
        #[source]
        source: SchemaError,
    },
    /// No room is left for history.
    #[error("injection_reserve ({reserve}) must be smaller than context_tokens ({context})")]
    ReserveTooLarge {
        /// What hooks may add.
        reserve: u64,
        /// What a context may hold.
        context: u64,
    },
    /// A hook that may add more than all hooks together.
    #[error("hook {hook:?} may add {tokens} tokens, and injection_reserve is {reserve}")]
    HookBeyondReserve {
        /// The hook's name.
        hook: Text,
        /// Its `max_tokens`.
        tokens: u32,
        /// What hooks may add, together.
        reserve: u64,
    },
    /// A limit that allows nothing.
    #[error("{limit} must not be 0")]
    ZeroLimit {
        /// The limit's name in the configuration.
        limit: &'static str,
    },
    /// A setting that would be ignored.
    #[error("hook {hook:?} has {setting}, and implements no point that it applies to")]
    IdleSetting {
        /// The hook's name.
        hook: Text,
        /// The setting.
        setting: &'static str,
    },
}

/// What names a tool that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NamedBy {
    /// The list given to [`AgentBuilder::approve`].
    Approve,
    /// The `tools` of this hook.
    Hook(Text),
}

impl fmt::Display for NamedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Approve => f.write_str("approve"),
            Self::Hook(hook) => write!(f, "hook {hook:?}"),
        }
    }
}

fn list(known: &[Text]) -> String {
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
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
            reducers: Vec::new(),
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
        self.reducers.push(Arc::new(reducer));
        self
    }

    /// Limits of a turn.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The agent, or what is wrong with it.
    pub fn build(self) -> Result<Agent, BuildError> {
        check_name("agent", &self.name)?;
        self.check_limits()?;
        let tools = self.equip()?;
        self.check_hooks()?;
        let schema = self.schema.clone().map(OutputSchema::new).transpose();
        let schema = schema.map_err(|source| BuildError::BadAnswerSchema { source })?;
        let definitions: Arc<[Definition]> = self.tools.iter().map(|tool| tool.spec().definition.clone()).collect();
        let offered: u64 = definitions.iter().map(tokens::of_definition).sum();
        Ok(Agent(Arc::new(Inner {
            digest: self.digest(&definitions),
            parts: Arc::new(self.parts(&definitions)),
            is_stand_in: false,
            fixed_tokens: tokens::of_text(&self.system) + offered,
            chains: Chains::of(&self.hooks),
            reducers: if self.reducers.is_empty() { reducers::standard() } else { self.reducers.into() },
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
    fn parts(&self, definitions: &[Definition]) -> AgentParts {
        let tools = definitions.iter().map(|tool| tool.name.clone()).collect();
        let inside = self.tools.iter().filter_map(|tool| tool.spec().sub_agent.as_ref());
        let sub_agents = inside.map(|agent| (agent.shared_name().clone(), agent.parts().clone())).collect();
        let (approve, hooks) = (Some(self.gated_tools()), hook_parts(&self.hooks));
        AgentParts { tools, approve, approvals: Vec::new(), hooks, sub_agents, started_with: self.started_with.clone() }
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
    fn digest(&self, definitions: &[Definition]) -> Text {
        let parts = serde_json::json!([
            self.name,
            self.model_choice.as_deref().unwrap_or(self.model.name()),
            self.system,
            definitions.iter().map(|tool| &tool.name).collect::<Vec<_>>(),
            self.gated_tools(),
            self.parts(definitions).hooks,
            self.hooks.iter().map(|entry| entry.settings().stable()).collect::<Vec<_>>(),
            self.limits,
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

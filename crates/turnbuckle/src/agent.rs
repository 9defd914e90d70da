//! An agent: an immutable definition, validated when it is built.

mod build;
mod limits;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

pub use build::{AgentBuilder, BuildError};
pub use limits::Limits;

use crate::conversation::{Conversations, RunError, TurnReport};
use crate::hook::{HookEntry, Point};
use crate::message::{Content, Text};
use crate::model::Model;
use crate::output_schema::OutputSchema;
use crate::scope::Scope;
use crate::store::{JobKind, JobSelector};
use crate::tool::{Definition, Spec, Tool};

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
    /// Tokens of system prompt and tools, which stand in every context.
    standing: u64,
    tools: HashMap<Text, CompiledTool>,
    hooks: Vec<HookEntry>,
    chains: Chains,
    limits: Limits,
    /// What every answer must look like.
    shape: Option<OutputSchema>,
    /// Of everything that shapes a turn: says whether a revived turn meets the configuration it began under.
    digest: Text,
}

/// A tool with its compiled schema.
pub(crate) struct CompiledTool {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) validator: jsonschema::Validator,
}

impl CompiledTool {
    /// What is wrong with the arguments, for the model to read.
    pub(crate) fn complaint(&self, arguments: &Value) -> Option<String> {
        if let Value::String(raw) = arguments {
            let start: String = raw.chars().take(200).collect();
            return Some(format!("the arguments are not a JSON object: {start}"));
        }
        if self.validator.is_valid(arguments) {
            return None;
        }
        let errors = self.validator.iter_errors(arguments).take(3);
        let lines: Vec<String> =
            errors.map(|error| format!("{} (at {:?})", error, error.instance_path().as_str())).collect();
        Some(format!("the arguments do not fit the tool's schema: {}", lines.join("; ")))
    }
}

/// The hooks of each point, in order. Empty for a point that nobody minds.
#[derive(Default)]
pub(crate) struct Chains {
    pub(crate) on_conversation: Vec<HookEntry>,
    pub(crate) before_agent: Vec<HookEntry>,
    pub(crate) before_model: Vec<HookEntry>,
    pub(crate) wrap_model_call: Vec<HookEntry>,
    pub(crate) stream: Vec<HookEntry>,
    pub(crate) after_model: Vec<HookEntry>,
    pub(crate) before_tool: Vec<HookEntry>,
    pub(crate) wrap_tool_call: Vec<HookEntry>,
    pub(crate) after_tool: Vec<HookEntry>,
    pub(crate) on_stop: Vec<HookEntry>,
    pub(crate) after_agent: Vec<HookEntry>,
    pub(crate) background: Vec<HookEntry>,
    pub(crate) on_ended: Vec<HookEntry>,
    pub(crate) on_event: Vec<HookEntry>,
}

impl Chains {
    fn of(hooks: &[HookEntry]) -> Self {
        let at = |point| hooks.iter().filter(|entry| entry.points().contains(point)).cloned().collect();
        Self {
            on_conversation: at(Point::OnConversation),
            before_agent: at(Point::BeforeAgent),
            before_model: at(Point::BeforeModel),
            wrap_model_call: at(Point::WrapModelCall),
            stream: at(Point::Stream),
            after_model: at(Point::AfterModel),
            before_tool: at(Point::BeforeTool),
            wrap_tool_call: at(Point::WrapToolCall),
            after_tool: at(Point::AfterTool),
            on_stop: at(Point::OnStop),
            after_agent: at(Point::AfterAgent),
            background: at(Point::Background),
            on_ended: at(Point::OnEnded),
            on_event: at(Point::OnEvent),
        }
    }
}

impl Agent {
    /// Begins a definition.
    pub fn builder(name: impl Into<Text>, model: impl Model) -> AgentBuilder {
        AgentBuilder::new(name.into(), Arc::new(model))
    }

    /// One turn of a conversation of its own, in memory. A whole program.
    ///
    /// A turn that has to wait for a person cannot go on here: use [`Conversations`] for that.
    pub async fn run(&self, message: impl Into<Content>) -> Result<TurnReport, RunError> {
        Conversations::in_memory(self.clone()).run(message, Scope::local()).await
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn shared_name(&self) -> &Text {
        &self.0.name
    }

    pub(crate) fn model(&self) -> &Arc<dyn Model> {
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

    pub(crate) fn tool(&self, name: &str) -> Option<&CompiledTool> {
        self.0.tools.get(name)
    }

    /// Its hooks, in order.
    pub fn hooks(&self) -> &[HookEntry] {
        &self.0.hooks
    }

    pub(crate) fn chains(&self) -> &Chains {
        &self.0.chains
    }

    /// How long the hooks that run after a turn may take together.
    pub(crate) fn time_for_jobs(&self) -> Duration {
        let Chains { on_ended, background, .. } = self.chains();
        on_ended.iter().chain(background).map(HookEntry::time_limit).fold(Duration::ZERO, Duration::saturating_add)
    }

    /// How long one of them may take.
    pub(crate) fn time_for_a_job(&self) -> Duration {
        let Chains { on_ended, background, .. } = self.chains();
        on_ended.iter().chain(background).map(HookEntry::time_limit).max().unwrap_or_default()
    }

    /// The jobs that its hooks do.
    pub(crate) fn job_hooks(&self) -> Vec<JobSelector> {
        let Chains { on_ended, background, .. } = self.chains();
        let hooks = |chain: &[HookEntry], kind| -> Vec<JobSelector> {
            chain.iter().map(|entry| JobSelector { hook: entry.name.clone(), kind }).collect()
        };
        [hooks(on_ended, JobKind::Ended), hooks(background, JobKind::Background)].concat()
    }

    /// The sub-agent of this name, its own or one of theirs.
    pub(crate) fn sub_agent(&self, name: &str) -> Option<&Self> {
        let mut inside = self.sub_agents();
        inside.find_map(|agent| if agent.name() == name { Some(agent) } else { agent.sub_agent(name) })
    }

    fn sub_agents(&self) -> impl Iterator<Item = &Self> {
        self.0.tools.values().filter_map(|compiled| compiled.tool.agent())
    }

    /// Whether it or a sub-agent has hooks that work when a turn is over.
    pub(crate) fn does_jobs(&self) -> bool {
        let Chains { on_ended, background, .. } = self.chains();
        !on_ended.is_empty() || !background.is_empty() || self.sub_agents().any(Self::does_jobs)
    }

    /// Its limits.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Tokens of system prompt and tools: estimated once, since they never change.
    pub(crate) fn standing(&self) -> u64 {
        self.0.standing
    }

    /// Tokens left for history and the turn itself, within these limits: those of an agent, or of a turn that began under others.
    pub(crate) fn room_within(&self, limits: &Limits) -> u64 {
        limits.room().saturating_sub(self.standing()).max(1)
    }

    pub(crate) fn room(&self) -> u64 {
        self.room_within(self.limits())
    }

    pub(crate) fn shape(&self) -> Option<&OutputSchema> {
        self.0.shape.as_ref()
    }

    pub(crate) fn model_choice(&self) -> &Text {
        &self.0.model_choice
    }

    pub(crate) fn digest(&self) -> &Text {
        &self.0.digest
    }

    /// As a sub-agent: without the hooks that are for the main agent only.
    pub(crate) fn as_sub_agent(&self) -> Self {
        let hooks: Vec<_> = self.hooks().iter().filter(|entry| !entry.settings().main_agent_only).cloned().collect();
        if hooks.len() == self.hooks().len() {
            return self.clone();
        }
        self.remade(hooks, self.model().clone(), Arc::clone)
    }

    /// The same definition with other hooks, another model and tools in place of tools. The digest stays: it is the same
    /// agent to whoever revives a turn of it.
    pub(crate) fn remade(
        &self,
        hooks: Vec<HookEntry>,
        model: Arc<dyn Model>,
        tool: impl Fn(&Arc<dyn Tool>) -> Arc<dyn Tool>,
    ) -> Self {
        let inner = &self.0;
        let equip = |compiled: &CompiledTool| CompiledTool {
            tool: tool(&compiled.tool),
            validator: compiled.validator.clone(),
        };
        Self(Arc::new(Inner {
            name: inner.name.clone(),
            model,
            system: inner.system.clone(),
            definitions: inner.definitions.clone(),
            model_choice: inner.model_choice.clone(),
            standing: inner.standing,
            tools: inner.tools.iter().map(|(name, compiled)| (name.clone(), equip(compiled))).collect(),
            chains: Chains::of(&hooks),
            hooks,
            limits: inner.limits.clone(),
            shape: inner.shape.clone(),
            digest: inner.digest.clone(),
        }))
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

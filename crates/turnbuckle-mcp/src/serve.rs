//! In the other direction: conversations as an MCP server, so that other agents can start, continue and watch them.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use turnbuckle::access::Action;
use turnbuckle::conversation::{PendingCall, ResolveError, SendError, TurnHandle};
use turnbuckle::event::Question;
use turnbuckle::feed::ConversationState;
use turnbuckle::feed::projection::Pending;
use turnbuckle::id::{CallId, Ids, SystemIds};
use turnbuckle::store::{Answer, ConversationStatus, StoreError};
use turnbuckle::{BoxError, ConversationId, Conversations, Scope, TurnStatus};

/// Events that `watch` gives at the most, the newest.
const MOST_EVENTS: usize = 100;

/// How long a request waits for the end of a turn if it does not say. Many clients give a request a minute and then take it back, which would
/// cancel the turn.
const WAITS: u64 = 50;
/// The longest that a request may ask to wait.
const LONGEST_WAIT: u64 = 3600;
/// How often `watch` looks: the turn may be another process's.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Whether clients may approve calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approvals {
    /// They may answer questions and deny calls. The default: the client is usually a model, and a model must not approve what it asked for.
    #[default]
    Refused,
    /// They may approve calls, too.
    Allowed,
}

/// Conversations as an MCP server.
pub struct ConversationServer {
    conversations: Conversations,
    /// Who acts; the log says that they came over MCP.
    scope: Scope,
    approvals: Approvals,
    /// What a request that is over before its answer means.
    on_abandoned: OnAbandoned,
    new_ids: NewIds,
    ids: Arc<dyn Ids>,
}

/// What becomes of the turn that a request waits for, when the client does not wait any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnAbandoned {
    /// It is cancelled: the client took its request back.
    Cancel,
    /// It goes on: the connection was lost, and nobody knows why.
    GoOn,
}

/// Who makes the ids of new conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewIds {
    /// Clients may choose them: a message to an id that is free begins a conversation.
    Chosen,
    /// The server alone. A message to an id that the client may not read is refused whether or not there is such a conversation,
    /// so that nobody finds out about ids of others.
    Made,
}

/// What a request came to.
enum Refusal {
    /// The arguments cannot be used.
    Arguments(serde_json::Error),
    /// There is a result, which says what went wrong.
    Told(String),
}

impl ConversationServer {
    /// The conversations as `scope` may see them.
    pub fn new(conversations: Conversations, scope: Scope, approvals: Approvals) -> Self {
        Self {
            conversations,
            scope: scope.via("mcp"),
            approvals,
            on_abandoned: OnAbandoned::Cancel,
            new_ids: NewIds::Chosen,
            ids: Arc::new(SystemIds::default()),
        }
    }

    /// As one request over HTTP needs it.
    pub(crate) fn for_request(mut self, new_ids: NewIds) -> Self {
        (self.on_abandoned, self.new_ids) = (OnAbandoned::GoOn, new_ids);
        self
    }

    /// Serves one client, until it goes away.
    pub async fn serve<R, W>(self, read: R, write: W) -> Result<(), BoxError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let running = ServiceExt::serve(self, (read, write)).await?;
        running.waiting().await?;
        Ok(())
    }

    async fn answer(
        &self,
        tool: &str,
        arguments: Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<Value, Refusal> {
        match tool {
            "send" => self.send(read(arguments)?, context).await,
            "list" => self.list().await,
            "watch" => self.watch(read(arguments)?, context).await,
            "pending" => self.pending().await,
            "answer" => self.give(read(arguments)?, context).await,
            "cancel" => self.cancel(read(arguments)?).await,
            other => Err(Refusal::Told(format!("there is no tool named {other:?}"))),
        }
    }

    async fn send(&self, given: Message, context: &RequestContext<RoleServer>) -> Result<Value, Refusal> {
        let id = match given.conversation {
            Some(id) => {
                let id = parsed(&id)?;
                if self.new_ids == NewIds::Made {
                    self.conversations.may(&id, Action::Say, &self.scope).await.map_err(told_send)?;
                }
                id
            }
            None => self.ids.mint("c_").into(),
        };
        let wait = waited(given.wait)?;
        let handle = self.conversations.send(&id, given.message, self.scope.clone()).await.map_err(told_send)?;
        self.follow(&id, handle, wait, context).await
    }

    /// Waits until the turn has ended or asks something, or for as long as the client wants to wait; then the turn goes on. A client that takes its
    /// request back cancels the turn; one that goes away does not. Over HTTP the two cannot be told apart, and `cancel` is there for those who mean it.
    async fn follow(
        &self,
        id: &ConversationId,
        handle: TurnHandle,
        longest: Duration,
        context: &RequestContext<RoleServer>,
    ) -> Result<Value, Refusal> {
        let turn = handle.turn().clone();
        let mut wait = std::pin::pin!(handle.wait());
        let status = tokio::select! {
            biased;
            status = &mut wait => status,
            () = tokio::time::sleep(longest) => {
                let next = "the turn goes on: `watch` with `wait` tells what becomes of it, `cancel` ends it";
                return Ok(json!({ "conversation": id, "turn": turn, "state": "running", "next": next }));
            }
            () = context.ct.cancelled() => {
                if self.on_abandoned == OnAbandoned::GoOn {
                    return Err(Refusal::Told("the turn goes on; `watch` tells what became of it".to_owned()));
                }
                self.conversations.cancel(id, self.scope.clone()).await.map_err(told_send)?;
                wait.await
            }
        };
        Ok(match status.map_err(|error| Refusal::Told(error.to_string()))? {
            TurnStatus::Ended(report) => json!({
                "conversation": id, "turn": report.turn, "state": "ended", "outcome": report.outcome,
                "reason": report.reason, "answer": report.text(),
            }),
            TurnStatus::Waiting(pending) => json!({
                "conversation": id, "state": "waiting",
                "pending": pending.iter().map(asked).collect::<Vec<_>>(),
            }),
        })
    }

    async fn list(&self) -> Result<Value, Refusal> {
        let found = self.conversations.list(self.scope.clone()).await.map_err(told_store)?;
        let one = |one: &turnbuckle::store::ConversationSummary| json!({ "conversation": one.id, "opened": one.opened, "written": one.written, "state": state(one.status) });
        Ok(json!({ "conversations": found.iter().take(MOST_EVENTS).map(one).collect::<Vec<_>>() }))
    }

    async fn watch(&self, given: Watch, context: &RequestContext<RoleServer>) -> Result<Value, Refusal> {
        let id = parsed(&given.conversation)?;
        let longest = waited(Some(given.wait.unwrap_or_default()))?;
        let rests = async {
            loop {
                let state = self.conversations.snapshot(&id, self.scope.clone()).await.map_err(told_send)?.state;
                if matches!(state, ConversationState::Idle | ConversationState::Waiting) {
                    return Ok(());
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            biased;
            // A turn is not cancelled because nobody watches it any more.
            () = context.ct.cancelled() => {}
            rests = rests => rests?,
            () = tokio::time::sleep(longest) => {}
        }
        let log = self.conversations.log(&id, self.scope.clone()).await.map_err(told_send)?;
        let new: Vec<_> = log.iter().filter(|event| event.seq > given.since.unwrap_or_default()).collect();
        let left_out = new.len().saturating_sub(MOST_EVENTS);
        let snapshot = self.conversations.snapshot(&id, self.scope.clone()).await.map_err(told_send)?;
        Ok(json!({ "conversation": id, "state": snapshot.state, "left_out": left_out, "events": new[left_out..] }))
    }

    async fn pending(&self) -> Result<Value, Refusal> {
        let found = self.conversations.pending(self.scope.clone()).await.map_err(told_store)?;
        let one = |one: &PendingCall| {
            let mut asked = asked(&one.pending);
            asked["conversation"] = json!(one.conversation);
            asked
        };
        Ok(json!({ "pending": found.iter().take(MOST_EVENTS).map(one).collect::<Vec<_>>() }))
    }

    async fn give(&self, given: Give, context: &RequestContext<RoleServer>) -> Result<Value, Refusal> {
        let (id, call) = (parsed(&given.conversation)?, CallId::from(given.call.as_str()));
        let wait = waited(given.wait)?;
        let answer = match (given.approve, given.answer) {
            (Some(true), None) if self.approvals == Approvals::Refused => {
                let text = "calls cannot be approved over MCP unless the person who started this server allowed it \
                            (`--allow-approvals`); they can be denied";
                return Err(Refusal::Told(text.to_owned()));
            }
            (Some(true), None) => Answer::Approve,
            (Some(false), None) => Answer::Deny(given.reason.map(Into::into)),
            (None, Some(answer)) => {
                // Of a call that waits for approval a result would be a way around it.
                if self.approvals == Approvals::Refused && !self.is_question(&id, &call).await? {
                    return Err(Refusal::Told("this call is no question that takes an answer".to_owned()));
                }
                Answer::Result(answer)
            }
            _ => return Err(Refusal::Told("give either `approve` or `answer`".to_owned())),
        };
        let digest = given.digest.map(Into::into);
        let resolved = self.conversations.resolve(&id, &call, answer, digest, self.scope.clone()).await;
        let handle = resolved.map_err(|error: ResolveError| Refusal::Told(error.to_string()))?;
        if let Some(left) = handle.left() {
            return Ok(json!({ "conversation": id, "state": "left", "reason": left.to_string() }));
        }
        if handle.is_remote() {
            return Ok(json!({ "conversation": id, "state": "handed over" }));
        }
        self.follow(&id, handle, wait, context).await
    }

    /// Whether the call asks a person something, other than to be approved.
    async fn is_question(&self, id: &ConversationId, call: &CallId) -> Result<bool, Refusal> {
        let found = self.conversations.pending(self.scope.clone()).await.map_err(told_store)?;
        let of_call = found.iter().find(|one| one.conversation == *id && one.pending.call == *call);
        Ok(of_call.is_some_and(|one| matches!(one.pending.question, Question::Elicitation { .. })))
    }

    async fn cancel(&self, given: Named) -> Result<Value, Refusal> {
        let id = parsed(&given.conversation)?;
        self.conversations.cancel(&id, self.scope.clone()).await.map_err(told_send)?;
        Ok(json!({ "conversation": id, "state": "cancelled" }))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    message: String,
    conversation: Option<String>,
    wait: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Watch {
    conversation: String,
    since: Option<u64>,
    wait: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    conversation: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Give {
    conversation: String,
    call: String,
    approve: Option<bool>,
    reason: Option<String>,
    digest: Option<String>,
    answer: Option<Value>,
    wait: Option<u64>,
}

/// How long a request waits.
fn waited(seconds: Option<u64>) -> Result<Duration, Refusal> {
    let seconds = seconds.unwrap_or(WAITS);
    match seconds <= LONGEST_WAIT {
        true => Ok(Duration::from_secs(seconds)),
        false => Err(Refusal::Told(format!("`wait` is at most {LONGEST_WAIT} seconds"))),
    }
}

fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, Refusal> {
    serde_json::from_value(arguments).map_err(Refusal::Arguments)
}

fn parsed(id: &str) -> Result<ConversationId, Refusal> {
    ConversationId::parse(id).map_err(|error| Refusal::Told(error.to_string()))
}

fn told_send(error: SendError) -> Refusal {
    Refusal::Told(error.to_string())
}

fn told_store(error: StoreError) -> Refusal {
    Refusal::Told(error.to_string())
}

fn state(status: ConversationStatus) -> &'static str {
    match status {
        ConversationStatus::Idle => "idle",
        ConversationStatus::Waiting { .. } => "waiting",
        ConversationStatus::Running => "open",
    }
}

fn asked(pending: &Pending) -> Value {
    json!({ "call": pending.call, "question": pending.question, "expires": pending.expires })
}

/// A tool with these arguments.
fn tool(name: &'static str, description: &'static str, properties: Value, required: &[&str]) -> Tool {
    let schema =
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let Value::Object(schema) = schema else { return Tool::new(name, description, serde_json::Map::new()) };
    Tool::new(name, description, schema)
}

impl ServerHandler for ConversationServer {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::default();
        capabilities.tools = Some(rmcp::model::ToolsCapability::default());
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("turnbuckle", env!("CARGO_PKG_VERSION")))
            .with_instructions(format!(
                "Conversations of the agent {:?}. `send` starts or continues one and waits for its answer.",
                self.conversations.agent().name()
            ))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let text = json!({ "type": "string" });
        let seconds = |default: u64| {
            let what = format!("Seconds to wait for the end of the turn; {default} if not given.");
            json!({ "type": "integer", "minimum": 0, "maximum": LONGEST_WAIT, "description": what })
        };
        let tools = vec![
            tool(
                "send",
                "Sends a message to the agent and waits until the turn has ended or asks something. Without `conversation` a new one begins. \
                 If `wait` is over first, the state is `running` and the turn goes on: `watch` it.",
                json!({ "message": text, "conversation": text, "wait": seconds(WAITS) }),
                &["message"],
            ),
            tool("list", "The conversations that there are.", json!({}), &[]),
            tool(
                "watch",
                "What happened in a conversation, behind the event with the number `since`. With `wait` once its turn has ended or asks \
                 something.",
                json!({ "conversation": text, "since": { "type": "integer", "minimum": 0 }, "wait": seconds(0) }),
                &["conversation"],
            ),
            tool("pending", "The calls that wait for an answer.", json!({}), &[]),
            tool(
                "answer",
                "Answers a call that waits: `answer` to a question, `approve` to an approval, with the `digest` that was shown.",
                json!({ "conversation": text, "call": text, "approve": { "type": "boolean" }, "reason": text, "digest": text, "answer": {}, "wait": seconds(WAITS) }),
                &["conversation", "call"],
            ),
            tool("cancel", "Ends the turn that is open.", json!({ "conversation": text }), &["conversation"]),
        ];
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let result = match self.answer(&request.name, arguments, &context).await {
            Ok(value) => CallToolResult::structured(value),
            Err(Refusal::Arguments(error)) => return Err(ErrorData::invalid_params(error.to_string(), None)),
            Err(Refusal::Told(text)) => CallToolResult::error(vec![ContentBlock::text(text)]),
        };
        Ok(result.into())
    }
}

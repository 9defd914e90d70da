//! A worker around model calls and tools: its `next` runs what it wraps.

use std::sync::Arc;

use serde_json::{Value, json};
use turnbuckle::hook::{HookFailure, ModelNext, Point, ToolNext, WrapFailure};
use turnbuckle::message::{Reply, ToolCall};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, Turn};

use super::answer::{NextRequest, NextTool, WrapModelAnswer, WrapToolAnswer, reply, result};
use super::ask::failed;
use super::call::CallEvent;
use super::error::WorkerError;
use super::message::{NEXT_FAILED, RpcError};
use super::points::WorkerPoints;
use super::wire;

/// How often a wrap may run what it wraps.
const MOST_NEXT: u32 = 100;

/// The request with what a wrap changed of it.
fn changed(request: &Request, params: Value) -> Result<Request, String> {
    let changes: NextRequest = serde_json::from_value(params).map_err(|error| format!("`next` with {error}"))?;
    let mut request = request.clone();
    if let Some(system) = changes.system {
        request.system = system.into();
    }
    if let Some(messages) = changes.messages {
        request.messages = Arc::new(messages.into_iter().map(Into::into).collect());
    }
    if let Some(names) = changes.tools {
        if let Some(unknown) = names.iter().find(|name| !request.tools().iter().any(|tool| *tool.name == ***name)) {
            return Err(format!("{unknown:?} is none of the tools of this request; none can be added"));
        }
        request.narrow_tools(|tool| names.iter().any(|name| *tool.name == **name));
    }
    Ok(request)
}

pub(super) async fn model_call<'a>(
    points: &WorkerPoints,
    turn: &'a Turn,
    request: &'a Request,
    out: &'a mut dyn Sink,
    next: ModelNext<'a>,
) -> Result<Reply, ModelError> {
    let boxed = |error: BoxError| ModelError::Hook { hook: points.name.clone(), cause: HookFailure::from(error) };
    let own = |error: WorkerError| boxed(error.boxed());
    let hooks = points.hooks(Point::WrapModelCall).await.map_err(boxed)?;
    let hook = hooks.only(None).map_err(own)?;
    let Some(hook) = hook else { return next.run(request, out).await };
    let params = json!({"turn": wire::turn(turn), "request": wire::request(request)});
    let mut call = hooks.begin(hook, params).await.map_err(own)?;
    let (mut last, mut runs) = (None, 0);
    loop {
        match call.event().await.map_err(own)? {
            CallEvent::Answer(answer) => {
                return match hooks.read(hook, answer).map_err(own)? {
                    WrapModelAnswer::Answer { content, calls } => Ok(reply(content, calls)),
                    WrapModelAnswer::Reply {} => match last {
                        Some(Ok(reply)) => Ok(reply),
                        _ => Err(own(hooks.nonsense(hook, "\"reply\" without a `next` that gave one"))),
                    },
                };
            }
            CallEvent::Failed(error) => {
                return Err(match last {
                    Some(Err(failure)) if error.code == NEXT_FAILED => failure,
                    _ => own(failed(hook, error)),
                });
            }
            CallEvent::Progress(text) => turn.hook_progress(&points.name, text),
            CallEvent::Next(id, params) => {
                runs += 1;
                let answer = match changed(request, params) {
                    Err(why) => Err(RpcError::new(why)),
                    Ok(_) if runs > MOST_NEXT => Err(RpcError::new(format!("`next` ran {MOST_NEXT} times already"))),
                    Ok(request) => {
                        let result = tokio::select! {
                            result = next.run(&request, &mut *out) => result,
                            // The worker did not wait for it, or is gone: what it wraps is given up.
                            () = call.closed() => continue,
                        };
                        let told = match &result {
                            Ok(reply) => Ok(json!({"reply": reply})),
                            Err(error) => Err(RpcError::next_failed(error.to_string())),
                        };
                        last = Some(result);
                        told
                    }
                };
                call.respond(&id, answer).await.map_err(own)?;
            }
        }
    }
}

pub(super) async fn tool_call<'a>(
    points: &WorkerPoints,
    turn: &'a Turn,
    call: &'a ToolCall,
    next: ToolNext<'a>,
) -> Result<Output, BoxError> {
    let boxed = |error: BoxError| BoxError::from(WrapFailure(error));
    let own = |error: WorkerError| boxed(error.boxed());
    let hooks = points.hooks(Point::WrapToolCall).await.map_err(boxed)?;
    let hook = hooks.only(Some(&call.name)).map_err(own)?;
    let Some(hook) = hook else { return next.run(call).await };
    let params = json!({"turn": wire::turn(turn), "call": wire::call(call)});
    let mut asked = hooks.begin(hook, params).await.map_err(own)?;
    let (mut last, mut runs) = (None, 0);
    loop {
        match asked.event().await.map_err(own)? {
            CallEvent::Answer(answer) => {
                let WrapToolAnswer::Result { ok, content } = hooks.read(hook, answer).map_err(own)?;
                return Ok(result(ok, content));
            }
            CallEvent::Failed(error) => {
                return Err(match last {
                    Some(failure) if error.code == NEXT_FAILED => failure,
                    _ => own(failed(hook, error)),
                });
            }
            CallEvent::Progress(text) => turn.hook_progress(&points.name, text),
            CallEvent::Next(id, params) => {
                runs += 1;
                let answer = match serde_json::from_value::<NextTool>(params) {
                    Err(error) => Err(RpcError::new(format!("`next` of a tool takes no changes: {error}"))),
                    Ok(_) if runs > MOST_NEXT => Err(RpcError::new(format!("`next` ran {MOST_NEXT} times already"))),
                    Ok(NextTool {}) => {
                        let ran = tokio::select! {
                            ran = next.run(call) => ran,
                            () = asked.closed() => continue,
                        };
                        match ran {
                            // A tool that waits for someone has no result that a worker could judge.
                            Ok(output) if output.is_waiting() => return Ok(output),
                            Ok(output) => Ok(json!({"result": wire::output(&output)})),
                            Err(error) => {
                                let told = RpcError::next_failed(error.to_string());
                                last = Some(error);
                                Err(told)
                            }
                        }
                    }
                };
                asked.respond(&id, answer).await.map_err(own)?;
            }
        }
    }
}

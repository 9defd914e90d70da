//! What is checked, one promise each.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use turnbuckle::BoxFuture;
use turnbuckle::hook::Point;

use super::super::answer::complaint;
use super::super::message::{Message, NEXT_FAILED, PROTOCOL, RpcError, Served};
use super::peer::{Heard, Peer, Why};
use super::samples;
use super::{Program, Verdict};

type Check = for<'a> fn(&'a Program<'a>) -> BoxFuture<'a, Result<Verdict, Why>>;

macro_rules! checks {
    ($($promise:literal => $check:ident,)+) => {
        /// In this order.
        pub(super) const ALL: &[(&str, Check)] = &[$(($promise, |program| Box::pin($check(program)))),+];
    };
}
checks! {
    "it says which hooks it has" => begins,
    "it refuses a protocol that it does not speak" => refuses_other_protocols,
    "every hook answers, and its answer makes sense at its point" => answers_at_every_point,
    "a method that there is not is answered with an error" => answers_unknown_methods,
    "a hook that there is not is answered with an error" => answers_unknown_hooks,
    "messages that it does not know are ignored" => ignores_unknown_notifications,
    "many calls at once are each answered once" => answers_many_calls,
    "a line of a megabyte is read" => reads_long_lines,
    "a cancelled call is answered, once" => answers_cancelled_calls,
    "it ends when its stdin is closed" => ends,
    "conform_deny denies" => denies,
    "conform_fail fails its call and nothing else" => fails,
    "conform_wait is cancelled, and holds nobody up meanwhile" => waits,
    "conform_print prints, and stdout stays the protocol's" => prints,
    "conform_child runs a program, whose stdin is not the protocol's" => runs_children,
    "conform_uncalled returns no decision, which fails its call and nothing else" => returns_no_decision,
    "conform_twice runs what it wraps twice" => wraps_tools,
    "conform_pass_on passes on an answer and a failure" => wraps_models,
    "conform_hold keeps two streams apart" => transforms,
}

async fn begins(program: &Program<'_>) -> Result<Verdict, Why> {
    Peer::open(program).await.map(|_| Verdict::Kept)
}

async fn refuses_other_protocols(program: &Program<'_>) -> Result<Verdict, Why> {
    let mut peer = Peer::start(program).await?;
    match peer.request("initialize", samples::initialize(PROTOCOL + 998, program.cwd)).await? {
        Heard::Error(..) => Ok(Verdict::Kept),
        Heard::Result(answer) => Err(format!("it accepted protocol {}: {answer}", PROTOCOL + 998)),
    }
}

/// Those whose hooks are not about exact answers.
fn ordinary(peer: &Peer) -> Vec<Served> {
    peer.hooks.iter().filter(|hook| hook.name != "conform_wait").cloned().collect()
}

/// One that answers without calling back.
fn deciding(peer: &Peer) -> Option<Served> {
    let calls_back = |point| matches!(point, Point::WrapModelCall | Point::WrapToolCall);
    ordinary(peer).into_iter().find(|hook| !calls_back(hook.point))
}

const NOTHING_TO_ASK: &str = "all its hooks are wraps";

async fn answers_at_every_point(program: &Program<'_>) -> Result<Verdict, Why> {
    let mut peer = Peer::open(program).await?;
    for hook in ordinary(&peer) {
        let told = |why: String| format!("{} at {}: {why}", hook.name, hook.point);
        let heard = match hook.point {
            Point::WrapModelCall | Point::WrapToolCall => wrapped(&mut peer, &hook, Ok(())).await,
            _ => peer.request(hook.point.name(), samples::params(&hook, "hello")).await,
        };
        match heard.map_err(told)? {
            Heard::Error(code, _) if code != 0 => {}
            Heard::Error(..) => return Err(told("its error has no code".to_owned())),
            Heard::Result(answer) => {
                if let Some(why) = complaint(hook.point, answer.clone()) {
                    return Err(told(format!("{why}; the answer was {answer}")));
                }
            }
        }
    }
    Ok(Verdict::Kept)
}

/// Calls a wrap, and answers its `next` well or with a failure.
async fn wrapped(peer: &mut Peer, hook: &Served, inner: Result<(), ()>) -> Result<Heard, Why> {
    let number = peer.begin(hook.point.name(), samples::params(hook, "hello")).await?;
    for _ in 0..20 {
        match peer.hear().await? {
            Message::Answer { id, result } if id == number => {
                return Ok(match result {
                    Ok(result) => Heard::Result(result),
                    Err(error) => Heard::Error(error.code, error.message),
                });
            }
            Message::Next { id, call, .. } if call == number => {
                let result = match (inner, hook.point) {
                    (Err(()), _) => RpcError::next_failed("conform: it broke").answer_to(&id),
                    (Ok(()), Point::WrapModelCall) => {
                        json!({"jsonrpc": "2.0", "id": id, "result": {"reply": samples::reply()}})
                    }
                    (Ok(()), _) => json!({"jsonrpc": "2.0", "id": id, "result": {"result":
                        {"ok": true, "content": [{"type": "text", "text": "ran"}]}}}),
                };
                peer.send(&result).await?;
            }
            Message::Progress { call, .. } if call == number => {}
            other => return Err(format!("it said something that is not about its call: {other:?}")),
        }
    }
    Err("it called `next` 20 times and gave no answer".to_owned())
}

async fn answers_unknown_methods(program: &Program<'_>) -> Result<Verdict, Why> {
    let mut peer = Peer::open(program).await?;
    match peer.request("conform_no_such_method", json!({})).await? {
        Heard::Error(..) => Ok(Verdict::Kept),
        Heard::Result(answer) => Err(format!("it answered {answer}")),
    }
}

async fn answers_unknown_hooks(program: &Program<'_>) -> Result<Verdict, Why> {
    let mut peer = Peer::open(program).await?;
    let Some(hook) = peer.hooks.first().cloned() else { return Err("it has no hook".to_owned()) };
    let mut params = samples::params(&hook, "hello");
    params["hook"] = json!("conform_no_such_hook");
    match peer.request(hook.point.name(), params).await? {
        Heard::Error(..) => Ok(Verdict::Kept),
        Heard::Result(answer) => Err(format!("it answered {answer}")),
    }
}

/// Asks a hook, whatever it says.
async fn still_answers(peer: &mut Peer) -> Result<Verdict, Why> {
    let Some(hook) = deciding(peer) else { return Ok(Verdict::NotSeen(NOTHING_TO_ASK.to_owned())) };
    peer.request(hook.point.name(), samples::params(&hook, "hello")).await.map(|_| Verdict::Kept)
}

async fn ignores_unknown_notifications(program: &Program<'_>) -> Result<Verdict, Why> {
    let mut peer = Peer::open(program).await?;
    peer.notify("conform_added_later", json!({"x": 1})).await?;
    peer.notify("cancel", json!({"call": 999_999})).await?;
    still_answers(&mut peer).await
}

async fn answers_many_calls(program: &Program<'_>) -> Result<Verdict, Why> {
    const CALLS: usize = 50;
    let mut peer = Peer::open(program).await?;
    let Some(hook) = deciding(&peer) else { return Ok(Verdict::NotSeen(NOTHING_TO_ASK.to_owned())) };
    let mut open = BTreeSet::new();
    for call in 0..CALLS {
        let mut params = samples::params(&hook, &format!("call {call}"));
        params["stream"] = json!(call);
        open.insert(peer.begin(hook.point.name(), params).await?);
    }
    while !open.is_empty() {
        match peer.hear().await? {
            Message::Answer { id, .. } if open.remove(&id) => {}
            Message::Answer { id, .. } => return Err(format!("call {id} is answered twice, or was never made")),
            Message::Progress { call, .. } if open.contains(&call) => {}
            other => return Err(format!("it said something that is not about an open call: {other:?}")),
        }
    }
    Ok(Verdict::Kept)
}

async fn reads_long_lines(program: &Program<'_>) -> Result<Verdict, Why> {
    let mut peer = Peer::open(program).await?;
    let Some(hook) = deciding(&peer) else { return Ok(Verdict::NotSeen(NOTHING_TO_ASK.to_owned())) };
    // With what ends a line elsewhere, but not here.
    let long = "ünïcode \u{1f527} \u{85}\u{2028}\u{2029}".repeat(60_000);
    peer.request(hook.point.name(), samples::params(&hook, &long)).await.map(|_| Verdict::Kept)
}

async fn answers_cancelled_calls(program: &Program<'_>) -> Result<Verdict, Why> {
    let mut peer = Peer::open(program).await?;
    let Some(hook) = deciding(&peer) else { return Ok(Verdict::NotSeen(NOTHING_TO_ASK.to_owned())) };
    for _ in 0..5 {
        let number = peer.begin(hook.point.name(), samples::params(&hook, "hello")).await?;
        peer.notify("cancel", json!({"call": number})).await?;
        peer.answer_to(number).await?;
    }
    still_answers(&mut peer).await
}

async fn ends(program: &Program<'_>) -> Result<Verdict, Why> {
    Peer::open(program).await?.close().await.map(|()| Verdict::Kept)
}

fn lacks(name: &str) -> Verdict {
    Verdict::NotSeen(format!("it has no hook {name}"))
}

async fn denies(program: &Program<'_>) -> Result<Verdict, Why> {
    let mut peer = Peer::open(program).await?;
    let Some(hook) = peer.hook("conform_deny", Point::BeforeTool) else { return Ok(lacks("conform_deny")) };
    match peer.request("before_tool", samples::params(&hook, "hello")).await? {
        Heard::Result(answer) if answer == json!({"decision": "deny", "reason": "conform: no"}) => Ok(Verdict::Kept),
        other => Err(format!("it answered {other:?}")),
    }
}

async fn fails(program: &Program<'_>) -> Result<Verdict, Why> {
    let mut peer = Peer::open(program).await?;
    let Some(hook) = peer.hook("conform_fail", Point::BeforeAgent) else { return Ok(lacks("conform_fail")) };
    match peer.request("before_agent", samples::params(&hook, "hello")).await? {
        Heard::Error(code, message) if code != NEXT_FAILED && message.contains("conform: broken") => {}
        other => return Err(format!("it answered {other:?}")),
    }
    still_answers(&mut peer).await
}

async fn prints(program: &Program<'_>) -> Result<Verdict, Why> {
    denies_and_goes_on(program, "conform_print").await
}

async fn runs_children(program: &Program<'_>) -> Result<Verdict, Why> {
    denies_and_goes_on(program, "conform_child").await
}

async fn denies_and_goes_on(program: &Program<'_>, name: &str) -> Result<Verdict, Why> {
    let mut peer = Peer::open(program).await?;
    let Some(hook) = peer.hook(name, Point::BeforeTool) else { return Ok(lacks(name)) };
    match peer.request("before_tool", samples::params(&hook, "hello")).await? {
        Heard::Result(answer) if answer["decision"] == "deny" => still_answers(&mut peer).await,
        other => Err(format!("it answered {other:?}")),
    }
}

async fn returns_no_decision(program: &Program<'_>) -> Result<Verdict, Why> {
    let mut peer = Peer::open(program).await?;
    let Some(hook) = peer.hook("conform_uncalled", Point::BeforeTool) else { return Ok(lacks("conform_uncalled")) };
    match peer.request("before_tool", samples::params(&hook, "hello")).await? {
        Heard::Error(code, _) if code != NEXT_FAILED => still_answers(&mut peer).await,
        other => Err(format!("it answered {other:?}")),
    }
}

async fn waits(program: &Program<'_>) -> Result<Verdict, Why> {
    let mut peer = Peer::open(program).await?;
    let Some(hook) = peer.hook("conform_wait", Point::OnStop) else { return Ok(lacks("conform_wait")) };
    let waiting = peer.begin("on_stop", samples::params(&hook, "hello")).await?;
    match peer.hear().await? {
        Message::Progress { call, text } if call == waiting && text == "conform: waiting" => {}
        other => return Err(format!("it did not say that it waits, but {other:?}")),
    }
    if let Some(hook) = deciding(&peer) {
        peer.request(hook.point.name(), samples::params(&hook, "hello")).await?;
    }
    peer.notify("cancel", json!({"call": waiting})).await?;
    peer.answer_to(waiting).await.map(|_| Verdict::Kept)
}

async fn wraps_tools(program: &Program<'_>) -> Result<Verdict, Why> {
    let mut peer = Peer::open(program).await?;
    let Some(hook) = peer.hook("conform_twice", Point::WrapToolCall) else { return Ok(lacks("conform_twice")) };
    let text = |content: &Value| match content {
        Value::String(text) => text.clone(),
        parts => parts[0]["text"].as_str().unwrap_or_default().to_owned(),
    };
    match wrapped(&mut peer, &hook, Ok(())).await? {
        Heard::Result(answer) if text(&answer["content"]) == "ran, ran" => Ok(Verdict::Kept),
        other => Err(format!("it answered {other:?}")),
    }
}

async fn wraps_models(program: &Program<'_>) -> Result<Verdict, Why> {
    let mut peer = Peer::open(program).await?;
    let Some(hook) = peer.hook("conform_pass_on", Point::WrapModelCall) else { return Ok(lacks("conform_pass_on")) };
    match wrapped(&mut peer, &hook, Ok(())).await? {
        Heard::Result(answer) if answer == json!({"decision": "reply"}) => {}
        other => return Err(format!("it answered {other:?}")),
    }
    match wrapped(&mut peer, &hook, Err(())).await? {
        Heard::Error(NEXT_FAILED, _) => Ok(Verdict::Kept),
        other => Err(format!("when `next` failed it answered {other:?}, and not with the code {NEXT_FAILED}")),
    }
}

async fn transforms(program: &Program<'_>) -> Result<Verdict, Why> {
    let mut peer = Peer::open(program).await?;
    let Some(hook) = peer.hook("conform_hold", Point::Stream) else { return Ok(lacks("conform_hold")) };
    let batch = |stream: u64, chunks: Value, last: bool| {
        let mut params = samples::params(&hook, "");
        (params["stream"], params["chunks"], params["last"]) = (json!(stream), chunks, json!(last));
        params
    };
    let steps = [
        (batch(1, json!(["a", "b"]), false), ""),
        (batch(2, json!(["x"]), false), ""),
        (batch(3, json!(["gone"]), false), ""),
        (batch(1, json!(["c"]), true), "ABC"),
        (batch(2, json!([]), true), "X"),
        (batch(1, json!(["new"]), true), "NEW"),
    ];
    for (params, passed) in steps {
        match peer.request("stream", params.clone()).await? {
            Heard::Result(answer) if answer["decision"] == "pass" && answer["text"] == passed => {}
            other => return Err(format!("of {} it let {other:?} through, and not {passed:?}", params["chunks"])),
        }
    }
    peer.notify("discard", json!({"stream": 3})).await?;
    match peer.request("stream", batch(3, json!(["b"]), true)).await? {
        Heard::Result(answer) if answer["text"] == "B" => Ok(Verdict::Kept),
        other => Err(format!("after `discard` it still has what it held back: {other:?}")),
    }
}

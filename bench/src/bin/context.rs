//! What a long conversation costs: 200 turns full of tools, sent in four ways. Prints a table, or JSON with `--json`.
//!
//! The runtime runs the conversation with a context of 32,000 tokens. The other three ways are computed from the same log: sending
//! everything, trimming the front before each turn, and the rule of LangChain's summarisation middleware (above 85 % of the window
//! all but the last 20 messages are summarised). Tokens are estimated in the same way for all of them. A provider's cache is taken
//! to hold exactly the messages at the front that are the same as in the call before.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use turnbuckle::context::tokens;
use turnbuckle::message::{StopReason, Usage};
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::sent::{Stored, each_call};
use turnbuckle::stores::MemoryStore;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, BoxFuture, ConversationId, Conversations, Limits, Message, Reply, Scope, ToolCall};
use turnbuckle_bench::BoxError;
use turnbuckle_models::Prices;

const TURNS: usize = 200;
const CALLS: usize = 3;
const WINDOW: u64 = 32_000;
/// Whose list prices are used.
const MODEL: &str = "claude-sonnet-4-5";
/// What a summary has, in tokens: both kinds are made by the same model, so they are taken to be of one length.
const SUMMARY: usize = 400;
/// What LangChain's middleware shows the model that summarises, in tokens.
const SHOWN_TO_SUMMARISE: u64 = 4_000;
const KEPT_MESSAGES: usize = 20;

/// Words that are the same in every run.
fn words(seed: usize, count: usize) -> String {
    const SOME: [&str; 16] = [
        "error", "in", "the", "parser", "line", "of", "module", "returned", "value", "is", "not", "checked", "before",
        "use", "at", "run",
    ];
    (0..count).map(|n| SOME[(seed * 7 + n * n + n / 3) % SOME.len()]).collect::<Vec<_>>().join(" ")
}

/// A summary: a heading, without which it would be refused, and lines that all differ.
fn notes(version: usize) -> String {
    const LINE: usize = 10;
    let line = |n: usize| format!("- {n}: {}\n", words(version * SUMMARY + n, LINE - 2));
    format!("## Facts\n{}", (0..SUMMARY / LINE).map(line).collect::<String>())
}

/// Makes three calls a turn and then answers, whatever it is told.
#[derive(Default)]
struct Worker {
    asked: Mutex<Vec<Arc<Vec<Message>>>>,
}

impl Model for Worker {
    fn stream<'a>(&'a self, request: &'a Request, _: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(request.messages.clone());
        let number = asked.len();
        let reply = match number % (CALLS + 1) {
            0 => Reply::text(words(number, 120)),
            _ => {
                let call = ToolCall {
                    call: format!("call_{number}").into(),
                    name: "read_file".into(),
                    arguments: Arc::new(json!({ "path": format!("src/module_{}.rs", number % 40) })),
                };
                Reply { calls: vec![call], stop_reason: StopReason::ToolCalls, ..Reply::text(words(number, 20)) }
            }
        };
        Box::pin(std::future::ready(Ok(reply)))
    }
}

/// Makes summaries, and keeps what that took.
#[derive(Clone, Default)]
struct Summariser(Arc<Mutex<Vec<u64>>>);

impl Model for Summariser {
    fn stream<'a>(&'a self, request: &'a Request, _: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let read = tokens::of_text(&request.system) + tokens::of_messages(&request.messages);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(read);
        Box::pin(std::future::ready(Ok(Reply::text(notes(all.len())))))
    }
}

/// What one way of sending the conversation comes to.
#[derive(Default)]
struct Bill {
    sent: u64,
    cached: u64,
    written: u64,
    dollars: f64,
    summaries: usize,
    largest: u64,
}

impl Bill {
    /// Of these requests, each of which has `fixed` tokens beside its messages.
    fn of(requests: &[Vec<Message>], fixed: u64, replies: &[u64], prices: &Prices) -> Result<Self, BoxError> {
        let mut bill = Self::default();
        let mut before: &[Message] = &[];
        for (at, messages) in requests.iter().enumerate() {
            let same = before.iter().zip(messages).take_while(|(one, other)| one == other).count();
            let front = if at == 0 { 0 } else { fixed };
            let (size, cached) =
                (fixed + tokens::of_messages(messages), front + tokens::of_messages(&messages[..same]));
            let output = replies.get(at).copied().unwrap_or_default();
            bill.add(Usage { input: size, output, cache_read: cached, cache_write: size - cached }, prices)?;
            bill.largest = bill.largest.max(size);
            before = messages;
        }
        Ok(bill)
    }

    fn add(&mut self, usage: Usage, prices: &Prices) -> Result<(), BoxError> {
        let price = prices.of(MODEL).ok_or("the model has no price")?;
        self.sent += usage.input;
        self.cached += usage.cache_read;
        self.written += usage.output;
        self.dollars += price.cost(&usage);
        Ok(())
    }

    fn add_summaries(&mut self, read: &[u64], prices: &Prices) -> Result<(), BoxError> {
        self.summaries = read.len();
        let output = tokens::of_text(&notes(1));
        read.iter().try_for_each(|input| self.add(Usage { input: *input, output, ..Usage::default() }, prices))
    }

    fn json(&self, name: &str) -> Value {
        let Self { sent, cached, written, dollars, summaries, largest } = self;
        json!({ "way": name, "sent": sent, "cached": cached, "written": written, "dollars": dollars, "summaries": summaries,
                "largest": largest })
    }
}

fn main() -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let bills = runtime.block_on(compare())?;
    let mut out = std::io::stdout();
    if std::env::args().any(|argument| argument == "--json") {
        writeln!(out, "{}", Value::from(bills))?;
        return Ok(());
    }
    writeln!(
        out,
        "| {TURNS} turns, {CALLS} tool calls each | tokens sent | kept the cache | summaries | largest call | dollars |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for bill in bills {
        let number = |key: &str| bill[key].as_u64().unwrap_or_default();
        let share = number("cached") * 100 / number("sent").max(1);
        let dollars = bill["dollars"].as_f64().unwrap_or_default();
        let (sent, largest, summaries) = (number("sent"), number("largest"), number("summaries"));
        let way = bill["way"].as_str().unwrap_or_default();
        writeln!(out, "| {way} | {sent} | {share} % | {summaries} | {largest} | {dollars:.2} |")?;
    }
    Ok(())
}

async fn compare() -> Result<Vec<Value>, BoxError> {
    let prices = Prices::builtin();
    let (worker, summariser) = (Arc::new(Worker::default()), Summariser::default());
    let read = function_with_schema(
        "read_file",
        "Reads a file.",
        json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] }),
        Effect::Pure,
        |_, arguments| async move {
            let seed = arguments["path"].as_str().map_or(0, str::len)
                + arguments.to_string().bytes().map(usize::from).sum::<usize>();
            Ok(words(seed, 300 + seed % 900))
        },
    );
    let limits = Limits { context_tokens: WINDOW, ..Limits::default() };
    let agent = Agent::builder("worker", Shared(worker.clone())).system(words(3, 300)).tool(read).limits(limits);
    let agent = agent.summary_model(summariser.clone()).build()?;
    let (fixed, store) = (agent.fixed_tokens(), MemoryStore::default());
    let conversations = Conversations::builder(agent, store).build();
    let id = ConversationId::from("long");
    for turn in 0..TURNS {
        conversations.turn(&id, format!("{turn}: {}", words(turn, 40)), Scope::local()).await?;
        conversations.drain(Duration::from_secs(600)).await;
    }
    let (made, left) =
        (conversations.summaries(&id, Scope::local()).await?, conversations.jobs(&id, Scope::local()).await?);
    if made.is_empty() || !left.is_empty() {
        // The bill would be that of a conversation without summaries.
        let failed = left.first().and_then(|job| job.error.as_ref());
        return Err(format!("{} summaries were made, and {} were not: {failed:?}", made.len(), left.len()).into());
    }
    let log = conversations.log(&id, Scope::local()).await?;
    let mut whole: Vec<Vec<Message>> = Vec::new();
    let stored = Stored { log: &log, cuts: &[], summaries: &[] };
    each_call(stored, None, &mut |_, window| whole.push(window.messages().to_vec()));
    let replies: Vec<u64> = whole
        .iter()
        .zip(whole.iter().skip(1))
        .map(|(one, next)| next.get(one.len()).map_or(0, tokens::of_message))
        .collect();
    let ours: Vec<Vec<Message>> =
        worker.asked.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|messages| messages.to_vec()).collect();
    let mut runtime = Bill::of(&ours, fixed, &replies, &prices)?;
    let read = summariser.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    runtime.add_summaries(&read, &prices)?;
    let everything = Bill::of(&whole, fixed, &replies, &prices)?;
    let trimmed = Bill::of(&trimmed(&whole, fixed), fixed, &replies, &prices)?;
    let (messages, read) = summarised(&whole, fixed);
    let mut summarised = Bill::of(&messages, fixed, &replies, &prices)?;
    summarised.add_summaries(&read, &prices)?;
    Ok(vec![
        everything.json("everything is sent"),
        trimmed.json("the front is trimmed each turn"),
        summarised.json("LangChain's rule: from 85 % on, all but 20 messages become a summary"),
        runtime.json("Turnbuckle"),
    ])
}

struct Shared(Arc<Worker>);

impl Model for Shared {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        self.0.stream(request, out)
    }
}

/// The newest turns that fit, chosen anew for each turn.
fn trimmed(whole: &[Vec<Message>], fixed: u64) -> Vec<Vec<Message>> {
    let is_user = |message: &Message| matches!(message, Message::User(_));
    let mut first = 0;
    let trim = |messages: &Vec<Message>| {
        let fits = |first: usize| fixed + tokens::of_messages(&messages[first..]) <= WINDOW;
        if messages.last().is_some_and(is_user) || !fits(first) {
            let mut starts = (first..messages.len()).filter(|at| is_user(&messages[*at]));
            let last = starts.clone().next_back();
            first = starts.find(|at| fits(*at)).or(last).unwrap_or(first);
        }
        messages[first..].to_vec()
    };
    whole.iter().map(trim).collect()
}

/// Summarises before a call if more than 85 % of the window are used: everything but the last 20 messages, or a few more, so that
/// no call loses its result. Returns the requests, and what was read for each summary.
fn summarised(whole: &[Vec<Message>], fixed: u64) -> (Vec<Vec<Message>>, Vec<u64>) {
    let (mut state, mut seen): (Vec<Message>, usize) = (Vec::new(), 0);
    let (mut requests, mut read) = (Vec::new(), Vec::new());
    for messages in whole {
        state.extend_from_slice(&messages[seen..]);
        seen = messages.len();
        if fixed + tokens::of_messages(&state) > WINDOW / 100 * 85 && state.len() > KEPT_MESSAGES {
            let mut keep = state.len() - KEPT_MESSAGES;
            while keep > 0 && matches!(state[keep], Message::Result { .. }) {
                keep -= 1;
            }
            if keep > 0 {
                read.push(tokens::of_messages(&state[..keep]).min(SHOWN_TO_SUMMARISE));
                let summary = Message::Note(notes(read.len()).into());
                state = std::iter::once(summary).chain(state.drain(keep..)).collect();
            }
        }
        requests.push(state.clone());
    }
    (requests, read)
}

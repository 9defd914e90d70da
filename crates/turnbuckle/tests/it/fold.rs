//! `Fold` is a fold over the log and `next` a pure function of it: whatever the log holds, and wherever it breaks off.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use turnbuckle::event::{Event, EventKind, InjectionTarget, Outcome, Question, Refusal, Resolved, TurnEnded};
use turnbuckle::feed::{ConversationState, FeedItem, LiveEvent};
use turnbuckle::message::{StopReason, Usage};
use turnbuckle::scope::{Author, SystemAuthor};
use turnbuckle::testing::Fold;
use turnbuckle::tool::Executor;
use turnbuckle::{Timestamp, TurnId};

use crate::feed::STORIES;
use crate::kit::assert_valid;

const ROOM: u64 = 28_000;

fn by() -> Author {
    Author::User("ann".into())
}

fn user() -> EventKind {
    EventKind::UserMessage { content: "hi".into(), by: by() }
}

fn assistant(attempt: u32) -> EventKind {
    let (stop_reason, usage) = (StopReason::End, Usage::default());
    EventKind::AssistantMessage {
        attempt,
        content: "so".into(),
        stop_reason,
        usage,
        extras: None,
        cost: 0.0,
        model: None,
    }
}

fn call(id: &str) -> EventKind {
    EventKind::ToolCall { call: id.into(), name: "add".into(), arguments: json!({}).into(), executor: Executor::Server }
}

fn started(id: &str) -> EventKind {
    EventKind::ToolStarted {
        call: id.into(),
        arguments: json!({}).into(),
        digest: turnbuckle::event::CallDigest::from(Arc::<str>::from("d")),
        approvals: None,
    }
}

fn result(id: &str) -> EventKind {
    EventKind::ToolResult { call: id.into(), ok: true, content: "4".into() }
}

fn asked(id: &str, question: Question) -> EventKind {
    EventKind::Suspension { call: id.into(), question: Box::new(question), expires: Timestamp::default(), rule: None }
}

fn approval(tool: Option<&str>) -> Question {
    Question::Approval {
        tool: tool.map(Into::into),
        arguments: json!({}).into(),
        digest: "d".into(),
        why: None,
        again: false,
        redacted: false,
        standing: None,
    }
}

fn resolved(id: &str, decision: Resolved) -> EventKind {
    EventKind::Resolution {
        call: id.into(),
        decision,
        by: Author::System(SystemAuthor::Expiry),
        reason: None,
        evidence: Default::default(),
    }
}

fn feedback(text: &str) -> EventKind {
    EventKind::StopFeedback { refusals: vec![Refusal { hook: "lint".into(), feedback: text.into() }] }
}

fn injection(place: InjectionTarget) -> EventKind {
    EventKind::Injection { hook: "recall".into(), content: "tea".into(), place }
}

fn ended(outcome: Outcome, model_calls: u32) -> EventKind {
    let usage = Usage::default();
    EventKind::TurnEnded(Arc::new(TurnEnded {
        outcome,
        details: None,
        model_calls,
        usage,
        cost: 0.0,
        ms: 0,
        agent: None,
    }))
}

fn log(kinds: impl IntoIterator<Item = (TurnId, EventKind)>) -> Vec<Arc<Event>> {
    let stamp = |((turn, kind), seq)| Arc::new(Event { seq, turn, at: Timestamp::default(), kind });
    kinds.into_iter().zip(1..).map(stamp).collect()
}

fn folded(log: &[Arc<Event>], room: u64) -> Fold {
    let mut state = Fold::new(room);
    log.iter().for_each(|event| state.apply(event));
    state
}

const OUTCOMES: [Outcome; 6] =
    [Outcome::Completed, Outcome::Halted, Outcome::Rejected, Outcome::Exhausted, Outcome::Cancelled, Outcome::Failed];

/// A log that the runtime could have written, steered by these choices; without any left, the turn ends.
fn valid(choices: &[u8]) -> Vec<Arc<Event>> {
    let mut choices = choices.iter().copied();
    let mut kinds = Vec::new();
    let mut calls = 0;
    for number in 1.. {
        let turn = TurnId::from(format!("t{number}"));
        let mut push = |kind| kinds.push((turn.clone(), kind));
        push(user());
        if choices.next().is_some_and(|choice| choice % 3 == 0) {
            push(injection(InjectionTarget::ThisTurn));
        }
        for choice in choices.by_ref() {
            push(assistant(u32::from(choice % 2) + 1));
            let new: Vec<String> = (0..choice / 2 % 3).map(|n| format!("c{}", calls + n)).collect();
            calls += 3;
            new.iter().for_each(|id| push(call(id)));
            for id in &new {
                match choice / 8 % 4 {
                    0 => {}
                    1 => push(started(id)),
                    2 => {
                        push(asked(id, approval(Some("add"))));
                        push(resolved(id, Resolved::Approved));
                        push(started(id));
                    }
                    _ => {
                        push(asked(id, Question::ClientExec { tool: "add".into(), arguments: json!({}).into() }));
                        push(resolved(id, Resolved::Answered));
                    }
                }
            }
            new.iter().rev().for_each(|id| push(result(id)));
            if new.is_empty() {
                if choice % 5 != 0 {
                    break;
                }
                push(feedback("again"));
            }
        }
        if choices.len() % 4 == 1 {
            push(injection(InjectionTarget::NextTurn));
        }
        push(ended(OUTCOMES[choices.len() % 6], 1));
        if choices.len() == 0 {
            break;
        }
    }
    log(kinds)
}

/// What comes next, said once more and differently: by looking back over the open turn.
fn expected(log: &[Arc<Event>]) -> ConversationState {
    let kinds: Vec<&EventKind> = log.iter().map(|event| &event.kind).collect();
    let is_end = |kind: &&EventKind| matches!(kind, EventKind::TurnEnded(_));
    let open = &kinds[kinds.iter().rposition(is_end).map_or(0, |end| end + 1)..];
    if !open.iter().any(|kind| matches!(kind, EventKind::UserMessage { .. })) {
        return ConversationState::Idle;
    }
    let (mut calls, mut waits, mut stage) = (Vec::new(), Vec::new(), ConversationState::Build);
    for kind in open {
        match kind {
            EventKind::AssistantMessage { .. } => stage = ConversationState::End,
            EventKind::ToolCall { call, .. } => {
                calls.push(call);
                stage = ConversationState::Build;
            }
            EventKind::ToolResult { call, .. } => calls.retain(|open| *open != call),
            EventKind::Suspension { call, question, .. } => waits.push((call, &**question)),
            EventKind::Resolution { call, decision, .. } => {
                let index = waits.iter().position(|(open, _)| *open == call).expect("an answer to nothing");
                if let (_, Question::Approval { tool: None, .. }) = waits.remove(index) {
                    stage =
                        if *decision == Resolved::Approved { ConversationState::Call } else { ConversationState::End };
                }
            }
            EventKind::StopFeedback { .. } => stage = ConversationState::Build,
            _ => {}
        }
    }
    let about_calls = waits.iter().filter(|(call, _)| calls.contains(call)).count();
    match (waits.len() > about_calls, calls.len() > about_calls, calls.is_empty()) {
        (true, ..) => ConversationState::Waiting,
        (_, true, _) => ConversationState::Dispatch,
        (_, _, false) => ConversationState::Waiting,
        _ => stage,
    }
}

/// Anything at all, in any order.
fn nonsense() -> impl Strategy<Value = Vec<Arc<Event>>> {
    let id = || prop::sample::select(vec!["a", "b", "c"]);
    let decision = prop::sample::select(vec![
        Resolved::Approved,
        Resolved::Denied,
        Resolved::Answered,
        Resolved::Expired,
        Resolved::Cancelled,
    ]);
    let question = prop::sample::select(vec![
        approval(None),
        approval(Some("add")),
        Question::Elicitation { question: "who?".into(), schema: None },
        Question::ClientExec { tool: "add".into(), arguments: json!([1]).into() },
        Question::Pause { hook: "lint".into(), reason: "look".into() },
    ]);
    let kind = prop_oneof![
        Just(user()),
        any::<u32>().prop_map(assistant),
        id().prop_map(call),
        id().prop_map(started),
        id().prop_map(result),
        (id(), question).prop_map(|(id, question)| asked(id, question)),
        (id(), decision).prop_map(|(id, decision)| resolved(id, decision)),
        Just(feedback("again")),
        prop::sample::select(vec![InjectionTarget::ThisTurn, InjectionTarget::NextTurn]).prop_map(injection),
        (prop::sample::select(OUTCOMES.to_vec()), any::<u32>()).prop_map(|(outcome, calls)| ended(outcome, calls)),
    ];
    let turn = prop::sample::select(vec!["t1", "t2", "t3"]).prop_map(TurnId::from);
    prop::collection::vec((turn, kind), 0..60).prop_map(log)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_log_however_odd_makes_the_fold_panic(log in nonsense(), room in 0_u64..40) {
        let mut state = Fold::new(room);
        for event in &log {
            state.apply(event);
            state.state();
        }
    }

    #[test]
    fn equal_states_have_equal_next_and_asking_changes_nothing(log in nonsense()) {
        let (once, again) = (folded(&log, ROOM), folded(&log, ROOM));
        let stage = once.state();
        prop_assert_eq!(stage, once.state());
        prop_assert_eq!(stage, again.state());
        prop_assert_eq!(stage, once.clone().state());
        prop_assert_eq!(once, again);
    }

    #[test]
    fn once_a_turn_has_ended_the_conversation_is_idle(mut log in nonsense(), which in 0_usize..6) {
        let seq = log.len() as u64 + 1;
        let kind = ended(OUTCOMES[which], 1);
        log.push(Arc::new(Event { seq, turn: "t1".into(), at: Timestamp::default(), kind }));
        prop_assert_eq!(folded(&log, ROOM).state(), ConversationState::Idle);
    }

    #[test]
    fn a_valid_log_cut_anywhere_says_what_comes_next(choices in prop::collection::vec(any::<u8>(), 0..40)) {
        let log = valid(&choices);
        assert_valid(&log);
        for end in 0..=log.len() {
            let cut = &log[..end];
            prop_assert_eq!(folded(cut, ROOM).state(), expected(cut), "after {:#?}", cut.last());
        }
    }

    #[test]
    fn a_state_read_backwards_is_the_state_of_the_whole_log(
        choices in prop::collection::vec(any::<u8>(), 0..60),
        room in 0_u64..100,
        end in 0.0..1.0,
    ) {
        let log = valid(&choices);
        let log = &log[..(log.len() as f64 * end) as usize];
        let whole = folded(log, room);
        for begin in 0..=log.len() {
            let revived = Fold::revive(room, whole.totals(), &log[begin..]);
            prop_assert!(begin > 0 || revived.is_some());
            if let Some(revived) = revived.filter(|_| begin < log.len()) {
                prop_assert_eq!(&revived, &whole, "from event {} on", begin + 1);
            }
        }
    }

    #[test]
    fn how_much_history_there_is_room_for_does_not_change_what_comes_next(
        choices in prop::collection::vec(any::<u8>(), 0..40),
        room in 0_u64..100,
    ) {
        let log = valid(&choices);
        for end in 0..=log.len() {
            prop_assert_eq!(folded(&log[..end], room).state(), folded(&log[..end], ROOM).state());
        }
    }
}

#[test]
fn a_real_log_cut_anywhere_says_what_comes_next() {
    for story in STORIES.iter() {
        for end in 0..=story.log.len() {
            let cut = &story.log[..end];
            assert_eq!(folded(cut, ROOM).state(), expected(cut), "after {:#?}", cut.last());
        }
    }
}

/// A live turn knows two things that the log does not: that it began, and that its request is built.
#[test]
fn a_replayed_log_is_at_the_stage_that_the_live_turn_told() {
    for (index, story) in STORIES.iter().enumerate() {
        let mut state = Fold::new(ROOM);
        for (place, told) in story.told.iter().enumerate() {
            match &told.item {
                FeedItem::Log(event) => state.apply(event),
                FeedItem::Live(LiveEvent::StateChanged { state: live }) => {
                    let replayed = state.state();
                    let only_live = match live {
                        ConversationState::Accept => replayed == ConversationState::Idle,
                        ConversationState::Call => replayed == ConversationState::Build,
                        // Halted, rejected, cancelled or failed: decided, and about to be written.
                        ConversationState::End => ends_now(&story.told[place..]),
                        _ => false,
                    };
                    assert!(*live == replayed || only_live, "story {index}: live {live:?}, replayed {replayed:?}");
                }
                FeedItem::Live(_) => {}
            }
        }
    }
}

/// Whether the turn's end is written before another stage begins.
fn ends_now(told: &[turnbuckle::feed::FeedEvent]) -> bool {
    let stage =
        |told: &&turnbuckle::feed::FeedEvent| matches!(told.item, FeedItem::Live(LiveEvent::StateChanged { .. }));
    let is_end = |told: &turnbuckle::feed::FeedEvent| matches!(&told.item, FeedItem::Log(event) if matches!(event.kind, EventKind::TurnEnded(_)));
    told.iter().skip(1).take_while(|told| !stage(told)).any(is_end)
}

#[test]
fn what_each_log_ends_in_says_what_comes_next() {
    let stage = |kinds: &[EventKind]| folded(&log(kinds.iter().map(|kind| ("t1".into(), kind.clone()))), ROOM).state();
    let opened = [user(), assistant(1), call("a"), call("b")];
    let and = |more: &[EventKind]| stage(&[&opened[..], more].concat());
    assert_eq!(stage(&[]), ConversationState::Idle);
    assert_eq!(stage(&[injection(InjectionTarget::NextTurn)]), ConversationState::Idle);
    assert_eq!(stage(&[user()]), ConversationState::Build);
    assert_eq!(stage(&[user(), injection(InjectionTarget::ThisTurn)]), ConversationState::Build);
    assert_eq!(stage(&[user(), assistant(1)]), ConversationState::End);
    assert_eq!(stage(&[user(), assistant(1), feedback("no")]), ConversationState::Build);
    assert_eq!(and(&[]), ConversationState::Dispatch);
    assert_eq!(and(&[started("a")]), ConversationState::Dispatch);
    assert_eq!(and(&[result("b")]), ConversationState::Dispatch);
    assert_eq!(and(&[result("b"), result("a")]), ConversationState::Build);
    assert_eq!(and(&[asked("a", approval(Some("add")))]), ConversationState::Dispatch);
    assert_eq!(and(&[asked("a", approval(Some("add"))), result("b")]), ConversationState::Waiting);
    let waits = [asked("a", approval(Some("add"))), result("b"), resolved("a", Resolved::Denied)];
    assert_eq!(and(&waits), ConversationState::Dispatch);
    let reply = [user(), asked("r", approval(None))];
    assert_eq!(stage(&reply), ConversationState::Waiting);
    assert_eq!(stage(&[&reply[..], &[resolved("r", Resolved::Approved)]].concat()), ConversationState::Call);
    assert_eq!(stage(&[&reply[..], &[resolved("r", Resolved::Expired)]].concat()), ConversationState::End);
    let pause = [user(), assistant(1), asked("p", Question::Pause { hook: "lint".into(), reason: "look".into() })];
    assert_eq!(stage(&pause), ConversationState::Waiting);
    assert_eq!(stage(&[&pause[..], &[resolved("p", Resolved::Approved)]].concat()), ConversationState::End);
    assert_eq!(stage(&[user(), ended(Outcome::Halted, 0)]), ConversationState::Idle);
}

#[test]
fn an_event_is_called_in_code_what_json_calls_it() {
    for event in STORIES.iter().flat_map(|story| &story.log) {
        assert_eq!(serde_json::to_value(event).unwrap()["type"], event.kind.name());
    }
}

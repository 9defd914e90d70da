//! Whatever happened in a conversation, and however its contexts were reduced: every request is one that providers accept.

use turnbuckle::context::tokens;
use turnbuckle::{Message, Outcome, Part};

use crate::random_conversations::{Conversed, converse, signature};

/// The rules of both providers: a user speaks first, each call has its one result right behind it and in order, no id twice, no
/// result without a call, nothing behind an open call but its results, and thinking only where an assistant speaks.
fn complaint(messages: &[Message]) -> Option<String> {
    match messages.first() {
        Some(Message::User(_) | Message::Note(_)) => {}
        other => return Some(format!("it begins with {other:?}")),
    }
    let (mut open, mut ids): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for message in messages {
        let mut has_spoken = false;
        for part in message.content().parts() {
            match part {
                Part::Thinking(thought) if thought.signature.is_some() => {
                    // Kept whole or dropped whole: a thought that was cut has a signature that does not fit.
                    if thought.signature != Some(signature(&thought.text)) {
                        return Some(format!("the signature does not fit: {thought:?}"));
                    }
                    if has_spoken {
                        return Some("a thought stands behind what it led to".to_owned());
                    }
                }
                _ => has_spoken = true,
            }
        }
        match message {
            Message::Assistant { calls, .. } => {
                if !open.is_empty() {
                    return Some(format!("{open:?} have no results"));
                }
                for call in calls {
                    if ids.contains(&call.call.to_string()) {
                        return Some(format!("{} is there twice", call.call));
                    }
                    if !call.arguments.is_object() {
                        return Some(format!("the arguments of {} are no object", call.call));
                    }
                    ids.push(call.call.to_string());
                    open.push(call.call.to_string());
                }
            }
            Message::Result { call, .. } => {
                if open.first().is_none_or(|expected| *expected != call.as_str()) {
                    return Some(format!("{call} is not the result of {open:?}"));
                }
                open.remove(0);
            }
            _ if !open.is_empty() => return Some(format!("{open:?} have no results")),
            other => {
                if other.content().parts().iter().any(|part| matches!(part, Part::Thinking(_))) {
                    return Some("a user thinks".to_owned());
                }
            }
        }
    }
    match messages.last() {
        Some(Message::Assistant { .. }) => Some("an assistant has the last word".to_owned()),
        _ if !open.is_empty() => Some(format!("{open:?} have no results")),
        _ => None,
    }
}

/// Complains of the requests of this seed.
async fn check(seed: u64) -> Conversed {
    let conversed = converse(seed).await;
    let context_tokens = conversed.context_tokens;
    for (n, request) in conversed.requests.iter().enumerate() {
        if let Some(complaint) = complaint(&request.messages) {
            panic!("seed {seed}, request {n}: {complaint}\n{:#?}", request.messages);
        }
        let tools: u64 = request.tools().iter().map(tokens::of_definition).sum();
        let size = tools + tokens::of_messages(&request.messages);
        assert!(size <= context_tokens, "seed {seed}, request {n} has {size} tokens of {context_tokens}");
    }
    for request in &conversed.requests {
        let text = |message: &Message| message.content().text();
        for note in
            request.messages.iter().map(text).filter(|text| text.starts_with("[left out to save room: a result"))
        {
            assert_eq!(note.matches("left out to save room").count(), 1, "seed {seed}: a note of a note: {note}");
        }
    }
    conversed
}

#[tokio::test]
async fn every_request_of_random_conversations_is_one_that_providers_accept() {
    let (mut steps, mut cancelled, mut answered, mut refused) = (0, 0, 0, 0);
    for seed in 1..=60 {
        let conversed = check(seed).await;
        steps += conversed.cuts.iter().map(|cut| cut.steps).sum::<u32>();
        cancelled += conversed.outcomes.iter().filter(|outcome| **outcome == Outcome::Cancelled).count();
        (answered, refused) = (answered + conversed.answered, refused + conversed.refused);
    }
    assert!(steps > 500, "only {steps} steps of open turns were left out");
    let happened = [cancelled, answered, refused];
    assert!(happened.iter().all(|count| *count > 20), "cancelled, answered, refused: {happened:?}");
}

//! What is made to fit when the open turn itself fills the context.

use serde_json::json;
use turnbuckle::context::tokens;
use turnbuckle::conversation::SendError;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::{FunctionTool, function_with_schema};
use turnbuckle::{Agent, Limits, Message, Outcome};

fn read() -> FunctionTool {
    function_with_schema("read_file", "Reads.", json!({"type": "object"}), Effect::Pure, |_, _| async {
        // Its end has more tokens to a byte than its beginning.
        Ok(format!("{}{}", "some words of prose ".repeat(2_400), "漢字。".repeat(2_000)))
    })
}

#[tokio::test]
async fn a_long_message_and_large_results_fit_together() {
    for results in [1, 4, 12] {
        let mut calls = ScriptReply::calls("c0", "read_file", json!({}));
        for n in 1..results {
            calls = calls.and_calls(&format!("c{n}"), "read_file", json!({}));
        }
        let model = Recorder::of(Script::of([calls, ScriptReply::says("done")]));
        let limits = Limits { context_tokens: 32_000, ..Limits::default() };
        let mut rig = Rig::new(Agent::builder("a", model.clone()).tool(read()).limits(limits).build().unwrap());
        let message = "What does this say about it? ".repeat(3_000);
        assert!(tokens::of_text(&message) > 17_000, "{}", tokens::of_text(&message));
        let ended = rig.ended(message.clone()).await.unwrap();
        assert_eq!(ended.outcome, Outcome::Completed, "{results} results: {:?}", ended.reason);
        let requests = model.requests();
        let last = &requests.last().unwrap().messages;
        assert_eq!(last[0].content().text(), message, "the message stays as it is");
        let shown = last.iter().filter_map(|message| match message {
            Message::Result { content, .. } => Some(content.text()),
            _ => None,
        });
        let shown: Vec<String> = shown.collect();
        assert_eq!(shown.len(), results);
        assert!(shown.iter().all(|text| text.starts_with("some words") && text.contains("bytes")), "{shown:?}");
        let together: u64 = shown.iter().map(|text| tokens::of_text(text)).sum();
        assert!(together > 4_000, "what is left is used: {together}");
    }
}

#[tokio::test]
async fn a_message_that_does_not_fit_beside_the_tools_is_refused_before_it_is_stored() {
    let tool = || {
        let description = "Does this and that. ".repeat(600);
        function_with_schema("big", description, json!({"type": "object"}), Effect::Pure, |_, _| async { Ok("done") })
    };
    let limits = Limits { context_tokens: 8_000, injection_reserve: 100, ..Limits::default() };
    let agent = Agent::builder("a", Script::says(["fine", "fine"])).tool(tool()).limits(limits).build().unwrap();
    let fixed = agent.fixed_tokens();
    let mut rig = Rig::new(agent);
    let room = 8_000 * 10 / 11 - fixed;
    let words = |tokens: u64| {
        "word ".repeat(usize::try_from(tokens * 1_000 / tokens::of_text(&"word ".repeat(1_000))).unwrap())
    };
    let message = words(room + 200);
    assert!((room..8_000).contains(&tokens::of_text(&message)), "by itself it fits");
    let refused = rig.send(message).await;
    assert!(matches!(refused, Err(SendError::TooLarge { limit: 8_000, size }) if size > 8_000), "{refused:?}");
    assert!(rig.log().await.unwrap().is_empty());
    let ended = rig.ended(words(room - 200)).await.unwrap();
    assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
}

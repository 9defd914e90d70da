//! `trim`: a call goes without what it does not need, and the log goes without nothing.

use serde_json::json;
use turnbuckle::hooks::Trim;
use turnbuckle::hooks::trim::TrimOptions;
use turnbuckle::message::Image;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Content, Message, Part};

fn trim(change: impl FnOnce(&mut TrimOptions)) -> Trim {
    let mut options = TrimOptions { fresh: 2, ..TrimOptions::default() };
    change(&mut options);
    Trim::new(options).unwrap()
}

/// Calls `look` so many times; what the last request held.
async fn last_request(hook: Trim, calls: usize, result: &str, message: impl Into<Content>) -> (Vec<Message>, Rig) {
    let result = result.to_owned();
    let look = function_with_schema("look", "", json!({"type": "object"}), Effect::Pure, move |_, _| {
        let result = result.clone();
        async { Ok(result) }
    });
    let looks = (0..calls).map(|index| ScriptReply::calls(&format!("c{index}"), "look", json!({})));
    let model = Recorder::of(Script::of(looks.chain([ScriptReply::says("done")])));
    let mut rig = Rig::new(Agent::builder("a", model.clone()).tool(look).hook(hook).build().unwrap());
    rig.ended(message).await.unwrap();
    ((*model.requests().last().unwrap().messages).clone(), rig)
}

fn results(messages: &[Message]) -> Vec<String> {
    let text = |message: &Message| match message {
        Message::Result { content, .. } => Some(content.text()),
        _ => None,
    };
    messages.iter().filter_map(text).collect()
}

#[tokio::test]
async fn of_equal_results_only_the_last_stays() {
    let long = "the same thing again, and it is not short";
    let (messages, rig) = last_request(trim(|_| ()), 3, long, "go").await;
    let same = "[the same result stands further down]";
    assert_eq!(results(&messages), [same, same, long]);
    assert_eq!(format!("{:?}", rig.log().await.unwrap()).matches(long).count(), 3, "the log has all of them");
    let (messages, _) = last_request(trim(|options| options.duplicates = false), 3, long, "go").await;
    assert_eq!(results(&messages), [long, long, long]);
}

#[tokio::test]
async fn an_old_long_result_loses_its_middle_and_a_fresh_one_does_not() {
    let long = format!("begin{}end", "ö".repeat(500));
    let hook = trim(|options| (options.max_result, options.duplicates) = (100, false));
    let results = results(&last_request(hook, 2, &long, "go").await.0);
    assert!(results[0].starts_with("begin") && results[0].ends_with("end"), "{}", results[0]);
    assert!(results[0].contains("bytes of an old result left out") && results[0].len() < 300);
    assert_eq!(results[1], long);
}

#[tokio::test]
async fn of_attachments_the_last_stay() {
    let image = |name: &str| Part::from(Image { media_type: "image/png".into(), data: None, url: Some(name.into()) });
    let message = Content::from(vec![image("first"), Part::text("look"), image("second"), image("third")]);
    let (messages, _) = last_request(trim(|_| ()), 2, "x", message).await;
    let seen = format!("{:?}", messages[0]);
    assert!(!seen.contains("first") && seen.contains("second") && seen.contains("third"), "{seen}");
    assert!(seen.contains("left out"));
}

#[test]
fn options_out_of_range_are_refused() {
    let options = TrimOptions { max_result: 99, ..TrimOptions::default() };
    assert_eq!(Trim::new(options).unwrap_err().option, "max_result");
}

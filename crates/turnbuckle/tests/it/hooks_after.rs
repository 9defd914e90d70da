//! `format`: the result of a turn in another shape.

use serde_json::json;
use turnbuckle::event::EventKind;
use turnbuckle::hook::HookExt;
use turnbuckle::hooks::Format;
use turnbuckle::models::Script;
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, TurnReport};

async fn shown(said: &str, hooks: Vec<Format>) -> (TurnReport, Rig) {
    let agent = hooks
        .into_iter()
        .zip(["one", "two", "three"])
        .fold(Agent::builder("shop", Script::says([said])), |agent, (hook, name)| agent.hook(hook.named(name)));
    let mut rig = Rig::new(agent.build().unwrap());
    (rig.ended("how much?").await.unwrap(), rig)
}

#[tokio::test]
async fn a_result_is_shown_as_json_and_the_log_keeps_the_words() {
    let (ended, rig) = shown("```json\n{\"price\": 12}\n```", vec![Format::json()]).await;
    assert_eq!(ended.result.as_deref(), Some(&json!({"price": 12})));
    let kept = |kind: &EventKind| matches!(kind, EventKind::AssistantMessage { content, .. } if content.text().contains("```"));
    assert!(rig.log().await.unwrap().iter().any(|event| kept(&event.kind)));
    let (ended, _) = shown("twelve", vec![Format::json()]).await;
    assert_eq!(ended.result.as_deref(), Some(&json!({"text": "twelve"})));
}

#[tokio::test]
async fn a_result_is_shown_as_markdown() {
    let said = r#"{"items": [{"name": "boat"}, 2], "price": 12, "note": "a\nb"}"#;
    let (ended, _) = shown(said, vec![Format::markdown()]).await;
    let expected = "- **items**:\n  -\n    - **name**: boat\n  - 2\n- **note**: a b\n- **price**: 12\n";
    assert_eq!(ended.text(), expected);
    assert_eq!(shown("plain *text*", vec![Format::markdown()]).await.0.text(), "plain *text*");
}

#[tokio::test]
async fn a_template_is_filled_and_works_on_what_an_earlier_hook_made() {
    let template = || Format::template("{{{user}}} {agent} {date}: {/price}{/gone} [{text}]").unwrap();
    let (ended, _) = shown("{\"price\": 12}", vec![template()]).await;
    assert_eq!(ended.text(), "{local} shop 2026-01-31: 12 [{\"price\": 12}]");
    let (ended, _) = shown("x", vec![Format::json(), template()]).await;
    assert_eq!(ended.text(), "{local} shop 2026-01-31:  [{\"text\":\"x\"}]");
    assert!(Format::template("{txt}").unwrap_err().to_string().contains("{text}"));
}

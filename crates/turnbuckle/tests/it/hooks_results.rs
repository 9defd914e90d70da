//! `check_result`: a result that does not fit is not passed off as a good one.

use serde_json::json;
use turnbuckle::hook::HookExt;
use turnbuckle::hooks::CheckResult;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::tool::{Effect, Output};
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, BoxError, Outcome};

async fn weather(output: Output, hook: CheckResult) -> (Outcome, String) {
    let tool = function_with_schema("weather", "", json!({"type": "object"}), Effect::Pure, move |_, _| {
        let output = output.clone();
        async { Ok::<_, BoxError>(output) }
    });
    let script = Script::of([ScriptReply::calls("c1", "weather", json!({})), ScriptReply::says("done")]);
    let agent = Agent::builder("a", script).tool(tool).hook(hook.for_tools(["wea*"]));
    let mut rig = Rig::new(agent.build().unwrap());
    let ended = rig.ended("how is it?").await.unwrap();
    (ended.outcome, turnbuckle::trace::trace_told(rig.told(), 1))
}

fn celsius() -> CheckResult {
    CheckResult::new(json!({"type": "object", "required": ["celsius"]})).unwrap()
}

#[tokio::test]
async fn a_result_that_does_not_fit_becomes_an_error_that_says_why() {
    assert!(weather(Output::ok("{\"celsius\": 3}"), celsius()).await.1.contains("= {\"celsius\": 3}"));
    let (outcome, trace) = weather(Output::ok("{\"kelvin\": 3}"), celsius()).await;
    assert_eq!(outcome, Outcome::Completed);
    assert!(trace.contains("\"celsius\" is a required property"), "{trace}");
    assert!(weather(Output::ok("sunny"), celsius()).await.1.contains("it is not JSON"));
}

#[tokio::test]
async fn an_error_result_is_left_alone_and_a_bad_one_may_halt() {
    assert!(weather(Output::error("no signal"), celsius()).await.1.contains("no signal"));
    assert_eq!(weather(Output::ok("sunny"), celsius().or_halt()).await.0, Outcome::Halted);
}

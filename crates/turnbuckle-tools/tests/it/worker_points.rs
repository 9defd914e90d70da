//! What workers and services are told at every point, and what they may say when a summary is about to be made.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnbuckle::hook::Point;
use turnbuckle::json_schema::JsonSchema;
use turnbuckle::models::ScriptReply;
use turnbuckle_tools::{CommandLine, HttpHook, WorkerHook};

use crate::claude_protocol::summaries;
use crate::http_hooks::{decides, serve};
use crate::worker::{agent, call, python};
use crate::worker_sdks::node;

fn replies() -> impl Iterator<Item = ScriptReply> {
    std::iter::once(call("x")).chain(std::iter::repeat_with(|| ScriptReply::says("ok")).take(60))
}

#[tokio::test]
async fn a_worker_names_what_stays_word_for_word_or_skips_the_summary() {
    let in_python = r#"
from turnbuckle_hooks import *
@hook("before_compaction")
def keep(change):
    assert change.turns > 0 and "user: message-" in change.transcript and change.agent == "coder"
    return go_on(keep=f"secret-plan-{change.turns}")
@hook("before_compaction")
async def more(change):
    return go_on(keep=["one", "two"])
run()
"#;
    let in_node = r#"
import { goOn, hook, run } from "turnbuckle-hooks";
hook("before_compaction", function keep(change) {
  if (!change.transcript.includes("user: message-")) throw new Error(change.transcript);
  return goOn({ keep: [`secret-plan-${change.turns}`, "one", "two"] });
});
run();
"#;
    for (_folder, hook) in [python(&[Point::BeforeCompaction], in_python), node(&[Point::BeforeCompaction], in_node)] {
        let made = summaries(agent(replies()).hook(hook)).await;
        let first = made.first().unwrap();
        assert!(
            first.kept[0].starts_with("secret-plan-") && first.kept[1..].iter().map(|text| &**text).eq(["one", "two"]),
            "{:?}",
            first.kept
        );
        assert!(first.shown.contains("secret-plan-"), "{}", first.shown);
    }
    let in_python = "from turnbuckle_hooks import *\n@hook('before_compaction')\ndef no(change):\n    open('asked', 'w')\n    return skip('not now')\nrun()\n";
    let in_node = "import { writeFileSync } from 'node:fs';\nimport { hook, run, skip } from 'turnbuckle-hooks';\nhook('before_compaction', { name: 'no' }, () => { writeFileSync('asked', ''); return skip('not now'); });\nrun();\n";
    for (folder, hook) in [python(&[Point::BeforeCompaction], in_python), node(&[Point::BeforeCompaction], in_node)] {
        assert!(summaries(agent(replies()).hook(hook)).await.is_empty());
        assert!(folder.path().join("asked").exists());
    }
}

#[tokio::test]
async fn a_service_is_asked_before_a_summary_as_a_worker_is() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = asked.clone();
    let (url, _posted) = serve(move |request| {
        noted.lock().unwrap().push(request["params"]["transcript"].as_str().unwrap_or_default().to_owned());
        decides(request, json!({"decision": "continue", "keep": ["the plan"]}))
    });
    let hook = HttpHook::new("policy", [Point::BeforeCompaction], &url, "x").unwrap();
    let made = summaries(agent(replies()).hook(hook)).await;
    assert!(made.first().unwrap().kept.iter().map(|text| &**text).eq(["the plan"]));
    assert!(asked.lock().unwrap()[0].contains("user: message-"));
}

/// A worker without an SDK at every point, which writes down every line in both directions.
const EVERYWHERE: &str = r#"
import json, sys
lines, wraps, last = open("lines", "w"), {}, 0
def send(**message):
    message["jsonrpc"] = "2.0"
    line = json.dumps(message)
    print(line, file=lines, flush=True)
    print(line, flush=True)
for line in sys.stdin:
    lines.write(line)
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params")
    if method == "initialize":
        send(id=id, result={"protocol": 1, "hooks": [{"name": "h", "point": point} for point in params["points"]]})
    elif method in ("wrap_model_call", "wrap_tool_call"):
        last += 1
        wraps[last] = id
        send(id=last, method="next", params={"call": id})
    elif method is None:
        result = message["result"]
        send(id=wraps.pop(id), result={"decision": "reply"} if "reply" in result else dict(result["result"], decision="result"))
    elif method == "stream":
        send(id=id, result={"decision": "pass", "text": "".join(params["chunks"])})
    elif id is not None:
        send(id=id, result={"decision": "accept" if method == "on_stop" else "continue"})
"#;

#[tokio::test]
async fn every_line_at_every_point_fits_the_schema() {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("hooks.py"), EVERYWHERE).unwrap();
    let line = CommandLine::Argv(vec!["python3".into(), "hooks.py".into()]);
    let hook = WorkerHook::new("everywhere", Point::ALL, line, folder.path()).unwrap();
    assert!(!summaries(agent(replies()).hook(hook)).await.is_empty());
    let schema: Value = serde_json::from_str(include_str!("../../../../docs/hook-workers.schema.json")).unwrap();
    let schema = JsonSchema::compile(&schema).unwrap();
    let lines = std::fs::read_to_string(folder.path().join("lines")).unwrap();
    let mut seen = BTreeSet::new();
    for line in lines.lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        assert_eq!(schema.complaint(&message), None, "{line}");
        seen.extend(message["method"].as_str().map(str::to_owned));
    }
    // `on_logged` follows a call that waits for someone, and none does.
    let all = Point::ALL.into_iter().map(Point::name).filter(|name| *name != "on_logged");
    let unseen: Vec<&str> = all.filter(|name| !seen.contains(*name)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}

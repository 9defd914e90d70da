//! Stream transformers in workers, with both SDKs.

use turnbuckle::hook::{HookExt as _, OnFailure, Point};
use turnbuckle::models::ScriptReply;
use turnbuckle::testing::Rig;

use crate::worker::{agent, python};
use crate::worker_sdks::node;

const HELD: &str = r#"
from turnbuckle_hooks import annotate, hook, run
@hook("stream")
class hide:
    def __init__(self):
        self.held = ""
    def chunk(self, text):
        self.held += text
        cut = self.held.rfind(" ") + 1
        passed, self.held = self.held[:cut], self.held[cut:]
        annotate("words", True)
        return passed.replace("secret", "******")
    async def finish(self):
        return self.held.replace("secret", "******")
@hook("stream")
def shout(text):
    return text.upper()
run()
"#;

#[tokio::test]
async fn a_word_that_is_split_over_chunks_is_masked_and_hooks_follow_each_other() {
    let (_folder, hook) = python(&[Point::Stream], HELD);
    let mut rig = Rig::new(agent([ScriptReply::chunks(["the se", "cr", "et is ", "out"])]).hook(hook).build().unwrap());
    let trace = rig.trace("go").await;
    assert!(trace.contains("call      \"THE ****** IS OUT\""), "{trace}");
}

#[tokio::test]
async fn the_typescript_sdk_transforms_as_well() {
    let script = r#"
import { hook, run } from "turnbuckle-hooks";
hook("stream", { name: "count" }, (stretch) => {
  let count = 0;
  return { chunk: (text) => { count += text.length; return text; }, finish: async () => ` (${count} ${stretch.kind})` };
});
run();
"#;
    let (_folder, hook) = node(&[Point::Stream], script);
    let mut rig = Rig::new(agent([ScriptReply::chunks(["ab", "c"])]).hook(hook).build().unwrap());
    let trace = rig.trace("go").await;
    assert!(trace.contains("call      \"abc (3 text)\""), "{trace}");
}

#[tokio::test]
async fn a_transformer_that_fails_or_whose_worker_dies_blocks_whatever_on_failure_says() {
    for body in ["raise ValueError('no')", "import os; os._exit(3)"] {
        let script =
            format!("from turnbuckle_hooks import hook, run\n@hook('stream')\ndef bad(text):\n    {body}\nrun()\n");
        let (_folder, hook) = python(&[Point::Stream], &script);
        let hook = hook.on_failure(OnFailure::Ignore);
        let mut rig = Rig::new(agent([ScriptReply::says("secret")]).hook(hook).build().unwrap());
        let ended = rig.ended("go").await.unwrap();
        assert_eq!(ended.outcome, turnbuckle::Outcome::Failed, "{body}");
        assert!(!rig.told().iter().any(|event| serde_json::to_string(event).unwrap().contains("secret")), "{body}");
    }
}

#[tokio::test]
async fn a_worker_that_serves_other_points_blocks_also_where_failures_are_ignored() {
    let script = "from turnbuckle_hooks import hook, run\n@hook('on_ended')\ndef quiet(report):\n    pass\nrun()\n";
    let (_folder, hook) = python(&[Point::OnStop], script);
    let mut rig = Rig::new(agent([ScriptReply::says("done")]).hook(hook).build().unwrap());
    let ended = rig.ended("go").await.unwrap();
    assert_eq!(ended.outcome, turnbuckle::Outcome::Failed);
    assert!(ended.reason.unwrap().contains("serves on_ended, and `on` says on_stop"));
}

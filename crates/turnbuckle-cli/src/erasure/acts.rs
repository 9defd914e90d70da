//! `turnbuckle list --acts`: who deleted, held, released or insisted on what, or read a conversation of another.

use serde_json::json;
use turnbuckle::message::Text;
use turnbuckle::store::{Act, ActKind, Store as _};

use crate::Stopped;
use crate::exit::Exit;
use crate::inspect::{failed, print_all, unprintable};
use crate::show::{clean, json_line};
use crate::without_agent::WithoutAgent;

/// One line each, the newest first. A deletion of which something is left to be erased says what.
pub(crate) async fn acts(desk: &WithoutAgent, json: bool) -> Result<Exit, Stopped> {
    let WithoutAgent { store, conversations, scope, .. } = desk;
    let unfinished = store.unfinished_deletions().await.map_err(failed)?;
    let mut text = String::new();
    for act in conversations.acts(scope.clone()).await.map_err(failed)? {
        let tombstone = unfinished.iter().find(|one| act.kind == ActKind::Deleted && one.id.as_str() == &*act.about);
        let left: &[Text] = tombstone.map_or(&[], |one| &one.left);
        text += &if json { as_json(&act, left)? } else { as_text(&act, left) };
    }
    print_all(&text)
}

fn as_text(act: &Act, left: &[Text]) -> String {
    let what = match act.kind {
        ActKind::ReadAnothers => "read",
        kind => kind.name(),
    };
    let left = if left.is_empty() { String::new() } else { format!("  [not erased yet: {}]", left.join("; ")) };
    format!("{}\n", clean(&format!("{}  {what:<8}  {} by {}{left}", act.at, act.about, act.by)))
}

fn as_json(act: &Act, left: &[Text]) -> Result<String, Stopped> {
    let mut line = json!({ "at": act.at, "act": act.kind, "about": act.about, "by": act.by });
    if !left.is_empty() {
        line["left"] = json!(left);
    }
    json_line(&line).map_err(unprintable)
}

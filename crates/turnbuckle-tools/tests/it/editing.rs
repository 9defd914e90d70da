//! `edit_file`.

use serde_json::json;

use crate::desk::Desk;

#[tokio::test]
async fn one_piece_is_replaced() {
    let desk = Desk::new().await;
    desk.put("a.rs", "one\ntwo\nthree\n");
    let said = desk.ok("edit_file", json!({"path": "a.rs", "old": "two", "new": "2"})).await;
    assert_eq!(said, "edited a.rs at line 2\n--- a/a.rs\n+++ b/a.rs\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n");
    assert_eq!(desk.text("a.rs"), "one\n2\nthree\n");
    assert_eq!(desk.turn.touched(), ["a.rs"]);
}

#[tokio::test]
async fn a_piece_that_is_not_there_exactly_once_changes_nothing() {
    let desk = Desk::new().await;
    desk.put("a", "x\r\nx\r\n");
    let many = desk.refused("edit_file", json!({"path": "a", "old": "x", "new": "y"})).await;
    assert!(many.contains("first at line 1 and last at line 2"), "{many}");
    desk.put("mixed", "x\r\nx\n");
    let none = desk.refused("edit_file", json!({"path": "mixed", "old": "x\nx", "new": "y"})).await;
    assert!(none.contains("does not occur") && none.contains("\\r\\n"), "{none}");
    let same = desk.refused("edit_file", json!({"path": "a", "old": "x", "new": "x"})).await;
    assert!(same.contains("nothing to change"), "{same}");
    assert_eq!(desk.text("a"), "x\r\nx\r\n");
    assert!(desk.turn.touched().is_empty());
}

#[tokio::test]
async fn several_edits_are_made_in_order_all_or_none() {
    let desk = Desk::new().await;
    desk.put("a", "one\ntwo\nthree\n");
    let edits =
        json!([{"old": "one", "new": "1"}, {"old": "1\ntwo", "new": "12"}, {"old": "e", "new": "E", "all": true}]);
    let said = desk.ok("edit_file", json!({"path": "a", "edits": edits})).await;
    assert!(said.starts_with("edited a in 4 places\n--- a/a\n+++ b/a\n"), "{said}");
    assert_eq!(desk.text("a"), "12\nthrEE\n");
    let edits = json!([{"old": "12", "new": "x"}, {"old": "missing", "new": "y"}]);
    let said = desk.refused("edit_file", json!({"path": "a", "edits": edits})).await;
    assert!(said.starts_with("edit 2 of 2 cannot be made, so none was: `old` does not occur"), "{said}");
    assert_eq!(desk.text("a"), "12\nthrEE\n");
    for unclear in [json!({"path": "a"}), json!({"path": "a", "old": "1", "new": "2", "edits": edits})] {
        assert!(desk.refused("edit_file", unclear).await.contains("give `old` and `new`, or `edits`"));
    }
}

#[tokio::test]
async fn line_ends_and_permissions_stay_as_they_are() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let desk = Desk::new().await;
    desk.put("a.bat", "one\r\ntwo\r\nthree");
    std::fs::set_permissions(desk.inside("a.bat"), std::fs::Permissions::from_mode(0o750)).unwrap();
    desk.ok("edit_file", json!({"path": "a.bat", "old": "one\ntwo", "new": "1\n2\n2.5"})).await;
    assert_eq!(desk.text("a.bat"), "1\r\n2\r\n2.5\r\nthree");
    assert_eq!(std::fs::metadata(desk.inside("a.bat")).unwrap().mode() & 0o7777, 0o750);
    desk.put("lone\rcr", "a\rb");
    desk.ok("edit_file", json!({"path": "lone\rcr", "old": "b", "new": "c\n"})).await;
    assert_eq!(desk.text("lone\rcr"), "a\rc\n");
}

#[tokio::test]
async fn edits_of_one_file_side_by_side_are_all_there() {
    let desk = Desk::new().await;
    desk.put("a", (0..8).map(|n| format!("<{n}>\n")).collect::<String>());
    let edit = |n: u32| desk.ok("edit_file", json!({"path": "a", "old": format!("<{n}>"), "new": format!("[{n}]")}));
    tokio::join!(edit(0), edit(1), edit(2), edit(3), edit(4), edit(5), edit(6), edit(7));
    assert_eq!(desk.text("a"), (0..8).map(|n| format!("[{n}]\n")).collect::<String>());
}

#[tokio::test]
async fn after_a_crash_the_file_says_whether_the_edit_happened() {
    let desk = Desk::new().await;
    desk.put("a", "old\n");
    let edit = json!({"path": "a", "old": "old", "new": "new"});
    assert!(desk.reconcile("edit_file", edit.clone()).await.is_none());
    assert!(desk.turn.touched().is_empty());
    desk.put("a", "new\n");
    let output = desk.reconcile("edit_file", edit).await.unwrap();
    assert!(output.ok && output.content.text().contains("`old` is gone"), "{output:?}");
    assert_eq!(desk.turn.touched(), ["a"]);
}

#[tokio::test]
async fn what_is_not_text_or_too_large_is_not_edited() {
    let desk = Desk::new().await;
    desk.put("picture", [0xff, b'a']);
    let said = desk.refused("edit_file", json!({"path": "picture", "old": "a", "new": "b"})).await;
    assert!(said.contains("not UTF-8"), "{said}");
    // Sparse: no byte of it is stored.
    std::fs::File::create(desk.inside("huge")).unwrap().set_len(1 << 40).unwrap();
    let said = desk.refused("edit_file", json!({"path": "huge", "old": "a", "new": "b"})).await;
    assert!(said.contains("files up to 8388608"), "{said}");
    desk.put("many", "a".repeat(1 << 20));
    let bomb = json!({"path": "many", "old": "a", "new": "b".repeat(1 << 16), "all": true});
    assert!(desk.refused("edit_file", bomb).await.contains("or would have them"));
}

//! `edit_file`.

use serde_json::json;

use crate::desk::Desk;

#[tokio::test]
async fn one_piece_is_replaced() {
    let desk = Desk::new().await;
    desk.put("a.rs", "one\ntwo\nthree\n");
    let said = desk.ok("edit_file", json!({"path": "a.rs", "old": "two", "new": "2"})).await;
    assert_eq!(said, "edited a.rs at line 2");
    assert_eq!(desk.text("a.rs"), "one\n2\nthree\n");
    assert_eq!(desk.turn.touched(), ["a.rs"]);
}

#[tokio::test]
async fn a_piece_that_is_not_there_exactly_once_changes_nothing() {
    let desk = Desk::new().await;
    desk.put("a", "x\r\nx\r\n");
    let many = desk.refused("edit_file", json!({"path": "a", "old": "x", "new": "y"})).await;
    assert!(many.contains("first at line 1 and last at line 2"), "{many}");
    let none = desk.refused("edit_file", json!({"path": "a", "old": "x\nx", "new": "y"})).await;
    assert!(none.contains("does not occur") && none.contains("\\r\\n"), "{none}");
    let same = desk.refused("edit_file", json!({"path": "a", "old": "x", "new": "x"})).await;
    assert!(same.contains("nothing to change"), "{same}");
    assert_eq!(desk.text("a"), "x\r\nx\r\n");
    assert!(desk.turn.touched().is_empty());
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
}

//! `apply_patch`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::desk::Desk;

fn marked(body: &str) -> Value {
    json!({ "patch": format!("*** Begin Patch\n{body}*** End Patch\n") })
}

#[tokio::test]
async fn files_are_added_changed_renamed_and_deleted_by_one_patch() {
    let desk = Desk::new().await;
    desk.put("a", "one\ntwo\n");
    desk.put("run.sh", "old\n");
    fs::set_permissions(desk.inside("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    desk.put("gone", "x\n");
    let said = desk
        .ok(
            "apply_patch",
            marked(
                "*** Update File: ./a\n one\n-two\n+2\n*** Update File: run.sh\n*** Move to: bin/go.sh\n-old\n+new\n\
             *** Add File: new/file\n+hello\n*** Delete File: gone\n",
            ),
        )
        .await;
    let first = "changed a\nrenamed run.sh to bin/go.sh\ncreated new/file\ndeleted gone\n--- a/a\n+++ b/a\n";
    assert!(said.starts_with(first), "{said}");
    assert_eq!(
        (desk.text("a"), desk.text("bin/go.sh"), desk.text("new/file")),
        ("one\n2\n".into(), "new\n".into(), "hello\n".into())
    );
    assert_eq!(fs::metadata(desk.inside("bin/go.sh")).unwrap().mode() & 0o7777, 0o750);
    assert!(!desk.inside("gone").exists() && !desk.inside("run.sh").exists());
    assert_eq!(desk.turn.touched(), ["a", "bin/go.sh", "gone", "new/file", "run.sh"]);
    assert_eq!(fs::read_dir(desk.inside("")).unwrap().count(), 3, "a temporary file is left");
}

#[tokio::test]
async fn a_patch_of_git_is_applied() {
    let desk = Desk::new().await;
    desk.put("a", "one\ntwo");
    desk.put("old", "same\n");
    let patch = "diff --git a/a b/a\nindex 1..2 100644\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@ fn\n one\n-two\n\\ No newline at end of \
                 file\n+2\ndiff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n\
                 diff --git a/n b/n\nnew file mode 100644\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+n\n";
    desk.ok("apply_patch", json!({ "patch": patch })).await;
    assert_eq!((desk.text("a"), desk.text("new"), desk.text("n")), ("one\n2\n".into(), "same\n".into(), "n\n".into()));
}

#[tokio::test]
async fn a_patch_that_does_not_fit_everywhere_changes_nothing() {
    let desk = Desk::new().await;
    desk.put("a", "one\n");
    desk.put("b", "two\n");
    for (body, expected) in [
        ("*** Update File: a\n-one\n+1\n*** Update File: b\n-three\n+3\n", "does not fit b, so nothing was changed"),
        ("*** Update File: a\n-one\n+1\n*** Add File: b\n+x\n", "b is there already"),
        ("*** Update File: a\n-one\n+1\n*** Update File: c\n-x\n+y\n", "there is no c"),
        ("*** Update File: a\n-one\n+1\n*** Update File: ./a\n-one\n+2\n", "a is named twice"),
        ("*** Update File: a\n*** Move to: b\n-one\n+1\n", "b is there already"),
        ("*** Update File: a\n one\n", "nothing to change"),
    ] {
        let said = desk.refused("apply_patch", marked(body)).await;
        assert!(said.contains(expected), "{body}: {said}");
    }
    assert_eq!((desk.text("a"), desk.text("b")), ("one\n".into(), "two\n".into()));
    assert!(desk.turn.touched().is_empty());
}

#[tokio::test]
async fn a_change_that_fails_takes_back_those_before_it() {
    let desk = Desk::new().await;
    desk.put("a", "one\n");
    desk.put("gone", "keep\n");
    fs::set_permissions(desk.inside("gone"), fs::Permissions::from_mode(0o640)).unwrap();
    // The plan is fine; the folder `new/x` cannot be made where the first change of the patch makes a file.
    let body = "*** Update File: a\n-one\n+1\n*** Delete File: gone\n*** Add File: new\n+x\n*** Add File: new/x\n+y\n";
    let said = desk.refused("apply_patch", marked(body)).await;
    assert!(said.contains("not a folder"), "{said}");
    assert_eq!((desk.text("a"), desk.text("gone")), ("one\n".into(), "keep\n".into()));
    assert_eq!(fs::metadata(desk.inside("gone")).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(fs::read_dir(desk.inside("")).unwrap().count(), 2);
    assert!(desk.turn.touched().is_empty());
}

#[tokio::test]
async fn hooks_see_the_normal_form_of_every_path_in_a_patch() {
    let desk = Desk::new().await;
    desk.put("turnbuckle.toml", "x\n");
    symlink("turnbuckle.toml", desk.inside("notes")).unwrap();
    let normal = desk.normal("apply_patch", marked("*** Update File: ./notes\n-x\n+y\n")).await.unwrap();
    assert_eq!(normal, marked("*** Update File: turnbuckle.toml\n@@\n-x\n+y\n"));
    let unified = json!({"patch": "--- notes\n+++ notes\n@@ -1 +1 @@\n-x\n+y\n"});
    let normal = desk.normal("apply_patch", unified).await.unwrap();
    let expected = "--- a/turnbuckle.toml\n+++ b/turnbuckle.toml\n@@ -1,1 +1,1 @@\n-x\n+y\n";
    assert_eq!(normal, json!({ "patch": expected }));
    assert_eq!(desk.normal("apply_patch", normal.clone()).await.unwrap(), normal);
    // What was judged is what is changed.
    let said = desk.run("apply_patch", marked("*** Update File: notes\n@@\n-x\n+y\n")).await.content.text();
    assert!(said.contains("after the call was checked"), "{said}");
}

#[tokio::test]
async fn no_path_in_a_patch_leads_out() {
    let desk = Desk::new().await;
    fs::write(desk.outside("f"), "theirs\n").unwrap();
    desk.put(".turnbuckle/db", "theirs\n");
    desk.put("a", "mine\n");
    desk.put("x\n+++ b/a", "mine\n");
    symlink(desk.outside("f"), desk.inside("link")).unwrap();
    symlink("x\n+++ b/a", desk.inside("forged")).unwrap();
    for path in ["../outside/f", "link", ".turnbuckle/db", "forged", "."] {
        desk.refused("apply_patch", marked(&format!("*** Update File: {path}\n-theirs\n+mine\n"))).await;
        desk.refused("apply_patch", marked(&format!("*** Delete File: {path}\n"))).await;
        desk.refused("apply_patch", marked(&format!("*** Update File: a\n*** Move to: {path}\n-mine\n+x\n"))).await;
        desk.refused("apply_patch", json!({"patch": format!("--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-theirs\n")}))
            .await;
    }
    assert_eq!(fs::read_to_string(desk.outside("f")).unwrap(), "theirs\n");
    assert_eq!((desk.text(".turnbuckle/db"), desk.text("a")), ("theirs\n".into(), "mine\n".into()));
}

#[tokio::test]
async fn after_a_crash_the_files_say_whether_the_patch_was_applied() {
    let desk = Desk::new().await;
    let patch = marked("*** Update File: a\n@@\n-one\n+1\n*** Add File: b\n+x\n");
    desk.put("a", "one\n");
    assert!(desk.reconcile("apply_patch", patch.clone()).await.is_none());
    desk.put("a", "1\n");
    let half = desk.reconcile("apply_patch", patch.clone()).await.unwrap();
    assert!(!half.ok && half.content.text().contains("the patch was interrupted: a were changed"), "{half:?}");
    desk.put("b", "x\n");
    let done = desk.reconcile("apply_patch", patch).await.unwrap();
    assert!(done.ok && done.content.text().contains("a, b"), "{done:?}");
}

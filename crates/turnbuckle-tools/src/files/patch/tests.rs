//! Patches: what was compared is applied, and odd input is refused.

use proptest::prelude::*;

use super::*;
use crate::files::diff::hunks;

fn apply_to(text: &str, patch: &str) -> Result<String, HunkError> {
    applied(text, &Patch::parse(patch).unwrap().files[0].hunks)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_diff_of_two_texts_makes_the_second_of_the_first(
        old in "([ab@+ -]{0,3}(\n|\r\n|\r)){0,12}[ab]{0,2}",
        new in "([ab@+ -]{0,3}(\n|\r\n|\r)){0,12}[ab]{0,2}",
    ) {
        prop_assume!(old != new);
        let text = format!("--- a/f\n+++ b/f\n{}", hunks(&old, &new));
        let patch = Patch::parse(&text).unwrap();
        prop_assert_eq!(applied(&old, &patch.files[0].hunks).unwrap(), new.clone());
        prop_assert_eq!(applied(&new, &patch.files[0].inverse().hunks).unwrap(), old);
        // The normal form is the same patch.
        prop_assert_eq!(Patch::parse(&patch.to_string()).unwrap(), patch);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "(\\*\\*\\* (Begin Patch|End Patch|Update File: a|End of File)|@@ -1,9 \\+1 @@|--- a|\\+\\+\\+ b|[ +\\\\-]x|\n){0,12}") {
        if let Ok(patch) = Patch::parse(&text) {
            let _ = applied("x\nx\n", &patch.files[0].hunks);
            prop_assert_eq!(Patch::parse(&patch.to_string()).unwrap().to_string(), patch.to_string());
        }
    }
}

#[test]
fn a_hunk_is_found_at_another_line_if_it_is_there_once() {
    let patch = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n b\n-c\n+C\n";
    assert_eq!(apply_to("a\nb\nc\n", patch).unwrap(), "a\nb\nC\n");
    assert_eq!(apply_to("b\nc\nb\nc\n", patch).unwrap(), "b\nC\nb\nc\n");
    let twice = apply_to("a\nb\nc\nb\nc\n", patch).unwrap_err();
    assert_eq!(twice, HunkError::NotUnique { hunk: 1, one: 2, other: 4 });
    let none = apply_to("a\n", patch).unwrap_err().to_string();
    assert!(none.contains("its lines are not there; the first of them is \"b\""), "{none}");
}

#[test]
fn a_hunk_with_the_wrong_counts_is_read() {
    let patch = "--- f\n+++ f\n@@ -1,9 +1,1 @@\n a\n-b\n+c\n+d\n--- g\n+++ g\n@@ -1 +1 @@\n-x\n+y\n";
    let patch = Patch::parse(patch).unwrap();
    assert_eq!(patch.files.len(), 2);
    assert_eq!(applied("a\nb\n", &patch.files[0].hunks).unwrap(), "a\nc\nd\n");
    assert!(patch.to_string().contains("@@ -1,2 +1,3 @@"), "{patch}");
}

#[test]
fn sections_tell_places_apart() {
    let patch = "*** Begin Patch\n*** Update File: f\n@@ fn two() {\n-    old\n+    new\n*** End Patch\n";
    let text = "fn one() {\n    old\n}\nfn two() {\n    old\n}\n";
    assert_eq!(apply_to(text, patch).unwrap(), "fn one() {\n    old\n}\nfn two() {\n    new\n}\n");
    let end = "*** Begin Patch\n*** Update File: f\n@@\n-x\n+y\n*** End of File\n*** End Patch";
    assert_eq!(apply_to("x\nx", end).unwrap(), "x\ny");
}

#[test]
fn a_patch_for_other_line_ends_keeps_those_of_the_file() {
    let patch = "--- a/f\n+++ b/f\n@@ -1,2 +1,3 @@\n a\n-b\n+c\n+d\n";
    assert_eq!(apply_to("a\r\nb\r\n", patch).unwrap(), "a\r\nc\r\nd\r\n");
}

#[test]
fn what_is_no_patch_is_explained() {
    for (text, expected) in [
        ("", "changes nothing"),
        ("hello", "line 1 of the patch is \"hello\""),
        ("*** Begin Patch\n*** Update File: a\n-x\n+y\n", "may be cut off"),
        ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch\n", "begins with `+`"),
        ("--- a/f\n+++ b/f\n", "a hunk"),
        ("diff --git a/f b/f\nold mode 100644\nnew mode 100755\n", "permissions"),
        ("diff --git a/f b/f\nnew file mode 100644\nindex 0..0\n", "an empty file"),
        ("Binary files a/f and b/f differ\n", "text only"),
    ] {
        let error = Patch::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}

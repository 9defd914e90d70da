//! `list_files`.

use std::os::unix::fs::symlink;

use serde_json::json;

use crate::desk::{Desk, fifo};

#[tokio::test]
async fn files_are_listed_below_a_folder_in_order() {
    let desk = Desk::new().await;
    for path in ["b", "a/z", "a/y/x", ".env"] {
        desk.put(path, "");
    }
    symlink("../..", desk.inside("a/up")).unwrap();
    fifo(&desk.inside("pipe"));
    let all = desk.ok("list_files", json!({})).await;
    let expected = ".env\na/\na/up (symbolic link)\na/y/\na/y/x\na/z\nb\npipe (not a regular file)";
    assert_eq!(all, expected);
    assert_eq!(desk.ok("list_files", json!({"path": "a/y"})).await, "a/y/x");
    std::fs::create_dir(desk.inside("nothing")).unwrap();
    assert_eq!(desk.ok("list_files", json!({"path": "nothing"})).await, "[the folder is empty]");
    assert!(desk.refused("list_files", json!({"path": "b"})).await.contains("not a folder"));
    assert!(desk.refused("list_files", json!({"path": "c"})).await.contains("there is no c"));
}

#[tokio::test]
async fn a_long_list_is_cut_and_keeps_what_is_nearest_to_the_top() {
    let desk = Desk::new().await;
    for n in 0..1100 {
        desk.put(&format!("deep/er/{n:04}"), "");
    }
    desk.put("zzz", "");
    let all = desk.ok("list_files", json!({})).await;
    assert_eq!(all.lines().count(), 1001);
    assert!(all.contains("\nzzz\n[cut at 1000 entries"), "{}", &all[all.len() - 200..]);
}

#[tokio::test]
async fn caches_and_versions_are_named_and_not_opened_unless_asked_for() {
    let desk = Desk::new().await;
    for path in [".git/config", "target/CACHEDIR.TAG", "target/big", "src/main.rs"] {
        desk.put(path, "");
    }
    let all = desk.ok("list_files", json!({})).await;
    let note = "[not opened: .git/ and 1 more; give it as `path` to look inside]";
    assert_eq!(all, format!(".git/\nsrc/\nsrc/main.rs\ntarget/\n{note}"));
    assert_eq!(desk.ok("list_files", json!({"path": "target"})).await, "target/CACHEDIR.TAG\ntarget/big");
}

#[tokio::test]
async fn a_folder_that_is_closed_to_tools_is_not_offered_as_a_path() {
    let desk = Desk::new().await;
    for path in [".turnbuckle/turnbuckle.db", "a/.Turnbuckle/x", "b"] {
        desk.put(path, "secret");
    }
    let all = desk.ok("list_files", json!({})).await;
    assert_eq!(all, ".turnbuckle/\na/\na/.Turnbuckle/\nb\n[not opened: .turnbuckle/, which is closed to tools]");
    assert!(desk.refused("list_files", json!({"path": ".turnbuckle"})).await.contains("tools do not go there"));
    let found = desk.ok("search_files", json!({"pattern": "secret"})).await;
    assert!(found.starts_with("b:1: secret\n") && !found.contains("give it as"), "{found}");
}

#[tokio::test]
async fn a_name_cannot_forge_a_line() {
    let desk = Desk::new().await;
    desk.put("a\nb", "");
    assert_eq!(desk.ok("list_files", json!({})).await, "a\\nb");
}

#[tokio::test]
async fn a_write_under_way_beside_it_is_not_seen() {
    let desk = Desk::new().await;
    for path in ["a/.turnbuckle-12-0.tmp", "a/.turnbuckle-x.tmp", "a/.turnbuckle-1-2.tmp.md"] {
        desk.put(path, "half");
    }
    let rest = "a/.turnbuckle-1-2.tmp.md\na/.turnbuckle-x.tmp";
    assert_eq!(desk.ok("list_files", json!({"path": "a"})).await, rest);
    assert!(!desk.ok("search_files", json!({"pattern": "half"})).await.contains("12-0"));
}

#[tokio::test]
async fn what_gitignore_names_is_left_out_unless_asked_for() {
    let desk = Desk::new().await;
    desk.put(".gitignore", "# built\n/out/\n*.log\n!keep.log\n");
    desk.put("sub/.gitignore", "!b.log\nprivate\n");
    desk.put(".git/info/exclude", "notes.txt\n");
    for path in ["out/a", "out/deep/b", "a.log", "keep.log", "sub/b.log", "sub/private/x", "sub/out/c", "notes.txt"] {
        desk.put(path, "needle");
    }
    let all = desk.ok("list_files", json!({})).await;
    let shown = ".git/\n.gitignore\nkeep.log\nsub/\nsub/.gitignore\nsub/b.log\nsub/out/\nsub/out/c\n";
    assert!(all.starts_with(shown), "{all}");
    assert!(all.ends_with("[left out by .gitignore: a.log and 3 more; give it as `path` to look inside]"), "{all}");
    let found = desk.ok("search_files", json!({"pattern": "needle"})).await;
    let files: Vec<&str> = found.lines().filter_map(|line| line.strip_suffix(":1: needle")).collect();
    assert_eq!(files, ["keep.log", "sub/b.log", "sub/out/c"]);
    assert_eq!(desk.ok("list_files", json!({"path": "out"})).await, "out/a\nout/deep/\nout/deep/b");
    assert_eq!(desk.ok("search_files", json!({"pattern": "needle", "path": "a.log"})).await, "a.log:1: needle");
    // Rules from above hold in a folder that is not ignored itself.
    desk.put("sub/c.log", "");
    assert!(!desk.ok("list_files", json!({"path": "sub"})).await.starts_with("sub/c.log"));
}

#[tokio::test]
async fn a_glob_chooses_files() {
    let desk = Desk::new().await;
    for path in ["a.rs", "src/b.rs", "src/deep/c.rs", "src/d.md", "docs/e.md"] {
        desk.put(path, "needle");
    }
    for (glob, chosen) in [
        ("*.rs", "a.rs\nsrc/b.rs\nsrc/deep/c.rs"),
        ("src/*.rs", "src/b.rs"),
        ("src/**/*.rs", "src/b.rs\nsrc/deep/c.rs"),
        ("*.{md,txt}", "docs/e.md\nsrc/d.md"),
        ("!src/", "a.rs\ndocs/\ndocs/e.md"),
        ("*.py", "[no file matches]"),
    ] {
        assert_eq!(desk.ok("list_files", json!({"glob": glob})).await, chosen, "{glob}");
    }
    let found = desk.ok("search_files", json!({"pattern": "needle", "path": "src", "glob": "*.md"})).await;
    assert_eq!(found, "src/d.md:1: needle");
    let said = desk.refused("list_files", json!({"glob": "a{"})).await;
    assert!(said.contains("`glob` cannot be used"), "{said}");
}

#[tokio::test]
async fn a_gitignore_that_leads_out_is_not_read() {
    let desk = Desk::new().await;
    std::fs::write(desk.outside("rules"), "a\n").unwrap();
    symlink(desk.outside("rules"), desk.inside(".gitignore")).unwrap();
    desk.put("a", "");
    assert_eq!(desk.ok("list_files", json!({})).await, ".gitignore (symbolic link)\na");
}

#[tokio::test]
async fn a_deep_tree_is_walked_to_its_end() {
    let desk = Desk::new().await;
    let path = vec!["d"; 400].join("/") + "/end";
    desk.put(&path, "needle");
    assert_eq!(desk.ok("search_files", json!({"pattern": "needle"})).await, format!("{path}:1: needle"));
}

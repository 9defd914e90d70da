//! `search_files`.

use std::os::unix::fs::symlink;
use std::time::Duration;

use serde_json::json;

use crate::desk::{Desk, fifo};

#[tokio::test]
async fn matches_have_path_and_line() {
    let desk = Desk::new().await;
    desk.put("a.txt", "one\nTwo\r\nthree\n");
    desk.put("b/c.txt", "two");
    desk.put("b/d.bin", "two\0");
    let all = desk.ok("search_files", json!({"pattern": "(?i)^two$"})).await;
    assert_eq!(all, "a.txt:2: Two\nb/c.txt:1: two");
    assert_eq!(desk.ok("search_files", json!({"pattern": "two", "path": "b"})).await, "b/c.txt:1: two");
    assert_eq!(desk.ok("search_files", json!({"pattern": "t", "path": "a.txt"})).await, "a.txt:3: three");
    assert_eq!(desk.ok("search_files", json!({"pattern": "four"})).await, "[no match in 2 files]");
    assert_eq!(desk.ok("search_files", json!({"pattern": "^$"})).await, "[no match in 2 files]");
}

#[tokio::test]
async fn a_bad_pattern_is_explained() {
    let desk = Desk::new().await;
    let said = desk.refused("search_files", json!({"pattern": "a("})).await;
    assert!(said.contains("not a regular expression") && said.contains("unclosed group"), "{said}");
    let said = desk.refused("search_files", json!({"pattern": "(a{1000}){1000}"})).await;
    assert!(said.contains("size limit"), "{said}");
}

#[tokio::test]
async fn no_pattern_takes_exponential_time() {
    let desk = Desk::new().await;
    desk.put("a", "a".repeat(50_000) + "!");
    let search = desk.ok("search_files", json!({"pattern": "^(a+)+$"}));
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), search).await.unwrap(), "[no match in 1 files]");
}

#[tokio::test]
async fn many_matches_and_long_lines_are_cut() {
    let desk = Desk::new().await;
    desk.put("many", "x\n".repeat(500));
    let all = desk.ok("search_files", json!({"pattern": "x"})).await;
    assert_eq!(all.lines().count(), 201);
    assert!(all.ends_with("[cut at 200 matches; narrow the pattern or give a path]"));
    desk.put("long", "é".repeat(5000) + "needle" + &"é".repeat(5000));
    let found = desk.ok("search_files", json!({"pattern": "needle"})).await;
    assert!(found.len() < 400 && found.contains("éneedleé"), "{found}");
}

#[tokio::test]
async fn links_and_pipes_are_not_searched() {
    let desk = Desk::new().await;
    std::fs::write(desk.outside("secret"), "needle").unwrap();
    symlink(desk.outside(""), desk.inside("out")).unwrap();
    symlink(desk.outside("secret"), desk.inside("file")).unwrap();
    fifo(&desk.inside("pipe"));
    assert_eq!(desk.ok("search_files", json!({"pattern": "needle"})).await, "[no match in 0 files]");
    for path in ["out", "file", "pipe"] {
        desk.refused("search_files", json!({"pattern": "needle", "path": path})).await;
    }
}

#[tokio::test]
async fn a_file_larger_than_memory_for_it_is_searched_to_its_end() {
    let desk = Desk::new().await;
    desk.put("large", "x".repeat(99).replace("xxx", "xy\n").repeat(400_000) + "needle\n");
    let found = desk.ok("search_files", json!({"pattern": "needle"})).await;
    assert_eq!(found, "large:13200001: needle");
    desk.put("wide", "x".repeat(20 << 20));
    let found = desk.ok("search_files", json!({"pattern": "needle"})).await;
    assert!(found.ends_with("[1 files could not be read, or have lines that are too long]"), "{found}");
}

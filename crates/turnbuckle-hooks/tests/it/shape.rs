//! All hooks are documented in the same shape, and built by the same trait.

use std::fs;
use std::path::{Path, PathBuf};

const HEADINGS: &[&str] = &["//! # What it does", "//! # Points", "//! # Options", "//! # Example"];

/// Every source file that makes a hook.
fn hooks() -> Vec<PathBuf> {
    let mut found = Vec::new();
    look_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found
}

fn look_in(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            look_in(&path, found);
        } else if fs::read_to_string(&path).unwrap().contains("impl ConfigHook for ") {
            found.push(path);
        }
    }
}

#[test]
fn every_hook_says_what_it_does_where_with_which_options_and_shows_it() {
    let hooks = hooks();
    assert_eq!(hooks.len(), 17, "{hooks:?}");
    for file in hooks {
        let text = fs::read_to_string(&file).unwrap();
        for heading in HEADINGS {
            assert!(text.lines().any(|line| line == *heading), "{} lacks `{heading}`", file.display());
        }
    }
}

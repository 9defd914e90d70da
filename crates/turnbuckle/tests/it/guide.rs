//! The dependencies that the guide lists are those that its programs use.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The first `toml` block of docs/guide/README.md.
fn listed() -> io::Result<String> {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/guide/README.md"))?;
    let block = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    block.map(str::to_owned).ok_or_else(|| io::Error::other("docs/guide/README.md lists no dependencies"))
}

/// The lines of all Rust programs of the guide.
fn programs() -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    for file in fs::read_dir(Path::new(ROOT).join("docs/guide"))? {
        let page = fs::read_to_string(file?.path())?;
        let blocks = page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next());
        lines.extend(blocks.flat_map(str::lines).map(|line| line.trim().to_owned()));
    }
    Ok(lines)
}

/// The keys of a section of a manifest, such as `[features]`.
fn keys<'a>(manifest: &'a str, section: &str) -> BTreeSet<&'a str> {
    let lines = manifest.split(section).nth(1).into_iter().flat_map(str::lines);
    let entries = lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    let key = |line: &'a str| line.split([' ', '.']).next().filter(|_| line.contains(" = "));
    entries.filter_map(key).collect()
}

#[test]
fn the_dependencies_of_the_guide_are_complete() -> io::Result<()> {
    let (listed, programs) = (listed()?, programs()?);
    let examples = fs::read_to_string(Path::new(ROOT).join("examples/Cargo.toml"))?;
    let hooks = fs::read_to_string(Path::new(ROOT).join("crates/turnbuckle-hooks/Cargo.toml"))?;
    let features = keys(&hooks, "[features]\n");
    assert!(programs.len() > 1_000 && features.contains("telemetry"), "the guide was not read");

    let uses = |path: &str| programs.iter().any(|line| line.contains(path));
    let mut missing = BTreeSet::new();
    // The programs are doctests of the examples, so they can use no other crates than these.
    for name in keys(&examples, "[dependencies]\n").union(&keys(&examples, "[dev-dependencies]\n")) {
        let root = format!("{}::", name.replace('-', "_"));
        if uses(&root) && !listed.lines().any(|line| line.split(" = ").next() == Some(name)) {
            missing.insert(format!("the crate {name}"));
        }
    }
    let default = hooks.split("default = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap_or_default();
    let line = listed.lines().find(|line| line.starts_with("turnbuckle-hooks = ")).unwrap_or_default();
    for feature in features {
        let quoted = format!("\"{feature}\"");
        if uses(&format!("turnbuckle_hooks::{feature}::")) && !default.contains(&quoted) && !line.contains(&quoted) {
            missing.insert(format!("the feature {feature} of turnbuckle-hooks"));
        }
    }
    assert!(missing.is_empty(), "docs/guide/README.md does not list: {missing:?}");
    Ok(())
}

//! The rules a compiler does not know: lengths, module docs, crate boundaries, forgotten files, leftovers.
//!
//! Each test collects all offences before it fails, so one run shows everything there is to tidy.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const LONGEST_FILE: usize = 500;
/// The whole `impl` of one type stays in one file, even if it is longer. Each of these is such a file.
const ONE_LONG_TYPE: &[(&str, usize)] = &[
    ("crates/turnbuckle/src/conversation/conversations.rs", 850),
    ("crates/turnbuckle/src/conversation/driver.rs", 750),
    ("crates/turnbuckle/src/conversation/shared.rs", 550),
    ("crates/turnbuckle-stores/src/sqlite/mod.rs", 550),
];

/// What git does not track either, see `.gitignore`. `.git` is a file in a worktree, so names are skipped, not folders.
const UNTRACKED: &[&str] = &[".git", "target", "node_modules", ".venv", "__pycache__", ".turnbuckle"];

/// Crates that would let the core speak HTTP or SQL, or to a terminal.
const NOT_IN_THE_CORE: &[&str] = &[
    "reqwest",
    "hyper",
    "hyper-util",
    "ureq",
    "isahc",
    "curl",
    "axum",
    "actix-web",
    "warp",
    "tonic",
    "tower-http",
    "rusqlite",
    "libsqlite3-sys",
    "sqlx",
    "diesel",
    "postgres",
    "tokio-postgres",
    "deadpool-postgres",
    "clap",
    "crossterm",
    "termion",
    "ratatui",
    "rustyline",
    "reedline",
    "indicatif",
    "console",
    "anstream",
    "anstyle",
];

/// Crates that would let the server choose a provider or a database: whoever builds one hands both over.
const NOT_IN_THE_SERVER: &[&str] = &[
    "turnbuckle-models",
    "turnbuckle-stores",
    "turnbuckle-tools",
    "turnbuckle-hooks",
    "turnbuckle-cli",
    "rusqlite",
    "reqwest",
];

/// Code that would let the core print or open a socket.
const NOT_IN_THE_CORES_CODE: &[&str] = &[
    "print!",
    "println!",
    "dbg!",
    "io::stdout",
    "io::stderr",
    "std::net",
    "tokio::net",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
];

/// Put together here, so that this file does not find itself.
const MACHINE_PATHS: &[&str] = &[concat!("/", "work", "/"), concat!("/", "root", "/")];
const LEFTOVERS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("to", "do!(")];

const HOOK_HEADINGS: &[&str] = &["//! # What it does", "//! # Points", "//! # Options", "//! # Example"];

/// Folders whose doc comments must be more than one word.
const WHERE_DOCS_ARE_SENTENCES: &[&str] = &["crates"];

#[test]
fn the_walk_sees_the_workspace() -> io::Result<()> {
    let seen: Vec<String> = workspace_files()?.iter().map(|file| shown(file)).collect();
    for file in ["Cargo.toml", "crates/turnbuckle/src/lib.rs", "crates/turnbuckle/tests/it/tidy.rs"] {
        assert!(seen.iter().any(|path| path == file), "the walk from {ROOT} missed {file}");
    }
    Ok(())
}

#[test]
fn no_rust_file_is_longer_than_500_lines() -> io::Result<()> {
    let mut offences = Vec::new();
    for file in rust_files()? {
        let length = text_of(&file)?.lines().count();
        let one_type = ONE_LONG_TYPE.iter().find(|(name, _)| shown(&file).ends_with(name));
        if length > one_type.map_or(LONGEST_FILE, |(_, most)| *most) {
            offences.push(format!("{}: {length} lines", shown(&file)));
        }
    }
    assert_none(&offences, "split these files along what they are about");
    Ok(())
}

#[test]
fn every_source_file_begins_with_its_module_doc() -> io::Result<()> {
    let mut offences = Vec::new();
    for src in folder_of_every_crate("src")? {
        for file in rust_files_in(&src)? {
            if !text_of(&file)?.starts_with("//!") {
                offences.push(shown(&file));
            }
        }
    }
    assert_none(&offences, "the first line says what the file is for: `//! …`");
    Ok(())
}

#[test]
fn the_core_names_no_http_sql_or_terminal_crate() -> io::Result<()> {
    let manifest = text_of(&root().join("crates/turnbuckle/Cargo.toml"))?;
    let mut offences = Vec::new();
    for name in manifest.lines().flat_map(crate_names) {
        if NOT_IN_THE_CORE.contains(&name) {
            offences.push(name.to_owned());
        }
    }
    assert_none(&offences, "these belong into a crate that shuts them in");
    Ok(())
}

#[test]
fn the_server_names_no_provider_and_no_database() -> io::Result<()> {
    let manifest = text_of(&root().join("crates/turnbuckle-server/Cargo.toml"))?;
    let named = manifest.lines().flat_map(crate_names);
    let offences: Vec<String> = named.filter(|name| NOT_IN_THE_SERVER.contains(name)).map(str::to_owned).collect();
    assert_none(&offences, "the server is given its conversations");
    Ok(())
}

#[test]
fn the_core_prints_nothing_and_opens_no_socket() -> io::Result<()> {
    let files = rust_files_in(&root().join("crates/turnbuckle/src"))?;
    let offences = lines_with(&files, NOT_IN_THE_CORES_CODE, is_code)?;
    assert_none(&offences, "the core tells live events; programs print and listen");
    Ok(())
}

#[test]
fn no_test_file_is_forgotten() -> io::Result<()> {
    let mut offences = Vec::new();
    for tests in folder_of_every_crate("tests/it")? {
        let main = text_of(&tests.join("main.rs"))?;
        for module in modules_in(&tests)? {
            if !declares(&main, &module) {
                offences.push(format!("{}/main.rs lacks `mod {module};`", shown(&tests)));
            }
        }
    }
    assert_none(&offences, "a test that is not compiled passes always");
    Ok(())
}

#[test]
fn no_example_is_forgotten() -> io::Result<()> {
    let folder = root().join("examples");
    let manifest = text_of(&folder.join("Cargo.toml"))?;
    let mut offences = Vec::new();
    for file in entries(&folder)? {
        let name = stem(&file);
        let listed = |line: &str| !line.trim_start().starts_with('#') && line.contains(&format!("\"{name}\""));
        if is_numbered_example(&file) && !manifest.lines().any(listed) {
            offences.push(shown(&file));
        }
    }
    assert_none(&offences, "examples/Cargo.toml has an `[[example]]` with the name of each");
    Ok(())
}

#[test]
fn no_page_of_the_guide_is_forgotten() -> io::Result<()> {
    let tested = text_of(&root().join("examples/src/lib.rs"))?;
    let contents = text_of(&root().join("docs/guide/README.md"))?;
    let mut offences = Vec::new();
    for page in entries(&root().join("docs/guide"))? {
        let name = format!("{}.md", stem(&page));
        if !tested.contains(&format!("include_str!(\"../../docs/guide/{name}\")")) {
            offences.push(format!("{}: examples/src/lib.rs does not include it", shown(&page)));
        }
        if name != "README.md" && !contents.contains(&format!("]({name})")) {
            offences.push(format!("{}: docs/guide/README.md does not list it", shown(&page)));
        }
    }
    assert_none(&offences, "the programs of a page that is not included are neither compiled nor run");
    Ok(())
}

#[test]
fn no_file_names_a_path_of_one_machine() -> io::Result<()> {
    let offences = lines_with(&workspace_files()?, MACHINE_PATHS, is_any_line)?;
    assert_none(&offences, "paths are relative to the repository or come from the environment");
    Ok(())
}

#[test]
fn nothing_is_left_to_be_done_in_code() -> io::Result<()> {
    let files: Vec<PathBuf> = workspace_files()?.into_iter().filter(|file| !has_extension(file, "md")).collect();
    let offences = lines_with(&files, LEFTOVERS, is_any_line)?;
    assert_none(&offences, "do it, or open an issue and say what the code does today");
    Ok(())
}

#[test]
fn every_ready_made_hook_tells_its_points_options_and_an_example() -> io::Result<()> {
    let mut offences = Vec::new();
    for file in rust_files_in(&root().join("crates"))? {
        let text = text_of(&file)?;
        if !text.lines().any(|line| line.starts_with("impl ConfigHook for ")) {
            continue;
        }
        for heading in HOOK_HEADINGS {
            if !text.lines().any(|line| line.trim_end() == *heading) {
                offences.push(format!("{} lacks `{heading}`", shown(&file)));
            }
        }
    }
    assert_none(&offences, "all hooks are documented in the same shape");
    Ok(())
}

/// Only then is the page with its points, options and example a part of the documentation.
#[test]
fn every_ready_made_hook_has_a_public_module_of_its_name() -> io::Result<()> {
    let mut offences = Vec::new();
    for src in folder_of_every_crate("src")? {
        for file in rust_files_in(&src)? {
            let text = text_of(&file)?;
            if !text.lines().any(|line| line.starts_with("impl ConfigHook for ")) {
                continue;
            }
            let name = format!("const NAME: &'static str = {:?};", stem(&file));
            if !text.contains(&name) {
                offences.push(format!("{} lacks `{name}`", shown(&file)));
            }
            offences.extend(private_modules(&src, &file)?);
        }
    }
    assert_none(&offences, "`turnbuckle::hooks::retry` is public, and `use = \"retry\"` in configuration");
    Ok(())
}

/// Declarations that are missing on the way from `lib.rs` to the module of a file.
fn private_modules(src: &Path, file: &Path) -> io::Result<Vec<String>> {
    let mut missing = Vec::new();
    let mut module = file.to_owned();
    while let Some(folder) = module.parent().filter(|folder| folder.starts_with(src)).map(Path::to_owned) {
        let parent = if folder == src { src.join("lib.rs") } else { folder.with_extension("rs") };
        let declaration = format!("pub mod {};", stem(&module));
        if !text_of(&parent)?.lines().any(|line| line.trim_end() == declaration) {
            missing.push(format!("{} lacks `{declaration}`", shown(&parent)));
        }
        module = folder;
    }
    Ok(missing)
}

#[test]
fn no_doc_comment_is_a_single_word() -> io::Result<()> {
    let mut offences = Vec::new();
    for file in WHERE_DOCS_ARE_SENTENCES.iter().map(|folder| rust_files_in(&root().join(folder))) {
        for file in file? {
            let text = text_of(&file)?;
            let docs: Vec<Option<&str>> = text.lines().map(|line| line.trim_start().strip_prefix("///")).collect();
            for (index, doc) in docs.iter().enumerate() {
                let beside = [index.wrapping_sub(1), index + 1];
                let alone = beside.iter().all(|line| docs.get(*line).copied().flatten().is_none());
                if doc.is_some_and(|doc| alone && doc.split_whitespace().count() == 1) {
                    offences.push(format!("{}:{}: {}", shown(&file), index + 1, doc.unwrap_or_default().trim()));
                }
            }
        }
    }
    assert_none(&offences, "say what it is in a sentence that means something without the code around it");
    Ok(())
}

/// The modules of the core from bottom to top: a module may use those before it. An agent has hooks and tools, hooks and tools
/// are given a turn, and a turn knows its agent, so those four define each other and share a layer.
const LAYERS: &[&[&str]] = &[
    &["id", "clock", "point", "scope", "json_schema"],
    &["message", "call_map"],
    &["access", "change"],
    &["record", "limits", "digest", "output_schema", "agent_parts", "audit", "cache_break"],
    &["event"],
    &["cut", "summary"],
    &["model", "store", "feed"],
    &["context", "report"],
    &["stores", "models", "trace", "sent"],
    &["agent", "hook", "tool", "turn"],
    &["conversation"],
    &["tools", "hooks"],
    &["testing"],
];

#[test]
fn no_module_of_the_core_uses_one_above_it() -> io::Result<()> {
    let src = root().join("crates/turnbuckle/src");
    let layer = |module: &str| LAYERS.iter().position(|layer| layer.contains(&module));
    let mut offences = Vec::new();
    for file in rust_files_in(&src)? {
        let path = file.strip_prefix(&src).unwrap_or(&file);
        let top = path.components().next().map(|first| first.as_os_str().to_string_lossy().into_owned());
        let module = top.unwrap_or_default().trim_end_matches(".rs").to_owned();
        if module == "lib" {
            continue;
        }
        let Some(own) = layer(&module) else {
            offences.push(format!("{module} has no layer"));
            continue;
        };
        let text = text_of(&file)?;
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code.lines().filter(|line| is_code(line)) {
            for used in line.split("crate::").skip(1) {
                let used: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let together = own == LAYERS.len() - 4;
                let is_below =
                    layer(&used).is_none_or(|other| other < own || (other == own && (together || used == module)));
                if !is_below {
                    offences.push(format!("{} uses {used}", shown(&file)));
                }
            }
        }
    }
    offences.sort();
    offences.dedup();
    assert_none(&offences, "move what is used down, or give the lower module a trait that the upper one implements");
    Ok(())
}

fn assert_none(offences: &[String], rule: &str) {
    assert!(offences.is_empty(), "{rule}:\n  {}", offences.join("\n  "));
}

/// `file:line: text` for each line that `counts` and holds one of the needles. Files that are not text are passed over.
fn lines_with(files: &[PathBuf], needles: &[&str], counts: fn(&str) -> bool) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for file in files {
        let Ok(text) = String::from_utf8(fs::read(file)?) else { continue };
        for (index, line) in text.lines().enumerate() {
            if counts(line) && needles.iter().any(|needle| line.contains(needle)) {
                found.push(format!("{}:{}: {}", shown(file), index + 1, line.trim()));
            }
        }
    }
    Ok(found)
}

fn is_any_line(_: &str) -> bool {
    true
}

/// An example in a doc comment may print.
fn is_code(line: &str) -> bool {
    !line.trim_start().starts_with("//")
}

/// Every word of a manifest's line that could be a crate's name, comments aside.
fn crate_names(line: &str) -> impl Iterator<Item = &str> {
    let line = line.split('#').next().unwrap_or_default();
    line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'))
}

fn declares(main: &str, module: &str) -> bool {
    let alone = format!("mod {module};");
    let visible = format!(" {alone}");
    main.lines().filter(|line| is_code(line)).any(|line| line.trim() == alone || line.trim_end().ends_with(&visible))
}

fn is_numbered_example(file: &Path) -> bool {
    let name = stem(file);
    let (number, rest) = name.split_at_checked(2).unwrap_or_default();
    has_extension(file, "rs") && number.bytes().all(|b| b.is_ascii_digit()) && rest.starts_with('_')
}

/// The modules a folder holds beside its `main.rs` or `mod.rs`: files and folders.
fn modules_in(folder: &Path) -> io::Result<Vec<String>> {
    let name = |file: &PathBuf| match file.parent() {
        Some(folder) if file.ends_with("mod.rs") => stem(folder),
        _ => stem(file),
    };
    Ok(module_files_in(folder)?.iter().map(name).collect())
}

/// `x.rs` and `x/mod.rs` for each module x right below the folder.
fn module_files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in entries(folder)? {
        let inner = entry.join("mod.rs");
        if inner.is_file() {
            files.push(inner);
        } else if has_extension(&entry, "rs") && !entry.ends_with("mod.rs") && !entry.ends_with("main.rs") {
            files.push(entry);
        }
    }
    Ok(files)
}

fn folder_of_every_crate(name: &str) -> io::Result<Vec<PathBuf>> {
    let folders = entries(&root().join("crates"))?.into_iter().map(|krate| krate.join(name));
    Ok(folders.filter(|folder| folder.is_dir()).collect())
}

fn rust_files() -> io::Result<Vec<PathBuf>> {
    rust_files_in(&root())
}

fn rust_files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(files_in(folder)?.into_iter().filter(|file| has_extension(file, "rs")).collect())
}

fn workspace_files() -> io::Result<Vec<PathBuf>> {
    files_in(&root())
}

fn files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in entries(folder)? {
        // Links lead out of the tree or round in it.
        if entry.is_symlink() {
            continue;
        }
        if entry.is_dir() {
            files.extend(files_in(&entry)?);
        } else {
            files.push(entry);
        }
    }
    Ok(files)
}

/// What is in a folder and tracked, sorted.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| naming(folder, &error))? {
        let entry = entry?;
        if !UNTRACKED.iter().any(|name| entry.file_name() == *name) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

fn text_of(file: &Path) -> io::Result<String> {
    fs::read_to_string(file).map_err(|error| naming(file, &error))
}

/// An error of the file system does not say which file.
fn naming(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", shown(path)))
}

fn root() -> PathBuf {
    PathBuf::from(ROOT)
}

fn has_extension(file: &Path, extension: &str) -> bool {
    file.extension().is_some_and(|found| found == extension)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// A path as people write it: from the root of the repository.
fn shown(path: &Path) -> String {
    path.strip_prefix(ROOT).unwrap_or(path).display().to_string()
}

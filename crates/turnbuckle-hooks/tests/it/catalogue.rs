//! The catalogue: every hook of this crate has its section, and every example in it builds.

use std::path::Path;

use serde_json::Value;
use turnbuckle::hooks::ConfigHook;
use turnbuckle_hooks::*;

use super::kit::built;

/// Keys that the program takes before a hook sees its options.
const COMMON: &[&str] = &[
    "use",
    "name",
    "on_failure",
    "timeout",
    "tools",
    "main_agent_only",
    "release",
    "durable",
    "max_tokens",
    "priority",
];

/// Both pages: which one a hook is on depends on what it is about, not on its crate.
fn page() -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let pages = ["catalogue.md", "catalogue-services.md"].map(|page| std::fs::read_to_string(docs.join(page)).unwrap());
    pages.concat()
}

/// The TOML blocks of the page, as `[[hooks]]` tables.
fn examples() -> Vec<Value> {
    let page = page();
    let blocks = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.flat_map(|block| toml::from_str::<Value>(block).unwrap()["hooks"].as_array().unwrap().clone()).collect()
}

fn builds<H: ConfigHook>(examples: &[Value]) {
    let page = page();
    assert!(page.contains(&format!("\n## {}\n", H::NAME)), "there is no section on {}", H::NAME);
    let mine: Vec<&Value> = examples.iter().filter(|hook| hook["use"] == H::NAME).collect();
    assert!(!mine.is_empty(), "there is no example of {}", H::NAME);
    for example in mine {
        let mut options = example.as_object().unwrap().clone();
        options.retain(|key, _| !COMMON.contains(&key.as_str()));
        if options.contains_key("secret_env") {
            // One that is set wherever tests run.
            options.insert("secret_env".into(), "PATH".into());
        }
        if let Err(refusal) = built::<H>(Value::Object(options)) {
            panic!("{example}: {refusal}");
        }
    }
}

#[test]
fn every_hook_has_a_section_and_its_example_builds() {
    let examples = examples();
    builds::<Redact>(&examples);
    builds::<Critic>(&examples);
    builds::<Refine>(&examples);
    builds::<Suggest>(&examples);
    builds::<Title>(&examples);
    builds::<Cache>(&examples);
    builds::<RateLimit>(&examples);
    builds::<Concurrency>(&examples);
    builds::<Timeout>(&examples);
    builds::<CircuitBreaker>(&examples);
    builds::<Monitor>(&examples);
    builds::<AuditLog>(&examples);
    #[cfg(feature = "memory")]
    builds::<Remember>(&examples);
    #[cfg(feature = "memory")]
    builds::<Recall>(&examples);
    #[cfg(feature = "memory")]
    builds::<Dream>(&examples);
    #[cfg(feature = "notify")]
    builds::<Notify>(&examples);
    #[cfg(feature = "telemetry")]
    builds::<Telemetry>(&examples);
}

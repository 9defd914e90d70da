//! `[store] audit`: what models are sent is recorded, with secrets taken out. They are taken out of what records of hooks have as well.

use std::sync::{Arc, OnceLock};

use serde_json::Value;
use turnbuckle::audit::{AuditLimits, AuditOptions, AuditRedaction};
use turnbuckle_hooks::Redact;

use crate::config::{Config, HookPart};
use crate::model_name::provider_variables;
use crate::problem::Problem;

/// The shortest value of a key's variable that is looked for: what is shorter is a word, and no key.
const SHORTEST_SECRET: usize = 8;

/// How the audit is kept, if it is.
pub(crate) fn options(config: &Config) -> Result<Option<AuditOptions>, Problem> {
    let store = &config.store;
    if !store.audit.as_ref().is_some_and(|audit| audit.value) {
        return Ok(None);
    }
    let mut limits = AuditLimits::default();
    if let Some(ttl) = &store.audit_ttl {
        limits.ttl = ttl.value;
    }
    if let Some(rows) = &store.audit_rows {
        limits.calls = rows.value;
    }
    if let Some(bytes) = &store.audit_bytes {
        limits.bytes = bytes.value;
    }
    let (redact, secrets) = (rules(config)?, secrets());
    Ok(Some(AuditOptions::new(limits, move |text| redacted(text, &redact, &secrets))))
}

/// What is taken out of the texts that records of hooks have: keys of known forms and the values of keys' variables. `redact` hooks
/// take out theirs themselves. Compiled when the first hook changes something.
pub(crate) fn of_records() -> Arc<AuditRedaction> {
    let (rules, secrets) = (OnceLock::new(), secrets());
    Arc::new(move |text| match rules.get_or_init(|| Redact::builder().keys().marked().build().ok()) {
        Some(rules) => redacted(text, rules, &secrets),
        None => Some("[redacted]".to_owned()),
    })
}

fn secrets() -> Vec<(String, String)> {
    provider_variables()
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
        // Addresses are no secrets.
        .filter(|(name, value)| !name.ends_with("_URL") && value.len() >= SHORTEST_SECRET)
        .collect()
}

fn redacted(text: &str, rules: &Redact, secrets: &[(String, String)]) -> Option<String> {
    let mut changed: Option<String> = None;
    for (name, secret) in secrets {
        let now = changed.as_deref().unwrap_or(text);
        if now.contains(secret.as_str()) {
            changed = Some(now.replace(secret.as_str(), &format!("[redacted: {name}]")));
        }
    }
    match rules.apply(changed.as_deref().unwrap_or(text)) {
        std::borrow::Cow::Owned(redacted) => Some(redacted),
        std::borrow::Cow::Borrowed(_) => changed,
    }
}

/// Keys always, and whatever the `redact` hooks of the configuration look for: their own places may be others than those that the
/// audit sees.
fn rules(config: &Config) -> Result<Redact, Problem> {
    let hooks = || config.hooks.iter().filter(|part| part.used.name == "redact");
    let is_on = |option: &str| hooks().any(|part| part.option(option).and_then(Value::as_bool).unwrap_or(true));
    let mut rules = Redact::builder().keys();
    if is_on("emails") {
        rules = rules.emails();
    }
    if is_on("cards") {
        rules = rules.cards();
    }
    for (name, pattern) in hooks().flat_map(patterns) {
        rules = rules.pattern(name, pattern);
    }
    rules.marked().build().map_err(|error| Problem::error(format!("the rules of the audit cannot be used: {error}")))
}

fn patterns(part: &HookPart) -> impl Iterator<Item = (&str, &str)> {
    let given = part.option("patterns").and_then(Value::as_array).into_iter().flatten();
    given.filter_map(|one| Some((one.get("name")?.as_str()?, one.get("pattern")?.as_str()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_of_their_variables_are_taken_out_and_marked() {
        let rules = Redact::builder().keys().marked().build().unwrap();
        let secrets = [("MY_KEY".to_owned(), "hunter2hunter2".to_owned())];
        let clean = |text: &str| redacted(text, &rules, &secrets);
        assert_eq!(clean("nothing here [key]"), None);
        assert_eq!(clean("it is hunter2hunter2."), Some("it is [redacted: MY_KEY].".to_owned()));
        let key = format!("AKIA{}", "ABCDEFGHIJKLMNOP");
        assert_eq!(
            clean(&format!("aws {key} hunter2hunter2")),
            Some("aws [redacted: key] [redacted: MY_KEY]".to_owned())
        );
        assert_eq!(
            clean("GET postgres://ann:s3cret@db/x with Authorization: Bearer opaque-word"),
            Some("GET postgres:[redacted: password]db/x with [redacted: key]".to_owned())
        );
    }
}

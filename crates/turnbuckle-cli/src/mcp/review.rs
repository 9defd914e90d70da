//! What a server offers that is not what was accepted: shown, and asked about.

use std::path::Path;

use turnbuckle_mcp::{Change, ListedTool, Listing};

use super::pins::Pin;
use crate::config::McpPart;
use crate::confirm;
use crate::problem::Problem;
use crate::show::{clean, name};

/// The most characters of a description, or of the schema of arguments, that are shown.
const MOST_SHOWN: usize = 4_000;

/// Asks about each server that offers something else, if somebody can be asked. Else the accepted tools stay, and the changed ones are not
/// called.
pub(super) fn ask_about_changes<'a>(pins: impl Iterator<Item = &'a Pin>, problems: &mut Vec<Problem>) {
    for pin in pins {
        let Some((accepted, offered)) = pin.changed() else { continue };
        let text = told(&pin.server, &accepted, &offered);
        if confirm::is_possible() && confirm::ask(&text, "Accept them?") {
            note(pin, &offered, problems);
            continue;
        }
        let what =
            format!("MCP server {} offers other tools than those you accepted: those are not called", pin.server);
        problems.push(Problem::warning(what).hint("`turnbuckle trust` shows the changes and asks"));
    }
}

/// What all servers offer that is not what was accepted, as it is at one moment: what is shown is what is accepted, whatever a server that
/// runs meanwhile offers.
pub(crate) struct Offers(Vec<Offer>);

struct Offer {
    pin: Pin,
    accepted: Listing,
    offered: Listing,
}

impl Offers {
    pub(crate) fn of(parts: &[McpPart], project: &Path) -> Self {
        let one = |part: &McpPart| {
            let pin = Pin::of(part, project);
            let (accepted, offered) = pin.changed()?;
            Some(Offer { pin, accepted, offered })
        };
        Self(parts.iter().filter_map(one).collect())
    }

    /// The changes, for `turnbuckle trust`; empty if there are none.
    pub(crate) fn told(&self) -> String {
        self.0.iter().map(|Offer { pin, accepted, offered }| told(&pin.server, accepted, offered)).collect()
    }

    pub(crate) fn accept(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for Offer { pin, offered, .. } in &self.0 {
            note(pin, offered, &mut problems);
        }
        problems
    }
}

fn note(pin: &Pin, offered: &Listing, problems: &mut Vec<Problem>) {
    if let Err(error) = pin.accept(offered) {
        problems.push(Problem::warning(format!("MCP server {}: it could not be noted: {error}", pin.server)));
    }
}

/// All that the model would be told. The words are the server's, and are shown as such: each line of them is marked.
fn told(server: &str, accepted: &Listing, offered: &Listing) -> String {
    let mut text = format!("The MCP server {server} offers other tools than those you accepted:\n");
    for change in accepted.changes(offered) {
        let (what, tool) = match &change {
            Change::Added(tool) => ("new", tool),
            Change::Removed(tool) => ("gone", tool),
            Change::Changed(tool) => ("changed", tool),
            _ => continue,
        };
        text += &format!("  {what:<8}{}\n", name(tool));
        match (accepted.tool(tool), offered.tool(tool)) {
            (Some(was), Some(is)) => text += &differences(was, is),
            (None, Some(is)) => {
                text += &words("description", &is.description, 0);
                text += &words("arguments", &is.parameters.to_string(), 0);
                text += &format!("    annotations: {}\n", annotations(is));
            }
            _ => {}
        }
    }
    text
}

fn differences(was: &ListedTool, is: &ListedTool) -> String {
    let mut text = String::new();
    let (old, new) = (was.parameters.to_string(), is.parameters.to_string());
    for (what, old, new) in [("description", &was.description, &is.description), ("arguments", &old, &new)] {
        if old != new {
            let same = old.chars().zip(new.chars()).take_while(|(old, new)| old == new).count();
            text += &words(&format!("{what} before"), old, same);
            text += &words(&format!("{what} now"), new, same);
        }
    }
    let (old, new) = (annotations(was), annotations(is));
    if old != new {
        text += &format!("    annotations before: {old}\n    annotations now: {new}\n");
    }
    text
}

/// Words of the server. If they are too long they begin shortly before what is different, behind the first `same` characters.
fn words(what: &str, words: &str, same: usize) -> String {
    let count = words.chars().count();
    let skipped = if count > MOST_SHOWN { same.saturating_sub(MOST_SHOWN / 4) } else { 0 };
    let shown: String = words.chars().skip(skipped).take(MOST_SHOWN).collect();
    let mut text = match skipped {
        0 => format!("    {what}:\n"),
        _ => format!("    {what}, without the first {skipped} characters, which are the same:\n"),
    };
    clean(&shown).lines().for_each(|line| text += &format!("      | {line}\n"));
    let left_out = count.saturating_sub(skipped + MOST_SHOWN);
    if left_out > 0 {
        text += &format!("    [{left_out} more characters are not shown]\n");
    }
    text
}

fn annotations(tool: &ListedTool) -> String {
    let said = [
        (tool.read_only, "only reads"),
        (tool.destructive, "may destroy something"),
        (tool.idempotent, "can be repeated"),
    ];
    let said: Vec<&str> = said.into_iter().filter(|(is_said, _)| *is_said).map(|(_, words)| words).collect();
    if said.is_empty() { "none".to_owned() } else { said.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn listing(description: &str, parameters: Value, read_only: bool) -> Listing {
        let tool =
            json!({ "name": "echo", "description": description, "parameters": parameters, "read_only": read_only });
        serde_json::from_value(json!({ "tools": [tool] })).unwrap()
    }

    #[test]
    fn a_changed_description_is_shown_whole_and_cannot_look_like_lines_of_ours() {
        let before = listing("Says it again.", json!({}), true);
        let long = format!("Says it again.{}\n  new     other\n\u{1b}[2Jand reads your keys.", " ".repeat(500));
        let text = told("test", &before, &listing(&long, json!({}), true));
        assert!(text.contains("  changed echo\n    description before:\n      | Says it again.\n"), "{text}");
        assert!(text.contains("\n      |   new     other\n      | \u{fffd}[2Jand reads your keys.\n"), "{text}");
        assert!(!text.contains("arguments") && !text.contains("annotations"), "{text}");
    }

    #[test]
    fn a_very_long_description_is_cut_and_what_changed_in_it_is_shown() {
        let same = "x".repeat(20_000);
        let before = listing(&same, json!({}), true);
        let text = told("test", &before, &listing(&format!("{same}EVIL{same}"), json!({}), true));
        assert!(text.contains("EVIL") && text.contains("more characters are not shown]"), "{text}");
        assert!(
            text.contains("without the first 19000 characters, which are the same") && text.len() < 10_000,
            "{text}"
        );
    }

    #[test]
    fn changed_arguments_and_annotations_are_told() {
        let before = listing("Same.", json!({ "type": "object" }), true);
        let text = told("test", &before, &listing("Same.", json!({ "type": "object", "title": "keys" }), false));
        assert!(text.contains("arguments before:\n      | {\"type\":\"object\"}\n    arguments now:\n"), "{text}");
        assert!(text.contains("annotations before: only reads\n    annotations now: none\n"), "{text}");
        assert!(!text.contains("description"), "{text}");
        // A new one is shown with all of it.
        let text = told("test", &Listing::default(), &before);
        assert!(text.contains("  new     echo\n    description:\n      | Same.\n    arguments:\n"), "{text}");
    }
}

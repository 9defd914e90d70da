//! A panel of critics with weights: they judge side by side, and the work passes when enough weight approves.
//!
//! ```sh
//! cargo run --example 09_panel_of_critics
//! ```

use std::sync::Arc;

use turnbuckle::models::Script;
use turnbuckle::{Agent, BoxError};
use turnbuckle_hooks::Critic;
use turnbuckle_hooks::critic::{Consensus, CriticRules, Judge};

/// A critic that says these verdicts, one for each draft.
fn judge(name: &str, brief: &str, weight: f64, verdicts: [&str; 2]) -> Judge {
    Judge::new(name, Arc::new(Script::says(verdicts))).brief(brief).weight(weight)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let approve = r#"{"verdict": "approve"}"#;
    let panel = [
        judge("law", "Is it lawful?", 3.0, [r#"{"verdict": "regenerate", "critique": "name the fees"}"#, approve]),
        judge("tone", "Is it polite?", 1.0, [approve, approve]),
        // This one is never content, and is outvoted in the end.
        judge(
            "style",
            "Is it well written?",
            1.0,
            [
                r#"{"verdict": "regenerate", "critique": "dull"}"#,
                r#"{"verdict": "regenerate", "critique": "still dull"}"#,
            ],
        ),
    ];
    let rules = CriticRules { consensus: Consensus::Weighted { threshold: 0.75 }, ..CriticRules::default() };
    let drafts = Script::says(["An account costs little.", "An account costs 3 euros a month."]);
    let agent = Agent::builder("bank", drafts).hook(Critic::new(panel, rules)?).build()?;

    let ended = agent.run("What does an account cost?").await?;
    println!("{} after {} drafts: {}", ended.outcome, ended.model_calls, ended.text());
    Ok(())
}

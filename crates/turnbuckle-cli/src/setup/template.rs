//! The file that `init` writes.

use crate::args::InitTools;

/// What was answered.
#[derive(Debug)]
pub(super) struct Answers {
    /// `None`: whichever key is found when the program runs.
    pub(super) model: Option<String>,
    pub(super) tools: InitTools,
    /// A command for `sh`; empty for none.
    pub(super) check: String,
}

/// Where the schema for editors is, from the file on.
pub(super) const SCHEMA: &str = ".turnbuckle/turnbuckle.schema.json";

/// The text of the file. Every line that is not needed is a comment which says what it would do.
pub(super) fn text(answers: &Answers) -> String {
    // Without control characters, a string of JSON is one of TOML.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let model = match &answers.model {
        Some(model) => format!("model = {}\n", quoted(model)),
        None => {
            "# model = \"anthropic:claude-sonnet-5-5\"   # without it: by the first key that is found, else the demo\n"
                .to_owned()
        }
    };
    let tools = match answers.tools {
        InitTools::Ask => {
            "# All tools are offered, and what changes something is asked about: write_file, edit_file, apply_patch, shell, fetch.\n\
             # builtin = [\"read_file\", \"list_files\", \"search_files\", \"ask_human\"]\n\
             # approve = [\"write_file\", \"edit_file\", \"apply_patch\", \"shell\", \"fetch\"]\n"
        }
        InitTools::Read => {
            "# Only tools that change nothing. Add \"edit_file\", \"write_file\", \"apply_patch\", \"shell\" or \"fetch\": calls of those\n\
             # are asked about.\n\
             builtin = [\"read_file\", \"list_files\", \"search_files\", \"ask_human\"]\n"
        }
    };
    let check = match answers.check.trim() {
        "" => "# A hook that sends the model back while the build fails:\n\
               # [[hooks]]\n\
               # use = \"command\"\n\
               # name = \"check\"\n\
               # on = \"stop\"\n\
               # run = \"cargo check --quiet || exit 2\"\n\
               # on_failure = \"block\"\n"
            .to_owned(),
        command => format!(
            "# While this command fails the model is told why and goes on. Exit 2 refuses; stderr is the reason. The same refusal\n\
             # twice with nothing done in between, or max_stop_refusals in a row, is overruled: then the turn ends with a\n\
             # warning, and exit code 0.\n\
             [[hooks]]\n\
             use = \"command\"\n\
             name = \"check\"\n\
             on = \"stop\"\n\
             run = {}\n\
             timeout = \"5m\"\n\
             on_failure = \"block\"                       # what happens if the hook itself breaks; \"ignore\" lets the turn end\n",
            quoted(&refusing(command))
        ),
    };
    format!(
        "#:schema {SCHEMA}\n\
         # `turnbuckle check` judges this file, and `turnbuckle hooks` says what runs when.\n\
         \n\
         [agent]\n\
         {model}\
         # system = \"You are a careful engineer.\"\n\
         # temperature = 0.2                         # also: top_p, max_output_tokens, stop, thinking, effort\n\
         # AGENTS.md and CLAUDE.md of this folder are read into every turn; default_instructions = false turns that off.\n\
         \n\
         [limits]\n\
         max_model_calls = 50                        # in one turn\n\
         # max_cost = 1.0                            # dollars in one turn\n\
         # turn_timeout = \"30m\"\n\
         \n\
         [tools]\n\
         {tools}\
         \n\
         # [tools.fetch]\n\
         # allow = [\"docs.rs\"]                       # hosts that are fetched from without asking\n\
         \n\
         # A sub-agent, offered to the model as a tool:\n\
         # [[agents]]\n\
         # name = \"reviewer\"\n\
         # system = \"You review changes and find mistakes.\"\n\
         # tools = [\"read_file\", \"search_files\"]\n\
         \n\
         {check}"
    )
}

/// The command, so that its failure refuses the stop: any exit code but 0 becomes 2, and what it printed is the reason.
fn refusing(command: &str) -> String {
    format!("{{ {command}; }} >&2 || exit 2")
}

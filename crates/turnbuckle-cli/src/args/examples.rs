//! Examples for the help of each command, in one table: a command without one fails a test.

use clap::{Command, CommandFactory as _};

use super::Args;

/// The name of a command, with those above it, and lines that can be copied.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "chat",
        "turnbuckle chat                     a new conversation\nturnbuckle chat -c fix              go on with one\nturnbuckle chat -c                  choose one",
    ),
    (
        "run",
        "turnbuckle run \"what is in this folder?\"\n\
         git diff | turnbuckle run \"review this\"\n\
         turnbuckle run --json \"hello\" | jq .type\n\
         turnbuckle run --schema answer.schema.json \"how many files?\"\n\
         turnbuckle run --allow 'shell(cargo test *)' \"make the tests pass\"",
    ),
    (
        "resolve",
        "turnbuckle resolve fix c1 --approve\n\
         turnbuckle resolve fix c1 --deny \"use the other file\"\n\
         turnbuckle resolve fix c1 --answer '\"blue\"'",
    ),
    ("answer", "turnbuckle answer fix c1 --approve     its agent goes on with it later"),
    ("pending", "turnbuckle pending\nturnbuckle pending --tool shell --older 1h --json"),
    (
        "approvals",
        "turnbuckle approvals                what runs without being asked about\nturnbuckle approvals revoke a_1",
    ),
    ("approvals list", "turnbuckle approvals list"),
    ("approvals revoke", "turnbuckle approvals revoke a_1"),
    ("cancel", "turnbuckle cancel fix"),
    ("list", "turnbuckle list\nturnbuckle list --json | jq -r .id\nturnbuckle list --acts"),
    ("show", "turnbuckle show fix\nturnbuckle show fix --json | jq .type\nturnbuckle show fix --context t_1.2"),
    ("trace", "turnbuckle trace fix\nturnbuckle trace fix t_1"),
    ("why", "turnbuckle why fix                  what each call was sent\nturnbuckle why fix --find \"the budget\""),
    ("delete", "turnbuckle delete fix\nturnbuckle delete --user ann --yes"),
    ("hold", "turnbuckle hold fix\nturnbuckle hold fix --release"),
    ("export", "turnbuckle export fix > fix.jsonl\nturnbuckle export --user ann > ann.jsonl"),
    ("hooks", "turnbuckle hooks                    what runs at each point\nturnbuckle hooks --available"),
    (
        "hooks test",
        "echo '{\"tool_name\": \"write_file\", \"tool_input\": {\"path\": \"a\"}}' | turnbuckle hooks test before_tool",
    ),
    ("hooks import", "turnbuckle hooks import >> turnbuckle.toml"),
    ("hooks conform", "turnbuckle hooks conform -- python3 worker.py"),
    ("trust", "turnbuckle trust\nturnbuckle trust --yes"),
    ("trust list", "turnbuckle trust list"),
    ("trust revoke", "turnbuckle trust revoke\nturnbuckle trust revoke ~/projects/old"),
    (
        "serve",
        "turnbuckle serve                    for this machine alone, on port 7878\nturnbuckle serve --listen 127.0.0.1:0",
    ),
    ("mcp", "turnbuckle mcp                      started by a client, not by a person"),
    ("mcp login", "turnbuckle mcp login tracker"),
    ("check", "turnbuckle check\nturnbuckle check --config other.toml"),
    ("doctor", "turnbuckle doctor\nturnbuckle doctor --model ollama:llama3.2"),
    (
        "init",
        "turnbuckle init                     asks three questions\n\
         turnbuckle init --yes               asks nothing\n\
         turnbuckle init --model ollama:llama3.2 --tools read --check ''",
    ),
    (
        "completions",
        "turnbuckle completions bash > ~/.local/share/bash-completion/completions/turnbuckle\n\
         turnbuckle completions zsh > ~/.zfunc/_turnbuckle\n\
         turnbuckle completions fish > ~/.config/fish/completions/turnbuckle.fish",
    ),
    ("man", "turnbuckle man | man -l -\nturnbuckle man --folder ~/.local/share/man/man1"),
    ("schema", "turnbuckle schema > turnbuckle.schema.json"),
];

/// The program's arguments, with the examples behind the help of each command.
pub(crate) fn command() -> Command {
    Args::command().mut_subcommands(|command| with_examples(command, ""))
}

fn with_examples(command: Command, above: &str) -> Command {
    let path = format!("{above}{}", command.get_name());
    let told = command.get_after_help().map(|help| format!("{help}\n\n")).unwrap_or_default();
    let examples = EXAMPLES.iter().find(|(name, _)| *name == path);
    let command = match examples {
        Some((_, lines)) => {
            let lines: Vec<String> = lines.lines().map(|line| format!("  {line}")).collect();
            command.after_help(format!("{told}Examples:\n{}", lines.join("\n")))
        }
        None => command,
    };
    command.mut_subcommands(|inner| with_examples(inner, &format!("{path} ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(command: &Command, above: &str) -> Vec<String> {
        let of = |inner: &Command| {
            let path = format!("{above}{}", inner.get_name());
            let below = paths(inner, &format!("{path} "));
            [path].into_iter().chain(below).collect::<Vec<_>>()
        };
        command.get_subcommands().filter(|inner| inner.get_name() != "help").flat_map(of).collect()
    }

    #[test]
    fn every_command_has_examples_and_every_example_is_of_a_command() {
        let (mut known, mut told) = (paths(&Args::command(), ""), Vec::new());
        told.extend(EXAMPLES.iter().map(|(name, _)| (*name).to_owned()));
        known.sort();
        told.sort();
        assert_eq!(told, known);
    }

    #[test]
    fn every_example_is_accepted_by_the_program() {
        for (name, lines) in EXAMPLES {
            for line in lines.lines() {
                // What stands before and behind the program, and the remark behind two blanks.
                let part = line.split(" | ").find(|part| part.starts_with("turnbuckle")).unwrap();
                let part = part.split("  ").next().unwrap().split(" >").next().unwrap();
                let mut words = shell_words(part);
                words.iter_mut().for_each(|word| *word = word.replace("…", "x"));
                let parsed = command().try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{name}: {line}: {}", parsed.err().unwrap());
            }
        }
    }

    /// Words with the quotes of a shell; nothing else of it.
    fn shell_words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote, mut begun) = (Vec::new(), String::new(), None, false);
        for sign in line.chars() {
            match (quote, sign) {
                (Some(open), sign) if sign == open => quote = None,
                (None, '"' | '\'') => (quote, begun) = (Some(sign), true),
                (None, ' ') if begun => {
                    words.push(std::mem::take(&mut word));
                    begun = false;
                }
                (None, ' ') => {}
                (_, sign) => {
                    word.push(sign);
                    begun = true;
                }
            }
        }
        if begun {
            words.push(word);
        }
        words
    }
}

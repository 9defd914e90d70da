//! What a typed line is: a message, a slash command, or a command for the shell.

use crate::config::nearest;

/// A slash command.
pub(super) struct SlashCommand {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
}

/// All of them, in the order in which they are shown.
pub(super) const COMMANDS: &[SlashCommand] = &[
    SlashCommand { name: "help", about: "what can be typed here" },
    SlashCommand { name: "model", about: "which model answers; with a name, another one from now on" },
    SlashCommand { name: "hooks", about: "what runs at each point, in order" },
    SlashCommand { name: "trace", about: "what each stage of the last turn did" },
    SlashCommand { name: "tools", about: "what the model can call, and what is asked first" },
    SlashCommand { name: "permissions", about: "standing approvals; `revoke ID` ends one" },
    SlashCommand { name: "mcp", about: "MCP servers and their tools" },
    SlashCommand { name: "resume", about: "go on with another conversation" },
    SlashCommand { name: "clear", about: "begin a new conversation" },
    SlashCommand { name: "cost", about: "tokens and money so far" },
    SlashCommand { name: "undo", about: "put back the files that the last turn changed" },
    SlashCommand { name: "exit", about: "leave; a turn that waits goes on waiting" },
];

/// What is obeyed from a pipe: what looks, and what begins or ends a conversation. Other lines may come from anybody whose words a program
/// passes on, and must not choose where the conversation is sent, whose it is, or what is put back.
const FROM_A_PIPE: [&str; 8] = ["help", "hooks", "trace", "tools", "mcp", "clear", "cost", "exit"];

/// Whether a line that no person typed may be this command.
pub(super) fn is_for_pipes(name: &str) -> bool {
    FROM_A_PIPE.contains(&name)
}

/// What a typed line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input<'a> {
    Nothing,
    /// A slash command, and what stands behind it.
    Slash(&'static str, &'a str),
    /// A slash and a word that is no command.
    Unknown(&'a str),
    /// A command for the shell, which the person runs and not the model.
    Run(&'a str),
    Words(&'a str),
}

impl<'a> Input<'a> {
    /// A path at the beginning of a sentence is no command.
    pub(super) fn of(line: &'a str) -> Self {
        let line = line.trim();
        if line.is_empty() {
            return Self::Nothing;
        }
        if let Some(command) = line.strip_prefix('!').map(str::trim).filter(|command| !command.is_empty()) {
            return Self::Run(command);
        }
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let name = word.strip_prefix('/').filter(|name| name.chars().all(|ch| ch.is_ascii_alphabetic()));
        let Some(name) = name.filter(|name| !name.is_empty()) else { return Self::Words(line) };
        let name = if name == "quit" { "exit" } else { name };
        match COMMANDS.iter().find(|command| command.name == name) {
            Some(command) => Self::Slash(command.name, rest.trim()),
            // `/tmp is full` is a sentence; `/qiut` and `/modle demo` are not.
            None if rest.is_empty() || meant(name).is_some() => Self::Unknown(word),
            None => Self::Words(line),
        }
    }
}

/// The command that a wrong name is nearest to, if it is near.
fn meant(name: &str) -> Option<&'static str> {
    nearest(name, COMMANDS.iter().map(|command| command.name))
}

/// What to say about a slash and a word that is no command.
pub(super) fn unknown(word: &str) -> String {
    match meant(word.trim_start_matches('/')) {
        Some(command) => format!("there is no command {word}; did you mean /{command}?"),
        None => format!("there is no command {word}; /help says which there are"),
    }
}

const HELP: &str = "\
A line is a message; typed while a turn runs, it is queued: Up takes it back, Ctrl-S gives it to the running turn instead.
Alt-Enter, or a backslash and Enter, begins a new line. Tab completes /commands and @files; Ctrl-R searches what was typed before.
!COMMAND runs a command of yours; the next message has its output. A path to a picture in a message sends the picture.
What a turn asks: a approves, d denies, e edits the arguments, A approves always, v shows all of what was cut. A key counts when the question has been there for half a second and nothing is typed; otherwise Enter is needed. y and n work as well, any other text refuses with that reason, and Esc clears it.
Esc interrupts the turn and brings back what waits. Ctrl-C cancels the turn and what is queued; again leaves. Ctrl-D and /exit leave; a turn that waits goes on waiting.
Ctrl-O shows what the model thought.
Elsewhere: `turnbuckle list`, `show ID`, `trace ID`, `resolve ID CALL`, `cancel ID`.";

/// The help with all commands.
pub(super) fn help() -> String {
    format!("{HELP}{}", list(|_| true))
}

/// All commands of which this is true, each behind a line end.
pub(super) fn list(is_listed: impl Fn(&str) -> bool) -> String {
    let width = COMMANDS.iter().map(|command| command.name.len()).max().unwrap_or(0);
    let listed = COMMANDS.iter().filter(|command| is_listed(command.name));
    listed.map(|SlashCommand { name, about }| format!("\n/{name:<width$}  {about}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_the_program_names_every_command_and_key_that_answers() {
        let mut program = crate::args::command();
        let help = program.find_subcommand_mut("chat").unwrap().render_long_help().to_string();
        for command in COMMANDS {
            assert!(help.contains(&format!("/{}", command.name)), "/{} is not in:\n{help}", command.name);
        }
        for key in
            ["\n  a  ", "  d  ", "\n  e  ", "  A  ", "\n  v  ", "Esc", "Ctrl-S", "Up  ", "Ctrl-O", "Ctrl-R", "!COMMAND"]
        {
            assert!(help.contains(key), "{key:?} is not in:\n{help}");
        }
    }

    #[test]
    fn no_paragraph_of_the_help_is_broken_by_hand() {
        assert!(HELP.lines().all(|line| line.ends_with('.')), "the screen breaks lines: {HELP}");
    }

    #[test]
    fn a_path_is_no_command() {
        assert_eq!(Input::of(" /quit "), Input::Slash("exit", ""));
        assert_eq!(Input::of("/model  demo "), Input::Slash("model", "demo"));
        assert_eq!(Input::of("/qiut"), Input::Unknown("/qiut"));
        assert_eq!(Input::of("/etc/hosts"), Input::Words("/etc/hosts"));
        assert_eq!(Input::of("/tmp is full"), Input::Words("/tmp is full"));
        assert_eq!(Input::of("/modle x"), Input::Unknown("/modle"));
        assert_eq!(unknown("/modle"), "there is no command /modle; did you mean /model?");
        for sentence in ["/home is full", "/var has no room", "/etc is mine", "/root is not", "/mnt is gone"] {
            assert_eq!(Input::of(sentence), Input::Words(sentence));
        }
        assert_eq!(Input::of("!ls -l"), Input::Run("ls -l"));
        assert_eq!(Input::of("!"), Input::Words("!"));
        assert_eq!(Input::of("/"), Input::Words("/"));
        assert_eq!(Input::of("  "), Input::Nothing);
    }
}

//! The reading of commands, compared with what shells make of them.

use std::process::{Command, Stdio};

use super::*;

/// Pieces of commands that mean something, most of them in the wrong place. None of them computes a word.
const PIECES: [&str; 40] = [
    "a", "b", "a", "b", ".", "/", " ", " ", " ", "'", "\"", "\\", "\n", "\np ", ";p ", "$b", "$(", "`", ")", "#", "<",
    ">", ">b ", "<>", "<<a\n", "\na\n", ";", "&", "|", "$'", "(", "\u{a0}", "\t", "'b a'", "\"a b\"", "$(a)",
    "\"$(b \"", "\\\n", "$\"a\"", " # a'b\n",
];

/// A sequence of numbers that looks random and is always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// The words that a shell gives to the command `p`.
fn given_by(shell: &str, command: &str, folder: &std::path::Path) -> Vec<String> {
    let script = format!("p() {{ for w in \"$@\"; do printf '%s\\0' \"$w\" >&9; done; }}\n{command}");
    let out = folder.join("out");
    // Nothing can be run: there are no programs.
    let mut run = Command::new(shell);
    run.args(["-c", "exec 9>\"$OUT\"; PATH=/none; eval \"$SCRIPT\""]).env("SCRIPT", script).env("OUT", &out);
    run.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    run.status().unwrap();
    let said = std::fs::read(out).unwrap_or_default();
    String::from_utf8_lossy(&said).split('\0').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[test]
fn every_word_that_a_shell_gives_to_a_command_is_among_the_names() {
    let mut numbers = Numbers(11);
    let mut compared = 0;
    let rounds = std::env::var("WORD_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(500);
    for _ in 0..rounds {
        let length = 2 + numbers.below(12);
        let pieces: String = (0..length).map(|_| PIECES[numbers.below(PIECES.len())]).collect();
        let command = format!("p {pieces}");
        // Arithmetic computes a word.
        if command.contains("((") {
            continue;
        }
        for shell in ["sh", "bash"] {
            let folder = tempfile::tempdir().unwrap();
            let given = given_by(shell, &command, folder.path());
            let names = names(&Value::String(command.clone()));
            for word in given {
                let is_known = match &names {
                    Ok(names) => names.used.contains(&word),
                    Err(_) => true,
                };
                assert!(is_known, "{shell} reads {word:?} in {command:?}, and here it is {names:?}");
                compared += 1;
            }
        }
    }
    assert!(compared > 200, "only {compared} words were compared");
}

/// Pieces of words with lists in braces.
const BRACES: [&str; 20] = [
    "a", "b", ".", "/", " ", "{", "}", ",", "{a,", ",b}", "{a,b}", "{'a b',", "'{'", "\"}\"", "\\,", "{}", ",}", "{,",
    "'a,b'", ";p ",
];

#[test]
fn every_word_that_bash_makes_of_lists_in_braces_is_a_name_or_said_to_be_computed() {
    let mut numbers = Numbers(5);
    let (mut compared, mut spelt) = (0, 0);
    let rounds = std::env::var("WORD_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(300);
    for _ in 0..rounds {
        let length = 2 + numbers.below(8);
        let pieces: String = (0..length).map(|_| BRACES[numbers.below(BRACES.len())]).collect();
        let command = format!("p {pieces}");
        let folder = tempfile::tempdir().unwrap();
        let names = names(&Value::String(command.clone())).unwrap();
        for word in given_by("bash", &command, folder.path()) {
            let is_name = names.used.contains(&word);
            assert!(is_name || names.computed, "bash reads {word:?} in {command:?}, and here it is {names:?}");
            compared += 1;
            spelt += usize::from(is_name);
        }
    }
    assert!(compared > 100 && spelt * 10 > compared * 8, "{spelt} of {compared} words were found");
}

//! The `if` of a handler: one permission rule, `Tool` or `Tool(pattern)`. Where it cannot be told whether a rule fits, the
//! handler runs: a gate is rather asked once too often.

use std::path::Path;

use regex::Regex;
use serde_json::Value;

/// A rule as it is written.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    tool: String,
    pattern: Option<String>,
}

impl Rule {
    /// `None` if it is no rule.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (tool, pattern) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => (tool, Some(rest.strip_suffix(')')?.to_owned())),
        };
        let is_name = |ch: char| ch.is_ascii_alphanumeric() || ch == '_' || ch == '-' || ch == '*';
        let pattern = pattern.filter(|pattern| !pattern.is_empty() && pattern != "*");
        (!tool.is_empty() && tool.chars().all(is_name)).then(|| Self { tool: tool.to_owned(), pattern })
    }

    /// Whether it fits a call, given in the protocol's names.
    pub(super) fn fits(&self, tool: &str, input: &Value, cwd: &Path) -> bool {
        if !glob(&self.tool, tool) {
            return false;
        }
        let Some(pattern) = &self.pattern else { return true };
        let text = |key: &str| input.get(key).and_then(Value::as_str);
        match tool {
            "Bash" | "PowerShell" => text("command").is_none_or(|command| fits_command(pattern, command)),
            "Read" | "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => {
                text("file_path").is_none_or(|path| fits_path(pattern, Path::new(path), cwd))
            }
            "Glob" | "Grep" => text("path").is_none_or(|path| fits_path(pattern, Path::new(path), cwd)),
            _ => true,
        }
    }
}

/// `*` is any run of characters.
fn glob(pattern: &str, text: &str) -> bool {
    let parts: Vec<String> = pattern.split('*').map(regex::escape).collect();
    Regex::new(&format!("(?s)^{}$", parts.join(".*"))).is_ok_and(|regex| regex.is_match(text))
}

fn fits_command(pattern: &str, command: &str) -> bool {
    let pattern = pattern.strip_suffix(":*").map_or_else(|| pattern.to_owned(), |start| format!("{start} *"));
    // What a variable or a substitution stands for is not known here.
    let names_more = pattern.trim_end_matches('*').trim().contains(' ');
    if names_more && command.contains(['$', '`']) {
        return true;
    }
    let Some(commands) = simple_commands(command) else { return true };
    commands.iter().any(|one| fits_simple(&pattern, one))
}

fn fits_simple(pattern: &str, command: &str) -> bool {
    match pattern.strip_suffix(" *") {
        // The blank is a word's end: `ls *` is `ls` and `ls -la`, not `lsof`.
        Some(start) => glob(start, command) || glob(&format!("{start} *"), command),
        None => glob(pattern, command),
    }
}

/// The commands of a line, those inside of substitutions as well, without leading assignments. `None` if quotes do not end.
fn simple_commands(line: &str) -> Option<Vec<String>> {
    let (mut commands, mut current, mut quote) = (Vec::new(), String::new(), None);
    let mut signs = line.chars().peekable();
    while let Some(sign) = signs.next() {
        match (quote, sign) {
            (Some('\''), '\'') => quote = None,
            (Some('"'), '"') => quote = None,
            (None, '\'' | '"') => quote = Some(sign),
            (None | Some('"'), '\\') => current.extend(signs.next()),
            (None | Some('"'), '`') => commands.push(std::mem::take(&mut current)),
            (None | Some('"'), '$') if signs.peek() == Some(&'(') => {
                signs.next();
                commands.push(std::mem::take(&mut current));
            }
            (None, ';' | '&' | '|' | '\n' | '(' | ')') => commands.push(std::mem::take(&mut current)),
            (Some('"'), ')') => commands.push(std::mem::take(&mut current)),
            _ => current.push(sign),
        }
    }
    commands.push(current);
    let commands = commands.iter().map(|command| without_assignments(command)).filter(|command| !command.is_empty());
    quote.is_none().then(|| commands.collect())
}

fn without_assignments(command: &str) -> String {
    let is_assignment = |word: &&str| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| !name.is_empty() && name.chars().all(|ch| ch.is_ascii_alphanumeric() || ch == '_'))
    };
    command.split_whitespace().skip_while(is_assignment).collect::<Vec<_>>().join(" ")
}

/// Like a line of a `.gitignore` in the project's folder: `src/**` is below it, `**/src/**` is anywhere, `//` is the root.
fn fits_path(pattern: &str, path: &Path, cwd: &Path) -> bool {
    let whole = cwd.join(path);
    let (pattern, path) = match pattern.strip_prefix('/') {
        Some(absolute) if absolute.starts_with('/') => (absolute, whole.to_string_lossy().into_owned()),
        below => {
            let Ok(inside) = whole.strip_prefix(cwd) else { return pattern.starts_with("**") };
            (below.unwrap_or(pattern).trim_start_matches("./"), inside.to_string_lossy().into_owned())
        }
    };
    // A name without a folder fits in every folder.
    let anywhere = if pattern.contains('/') { "" } else { "(.*/)?" };
    let escaped = regex::escape(pattern);
    let expression =
        escaped.replace(r"\*\*/", "(.*/)?").replace(r"\*\*", ".*").replace(r"\*", "[^/]*").replace(r"\?", "[^/]");
    Regex::new(&format!("(?s)^{anywhere}{expression}(/.*)?$")).is_ok_and(|regex| regex.is_match(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rule_for_commands_is_read_word_by_word() {
        for (rule, command, fits) in [
            ("Bash", "anything", true),
            ("Bash(git *)", "git push", true),
            ("Bash(git *)", "gitk", false),
            ("Bash(ls:*)", "ls -la", true),
            ("Bash(ls *)", "ls", true),
            ("Bash(ls *)", "lsof", false),
            ("Bash(git *)", "FOO=1 git status", true),
            ("Bash(git *)", "cd x && git status", true),
            ("Bash(rm *)", "echo $(rm -rf x)", true),
            ("Bash(rm *)", "echo `rm x`", true),
            ("Bash(rm *)", "echo 'rm x; rm y'", false),
            ("Bash(rm *)", "echo \"unfinished", true),
            ("Bash(git push *)", "git $VERB origin", true),
            ("Bash(git push *)", "git status", false),
            ("Read(x)", "ls", false),
        ] {
            let fit = Rule::parse(rule).unwrap().fits("Bash", &json!({"command": command}), Path::new("/p"));
            assert_eq!(fit, fits, "{rule} on {command:?}");
        }
    }

    #[test]
    fn a_rule_for_files_is_like_a_line_of_gitignore() {
        for (rule, path, fits) in [
            ("Edit(src/**)", "/p/src/a/b.rs", true),
            ("Edit(src/**)", "/p/x/src/b.rs", false),
            ("Edit(**/src/**)", "/p/x/src/b.rs", true),
            ("Edit(*.rs)", "/p/x/b.rs", true),
            ("Edit(*.rs)", "/p/x/b.py", false),
            ("Edit(//etc/**)", "/etc/passwd", true),
            ("Edit(src/**)", "/etc/src/x", false),
        ] {
            let fit = Rule::parse(rule).unwrap().fits("Edit", &json!({"file_path": path}), Path::new("/p"));
            assert_eq!(fit, fits, "{rule} on {path:?}");
        }
        assert!(Rule::parse("Edit(src").is_none() && Rule::parse("").is_none());
    }
}

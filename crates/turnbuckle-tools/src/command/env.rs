//! What a hook's program is started with: its environment, and a check before each start.

use std::ffi::OsStr;
use std::fmt;

use tokio::process::Command;
use tokio::task::spawn_blocking;
use turnbuckle::hook::MustBlock;
use turnbuckle::hooks::{HookBuildContext, OptionError, ProgramCheck};

/// Endings of the names of variables that programs of tools do not get.
const SECRET_ENDINGS: [&str; 9] =
    ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_PASSWD", "_PWD", "_PAT", "_APIKEY", "_CREDENTIALS"];

/// Whole names of such variables.
const SECRET_NAMES: [&str; 7] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "APIKEY", "PGPASSWORD"];

/// Whether a program of a tool does not get this variable.
pub(crate) fn is_withheld_from_tools(name: &str, value: &OsStr, withheld: &[String], passed: &[String]) -> bool {
    let upper = name.to_ascii_uppercase();
    let is_secret = withheld.iter().any(|one| one == name)
        || SECRET_ENDINGS.iter().any(|end| upper.ends_with(end))
        || SECRET_NAMES.contains(&upper.as_str())
        || has_password(&value.to_string_lossy());
    is_secret && !passed.iter().any(|one| one == name)
}

/// Whether a URL with a password is in it: `scheme://user:password@host`.
fn has_password(value: &str) -> bool {
    value.match_indices("://").any(|(at, sign)| {
        let is_scheme = value[..at].ends_with(|last: char| last.is_ascii_alphanumeric());
        let rest = &value[at + sign.len()..];
        let authority = rest.split(['/', '?', '#', ' ', '\t', '\n', '"', '\'']).next().unwrap_or_default();
        // A password may have an `@` in it that should have been encoded.
        let password =
            authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':')).map(|(_, password)| password);
        is_scheme && password.is_some_and(|password| !password.is_empty())
    })
}

/// The environment of this process without some variables, and what is asked before each start.
#[derive(Clone, Default)]
pub(crate) struct ProgramEnv {
    withheld: Vec<String>,
    /// Variables that it has beside those of this process.
    set: Vec<(String, String)>,
    check: Option<ProgramCheck>,
    /// Whether it shall have no terminal, not even `/dev/tty`.
    is_without_terminal: bool,
}

impl ProgramEnv {
    /// Without what the program that builds the hook withholds, but with the variables that the option `pass_env` names.
    pub(crate) fn of(context: &HookBuildContext<'_>, pass_env: &[String]) -> Result<Self, OptionError> {
        let is_name = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
        if let Some(item) = pass_env.iter().position(|name| !is_name(name)) {
            return Err(OptionError::new("pass_env", "must be names of environment variables").item(item));
        }
        let passed = |name: &&&str| pass_env.iter().any(|pass| pass == **name);
        let without = Self::without(context.withheld_env.iter().filter(|name| !passed(name)).copied());
        Ok(Self { check: context.program_check.clone(), ..without })
    }

    pub(crate) fn without(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { withheld: names.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// What a tool's program gets: nothing that looks like a secret, unless it is named.
    pub(crate) fn for_tools(
        withheld: &[String],
        passed: &[String],
        set: &[(String, String)],
        check: Option<ProgramCheck>,
    ) -> Self {
        let own = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let own = own.filter(|(name, value)| is_withheld_from_tools(name, value, withheld, passed));
        Self { withheld: own.map(|(name, _)| name).collect(), set: set.to_vec(), check, is_without_terminal: false }
    }

    /// The same with more variables, and without those whose names begin with `OTEL_`: they are for this process. The terminal is
    /// this process's as well: a program that asked a question there would wait beside the screen.
    pub(crate) fn with(&self, set: impl IntoIterator<Item = (String, String)>) -> Self {
        let own = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let withheld = self.withheld.iter().cloned().chain(own.filter(|name| name.starts_with("OTEL_"))).collect();
        Self { withheld, set: set.into_iter().collect(), check: self.check.clone(), is_without_terminal: true }
    }

    pub(crate) fn is_without_terminal(&self) -> bool {
        self.is_without_terminal
    }

    /// A variable as the program would have it.
    pub(crate) fn value_of(&self, name: &str) -> Option<String> {
        let set = self.set.iter().find(|(set, _)| set == name).map(|(_, value)| value.clone());
        let own =
            || (!self.withheld.iter().any(|withheld| withheld == name)).then(|| std::env::var(name).ok()).flatten();
        set.or_else(own)
    }

    /// Whether the program may start now. The check reads files, so it has a thread where it may block.
    pub(crate) async fn check(&self) -> Result<(), MustBlock> {
        let Some(check) = self.check.clone() else { return Ok(()) };
        match spawn_blocking(move || check()).await {
            Ok(checked) => checked.map_err(MustBlock),
            Err(failed) => Err(MustBlock(failed.into())),
        }
    }

    pub(crate) fn apply(&self, command: &mut Command) {
        for name in &self.withheld {
            command.env_remove(name);
        }
        command.envs(self.set.iter().map(|(name, value)| (name, value)));
    }
}

impl fmt::Debug for ProgramEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { withheld, check, .. } = self;
        f.debug_struct("ProgramEnv").field("withheld", withheld).field("is_checked", &check.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_withheld(name: &str, value: &str) -> bool {
        is_withheld_from_tools(name, OsStr::new(value), &[], &[])
    }

    #[test]
    fn whatever_looks_like_a_secret_is_withheld() {
        for name in [
            "OPENAI_API_KEY",
            "github_token",
            "A_SECRET",
            "DB_PASSWORD",
            "TOKEN",
            "password",
            "SECRET",
            "KEY",
            "MYSQL_PWD",
            "GITHUB_PAT",
            "DB_PASSWD",
            "X_APIKEY",
            "GOOGLE_CREDENTIALS",
            "PGPASSWORD",
            "APIKEY",
        ] {
            assert!(is_withheld(name, "x"), "{name}");
        }
        for name in
            ["PATH", "HOME", "PWD", "OLDPWD", "KEYBOARD", "TOKENIZERS_PARALLELISM", "MONKEY", "COMPAT", "SSH_AUTH_SOCK"]
        {
            assert!(!is_withheld(name, "/x"), "{name}");
        }
        let passed = ["GITHUB_PAT".to_owned()];
        assert!(!is_withheld_from_tools("GITHUB_PAT", OsStr::new("x"), &[], &passed));
    }

    #[test]
    fn an_address_with_a_password_is_withheld_whatever_its_variable_is_called() {
        for value in [
            "postgres://ann:hunter2@db/x",
            "https://:hunter2@proxy:3128",
            "https://ann:p@ss@host",
            "first=a second=redis://x:y@z/0",
        ] {
            assert!(is_withheld("DATABASE_URL", value), "{value}");
        }
        for value in
            ["postgres://ann@db/x", "https://ann:@host", "http://host:80/a:b@c", "https://host/?q=a://", "a:b@c"]
        {
            assert!(!is_withheld("DATABASE_URL", value), "{value}");
        }
    }
}

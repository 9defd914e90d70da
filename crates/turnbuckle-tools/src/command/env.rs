//! What a hook's program is started with: its environment, and a check before each start.

use std::fmt;

use tokio::process::Command;
use tokio::task::spawn_blocking;
use turnbuckle::hook::MustBlock;
use turnbuckle::hooks::{HookBuildContext, OptionError, ProgramCheck};

/// The environment of this process without some variables, and what is asked before each start.
#[derive(Clone, Default)]
pub(crate) struct ProgramEnv {
    withheld: Vec<String>,
    /// Variables that it has beside those of this process.
    set: Vec<(String, String)>,
    check: Option<ProgramCheck>,
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
        Self { withheld: names.into_iter().map(Into::into).collect(), set: Vec::new(), check: None }
    }

    /// The same with more variables, and without those whose names begin with `OTEL_`: they are for this process.
    pub(crate) fn with(&self, set: impl IntoIterator<Item = (String, String)>) -> Self {
        let own = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let withheld = self.withheld.iter().cloned().chain(own.filter(|name| name.starts_with("OTEL_"))).collect();
        Self { withheld, set: set.into_iter().collect(), check: self.check.clone() }
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
        let Self { withheld, set: _, check } = self;
        f.debug_struct("ProgramEnv").field("withheld", withheld).field("is_checked", &check.is_some()).finish()
    }
}

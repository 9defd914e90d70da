//! The environment of a hook's program.

use tokio::process::Command;
use turnbuckle::hooks::{HookBuildContext, OptionError};

/// That of this process without some variables.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgramEnv {
    withheld: Vec<String>,
}

impl ProgramEnv {
    /// Without what the program that builds the hook withholds, but with the variables that the option `pass_env` names.
    pub(crate) fn of(context: &HookBuildContext<'_>, pass_env: &[String]) -> Result<Self, OptionError> {
        let is_name = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
        if let Some(item) = pass_env.iter().position(|name| !is_name(name)) {
            return Err(OptionError::new("pass_env", "must be names of environment variables").item(item));
        }
        let passed = |name: &&&str| pass_env.iter().any(|pass| pass == **name);
        Ok(Self::without(context.withheld_env.iter().filter(|name| !passed(name)).copied()))
    }

    pub(crate) fn without(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { withheld: names.into_iter().map(Into::into).collect() }
    }

    pub(super) fn apply(&self, command: &mut Command) {
        for name in &self.withheld {
            command.env_remove(name);
        }
    }
}

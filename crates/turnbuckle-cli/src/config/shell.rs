//! The section `[tools.shell]`.

use std::time::Duration;

use turnbuckle_tools::SandboxMode;

use super::reader::Section;
use super::{Found, Over};
use crate::problem::Problem;

/// How commands of the shell tool run.
#[derive(Debug, Default)]
pub(crate) struct ShellPart {
    pub(crate) sandbox: Option<Found<SandboxMode>>,
    pub(crate) timeout: Option<Found<Duration>>,
    /// Variables that are withheld from tools, and that commands get.
    pub(crate) pass_env: Option<Found<Vec<Found<String>>>>,
}

/// What a command may take at most, whoever asks for it.
const MOST_TIME: Duration = Duration::from_secs(3600);

impl ShellPart {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let modes = [("on", SandboxMode::On), ("require", SandboxMode::Require), ("off", SandboxMode::Off)];
        let part = Self {
            sandbox: section.word("sandbox", &modes),
            timeout: section.duration("timeout"),
            pass_env: section.strings("pass_env"),
        };
        if let Some(timeout) = &part.timeout
            && (timeout.value < Duration::from_secs(1) || timeout.value > MOST_TIME)
        {
            let what = format!("{} is not between a second and an hour", section.named("timeout"));
            section
                .source()
                .tell(Problem::error(what).at(&timeout.place).hint("write `timeout = \"2m\"`, for example"));
        }
        for name in part.pass_env.iter().flat_map(|names| &names.value) {
            if name.value.is_empty() || name.value.contains(['=', '\0']) {
                let what = format!("{} must be names of environment variables", section.named("pass_env"));
                section.source().tell(Problem::error(what).at(&name.place).hint("write `pass_env = [\"GH_TOKEN\"]`"));
            }
        }
        section.finish();
        part
    }
}

impl Over for ShellPart {
    fn over(self, base: Self) -> Self {
        Self {
            sandbox: self.sandbox.over(base.sandbox),
            timeout: self.timeout.over(base.timeout),
            pass_env: self.pass_env.over(base.pass_env),
        }
    }
}

//! The section `[tools.fetch]`.

use std::time::Duration;

use turnbuckle_tools::rules::Rule;
use turnbuckle_tools::{Fetch, FetchOptions, PrivateHost};

use super::reader::Section;
use super::{Found, Over};
use crate::problem::Problem;

/// What the fetch tool reaches.
#[derive(Debug, Default)]
pub(crate) struct FetchPart {
    /// Hosts that are fetched from without asking.
    pub(crate) allow: Option<Found<Vec<Rule>>>,
    /// Hosts of private networks that may be fetched from at all.
    pub(crate) private: Option<Found<Vec<PrivateHost>>>,
    pub(crate) timeout: Option<Found<Duration>>,
    /// The most bytes of a page that are read.
    pub(crate) max_bytes: Option<Found<u32>>,
}

/// What a call may take at most.
const MOST_TIME: Duration = Duration::from_secs(600);
/// A page is held in memory, and parsing takes several times its size.
const MOST_BYTES: u32 = 32 * 1024 * 1024;

impl FetchPart {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let part = Self {
            allow: hosts(&mut section, "allow", |host| format!("{}({host})", Fetch::NAME).parse().ok()),
            private: hosts(&mut section, "private", |host| host.parse().ok()),
            timeout: section.duration("timeout"),
            max_bytes: section.small("max_bytes"),
        };
        if let Some(timeout) = &part.timeout
            && (timeout.value < Duration::from_secs(1) || timeout.value > MOST_TIME)
        {
            let what = format!("{} is not between a second and ten minutes", section.named("timeout"));
            section
                .source()
                .tell(Problem::error(what).at(&timeout.place).hint("write `timeout = \"30s\"`, for example"));
        }
        if let Some(bytes) = part.max_bytes.as_ref().filter(|bytes| bytes.value == 0 || bytes.value > MOST_BYTES) {
            let what = format!("{} is not between 1 and {MOST_BYTES}", section.named("max_bytes"));
            section
                .source()
                .tell(Problem::error(what).at(&bytes.place).hint("write `max_bytes = 2000000`, for example"));
        }
        section.finish();
        part
    }

    /// As the tool takes them.
    pub(crate) fn options(&self) -> FetchOptions {
        let mut options = FetchOptions::default();
        if let Some(private) = &self.private {
            options.private.clone_from(&private.value);
        }
        if let Some(timeout) = &self.timeout {
            options.timeout = timeout.value;
        }
        if let Some(bytes) = &self.max_bytes {
            options.max_bytes = bytes.value as usize;
        }
        options
    }
}

/// A list of hosts in the rule language.
fn hosts<T>(section: &mut Section<'_>, key: &'static str, read: impl Fn(&str) -> Option<T>) -> Option<Found<Vec<T>>> {
    let Found { value: names, place } = section.strings(key)?;
    let mut found = Vec::new();
    for name in names {
        match read(&name.value) {
            Some(host) => found.push(host),
            None => {
                let what = format!("{} has {:?}, which is no host", section.named(key), name.value);
                let hint = "write `docs.rs`, `*.docs.rs` or `localhost:8080`, without a scheme or a path";
                section.source().tell(Problem::error(what).at(&name.place).hint(hint));
            }
        }
    }
    Some(Found { value: found, place })
}

impl Over for FetchPart {
    fn over(self, base: Self) -> Self {
        Self {
            allow: self.allow.over(base.allow),
            private: self.private.over(base.private),
            timeout: self.timeout.over(base.timeout),
            max_bytes: self.max_bytes.over(base.max_bytes),
        }
    }
}

//! The catalogue: every ready-made hook that `use` can name. One row each.

use std::fmt;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, Deserializer, Error};
use turnbuckle::hook::HookEntry;
use turnbuckle::hooks::{Approval, CheckResult, DryRun, Fallback, Format, Guard, Instructions, Permit, Quota};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, OptionError};
use turnbuckle::hooks::{Retry, Trim, ValidateInput};
use turnbuckle::store::SideStore;
use turnbuckle_hooks::{
    AuditLog, Cache, CircuitBreaker, Concurrency, Critic, Dream, Monitor, Notify, RateLimit, Recall,
};
use turnbuckle_hooks::{Redact, Refine, Remember, Suggest, Telemetry, Timeout, Title};
use turnbuckle_tools::{ClaudeHooks, CommandHook, HttpHook, Lint, Persist, WorkerHook};

/// All, in the order that lists show.
pub(crate) const CATALOGUE: &[Row] = &[
    Row::of::<CommandHook>(),
    Row::of::<ClaudeHooks>(),
    Row::of::<WorkerHook>(),
    Row::of::<HttpHook>(),
    Row::of::<ValidateInput>(),
    Row::of::<Quota>(),
    Row::of::<Instructions>(),
    Row::of::<Recall>(),
    Row::of::<Redact>(),
    Row::of::<Trim>(),
    Row::of::<Cache>(),
    Row::of::<Retry>(),
    Row::of::<Fallback>(),
    Row::of::<CircuitBreaker>(),
    Row::of::<RateLimit>(),
    Row::of::<Concurrency>(),
    Row::of::<Timeout>(),
    Row::of::<Monitor>(),
    Row::of::<Refine>(),
    Row::of::<Critic>(),
    Row::of::<Guard>(),
    Row::of::<Approval>(),
    Row::of::<Permit>(),
    Row::of::<DryRun>(),
    Row::of::<CheckResult>(),
    Row::of::<Lint>(),
    Row::of::<Format>(),
    Row::of::<Persist>(),
    Row::of::<Suggest>(),
    Row::of::<Title>(),
    Row::of::<Remember>(),
    Row::of::<Dream>(),
    Row::of::<AuditLog>(),
    Row::of::<Notify>(),
    Row::of::<Telemetry>(),
];

/// A ready-made hook.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// The name that `use` selects it by.
    pub(crate) name: &'static str,
    /// What it does, in one line.
    pub(crate) does: &'static str,
    /// Option names that were replaced, each with what to write instead.
    pub(crate) renamed: &'static [(&'static str, &'static str)],
    read: for<'t, 'a> fn(Spanned<DeTable<'t>>, &HookBuildContext<'a>) -> Result<Maker, Refused>,
    side_store: for<'t, 'a> fn(Spanned<DeTable<'t>>, &HookBuildContext<'a>) -> Result<KeptBeside, Refused>,
    shape_error: for<'t> fn(Spanned<DeTable<'t>>) -> Option<Error>,
}

/// What a hook keeps of conversations beside the store.
pub(crate) type KeptBeside = Option<Arc<dyn SideStore>>;

/// A hook that lacks only its name.
pub(crate) struct Maker {
    make: Box<dyn FnOnce(String) -> HookEntry>,
    side_store: KeptBeside,
}

/// Why options make no hook.
pub(crate) enum Refused {
    /// They do not have the shape of this hook's options.
    Shape(Error),
    /// The hook cannot work with one of them.
    Option(OptionError),
}

impl Row {
    const fn of<H: ConfigHook + 'static>() -> Self {
        Self {
            name: H::NAME,
            does: H::SUMMARY,
            renamed: H::RENAMED_OPTIONS,
            read: read::<H>,
            side_store: side_store::<H>,
            shape_error: shape_error::<H>,
        }
    }

    /// The hook that a section's own keys describe.
    pub(crate) fn read(&self, options: Spanned<DeTable<'_>>, context: &HookBuildContext<'_>) -> Result<Maker, Refused> {
        (self.read)(options, context)
    }

    /// Why a table does not have the shape of this hook's options.
    pub(crate) fn shape_error(&self, options: Spanned<DeTable<'_>>) -> Option<Error> {
        (self.shape_error)(options)
    }

    /// What the hook of a section's own keys keeps. The hook is not made, so it needs no secret and no model.
    pub(crate) fn side_store(
        &self,
        options: Spanned<DeTable<'_>>,
        context: &HookBuildContext<'_>,
    ) -> Result<KeptBeside, Refused> {
        (self.side_store)(options, context)
    }
}

fn shape_error<H: ConfigHook>(options: Spanned<DeTable<'_>>) -> Option<Error> {
    let read: Result<H::Options, Error> = serde::Deserialize::deserialize(Deserializer::from(options));
    read.err()
}

fn side_store<H: ConfigHook>(
    options: Spanned<DeTable<'_>>,
    context: &HookBuildContext<'_>,
) -> Result<KeptBeside, Refused> {
    let options: H::Options = serde::Deserialize::deserialize(Deserializer::from(options)).map_err(Refused::Shape)?;
    Ok(H::side_store_of(&options, context))
}

fn read<H: ConfigHook + 'static>(
    options: Spanned<DeTable<'_>>,
    context: &HookBuildContext<'_>,
) -> Result<Maker, Refused> {
    let options: H::Options = serde::Deserialize::deserialize(Deserializer::from(options)).map_err(Refused::Shape)?;
    let side_store = H::side_store_of(&options, context);
    let hook = H::from_options(options, context).map_err(Refused::Option)?;
    Ok(Maker { make: Box::new(move |name| hook.entry(name)), side_store })
}

impl Maker {
    /// The hook, under its name.
    pub(crate) fn make(self, name: String) -> HookEntry {
        (self.make)(name)
    }

    /// What it keeps of conversations beside the store.
    pub(crate) fn side_store(&self) -> Option<&Arc<dyn SideStore>> {
        self.side_store.as_ref()
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Debug for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Maker")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_there_once_and_says_what_it_does() {
        let names: std::collections::BTreeSet<_> = CATALOGUE.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), CATALOGUE.len());
        assert!(CATALOGUE.iter().all(|row| !row.does.is_empty() && !row.does.ends_with('.')));
    }
}

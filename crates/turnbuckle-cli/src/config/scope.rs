//! `[scope]`: who is acting, for hooks that decide by user or role.

use turnbuckle::Scope;

use super::reader::Section;
use super::{Found, Over};
use crate::problem::{Place, Problem};

/// The section `[scope]`.
#[derive(Debug, Default)]
pub(crate) struct ScopePart {
    pub(crate) user: Option<Found<String>>,
    pub(crate) roles: Option<Found<Vec<Found<String>>>>,
}

impl ScopePart {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let part = Self { user: section.string("user"), roles: section.roles("roles") };
        let tell = |what: String, hint: &str, found: &Found<String>| {
            section.source().tell(Problem::error(what).at(&found.place).hint(hint));
        };
        if let Some(user) = part.user.as_ref().filter(|user| user.value.trim().is_empty()) {
            let what = format!("{} is empty", section.named("user"));
            tell(what, "take the line out: the user is called `local` then", user);
        }
        if let Some(user) = part.user.as_ref().filter(|user| user.value.chars().any(char::is_control)) {
            let what = format!("{} has a character that cannot be shown", section.named("user"));
            tell(what, "an id such as \"ann\" will do", user);
        }
        section.finish();
        part
    }

    /// Where it stands.
    pub(super) fn place(&self) -> Option<&Place> {
        let user = self.user.as_ref().map(|found| &found.place);
        user.or_else(|| self.roles.as_ref().map(|found| &found.place))
    }

    /// The acting user's name.
    pub(crate) fn user_name(&self) -> String {
        self.scope().user_id().map_or_else(String::new, ToString::to_string)
    }

    /// The acting user, `local` by default, with its roles.
    pub(crate) fn scope(&self) -> Scope {
        let user = self.user.as_ref().map_or_else(Scope::local, |user| Scope::user(user.value.as_str()));
        let roles = self.roles.iter().flat_map(|roles| &roles.value);
        roles.fold(user, |scope, role| scope.role(role.value.as_str()))
    }
}

impl Over for ScopePart {
    fn over(self, base: Self) -> Self {
        Self { user: self.user.over(base.user), roles: self.roles.over(base.roles) }
    }
}

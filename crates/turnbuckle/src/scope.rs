//! Who is acting, and the ambient things that come with them.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Who acts: a person with roles, or the runtime itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// A person or a service that speaks for one.
    User {
        /// Stable id; the owner of a conversation is one of these.
        id: Arc<str>,
        /// What hooks such as `permit` decide by.
        #[serde(default)]
        roles: Arc<[Arc<str>]>,
    },
    /// Expiry, recovery, a schedule: nobody in particular.
    System,
}

impl Actor {
    /// As the log names it.
    pub fn author(&self) -> Author {
        match self {
            Self::User { id, .. } => Author::User(id.clone()),
            Self::System => Author::System(SystemAuthor::Program),
        }
    }

    /// Its id, if it is a user.
    pub fn user_id(&self) -> Option<&Arc<str>> {
        match self {
            Self::User { id, .. } => Some(id),
            Self::System => None,
        }
    }

    /// Whether it is a user with this role.
    pub fn has_role(&self, role: &str) -> bool {
        matches!(self, Self::User { roles, .. } if roles.iter().any(|own| &**own == role))
    }

    /// Whether both are the same user, whatever their roles: roles come and go.
    pub fn is_same_user(&self, other: &Self) -> bool {
        self.user_id().is_some_and(|id| Some(id) == other.user_id())
    }
}

/// Who did it, as the log says it: `{"user":"ann"}`, `{"hook":"lint"}`, `{"system":"expiry"}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Author {
    /// A person.
    User(Arc<str>),
    /// A hook, by name.
    Hook(Arc<str>),
    /// The runtime.
    System(SystemAuthor),
}

/// Which part of the runtime acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SystemAuthor {
    /// A suspended call was not answered in time.
    Expiry,
    /// A turn was taken up again after a crash.
    Recovery,
    /// A limit of the turn was reached.
    Limit,
    /// A conversation was kept for as long as it was to be.
    Retention,
    /// The runtime, or the program that it is part of ([`Scope::system`]), acted by itself for none of the reasons above.
    Program,
}

impl Author {
    /// A hook.
    pub fn hook(name: &Arc<str>) -> Self {
        Self::Hook(name.clone())
    }
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(id) => write!(f, "user {id}"),
            Self::Hook(name) => write!(f, "hook {name}"),
            Self::System(part) => write!(f, "system ({})", format!("{part:?}").to_lowercase()),
        }
    }
}

/// Whether a person is there to be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PermissionMode {
    /// Someone watches.
    #[default]
    Interactive,
    /// Nobody does.
    Headless,
}

impl PermissionMode {
    /// In lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Headless => "headless",
        }
    }
}

/// How answers come through a signed link.
const VIA_LINK: &str = "link";

/// Whether an answer by this actor, which came that way, is one of [`Scope::link_for_nobody`].
pub(crate) fn is_link_for_nobody(actor: &Actor, via: Option<&str>) -> bool {
    *actor == Actor::System && via == Some(VIA_LINK)
}

type Things = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// The actor and a typed bag. Required on every entry; hooks and tools read it from the turn.
///
/// ```
/// use turnbuckle::Scope;
/// struct Database(&'static str);
/// let scope = Scope::user("ann").role("editor").with(Database("orders"));
/// assert_eq!(scope.get::<Database>().unwrap().0, "orders");
/// assert!(scope.has_role("editor"));
/// ```
#[derive(Clone)]
pub struct Scope {
    actor: Actor,
    /// Written by the entry call, read by hooks and tools; never stored.
    bag: Option<Arc<Things>>,
    /// How the actor came, if not through a program of Turnbuckle. Stored with an answer.
    via: Option<Arc<str>>,
}

impl Scope {
    /// The one user of a program that has only one.
    pub fn local() -> Self {
        thread_local! {
            static LOCAL: Actor = Actor::User { id: "local".into(), roles: Arc::new([]) };
        }
        Self::of(LOCAL.with(Actor::clone))
    }

    /// A user without roles.
    pub fn user(id: impl Into<Arc<str>>) -> Self {
        Self::of(Actor::User { id: id.into(), roles: Arc::new([]) })
    }

    /// The runtime itself.
    pub fn system() -> Self {
        Self::of(Actor::System)
    }

    /// An actor with an empty bag.
    pub fn of(actor: Actor) -> Self {
        Self { actor, bag: None, via: None }
    }

    /// With one more role. Nothing for the system, which has none.
    pub fn role(mut self, role: impl Into<Arc<str>>) -> Self {
        if let Actor::User { roles, .. } = &mut self.actor {
            *roles = roles.iter().cloned().chain([role.into()]).collect();
        }
        self
    }

    /// With `thing` in the bag, found again by its type.
    pub fn with<T: Send + Sync + 'static>(mut self, thing: T) -> Self {
        let mut things = self.bag.as_deref().cloned().unwrap_or_default();
        things.insert(TypeId::of::<T>(), Arc::new(thing));
        self.bag = Some(Arc::new(things));
        self
    }

    /// Says how the actor came, if not through a program of Turnbuckle: `link` for a signed link, `mcp` for an MCP client.
    /// The log has it with every answer.
    pub fn via(mut self, via: impl Into<Arc<str>>) -> Self {
        self.via = Some(via.into());
        self
    }

    /// Nobody in particular, through a signed link that names no user. All that it may do is deny a call that waits.
    pub fn link_for_nobody() -> Self {
        Self::system().via(VIA_LINK)
    }

    /// How the actor came; see [`via`](Self::via).
    pub fn came_via(&self) -> Option<&Arc<str>> {
        self.via.as_ref()
    }

    /// The `T` in the bag.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.bag.as_ref()?.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// Who is acting.
    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    /// The acting user's id, if it is a user.
    pub fn user_id(&self) -> Option<&Arc<str>> {
        self.actor.user_id()
    }

    /// Whether the acting user has this role.
    pub fn has_role(&self, role: &str) -> bool {
        self.actor.has_role(role)
    }

    /// The actor as the log names it.
    pub fn by(&self) -> Author {
        self.actor.author()
    }
}

impl fmt::Debug for Scope {
    /// The bag may hold secrets: only its size is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let things = self.bag.as_ref().map_or(0, |bag| bag.len());
        f.debug_struct("Scope").field("actor", &self.actor).field("things", &things).finish()
    }
}

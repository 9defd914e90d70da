//! Groups of before-hooks that run side by side, at their place in the order.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use super::{HookEntry, Point};
use crate::BoxError;
use crate::BoxFuture;
use crate::message::{Content, Text};
use crate::turn::Turn;

type Append = dyn Fn(Turn) -> BoxFuture<'static, Result<Content, BoxError>> + Send + Sync;

/// One member of a group: it may append content, and nothing else. It cannot halt or change the turn, by type.
#[derive(Clone)]
pub struct Member {
    pub(crate) name: Text,
    pub(crate) append: Arc<Append>,
}

/// A member of a [`parallel`] group.
pub fn member<F, Fut, C>(name: impl Into<Text>, append: F) -> Member
where
    F: Fn(Turn) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<C, BoxError>> + Send + 'static,
    C: Into<Content>,
{
    let append = Arc::new(append);
    let boxed = move |turn| -> BoxFuture<'static, Result<Content, BoxError>> {
        let append = append.clone();
        Box::pin(async move { append(turn).await.map(Into::into) })
    };
    Member { name: name.into(), append: Arc::new(boxed) }
}

/// Members that run concurrently; what they append is merged in declaration order. A member that fails appends nothing.
#[derive(Clone)]
pub struct Parallel {
    pub(crate) members: Vec<Member>,
    point: Point,
}

/// A group for `before_agent`; [`Parallel::every_call`] makes it one for `before_model`.
///
/// ```
/// use turnbuckle::hook::{member, parallel};
/// let group = parallel([
///     member("recall", |_turn| async { Ok("She likes tea.") }),
///     member("clock", |_turn| async { Ok("It is noon.") }),
/// ]);
/// # let _ = group;
/// ```
pub fn parallel(members: impl IntoIterator<Item = Member>) -> Parallel {
    Parallel { members: members.into_iter().collect(), point: Point::BeforeAgent }
}

impl Parallel {
    /// Before each model call instead of once a turn.
    pub fn every_call(mut self) -> Self {
        self.point = Point::BeforeModel;
        self
    }
}

impl From<Parallel> for HookEntry {
    fn from(group: Parallel) -> Self {
        let names: Vec<&str> = group.members.iter().map(|member| &*member.name).collect();
        let name = format!("parallel({})", names.join(", "));
        let point = group.point;
        Self::of_group(name.into(), group, point)
    }
}

impl fmt::Debug for Parallel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.members.iter().map(|member| &member.name)).finish()
    }
}

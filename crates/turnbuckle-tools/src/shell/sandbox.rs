//! What a command of the shell tool can reach: the project and what a build needs, and no network.
//!
//! A [`Policy`] says what the user wants, [`Support`] what this machine can enforce. Together they make a `Reach`, what that comes to at one moment, and
//! a `Confinement`: the orders for the launcher, which confines itself and then becomes the command. `docs/design/0015-shell-and-sandbox.md` has the reasons and the limits.

mod blame;
mod confine;
mod guarded;
mod guarded_names;
mod own_folders;
mod paths;
mod policy;
mod private_tmp;
mod reach;
mod repositories;
mod seen;
mod support;

pub(super) use blame::blame;
pub(super) use confine::{Confinement, confine, enter_bubblewrap, probe_namespaces};
pub(super) use guarded::{Guarded, GuardedLook, guarded_by, make_missing};
pub use guarded_names::GuardedNames;
pub(super) use own_folders::OwnFolders;
pub use policy::{Network, Policy};
pub(super) use private_tmp::PrivateTmp;
pub(super) use reach::Reach;
pub(super) use seen::Seen;
pub use support::Support;

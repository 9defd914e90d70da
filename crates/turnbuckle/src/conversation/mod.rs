//! Conversations: everything goes by id through [`Conversations`], which returns the live conversation or revives it.
//!
//! A conversation at rest is data, not a task: nothing runs while nothing happens. An order (a message, an answer, a
//! cancellation) makes a driver run until no turn can go on. Disconnecting is not cancelling: the driver is a task of its
//! own, or becomes one when the caller who runs it goes away.
//!
//! Read in this order: `conversations.rs` is the public API (with `answering.rs`, `pages.rs`, `pending.rs`, `standing.rs`
//! and `deletion.rs`), `order.rs` what is asked, `shared.rs` one conversation as
//! callers and driver share it, `driver.rs` what carries orders out and runs turns, `supervise.rs` what runs beside a turn,
//! `outbox.rs` what is done after it.

mod answering;
mod builder;
mod close;
mod conversations;
mod deletion;
mod driver;
mod error;
mod inline;
mod input;
mod loaded;
mod observers;
mod one_turn;
mod order;
mod outbox;
mod pages;
mod pending;
mod read_back;
mod runtime;
mod shared;
mod standing;
mod summaries;
mod supervise;
mod waiters;

pub use builder::ConversationsBuilder;
pub use conversations::Conversations;
pub use deletion::{Deleted, DeletedUser, Leftover};
pub use error::{AnswerStatus, Cancelled, PendingCall, RecordedFor, ResolveError, RunError, SendError, TurnHandle};
pub use input::{UserInput, WhileBusy};
pub use pages::{AuditedModelCall, CreateError, Page, QueuedMessage};
pub(crate) use runtime::Runtime;
pub use runtime::{ScopeSource, TakenUp};
pub use standing::Always;

pub use crate::report::{TurnReport, TurnStatus};
pub use crate::turn::{LeftReason, LeftTurn, OnChangedAgent, OtherAgents, RefusedMessage, TurnError};

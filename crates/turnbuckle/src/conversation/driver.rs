//! The driver: claims a conversation, carries out commands, drives its turns to rest, and gives the seat back.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::cell::{Cell, SeatGuard};
use super::command::{Cancel, Command, NewMessage, Refused};
use super::observers::Watching;
use super::outcome::{ResolveError, SendError, TurnError, TurnStatus};
use super::pace::paced;
use super::{Runtime, WhileBusy};
use crate::feed::{ConversationState, LiveEvent};
use crate::id::{CallId, TurnId};
use crate::message::Text;
use crate::projection::Pending;
use crate::scope::Scope;
use crate::store::{InboxFilter, InboxItem, InboxKind, Scratch, StoreError};
use crate::turn::{AbortCause, Resolve, Stage, State, next, resolve};

/// From the first command until nothing is left to do.
pub(super) async fn run(seat: SeatGuard, runtime: Arc<Runtime>, state: Option<Box<State>>, first: Command) {
    let cell = seat.cell.clone();
    sit(seat, runtime.clone(), state, first).await;
    if cell.is_left() {
        runtime.forget(&cell);
    }
    drop(cell);
    runtime.evict();
}

async fn sit(seat: SeatGuard, runtime: Arc<Runtime>, state: Option<Box<State>>, first: Command) {
    let mut sitting = Sitting {
        cell: seat.cell.clone(),
        runtime,
        state,
        inbox: SmallVec::new(),
        orders: VecDeque::new(),
        read: SmallVec::new(),
        scratch: None,
        epoch: None,
        resolve: None,
        abort: None,
        watching: None,
    };
    let mut command = first;
    loop {
        if let Err(error) = sitting.carry_out(command).await {
            sitting.give_up(error);
            return seat.rested();
        }
        if sitting.has_mail().await {
            command = Command::Wake;
            continue;
        }
        sitting.tell_waiting();
        let Some(more) = sitting.rest() else { return seat.rested() };
        command = more;
    }
}

/// One stay at the seat.
pub(super) struct Sitting {
    pub(super) cell: Arc<Cell>,
    pub(super) runtime: Arc<Runtime>,
    pub(super) state: Option<Box<State>>,
    /// Messages, oldest first.
    pub(super) inbox: SmallVec<[InboxItem; 1]>,
    /// What other processes ask.
    pub(super) orders: VecDeque<InboxItem>,
    /// Letters that came to nothing: the next write takes them.
    pub(super) read: SmallVec<[Text; 1]>,
    pub(super) scratch: Option<Scratch>,
    /// The claim, while it is held.
    pub(super) epoch: Option<u64>,
    /// What the next flight begins with.
    resolve: Option<Resolve>,
    abort: Option<AbortCause>,
    /// Keeps the observers at work.
    watching: Option<Arc<Watching>>,
}

impl Sitting {
    async fn carry_out(&mut self, command: Command) -> Result<(), Arc<StoreError>> {
        if let Err(error) = self.claim().await {
            let error = Arc::new(error);
            command.refuse(&Refused::Store(error.clone()));
            return Err(error);
        }
        self.obey(command).await?;
        while self.has_work() {
            self.fly().await?;
        }
        Ok(self.release().await?)
    }

    pub(super) fn stage(&self) -> Stage {
        self.state.as_ref().map_or(Stage::Idle, |state| next(state))
    }

    /// The turn that is open, or the one that the next message opens.
    fn open_turn(&self) -> Option<TurnId> {
        let open = self.state.as_ref().and_then(|state| state.turn.as_ref()).map(|turn| turn.id.clone());
        open.or_else(|| self.inbox.first()?.opens())
    }

    async fn obey(&mut self, command: Command) -> Result<(), StoreError> {
        match command {
            Command::Message(message) => return self.take(message).await,
            Command::Resolve(resolve) => self.resolve = Some(resolve),
            Command::Cancel(Cancel { turn, abort, item, done }) => {
                let open = self.open_turn().as_ref() == Some(&turn);
                if open {
                    self.cut_open_turn(turn, abort, item);
                }
                let _ = done.send(Ok(open));
            }
            Command::Resume(found, waiter) => {
                let open = self.open_turn();
                if let Some(turn) = &open {
                    self.cell.add_waiter(Some(turn.clone()), waiter);
                }
                let _ = found.send(Ok(open));
            }
            // Whoever did the jobs is told by the drop of `_written`.
            Command::Notes(turn, results, _written) => return self.note(turn, *results, &[]).await,
            Command::Wake => {}
            Command::Close(_, done) if self.stage() != Stage::Idle => {
                let pending = self.pending().into_iter().map(|pending| pending.call).collect();
                let _ = done.send(Err(SendError::Busy { id: self.cell.id.clone(), pending }));
            }
            Command::Close(scope, done) => {
                let ended = self.end_conversation(scope).await?;
                if ended.is_ok() {
                    self.cell.leave();
                }
                let _ = done.send(ended);
            }
        }
        Ok(())
    }

    /// Cuts the open turn, or the one that the next message opens, which is cut when it begins.
    fn cut_open_turn(&mut self, turn: TurnId, abort: AbortCause, item: Option<Text>) {
        if let Some(item) = item {
            self.cell.hear(&item);
        }
        match self.stage() {
            Stage::Idle => self.cell.cut_when_begun(turn, abort),
            _ => self.abort = Some(abort),
        }
    }

    /// Stores a message, by what the caller wants if a turn waits.
    async fn take(&mut self, message: NewMessage) -> Result<(), StoreError> {
        if self.stage() == Stage::Waiting && message.while_busy == WhileBusy::Reject {
            let pending = self.pending().into_iter().map(|pending| pending.call).collect::<Vec<CallId>>();
            self.cell.expect_no_more(&message.turn);
            message.refuse(&self.cell.id, pending);
            return Ok(());
        }
        let NewMessage { turn, say, scope, while_busy, done, rest } = message;
        let item = say.item(&turn, &scope, self.runtime.clock.now());
        if let Err(error) = self.runtime.store.deliver(&self.cell.id, item.clone()).await {
            self.cell.expect_no_more(&turn);
            let _ = done.send(Err(error.into()));
            return Ok(());
        }
        if self.stage() != Stage::Idle && while_busy == WhileBusy::Interrupt {
            self.abort = Some(AbortCause::Cancelled(scope.by()));
        }
        self.inbox.push(item);
        self.cell.add_waiter(Some(turn.clone()), rest);
        self.cell.keep_scope(&turn, scope);
        // The sender may have gone: the message is stored, and its turn runs.
        let _ = done.send(Ok(()));
        Ok(())
    }

    fn pending(&self) -> Vec<Pending> {
        self.cell.feed.snapshot().pending
    }

    fn has_work(&mut self) -> bool {
        self.read_orders();
        while self.stage() == Stage::Idle
            && let Some(resolve) = self.resolve.take()
        {
            self.read.extend(refuse(resolve, "no turn is open"));
            self.read_orders();
        }
        match self.stage() {
            Stage::Idle => {
                self.abort = None;
                !self.inbox.is_empty()
            }
            Stage::Waiting => self.resolve.is_some() || self.abort.is_some() || self.has_lapsed(),
            _ => true,
        }
    }

    /// Whoever waits for a turn that waits is told so only when nothing is left to do: the process may end then.
    fn tell_waiting(&self) {
        if self.stage() == Stage::Waiting {
            let open = self.open_turn();
            self.cell.tell_rest(open.as_ref(), Ok(TurnStatus::Waiting(self.pending())));
        }
    }

    /// Takes up what other processes ask, one answer at a time. What does not fit the open turn came too late.
    fn read_orders(&mut self) {
        while self.resolve.is_none() {
            let Some(item) = self.orders.pop_front() else { return };
            let by = Scope::of(item.from).by();
            match item.kind {
                InboxKind::Cancel { turn } if self.open_turn().as_ref() == Some(&turn) => {
                    self.cut_open_turn(turn, AbortCause::Cancelled(by), Some(item.id));
                }
                InboxKind::Answer { call, answer, digest } if self.stage() != Stage::Idle => {
                    // Nobody here waits for it.
                    let (done, rest) = (oneshot::channel().0, oneshot::channel().0);
                    let item = Some(item.id);
                    self.resolve = Some(Resolve { call, answer, digest, by, item, done, rest });
                }
                _ => self.read.push(item.id),
            }
        }
    }

    /// Whether nobody answered a question in time.
    fn has_lapsed(&self) -> bool {
        let now = self.runtime.clock.now();
        let turn = self.state.as_ref().and_then(|state| state.turn.as_ref());
        turn.is_some_and(|turn| turn.open_questions().any(|question| question.expires <= now))
    }

    /// One turn, until it is over or waits.
    async fn fly(&mut self) -> Result<(), StoreError> {
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.claim().await?;
                return Ok(());
            }
        };
        let Some(mut active) = self.take_off(epoch) else { return Ok(()) };
        if self.watching.is_none() {
            self.watching = Watching::of(&self.cell, &self.runtime);
        }
        if let Some(watching) = &self.watching {
            watching.follow(active.ctx());
        }
        let mut begun = Ok(());
        if let Some(abort) = self.abort.take() {
            active.settle(abort.verdict());
            active.ctx().abort.abort(abort);
        } else {
            begun = resolve::expire(&mut active).await;
            if let (Ok(()), Some(resolve)) = (&begun, self.resolve.take()) {
                begun = resolve::answer(&mut active, resolve).await;
            }
        }
        let done = match begun {
            Ok(()) => paced(&mut active).await,
            Err(error) => Err(error),
        };
        if done.is_ok() {
            // For whoever kept something of it: nothing more is done in its name.
            active.ctx().abort.abort(AbortCause::Over);
        }
        self.cell.landed();
        for inside in std::mem::take(&mut active.called_off) {
            // Whatever became of it: it is not this turn's to say.
            let _ = self.renewing(inside.wait()).await;
        }
        self.land(active, done).await
    }

    /// Whether another process has put something into the inbox that can be taken up now. Asked after the claim was
    /// given back: whoever delivered before that found it taken, and relies on this look.
    async fn has_mail(&self) -> bool {
        if !self.runtime.store.is_durable() || self.cell.id.is_sub_agent() {
            return false;
        }
        // A message behind a turn that waits must wait as well.
        let which = if self.stage() == Stage::Waiting { InboxFilter::Control } else { InboxFilter::All };
        self.runtime.store.inbox(&self.cell.id, which).await.is_ok_and(|inbox| !inbox.is_empty())
    }

    /// Nothing more to do here, unless a command came in meanwhile.
    fn rest(&mut self) -> Option<Command> {
        let state = match self.stage() {
            Stage::Waiting => ConversationState::Waiting,
            _ => ConversationState::Idle,
        };
        if self.cell.feed.snapshot_state() != state {
            self.cell.feed.publish_live(None, LiveEvent::StateChanged { state });
        }
        self.watching = None;
        self.cell.rest(&mut self.state)
    }

    /// The store failed: whoever waits is told, and what was remembered is dropped. The log stands.
    fn give_up(self, error: Arc<StoreError>) {
        let why = match *error {
            // What is queued here is in the inbox of whoever has the conversation.
            StoreError::InUse { .. } => TurnError::Remote,
            _ => TurnError::Store(error.clone()),
        };
        self.cell.tell_all(&Err(why));
        while let Some(command) = self.cell.rest(&mut None) {
            command.refuse(&Refused::Store(error.clone()));
        }
    }
}

/// An answer that came too late. Gives back the letter it came in.
fn refuse(resolve: Resolve, why: &str) -> Option<Text> {
    let Resolve { call, item, done, .. } = resolve;
    // Whoever asked may have gone.
    let _ = done.send(Err(ResolveError::Stale { call, why: why.into() }));
    item
}

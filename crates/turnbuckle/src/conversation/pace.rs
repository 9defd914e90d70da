//! What runs beside a turn: its deadline, its lease, letters of other processes, and viewers that must not be outrun.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use super::cell::Cell;
use super::command::Command;
use crate::clock::Boxed;
use crate::live::Queue;
use crate::scope::Scope;
use crate::store::{Letter, Mail, RENEW_EVERY, Says, StoreError, Stored};
use crate::turn::{Cut, Flight, Frame, Resolve, Stage, drive};

/// How long a turn waits for a lossless viewer.
pub(super) const VIEWER_DEADLINE: Duration = Duration::from_secs(5);
/// How often a turn under way looks into its inbox for what other processes ask.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Drives the flight, with its deadline, its lease, its observers, and viewers that must not be outrun.
pub(super) async fn paced(flight: &mut Flight) -> Result<Stage, StoreError> {
    let frame = flight.turn.frame.clone();
    let left = frame.limits.turn_timeout.saturating_sub(flight.stopwatch.active(frame.clock.elapsed()));
    let (epoch, cell) = (flight.epoch, flight.cell.clone());
    let mut work = pin!(drive(flight));
    let mut gate: Option<Boxed<'static, ()>> = None;
    let mut errands: Option<Errands<'_>> = None;
    poll_fn(|cx| {
        loop {
            if let Some(waiting) = &mut gate {
                if waiting.as_mut().poll(cx).is_pending() {
                    // The lease and the deadline do not wait for a viewer.
                    let errands = errands.get_or_insert_with(|| Errands::new(&frame, &cell, epoch, left));
                    match errands.poll(cx) {
                        Poll::Ready(Ok(())) => continue,
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => return Poll::Pending,
                    }
                }
                gate = None;
            }
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            let behind = if frame.plane.has_lossless() { frame.plane.behind() } else { Vec::new() };
            if !behind.is_empty() {
                gate = Some(Box::pin(wait_for(behind, frame.clone())));
                continue;
            }
            // A turn that is over at its first poll never sees a timer.
            let errands = errands.get_or_insert_with(|| Errands::new(&frame, &cell, epoch, left));
            match errands.poll(cx) {
                Poll::Ready(Ok(())) => continue,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

/// What is done by the clock while a turn is under way.
struct Errands<'a> {
    frame: &'a Arc<Frame>,
    cell: &'a Arc<Cell>,
    epoch: u64,
    deadline: Boxed<'static, ()>,
    renew: Boxed<'static, ()>,
    renewal: Option<Stored<'a, ()>>,
    /// `None` where no other process can write letters.
    look: Option<Boxed<'static, ()>>,
    letters: Option<Stored<'a, Vec<Letter>>>,
}

impl<'a> Errands<'a> {
    fn new(frame: &'a Arc<Frame>, cell: &'a Arc<Cell>, epoch: u64, left: Duration) -> Self {
        let shared = frame.house.store.is_durable() && !cell.id.is_of_a_sub_agent();
        Self {
            frame,
            cell,
            epoch,
            deadline: frame.clock.sleep(left),
            renew: frame.clock.sleep(RENEW_EVERY),
            renewal: None,
            look: shared.then(|| frame.clock.sleep(LOOK_EVERY)),
            letters: None,
        }
    }

    /// Ready when the turn should be looked at again; an error when the claim is lost.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StoreError>> {
        let frame = self.frame;
        if !frame.cut.is_cut() && self.deadline.as_mut().poll(cx).is_ready() {
            frame.cut.cut(Cut::TimeUp);
            return Poll::Ready(Ok(()));
        }
        while self.renewal.is_none() && self.renew.as_mut().poll(cx).is_ready() {
            self.renew = frame.clock.sleep(RENEW_EVERY);
            self.renewal = Some(frame.house.store.renew(&frame.conversation, self.epoch, frame.clock.now()));
        }
        if let Some(renewing) = &mut self.renewal {
            match Pin::new(renewing).poll(cx) {
                Poll::Ready(Err(error @ StoreError::Fenced { .. })) => return Poll::Ready(Err(error)),
                Poll::Ready(_) => self.renewal = None,
                Poll::Pending => {}
            }
        }
        self.poll_letters(cx).map(Ok)
    }

    fn poll_letters(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(look) = &mut self.look else { return Poll::Pending };
        while self.letters.is_none() && look.as_mut().poll(cx).is_ready() {
            *look = self.frame.clock.sleep(LOOK_EVERY);
            self.letters = Some(self.frame.house.store.letters(&self.frame.conversation, Mail::Orders));
        }
        let Some(reading) = &mut self.letters else { return Poll::Pending };
        let Poll::Ready(letters) = Pin::new(reading).poll(cx) else { return Poll::Pending };
        self.letters = None;
        let mut heard = false;
        // What cannot be read now is read at the next look.
        for letter in letters.unwrap_or_default() {
            heard |= self.hear(letter);
        }
        if heard { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Obeys a letter that concerns the turn under way; others are for the time after it.
    fn hear(&self, letter: Letter) -> bool {
        let by = Scope::of(letter.from).by();
        match letter.says {
            Says::Cancel { turn } if turn == self.frame.id => {
                let new = self.cell.hear(&letter.id);
                if new {
                    self.frame.cut.cut(Cut::Cancelled(by));
                }
                new
            }
            Says::Answer { call, answer, digest } if self.cell.plane.is_pending(&call) => {
                let new = self.cell.hear(&letter.id);
                if new {
                    // Nobody here waits for it.
                    let (done, rest) = (oneshot::channel().0, oneshot::channel().0);
                    let resolve = Resolve { call, answer, digest, by, letter: Some(letter.id), done, rest };
                    self.cell.command(&self.frame.house, Command::Resolve(resolve));
                }
                new
            }
            _ => false,
        }
    }
}

/// Ready when the viewers have caught up; those that let the deadline pass are cut off.
async fn wait_for(behind: Vec<Arc<Queue>>, frame: Arc<Frame>) {
    let all = async {
        for queue in &behind {
            queue.caught_up().await;
        }
    };
    tokio::select! {
        biased;
        () = all => {}
        () = frame.clock.sleep(VIEWER_DEADLINE) => frame.plane.cut_off(&behind),
    }
}

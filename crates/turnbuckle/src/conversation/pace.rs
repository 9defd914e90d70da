//! What runs beside a turn: its deadline, its lease, and viewers that must not be outrun.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::clock::Boxed;
use crate::live::Queue;
use crate::store::{RENEW_EVERY, StoreError, Stored};
use crate::turn::{Cut, Flight, Frame, Stage, drive};

/// How long a turn waits for a lossless viewer.
pub(super) const VIEWER_DEADLINE: Duration = Duration::from_secs(5);

/// Drives the flight, with its deadline, its lease, its observers, and viewers that must not be outrun.
pub(super) async fn paced(flight: &mut Flight) -> Result<Stage, StoreError> {
    let frame = flight.turn.frame.clone();
    let left = frame.limits.turn_timeout.saturating_sub(flight.stopwatch.active(frame.clock.elapsed()));
    let (epoch, house) = (flight.epoch, frame.house.clone());
    let mut work = pin!(drive(flight));
    let mut gate: Option<Boxed<'static, ()>> = None;
    let mut timers: Option<(Boxed<'static, ()>, Boxed<'static, ()>)> = None;
    let mut renewal: Option<Stored<'_, ()>> = None;
    poll_fn(|cx| {
        loop {
            if let Some(waiting) = &mut gate {
                if waiting.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
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
            let (deadline, renew) =
                timers.get_or_insert_with(|| (frame.clock.sleep(left), frame.clock.sleep(RENEW_EVERY)));
            if !frame.cut.is_cut() && deadline.as_mut().poll(cx).is_ready() {
                frame.cut.cut(Cut::TimeUp);
                continue;
            }
            if renewal.is_none() && renew.as_mut().poll(cx).is_ready() {
                *renew = frame.clock.sleep(RENEW_EVERY);
                renewal = Some(house.store.renew(&frame.conversation, epoch, frame.clock.now()));
                continue;
            }
            if let Some(renewing) = &mut renewal {
                match Pin::new(renewing).poll(cx) {
                    Poll::Ready(Err(error @ StoreError::Fenced { .. })) => return Poll::Ready(Err(error)),
                    Poll::Ready(_) => renewal = None,
                    Poll::Pending => {}
                }
            }
            return Poll::Pending;
        }
    })
    .await
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

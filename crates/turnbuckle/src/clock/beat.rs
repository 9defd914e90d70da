//! A timer that comes soon, so that those that come later wake nobody.
//!
//! A timer that comes before all others wakes the thread that watches them. A turn whose tool waits for another process sets several, which nearly
//! always are dropped long before their time, and waking that thread for each of them took a third of a short call. So while long sleeps are asked
//! for, one timer of [`BEAT`] is set in each runtime. Without it everything is the same, and slower.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, Id};

/// How often a thread wakes up while long sleeps are asked for, and how much longer it does so.
const BEAT: Duration = Duration::from_secs(1);

/// The runtimes that have such a timer now. Held only to look and to change.
static BEATS: Mutex<Vec<(Id, Arc<AtomicBool>)>> = Mutex::new(Vec::new());

fn beats() -> MutexGuard<'static, Vec<(Id, Arc<AtomicBool>)>> {
    BEATS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// To be called before a sleep.
pub(super) fn keep(wait: Duration) {
    // A shorter one comes first whatever is set.
    if wait <= BEAT {
        return;
    }
    // Without a runtime nothing can sleep, which is said where it is tried.
    let Ok(runtime) = Handle::try_current() else { return };
    let is_asked = {
        let mut beats = beats();
        if let Some((_, is_asked)) = beats.iter().find(|(id, _)| *id == runtime.id()) {
            is_asked.store(true, Ordering::Relaxed);
            return;
        }
        let is_asked = Arc::new(AtomicBool::new(false));
        beats.push((runtime.id(), is_asked.clone()));
        is_asked
    };
    // Made here: a task that a runtime drops before it runs has to be taken out as well.
    let kept = Kept(runtime.id());
    runtime.spawn(async move {
        let _kept = kept;
        loop {
            tokio::time::sleep(BEAT).await;
            if !is_asked.swap(false, Ordering::Relaxed) {
                break;
            }
        }
    });
}

/// Until it is dropped, the runtime is in the list.
struct Kept(Id);

impl Drop for Kept {
    fn drop(&mut self) {
        beats().retain(|(id, _)| *id != self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beats_here() -> usize {
        let here = Handle::current().id();
        beats().iter().filter(|(id, _)| *id == here).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_has_one_beat_while_long_sleeps_are_asked_for_and_none_later() {
        keep(BEAT);
        assert_eq!(beats_here(), 0, "a short sleep needs none");
        keep(Duration::from_secs(60));
        keep(Duration::from_secs(60));
        assert_eq!(beats_here(), 1);
        tokio::time::sleep(BEAT + BEAT / 2).await;
        assert_eq!(beats_here(), 1, "one was asked for within the first beat");
        tokio::time::sleep(BEAT).await;
        assert_eq!(beats_here(), 0);
        keep(Duration::from_secs(60));
        assert_eq!(beats_here(), 1);
    }

    #[test]
    fn a_runtime_that_ends_takes_its_beat_with_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let id = runtime.handle().id();
        // Also if the task never ran.
        runtime.block_on(async { keep(Duration::from_secs(60)) });
        assert!(beats().iter().any(|(one, _)| *one == id));
        drop(runtime);
        assert!(!beats().iter().any(|(one, _)| *one == id));
        keep(Duration::from_secs(60));
    }
}

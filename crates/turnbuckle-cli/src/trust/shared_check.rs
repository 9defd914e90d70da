//! One check for many starts. An event may start fifty handlers at once, and the check of their section compares the files of all of
//! them: those who ask while a check runs share the next one. A check that began before somebody asked does not count for them, since
//! a file may have changed in between.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What came of a check: why a program must not start, if it must not.
pub(super) type Verdict = Result<(), String>;

/// A check, and who waits for it. Callers block their thread.
pub(super) struct SharedCheck<F> {
    check: F,
    rounds: Mutex<Rounds>,
    /// Told when a round has ended.
    ended: Condvar,
}

#[derive(Default)]
struct Rounds {
    /// How many have begun. The one that runs is the last of them.
    begun: u64,
    is_running: bool,
    /// The last one that ended, and what came of it.
    last: Option<(u64, Verdict)>,
    waiting: usize,
}

impl<F: Fn() -> Verdict> SharedCheck<F> {
    pub(super) fn new(check: F) -> Self {
        Self { check, rounds: Mutex::default(), ended: Condvar::new() }
    }

    /// The verdict of a check that began after this was called.
    pub(super) fn ask(&self) -> Verdict {
        let mut rounds = self.lock();
        // Of later rounds each will do.
        let wanted = rounds.begun + 1;
        loop {
            if let Some((round, verdict)) = &rounds.last
                && *round >= wanted
            {
                return verdict.clone();
            }
            if !rounds.is_running {
                break;
            }
            rounds.waiting += 1;
            rounds = self.ended.wait(rounds).unwrap_or_else(PoisonError::into_inner);
            rounds.waiting -= 1;
        }
        rounds.begun += 1;
        rounds.is_running = true;
        let round = rounds.begun;
        drop(rounds);
        // Also when the check panics the others go on, with a check of their own.
        let mut running = Running { check: self, done: None };
        let verdict = (self.check)();
        running.done = Some((round, verdict.clone()));
        verdict
    }

    fn lock(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The round that runs. Dropping it ends the round.
struct Running<'c, F: Fn() -> Verdict> {
    check: &'c SharedCheck<F>,
    done: Option<(u64, Verdict)>,
}

impl<F: Fn() -> Verdict> Drop for Running<'_, F> {
    fn drop(&mut self) {
        let mut rounds = self.check.lock();
        rounds.is_running = false;
        if let Some(done) = self.done.take() {
            rounds.last = Some(done);
        }
        self.check.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;

    #[test]
    fn those_who_ask_while_a_check_runs_share_the_next_one_and_see_what_changed_meanwhile() {
        let (counted, changed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (begin, begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let check = {
            let (counted, changed) = (counted.clone(), changed.clone());
            Arc::new(SharedCheck::new(move || {
                counted.fetch_add(1, Ordering::SeqCst);
                let seen = changed.load(Ordering::SeqCst);
                begin.send(()).unwrap();
                released.lock().unwrap().recv().unwrap();
                if seen { Err("changed".to_owned()) } else { Ok(()) }
            }))
        };
        let ask = || {
            let check = check.clone();
            thread::spawn(move || check.ask())
        };
        let first = ask();
        begun.recv().unwrap();
        changed.store(true, Ordering::SeqCst);
        let others: Vec<_> = (0..49).map(|_| ask()).collect();
        while check.lock().waiting < 49 {
            thread::yield_now();
        }
        release.send(()).unwrap();
        release.send(()).unwrap();
        assert_eq!(first.join().unwrap(), Ok(()));
        for other in others {
            assert_eq!(other.join().unwrap(), Err("changed".to_owned()));
        }
        assert_eq!(counted.load(Ordering::SeqCst), 2);
        // Who asks later is not answered by what was found before.
        changed.store(false, Ordering::SeqCst);
        release.send(()).unwrap();
        assert_eq!(check.ask(), Ok(()));
        assert_eq!(counted.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_check_that_panics_leaves_nobody_waiting() {
        let fails = Arc::new(AtomicBool::new(true));
        let check = {
            let fails = fails.clone();
            Arc::new(SharedCheck::new(move || {
                assert!(!fails.load(Ordering::SeqCst), "as asked for");
                Ok(())
            }))
        };
        let first = check.clone();
        assert!(thread::spawn(move || first.ask()).join().is_err());
        fails.store(false, Ordering::SeqCst);
        assert_eq!(check.ask(), Ok(()));
    }
}

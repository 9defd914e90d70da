//! CPU time of this thread, and medians.

use std::future::Future;

use cpu_time::ThreadTime;
use tokio::runtime::Runtime;

use crate::BoxError;

/// A runtime with everything on this thread, so that its CPU time is the whole cost.
pub fn runtime() -> Result<Runtime, BoxError> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_time().build()?)
}

/// Runs `work` here and gives back the nanoseconds of CPU that this thread spent on it.
pub fn cpu_ns<T>(runtime: &Runtime, work: impl Future<Output = Result<T, BoxError>>) -> Result<f64, BoxError> {
    let began = ThreadTime::try_now()?;
    let done = runtime.block_on(work);
    let took = began.try_elapsed()?;
    done.map(|_| took.as_nanos() as f64)
}

/// The one in the middle.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

//! How many requests of a connection are under way.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, Response};
use futures_util::future::BoxFuture;
use http_body::{Frame, SizeHint};
use tokio::sync::watch;
use tokio::time::timeout;
use tower::Service;

/// Counts the requests of one connection. Clones share the count.
#[derive(Clone, Default)]
pub(super) struct Activity {
    requests: watch::Sender<usize>,
}

impl Activity {
    /// The same service, with its requests counted until their answers have been sent.
    pub(super) fn counted<S>(&self, service: S) -> Counted<S> {
        Counted { service, activity: self.clone() }
    }

    /// Ready when no request was under way for so long.
    pub(super) async fn idle(&self, long: Duration) {
        let mut requests = self.requests.subscribe();
        loop {
            // The sender is in `self`, so only a change ends the waits below.
            let is_idle = *requests.borrow_and_update() == 0;
            if !is_idle {
                drop(requests.changed().await);
            } else if timeout(long, requests.changed()).await.is_err() {
                return;
            }
        }
    }

    fn begin(&self) -> UnderWay {
        self.requests.send_modify(|requests| *requests += 1);
        UnderWay { activity: self.clone() }
    }
}

/// A request that is under way.
struct UnderWay {
    activity: Activity,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.activity.requests.send_modify(|requests| *requests = requests.saturating_sub(1));
    }
}

/// A service whose requests are counted.
#[derive(Clone)]
pub(super) struct Counted<S> {
    service: S,
    activity: Activity,
}

impl<S, B> Service<Request<B>> for Counted<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<CountedBody>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let under_way = self.activity.begin();
        let answer = self.service.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| CountedBody { body, _under_way: under_way })) })
    }
}

/// The body of an answer: until it has been sent, its request is under way.
pub(super) struct CountedBody {
    body: Body,
    _under_way: UnderWay,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_nothing_was_under_way_for_long_enough() {
        const LONG: Duration = Duration::from_secs(60);
        let activity = Activity::default();
        let begun = tokio::time::Instant::now();
        let work = async {
            tokio::time::sleep(LONG / 2).await;
            let under_way = activity.begin();
            tokio::time::sleep(LONG * 3).await;
            drop(under_way);
            // A request that is over before anybody looks counts as well.
            tokio::time::sleep(LONG / 2).await;
            drop(activity.begin());
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = activity.idle(LONG) => {}
            () = work => {}
        }
        assert_eq!(begun.elapsed(), LONG * 5);
    }
}

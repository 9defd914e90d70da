//! A layer around model calls.

use std::fmt;
use std::task::{Context, Poll};

use tower::{Layer, Service};
use turnbuckle::hook::{Hook, ModelNext, OwnedModelNext};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::{BoxError, BoxFuture, Reply, Turn};

use super::Line;
use super::shared_sink::SharedSink;

/// One call of the model, as a layer sees it. The request may be changed; clones are further attempts at the same call.
#[derive(Clone)]
pub struct ModelCall {
    /// The request that the model gets.
    pub request: Request,
    turn: Turn,
    next: OwnedModelNext,
    shared_sink: SharedSink,
}

impl ModelCall {
    /// The turn that the call belongs to.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }
}

impl fmt::Debug for ModelCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelCall").field("turn", &self.turn).field("next", &self.next).finish_non_exhaustive()
    }
}

/// The service that a layer wraps: it runs the inner hooks, and finally the model.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ModelService;

impl Service<ModelCall> for ModelService {
    type Response = Reply;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Reply, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ModelCall) -> Self::Future {
        let ModelCall { request, turn: _, next, mut shared_sink } = call;
        Box::pin(async move { Ok(next.run(&request, &mut shared_sink).await?) })
    }
}

/// A hook that sends model calls through a service. Made by [`around_models`].
pub struct AroundModels<S>(Line<S>);

/// Puts `layer` around all model calls of an agent.
pub fn around_models<L>(layer: L) -> AroundModels<L::Service>
where
    L: Layer<ModelService>,
{
    AroundModels(Line::new(layer.layer(ModelService)))
}

impl<S> Hook for AroundModels<S>
where
    S: Service<ModelCall, Response = Reply> + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    fn name(&self) -> String {
        "tower_models".into()
    }

    async fn wrap_model_call<'a>(
        &self,
        turn: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        let shared_sink = SharedSink::default();
        let (request, turn) = (request.clone(), turn.clone());
        let call = ModelCall { request, turn, next: next.to_owned(), shared_sink: shared_sink.clone() };
        shared_sink.into_while(out, self.0.call(call)).await.map_err(|error| model_error(error.into()))
    }
}

/// Returns an error of the model unchanged; an error of the layer becomes a transport error.
fn model_error(error: BoxError) -> ModelError {
    match error.downcast::<ModelError>() {
        Ok(error) => *error,
        Err(source) => ModelError::Transport { message: format!("a layer gave up: {source}"), source: Some(source) },
    }
}

impl<S> fmt::Debug for AroundModels<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AroundModels")
    }
}

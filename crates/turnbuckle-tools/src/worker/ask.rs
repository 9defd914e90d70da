//! How the hooks of a worker or a service are asked at one point.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use turnbuckle::hook::Point;

use super::call::{Call, CallEvent};
use super::connection::Connection;
use super::error::WorkerError;
use super::message::{RpcError, Served};
use super::service::Service;

/// Who is asked.
#[derive(Clone, Debug)]
pub(super) enum Peer {
    Worker(Arc<Connection>),
    Service(Arc<Service>),
}

/// The hooks of a peer at one point.
pub(super) struct Hooks {
    pub(super) peer: Peer,
    pub(super) point: Point,
}

impl Hooks {
    pub(super) fn iter(&self, tool: Option<&str>) -> impl Iterator<Item = &Served> {
        let hooks = match &self.peer {
            Peer::Worker(connection) => &connection.handshake.hooks,
            Peer::Service(service) => &service.hooks,
        };
        hooks.iter().filter(move |hook| hook.point == self.point && hook.minds(tool))
    }

    /// The wrap of the worker. There is one: the order of several would be that of nested calls, which one connection per hook
    /// keeps apart.
    pub(super) fn only(&self, tool: Option<&str>) -> Result<Option<&Served>, WorkerError> {
        let mut hooks = self.iter(tool);
        match (hooks.next(), hooks.next()) {
            (hook, None) => Ok(hook),
            (_, Some(second)) => Err(self.nonsense(second, "a worker has one wrap for a call; it has two")),
        }
    }

    /// Begins a call that may call back. Only a worker can.
    pub(super) async fn begin(&self, hook: &Served, params: impl Serialize + Send) -> Result<Call, WorkerError> {
        match &self.peer {
            Peer::Worker(connection) => connection.begin(self.point.name(), Params { hook: &hook.name, params }).await,
            Peer::Service(_) => Err(self.nonsense(hook, "a service cannot call `next`")),
        }
    }

    /// Asks one hook. `params` is what the point has to say, `tell` is given what the hook does meanwhile.
    pub(super) async fn ask<A: DeserializeOwned>(
        &self,
        hook: &Served,
        params: impl Serialize + Send,
        tell: impl Fn(String) + Send,
    ) -> Result<A, WorkerError> {
        if let Peer::Service(service) = &self.peer {
            return match service.ask(self.point, Params { hook: &hook.name, params }).await? {
                Ok(answer) => self.read(hook, answer),
                Err(error) => Err(failed(hook, error)),
            };
        }
        let mut call = self.begin(hook, params).await?;
        loop {
            match call.event().await? {
                CallEvent::Answer(answer) => return self.read(hook, answer),
                CallEvent::Failed(error) => return Err(failed(hook, error)),
                CallEvent::Progress(text) => tell(text),
                CallEvent::Next(id, _) => {
                    call.respond(&id, Err(RpcError::new("only a wrap has a `next`"))).await?;
                }
            }
        }
    }

    pub(super) fn read<A: DeserializeOwned>(&self, hook: &Served, answer: Value) -> Result<A, WorkerError> {
        serde_json::from_value(answer).map_err(|error| self.nonsense(hook, error.to_string()))
    }

    pub(super) fn nonsense(&self, hook: &Served, why: impl Into<String>) -> WorkerError {
        WorkerError::Answer { hook: hook.name.clone(), point: self.point, why: why.into() }
    }
}

pub(super) fn failed(hook: &Served, error: RpcError) -> WorkerError {
    WorkerError::Failed { hook: hook.name.clone(), message: error.message }
}

/// What a point has to say, and to which hook.
#[derive(Serialize)]
struct Params<'a, P> {
    hook: &'a str,
    #[serde(flatten)]
    params: P,
}

//! Conversations as an MCP server over HTTP: a route of a server that knows its callers.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::combinators::BoxBody;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use turnbuckle::{Conversations, Scope};

use crate::serve::{Approvals, ConversationServer, NewIds};

/// Conversations as an MCP server over streamable HTTP. Every request stands for itself and acts as the caller that it is handled
/// for: there are no sessions, which could be begun by one caller and used by another.
#[derive(Clone)]
pub struct HttpConversationServer {
    conversations: Conversations,
    approvals: Approvals,
    new_ids: NewIds,
    body_bytes: usize,
}

impl HttpConversationServer {
    /// `body_bytes`: the largest body of a request.
    pub fn new(conversations: Conversations, approvals: Approvals, new_ids: NewIds, body_bytes: usize) -> Self {
        Self { conversations, approvals, new_ids, body_bytes }
    }

    /// Answers one request as this caller. Who the caller is, and whether `Host` and `Origin` are good, was found out before.
    pub async fn handle<B>(&self, scope: Scope, request: Request<B>) -> Response<BoxBody<Bytes, Infallible>>
    where
        B: Body + Send + 'static,
        B::Error: fmt::Display,
    {
        let Self { conversations, approvals, new_ids, body_bytes } = self.clone();
        let server = move || {
            let server = ConversationServer::new(conversations.clone(), scope.clone(), approvals);
            Ok(server.for_request(new_ids))
        };
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .disable_allowed_hosts()
            .with_max_request_body_bytes(body_bytes);
        StreamableHttpService::new(server, Arc::new(NeverSessionManager::default()), config).handle(request).await
    }
}

impl fmt::Debug for HttpConversationServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConversationServer").field("approvals", &self.approvals).finish_non_exhaustive()
    }
}

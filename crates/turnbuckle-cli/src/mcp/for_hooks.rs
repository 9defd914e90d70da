//! The servers whose tools hooks call themselves: handlers of the type `mcp_tool`.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::{Map, Value};
use turnbuckle::hooks::{ToolAnswer, ToolServers};
use turnbuckle::{BoxError, BoxFuture};
use turnbuckle_mcp::McpServer;

/// Hooks are made while the files are read, and servers only when all files are: so hooks hold this, and it is filled later.
#[derive(Debug, Default)]
pub(crate) struct HookServers(Mutex<Vec<McpServer>>);

/// Written when servers are offered to the agent, read by hooks at each call.
static SERVERS: LazyLock<Arc<HookServers>> = LazyLock::new(Arc::default);

/// The servers of the configuration that this process runs with.
pub(crate) fn hook_servers() -> Arc<HookServers> {
    SERVERS.clone()
}

impl HookServers {
    pub(super) fn set(&self, servers: Vec<McpServer>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = servers;
    }

    fn named(&self, name: &str) -> Option<McpServer> {
        let servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        servers.iter().find(|server| server.name() == name).cloned()
    }
}

impl ToolServers for HookServers {
    fn call<'a>(
        &'a self,
        server: &'a str,
        tool: &'a str,
        input: Map<String, Value>,
    ) -> BoxFuture<'a, Result<ToolAnswer, BoxError>> {
        Box::pin(async move {
            let Some(found) = self.named(server) else {
                return Err(format!("there is no MCP server {server:?} in the configuration").into());
            };
            found.call(tool, input).await.map_err(|error| format!("MCP server {server}: {error}").into())
        })
    }
}

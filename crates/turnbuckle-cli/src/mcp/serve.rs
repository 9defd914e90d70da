//! `turnbuckle mcp`: conversations for MCP clients, over stdin and stdout.

use turnbuckle_mcp::{Approvals, ConversationServer};

use crate::Stopped;
use crate::args::{Common, Mcp, McpCommand};
use crate::assemble::prepare;
use crate::exit::Exit;
use crate::output;
use crate::problem::Problem;
use crate::run::Ready;
use crate::trust::Gate;

/// Serves until the client goes away. Turns that run then are taken up by whoever opens the store next.
pub(crate) async fn serve(args: Mcp, common: &Common) -> Result<Exit, Stopped> {
    if let Some(McpCommand::Login(login)) = &args.command {
        return super::login(login, args.trust, common).await;
    }
    let common = &args.trust.noted_in(common);
    let ready = Ready::of(prepare(common, Gate::Needed(args.trust)))?;
    // Stdout is the client's.
    output::say(ready.remarks().trim_end());
    let conversations = ready.conversations()?.build();
    let approvals = if args.allow_approvals { Approvals::Allowed } else { Approvals::Refused };
    let server = ConversationServer::new(conversations, ready.scope.clone(), approvals);
    match server.serve(tokio::io::stdin(), tokio::io::stdout()).await {
        Ok(()) => Ok(Exit::Completed),
        Err(error) => Err(Stopped::failed(Problem::error(format!("serving the MCP client: {error}")))),
    }
}

//! `turnbuckle mcp login`: tokens for servers that want somebody to log in.

use std::path::PathBuf;

use serde_json::json;
use turnbuckle_mcp::login as log_in;

use super::variables;
use crate::Stopped;
use crate::args::{Common, McpLogin};
use crate::config::{self, McpEndpoint};
use crate::exit::Exit;
use crate::inspect::{print_all, unprintable};
use crate::output;
use crate::problem::{Problem, with_causes};
use crate::show::{clean, json_line};
use crate::trust::{Gate, TrustOptions, digest_of};
use crate::user_folders;

/// In the user's own folder.
const FOLDER: &str = "mcp-tokens";

/// Where the tokens for an address are kept; none without a folder of the user's.
pub(super) fn tokens(url: &str) -> Option<PathBuf> {
    let name = format!("{}.json", digest_of(url.as_bytes()));
    user_folders::state().map(|folder| folder.join(FOLDER).join(name))
}

/// Logs in at the server of this name, which the files must name and whose project must be accepted.
pub(crate) async fn login(args: &McpLogin, trust: TrustOptions, common: &Common) -> Result<Exit, Stopped> {
    let (name, common) = (args.name.as_str(), &trust.noted_in(common));
    let loaded = config::load(common, Gate::Needed(trust));
    let (errors, others): (Vec<_>, Vec<_>) = loaded.problems.into_iter().partition(Problem::is_error);
    output::report(&others);
    if !errors.is_empty() {
        return Err(Stopped { problems: errors, exit: Exit::Usage });
    }
    let usage = |what: String, hint: &str| Stopped::usage(Problem::error(what).hint(hint.to_owned()));
    let Some(part) = loaded.config.tools.mcp.iter().find(|part| part.name.value == name) else {
        return Err(usage(format!("no MCP server is named {name:?}"), "`turnbuckle check` lists them"));
    };
    let McpEndpoint::Http { url, .. } = &part.endpoint else {
        return Err(usage(
            format!("the MCP server {name} is a program: there is nowhere to log in"),
            "it needs no login",
        ));
    };
    let url = variables::put_in(url)
        .map_err(|variables::Unset { name }| usage(format!("the variable {name} is not set"), "set it"))?;
    let Some(tokens) = tokens(&url) else {
        return Err(usage("there is no folder to keep the tokens in".to_owned(), "set HOME"));
    };
    let show = |address: &str| {
        // It comes from the server.
        output::say(&format!("Open this address in a browser and log in:\n\n{}\n", clean(address)));
    };
    match log_in(&url, &tokens, show).await {
        Ok(()) if args.json => {
            let told = json!({ "server": name, "tokens": tokens.display().to_string() });
            print_all(&json_line(&told).map_err(unprintable)?)
        }
        Ok(()) => {
            output::say(&format!("Logged in at {name}. The tokens are in {}", tokens.display()));
            Ok(Exit::Completed)
        }
        Err(error) => {
            Err(Stopped::failed(Problem::error(format!("MCP server {name}: {}", clean(&with_causes(&error))))))
        }
    }
}

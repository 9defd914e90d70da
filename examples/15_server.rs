//! A server with a tool and a hook of its own: the API, live events, and a page in the browser.
//!
//! ```sh
//! cargo run --example 15_server      # then open the address that it prints; Ctrl+D ends it
//! ```

use turnbuckle::hook::{OnStop, OnStopContext, stop};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::tool::Effect;
use turnbuckle::tools::function;
use turnbuckle::{Agent, BoxError, Conversations};
use turnbuckle_server::Server;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Lookup {
    order: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let lookup = function("lookup", "Finds an order.", Effect::Pure, |_turn, asked: Lookup| async move {
        Ok(format!("order {} is on its way", asked.order))
    });
    let polite = stop("polite", |turn: OnStopContext| async move {
        let said = turn.assistant_message().map(|reply| reply.content.text()).unwrap_or_default();
        Ok(if said.contains("Thank you") { OnStop::Accept } else { OnStop::Refuse("Thank the customer.".into()) })
    });
    // A script stands in for the model. Its replies are counted in each conversation.
    let model = Script::of([
        ScriptReply::calls("c1", "lookup", serde_json::json!({ "order": "4711" })),
        ScriptReply::says("It is on its way."),
        ScriptReply::says("It is on its way. Thank you for waiting."),
    ]);
    let agent = Agent::builder("shop", model).tool(lookup).hook(polite).build()?;

    let server = Server::builder(Conversations::in_memory(agent)).build()?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    println!("http://{address}/ is the page, http://{address}/openapi.json describes the API");
    let shutdown = async {
        if let Err(error) = customer::asks(address).await {
            eprintln!("the customer got no answer: {error}");
        }
        // Until the input ends: Ctrl+D in a terminal.
        let mut input = tokio::io::stdin();
        while matches!(tokio::io::AsyncReadExt::read(&mut input, &mut [0; 64]).await, Ok(1..)) {}
    };
    server.serve(listener, shutdown).await?;
    Ok(())
}

/// Somebody who uses the API, so that there is something to see. `docs/http.md` has the same requests as lines of `curl`.
mod customer {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use turnbuckle::BoxError;

    pub async fn asks(address: SocketAddr) -> Result<(), BoxError> {
        let post = |path, body| request(address, "POST", path, body);
        post("/v1/conversations", r#"{"id":"first"}"#).await?;
        post("/v1/conversations/first/messages", r#"{"content":"Where is order 4711?"}"#).await?;
        let seen = loop {
            let seen = request(address, "GET", "/v1/conversations/first", "").await?;
            if seen.contains("\"turn_ended\"") {
                break seen;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        };
        for expected in ["order 4711 is on its way", "Thank the customer.", "Thank you for waiting."] {
            println!("the conversation has {expected:?}: {}", seen.contains(expected));
        }
        Ok(())
    }

    async fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> Result<String, BoxError> {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n");
        let rest = format!("content-type: application/json\r\nconnection: close\r\n\r\n{body}");
        stream.write_all(format!("{head}{rest}").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        match answer.starts_with("HTTP/1.1 2") {
            true => Ok(answer),
            false => Err(answer.into()),
        }
    }
}

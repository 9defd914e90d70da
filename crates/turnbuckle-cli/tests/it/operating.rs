//! What operators of `turnbuckle serve` need: its metrics, its certificate and the route for MCP clients.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::program::Folder;
use crate::serving::{PATIENCE, Serving};

#[test]
fn metrics_count_the_turns_and_the_bytes_of_the_store() {
    let folder = Folder::with_script(r#"{ "text": "hi", "usage": { "input": 12, "output": 3 } }"#);
    let serving = Serving::start(&folder, &[]);
    assert_eq!(serving.post("/v1/conversations", json!({ "id": "c" })).0, 201);
    assert_eq!(serving.post("/v1/conversations/c/messages", json!({ "content": "go" })).0, 202);
    serving.until("c", |view| view["state"] == "idle" && view["messages"].as_array().is_some_and(|all| all.len() > 2));
    let answer = serving.text("GET /metrics HTTP/1.1\r\n", "");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let value = |name: &str| -> f64 {
        let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}: {answer}")).parse().unwrap()
    };
    assert_eq!(value("turnbuckle_turns_total{outcome=\"completed\"}"), 1.0);
    assert_eq!(value("turnbuckle_tokens_total{kind=\"input\"}"), 12.0);
    let on_disk = std::fs::metadata(folder.path().join(".turnbuckle/turnbuckle.db")).unwrap().len();
    assert!(value("turnbuckle_store_bytes") >= on_disk as f64);
    assert!(value("turnbuckle_store_write_seconds_count") >= 1.0);
}

struct Made {
    certificate: String,
    der: CertificateDer<'static>,
    key: String,
}

fn made() -> Made {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    Made { certificate: made.cert.pem(), der: made.cert.der().clone(), key: made.signing_key.serialize_pem() }
}

impl Made {
    fn put(&self, folder: &Folder, mode: u32) {
        folder.file("certificate.pem", &self.certificate);
        let key = folder.file("key.pem", &self.key);
        std::fs::set_permissions(key, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// The answer to a request over TLS; an error if the server has another certificate.
    fn healthz(&self, address: &str) -> std::io::Result<String> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
        let connection = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut stream = StreamOwned::new(connection, stream);
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

const TLS: &str = "[serve]\ntls_certificate = \"certificate.pem\"\ntls_key = \"key.pem\"\n";

#[test]
fn a_certificate_of_the_configuration_is_used_and_read_again_when_it_changes() {
    let folder = Folder::with_config(r#"{ "text": "hi" }"#, TLS);
    let (first, second) = (made(), made());
    first.put(&folder, 0o600);
    let serving = Serving::start(&folder, &[]);
    let answer = first.healthz(&serving.address).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let plain = serving.text("GET /healthz HTTP/1.1\r\n", "");
    assert!(plain.starts_with("HTTP/1.1 400 "), "{plain}");
    // One of the two files alone does not fit: the server goes on with what it has.
    folder.file("certificate.pem", &second.certificate);
    std::thread::sleep(Duration::from_millis(2500));
    assert!(first.healthz(&serving.address).is_ok());
    second.put(&folder, 0o600);
    let begun = Instant::now();
    while second.healthz(&serving.address).is_err() {
        assert!(begun.elapsed() < PATIENCE, "the certificate is not read again");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(first.healthz(&serving.address).is_err());
}

#[test]
fn a_certificate_that_cannot_be_used_is_told_with_its_place_and_a_hint() {
    let (one, other) = (made(), made());
    let both =
        |certificate: &str, key: &str| format!("[serve]\ntls_certificate = \"{certificate}\"\ntls_key = \"{key}\"\n");
    for (config, wanted) in [
        ("[serve]\ntls_certificate = \"one.pem\"\n".to_owned(), "`tls_key` is missing"),
        ("[serve]\ntls_key = \"one.key\"\n".to_owned(), "`tls_certificate` is missing"),
        (both("none.pem", "one.key"), "none.pem cannot be read"),
        (both("one.key", "one.key"), "there is no certificate in it"),
        (both("one.pem", "one.pem"), "openssl pkey"),
        (both("one.pem", "other.key"), "the key does not belong to the certificate"),
    ] {
        let folder = Folder::with_config(r#"{ "text": "hi" }"#, &config);
        folder.file("one.pem", &one.certificate);
        folder.file("one.key", &one.key);
        folder.file("other.key", &other.key);
        let ran = folder.run(&["serve", "--listen", "127.0.0.1:0"]);
        assert_eq!(ran.code, 2, "{config}: {ran:?}");
        assert!(ran.err.contains(wanted) && ran.err.contains("turnbuckle.toml:"), "{config}: {}", ran.err);
        let secret = one.key.lines().nth(1).unwrap();
        assert!(!ran.err.contains(secret), "the key is not shown: {}", ran.err);
    }
    let folder = Folder::with_config(r#"{ "text": "hi" }"#, TLS);
    one.put(&folder, 0o644);
    let ran = folder.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(ran.code, 2, "encryption does not replace tokens: {ran:?}");
    let serving = Serving::start(&folder, &[]);
    assert!(
        serving.said.contains("can be read by other accounts") && serving.said.contains("chmod 600"),
        "{}",
        serving.said
    );
}

/// One request of an MCP client, and the JSON of its answer.
fn mcp(serving: &Serving, tool: &str, arguments: Value) -> Value {
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": tool, "arguments": arguments } });
    let head = "POST /mcp HTTP/1.1\r\naccept: application/json, text/event-stream\r\n";
    let answer = serving.text(head, &request.to_string());
    let line = answer.lines().rev().find_map(|line| line.strip_prefix("data: ").filter(|data| data.starts_with('{')));
    serde_json::from_str(line.unwrap_or_else(|| panic!("{answer}"))).unwrap()
}

#[test]
fn mcp_clients_reach_conversations_and_approve_only_with_the_option() {
    let call =
        r#"{ "tool_calls": [{ "id": "c1", "name": "write_file", "arguments": { "path": "a", "content": "x" } }] }"#;
    let folder = Folder::with_script(&format!("{call}, {{ \"text\": \"written\" }}"));
    let serving = Serving::start(&folder, &[]);
    let waits = mcp(&serving, "send", json!({ "message": "go", "conversation": "c" }));
    assert_eq!(waits["result"]["structuredContent"]["state"], "waiting", "{waits}");
    let approve = json!({ "conversation": "c", "call": "c1", "approve": true });
    let refused = mcp(&serving, "answer", approve.clone());
    assert!(refused["result"]["content"][0]["text"].as_str().unwrap().contains("--allow-approvals"), "{refused}");
    drop(serving);
    let serving = Serving::start(&folder, &["--allow-approvals"]);
    let done = mcp(&serving, "answer", approve);
    assert_eq!(done["result"]["structuredContent"]["answer"], "written", "{done}");
    assert_eq!(folder.read("a"), "x");
    let shown = folder.run(&["show", "c", "--json"]).exits(0);
    assert_eq!(shown.event("resolution")["via"], "mcp");
}

//! TLS: real handshakes with certificates that are made here.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use turnbuckle::models::Script;
use turnbuckle::{Agent, Conversations};
use turnbuckle_server::{Certificate, CertificateError, ServeError, Server, ServerLimits, Token, Tokens};

use crate::client::{PATIENCE, Running};

/// A certificate for localhost that nobody else signed, and its key.
struct Made {
    certificate: String,
    der: CertificateDer<'static>,
    key: String,
}

fn made() -> Made {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    Made { certificate: made.cert.pem(), der: made.cert.der().clone(), key: made.signing_key.serialize_pem() }
}

impl Made {
    fn load(&self) -> Result<Certificate, CertificateError> {
        Certificate::from_pem(self.certificate.as_bytes(), self.key.as_bytes())
    }

    /// A client that trusts this certificate alone.
    async fn connect(&self, address: SocketAddr, protocols: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        timeout(PATIENCE, TlsConnector::from(Arc::new(config)).connect(name, stream)).await.expect("a handshake")
    }

    /// Sends a request that asks for the connection to be closed, and reads what is answered.
    async fn ask(&self, address: SocketAddr, request: &str) -> String {
        let mut stream = self.connect(address, &["http/1.1"]).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        drop(timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("an answer"));
        answer
    }
}

fn conversations() -> Conversations {
    Conversations::in_memory(Agent::builder("a", Script::says(["hello"])).build().unwrap())
}

async fn serving(certificate: Certificate) -> Running {
    Running::start(Server::builder(conversations()).tls(certificate).build().unwrap()).await
}

#[tokio::test]
async fn a_client_reaches_the_api_over_tls_and_checks_the_certificate() {
    let made = made();
    let running = serving(made.load().unwrap()).await;
    let host = format!("localhost:{}", running.address.port());
    let created = made
        .ask(
            running.address,
            &format!(
                "POST /v1/conversations HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
                 content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
            ),
        )
        .await;
    assert!(created.starts_with("HTTP/1.1 201 "), "{created}");
    let list = format!("GET /v1/conversations HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    let listed = made.ask(running.address, &list).await;
    assert!(listed.contains("\"conversations\":[{"), "{listed}");
    let stranger = self::made();
    assert!(stranger.connect(running.address, &["http/1.1"]).await.is_err(), "another certificate is not trusted");
    running.stopped().await;
}

#[tokio::test]
async fn both_versions_of_http_are_offered() {
    let made = made();
    let running = serving(made.load().unwrap()).await;
    let stream = made.connect(running.address, &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let driver = tokio::spawn(connection);
    let uri = format!("https://localhost:{}/v1/conversations", running.address.port());
    let request = axum::http::Request::get(uri).body(()).unwrap();
    let (answer, _) = client.ready().await.unwrap().send_request(request, true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
    driver.abort();

    let mut stream = made.connect(running.address, &["http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    drop(stream.read_to_string(&mut answer).await);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    running.stopped().await;
}

#[tokio::test]
async fn a_client_that_does_not_speak_tls_is_told_so() {
    let running = serving(made().load().unwrap()).await;
    let answer = running.client().get("/healthz").await;
    assert_eq!(answer.code(), (400, "bad_request".to_owned()));
    assert!(answer.body.contains("https://"), "{}", answer.body);
    // Neither TLS nor HTTP.
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(&[0x16, 0xff, 0xff, 0xff, 0xff, 0, 0]).await.unwrap();
    let mut answer = Vec::new();
    drop(timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("it is closed"));
    running.stopped().await;
}

#[tokio::test]
async fn handshakes_that_do_not_end_hold_up_nobody_and_are_ended() {
    let made = made();
    let mut limits = ServerLimits::default();
    limits.connections = 9;
    let server = Server::builder(conversations()).tls(made.load().unwrap()).limits(limits).build().unwrap();
    let running = Running::start(server).await;
    let mut silent = Vec::new();
    for begun in 0..8 {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        // One says nothing, another begins.
        stream.write_all(&[0x16, 3, 1, 2][..if begun % 2 == 0 { 0 } else { 4 }]).await.unwrap();
        silent.push(stream);
    }
    made.connect(running.address, &["http/1.1"]).await.unwrap();
    for mut stream in silent {
        let mut answer = Vec::new();
        // The deadline is ten seconds.
        drop(timeout(Duration::from_secs(30), stream.read_to_end(&mut answer)).await.expect("it is closed"));
    }
    running.stopped().await;
}

#[tokio::test]
async fn a_certificate_is_replaced_while_the_server_runs_and_a_wrong_one_is_not() {
    let (first, second) = (made(), made());
    let certificate = first.load().unwrap();
    let running = serving(certificate.clone()).await;
    first.connect(running.address, &[]).await.unwrap();
    assert!(second.connect(running.address, &[]).await.is_err());
    let wrong = certificate.replace(second.certificate.as_bytes(), first.key.as_bytes());
    assert!(matches!(wrong, Err(CertificateError::OtherKey)));
    first.connect(running.address, &[]).await.unwrap();
    certificate.replace(second.certificate.as_bytes(), second.key.as_bytes()).unwrap();
    second.connect(running.address, &[]).await.unwrap();
    assert!(first.connect(running.address, &[]).await.is_err());
    running.stopped().await;
}

#[test]
fn what_is_no_certificate_or_no_key_is_told_apart() {
    let made = made();
    let (certificate, key) = (made.certificate.as_bytes(), made.key.as_bytes());
    assert!(matches!(Certificate::from_pem(b"", key), Err(CertificateError::NoCertificate)));
    assert!(matches!(Certificate::from_pem(key, certificate), Err(CertificateError::NoCertificate)));
    assert!(matches!(Certificate::from_pem(certificate, certificate), Err(CertificateError::NoKey)));
    let nonsense = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(Certificate::from_pem(nonsense, key), Err(CertificateError::Unusable(_))));
}

#[tokio::test]
async fn encryption_does_not_replace_tokens() {
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let server = Server::builder(conversations()).tls(made().load().unwrap()).build().unwrap();
    let refused = server.serve(listener, std::future::pending()).await;
    assert!(matches!(refused, Err(ServeError::NotLoopback { .. })));
}

#[tokio::test]
async fn a_session_of_the_page_is_for_tls_alone_then() {
    let made = made();
    let tokens = Tokens::new([Token::of_text("ann-secret", "ann")]);
    let server = Server::builder(conversations()).tokens(tokens).tls(made.load().unwrap()).build().unwrap();
    let running = Running::start(server).await;
    let host = format!("localhost:{}", running.address.port());
    let ask = async |request: String| made.ask(running.address, &request).await;
    let form = ask(format!("GET /login HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")).await;
    let (_, rest) = form.split_once("name=\"csrf\" value=\"").unwrap();
    let body = format!("token=ann-secret&csrf={}", rest.split_once('"').unwrap().0);
    // Not every client names where a form comes from.
    for origin in [format!("origin: https://{host}\r\n"), String::new()] {
        let answer = ask(format!(
            "POST /login HTTP/1.1\r\nhost: {host}\r\n{origin}connection: close\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
        let answer = answer.to_ascii_lowercase();
        assert!(answer.contains("set-cookie: __host-turnbuckle_session="), "{answer}");
        assert!(answer.contains("; secure"), "{answer}");
    }
    running.stopped().await;
}

//! Servers that want somebody to log in, with a real authorization server.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use turnbuckle_mcp::{Endpoint, McpError, McpServer, ServerOptions, login};

use crate::desk::results;

struct LoginServer {
    process: Child,
    url: String,
    folder: TempDir,
}

impl LoginServer {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/login_server.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(folder.path().join("notes")).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { process, url: format!("http://127.0.0.1:{}/mcp", port.trim()), folder }
    }

    fn tokens(&self) -> PathBuf {
        self.folder.path().join("user").join("tokens.json")
    }

    fn notes(&self) -> String {
        fs::read_to_string(self.folder.path().join("notes")).unwrap_or_default()
    }

    fn server(&self) -> McpServer {
        let (url, tokens) = (self.url.clone(), Some(self.tokens()));
        let mut options = ServerOptions::at("test", Endpoint::Http { url, headers: Vec::new(), tokens });
        options.approve = Vec::new();
        McpServer::new(options)
    }
}

impl Drop for LoginServer {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A GET request; the answer's head.
fn get(address: &str) -> String {
    let rest = address.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_at(rest.find('/').unwrap());
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Follows the address that the person is shown, as a browser does that is logged in already.
fn browse(address: &str) {
    let address = address.to_owned();
    std::thread::spawn(move || {
        let answer = get(&address);
        let back = answer.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned();
        // It looks for other things at the same place.
        let icon = format!("{}/favicon.ico", &back[..back.rfind("/callback").unwrap()]);
        assert!(get(&icon).starts_with("HTTP/1.1 404"));
        assert!(get(&back).starts_with("HTTP/1.1 200"));
    });
}

#[tokio::test]
async fn after_a_login_the_server_is_used_and_tokens_are_private_and_renewed() {
    let login_server = LoginServer::start();
    let refused = login_server.server().list().await.unwrap_err();
    assert!(matches!(refused, McpError::Greeting(_)), "{refused}");
    login(&login_server.url, &login_server.tokens(), browse).await.unwrap();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(login_server.tokens()), mode(login_server.folder.path().join("user"))), (0o600, 0o700));
    let server = login_server.server();
    let server = server.pinned(server.list().await.unwrap());
    let told = results(&server, &["hello"]).await;
    assert!(told[0].0 && told[0].1.contains("hello"), "{}", told[0].1);
    let notes = login_server.notes();
    assert_eq!(notes.matches("grant authorization_code").count(), 1, "{notes}");
    // The first token was about to expire; the one that came instead is kept for the next process.
    assert_eq!(notes.matches("grant refresh_token").count(), 1, "{notes}");
    assert!(!notes.contains("token access-0") && notes.contains("token access-1"), "{notes}");
    assert!(fs::read_to_string(login_server.tokens()).unwrap().contains("access-1"));
    assert_eq!(mode(login_server.tokens()), 0o600);
    let shown = format!("{server:?} {refused} {refused:?}");
    assert!(!shown.contains("access-") && !shown.contains("refresh-secret"), "{shown}");
}

#[tokio::test]
async fn an_answer_that_belongs_to_no_login_is_refused_and_nothing_is_kept() {
    let login_server = LoginServer::start();
    let forged = |address: &str| {
        let at = address.find("redirect_uri=").unwrap() + "redirect_uri=".len();
        let back = address[at..].split('&').next().unwrap().replace("%3A", ":").replace("%2F", "/");
        std::thread::spawn(move || get(&format!("{back}?code=code-0&state=forged")));
    };
    let refused = login(&login_server.url, &login_server.tokens(), forged).await.unwrap_err();
    assert!(matches!(refused, McpError::Login(_)), "{refused}");
    assert!(!login_server.tokens().exists());
}

#[tokio::test]
async fn somebody_who_is_denied_is_told_why_and_what_was_there_is_kept() {
    let login_server = LoginServer::start();
    login(&login_server.url, &login_server.tokens(), browse).await.unwrap();
    let before = fs::read_to_string(login_server.tokens()).unwrap();
    let denied = |address: &str| {
        let value = |name: &str| {
            let at = address.find(&format!("{name}=")).unwrap() + name.len() + 1;
            address[at..].split('&').next().unwrap().replace("%3A", ":").replace("%2F", "/")
        };
        let back = format!(
            "{}?error=access_denied&error_description=not+today&state={}",
            value("redirect_uri"),
            value("state")
        );
        std::thread::spawn(move || get(&back));
    };
    let refused = login(&login_server.url, &login_server.tokens(), denied).await.unwrap_err();
    assert!(refused.to_string().contains("(access_denied: not today)"), "{refused}");
    assert_eq!(fs::read_to_string(login_server.tokens()).unwrap(), before);
}

#[tokio::test]
async fn a_server_whose_tokens_were_taken_back_says_that_somebody_must_log_in_again() {
    let login_server = LoginServer::start();
    assert!(login_server.server().list().await.unwrap_err().wants_login());
    login(&login_server.url, &login_server.tokens(), browse).await.unwrap();
    let server = login_server.server();
    let listing = server.list().await.unwrap();
    let stale = fs::read_to_string(login_server.tokens()).unwrap();
    let stale = stale.replace("access-1", "access-of-yesterday").replace("refresh-secret", "taken-back");
    fs::write(login_server.tokens(), stale).unwrap();
    let told = results(&login_server.server().pinned(listing), &["hello"]).await;
    assert!(!told[0].0 && told[0].1.contains("`turnbuckle mcp login test`"), "{}", told[0].1);
    assert!(!told[0].1.contains("access-of-yesterday") && !told[0].1.contains("taken-back"), "{}", told[0].1);
}

#[tokio::test]
async fn where_there_is_nothing_to_log_in_to_it_says_so() {
    let folder = TempDir::new().unwrap();
    let error = login("http://127.0.0.1:1/mcp", &folder.path().join("tokens"), |_| {}).await.unwrap_err();
    assert!(matches!(error, McpError::Login(_)), "{error}");
}

//! A client that speaks HTTP/1.1 by hand, so that nothing is tidied up on the way, and a server for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use turnbuckle_server::{ServeError, Server};

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server that runs.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Running {
    pub(crate) async fn start(server: Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move { server.serve(listener, async { drop(stopped.await) }).await });
        Self { address, stop: Some(stop), serving }
    }

    /// Asks it to shut down, and goes on.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub(crate) async fn stopped(mut self) {
        self.stop();
        timeout(PATIENCE, self.serving).await.expect("it ends").unwrap().unwrap();
    }

    pub(crate) fn client(&self) -> Client {
        Client { address: self.address, headers: Arc::new(Vec::new()) }
    }
}

/// Makes requests, each over a connection of its own.
#[derive(Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    headers: Arc<Vec<String>>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    raw_headers: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The cookie that it sets, as browsers send it back. Headers are kept in lower case, so it is read from `raw_headers`.
    pub(crate) fn cookie(&self) -> String {
        let line = self.raw_headers.lines().find(|line| line.to_ascii_lowercase().starts_with("set-cookie: "));
        let line = line.unwrap_or_else(|| panic!("no cookie: {self:?}"));
        line[12..].split(';').next().unwrap().to_owned()
    }

    /// The value of the first hidden field of this name.
    pub(crate) fn field(&self, name: &str) -> String {
        let begin = format!("name=\"{name}\" value=\"");
        let (_, rest) = self.body.split_once(&begin).unwrap_or_else(|| panic!("no field {name}: {}", self.body));
        rest.split_once('"').unwrap().0.to_owned()
    }

    /// The code of an error, whose shape is checked.
    pub(crate) fn code(&self) -> (u16, String) {
        let json = self.json();
        let error = json["error"].as_object().unwrap_or_else(|| panic!("no error: {self:?}"));
        assert_eq!(json.as_object().unwrap().len(), 1, "{self:?}");
        assert_eq!(error.keys().collect::<Vec<_>>(), ["code", "message"], "{self:?}");
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        (self.status, error["code"].as_str().unwrap().to_owned())
    }
}

impl Client {
    pub(crate) fn with(&self, header: &str) -> Self {
        let headers = self.headers.iter().cloned().chain([header.to_owned()]).collect();
        Self { address: self.address, headers: Arc::new(headers) }
    }

    pub(crate) fn bearer(&self, token: &str) -> Self {
        self.with(&format!("authorization: Bearer {token}"))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request("GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.request("POST", path, Some(&body.to_string())).await
    }

    pub(crate) async fn request(&self, method: &str, path: &str, body: Option<&str>) -> Answer {
        let mut text = self.head(method, path);
        if let Some(body) = body {
            text += &format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        }
        text += "connection: close\r\n\r\n";
        text += body.unwrap_or_default();
        self.raw(text.as_bytes()).await
    }

    /// The same client of another server.
    pub(crate) fn at(&self, address: SocketAddr) -> Self {
        Self { address, headers: self.headers.clone() }
    }

    /// Sends a form, as browsers do.
    pub(crate) async fn form(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let body: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let body = body.join("&");
        let head = self.head("POST", path);
        let kind = "content-type: application/x-www-form-urlencoded";
        let length = body.len();
        self.raw(format!("{head}{kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}").as_bytes())
            .await
    }

    /// The page once it has this text.
    pub(crate) async fn until(&self, path: &str, text: &str) -> Answer {
        let looking = async {
            loop {
                let page = self.get(path).await;
                if page.body.contains(text) {
                    return page;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("{text:?} did not come"))
    }

    /// What a stream sends until it has sent this text.
    pub(crate) async fn text_of_stream(&self, path: &str, text: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let client = self.with("accept: text/event-stream");
        stream.write_all(format!("{}\r\n", client.head("GET", path)).as_bytes()).await.unwrap();
        let (mut raw, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let told = String::from_utf8_lossy(&raw).into_owned();
            if told.contains(text) {
                return told;
            }
            let read = timeout(PATIENCE, stream.read(&mut buffer)).await.expect("more of the stream").unwrap();
            assert!(read > 0, "the stream ended: {told}");
            raw.extend_from_slice(&buffer[..read]);
        }
    }

    fn head(&self, method: &str, path: &str) -> String {
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        if !self.headers.iter().any(|header| header.starts_with("host:")) {
            text += &format!("host: {}\r\n", self.address);
        }
        for header in self.headers.iter() {
            text += &format!("{header}\r\n");
        }
        text
    }

    /// Sends these bytes and reads the answer to the end.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The server may answer, and close, before it has read everything.
        drop(stream.write_all(bytes).await);
        let mut answer = Vec::new();
        drop(timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an answer"));
        let text = String::from_utf8_lossy(&answer).into_owned();
        let (headers, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = headers.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        let body = match headers.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            true => String::from_utf8(unchunked(body.as_bytes()).0).unwrap(),
            false => body.to_owned(),
        };
        Answer { status, headers: headers.to_ascii_lowercase(), raw_headers: headers.to_owned(), body }
    }

    /// Opens the stream of events of a conversation.
    pub(crate) async fn events(&self, id: &str, last: Option<&str>) -> Events {
        let client = match last {
            Some(last) => self.with(&format!("last-event-id: {last}")),
            None => self.clone(),
        };
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let path = format!("/v1/conversations/{id}/events");
        stream.write_all(format!("{}\r\n", client.head("GET", &path)).as_bytes()).await.unwrap();
        Events { stream, raw: Vec::new(), read: 0, last_id: last.map(str::to_owned) }
    }
}

/// A value of a form.
fn encoded(value: &str) -> String {
    value
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

/// The whole chunks at the beginning, put together, and how many bytes they took.
fn unchunked(mut bytes: &[u8]) -> (Vec<u8>, usize) {
    let (mut body, whole) = (Vec::new(), bytes.len());
    while let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
        let Some(size) = size else { panic!("a chunk without a size") };
        if bytes.len() < end + 2 + size + 2 {
            break;
        }
        body.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 4 + size..];
        if size == 0 {
            break;
        }
    }
    (body, whole - bytes.len())
}

/// One event of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) id: String,
    pub(crate) event: String,
    pub(crate) data: Value,
}

/// An open stream of events, read as browsers do.
pub(crate) struct Events {
    stream: TcpStream,
    raw: Vec<u8>,
    /// How many events were given out.
    read: usize,
    /// What a browser would send as `Last-Event-ID`.
    pub(crate) last_id: Option<String>,
}

impl Events {
    /// The next event; `None` when the stream is over.
    pub(crate) async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some(told) = self.parsed() {
                return Some(told);
            }
            let mut buffer = [0; 4096];
            match timeout(PATIENCE, self.stream.read(&mut buffer)).await.expect("an event") {
                Ok(0) | Err(_) => return None,
                Ok(read) => self.raw.extend_from_slice(&buffer[..read]),
            }
        }
    }

    /// Reads up to this many bytes more from the socket, and no byte beyond, then gives out what is complete. The stream is cut
    /// there.
    pub(crate) async fn cut_after(mut self, mut bytes: usize) -> (Vec<Told>, Option<String>) {
        let mut buffer = [0; 4096];
        while bytes > 0 {
            let most = bytes.min(buffer.len());
            match timeout(Duration::from_millis(300), self.stream.read(&mut buffer[..most])).await {
                Ok(Ok(read)) if read > 0 => {
                    self.raw.extend_from_slice(&buffer[..read]);
                    bytes -= read;
                }
                _ => break,
            }
        }
        let mut told = Vec::new();
        while let Some(one) = self.parsed() {
            told.push(one);
        }
        (told, self.last_id)
    }

    fn parsed(&mut self) -> Option<Told> {
        let begin = self.raw.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&self.raw[..begin]).into_owned();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}{}", String::from_utf8_lossy(&self.raw[begin..]));
        let (body, _) = unchunked(&self.raw[begin..]);
        let text = String::from_utf8_lossy(&body).into_owned();
        let mut count = 0;
        let whole = text.rfind("\n\n").map_or("", |end| &text[..end + 2]);
        for block in whole.split_terminator("\n\n") {
            let field = |name: &str| {
                block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned)
            };
            let id = field("id");
            let Some(data) = field("data") else {
                if count == self.read && id.is_some() && self.last_id.is_none() {
                    self.last_id = id;
                }
                continue;
            };
            count += 1;
            if count > self.read {
                self.read = count;
                self.last_id.clone_from(&id);
                let data = serde_json::from_str(&data).unwrap();
                return Some(Told { id: id.unwrap(), event: field("event").unwrap(), data });
            }
        }
        None
    }
}

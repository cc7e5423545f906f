//! A small HTTP client for the tests, which can also send what no client would.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::Child,
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time limit of each read and write.
const LIMIT: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// The status.
    pub status: u16,
    /// The headers, with lowercase names.
    pub headers: Vec<(String, String)>,
    /// The body as text.
    pub body: String,
}

impl HttpAnswer {
    /// Returns the values of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Vec<&str> {
        let own = self.headers.iter().filter(|(known, _)| known == name);
        own.map(|(_, value)| value.as_str()).collect()
    }

    /// Returns the body as JSON.
    ///
    /// # Panics
    /// If it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Waits until a front serves; returns its address, and what reads the rest of its standard error.
///
/// # Panics
/// If it ends before.
#[must_use]
pub fn served_address(front: &mut Child) -> (SocketAddr, JoinHandle<String>) {
    let mut stderr = BufReader::new(front.stderr.take().unwrap());
    let mut text = String::new();
    let address = loop {
        let mut line = String::new();
        if stderr.read_line(&mut line).unwrap() == 0 {
            panic!("the front ended: {text}");
        }
        if let Some((_, rest)) = line.split_once("serving at http://") {
            break rest.split('/').next().unwrap().parse().unwrap();
        }
        text.push_str(&line);
    };
    let rest = thread::spawn(move || {
        stderr.read_to_string(&mut text).unwrap();
        text
    });
    (address, rest)
}

/// A visitor who keeps cookies.
#[derive(Clone, Debug)]
pub struct Visitor {
    address: SocketAddr,
    cookies: Vec<(String, String)>,
}

impl Visitor {
    /// Returns a new visitor of the site at this address.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            cookies: Vec::new(),
        }
    }

    /// Sends a request with the visitor's cookies over a new connection.
    pub fn ask(&mut self, method: &str, path: &str, headers: &str, body: &str) -> HttpAnswer {
        let cookies = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let cookies = cookies.collect::<Vec<_>>().join("; ");
        let host = if headers.contains("Host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.address)
        };
        let length = body.len();
        let answer = raw(
            self.address,
            &format!(
                "{method} {path} HTTP/1.1\r\n{host}Cookie: {cookies}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
            ),
        );
        for cookie in answer.header("set-cookie") {
            let pair = cookie.split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
        answer
    }

    /// Reads the page as JSON.
    pub fn page(&mut self) -> HttpAnswer {
        self.ask("GET", "/", "", "")
    }

    /// Sends a form.
    pub fn form(&mut self, path: &str, body: &str) -> HttpAnswer {
        let kind = "Content-Type: application/x-www-form-urlencoded\r\n";
        self.ask("POST", path, kind, body)
    }
}

/// Returns a connection with time limits.
///
/// # Panics
/// If it is refused.
#[must_use]
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Sends these bytes, and reads one answer.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn raw(address: SocketAddr, request: &str) -> HttpAnswer {
    let mut stream = connect(address);
    // A server may answer, and close, before it has read all.
    let _ = stream.write_all(request.as_bytes());
    read_answer(&mut BufReader::new(stream))
}

/// Reads an answer with a length.
///
/// # Panics
/// If it is none.
#[must_use]
pub fn read_answer(stream: &mut impl BufRead) -> HttpAnswer {
    let mut line = || {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let first = line();
    let status = first
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer: {first:?}"));
    let mut headers = Vec::new();
    loop {
        let header = line();
        let Some((name, value)) = header.split_once(": ") else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, length)| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    HttpAnswer {
        status,
        headers,
        body: String::from_utf8(body).unwrap(),
    }
}

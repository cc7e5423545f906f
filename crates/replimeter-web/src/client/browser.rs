//! A visitor's browser: it keeps cookies, and its connection or not.

use std::{collections::BTreeMap, io, net::SocketAddr, time::Duration};

use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    StatusCode,
    body::Bytes,
    client::conn::http1::{self, SendRequest},
    header,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::{FORM, Request};

/// Timeout of a request: above the front's own.
const TIMEOUT: Duration = Duration::from_secs(45);
/// The most bytes of an answer.
const MAX_ANSWER: usize = 1 << 20;

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
}

impl Reply {
    /// Returns why the request failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        (!self.status.is_success()).then(|| {
            let text = String::from_utf8_lossy(&self.body);
            format!("{}: {}", self.status.as_u16(), text.trim())
        })
    }
}

/// A visitor; used within a runtime.
pub struct Browser {
    address: SocketAddr,
    keep_alive: bool,
    connection: Option<SendRequest<Full<Bytes>>>,
    cookies: BTreeMap<String, String>,
}

fn failed(error: hyper::Error) -> io::Error {
    io::Error::other(error)
}

impl Browser {
    /// Returns a visitor of the site at an address, without cookies; `keep_alive` if its requests share a connection.
    #[must_use]
    pub fn new(address: SocketAddr, keep_alive: bool) -> Self {
        Self {
            address,
            keep_alive,
            connection: None,
            cookies: BTreeMap::new(),
        }
    }

    /// Becomes a new visitor, on the same connection.
    pub fn forget(&mut self) {
        self.cookies.clear();
    }

    /// Sends a request, and returns its answer.
    ///
    /// # Errors
    /// When there is no complete answer in time; the next request uses a new connection.
    pub async fn ask(&mut self, request: Request) -> io::Result<Reply> {
        let reused = self.connection.is_some();
        let reply = timeout(TIMEOUT, async {
            let reply = self.exchange(request).await;
            if reply.is_err() && reused && request.form.is_none() {
                // As browsers do: the site can have closed the idle connection at this moment. A post is not repeated.
                self.connection = None;
                return self.exchange(request).await;
            }
            reply
        })
        .await;
        let reply = reply.unwrap_or_else(|_| {
            let text = format!("no answer within {} s", TIMEOUT.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        });
        if reply.is_err() || !self.keep_alive {
            self.connection = None;
        }
        reply
    }

    async fn exchange(&mut self, request: Request) -> io::Result<Reply> {
        let connection = match self.connection.take().filter(|open| !open.is_closed()) {
            Some(open) => open,
            None => connect(self.address).await?,
        };
        let connection = self.connection.insert(connection);
        let body = Bytes::from_static(request.form.unwrap_or_default().as_bytes());
        let mut head = hyper::Request::builder()
            .method(request.method())
            .uri(request.path)
            .header(header::HOST, self.address.to_string())
            .header(header::ACCEPT, "application/json");
        if request.form.is_some() {
            head = head.header(header::CONTENT_TYPE, FORM);
        }
        if !self.keep_alive {
            head = head.header(header::CONNECTION, "close");
        }
        if !self.cookies.is_empty() {
            let cookies = self
                .cookies
                .iter()
                .map(|(name, value)| format!("{name}={value}"));
            head = head.header(header::COOKIE, cookies.collect::<Vec<_>>().join("; "));
        }
        let request = head.body(Full::new(body)).map_err(io::Error::other)?;
        connection.ready().await.map_err(failed)?;
        let (parts, body) = connection
            .send_request(request)
            .await
            .map_err(failed)?
            .into_parts();
        for cookie in parts.headers.get_all(header::SET_COOKIE) {
            let pair = cookie.to_str().ok().and_then(|text| text.split(';').next());
            if let Some((name, value)) = pair.and_then(|pair| pair.split_once('=')) {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        Ok(Reply {
            status: parts.status,
            body: body.map_err(io::Error::other)?.to_bytes(),
        })
    }
}

/// Opens a connection, which a task of its own serves.
async fn connect(address: SocketAddr) -> io::Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (open, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    // Its end is seen by the next request.
    tokio::spawn(async move { _ = connection.await });
    Ok(open)
}

//! An HTTP server on one thread, with limits for everything that a peer can make large or slow.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{self, HeaderName, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{Semaphore, oneshot},
    time::{sleep, timeout},
};

use crate::{
    host,
    visitor_stream::{TakeLimits, VisitorStream},
};

/// Bytes of a body.
const MAX_BODY: usize = 16 << 10;
/// Bytes of a head.
const MAX_HEAD: usize = 16 << 10;
/// Time for requests in progress when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Connections that wait to be accepted; the system may allow fewer.
const QUEUE: i32 = 4096;
/// Threads for long work, besides the one that answers.
const BLOCKING_THREADS: usize = 2;
/// Pause after the system refused a connection, as when files run out.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// What visitors may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VisitorLimits {
    /// Open connections; more wait, in the system's queue, until one ends.
    pub(crate) connections: usize,
    /// Time for a head to arrive; an idle connection is closed after it.
    pub(crate) head: Duration,
    /// Time for a request, from its head to the beginning of its answer.
    pub(crate) request: Duration,
    /// Time to take the answer.
    pub(crate) take: TakeLimits,
}

impl VisitorLimits {
    /// Returns the limits of a site with this number of connections.
    pub(crate) fn of(connections: usize) -> Self {
        Self {
            connections,
            head: Duration::from_secs(10),
            request: Duration::from_secs(30),
            take: TakeLimits {
                byte: Duration::from_secs(10),
                answer: Duration::from_secs(30),
            },
        }
    }
}

/// Nothing is loaded from elsewhere, framed, or sent elsewhere.
const POLICY: &str = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// An answer.
pub(crate) type Answer = Response<Full<Bytes>>;

/// A request whose body has arrived.
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// What follows the `?`, encoded; "" without one.
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Asked {
    /// Returns a header as text; "" if it is missing.
    pub(crate) fn header(&self, name: HeaderName) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

/// Returns an answer of plain text.
pub(crate) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    answer(status, "text/plain; charset=utf-8", text)
}

/// Returns an answer of this type.
pub(crate) fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    refused: Arc<AtomicU64>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Answers requests by `handle` on a new thread of this name. `names` may be in a `Host` besides addresses and `localhost`.
    ///
    /// # Errors
    /// When the system refuses a thread or a file descriptor.
    pub(crate) fn start<H, F>(
        name: &str,
        listener: TcpListener,
        names: Vec<String>,
        limits: VisitorLimits,
        handle: H,
    ) -> io::Result<Self>
    where
        H: Fn(Asked) -> F + Send + Sync + 'static,
        F: Future<Output = Answer> + 'static,
    {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        // The library's own queue has 128 places; a visitor who finds none asks again after a second.
        rustix::net::listen(&listener, QUEUE)?;
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            // For what takes longer than other visitors should wait.
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name(name)
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let refused = Arc::new(AtomicU64::new(0));
        let site = Site {
            names,
            limits,
            handle,
            refused: Arc::clone(&refused),
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&runtime, listener, site, stopped))?;
        Ok(Self {
            address,
            refused,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the address that it listens at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of requests that were refused since the last call, before `handle` saw them.
    pub(crate) fn take_refused(&self) -> u64 {
        self.refused.swap(0, Ordering::Relaxed)
    }

    /// Returns whether it has ended, which it does only when stopped or by a defect.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // The thread also ends when the sender is dropped.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The names of a site, its limits, and what answers its requests.
struct Site<H> {
    names: Vec<String>,
    limits: VisitorLimits,
    refused: Arc<AtomicU64>,
    handle: H,
}

/// Accepts connections until it is stopped; then waits for requests in progress.
fn run<H, F>(
    runtime: &Runtime,
    listener: TcpListener,
    site: Site<H>,
    mut stopped: oneshot::Receiver<()>,
) where
    H: Fn(Asked) -> F + 'static,
    F: Future<Output = Answer> + 'static,
{
    let local = tokio::task::LocalSet::new();
    local.block_on(runtime, async move {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
            return;
        };
        let site = Arc::new(site);
        let limits = site.limits;
        let free = Arc::new(Semaphore::new(limits.connections));
        let graceful = GracefulShutdown::new();
        loop {
            let accept = async {
                let permit = Arc::clone(&free).acquire_owned().await;
                (permit, listener.accept().await)
            };
            let (permit, stream) = tokio::select! {
                accepted = accept => match accepted {
                    (Ok(permit), Ok((stream, _))) => (permit, stream),
                    _ => {
                        sleep(REFUSED_PAUSE).await;
                        continue;
                    }
                },
                _ = &mut stopped => break,
            };
            // Otherwise an answer on a connection that is kept can wait for an acknowledgement of the one before.
            let _ = stream.set_nodelay(true);
            let site = Arc::clone(&site);
            let service = service_fn(move |request| {
                let site = Arc::clone(&site);
                async move { Ok::<_, Infallible>(respond(&site, request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits.head)
                .max_buf_size(MAX_HEAD)
                .serve_connection(
                    TokioIo::new(VisitorStream::new(stream, limits.take)),
                    service,
                );
            let connection = graceful.watch(connection);
            tokio::task::spawn_local(async move {
                // A peer that breaks its connection is the peer's affair.
                let _ = connection.await;
                drop(permit);
            });
        }
        drop(listener);
        let _ = timeout(STOP_TIMEOUT, graceful.shutdown()).await;
    });
}

/// Answers one request, with the headers of every answer.
async fn respond<H, F>(site: &Site<H>, request: Request<Incoming>) -> Answer
where
    H: Fn(Asked) -> F,
    F: Future<Output = Answer>,
{
    let limit = site.limits.request;
    let mut answer = timeout(limit, checked(site, request))
        .await
        .unwrap_or_else(|_| {
            let text = format!("no answer within {} s\n", limit.as_secs());
            plain(StatusCode::SERVICE_UNAVAILABLE, text)
        });
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // With `no-referrer`, browsers leave the origin out of a post.
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// Passes a request on, unless it is refused.
async fn checked<H, F>(site: &Site<H>, request: Request<Incoming>) -> Answer
where
    H: Fn(Asked) -> F,
    F: Future<Output = Answer>,
{
    match received(&site.names, request).await {
        Ok(asked) => (site.handle)(asked).await,
        Err(refusal) => {
            site.refused.fetch_add(1, Ordering::Relaxed);
            refusal
        }
    }
}

/// Returns a request with its body, or the refusal.
async fn received(names: &[String], request: Request<Incoming>) -> Result<Asked, Answer> {
    let (parts, body) = request.into_parts();
    let text = |name| match parts.headers.get(name) {
        None => Some(None),
        Some(value) => value.to_str().ok().map(Some),
    };
    let (Some(host), Some(origin)) = (text(header::HOST), text(header::ORIGIN)) else {
        return Err(plain(StatusCode::BAD_REQUEST, "a header is not text\n"));
    };
    // Every browser sends a host.
    if host.is_some_and(|host| !host::is_allowed(host, names)) {
        return Err(plain(
            StatusCode::MISDIRECTED_REQUEST,
            "this host name is not served; use an address, or allow the name with --allow-host NAME\n",
        ));
    }
    let elsewhere = |origin| !host::is_same_site(origin, host.unwrap_or_default());
    if parts.method != Method::GET && origin.is_some_and(elsewhere) {
        return Err(plain(
            StatusCode::FORBIDDEN,
            "a page of another site sent this request\n",
        ));
    }
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let text = format!("the body is longer than {MAX_BODY} bytes\n");
            return Err(plain(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        Err(_) => return Err(plain(StatusCode::BAD_REQUEST, "the body is not complete\n")),
    };
    Ok(Asked {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body,
    })
}

#[cfg(test)]
mod tests;

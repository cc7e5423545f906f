//! What a running measurement shows, through HTTP: metrics for Prometheus, checks for scripts, and a page.

mod check;
mod metrics;
mod token;

use std::{
    io, mem,
    net::{SocketAddr, TcpListener},
    slice,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use hyper::{
    Method, StatusCode,
    body::Bytes,
    header::{self, HeaderValue},
};
use jiff::{SignedDuration, Timestamp};
use minijinja::{context, value::Serde};
use replimeter_engine::sync::lock;
use replimeter_model::{target::Secret, time_span::TimeSpan};
use replimeter_render::live::{Attention, LiveView};
use serde::Serialize;
use tokio::{sync::OnceCell, task::spawn_blocking};

pub use self::token::{TokenError, read_token};
use self::{
    check::{Question, check, freno, freno_path, named},
    metrics::{OPEN_METRICS, PROMETHEUS, prometheus_text, takes_open_metrics},
    token::Token,
};
use crate::{
    open_files,
    page::{HTML, Page, file},
    server::{Answer, Asked, HttpServer, VisitorLimits, answer, plain},
    visitor_stream::TakeLimits,
};

/// The name of the exporter's threads.
const THREADS: &str = "exporter";
/// Time after which the page asks for a newer one.
const RELOAD_S: u32 = 5;
const ROUTES: &str =
    "there are /, /metrics, /check?replica=NAME&max-lag=TIME and /check/APP/TYPE/STORE";

/// What an exporter answers.
#[derive(Clone, Debug)]
pub struct Published {
    /// An exposition in OpenMetrics' text format, without timestamps and exemplars.
    pub metrics: String,
    /// What the page shows.
    pub view: LiveView,
    /// What checks use.
    pub replicas: Vec<PublishedReplica>,
    /// When it was known.
    pub at: Instant,
    /// The time after which checks do not use it any more.
    pub valid_for: Duration,
}

/// A replica that can be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedReplica {
    /// Its name.
    pub name: String,
    /// Its state, in a word or two.
    pub state: &'static str,
    /// Why it is in this state; "" if there is nothing to say.
    pub reason: String,
    /// Its lag, unless it is not known.
    pub lag: Option<PublishedLag>,
    /// Whether it was read when it was due.
    pub is_fresh: bool,
}

/// A lag that is between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedLag {
    /// The lower bound.
    pub low: Duration,
    /// The upper bound, if there is one.
    pub high: Option<Duration>,
}

/// An exporter that is to be started.
#[derive(Clone, Debug)]
pub struct ExporterSpec {
    /// Host names that are answered besides addresses and `localhost`.
    pub names: Vec<String>,
    /// The name of the target: for clients of freno, the store with all replicas, as is `all`.
    pub target: String,
    /// What requests must have, as bearer or as the password of any user.
    pub token: Option<Secret>,
    /// The lag that checks allow if they do not say which.
    pub max_lag: TimeSpan,
    /// Files that this process opens later, such as connections to servers; the rest of its limit is for visitors.
    pub reserved_files: u32,
}

/// A running exporter; dropping it stops it.
pub struct Exporter {
    http: HttpServer,
    current: Arc<Mutex<Arc<Current>>>,
}

/// What is published now, with the texts that were made of it when they were first asked for.
struct Current {
    published: Published,
    /// The date and time of it.
    made_at: String,
    open_metrics: Bytes,
    prometheus: OnceCell<Bytes>,
    /// The page while it is new, and when it is old.
    pages: [OnceCell<Bytes>; 2],
}

/// What the page shows of a server.
#[derive(Serialize)]
struct ShownRow<'a> {
    name: &'a str,
    attention: Attention,
    cells: &'a [String],
}

/// What does not change.
struct Site {
    page: Page,
    token: Option<Token>,
    target: String,
    max_lag: TimeSpan,
}

impl Exporter {
    /// Answers requests at a bound address, with `first` until more is published.
    ///
    /// # Errors
    /// When the system refuses a thread, or its limit of open files leaves too few for visitors.
    pub fn start(listener: TcpListener, spec: &ExporterSpec, first: Published) -> io::Result<Self> {
        let connections = open_files::visitors(1, spec.reserved_files)?;
        let limits = VisitorLimits {
            request: Duration::from_secs(5),
            // Answers that are not taken keep what was published in memory.
            take: TakeLimits {
                byte: Duration::from_secs(5),
                answer: Duration::from_secs(10),
            },
            ..VisitorLimits::of(connections)
        };
        let site = Arc::new(Site {
            page: Page::new(include_str!("page.html")),
            token: spec.token.as_ref().map(Token::new),
            target: spec.target.clone(),
            max_lag: spec.max_lag,
        });
        let current = Arc::new(Mutex::new(Arc::new(Current::new(first))));
        let shown = Arc::clone(&current);
        let handle = move |asked| {
            let site = Arc::clone(&site);
            let current = Arc::clone(&lock(&shown));
            async move { site.answer(&asked, current).await }
        };
        let http = HttpServer::start(THREADS, listener, spec.names.clone(), limits, handle)?;
        Ok(Self { http, current })
    }

    /// Replaces what it answers.
    pub fn publish(&self, published: Published) {
        let new = Arc::new(Current::new(published));
        // Freed without the lock.
        let _old = mem::replace(&mut *lock(&self.current), new);
    }

    /// Returns the address that it listens at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.http.address()
    }

    /// Returns whether it has ended by a defect.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.http.is_finished()
    }
}

impl Current {
    fn new(mut published: Published) -> Self {
        let age = SignedDuration::try_from(published.at.elapsed()).unwrap_or_default();
        let at = Timestamp::now().checked_sub(age).unwrap_or_default();
        Self {
            open_metrics: mem::take(&mut published.metrics).into(),
            made_at: at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
            published,
            prometheus: OnceCell::new(),
            pages: [OnceCell::new(), OnceCell::new()],
        }
    }

    fn html(&self, page: &Page, is_old: bool) -> Result<String, String> {
        let view = &self.published.view;
        let rows = view.rows.iter().map(|row| ShownRow {
            name: &row.name,
            attention: row.attention,
            cells: &row.cells,
        });
        page.html(context! {
            title => &view.title,
            summary => &view.summary,
            columns => Serde(&view.columns),
            rows => Serde(rows.collect::<Vec<_>>()),
            changes => Serde(&view.changes),
            made_at => &self.made_at,
            is_old,
            reload_s => RELOAD_S,
        })
    }
}

/// Returns a text as one line; texts of servers and requests may have several.
fn one_line(text: &str) -> String {
    let control = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().map(control).chain(['\n']).collect()
}

/// Returns an answer of one line.
fn line(status: StatusCode, text: &str) -> Answer {
    plain(status, one_line(text))
}

/// Returns the answer to a request whose method is not allowed.
fn only_reads() -> Answer {
    let mut answer = line(
        StatusCode::METHOD_NOT_ALLOWED,
        "the method is not allowed; use GET or HEAD",
    );
    let methods = HeaderValue::from_static("GET, HEAD");
    answer.headers_mut().insert(header::ALLOW, methods);
    answer
}

/// Returns the answer to a request without the token.
fn unauthorized() -> Answer {
    let mut answer = line(
        StatusCode::UNAUTHORIZED,
        "send the token as bearer, or as the password of any user",
    );
    // So that a browser asks for it.
    let ask = HeaderValue::from_static("Basic realm=\"replimeter\"");
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, ask);
    answer
}

/// Makes a text on another thread, unless it was made before.
async fn made(
    cell: &OnceCell<Bytes>,
    make: impl FnOnce() -> Result<String, String> + Send + 'static,
) -> Result<Bytes, String> {
    let made = cell.get_or_try_init(|| async {
        let text = spawn_blocking(make).await;
        text.map_err(|error| error.to_string())?.map(Bytes::from)
    });
    made.await.cloned()
}

impl Site {
    async fn answer(self: Arc<Self>, asked: &Asked, current: Arc<Current>) -> Answer {
        let authorization = asked.header(header::AUTHORIZATION);
        let is_in = |token: &Token| token.is_in(authorization);
        if !self.token.as_ref().is_none_or(is_in) {
            return unauthorized();
        }
        let freno = freno_path(&asked.path);
        let done = match asked.path.as_str() {
            _ if asked.method != Method::GET && asked.method != Method::HEAD => Ok(only_reads()),
            "/" => self.page(current).await,
            "/metrics" => metrics(asked, current).await,
            "/check" => Ok(self.check(&asked.query, &current.published)),
            path => match freno {
                Some(path) => self.freno(path, &current.published),
                None => Ok(file(path).unwrap_or_else(|| line(StatusCode::NOT_FOUND, ROUTES))),
            },
        };
        done.unwrap_or_else(|error| {
            let text = format!("internal error: {error}");
            line(StatusCode::INTERNAL_SERVER_ERROR, &text)
        })
    }

    async fn page(self: Arc<Self>, current: Arc<Current>) -> Result<Answer, String> {
        let published = &current.published;
        let is_old = published.at.elapsed() > published.valid_for;
        let shown = Arc::clone(&current);
        let make = move || shown.html(&self.page, is_old);
        let html = made(&current.pages[usize::from(is_old)], make).await?;
        Ok(answer(StatusCode::OK, HTML, html))
    }

    /// Answers a script.
    fn check(&self, query: &str, published: &Published) -> Answer {
        let question = match Question::parse(query) {
            Ok(question) => question,
            Err(error) => return line(StatusCode::BAD_REQUEST, &error),
        };
        let replicas = match &question.replica {
            None => &*published.replicas,
            Some(name) => match named(published, name) {
                Ok(replica) => slice::from_ref(replica),
                Err(error) => return line(StatusCode::NOT_FOUND, &error),
            },
        };
        let max_lag = question.max_lag.unwrap_or(self.max_lag);
        let checked = check(published, replicas, max_lag);
        line(checked.status(), &checked.text)
    }

    /// Answers a client of freno.
    fn freno(&self, path: [&str; 2], published: &Published) -> Result<Answer, String> {
        let found = freno(published, &self.target, path, self.max_lag);
        let text = serde_json::to_string(&found).map_err(|error| error.to_string())?;
        let status = StatusCode::from_u16(found.status_code).map_err(|error| error.to_string())?;
        Ok(answer(status, "application/json", text + "\n"))
    }
}

async fn metrics(asked: &Asked, current: Arc<Current>) -> Result<Answer, String> {
    if takes_open_metrics(asked.header(header::ACCEPT)) {
        let text = current.open_metrics.clone();
        return Ok(answer(StatusCode::OK, OPEN_METRICS, text));
    }
    let open = current.open_metrics.clone();
    let make = move || {
        let text = str::from_utf8(&open).map_err(|error| error.to_string())?;
        Ok(prometheus_text(text))
    };
    let text = made(&current.prometheus, make).await?;
    Ok(answer(StatusCode::OK, PROMETHEUS, text))
}

#[cfg(test)]
mod tests;

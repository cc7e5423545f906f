//! The requests of the site.

use std::{sync::atomic::Ordering, time::Duration};

use hyper::{
    Method, StatusCode,
    header::{self, HeaderValue},
};
use replimeter_engine::{ErrorClass, ErrorKind, ServerError, sync::lock};
use replimeter_instruments::{clock::thread_cpu, front::results::RequestKind};
use replimeter_model::time::Nanos;
use serde::Serialize;

use super::{
    Site,
    page::Shown,
    pool::{Pool, Refusal, Reply, TimeSpent, WAIT_LIMIT, Work, WorkResult},
    posts::{Form, Post},
    remedy::{PRIMARY, Route},
    traffic::{Answered, PageState, add_error},
    visitor::{LastPost, Visitor},
};
use crate::{
    page::{self, HTML},
    server::{Answer, Asked, answer, plain},
};

const JSON: &str = "application/json";
/// The type of a form's body.
const FORM: &str = "application/x-www-form-urlencoded";

/// The answer to a post.
#[derive(Serialize)]
struct Posted<'a> {
    post: u64,
    server: Option<&'a str>,
}

/// The answer to a select.
#[derive(Serialize)]
struct Selected<'a> {
    server: Option<&'a str>,
    posts: &'a [Post],
}

/// The page as JSON.
#[derive(Serialize)]
struct Loaded<'a> {
    server: Option<&'a str>,
    own: Option<OwnPost>,
    age_us: f64,
    posts: &'a [Post],
}

/// The visitor's last post, and whether the page shows it.
#[derive(Serialize)]
struct OwnPost {
    post: u64,
    shown: bool,
}

/// Why a request has no regular answer.
enum Failed {
    /// The request is not valid.
    Invalid(StatusCode, String),
    /// A server, or a limit of the front.
    Unavailable(String),
}

/// A read that a server answered.
struct Read {
    posts: Vec<Post>,
    served: Served,
}

/// Who answered a request, and for how long.
struct Served {
    server: usize,
    took: TimeSpent,
    /// Whether the primary answered because no replica could be asked for the visitor's post, or had not applied it.
    fell_back: bool,
}

/// A request that has no answer yet; counted as abandoned if it is dropped so.
struct Pending<'a>(Option<&'a Site>);

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(site) = self.0 {
            lock(&site.traffic).abandoned += 1;
        }
    }
}

/// Returns an answer of JSON.
fn as_json(body: &impl Serialize) -> Result<Answer, Failed> {
    let text = serde_json::to_vec(body);
    let text = text.map_err(|error| Failed::Unavailable(format!("internal error: {error}")))?;
    Ok(answer(StatusCode::OK, JSON, text))
}

/// Uses the processor for this time.
fn spend(cost: Duration) {
    if cost.is_zero() {
        return;
    }
    let end = thread_cpu() + cost;
    while thread_cpu() < end {
        std::hint::spin_loop();
    }
}

fn wants_html(asked: &Asked) -> bool {
    asked.header(header::ACCEPT).contains("text/html")
}

/// Returns the form in a body.
fn form(asked: &Asked) -> Result<Form, Failed> {
    let kind = asked.header(header::CONTENT_TYPE);
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case(FORM) {
        let text = format!("the body is not of type {FORM}");
        return Err(Failed::Invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    Form::parse(&asked.body).map_err(|text| Failed::Invalid(StatusCode::BAD_REQUEST, text))
}

impl Site {
    pub(super) async fn answer(&self, asked: Asked) -> Answer {
        let began = self.clock.now();
        let read = asked.method == Method::GET || asked.method == Method::HEAD;
        let post = asked.method == Method::POST;
        let mut pending = Pending(Some(self));
        let result = match asked.path.as_str() {
            "/insert" if post => self.insert(&asked, began).await,
            // The form of the page: a reload after it must not post again.
            "/post" if post => self.insert(&asked, began).await.map(see_page),
            "/select" if post => self.select(&asked, began).await,
            "/" if read => self.page(&asked, began).await,
            "/healthz" if read => Ok(self.health()),
            "/" | "/insert" | "/post" | "/select" | "/healthz" => Err(Failed::Invalid(
                StatusCode::METHOD_NOT_ALLOWED,
                "the method is not allowed; POST /insert and /select, GET / and /healthz"
                    .to_owned(),
            )),
            path => page::file(path).filter(|_| read).ok_or_else(|| {
                let text = "there are /, /insert, /select and /healthz".to_owned();
                Failed::Invalid(StatusCode::NOT_FOUND, text)
            }),
        };
        pending.0 = None;
        result.unwrap_or_else(|failed| self.failed(failed))
    }

    fn failed(&self, failed: Failed) -> Answer {
        match failed {
            Failed::Invalid(status, text) => {
                lock(&self.traffic).invalid += 1;
                plain(status, text + "\n")
            }
            Failed::Unavailable(reason) => {
                add_error(&mut lock(&self.traffic).errors, &reason, 1);
                let shown = if self.shows_servers {
                    reason
                } else {
                    "a server is not available".to_owned()
                };
                plain(StatusCode::SERVICE_UNAVAILABLE, shown + "\n")
            }
        }
    }

    /// Returns the name of a server, where it may be shown.
    fn shown(&self, server: usize) -> Option<&str> {
        self.shows_servers.then(|| self.pools[server].name())
    }

    /// Returns whether writes and reads have a server.
    fn health(&self) -> Answer {
        let out = |server: &usize| Some((self.pools[*server].name(), self.pools[*server].out()?));
        let writes = out(&PRIMARY);
        let reads: Vec<_> = self.rule.readers.iter().filter_map(out).collect();
        if writes.is_none() && reads.len() < self.rule.readers.len() {
            return plain(StatusCode::OK, "ok\n");
        }
        let reasons = writes.into_iter().chain(reads);
        let reasons: Vec<String> = reasons
            .map(|(name, reason)| format!("{name}: {reason}"))
            .collect();
        let text = if self.shows_servers {
            reasons.join("; ")
        } else {
            "a server is not available".to_owned()
        };
        plain(StatusCode::SERVICE_UNAVAILABLE, text + "\n")
    }

    fn visitor(&self, asked: &Asked) -> Visitor {
        let cookies = asked.headers.get_all(header::COOKIE).iter();
        let cookies: Vec<&str> = cookies.filter_map(|one| one.to_str().ok()).collect();
        self.cookies.visitor(&cookies.join("; "))
    }

    async fn insert(&self, asked: &Asked, began: Nanos) -> Result<Answer, Failed> {
        let form = form(asked)?;
        spend(self.cost);
        if self.posted.added.fetch_add(1, Ordering::Relaxed) >= self.max_rows {
            return Err(Failed::Unavailable(format!(
                "the front has added {} rows, its limit (--max-rows)",
                self.max_rows
            )));
        }
        let (result, took) = self.pools[PRIMARY].ask(Work::Insert(form), None).await;
        let (post, commit_id) = match result {
            Ok(WorkResult::Inserted { post, commit_id }) => (post, commit_id),
            Ok(WorkResult::Posts(_)) => {
                return Err(Failed::Unavailable("internal error".to_owned()));
            }
            Err(Refusal::Failed(error)) if is_of_data(&error) => {
                let text = "the title has characters that the table's character set lacks";
                return Err(Failed::Invalid(StatusCode::BAD_REQUEST, text.to_owned()));
            }
            Err(refusal) => return Err(self.unavailable(PRIMARY, &refusal)),
        };
        let now = self.clock.now();
        lock(&self.posted.acknowledged).add(post, now);
        let mut done = as_json(&Posted {
            post,
            server: self.shown(PRIMARY),
        })?;
        let last = LastPost {
            number: post,
            at: now,
            commit_id,
        };
        remember(&mut done, &self.cookies.post, &last.to_string());
        let served = Served {
            server: PRIMARY,
            took,
            fell_back: false,
        };
        self.count(RequestKind::Insert, &served, began, None);
        Ok(done)
    }

    async fn select(&self, asked: &Asked, began: Nanos) -> Result<Answer, Failed> {
        let form = form(asked)?;
        spend(self.cost);
        let visitor = self.visitor(asked);
        let first = self.position();
        let read = self
            .read(&visitor, || Work::Select(form.clone(), first))
            .await?;
        let mut done = as_json(&Selected {
            server: self.shown(read.served.server),
            posts: &read.posts,
        })?;
        remember(
            &mut done,
            &self.cookies.reader,
            &read.served.server.to_string(),
        );
        self.count(RequestKind::Select, &read.served, began, None);
        Ok(done)
    }

    async fn page(&self, asked: &Asked, began: Nanos) -> Result<Answer, Failed> {
        spend(self.cost);
        let visitor = self.visitor(asked);
        let last = visitor.post.as_ref();
        let number = last.map(|post| post.number);
        let read_at = self.clock.now();
        let read = self.read(&visitor, || Work::Newest(number)).await?;
        let newest = read.posts.first().map_or(0, |post| post.id);
        let is_there = |number| read.posts.iter().any(|post| post.id == number);
        let age = lock(&self.posted.acknowledged).age(newest, read_at);
        let own = last.map(|last| (last.number, is_there(last.number)));
        let mut done = if wants_html(asked) {
            let html = self.pages.html(&Shown {
                posts: &read.posts,
                own,
                server: self.shown(read.served.server),
                age_ms: (age > Nanos(0)).then(|| age.as_micros() / 1e3),
                remedy: self.rule.remedy.name(),
            });
            let html =
                html.map_err(|error| Failed::Unavailable(format!("internal error: {error}")))?;
            answer(StatusCode::OK, HTML, html)
        } else {
            as_json(&Loaded {
                server: self.shown(read.served.server),
                own: own.map(|(post, shown)| OwnPost { post, shown }),
                age_us: age.as_micros(),
                posts: &read.posts,
            })?
        };
        remember(
            &mut done,
            &self.cookies.reader,
            &read.served.server.to_string(),
        );
        // A post of the future is forged, or of a page that was asked for before it.
        let since = last.map(|last| Nanos(read_at.0.saturating_sub(last.at.0)));
        let since = since.filter(|since| *since >= Nanos(0));
        let page = PageState {
            own: since.zip(own.map(|(_, is_there)| is_there)),
            age,
        };
        self.count(RequestKind::Page, &read.served, began, Some(page));
        Ok(done)
    }

    /// Returns a random position among the posts that the front began with.
    fn position(&self) -> u64 {
        lock(&self.random).between(1, self.rows.max(1))
    }

    /// Reads from the server that the remedy chooses, and from another one if that fails.
    async fn read(&self, visitor: &Visitor, work: impl Fn() -> Work) -> Result<Read, Failed> {
        let read_number = self.read_number.fetch_add(1, Ordering::Relaxed);
        let is_in = |server: usize| self.pools[server].out().is_none();
        let mut failure = None;
        // A server that fails is out of use, so that each is asked once.
        for _ in 0..self.pools.len() {
            let route = self
                .rule
                .route(visitor, self.clock.now(), read_number, is_in);
            let Some(Route {
                server,
                after,
                instead,
            }) = route
            else {
                break;
            };
            let (result, took) = self.pools[server].ask(work(), after).await;
            let read = |result: Reply, server, waited: Nanos, fell_back| match result {
                (Ok(WorkResult::Posts(posts)), took) => Ok(Read {
                    posts,
                    served: Served {
                        server,
                        took: TimeSpent {
                            wait: took.wait + waited,
                            ..took
                        },
                        fell_back,
                    },
                }),
                (Ok(WorkResult::Inserted { .. }), _) => {
                    Err(Failed::Unavailable("internal error".to_owned()))
                }
                (Err(refusal), _) => Err(self.unavailable(server, &refusal)),
            };
            match &result {
                Err(Refusal::NotApplied) => {
                    let instead = self.pools[PRIMARY].ask(work(), None).await;
                    return read(instead, PRIMARY, took.wait, true);
                }
                Err(refusal @ (Refusal::Failed(_) | Refusal::OutOfUse(_))) if !is_in(server) => {
                    failure = Some(self.unavailable(server, refusal));
                }
                _ => return read((result, took), server, Nanos(0), instead),
            }
        }
        Err(failure.unwrap_or_else(|| self.none_left()))
    }

    /// Returns the failure of a read for which no server is in use.
    fn none_left(&self) -> Failed {
        let out = |pool: &Pool| Some(format!("{}: {}", pool.name(), pool.out()?));
        let reasons: Vec<String> = self.pools.iter().filter_map(out).collect();
        Failed::Unavailable(format!("no server takes this read: {}", reasons.join("; ")))
    }

    fn unavailable(&self, server: usize, refusal: &Refusal) -> Failed {
        let name = self.pools[server].name();
        Failed::Unavailable(match refusal {
            Refusal::Busy => format!("{name}: too many requests wait for a connection"),
            Refusal::OutOfUse(reason) => format!("{name} is not used: {reason}"),
            Refusal::NotApplied => format!("{name} did not apply the post within {WAIT_LIMIT:?}"),
            // A server's own text can quote what a visitor sent.
            Refusal::Failed(ServerError {
                kind: ErrorKind::Statement(class),
                operation,
                ..
            }) => format!("{name}: {operation}: {}", class.name()),
            Refusal::Failed(error) => error.to_string(),
        })
    }

    fn count(&self, kind: RequestKind, served: &Served, began: Nanos, page: Option<PageState>) {
        let answered = Answered {
            kind,
            server: served.server,
            at: began,
            response: self.clock.now() - began,
            statement: served.took.statement,
            wait: served.took.wait,
            fell_back: served.fell_back,
            page,
        };
        lock(&self.traffic).add(answered);
    }
}

/// Returns whether the server refused the data, not the request.
fn is_of_data(error: &ServerError) -> bool {
    error.class() == Some(ErrorClass::Value)
}

/// Sends a browser to the page instead.
fn see_page(mut done: Answer) -> Answer {
    *done.status_mut() = StatusCode::SEE_OTHER;
    done.headers_mut()
        .insert(header::LOCATION, HeaderValue::from_static("/"));
    done
}

/// Sets a cookie.
fn remember(answer: &mut Answer, name: &str, value: &str) {
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax");
    if let Ok(value) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().append(header::SET_COOKIE, value);
    }
}

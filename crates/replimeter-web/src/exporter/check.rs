//! Whether replicas are within a lag: by a name, for a script, or by the route of freno.

use std::{slice, time::Duration};

use hyper::StatusCode;
use replimeter_model::time_span::TimeSpan;
use replimeter_render::figures::time;
use serde::Serialize;
use url::form_urlencoded;

use super::{Published, PublishedLag, PublishedReplica};

/// Names in an answer, at most.
const MAX_NAMES: usize = 20;

/// Whether a replica is within a lag, from the best to the worst. That one is too late decides for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// It is.
    Within,
    /// The lag is not known precisely enough.
    Undecided,
    /// The lag is not known.
    Unknown,
    /// It is not.
    TooLate,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Checked {
    pub(super) verdict: Verdict,
    /// The end of the lag that decides, of the replica that decides; 0 if it is not known.
    pub(super) lag: Duration,
    /// The state of that replica, in a line.
    pub(super) text: String,
}

impl Checked {
    /// Returns the status for a script.
    pub(super) fn status(&self) -> StatusCode {
        match self.verdict {
            Verdict::Within => StatusCode::OK,
            Verdict::TooLate => StatusCode::TOO_MANY_REQUESTS,
            Verdict::Undecided | Verdict::Unknown => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// What a script asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Question {
    /// The replica; all if `None`.
    pub(super) replica: Option<String>,
    pub(super) max_lag: Option<TimeSpan>,
}

impl Question {
    /// Reads a query; the error says what is wrong.
    pub(super) fn parse(query: &str) -> Result<Self, String> {
        let mut question = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let was_given = match &*name {
                "replica" => question.replica.replace(value.into_owned()).is_some(),
                "max-lag" => {
                    let value = value.parse().map_err(|error| format!("max-lag: {error}"))?;
                    question.max_lag.replace(value).is_some()
                }
                other => {
                    return Err(format!(
                        "unknown parameter `{other}`; use replica=NAME and max-lag=TIME"
                    ));
                }
            };
            if was_given {
                return Err(format!("`{name}` is given twice"));
            }
        }
        Ok(question)
    }
}

/// Returns the replica of this name, or a line with the names that exist.
pub(super) fn named<'a>(
    published: &'a Published,
    name: &str,
) -> Result<&'a PublishedReplica, String> {
    let found = published.replicas.iter().find(|one| one.name == name);
    found.ok_or_else(|| {
        let names = published.replicas.iter().map(|replica| &*replica.name);
        let mut known = names.take(MAX_NAMES).collect::<Vec<_>>().join(", ");
        match published.replicas.len() {
            0 => known.push_str("none"),
            count if count > MAX_NAMES => {
                known.push_str(&format!(" and {} more", count - MAX_NAMES));
            }
            _ => {}
        }
        format!("there is no replica `{name}`; there are {known}")
    })
}

/// Checks replicas; the worst one decides.
pub(super) fn check(
    published: &Published,
    replicas: &[PublishedReplica],
    max_lag: TimeSpan,
) -> Checked {
    let unknown = |text| Checked {
        verdict: Verdict::Unknown,
        lag: Duration::ZERO,
        text,
    };
    let age = published.at.elapsed();
    if age > published.valid_for {
        let [age, valid] = [age, published.valid_for].map(shown);
        return unknown(format!(
            "the newest data is {age} old, and used for {valid} only"
        ));
    }
    let each = replicas.iter().map(|replica| check_one(replica, max_lag));
    let each: Vec<Checked> = each.collect();
    let is_within = |one: &&Checked| one.verdict == Verdict::Within;
    let within = each.iter().filter(is_within).count();
    let worst = each.into_iter().max_by_key(|one| (one.verdict, one.lag));
    let Some(mut worst) = worst else {
        return unknown("no replica is watched".to_owned());
    };
    if replicas.len() > 1 {
        let count = replicas.len();
        worst
            .text
            .push_str(&format!("; {within} of {count} replicas are within it"));
    }
    worst
}

fn check_one(replica: &PublishedReplica, max_lag: TimeSpan) -> Checked {
    let (verdict, lag, found) = judge(replica, max_lag);
    let PublishedReplica {
        name,
        state,
        reason,
        ..
    } = replica;
    let reason = match reason.as_str() {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    Checked {
        verdict,
        lag,
        text: format!("{name}: {state}{reason}, {found}"),
    }
}

/// Returns the verdict, the end of the lag that decides, and the lag in words.
fn judge(replica: &PublishedReplica, max_lag: TimeSpan) -> (Verdict, Duration, String) {
    if !replica.is_fresh {
        let text = "its lag is not known: it was not read in time".to_owned();
        return (Verdict::Unknown, Duration::ZERO, text);
    }
    let Some(PublishedLag { low, high }) = replica.lag else {
        let text = "its lag is not known".to_owned();
        return (Verdict::Unknown, Duration::ZERO, text);
    };
    let bound = match high {
        Some(high) if high == low => format!("lag {}", shown(low)),
        Some(high) => format!("lag from {} to {}", shown(low), shown(high)),
        None => format!("lag of {} at least", shown(low)),
    };
    match high {
        Some(high) if high <= max_lag.0 => {
            let text = format!("{bound}, is within {max_lag}");
            (Verdict::Within, high, text)
        }
        _ if low > max_lag.0 => {
            let text = format!("{bound}, is above {max_lag}");
            (Verdict::TooLate, low, text)
        }
        None => {
            let text = format!("{bound}, without an upper bound, may be within {max_lag}");
            (Verdict::Undecided, low, text)
        }
        Some(high) => {
            let more = narrower(high.saturating_sub(low), max_lag);
            let text = format!("{bound}, may be within {max_lag}{more}");
            (Verdict::Undecided, low, text)
        }
    }
}

/// Returns what makes a bound that is wider than this narrow enough: it is two intervals wide at most.
fn narrower(width: Duration, max_lag: TimeSpan) -> String {
    let half = TimeSpan(max_lag.0 / 2);
    if half.0.is_zero() || width <= max_lag.0 {
        return String::new();
    }
    format!("; --poll-interval {half} bounds it to about {max_lag}")
}

fn shown(duration: Duration) -> String {
    if duration.is_zero() {
        return "0".to_owned();
    }
    time(duration.as_secs_f64() * 1e6)
}

/// An answer of freno.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct FrenoAnswer {
    pub(super) status_code: u16,
    /// The lag, in seconds.
    value: f64,
    /// The lag above which it refuses, in seconds.
    threshold: f64,
    message: String,
}

/// Returns the application and the store of a path of freno's check. The type between them, of which freno has only one, is
/// not compared.
pub(super) fn freno_path(path: &str) -> Option<[&str; 2]> {
    let mut parts = path.strip_prefix("/check/")?.split('/');
    let (application, _, store) = (parts.next()?, parts.next()?, parts.next()?);
    let is_all = parts.next().is_none();
    is_all.then_some([application, store])
}

/// Answers as freno does, which calls a set of replicas a store: 404 for a store that is not known, 417 without an application, and 500 for a lag that is not.
pub(super) fn freno(
    published: &Published,
    target: &str,
    [application, store]: [&str; 2],
    threshold: TimeSpan,
) -> FrenoAnswer {
    let answer = |status: StatusCode, value: Duration, message: &str| FrenoAnswer {
        status_code: status.as_u16(),
        value: value.as_secs_f64(),
        threshold: threshold.0.as_secs_f64(),
        message: message.to_owned(),
    };
    let refuse = |status, message| answer(status, Duration::ZERO, message);
    if application.is_empty() {
        return refuse(StatusCode::EXPECTATION_FAILED, "no app indicated");
    }
    let replicas = match named(published, store) {
        Ok(replica) => Some(slice::from_ref(replica)),
        Err(_) => (store == "all" || store == target).then_some(&*published.replicas),
    };
    let Some(replicas) = replicas else {
        return refuse(StatusCode::NOT_FOUND, "No such metric");
    };
    let checked = check(published, replicas, threshold);
    let (status, message) = match checked.verdict {
        Verdict::Within => (StatusCode::OK, String::new()),
        Verdict::TooLate => {
            let message = format!("Threshold exceeded: {}", checked.text);
            (StatusCode::TOO_MANY_REQUESTS, message)
        }
        Verdict::Undecided | Verdict::Unknown => (StatusCode::INTERNAL_SERVER_ERROR, checked.text),
    };
    answer(status, checked.lag, &message)
}

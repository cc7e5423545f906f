//! What a running watch shows: a screen, a line in a pipe, and a page draw the same.

use std::collections::{BTreeMap, VecDeque};

use replimeter_instruments::watch::results::{
    LagRange, State, WatchChange, WatchRound, WatchSample,
};
use replimeter_render::{
    figures::count,
    live::{Attention, LiveChange, LiveColumn, LiveRow, LiveView},
};

use super::gathered::badness;

/// Values of the trend, one a poll.
const TREND: usize = 120;
/// Changes that are shown.
const CHANGES: usize = 200;

/// The view of a watch, kept from poll to poll.
pub(super) struct Live {
    title: String,
    /// Calendar time at the start of the run, in microseconds since 1970.
    began_unix_us: i64,
    trends: BTreeMap<String, VecDeque<Option<f64>>>,
    changes: VecDeque<LiveChange>,
}

/// Returns how much attention a state needs.
fn attention(state: State) -> Attention {
    match state {
        State::Primary | State::InStep | State::Idle => Attention::Good,
        State::Delayed | State::Ahead => Attention::Notice,
        State::Unknown => Attention::Unknown,
        State::Lagging | State::Blocked | State::Stopped | State::Unreachable => Attention::Bad,
    }
}

/// Returns a time as a short text.
fn short(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} µs"),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us if us < 100e6 => format!("{:.1} s", us / 1e6),
        us if us < 6_000e6 => format!("{:.0} s", us / 1e6),
        us if us < 360_000e6 => format!("{:.1} h", us / 3_600e6),
        us => format!("{:.1} d", us / 86_400e6),
    }
}

/// Returns both ends of a lag.
pub(super) fn range(lag: LagRange) -> String {
    match lag.high_us {
        Some(high) if lag.low_us <= 0.0 => format!("0 (≤ {})", short(high)),
        Some(high) => format!("{} – {}", short(lag.low_us), short(high)),
        None => format!("≥ {}", short(lag.low_us)),
    }
}

impl Live {
    pub(super) fn new(title: String, began_unix_us: i64) -> Self {
        Self {
            title,
            began_unix_us,
            trends: BTreeMap::new(),
            changes: VecDeque::new(),
        }
    }

    /// Returns the time of day, in UTC, of a time since the start.
    fn time_of_day(&self, at_us: f64) -> String {
        let at = jiff::Timestamp::from_microsecond(self.began_unix_us + at_us as i64);
        at.map_or_else(|_| String::new(), |at| at.strftime("%H:%M:%S").to_string())
    }

    pub(super) fn change(&mut self, change: &WatchChange) {
        self.changes.push_front(LiveChange {
            at: self.time_of_day(change.at_us),
            attention: change.state.map_or(Attention::Notice, attention),
            text: format!("{}: {}", change.server, change.text),
        });
        self.changes.truncate(CHANGES);
    }

    /// Returns the view of a poll.
    pub(super) fn view(&mut self, round: &WatchRound) -> LiveView {
        let columns = [
            ("state", false),
            ("lag", true),
            ("max 5 min", true),
            ("behind", true),
            ("proof", true),
            ("own column", true),
        ];
        let rows: Vec<LiveRow> = round
            .servers
            .iter()
            .map(|sample| self.row(sample))
            .collect();
        let bad = rows
            .iter()
            .filter(|row| row.attention > Attention::Notice)
            .count();
        let mut summary = match bad {
            0 => format!("{} servers, none needs attention", rows.len()),
            bad => format!("{bad} of {} servers need attention", rows.len()),
        };
        if let Some(missing) = round.not_received {
            summary.push_str(&format!("; received by no replica: {}", count(missing)));
        }
        match round.waits {
            Some(true) => summary.push_str("; commits wait for a replica"),
            Some(false) => summary.push_str("; commits do NOT wait for a replica"),
            None => {}
        }
        if !round.not_watched.is_empty() {
            summary.push_str(&format!("; not watched: {}", round.not_watched.join(", ")));
        }
        let at = round.servers.first().map_or(0.0, |sample| sample.at_us);
        let each = round
            .servers
            .iter()
            .filter(|sample| sample.state() != State::Primary);
        let each: Vec<String> = each
            .map(|sample| {
                let lag = sample
                    .lag
                    .map_or_else(String::new, |lag| format!(" {}", range(lag)));
                format!("{} {}{lag}", sample.server, sample.state().name())
            })
            .collect();
        LiveView {
            title: self.title.clone(),
            summary,
            columns: columns
                .map(|(title, is_number)| LiveColumn { title, is_number })
                .into(),
            rows,
            changes: self.changes.iter().cloned().collect(),
            line: format!("{} {}", self.time_of_day(at), each.join(" · ")),
        }
    }

    fn row(&mut self, sample: &WatchSample) -> LiveRow {
        let trend = self.trends.entry(sample.server.clone()).or_default();
        trend.push_back(sample.lag.map(|lag| lag.low_us));
        if trend.len() > TREND {
            trend.pop_front();
        }
        let none = || "–".to_owned();
        let lag = |of: Option<LagRange>| of.map_or_else(none, range);
        let number = |of: Option<u64>| of.map_or_else(none, count);
        let age = |of: Option<f64>| of.map_or_else(none, short);
        let state = sample.state();
        let whole = |of: Option<u64>| of.map(|number| number as f64);
        let mut details = vec![
            ("state", state.name().to_owned()),
            ("why", sample.reason.clone()),
            ("lag", lag(sample.lag)),
            ("largest of 10 s", lag(sample.max_10s)),
            ("largest of 5 min", lag(sample.max_5min)),
            ("transactions behind", number(sample.behind)),
            ("transactions only there", number(sample.errant)),
            ("last proof of the link", age(sample.proof_age_us)),
            ("own column (s)", number(sample.seconds_behind)),
            ("delay on purpose (s)", number(sample.delay_s)),
            (
                "queue",
                sample
                    .queue
                    .map_or_else(none, |queue| format!("{queue:.0}")),
            ),
            (
                "paused by flow control (%)",
                sample
                    .paused_percent
                    .map_or_else(none, |percent| format!("{percent:.1}")),
            ),
            ("last answer", age(sample.answer_age_us)),
            ("answer took", age(sample.answer_took_us)),
        ];
        details.retain(|(_, text)| !text.is_empty() && text != "–");
        LiveRow {
            name: sample.server.clone(),
            attention: attention(state),
            cells: vec![
                state.name().to_owned(),
                lag(sample.lag),
                lag(sample.max_5min),
                number(sample.behind),
                age(sample.proof_age_us),
                sample
                    .seconds_behind
                    .map_or_else(none, |seconds| format!("{} s", count(seconds))),
            ],
            keys: vec![
                Some(badness(state).into()),
                sample.lag.map(|lag| lag.low_us),
                sample.max_5min.map(|lag| lag.low_us),
                whole(sample.behind),
                sample.proof_age_us,
                whole(sample.seconds_behind),
            ],
            trend: trend.iter().copied().collect(),
            details,
        }
    }
}

//! The states of a poll as metrics. No series disappears: a value that is not known is NaN.

use replimeter_instruments::watch::results::{LagRange, State, WatchRound, WatchSample};
use replimeter_run::openmetrics::{MetricFamily, families};

/// A metric of each server: its name without the prefix, its unit, its meaning, and its value.
type OfServer = (
    &'static str,
    &'static str,
    &'static str,
    fn(&WatchSample) -> Option<f64>,
);

fn low(lag: Option<LagRange>) -> Option<f64> {
    lag.map(|lag| lag.low_us / 1e6)
}

/// An end that is not known is infinite.
fn high(lag: Option<LagRange>) -> Option<f64> {
    lag.map(|lag| lag.high_us.map_or(f64::INFINITY, |us| us / 1e6))
}

fn seconds(us: Option<f64>) -> Option<f64> {
    us.map(|us| us / 1e6)
}

fn whole(number: Option<u64>) -> Option<f64> {
    number.map(|number| number as f64)
}

const OF_SERVER: [OfServer; 14] = [
    ("lag_low", "seconds", "The lag is at least this", |of| {
        low(of.lag)
    }),
    ("lag_high", "seconds", "The lag is at most this", |of| {
        high(of.lag)
    }),
    (
        "lag_low_max_10s",
        "seconds",
        "Largest lower end of 10 s",
        |of| low(of.max_10s),
    ),
    (
        "lag_high_max_10s",
        "seconds",
        "Largest upper end of 10 s",
        |of| high(of.max_10s),
    ),
    (
        "lag_low_max_5min",
        "seconds",
        "Largest lower end of 5 min",
        |of| low(of.max_5min),
    ),
    (
        "lag_high_max_5min",
        "seconds",
        "Largest upper end of 5 min",
        |of| high(of.max_5min),
    ),
    (
        "proof_age",
        "seconds",
        "Time since the last proof that the link works",
        |of| seconds(of.proof_age_us),
    ),
    (
        "behind_transactions",
        "",
        "Transactions that are not applied",
        |of| whole(of.behind),
    ),
    (
        "errant_transactions",
        "",
        "Transactions that only this server has",
        |of| whole(of.errant),
    ),
    (
        "own_column",
        "seconds",
        "The lag in the server's own status column",
        |of| whole(of.seconds_behind),
    ),
    (
        "delay",
        "seconds",
        "Time that it applies later on purpose",
        |of| Some(of.delay_s.unwrap_or(0) as f64),
    ),
    (
        "queue_transactions",
        "",
        "Transactions that wait in a member of a cluster",
        |of| of.queue,
    ),
    (
        "paused",
        "ratio",
        "Share of the time in which flow control paused a member",
        |of| of.paused_percent.map(|percent| percent / 100.0),
    ),
    (
        "answer",
        "seconds",
        "Time that the last answer took",
        |of| seconds(of.answer_took_us),
    ),
];

/// Returns the exposition of a poll at this calendar time, of a watch with this limit.
pub(super) fn exposition(round: &WatchRound, max_lag_us: f64, unix_s: f64) -> String {
    let server = |sample: &WatchSample| ("server", sample.server.clone());
    let mut all: Vec<MetricFamily> = OF_SERVER
        .iter()
        .map(|(name, unit, help, value)| {
            let values = round
                .servers
                .iter()
                .map(|sample| (vec![server(sample)], value(sample).unwrap_or(f64::NAN)));
            family(name, unit, help, values)
        })
        .collect();
    let states = round.servers.iter().flat_map(|sample| {
        State::all().iter().map(|state| {
            let is_it = *state == sample.state();
            let labels = vec![server(sample), ("state", state.name().to_owned())];
            (labels, f64::from(u8::from(is_it)))
        })
    });
    all.push(family(
        "state",
        "",
        "Whether the server is in this state",
        states,
    ));
    let fresh = round.servers.iter().map(|sample| {
        let is_fresh = sample.state() != State::Unreachable;
        (vec![server(sample)], f64::from(u8::from(is_fresh)))
    });
    all.push(family(
        "fresh",
        "",
        "Whether the server has answered lately",
        fresh,
    ));
    let waits = round
        .waits
        .map_or(f64::NAN, |waits| f64::from(u8::from(waits)));
    let of_all = [
        (
            "not_received_transactions",
            "",
            "Transactions that no replica has received",
            whole(round.not_received).unwrap_or(f64::NAN),
        ),
        (
            "commits_wait",
            "",
            "Whether commits wait for a replica",
            waits,
        ),
        (
            "not_watched_replicas",
            "",
            "Replicas of the primary that are not watched",
            round.not_watched.len() as f64,
        ),
        (
            "max_lag",
            "seconds",
            "The setting max-lag",
            max_lag_us / 1e6,
        ),
        (
            "poll_timestamp",
            "seconds",
            "When the states were decided, since 1970",
            unix_s,
        ),
    ];
    for (name, unit, help, value) in of_all {
        all.push(family(name, unit, help, [(Vec::new(), value)]));
    }
    families(&all)
}

fn family(
    name: &str,
    unit: &'static str,
    help: &str,
    values: impl IntoIterator<Item = (Vec<(&'static str, String)>, f64)>,
) -> MetricFamily {
    let separator = if unit.is_empty() { "" } else { "_" };
    MetricFamily {
        name: format!("replimeter_watch_{name}{separator}{unit}"),
        unit,
        help: help.to_owned(),
        values: values.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_keep_their_series() {
        let round = WatchRound {
            servers: vec![
                WatchSample {
                    server: "a\"b".to_owned(),
                    state: Some(State::Lagging),
                    lag: Some(LagRange {
                        low_us: 2.5e6,
                        high_us: None,
                    }),
                    ..WatchSample::default()
                },
                WatchSample {
                    server: "c".to_owned(),
                    state: Some(State::Unreachable),
                    ..WatchSample::default()
                },
            ],
            ..WatchRound::default()
        };
        let text = exposition(&round, 5e6, 1.5e9);
        for line in [
            "replimeter_watch_lag_low_seconds{server=\"a\\\"b\"} 2.5",
            "replimeter_watch_lag_high_seconds{server=\"a\\\"b\"} +Inf",
            "replimeter_watch_lag_low_seconds{server=\"c\"} NaN",
            "replimeter_watch_state{server=\"c\",state=\"unreachable\"} 1",
            "replimeter_watch_state{server=\"c\",state=\"idle\"} 0",
            "replimeter_watch_fresh{server=\"c\"} 0",
            "replimeter_watch_not_received_transactions NaN",
            "replimeter_watch_max_lag_seconds 5",
            "# UNIT replimeter_watch_paused_ratio ratio",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert!(text.ends_with("# EOF\n"));
        let names = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        let mut known = round.clone();
        known.waits = Some(true);
        known.servers[1].lag = known.servers[0].lag;
        known.servers[1].state = Some(State::InStep);
        assert_eq!(names(&exposition(&known, 5e6, 1.5e9)), names(&text));
    }
}

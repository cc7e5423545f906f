//! Windows of a `tap` run as they are written during the run: as text, as CSV, as metrics.

use std::fmt::{Display, Write as _};

use replimeter_instruments::tap::results::TapWindow;

use replimeter_render::{
    csv::inert,
    figures::{count, time},
    format::Format,
};

/// Formats a window in one line of text.
#[must_use]
pub(crate) fn progress_line(window: &TapWindow) -> String {
    let seconds = ((window.end_us - window.start_us) / 1e6).max(1e-6);
    let rate = format!(
        "{:>8.1} s  {:>8.0} transactions/s  {:>9.0} kB/s",
        window.end_us / 1e6,
        window.transactions as f64 / seconds,
        window.bytes as f64 / seconds / 1e3
    );
    if window.replica.is_empty() {
        return rate;
    }
    let figure = |value| Format::Time.text(value);
    let behind = window
        .behind_us
        .filter(|_| window.pending > 0)
        .map_or_else(String::new, |us| format!("  oldest {}", time(us)));
    format!(
        "{rate}  {}: p50 {}  p99 {}  max {}  pending {}{behind}",
        window.replica,
        figure(window.p50_us),
        figure(window.p99_us),
        figure(window.max_us),
        count(window.pending)
    )
}

/// The header of [`csv()`].
pub(crate) const CSV_HEADER: &str = "time,start_s,end_s,replica,transactions,bytes,matched,inverted,min_us,p50_us,p99_us,max_us,pending,behind_us";

/// Formats a window as a line of CSV, with the calendar time of its end (RFC 3339); unknown values are empty.
#[must_use]
pub(crate) fn csv(window: &TapWindow, time: &str) -> String {
    let figure = |value: Option<f64>| value.map_or_else(String::new, |us| format!("{us:.3}"));
    // Names are generated or come from a topology file.
    let mut replica = inert(&window.replica);
    if replica.contains([',', '"', '\n', '\r']) {
        replica = format!("\"{}\"", replica.replace('"', "\"\""));
    }
    format!(
        "{time},{:.3},{:.3},{replica},{},{},{},{},{},{},{},{},{},{}",
        window.start_us / 1e6,
        window.end_us / 1e6,
        window.transactions,
        window.bytes,
        window.matched,
        window.inverted,
        figure(window.min_us),
        figure(window.p50_us),
        figure(window.p99_us),
        figure(window.max_us),
        window.pending,
        figure(window.behind_us)
    )
}

/// Totals since the start, for counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    transactions: u64,
    bytes: u64,
    replicas: Vec<(String, u64, u64)>,
}

/// Writes a family of metrics: kind, unit and meaning, then each value after its labels.
fn family<V: Display>(
    out: &mut String,
    (name, kind, unit): (&str, &str, Option<&str>),
    help: &str,
    values: impl IntoIterator<Item = (String, V)>,
) {
    let name = format!("replimeter_tap_{name}");
    let _ = writeln!(out, "# TYPE {name} {kind}");
    if let Some(unit) = unit {
        let _ = writeln!(out, "# UNIT {name} {unit}");
    }
    let _ = writeln!(out, "# HELP {name} {help}");
    let total = if kind == "counter" { "_total" } else { "" };
    for (labels, value) in values {
        let _ = writeln!(out, "{name}{total}{labels} {value}");
    }
}

/// Returns the label of a replica.
fn label(replica: &str) -> String {
    let escaped = replica
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("replica=\"{escaped}\"")
}

impl Totals {
    fn add(&mut self, windows: &[TapWindow]) {
        if let Some(first) = windows.first() {
            self.transactions += first.transactions;
            self.bytes += first.bytes;
        }
        for window in windows.iter().filter(|window| !window.replica.is_empty()) {
            let mut known = self.replicas.iter_mut();
            match known.find(|(name, ..)| *name == window.replica) {
                Some((_, matched, inverted)) => {
                    *matched += window.matched;
                    *inverted += window.inverted;
                }
                None => {
                    let new = (window.replica.clone(), window.matched, window.inverted);
                    self.replicas.push(new);
                }
            }
        }
    }
}

/// Returns one exposition in OpenMetrics' text format (1.0): the last window as gauges, the totals since the
/// start as counters.
#[must_use]
pub(crate) fn openmetrics(windows: &[TapWindow], totals: &mut Totals) -> String {
    totals.add(windows);
    let mut out = String::new();
    family(
        &mut out,
        ("transactions", "counter", None),
        "Transactions from the primary.",
        [(String::new(), totals.transactions)],
    );
    family(
        &mut out,
        ("bytes", "counter", Some("bytes")),
        "Bytes of the transactions from the primary.",
        [(String::new(), totals.bytes)],
    );
    let of_replicas = |pick: fn(&(String, u64, u64)) -> u64| {
        let replicas = totals.replicas.iter();
        replicas.map(move |of| (format!("{{{}}}", label(&of.0)), pick(of)))
    };
    family(
        &mut out,
        ("matched", "counter", None),
        "Transactions that arrived from the replica.",
        of_replicas(|(_, matched, _)| *matched),
    );
    family(
        &mut out,
        ("inverted", "counter", None),
        "Transactions that arrived from the replica first.",
        of_replicas(|(.., inverted)| *inverted),
    );
    let replicas = windows.iter().filter(|window| !window.replica.is_empty());
    let lags = replicas.clone().flat_map(|window| {
        let levels = [
            ("min", window.min_us),
            ("p50", window.p50_us),
            ("p99", window.p99_us),
            ("max", window.max_us),
        ];
        levels.into_iter().filter_map(|(level, us)| {
            let labels = format!("{{{},level=\"{level}\"}}", label(&window.replica));
            Some((labels, us? / 1e6))
        })
    });
    family(
        &mut out,
        ("lag_seconds", "gauge", Some("seconds")),
        "Lag of transactions that arrived in the last window.",
        lags,
    );
    let labeled = |window: &TapWindow| format!("{{{}}}", label(&window.replica));
    family(
        &mut out,
        ("pending", "gauge", None),
        "Transactions that have not yet arrived from the replica.",
        replicas.clone().map(|of| (labeled(of), of.pending)),
    );
    family(
        &mut out,
        ("behind_seconds", "gauge", Some("seconds")),
        "Age of the oldest pending transaction.",
        replicas.map(|of| (labeled(of), of.behind_us.unwrap_or(0.0) / 1e6)),
    );
    out.push_str("# EOF\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> TapWindow {
        TapWindow {
            replica: "replica1".to_owned(),
            start_us: 1e6,
            end_us: 2e6,
            transactions: 20,
            bytes: 4000,
            matched: 19,
            inverted: 1,
            min_us: Some(-3.5),
            p50_us: Some(120.25),
            max_us: Some(900.0),
            pending: 1,
            behind_us: Some(50.0),
            ..TapWindow::default()
        }
    }

    #[test]
    fn csv_line_has_as_many_fields_as_header() {
        let line = csv(&window(), "2026-01-02T03:04:05.678Z");
        assert_eq!(
            line,
            "2026-01-02T03:04:05.678Z,1.000,2.000,replica1,20,4000,19,1,-3.500,120.250,,900.000,1,50.000"
        );
        let hostile = TapWindow {
            replica: "=HYPERLINK(\"a\",\"b\")".to_owned(),
            ..window()
        };
        assert!(
            csv(&hostile, "t")
                .starts_with("t,1.000,2.000,\"'=HYPERLINK(\"\"a\"\",\"\"b\"\")\",20,"),
            "{}",
            csv(&hostile, "t")
        );
        assert_eq!(line.split(',').count(), CSV_HEADER.split(',').count());
    }

    #[test]
    fn openmetrics_counters_increase_and_end_with_eof() {
        let mut totals = Totals::default();
        let _ = openmetrics(&[window()], &mut totals);
        let text = openmetrics(&[window()], &mut totals);
        assert!(text.ends_with("# EOF\n"));
        assert!(text.contains("replimeter_tap_transactions_total 40\n"));
        assert!(text.contains("replimeter_tap_inverted_total{replica=\"replica1\"} 2\n"));
        assert!(text.contains(
            "replimeter_tap_lag_seconds{replica=\"replica1\",level=\"p50\"} 0.00012025\n"
        ));
        assert!(
            !text.contains("level=\"p99\""),
            "what is not known is left out"
        );
    }
}

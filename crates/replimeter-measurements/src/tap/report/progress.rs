//! Windows of a `tap` run as lines of text during the run.

use replimeter_instruments::tap::results::TapWindow;

use replimeter_render::{
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

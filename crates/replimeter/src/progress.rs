//! Progress on standard error; nothing when that is no terminal.

use std::{cell::RefCell, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use replimeter_measure::lag::Progress;
use replimeter_model::sample::Phase;
use replimeter_report::figures::{count, time};

/// A line that says what is going on.
pub(crate) struct Line {
    bar: ProgressBar,
    phase: RefCell<Option<Phase>>,
}

impl Line {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(120));
        Self {
            bar,
            phase: RefCell::new(None),
        }
    }

    /// Shows a step without a measure.
    pub(crate) fn say(&self, text: impl Into<String>) {
        if self.bar.is_finished() {
            // Taken away for a prompt; there is more to say now.
            self.bar.reset();
        }
        self.bar.set_message(text.into());
    }

    /// Shows how much of a file was worked through.
    pub(crate) fn show_bytes(&self, what: &'static str, done: u64, total: u64) {
        if self.bar.length() != Some(total) {
            if let Ok(style) =
                ProgressStyle::with_template("{msg} [{bar:30}] {bytes}/{total_bytes} ({eta} left)")
            {
                self.bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
            }
            self.bar.set_length(total);
            self.bar.set_message(what);
        }
        self.bar.set_position(done);
    }

    /// Shows how far the measurement is.
    pub(crate) fn show(&self, progress: &Progress) {
        let mut phase = self.phase.borrow_mut();
        if *phase != Some(progress.phase) {
            *phase = Some(progress.phase);
            self.bar.reset_eta();
            let template = if progress.total.is_some() {
                "{msg} [{bar:30}] {pos}/{len} {prefix} ({eta} left)"
            } else {
                "{spinner} {msg} {pos} {prefix} ({elapsed})"
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
            }
            if let Some(total) = progress.total {
                self.bar.set_length(total);
            }
            self.bar.set_message(match progress.phase {
                Phase::Floor | Phase::Yardstick => "measuring the floor",
                Phase::WarmUp | Phase::Settle => "waiting for the first row",
                Phase::Measure => "measuring",
            });
        }
        self.bar.set_position(progress.done);
        let lag = progress
            .last_us
            .map_or_else(String::new, |us| format!("lag {}", time(us)));
        let behind = if progress.outstanding > 1 {
            format!(", {} under way", count(progress.outstanding))
        } else {
            String::new()
        };
        self.bar.set_prefix(format!("{lag}{behind}"));
    }

    /// Writes a line that stays, above.
    pub(crate) fn print(&self, text: &str) {
        use std::io::Write;
        // Nothing can be done about a closed standard error.
        self.bar
            .suspend(|| _ = writeln!(std::io::stderr(), "{text}"));
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.clear();
    }
}

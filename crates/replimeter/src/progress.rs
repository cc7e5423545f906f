//! Progress on standard error; none if it is not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use replimeter_run::{Event, Flow, Observer, Progress, ProgressDetail, cli_error::CliError};

use crate::print::{plain, say};

/// The progress line.
pub(crate) struct StatusLine {
    bar: ProgressBar,
    /// The progress shown by the bar, if there is one.
    measured: Option<Progress>,
}

impl StatusLine {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(120));
        Self {
            bar,
            measured: None,
        }
    }

    /// Shows a step without an amount.
    pub(crate) fn say(&self, text: impl Into<String>) {
        self.bar.set_message(plain(&text.into()));
        if self.bar.is_finished() {
            // It was cleared for a prompt, and is needed again.
            self.bar.reset();
        }
    }

    /// Shows the progress of a run: with a bar if the total is known.
    fn show(&mut self, progress: &Progress) {
        let Some((done, Some(of), unit)) = progress.done else {
            if self.measured.take().is_some() {
                self.bar.set_style(ProgressStyle::default_spinner());
            }
            return self.say(progress.line());
        };
        let what = Progress {
            done: None,
            details: Vec::new(),
            ..progress.clone()
        };
        if self.measured.as_ref() != Some(&what) {
            let left = progress
                .details
                .iter()
                .any(|detail| matches!(detail, ProgressDetail::Left(_)));
            let left = if left { "" } else { " ({eta} left)" };
            let template = format!("{{msg}} [{{bar:30}}] {{pos}}/{{len}} {unit}{{prefix}}{left}");
            if let Ok(style) = ProgressStyle::with_template(&template) {
                self.bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
            }
            self.bar.reset_eta();
            self.bar.set_message(plain(&what.line()));
            self.measured = Some(what);
        }
        self.bar.set_length(of.max(0.0).round() as u64);
        self.bar.set_position(done.max(0.0).round() as u64);
        let details = progress.details.iter().map(|detail| format!(", {detail}"));
        self.bar.set_prefix(plain(&details.collect::<String>()));
    }

    /// Prints a permanent line above the progress.
    pub(crate) fn print(&self, text: &str) {
        self.bar.suspend(|| say(&format!("{text}\n")));
    }

    /// Clears the line.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for StatusLine {
    fn event(&mut self, event: Event<'_>) -> Result<Flow, CliError> {
        match event {
            Event::Progress(progress) => self.show(progress),
            Event::Note(text) => self.print(text),
            Event::Quiet => self.clear(),
            // The report has all warnings; they are printed early for long runs.
            Event::Warning(warning) if !self.bar.is_hidden() => {
                self.print(&format!("warning: {}", warning.message));
            }
            Event::Warning(_)
            | Event::Figures(_)
            | Event::Live(_)
            | Event::Lines(_)
            | Event::Rows(_) => {}
        }
        Ok(Flow::Continue)
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}

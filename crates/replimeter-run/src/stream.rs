//! What a run prints on standard output while it lasts, for other programs.

use std::{cell::RefCell, rc::Rc};

use replimeter_model::{
    compare::Quantity,
    warning::{Warning, WarningCode},
};
use replimeter_render::csv;

use crate::{
    cli_error::CliError,
    event::{Event, Flow, Observer},
    figures::{FigureSpec, StatedFigure},
    openmetrics,
    options::StreamForm,
    screen::{OutputReader, Screen},
};

/// The stream of a run.
pub(crate) struct Stream<'a> {
    form: StreamForm,
    screen: &'a dyn Screen,
    /// The dimensions of the measurement's figures, each a column of CSV.
    dimensions: Vec<&'static str>,
    /// Whether CSV has its header.
    begun: bool,
}

/// A stream that the driver shares with the observers, since it ends with the figures of the document.
pub(crate) type SharedStream<'a> = Rc<RefCell<Stream<'a>>>;

impl<'a> Stream<'a> {
    /// Creates a stream of samples, or of figures of these specifications.
    pub(crate) fn new(
        form: StreamForm,
        specs: &[&'static FigureSpec],
        screen: &'a dyn Screen,
    ) -> Self {
        let mut dimensions = Vec::new();
        for dimension in specs.iter().flat_map(|spec| spec.dimensions) {
            if !dimensions.contains(&dimension.name) {
                dimensions.push(dimension.name);
            }
        }
        Self {
            form,
            screen,
            dimensions,
            begun: false,
        }
    }

    /// Returns whether it prints figures.
    pub(crate) fn has_figures(&self) -> bool {
        self.form != StreamForm::Samples
    }

    /// Prints the figures of the run so far.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(crate) fn figures(&mut self, figures: &[StatedFigure]) -> Result<Flow, CliError> {
        let text = match self.form {
            StreamForm::Samples => return Ok(Flow::Continue),
            StreamForm::Openmetrics => openmetrics::exposition(figures),
            StreamForm::Csv => {
                let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ");
                self.csv(figures, &now.to_string())
            }
        };
        self.print(&text)
    }

    /// Returns a line of CSV for each figure, after the header if there was none.
    fn csv(&mut self, figures: &[StatedFigure], now: &str) -> String {
        let mut text = String::new();
        if !std::mem::replace(&mut self.begun, true) {
            let names = ["time", "figure", "unit"].into_iter();
            let names = names.chain(self.dimensions.iter().copied());
            let names = names.chain(["value", "low", "high", "samples"]);
            text.push_str(&csv::line(names));
        }
        for figure in figures {
            let dimension = |name: &&'static str| {
                let mut of = figure.of.iter();
                let found = of.find(|of| of.dimension.name == *name);
                found.map_or_else(String::new, |of| csv::inert(&of.value))
            };
            let end = |index: usize| {
                figure
                    .ci95
                    .map_or_else(String::new, |ends| ends[index].to_string())
            };
            let unit = match figure.spec.unit {
                Quantity::Us => "us",
                Quantity::PerS => "per_s",
                Quantity::Percent => "percent",
                Quantity::Count => "",
                Quantity::Bytes => "bytes",
            };
            let mut cells = vec![now.to_owned(), figure.spec.name.to_owned(), unit.to_owned()];
            cells.extend(self.dimensions.iter().map(dimension));
            cells.extend([
                figure.value.to_string(),
                end(0),
                end(1),
                figure.samples.to_string(),
            ]);
            text.push_str(&csv::line(cells));
        }
        text
    }

    fn print(&self, text: &str) -> Result<Flow, CliError> {
        if text.is_empty() || self.screen.print(text)? == OutputReader::There {
            return Ok(Flow::Continue);
        }
        Ok(Flow::Finish(Warning::new(
            WarningCode::Interrupted,
            "the reader of --stream closed the pipe; the run stopped",
            "leave --stream out to measure without a reader",
        )))
    }
}

impl Observer for SharedStream<'_> {
    fn event(&mut self, event: Event<'_>) -> Result<Flow, CliError> {
        match event {
            Event::Figures(figures) => self.borrow_mut().figures(figures),
            Event::Lines(lines) => self.borrow().print(lines),
            _ => Ok(Flow::Continue),
        }
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::record::Distribution;

    use super::*;
    use crate::{
        event::Observers,
        figures::{DimensionSpec, REPLICA, SHAPE, StatedFigures},
    };

    crate::figures! {
        LAG = "lag" [p50]: Us, Lower, Ratio, of &[SHAPE, REPLICA];
        WRITE_LATENCY = "lag.write_latency" [mean]: Us, Lower, Ratio, of &[SHAPE, DimensionSpec::new("size")];
    }

    /// Keeps what is printed, until there is no reader.
    struct Pipe {
        printed: RefCell<String>,
        reader: OutputReader,
    }

    impl Screen for Pipe {
        fn print(&self, text: &str) -> Result<OutputReader, CliError> {
            self.printed.borrow_mut().push_str(text);
            Ok(self.reader)
        }

        fn say(&self, _: &str) {}

        fn is_watched(&self) -> bool {
            false
        }

        fn progress(&self) -> Box<dyn Observer> {
            unreachable!("no run is shown")
        }
    }

    #[test]
    fn csv_has_a_column_for_each_dimension() {
        let pipe = Pipe {
            printed: RefCell::default(),
            reader: OutputReader::There,
        };
        let mut stream = Stream::new(StreamForm::Csv, &specs(), &pipe);
        let mut figures = StatedFigures::default();
        let lag = Distribution {
            count: 30,
            p50_us: Some(-120.25),
            p50_us_ci95: Some([-130.0, 90.0]),
            mean_us: Some(7.0),
            ..Distribution::default()
        };
        figures.distribution(LAG, &["async:1", "=1,\"a\""], &lag);
        figures.distribution(WRITE_LATENCY, &["async:1", ""], &lag);
        assert_eq!(
            stream.csv(figures.all(), "t"),
            "time,figure,unit,shape,replica,size,value,low,high,samples\n\
             t,lag.p50,us,async:1,\"'=1,\"\"a\"\"\",,-120.25,-130,90,30\n\
             t,lag.write_latency.mean,us,async:1,,,7,,,30\n"
        );
        assert_eq!(stream.csv(&[], "t"), "", "the header comes once");
    }

    #[test]
    fn reader_that_closes_the_pipe_ends_the_run() {
        let pipe = Pipe {
            printed: RefCell::default(),
            reader: OutputReader::Gone,
        };
        let stop = std::sync::atomic::AtomicBool::new(false);
        let stream = Rc::new(RefCell::new(Stream::new(StreamForm::Samples, &[], &pipe)));
        let observers = Observers::new(vec![Box::new(stream)], &stop);
        observers.emit(Event::Figures(&[]));
        assert!(observers.finished().is_none(), "it has samples only");
        observers.emit(Event::Lines("{}\n"));
        let reason = observers.finished().unwrap().message;
        assert!(reason.contains("closed the pipe"), "{reason}");
        assert_eq!(*pipe.printed.borrow(), "{}\n");
    }
}

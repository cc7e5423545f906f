//! `ab` (ApacheBench), the driver of the published experiment: a closed loop without cookies.

use std::{net::SocketAddr, path::PathBuf, sync::atomic::AtomicBool, thread, time::Duration};

use replimeter_engine::source::{Program, ProgramSpec, ServerSource, SourceError, SourceErrorKind};
use replimeter_instruments::{MeasureError, check_interrupted, resources::processor_time};

use super::{FORM, Request};

/// The program.
const NAME: &str = "ab";
/// Files of its folder: the percentiles that it writes, and the form that it posts.
const PERCENTILES: &str = "percentiles.csv";
const POSTED: &str = "form";
/// More requests per second than it can send. Their number has to be stated, since `-t` alone means at most 50,000; memory for each is
/// reserved and only used when it is sent.
const MAX_RATE: u64 = 100_000;
/// Interval between looks whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time after the planned end in which it must end: its timeout for an answer, and more.
const LATE: Duration = Duration::from_secs(45);
/// The most that is read of its percentiles, in bytes.
const MAX_PERCENTILES: u64 = 64 << 10;

/// The program `ab`, ready to be run.
#[derive(Clone, Debug)]
pub struct Ab {
    path: PathBuf,
    address: SocketAddr,
    clients: u32,
    keep_alive: bool,
}

/// What a run of it showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AbResult {
    /// Requests with a regular answer.
    pub completed: u64,
    /// Requests with another answer, or none.
    pub failed: u64,
    /// Of these, those with an answer of another status than 2xx.
    pub other_status: u64,
    /// For how long it sent requests, in seconds.
    pub seconds: f64,
    /// The time by which 0 % to 100 % of the requests had their answer, in µs.
    pub percentiles_us: Vec<f64>,
    /// Its processor time.
    pub cpu: Duration,
    /// What it printed.
    pub output: String,
    /// The percentiles as it wrote them.
    pub csv: String,
}

fn failed(message: String) -> SourceError {
    SourceError::new(
        SourceErrorKind::Failed,
        message,
        "run it by hand with the arguments in its output, or use --driver replimeter",
    )
}

impl Ab {
    /// Checks that it is installed.
    ///
    /// # Errors
    /// When it is not.
    pub fn check(source: &dyn ServerSource) -> Result<(), SourceError> {
        source.program(NAME).map(drop)
    }

    /// Returns the program for visitors of the site at an address.
    ///
    /// # Errors
    /// When it is not installed.
    pub fn find(
        source: &dyn ServerSource,
        address: SocketAddr,
        clients: u32,
        keep_alive: bool,
    ) -> Result<Self, SourceError> {
        Ok(Self {
            path: source.program(NAME)?,
            address,
            clients,
            keep_alive,
        })
    }

    /// Sends every kind of request at once, each by an own process, for whole seconds; `waiting` is called during this time.
    ///
    /// # Errors
    /// When it refuses its arguments, gives up, or does not end.
    pub fn run(
        &self,
        source: &dyn ServerSource,
        kinds: &[Request],
        seconds: u64,
        stop: &AtomicBool,
        waiting: &mut dyn FnMut(),
    ) -> Result<Vec<AbResult>, MeasureError> {
        let mut running = kinds
            .iter()
            .map(|kind| Ok((self.start(source, *kind, seconds)?, Duration::ZERO, None)))
            .collect::<Result<Vec<_>, SourceError>>()?;
        let limit = std::time::Instant::now() + Duration::from_secs(seconds) + LATE;
        while running.iter().any(|(.., ended)| ended.is_none()) {
            check_interrupted(stop)?;
            if std::time::Instant::now() > limit {
                return Err(failed(format!("ab did not end within {} s", LATE.as_secs())).into());
            }
            for (program, cpu, ended) in running.iter_mut().filter(|(.., ended)| ended.is_none()) {
                // Only a process that has not been waited for has a clock.
                *cpu = processor_time(program.pid()).unwrap_or(*cpu);
                *ended = program.ended();
            }
            waiting();
            thread::sleep(POLL_INTERVAL);
        }
        running
            .into_iter()
            .map(|(program, cpu, ended)| Ok(result(program.as_ref(), cpu, ended)?))
            .collect()
    }

    fn start(
        &self,
        source: &dyn ServerSource,
        kind: Request,
        seconds: u64,
    ) -> Result<Box<dyn Program>, SourceError> {
        let requests = (seconds * MAX_RATE).to_string();
        let (clients, seconds) = (self.clients.to_string(), seconds.to_string());
        let url = format!("http://{}{}", self.address, kind.path);
        let mut arguments = vec!["-q", "-r", "-l", "-s", "30", "-c", &clients];
        if self.keep_alive {
            arguments.push("-k");
        }
        arguments.extend(["-t", &seconds, "-n", &requests, "-e", PERCENTILES]);
        let mut files = Vec::new();
        if let Some(form) = kind.form {
            arguments.extend(["-p", POSTED, "-T", FORM]);
            files.push((POSTED, form));
        }
        arguments.push(&url);
        source.start_program(ProgramSpec {
            path: &self.path,
            arguments: &arguments,
            files: &files,
            stdin: None,
        })
    }
}

fn result(
    program: &dyn Program,
    cpu: Duration,
    ended: Option<(bool, String)>,
) -> Result<AbResult, SourceError> {
    let (succeeded, output) = ended.unwrap_or_default();
    if !succeeded && output.contains("invalid option") {
        return Err(SourceError::new(
            SourceErrorKind::Failed,
            format!("ab is too old: {output}"),
            "install that of Apache httpd 2.4.7 or newer, or use --driver replimeter",
        ));
    }
    if !succeeded {
        return Err(failed(format!("ab failed: {output}")));
    }
    let csv = program
        .read_file(PERCENTILES, MAX_PERCENTILES)
        .unwrap_or_default();
    let parsed = parse(&output, &csv)
        .ok_or_else(|| failed(format!("the output of ab was not understood: {output}")))?;
    Ok(AbResult {
        cpu,
        output,
        csv,
        ..parsed
    })
}

/// Reads the output and the percentiles of `ab`.
fn parse(output: &str, csv: &str) -> Option<AbResult> {
    let value = |name: &str| {
        let line = output
            .lines()
            .find_map(|line| line.trim().strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let count = |name| value(name).map(|count| count as u64);
    let all = count("Complete requests:")?;
    let other_status = count("Non-2xx responses:").unwrap_or(0);
    let failed = count("Failed requests:")? + other_status;
    let rows = csv.lines().skip(1);
    let percentiles_us = rows.filter_map(|row| {
        let (_, ms) = row.split_once(',')?;
        Some(ms.trim().parse::<f64>().ok()? * 1e3)
    });
    Some(AbResult {
        completed: all.saturating_sub(failed),
        failed,
        other_status,
        seconds: value("Time taken for tests:")?,
        percentiles_us: percentiles_us.collect(),
        ..AbResult::default()
    })
}

impl AbResult {
    /// Returns the 50th, 95th and 99th percentile and the maximum of the time of a request, in µs.
    #[must_use]
    pub fn latency_us(&self) -> [Option<f64>; 4] {
        [50, 95, 99, 100].map(|percent| self.percentiles_us.get(percent).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
Concurrency Level:      10
Time taken for tests:   2.001 seconds
Complete requests:      4000
Failed requests:        3
   (Connect: 0, Receive: 3, Length: 0, Exceptions: 0)
Non-2xx responses:      7
Requests per second:    1999.00 [#/sec] (mean)
";

    fn csv() -> String {
        let rows = (0..=100).map(|percent| format!("{percent},{}.250\n", percent * 2));
        std::iter::once("Percentage served,Time in ms\n".to_owned())
            .chain(rows)
            .collect()
    }

    #[test]
    fn output_of_ab_is_parsed() {
        let parsed = parse(OUTPUT, &csv()).unwrap();
        assert_eq!(
            (parsed.completed, parsed.failed, parsed.other_status),
            (3990, 10, 7)
        );
        assert!((parsed.seconds - 2.001).abs() < 1e-9);
        let latency = [100_250.0, 190_250.0, 198_250.0, 200_250.0].map(Some);
        assert_eq!(parsed.latency_us(), latency);
    }

    #[test]
    fn incomplete_output_is_refused() {
        assert_eq!(parse("", ""), None);
        assert_eq!(parse("Complete requests: x\nFailed requests: 0", ""), None);
        let parsed = parse(OUTPUT, "Percentage served,Time in ms\n0,?").unwrap();
        assert_eq!(parsed.latency_us(), [None; 4]);
    }
}

//! HAProxy as the load balancer in front of several fronts.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    path::PathBuf,
    sync::atomic::AtomicBool,
    time::Duration,
};

use rustix::process::{Resource, getrlimit};

use replimeter_engine::source::{Program, ProgramSpec, ServerSource, SourceError, SourceErrorKind};
use replimeter_instruments::{
    MeasureError,
    pacing::poll,
    resources::{CountedProcess, NamedProcess, processor_time},
};

/// The program.
const NAME: &str = "haproxy";
/// The file of its configuration.
const CONFIGURATION: &str = "haproxy.cfg";
/// Timeout of its start.
const READY: Duration = Duration::from_secs(20);
/// Timeout of one question to it.
const ANSWER: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Returns the path of HAProxy.
///
/// # Errors
/// When it is not installed.
pub fn find(source: &dyn ServerSource) -> Result<PathBuf, SourceError> {
    source.program(NAME)
}

/// Connections of visitors, at most.
const MAX_VISITORS: usize = 4000;
/// Files that are not those of visitors' connections.
const OTHER_FILES: u64 = 100;

/// Returns the number of visitors for which there is room: each takes two files, and HAProxy does not start if it may not open them.
fn visitors(of_fronts: usize, most_files: Option<u64>) -> usize {
    let files = most_files.map_or(u64::MAX, |most| most.saturating_sub(OTHER_FILES));
    let own = usize::try_from(files / 2).unwrap_or(usize::MAX);
    own.min(of_fronts).clamp(1, MAX_VISITORS)
}

/// Returns the configuration: the fronts, which may have this number of connections, take requests in turn, over connections that
/// are kept. The listening socket is its standard input, so that the address is taken before anything is started.
#[must_use]
pub fn configuration(fronts: &[SocketAddr], of_fronts: usize) -> String {
    let visitors = visitors(of_fronts, getrlimit(Resource::Nofile).maximum);
    let servers = (1..)
        .zip(fronts)
        .map(|(number, address)| format!("    server front{number} {address} check inter 500ms\n"));
    let head = format!(
        "\
global
    maxconn {visitors}
defaults
    mode http
    timeout connect 5s
    timeout client 90s
    timeout server 40s
    timeout http-request 10s
    timeout http-keep-alive 60s
    option http-keep-alive
    http-reuse always
frontend site
    bind fd@0
    default_backend fronts
backend fronts
    balance roundrobin
"
    );
    std::iter::once(head).chain(servers).collect()
}

/// A running HAProxy.
pub struct Balancer {
    program: Box<dyn Program>,
    address: SocketAddr,
}

fn failed(message: String) -> SourceError {
    SourceError::new(
        SourceErrorKind::Failed,
        message,
        "check the version of HAProxy: `haproxy -v` should be 2.0 or newer",
    )
}

/// Asks until there is an answer.
fn within(
    stop: &AtomicBool,
    mut ask: impl FnMut() -> Result<Option<()>, SourceError>,
) -> Result<(), MeasureError> {
    let answer = poll(READY, POLL_INTERVAL, stop, || Ok(ask()?))?;
    let late = || {
        failed(format!(
            "HAProxy did not answer within {} s",
            READY.as_secs()
        ))
    };
    answer.ok_or_else(|| late().into())
}

impl Balancer {
    /// Checks the configuration with HAProxy, starts it at a bound address, and waits until it answers.
    ///
    /// # Errors
    /// When it is not installed, refuses the configuration, or does not answer in time.
    pub fn start(
        source: &dyn ServerSource,
        listener: TcpListener,
        configuration: &str,
        stop: &AtomicBool,
    ) -> Result<Self, MeasureError> {
        let path = find(source)?;
        let address = listener
            .local_addr()
            .map_err(|error| failed(error.to_string()))?;
        let run = |arguments: &[&str]| -> Result<Box<dyn Program>, SourceError> {
            let socket = listener
                .try_clone()
                .map_err(|error| failed(error.to_string()))?;
            source.start_program(ProgramSpec {
                path: &path,
                arguments,
                files: &[(CONFIGURATION, configuration)],
                stdin: Some(OwnedFd::from(socket)),
            })
        };
        let mut check = run(&["-c", "-f", CONFIGURATION])?;
        within(stop, || match check.ended() {
            Some((true, _)) => Ok(Some(())),
            Some((false, text)) => {
                Err(failed(format!("HAProxy refuses its configuration: {text}")))
            }
            None => Ok(None),
        })?;
        let mut balancer = Self {
            program: run(&["-db", "-f", CONFIGURATION])?,
            address,
        };
        within(stop, || match balancer.failure() {
            Some(failure) => Err(failure),
            None => Ok(balancer.answers().then_some(())),
        })?;
        balancer.program.remove_files();
        Ok(balancer)
    }

    /// Returns whether a request gets an answer.
    fn answers(&self) -> bool {
        let ask = || -> std::io::Result<[u8; 5]> {
            let mut stream = TcpStream::connect_timeout(&self.address, ANSWER)?;
            stream.set_read_timeout(Some(ANSWER))?;
            stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n")?;
            let mut start = [0; 5];
            stream.read_exact(&mut start)?;
            Ok(start)
        };
        ask().is_ok_and(|start| &start == b"HTTP/")
    }

    /// Returns the address that it listens at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns how it ended, if it has.
    pub fn failure(&mut self) -> Option<SourceError> {
        let (_, text) = self.program.ended()?;
        Some(failed(format!("HAProxy ended ({text})")))
    }

    /// Returns its process, to meter its resources.
    #[must_use]
    pub fn process(&self) -> NamedProcess {
        NamedProcess {
            name: "balancer".to_owned(),
            role: "balancer",
            counted: CountedProcess::Pid(self.program.pid()),
        }
    }

    /// Returns its processor time so far; `None` if it has ended.
    #[must_use]
    pub fn processor_time(&self) -> Option<Duration> {
        processor_time(self.program.pid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_has_every_front() {
        let fronts = ["127.0.0.1:1001", "127.0.0.1:1002"].map(|one| one.parse().unwrap());
        let text = configuration(&fronts, 1000);
        assert!(
            text.contains("server front1 127.0.0.1:1001 check"),
            "{text}"
        );
        assert!(
            text.contains("server front2 127.0.0.1:1002 check"),
            "{text}"
        );
        assert!(text.contains("bind fd@0\n"), "{text}");
    }

    #[test]
    fn visitors_are_as_many_as_fronts_and_files_allow() {
        assert_eq!(visitors(4000, None), 4000);
        assert_eq!(visitors(8000, Some(1_048_576)), 4000);
        assert_eq!(visitors(1500, Some(1_048_576)), 1500);
        assert_eq!(visitors(4000, Some(1024)), 462);
        assert_eq!(visitors(4000, Some(64)), 1);
    }
}

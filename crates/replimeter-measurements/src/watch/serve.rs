//! Serves the states of a watch through HTTP.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use replimeter_instruments::watch::{
    results::{State, WatchRound, WatchSample},
    settings::WatchPlan,
};
use replimeter_model::time::Nanos;
use replimeter_render::live::LiveView;
use replimeter_run::cli_error::CliError;
use replimeter_web::exporter::{
    Exporter, ExporterSpec, Published, PublishedLag, PublishedReplica, read_token,
};

use super::metrics::exposition;

/// Files of a connection to a server, and those of the run.
const FILES_OF_SERVER: usize = 3;
const FILES_OF_RUN: usize = 32;

/// An address that is taken, and the token of requests.
pub(super) struct Bound {
    listener: TcpListener,
    spec: ExporterSpec,
}

/// The exporter of a watch.
pub(super) struct Served {
    exporter: Exporter,
    valid_for: Duration,
    max_lag_us: f64,
}

/// Takes the address of a plan that has one.
///
/// # Errors
/// When it is taken, or the token cannot be read.
pub(super) fn bind(plan: &WatchPlan) -> Result<Option<Bound>, CliError> {
    let Some(address) = plan.listen else {
        return Ok(None);
    };
    let token = plan.token_file.as_deref().map(read_token).transpose();
    let token = token.map_err(|error| CliError::usage(error.message, error.hint))?;
    let listener = TcpListener::bind(address).map_err(|error| {
        CliError::usage(
            format!("cannot listen at {address}: {error}"),
            "give another address with --listen; port 0 is any free port",
        )
    })?;
    Ok(Some(Bound {
        listener,
        spec: ExporterSpec {
            names: plan.allow_host.clone(),
            target: String::new(),
            token,
            max_lag: plan.max_lag,
            reserved_files: 0,
        },
    }))
}

impl Bound {
    /// Serves, with every server unknown until the first poll.
    ///
    /// # Errors
    /// When the system refuses a thread or files.
    pub(super) fn start(
        self,
        target: &str,
        plan: &WatchPlan,
        first: &WatchRound,
        view: LiveView,
    ) -> Result<Served, CliError> {
        let files = first.servers.len() * FILES_OF_SERVER + FILES_OF_RUN;
        let spec = ExporterSpec {
            target: target.to_owned(),
            reserved_files: u32::try_from(files).unwrap_or(u32::MAX),
            ..self.spec
        };
        let (valid_for, max_lag_us) = (plan.valid_for(), Nanos::from(plan.max_lag.0).as_micros());
        let published = published(first, view, valid_for, max_lag_us);
        let exporter = Exporter::start(self.listener, &spec, published).map_err(|error| {
            CliError::failed(
                format!("cannot serve HTTP: {error}"),
                "raise the limit of open files (ulimit -n)",
            )
        })?;
        Ok(Served {
            exporter,
            valid_for,
            max_lag_us,
        })
    }
}

impl Served {
    /// Replaces what is answered by the states of a poll.
    ///
    /// # Errors
    /// When the server has ended by a defect.
    pub(super) fn publish(&self, round: &WatchRound, view: LiveView) -> Result<(), CliError> {
        if self.exporter.is_finished() {
            return Err(CliError::failed(
                "internal error: the HTTP server ended",
                "",
            ));
        }
        let published = published(round, view, self.valid_for, self.max_lag_us);
        self.exporter.publish(published);
        Ok(())
    }

    /// Returns where it is.
    pub(super) fn url(&self) -> String {
        format!("http://{}/", self.exporter.address())
    }
}

fn published(
    round: &WatchRound,
    view: LiveView,
    valid_for: Duration,
    max_lag_us: f64,
) -> Published {
    let now = jiff::Timestamp::now();
    let unix_s = now.as_microsecond() as f64 / 1e6;
    let replicas = round.servers.iter();
    let replicas = replicas.filter(|sample| sample.state() != State::Primary);
    Published {
        metrics: exposition(round, max_lag_us, unix_s),
        view,
        replicas: replicas.map(replica).collect(),
        at: Instant::now(),
        valid_for,
    }
}

fn replica(sample: &WatchSample) -> PublishedReplica {
    let state = sample.state();
    let is_known = !matches!(state, State::Unknown | State::Unreachable);
    let time = |us: f64| Duration::from_secs_f64((us / 1e6).max(0.0));
    PublishedReplica {
        name: sample.server.clone(),
        state: state.name(),
        reason: sample.reason.clone(),
        lag: sample.lag.filter(|_| is_known).map(|lag| PublishedLag {
            low: time(lag.low_us),
            high: lag.high_us.map(time),
        }),
        is_fresh: state != State::Unreachable,
    }
}

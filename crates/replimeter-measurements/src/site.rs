//! A site in front of servers: fronts, and the load balancer of several.

use std::{
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use replimeter_engine::source::{ServerSource, SourceError, SourceErrorKind};
use replimeter_instruments::{
    front::{settings::Remedy, site::SitePlan},
    preflight::Cluster,
    resources::NamedProcess,
};
use replimeter_model::{
    bug::REPORT_BUG,
    load::ReadTarget,
    warning::{Warning, WarningCode},
};
use replimeter_run::{
    Measurement, RunContext,
    cli_error::CliError,
    run_dir::{BALANCER, replace},
};
use replimeter_web::{
    balancer::{self, Balancer},
    front::{FrontError, FrontServers, FrontSpec, Fronts},
};

/// Kinds of requests of a measurement, at most.
const REQUEST_KINDS: u32 = 3;

/// Checks that the load balancer is there if one is needed.
///
/// # Errors
/// When it is not installed.
pub(crate) fn check(source: &dyn ServerSource, fronts: u32) -> Result<(), SourceError> {
    if fronts > 1 {
        balancer::find(source)?;
    }
    Ok(())
}

/// Returns a socket at a free port of this machine.
///
/// # Errors
/// When the system refuses.
pub(crate) fn listen() -> Result<TcpListener, CliError> {
    TcpListener::bind("127.0.0.1:0").map_err(|error| not_started(FrontError::System(error)))
}

/// Returns the servers of a site; the replicas' connections go with them.
pub(crate) fn servers(cluster: &mut Cluster) -> FrontServers {
    FrontServers {
        primary: (cluster.primary.node.clone(), cluster.primary.facts.clone()),
        replicas: std::mem::take(&mut cluster.replicas),
    }
}

/// Returns the fronts of a measurement, whose servers have this number of posts: without a remedy, and with reads from the replicas.
/// Its visitors have as many connections as a front has to a server, for each kind of request.
pub(crate) fn measured<M: Measurement>(
    cx: &RunContext<'_, M>,
    site: SitePlan,
    rows: u64,
    connections: u32,
) -> FrontSpec {
    FrontSpec {
        names: Vec::new(),
        reads: ReadTarget::Replicas,
        remedy: Remedy::None,
        primary_for: Duration::ZERO,
        connections,
        cost: site.cost.0,
        max_rows: u64::MAX,
        rows,
        run: cx.clock.origin_unix_us() as u64,
        shows_servers: true,
        own_visitors: connections.saturating_mul(REQUEST_KINDS),
    }
}

/// A running site.
pub(crate) struct Site {
    balancer: Option<Balancer>,
    pub(crate) fronts: Fronts,
    /// The address that visitors use.
    pub(crate) address: SocketAddr,
}

impl Site {
    /// Starts this number of fronts, and the load balancer if they are several; its configuration stays in the run directory.
    ///
    /// # Errors
    /// When a server refuses, or the system.
    pub(crate) fn start<M: Measurement>(
        cx: &RunContext<'_, M>,
        listener: TcpListener,
        servers: FrontServers,
        spec: &FrontSpec,
        fronts: u32,
    ) -> Result<Self, CliError> {
        let address = listener.local_addr().map_err(FrontError::System);
        let address = address.map_err(not_started)?;
        let behind = || (0..fronts).map(|_| TcpListener::bind("127.0.0.1:0"));
        let (own, public) = match fronts {
            1 => (vec![listener], None),
            _ => {
                let own = behind().collect::<Result<Vec<_>, _>>();
                (
                    own.map_err(|error| not_started(FrontError::System(error)))?,
                    Some(listener),
                )
            }
        };
        let fronts = Fronts::start(own, servers, spec, cx.clock).map_err(not_started)?;
        let balancer = public
            .map(|listener| balance(cx, listener, &fronts))
            .transpose()?;
        Ok(Self {
            balancer,
            fronts,
            address,
        })
    }

    /// Returns the processor time of the fronts and of the load balancer so far.
    pub(crate) fn processor_time(&self) -> (Duration, Option<Duration>) {
        let balancer = self.balancer.as_ref().and_then(Balancer::processor_time);
        (Fronts::processor_time(), balancer)
    }

    /// Returns the load balancer and the fronts, to meter their resources.
    pub(crate) fn processes(&self) -> Vec<NamedProcess> {
        let balancer = self.balancer.iter().map(Balancer::process);
        balancer.chain(self.fronts.processes()).collect()
    }

    /// Returns why it cannot serve any more.
    pub(crate) fn failure(&mut self) -> Option<SourceError> {
        let failed = |message: String, hint: String| {
            SourceError::new(SourceErrorKind::Failed, message, hint)
        };
        if let Some(failure) = self.balancer.as_mut().and_then(Balancer::failure) {
            return Some(failed(failure.message, "run again".to_owned()));
        }
        self.fronts.is_finished().then(|| {
            failed(
                "internal error: the front ended unexpectedly".to_owned(),
                format!("{REPORT_BUG}, with the messages above"),
            )
        })
    }

    /// Ends the load balancer, then the fronts and what they run on the servers. Returns a warning if something may still run there.
    pub(crate) fn end(self) -> Option<Warning> {
        drop(self.balancer);
        let left = self.fronts.end();
        (left > 0).then(|| {
            Warning::new(
                WarningCode::CleanUpIncomplete,
                format!("{left} statements of the front were given up, and may still be running"),
                "check whether a server is stalled; the statements end when it responds",
            )
        })
    }
}

/// Starts the load balancer; its configuration stays in the run directory.
fn balance<M: Measurement>(
    cx: &RunContext<'_, M>,
    listener: TcpListener,
    fronts: &Fronts,
) -> Result<Balancer, CliError> {
    let text = balancer::configuration(&fronts.addresses(), fronts.visitors().0);
    let file = cx.run_dir.file(BALANCER);
    replace(&file, text.as_bytes(), false).map_err(|error| {
        CliError::failed(
            format!("cannot write {}: {error}", file.display()),
            "free disk space, or choose another folder with --run-dir",
        )
    })?;
    Ok(Balancer::start(&*cx.source(), listener, &text, cx.stop)?)
}

fn not_started(error: FrontError) -> CliError {
    match error {
        FrontError::Server(error) => CliError::from(error),
        FrontError::System(error) => CliError::failed(
            format!("cannot start the front: {error}"),
            "raise the limits of processes and open files (ulimit -u, ulimit -n)",
        ),
    }
}

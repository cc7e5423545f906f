//! The servers of a run: opened, checked and closed in one place.

use std::{sync::atomic::Ordering, time::Duration};

use replimeter_engine::{
    Node,
    source::{Member, OpenContext, Servers},
};
use replimeter_instruments::{
    changes,
    load::{BackgroundLoad, FillProgress, Workload},
    preflight::Cluster,
    table::ProbeTable,
};
use replimeter_model::{
    load::RatedLoad,
    target::Target,
    warning::{Warning, WarningCode},
};

use super::{Measurement, RunContext};
use crate::{
    cli_error::CliError,
    event::{Event, Progress, Stage},
    measurement::advice::{log_ends, with_advice},
    workloads::filling,
};

/// Timeout of a server's replies outside the measuring path.
const ANSWER: Duration = Duration::from_secs(5);
/// Timeout for the replicas to apply the removal of the table.
const REMOVAL: Duration = Duration::from_secs(5);

impl<M: Measurement> RunContext<'_, M> {
    /// Starts, finds or prepares connections to the servers of a target.
    fn open(&mut self, target: &Target) -> Result<Box<dyn Servers>, CliError> {
        let observers = &self.observers;
        let context = OpenContext {
            say: &|text| observers.progress(Progress::new(Stage::Servers, text.to_owned())),
            quiet: &|| observers.emit(Event::Quiet),
            stop: self.stop,
        };
        let opened = self.lasting.servers.borrow_mut().open(target, &context)?;
        self.reach(opened.members());
        Ok(opened)
    }

    /// Takes the servers that the run uses.
    pub(super) fn reach(&self, members: &[Member]) {
        self.reached.add(members);
        self.watch.borrow_mut().servers(members);
    }

    /// Starts, finds or connects to the servers of a target, measures, and closes them on every outcome.
    ///
    /// # Errors
    /// When the servers cannot be opened, and those of `measure`.
    pub fn on_servers<T>(
        &mut self,
        target: &Target,
        measure: impl FnOnce(&mut Self, &mut dyn Servers) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let mut servers = self.open(target)?;
        let measured = measure(self, servers.as_mut());
        self.close(servers);
        measured
    }

    /// Like [`on_servers`](Self::on_servers), after checking the servers and writing them into the manifest.
    ///
    /// # Errors
    /// When the servers cannot be opened or fail the check, the user stops the run, and those of `measure`.
    pub fn on_checked<T, E: Into<CliError>>(
        &mut self,
        target: &Target,
        check: impl FnOnce(&[Member]) -> Result<Cluster, E>,
        measure: impl FnOnce(&mut Self, &mut dyn Servers, Cluster) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        self.on_servers(target, |cx, servers| {
            cx.stage(Stage::Servers, "checking the servers");
            let mut cluster =
                check(&to_measure(servers)).map_err(|error| with_advice(error.into(), servers))?;
            if cx.stop.load(Ordering::Relaxed) {
                return Err(CliError::interrupted(
                    "interrupted before the measurement began",
                ));
            }
            cx.record_servers(servers.label(), servers, &mut cluster)?;
            measure(cx, servers, cluster)
        })
    }

    /// Creates the data of background loads and connects them. A replica has `patience` to apply the data.
    pub fn background_load(
        &self,
        loads: &[RatedLoad],
        workloads: &[Workload],
        cluster: &mut Cluster,
        patience: Duration,
    ) -> Result<BackgroundLoad, CliError> {
        self.stage(Stage::Prepare, "preparing the load");
        Ok(BackgroundLoad::prepare(
            loads,
            workloads,
            cluster,
            &self.clock,
            patience,
            &mut |filled: &FillProgress| self.observers.progress(filling(filled)),
            self.stop,
        )?)
    }

    /// Removes the table, except from servers that will be removed anyway.
    pub fn remove_table(
        &mut self,
        table: ProbeTable,
        cluster: &mut Cluster,
        servers: &dyn Servers,
    ) {
        self.stage(Stage::CleanUp, "removing the table");
        if servers.is_temporary() {
            table.abandon();
        } else {
            let found = table.remove(cluster, REMOVAL, self.stop);
            self.warn(found);
        }
    }

    /// Removes what was started for this run, and asks other servers what happened to them.
    fn close(&mut self, servers: Box<dyn Servers>) {
        let seen = std::mem::take(&mut self.seen);
        self.warn(changes::changes(&seen));
        self.log_ends = log_ends(servers.as_ref());
        if servers.is_temporary() {
            self.stage(Stage::CleanUp, "removing the sandbox");
        }
        if let Err(error) = servers.close() {
            self.warn([Warning::new(
                WarningCode::CleanUpIncomplete,
                error.to_string(),
                "start a sandbox again; that removes this one",
            )]);
        }
    }
}

/// Returns the servers with the timeout of a measurement: a slow server counts as unreachable.
pub fn to_measure(servers: &dyn Servers) -> Vec<Member> {
    let prompt = |member: &Member| Member {
        node: Node {
            answer: ANSWER,
            ..member.node.clone()
        },
        ..member.clone()
    };
    servers.members().iter().map(prompt).collect()
}

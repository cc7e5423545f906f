//! The context of a run: directory, clock, manifest, warnings and gathered state.

mod servers;
mod streaming;

use std::{
    cell::{Cell, Ref, RefCell},
    path::PathBuf,
    rc::Rc,
    sync::atomic::AtomicBool,
    time::Duration,
};

use super::advice::with_log_end;
use super::{
    Measurement, Plan,
    cores::{REFUSED, keep_awake, real_time},
    end::{CompletedRun, LastCall, RunEnd, cut_off},
    reached::ReachedServers,
};
use crate::{
    cli_error::{CliError, FailureKind, unexpected},
    event::{Event, Observer, Observers, SharedObserver, Stage},
    journal::Journal,
    machine,
    options::{OutputArgs, OutputForm},
    run_dir::{JOURNAL, MANIFEST, PLAN, RunDir, SAMPLES, write_json, write_text},
    screen::{HangUps, Host},
    stream::SharedStream,
};
use replimeter_engine::{
    manifest,
    source::{Member, ServerSource, Servers},
};
use replimeter_instruments::{
    backlog::HeldAppliers,
    changes::{self, SeenServer},
    clock::Clock,
    host::{self, HostWatch},
    keep_awake::KeepAwake,
    preflight::Cluster,
};
use replimeter_model::{
    host::FlushLatency,
    manifest::{MANIFEST_SCHEMA, Manifest, SandboxRecord, ServerRecord},
    plan::{CoreUse, Decision, Request, Settings},
    target::Target,
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_render::{
    rows::{Batch, RowFile, Rows},
    terminal,
};
pub use servers::to_measure;

/// The surroundings of a plan that is run.
pub struct RunSurroundings<'a> {
    /// The source of its servers.
    pub servers: &'a mut dyn ServerSource,
    /// The program.
    pub host: &'a Host<'a>,
    /// The destination and form of results.
    pub output: &'a OutputArgs,
    /// Warnings about the given options.
    pub warnings: Vec<Warning>,
}

/// What a run shares with those of the same command that follow it.
#[derive(Clone)]
pub(crate) struct Lasting<'a> {
    servers: Rc<RefCell<&'a mut dyn ServerSource>>,
    pub(crate) host: &'a Host<'a>,
    pub(crate) output: &'a OutputArgs,
    progress: SharedObserver,
    stream: Option<SharedStream<'a>>,
}

/// The context of a run.
pub struct RunContext<'a, M: Measurement> {
    /// What was requested, with every default.
    pub request: &'a Request<M::Settings>,
    /// Its plan.
    pub plan: &'a Plan<M>,
    /// Options of the command line only.
    pub options: M::Options,
    /// The run's clock.
    pub clock: Clock,
    /// Becomes true when the user interrupts the run.
    pub stop: &'a AtomicBool,
    /// Whether the measuring threads have real-time priority.
    pub real_time: bool,
    /// The observers.
    pub observers: Observers<'a>,
    /// The run directory.
    pub run_dir: RunDir,
    /// The manifest of the run.
    pub manifest: Manifest,
    warnings: Vec<Warning>,
    /// The gathered state.
    pub accumulator: M::Accumulator,
    pub(crate) lasting: Lasting<'a>,
    /// The text of `plan.toml`.
    plan_text: String,
    journal: Journal,
    reached: ReachedServers,
    /// The user's servers of the current target, as they were at the beginning.
    seen: Vec<SeenServer>,
    /// The last lines of the logs that were removed with the servers of the current target.
    log_ends: Vec<(String, String)>,
    /// The machine that the client runs on.
    watch: Rc<RefCell<HostWatch>>,
    /// The folder of sandboxes and its flushes before the run.
    flushed: Option<(PathBuf, FlushLatency)>,
    rows: Rows<M::Columns>,
    /// When the next rows are streamed.
    lines_due: Nanos,
    /// When the next figures are streamed.
    figures_due: Cell<Nanos>,
    /// When the next rows and calls are written even if their group is not full.
    rows_due: Nanos,
    awake: Option<KeepAwake>,
    /// How the client uses the cores, and why.
    cores: CoreUse,
    /// The clock's resolution.
    clock_step: Duration,
}

/// Returns the text of `plan.toml`.
pub(crate) fn plan_text<S: Settings>(request: &Request<S>) -> Result<String, CliError> {
    request
        .to_toml()
        .map_err(|error| unexpected(format_args!("cannot write the plan: {error}")))
}

impl<'a, M: Measurement> RunContext<'a, M> {
    /// Creates the run directory, and writes the plan into it before anything else happens.
    pub(crate) fn begin(
        request: &'a Request<M::Settings>,
        surroundings: RunSurroundings<'a>,
        options: M::Options,
        stop: &'a AtomicBool,
    ) -> Result<Self, CliError> {
        let RunSurroundings {
            servers,
            host,
            output,
            warnings,
        } = surroundings;
        // Standard output has one use.
        let live = M::LIVE && output.stream.is_none() && output.form.chosen == OutputForm::Text;
        let progress = match live {
            true => host.screen.live(),
            false => host.screen.progress(),
        };
        let lasting = Lasting {
            servers: Rc::new(RefCell::new(servers)),
            host,
            output,
            progress: Rc::new(RefCell::new(progress)),
            stream: streaming::begin::<M>(output, host.screen),
        };
        Self::create(request, lasting, warnings, options, stop)
    }

    /// Creates the context of the run that follows this one of the same plan, with the servers of this one.
    pub(crate) fn next(&mut self, members: &[Member]) -> Result<Self, CliError> {
        let options = std::mem::take(&mut self.options);
        let lasting = self.lasting.clone();
        let mut next = Self::create(self.request, lasting, Vec::new(), options, self.stop)?;
        next.reach(members);
        next.seen = std::mem::take(&mut self.seen);
        next.manifest.servers.clone_from(&self.manifest.servers);
        next.manifest.sandboxes.clone_from(&self.manifest.sandboxes);
        next.write_manifest()?;
        Ok(next)
    }

    fn create(
        request: &'a Request<M::Settings>,
        lasting: Lasting<'a>,
        mut warnings: Vec<Warning>,
        options: M::Options,
        stop: &'a AtomicBool,
    ) -> Result<Self, CliError> {
        let named = lasting.output.run_dir.as_deref();
        let run_dir = RunDir::create(named, M::Settings::NAME)?;
        let plan_text = plan_text(request)?;
        write_text(&run_dir.file(PLAN), &plan_text)?;
        let journal = Journal::create(&run_dir.file(JOURNAL))?;
        let clock = Clock::start();
        let watch = Rc::new(RefCell::new(HostWatch::new(&clock)));
        let data = lasting
            .servers
            .borrow()
            .data_folder()
            .filter(|_| !are_given(&request.targets));
        let flushed = data.and_then(|folder| {
            let before = watch.borrow_mut().flush(&folder);
            watch.borrow_mut().flushes(before, None);
            Some((folder, before?))
        });
        let reached = ReachedServers::default();
        let mut all: Vec<Box<dyn Observer + 'a>> = vec![
            Box::new(reached.clone()),
            Box::new(RowFile::create::<M::Columns>(&run_dir.file(SAMPLES))?),
            Box::new(Rc::clone(&watch)),
            Box::new(Rc::clone(&lasting.progress)),
        ];
        if let Some(stream) = &lasting.stream {
            all.push(Box::new(Rc::clone(stream)));
        }
        let observers = Observers::new(all, stop);
        let mut cores = M::client(&request.plan);
        let awake = match cores.keep_awake.on {
            true => keep_awake(&mut warnings),
            false => None,
        };
        if cores.keep_awake.on && awake.is_none() {
            cores.keep_awake.reason = REFUSED;
        }
        if cores.real_time.on && !real_time(&mut warnings) {
            cores.real_time = Decision {
                on: false,
                reason: REFUSED,
            };
        }
        let manifest = Manifest {
            schema: MANIFEST_SCHEMA.to_owned(),
            replimeter: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: jiff::Timestamp::now()
                .strftime("%Y-%m-%dT%H:%M:%SZ")
                .to_string(),
            origin_unix_us: clock.origin_unix_us(),
            machine: machine::describe(),
            servers: Vec::new(),
            sandboxes: Vec::new(),
        };
        let mut cx = Self {
            request,
            plan: &request.plan,
            options,
            // Once, since it takes many readings.
            clock_step: clock.step(),
            clock,
            stop,
            real_time: cores.real_time.on,
            cores,
            observers,
            run_dir,
            manifest,
            warnings: Vec::new(),
            accumulator: M::accumulator(request),
            rows: streaming::rows::<M>(lasting.output),
            lasting,
            plan_text,
            journal,
            reached,
            seen: Vec::new(),
            log_ends: Vec::new(),
            watch,
            flushed,
            lines_due: Nanos(0),
            figures_due: Cell::new(Nanos(0)),
            rows_due: next_rows(Nanos(0)),
            awake,
        };
        cx.warn(warnings);
        Ok(cx)
    }

    /// Checks that every target is possible before the first is measured.
    pub fn check_available(&self) -> Result<(), CliError> {
        let servers = self.source();
        let mut targets = self.request.targets.iter();
        Ok(targets.try_for_each(|target| servers.check_available(target))?)
    }

    /// Returns the source of servers.
    pub fn source(&self) -> Ref<'_, dyn ServerSource> {
        Ref::map(self.lasting.servers.borrow(), |servers| &**servers)
    }

    /// Takes a call of the measurement, and passes complete rows to the observers.
    ///
    /// # Errors
    /// The failure of an observer, such as a full disk.
    pub fn take(&mut self, call: M::Call) -> Result<(), CliError> {
        let journaled = self.journal.add(&call);
        M::take(&mut self.accumulator, self.plan, call, &mut self.rows);
        let now = self.clock.now();
        self.stream_lines(now);
        if now < self.rows_due {
            let full = self.rows.take_full();
            return self.hand_on(full).and(journaled);
        }
        self.rows_due = next_rows(now);
        let all = self.rows.take_all();
        self.hand_on(all).and(journaled)?;
        let end = LastCall::CutOff(self.ending(Some(cut_off())));
        self.journal.add(&end)?;
        self.journal.hand_on()
    }

    /// Returns the end of the run at this moment.
    fn ending(&self, failure: Option<CliError>) -> RunEnd {
        let host = self.watch.borrow().record();
        // Servers on this machine and loads use its cores by design.
        let own = are_given(&self.request.targets) && !self.cores.shared;
        let client_only = own && self.awake.is_none();
        let mut warnings = self.warnings.clone();
        warnings.extend(host::warnings(&host, client_only));
        RunEnd {
            run_dir: self.run_dir.path().display().to_string(),
            keep_awake: self.awake.is_some(),
            keep_awake_reason: self.cores.keep_awake.reason.to_owned(),
            real_time: self.real_time,
            real_time_reason: self.cores.real_time.reason.to_owned(),
            clock_step: self.clock_step,
            at: self.clock.now(),
            host,
            warnings,
            failure,
        }
    }

    fn hand_on(&self, batches: Vec<Batch<M::Columns>>) -> Result<(), CliError> {
        for batch in &batches {
            self.observers.emit(Event::Rows(batch));
        }
        self.observers.check()
    }

    /// Sends the current operation to the observers.
    pub fn stage(&self, stage: Stage, operation: &'static str) {
        self.observers.stage(stage, operation);
    }

    /// Adds warnings for readers of the report; a repeated one is left out.
    pub fn warn(&mut self, warnings: impl IntoIterator<Item = Warning>) {
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.observers.emit(Event::Warning(&warning));
                self.warnings.push(warning);
            }
        }
    }

    /// Takes all warnings so far, for a measurement that keeps them itself.
    pub fn take_warnings(&mut self) -> Vec<Warning> {
        std::mem::take(&mut self.warnings)
    }

    /// Returns whether the output goes to a terminal.
    pub fn is_watched(&self) -> bool {
        self.lasting.host.screen.is_watched()
    }

    /// Returns the fault to inject, for tests.
    pub fn fault(&self) -> Option<&str> {
        self.lasting.host.fault.as_deref()
    }

    /// Returns the appliers that every exit of the program restores.
    pub fn held_appliers(&self) -> &HeldAppliers {
        &self.lasting.host.held_appliers
    }

    /// Returns the hang-ups that the run may take over; `None` if its directory is named, so that no other can follow it.
    pub fn hang_ups(&self) -> Option<HangUps> {
        let named = self.lasting.output.run_dir.is_some();
        (!named).then(|| self.lasting.host.hang_ups.clone())
    }

    /// Returns whether idle cores are kept awake.
    pub fn keep_cores_awake(&self) -> bool {
        self.awake.is_some()
    }

    /// Writes the servers into the manifest, and adds warnings about them.
    pub fn record_servers(
        &mut self,
        label: &str,
        servers: &dyn Servers,
        cluster: &mut Cluster,
    ) -> Result<(), CliError> {
        self.record_sandbox(label, servers.record(), cluster.records())?;
        self.warn(std::mem::take(&mut cluster.warnings));
        // What was started for the run has no other users.
        if !servers.is_temporary() {
            self.seen = changes::see(cluster);
        }
        Ok(())
    }

    /// Writes a sandbox and its servers into the manifest.
    pub fn record_sandbox(
        &mut self,
        label: &str,
        sandbox: Option<&SandboxRecord>,
        servers: Vec<ServerRecord>,
    ) -> Result<(), CliError> {
        if let Some(sandbox) = sandbox.filter(|sandbox| sandbox.in_memory()) {
            let warning = Warning::new(
                WarningCode::MemoryFileSystem,
                format!(
                    "the sandbox's data is in memory ({}), where flushes take no time, so commits are faster than on a disk",
                    sandbox.file_system
                ),
                "set REPLIMETER_HOME to a folder on a disk",
            );
            self.warn([warning]);
        }
        if let Some(reason) = sandbox.and_then(|sandbox| sandbox.hosts_refused.as_ref()) {
            let warning = Warning::new(
                WarningCode::HostsShared,
                format!("the servers and the client share this machine's cores: {reason}"),
                "run as root where control groups are mounted writable, or on a machine with a core for each server and the client",
            );
            self.warn([warning]);
        }
        // Of several starts, the first.
        if self
            .manifest
            .servers
            .iter()
            .any(|server| server.shape == label)
        {
            return Ok(());
        }
        let shape = label.to_owned();
        self.manifest
            .sandboxes
            .extend(sandbox.cloned().map(|sandbox| SandboxRecord {
                shape: shape.clone(),
                ..sandbox
            }));
        self.manifest
            .servers
            .extend(servers.into_iter().map(|server| ServerRecord {
                shape: shape.clone(),
                ..server
            }));
        manifest::complete(&mut self.manifest.servers);
        self.write_manifest()
    }

    /// Writes the manifest, so that a killed run has one too.
    pub fn write_manifest(&self) -> Result<(), CliError> {
        write_json(&self.run_dir.file(MANIFEST), &self.manifest)
    }

    /// Ends a run without a report: its warnings are printed here.
    pub(crate) fn abort(&self) {
        self.observers.emit(Event::Quiet);
        let mut warnings = M::warnings(&self.accumulator).to_vec();
        warnings.extend(self.warnings.iter().cloned());
        self.lasting.host.screen.say(&terminal::warnings(&warnings));
    }

    /// Ends the measuring: returns the gathered state and the remaining parts of the run.
    pub(crate) fn end(
        mut self,
        failure: Option<CliError>,
    ) -> Result<(CompletedRun<'a>, M::Accumulator), CliError> {
        let other = self.reached.failure();
        // That ended the run, not the user.
        let by_itself = other.is_none();
        let mut failure = failure
            .filter(|failure| by_itself || failure.kind != FailureKind::Interrupted)
            .or(other)
            .map(|failure| with_log_end(failure, &self.log_ends));
        if M::is_empty(&self.accumulator) {
            self.abort();
            return Err(match failure {
                Some(failure) => failure.without_results("no run is kept"),
                None => CliError::failed("nothing was measured", "see the messages above"),
            });
        }
        // The reader of the stream ended the run, not the user.
        if let Some(left) = self.observers.finished().filter(|_| by_itself) {
            failure = failure.filter(|failure| failure.kind != FailureKind::Interrupted);
            self.warn([left]);
        }
        self.stage(Stage::Report, "writing the report");
        if let Some((folder, before)) = &self.flushed {
            let mut watch = self.watch.borrow_mut();
            let after = watch.flush(folder);
            watch.flushes(Some(*before), after);
        }
        let mut ended = self.ending(None);
        drop(self.awake.take());
        M::last_rows(&self.accumulator, &mut self.rows);
        self.stream_rest();
        let rest = self.rows.take_all();
        let handed_on = self.hand_on(rest);
        self.run_dir.keep();
        // A failure caused by a failing observer hides the observer's own, which comes first.
        let stopped = self.observers.check().err();
        drop(self.lasting.progress);
        let finished = handed_on.and(self.observers.end());
        ended.at = self.clock.now();
        ended.failure = stopped.or(failure).or(finished.err());
        let last = LastCall::Ended(ended.clone());
        // Only a run that fails needs its journal.
        let _ = self
            .journal
            .add(&last)
            .and_then(|()| self.journal.hand_on())
            .and_then(|()| self.journal.wait());
        let over = CompletedRun {
            run_dir: self.run_dir,
            manifest: self.manifest,
            plan: self.plan_text,
            ended,
            journal: self.journal,
            stream: self.lasting.stream,
        };
        Ok((over, self.accumulator))
    }
}

/// Returns whether the servers are the user's own.
fn are_given(targets: &[Target]) -> bool {
    let own = |target: &Target| matches!(target, Target::Nodes(_));
    targets.iter().any(own)
}

/// Returns when rows are written again: a killed run loses those of 5 s, or of 1/60 of its time, so that the
/// number of groups grows with the logarithm of the time only.
fn next_rows(now: Nanos) -> Nanos {
    now + Nanos((now.0 / 60).max(5_000_000_000))
}

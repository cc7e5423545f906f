//! What every run that is kept has: its directory, its clock, its manifest.

use std::{io::Write, sync::atomic::AtomicBool};

use replimeter_measure::{
    awake::KeepAwake, clock::Clock, preflight::Cluster, priority::real_time_permitted,
};
use replimeter_model::{
    manifest::{MANIFEST_SCHEMA, Manifest, SandboxRecord, ServerRecord},
    plan::Plan,
    record::TargetRecord,
    target::{NULL_REPLICA, Passwords, Target},
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_report::{samples::SamplesWriter, terminal};
use replimeter_stats::signed::SignedHistogram;

use crate::{
    cli::OutputArgs,
    document::Document,
    failure::Failure,
    histograms, machine,
    measure::{
        document,
        servers::{self, Servers},
    },
    progress::Line,
    run_dir::{MANIFEST, PLAN, RunDir, SAMPLES, write_json, write_text},
};

/// A plan for this kind of work, and what goes with it.
pub(crate) struct Request<'a, W> {
    pub(crate) plan: &'a Plan,
    pub(crate) work: &'a W,
    pub(crate) passwords: &'a Passwords,
    pub(crate) ask_password: bool,
    pub(crate) output: &'a OutputArgs,
    pub(crate) warnings: Vec<Warning>,
}

impl<'a, W> Request<'a, W> {
    /// The same for the plan's work, whose kind is known by now.
    pub(crate) fn to<V>(self, work: &'a V) -> Request<'a, V> {
        let Self {
            plan,
            passwords,
            ask_password,
            output,
            warnings,
            ..
        } = self;
        Request {
            plan,
            work,
            passwords,
            ask_password,
            output,
            warnings,
        }
    }

    /// Starts, finds or prepares to reach the servers of one of the plan's targets.
    pub(crate) fn obtain(
        &self,
        target: &Target,
        line: &Line,
        stop: &AtomicBool,
    ) -> Result<Servers, Failure> {
        let defaults_file = self.plan.target.defaults_file.as_deref();
        servers::obtain(
            target,
            self.passwords,
            defaults_file,
            self.ask_password,
            line,
            stop,
        )
    }
}

/// A run under way.
pub(crate) struct Frame {
    pub(crate) run_dir: RunDir,
    pub(crate) clock: Clock,
    pub(crate) manifest: Manifest,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) line: Line,
    /// The text of `plan.toml`.
    pub(crate) plan: String,
    /// Whether the measuring threads have real-time priority.
    pub(crate) real_time: bool,
    awake: Option<KeepAwake>,
}

/// The text of `plan.toml`.
pub(crate) fn plan_text(plan: &Plan) -> Result<String, Failure> {
    plan.to_toml().map_err(|error| {
        Failure::failed(
            format!("cannot write the plan: {error}"),
            "please report this as a defect",
        )
    })
}

impl Frame {
    /// Makes the run directory, with the plan in it before anything else happens.
    pub(crate) fn begin(
        command: &str,
        plan: &Plan,
        output: &OutputArgs,
        keep_awake: bool,
        real_time: bool,
        mut warnings: Vec<Warning>,
    ) -> Result<Self, Failure> {
        let run_dir = RunDir::create(output.run_dir.as_deref(), command)?;
        let plan = plan_text(plan)?;
        write_text(&run_dir.file(PLAN), &plan)?;
        let awake = if keep_awake {
            self::keep_awake(&mut warnings)
        } else {
            None
        };
        let real_time = real_time && self::real_time(&mut warnings);
        let clock = Clock::start();
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
        Ok(Self {
            run_dir,
            clock,
            manifest,
            warnings,
            line: Line::new(),
            plan,
            real_time,
            awake,
        })
    }

    /// Begins the file of samples.
    pub(crate) fn samples(&self) -> Result<SamplesWriter, Failure> {
        Ok(SamplesWriter::create(
            &self.run_dir.file(SAMPLES),
            NULL_REPLICA,
        )?)
    }

    /// Whether idle cores are kept from halting.
    pub(crate) fn kept_awake(&self) -> bool {
        self.awake.is_some()
    }

    /// Lets cores halt again.
    pub(crate) fn let_sleep(&mut self) -> bool {
        self.awake.take().is_some()
    }

    /// Writes what is known of the servers into the manifest, and says what is odd.
    pub(crate) fn met(&mut self, servers: &Servers, cluster: &mut Cluster) -> Result<(), Failure> {
        if let Some(sandbox) = servers
            .sandbox
            .as_ref()
            .filter(|sandbox| sandbox.in_memory())
        {
            self.warnings.push(Warning::new(
                WarningCode::MemoryFileSystem,
                format!(
                    "the sandbox's data lies in memory ({}), where a flush costs nothing",
                    sandbox.record().file_system
                ),
                "set REPLIMETER_HOME to a folder on a disk",
            ));
        }
        let records = cluster.records().into_iter().map(|record| ServerRecord {
            shape: servers.label.clone(),
            ..record
        });
        self.manifest.servers.extend(records);
        let record = servers.record.clone().map(|record| SandboxRecord {
            shape: servers.label.clone(),
            ..record
        });
        self.manifest.sandboxes.extend(record);
        write_json(&self.run_dir.file(MANIFEST), &self.manifest)?;
        self.warnings.append(&mut cluster.warnings);
        Ok(())
    }

    /// What was measured, as its servers and the plan have it.
    pub(crate) fn target(&self, plan: &Plan, shape: String, modes: Vec<String>) -> TargetRecord {
        TargetRecord {
            shape,
            modes,
            options: plan
                .target
                .server_options
                .iter()
                .map(|option| format!("server option {option}"))
                .collect(),
            sandbox: !self.manifest.sandboxes.is_empty(),
            nodes: document::nodes(&self.manifest),
        }
    }

    /// Ends a run with its report: what ended it early counts for more than a page that cannot be written.
    pub(crate) fn publish(
        &self,
        document: &Document,
        output: &OutputArgs,
        failure: Option<Failure>,
    ) -> Result<(), Failure> {
        self.line.clear();
        let written = document.publish(self.run_dir.path(), &self.manifest, &self.plan, output);
        failure.map_or(written, Err)
    }

    /// Keeps the histograms behind the figures, by name.
    pub(crate) fn log(
        &self,
        took: Nanos,
        series: &[(String, &SignedHistogram)],
    ) -> Result<(), Failure> {
        histograms::keep(&self.run_dir, &self.manifest, took, series)
    }

    /// Ends a run of which there will be no report: its warnings are said here.
    pub(crate) fn give_up(&self) {
        self.line.clear();
        let mut err = std::io::stderr();
        let _ = write!(err, "{}", terminal::warnings(&self.warnings).trim_start());
    }

    /// Removes a sandbox that was started for this run.
    pub(crate) fn close(&mut self, servers: Servers) {
        if let Some(sandbox) = servers.sandbox {
            self.line.say("removing the sandbox");
            if let Err(error) = sandbox.close() {
                self.warnings.push(Warning::new(
                    WarningCode::CleanUpIncomplete,
                    error.to_string(),
                    "the next start removes it",
                ));
            }
        }
    }
}

fn real_time(warnings: &mut Vec<Warning>) -> bool {
    let Err(reason) = real_time_permitted() else {
        return true;
    };
    warnings.push(Warning::new(
        WarningCode::ClientLimited,
        format!("the measuring threads have no real-time priority ({reason}): on busy cores they wait behind the servers, and brackets are wider for it"),
        "run as root or with CAP_SYS_NICE, raise the limit (ulimit -r 1), or accept it with --real-time off",
    ));
    false
}

fn keep_awake(warnings: &mut Vec<Warning>) -> Option<KeepAwake> {
    KeepAwake::start()
        .map_err(|reason| {
            warnings.push(Warning::new(
                WarningCode::ClientLimited,
                format!("idle cores could not be kept awake: {reason}"),
                "waking them is part of every time; compare only with runs that carry this warning too",
            ));
        })
        .ok()
}

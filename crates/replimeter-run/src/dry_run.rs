//! The effects of a plan on servers, tables, load and files, listed before anything is done.

use std::{fmt::Display, path::Path, time::Duration};

use replimeter_model::{
    load::{LoadRate, LoadSpec, RatedLoad},
    sandbox::SandboxSpec,
    target::Target,
    time_span::TimeSpan,
};

use crate::{
    cli_error::CliError,
    options::OutputArgs,
    run_dir::{HISTOGRAMS, MANIFEST, MARKDOWN, PAGE, PLAN, SAMPLES, SUMMARY},
    workloads::workload,
};

/// A server that owes an answer gets a single connection more, on which its greeting is awaited.
const AWAITED: u64 = 1;

/// The effects of a run on its targets, in display order.
pub struct PlanEffects<'a> {
    targets: &'a [Target],
    /// Each with its category.
    effects: Vec<(&'static str, String)>,
}

fn servers(target: &Target) -> String {
    match target {
        Target::Sandbox(spec) => format!("{}, and removes them", started(spec)),
        Target::Running(name) => {
            format!("connects to the running sandbox `{name}`, which keeps running")
        }
        Target::Nodes(nodes) => {
            let named: Vec<String> = nodes
                .iter()
                .map(|node| format!("{} ({})", node.name, node.url.address()))
                .collect();
            format!("connects to {}", named.join(", "))
        }
    }
}

/// Returns the servers started for a sandbox.
pub fn started(spec: &SandboxSpec) -> String {
    let nodes = spec.shape.nodes();
    let plural = if nodes.len() == 1 { "" } else { "s" };
    format!(
        "starts {} server{plural} on this machine, {} ({})",
        nodes.len(),
        spec.shape,
        nodes.join(", ")
    )
}

/// Returns how often something is done, in words.
pub fn pace(per_second: Option<impl Display>) -> String {
    per_second.map_or_else(
        || "back to back".to_owned(),
        |rate| format!("{rate} per second"),
    )
}

/// Returns the connections of loads, which may all be on one server, and the one that ends what they give up.
pub fn load_connections<'a>(loads: impl IntoIterator<Item = &'a LoadSpec>) -> u64 {
    let threads: u64 = loads.into_iter().map(|spec| u64::from(spec.threads)).sum();
    threads + u64::from(threads > 0)
}

fn is_sandbox(target: &Target) -> bool {
    matches!(target, Target::Sandbox(_))
}

impl<'a> PlanEffects<'a> {
    /// Returns no effects yet.
    pub fn of(targets: &'a [Target]) -> Self {
        Self {
            targets,
            effects: Vec::new(),
        }
    }

    /// Returns whether existing servers or running sandboxes are among the targets.
    fn foreign(&self) -> bool {
        !self.targets.iter().all(is_sandbox)
    }

    /// Returns the largest number of replicas, or of members besides the writer, of a target.
    pub fn replicas(&self) -> u64 {
        let of = |target: &Target| match target {
            Target::Nodes(nodes) => nodes.len() as u64 - 1,
            Target::Sandbox(spec) => spec.shape.nodes().len() as u64 - 1,
            // The plan does not have the shape of a running sandbox.
            Target::Running(_) => 1,
        };
        self.targets.iter().map(of).max().unwrap_or(0)
    }

    /// Returns the effects as comment lines, so that the output of a dry run is a valid plan.
    pub fn comments(&self) -> String {
        let lines = self
            .effects
            .iter()
            .map(|(what, sentence)| format!("#   {what:<8} {sentence}\n"));
        std::iter::once("# Effects of this run:\n".to_owned())
            .chain(lines)
            .collect()
    }

    fn add(&mut self, what: &'static str, sentence: impl Into<String>) {
        self.effects.push((what, sentence.into()));
    }

    /// Adds an action on servers.
    pub fn servers(&mut self, sentence: impl Into<String>) {
        self.add("servers", sentence);
    }

    /// Adds what is written to servers.
    pub fn writes(&mut self, sentence: impl Into<String>) {
        self.add("writes", sentence);
    }

    /// Adds that only servers of the run are written to.
    pub fn own_schema(&mut self) {
        self.writes("schema `replimeter` of these servers only");
    }

    /// Adds a load on servers.
    pub fn load(&mut self, sentence: impl Into<String>) {
        self.add("load", sentence);
    }

    /// Adds the duration.
    pub fn time(&mut self, sentence: impl Into<String>) {
        self.add("time", sentence);
    }

    /// Adds the duration without the time that starts of servers take.
    pub fn time_without_starts(&mut self, duration: Duration) {
        self.time(format!("about {} plus server starts", TimeSpan(duration)));
    }

    /// Adds the servers that are started or connected to.
    pub fn targets(&mut self) {
        for target in self.targets {
            self.servers(servers(target));
        }
    }

    /// Adds the servers of a run that writes, and the replicas that it asks besides them: what it writes reaches these, too.
    pub fn written_targets(&mut self) {
        self.targets();
        if self.foreign() {
            self.servers(
                "asks replicas that are not named, at the addresses that these servers report, what they have in the schema `replimeter`",
            );
        }
    }

    /// Adds the duration of a run that may have no end of its own.
    pub fn until(&mut self, duration: Option<TimeSpan>) {
        self.time(duration.map_or_else(
            || "until interrupted".to_owned(),
            |duration| format!("for {duration}"),
        ));
    }

    /// Adds that sandboxes are started several times, spread over a time.
    pub fn starts(&mut self, starts: u32, over: Option<TimeSpan>) {
        if starts > 1 {
            let over = over.map_or_else(String::new, |over| format!(" within {over}"));
            self.servers(format!(
                "starts them {starts} times{over}; the starts share the rounds"
            ));
        }
    }

    /// Adds what the run costs each existing server of a role at most: connections at the same time, to a server that answers, and what they
    /// do, with rates; nothing for servers that it starts. docs/reference/server-cost.md has what was measured.
    pub fn cost(&mut self, role: &str, connections: u64, work: impl Display) {
        if self.foreign() {
            let connections = connections + AWAITED;
            self.add(
                "cost",
                format!("{role}: up to {connections} connections; {work}"),
            );
        }
    }

    /// Adds the table that rows are written to, whose name ends with the run's number, and which is removed again.
    pub fn table(&mut self, what: &str) {
        let gone = if self.foreign() {
            "; schema and table are dropped at the end unless they existed before; all writes replicate"
        } else {
            ""
        };
        self.writes(format!(
            "schema `replimeter`, table `probe_…` ({what}), on the primary{gone}"
        ));
    }

    /// Adds the tables of a workload, and the effects of a user's script.
    pub fn tables(&mut self, name: &str, kept: bool) -> Result<(), CliError> {
        let workload = workload(name)?;
        let tables = workload.tables();
        if !tables.is_empty() {
            let gone = if kept {
                "kept (keep-data)"
            } else {
                "removed at the end"
            };
            let listed: Vec<String> = tables.iter().map(|table| format!("`{table}`")).collect();
            self.writes(format!(
                "schema `replimeter`, tables {} of the workload {name}, and `load_data`; {gone}",
                listed.join(", ")
            ));
        }
        if workload.has_script() {
            self.writes(format!("tables in the statements of {name}"));
        }
        Ok(())
    }

    /// Adds loads with their rates, and the tables of each workload once.
    pub fn rated_loads(&mut self, loads: &[RatedLoad]) -> Result<(), CliError> {
        let specs = loads
            .iter()
            .map(|load| (&load.spec, load.rate.map(LoadRate::PerSecond)));
        self.loads(&specs.collect::<Vec<_>>())
    }

    /// Adds loads with their rates (`None` for back to back), and the tables of each workload once.
    pub fn loads(&mut self, specs: &[(&LoadSpec, Option<LoadRate>)]) -> Result<(), CliError> {
        let mut known: Vec<&str> = Vec::new();
        for (spec, rate) in specs {
            let connections = if spec.threads == 1 {
                "connection"
            } else {
                "connections"
            };
            let how = match rate {
                None => pace(None::<u64>),
                Some(LoadRate::PerSecond(rate)) => pace(Some(rate)),
                Some(LoadRate::Percent(percent)) => {
                    format!("{percent} % of what it reaches in three seconds back to back")
                }
            };
            self.load(format!(
                "{} {connections} run {} on {}, {how}",
                spec.threads, spec.workload, spec.node
            ));
            if !known.contains(&spec.workload.as_str()) {
                known.push(&spec.workload);
                self.tables(&spec.workload, false)?;
            }
        }
        Ok(())
    }

    /// Adds the files of the run.
    pub fn files(&mut self, output: &OutputArgs, command: &str, histograms: bool) {
        let folder = output.run_dir.as_deref().map_or_else(
            || format!("a new folder replimeter-runs/TIME-{command}"),
            |path: &Path| format!("the folder {}", path.display()),
        );
        let mut kept = vec![PLAN, MANIFEST, SAMPLES, SUMMARY, PAGE, MARKDOWN];
        kept.extend(histograms.then_some(HISTOGRAMS));
        self.add("files", format!("{folder} with {}", kept.join(", ")));
        if self.targets.iter().any(is_sandbox) {
            self.add(
                "files",
                "data directories in the private folder (REPLIMETER_HOME), removed with their servers; their templates are kept",
            );
        }
    }
}

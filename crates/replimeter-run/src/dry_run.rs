//! The effects of a plan on servers, tables, load and files, listed before anything is done.

use std::path::Path;

use replimeter_model::{
    load::{LoadSpec, RatedLoad},
    plan::LoadRate,
    sandbox::SandboxSpec,
    target::Target,
    time_span::TimeSpan,
};

use crate::{
    cli_error::CliError,
    options::OutputArgs,
    run_dir::{HISTOGRAMS, MANIFEST, PAGE, PLAN, SAMPLES, SUMMARY, TICKET},
    workloads::workload,
};

/// Categories: actions on servers.
pub const SERVERS: &str = "servers";
/// Writes to servers.
pub const WRITES: &str = "writes";
/// Load on servers.
pub const LOAD: &str = "load";
/// Duration.
pub const TIME: &str = "time";
/// What a run costs existing servers.
const COST: &str = "cost";
const FILES: &str = "files";

/// A server that owes an answer gets a single connection more, on which its greeting is awaited.
const AWAITED: u64 = 1;

/// What a run costs each server of a role, at most; docs/reference/server-cost.md has what was measured.
pub struct ServerCost {
    /// The servers, such as `each replica`.
    pub role: &'static str,
    /// Connections at the same time, to a server that answers.
    pub connections: u64,
    /// What they do, with rates.
    pub work: String,
}

/// The effects, in display order.
#[derive(Default)]
pub struct PlanEffects(Vec<(&'static str, String)>);

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

/// Returns the largest number of replicas, or of members besides the writer, of a target.
pub fn replicas(targets: &[Target]) -> u64 {
    let of = |target: &Target| match target {
        Target::Nodes(nodes) => nodes.len() as u64 - 1,
        Target::Sandbox(spec) => spec.shape.nodes().len() as u64 - 1,
        // The plan does not have the shape of a running sandbox.
        Target::Running(_) => 1,
    };
    targets.iter().map(of).max().unwrap_or(0)
}

/// Returns the connections of loads, which may all be on one server, and the one that ends what they give up.
pub fn load_connections<'a>(loads: impl IntoIterator<Item = &'a LoadSpec>) -> u64 {
    let threads: u64 = loads.into_iter().map(|spec| u64::from(spec.threads)).sum();
    threads + u64::from(threads > 0)
}

/// Returns whether existing servers or running sandboxes are among the targets.
fn foreign(targets: &[Target]) -> bool {
    targets
        .iter()
        .any(|target| !matches!(target, Target::Sandbox(_)))
}

impl PlanEffects {
    /// Returns the effects as comment lines, so that the output of a dry run is a valid plan.
    pub fn comments(&self) -> String {
        let lines = self
            .0
            .iter()
            .map(|(what, sentence)| format!("#   {what:<8} {sentence}\n"));
        std::iter::once("# Effects of this run:\n".to_owned())
            .chain(lines)
            .collect()
    }

    /// Adds an effect to a category.
    pub fn add_effect(&mut self, what: &'static str, sentence: impl Into<String>) {
        self.0.push((what, sentence.into()));
    }

    /// Adds the servers that are started or connected to.
    pub fn targets(&mut self, targets: &[Target]) {
        for target in targets {
            self.add_effect(SERVERS, servers(target));
        }
    }

    /// Adds the servers of a run that writes, and the replicas that it asks besides them: what it writes reaches these, too.
    pub fn written_targets(&mut self, targets: &[Target]) {
        self.targets(targets);
        if foreign(targets) {
            self.add_effect(
                SERVERS,
                "asks replicas that are not named, at the addresses that these servers report, what they have in the schema `replimeter`",
            );
        }
    }

    /// Adds the duration of a run that may have no end of its own.
    pub fn until(&mut self, duration: Option<TimeSpan>) {
        let until = duration.map_or_else(
            || "until interrupted".to_owned(),
            |duration| format!("for {duration}"),
        );
        self.add_effect(TIME, until);
    }

    /// Adds that sandboxes are started several times, spread over a time.
    pub fn starts(&mut self, starts: u32, over: Option<TimeSpan>) {
        if starts > 1 {
            let over = over.map_or_else(String::new, |over| format!(" within {over}"));
            self.add_effect(
                SERVERS,
                format!("starts them {starts} times{over}; the starts share the rounds"),
            );
        }
    }

    /// Adds what the run costs existing servers; nothing for servers that it starts.
    pub fn costs(&mut self, targets: &[Target], costs: impl IntoIterator<Item = ServerCost>) {
        if !foreign(targets) {
            return;
        }
        for cost in costs {
            self.add_effect(
                COST,
                format!(
                    "{}: up to {} connections; {}",
                    cost.role,
                    cost.connections + AWAITED,
                    cost.work
                ),
            );
        }
    }

    /// Adds the table that rows are written to, whose name ends with the run's number, and which is removed again.
    pub fn table(&mut self, targets: &[Target], what: &str) {
        let gone = if foreign(targets) {
            "; schema and table are dropped at the end unless they existed before; all writes replicate"
        } else {
            ""
        };
        self.add_effect(
            WRITES,
            format!("schema `replimeter`, table `lag_probe_…` ({what}), on the primary{gone}"),
        );
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
            self.add_effect(
                WRITES,
                format!(
                    "schema `replimeter`, tables {} of the workload {name}, and `load_data`; {gone}",
                    listed.join(", ")
                ),
            );
        }
        if workload.has_script() {
            self.add_effect(WRITES, format!("tables in the statements of {name}"));
        }
        Ok(())
    }

    /// Adds loads with their rates, and the tables of each workload once.
    pub fn rated_loads<'a>(
        &mut self,
        loads: impl IntoIterator<Item = &'a RatedLoad>,
    ) -> Result<(), CliError> {
        let specs = loads
            .into_iter()
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
                None => "back to back".to_owned(),
                Some(LoadRate::PerSecond(rate)) => format!("{rate} per second"),
                Some(LoadRate::Percent(percent)) => {
                    format!("{percent} % of what it reaches in three seconds back to back")
                }
            };
            self.add_effect(
                LOAD,
                format!(
                    "{} {connections} run {} on {}, {how}",
                    spec.threads, spec.workload, spec.node
                ),
            );
            if !known.contains(&spec.workload.as_str()) {
                known.push(&spec.workload);
                self.tables(&spec.workload, false)?;
            }
        }
        Ok(())
    }

    /// Adds the files of the run.
    pub fn files(
        &mut self,
        targets: &[Target],
        output: &OutputArgs,
        command: &str,
        histograms: bool,
    ) {
        let folder = output.run_dir.as_deref().map_or_else(
            || format!("a new folder replimeter-runs/TIME-{command}"),
            |path: &Path| format!("the folder {}", path.display()),
        );
        let mut kept = vec![PLAN, MANIFEST, SAMPLES, SUMMARY, PAGE, TICKET];
        kept.extend(histograms.then_some(HISTOGRAMS));
        self.add_effect(FILES, format!("{folder} with {}", kept.join(", ")));
        let own = targets
            .iter()
            .any(|target| matches!(target, Target::Sandbox(_)));
        if own {
            self.add_effect(
                FILES,
                "data directories in the private folder (REPLIMETER_HOME), removed with their servers; their templates are kept",
            );
        }
    }
}

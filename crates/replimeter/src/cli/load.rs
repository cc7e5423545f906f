//! Load and backlog: flags of their own heading.

use clap::Args;
use replimeter_model::{
    load::{Arrivals, LoadSpec, Size},
    plan::{LagSpec, OneOrMore},
    span::Span,
};

/// What goes on while it is measured.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArgs {
    /// Measure while THREADS connections run a workload on that server, over and over: one of insert, select, post-insert, point-select, oltp-mix, update-key, big-update and mix, or the path of a file of statements (docs/load.md); may be repeated
    #[arg(long, value_name = "WORKLOAD:THREADS@NODE")]
    pub(crate) load: Vec<LoadSpec>,

    /// Begin so many passes of the workload per second, over all its threads, whatever became of the ones before (open loop); once for every load or once for each [default: each thread back to back, a closed loop]
    #[arg(long, value_name = "R")]
    pub(crate) rate: Vec<u64>,

    /// When the passes of a rate are due: constant, or poisson as many independent users would come [default: constant]
    #[arg(long, value_name = "HOW", requires = "rate")]
    pub(crate) arrivals: Option<Arrivals>,

    /// How much data the loads' workloads have: rows, such as 100000, or bytes on the disk, such as 300MB [default: what the workload says]
    #[arg(long, value_name = "SIZE", requires = "load")]
    pub(crate) load_size: Option<Size>,

    /// Instead of rounds: stop each replica's applier for so long under the load (insert:8@primary when none is given), start it again, and measure how fast it catches up; the replica is left applying as it was
    #[arg(long, value_name = "TIME", conflicts_with_all = ["rounds", "duration", "every", "pace", "size", "sizes", "warm_up", "floor_rounds"])]
    pub(crate) backlog: Option<Span>,

    /// Do so with these numbers of applier workers, one after another, such as 1,2,4 [default: as the replica is set]
    #[arg(long, value_name = "N,…", value_delimiter = ',', requires = "backlog")]
    pub(crate) workers: Vec<u32>,
}

impl LoadArgs {
    /// Puts them into a plan's settings.
    pub(crate) fn fill(&self, spec: LagSpec) -> LagSpec {
        let load = self.load.iter().cloned().map(found_from_anywhere).collect();
        LagSpec {
            load,
            rate: OneOrMore::of(self.rate.clone()),
            arrivals: self.arrivals,
            load_size: self.load_size,
            backlog: self.backlog,
            workers: self.workers.clone(),
            ..spec
        }
    }
}

/// With the whole path of its file, so that a run's own plan runs from every folder.
pub(super) fn found_from_anywhere(load: LoadSpec) -> LoadSpec {
    LoadSpec {
        workload: path_of_workload(&load.workload),
        ..load
    }
}

/// One of ours by its name, a file by its whole path.
pub(super) fn path_of_workload(name: &str) -> String {
    if replimeter_model::load::BUILT_IN.contains(&name) {
        return name.to_owned();
    }
    let path = std::path::absolute(name);
    let path = path
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok());
    path.unwrap_or_else(|| name.to_owned())
}

//! The command line of `replimeter stale`.

use clap::Args;
use replimeter_model::{
    load::{Arrivals, LoadSpec, Size},
    plan::{Case, JudgeLoad, Offsets, OneOrMore, Pool, StalePace, StaleSpec, SyncReads},
    span::Span,
};

use super::{OutputArgs, Switch, TargetArgs, load::found_from_anywhere};

/// What becomes of connections between rounds.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum PoolName {
    /// They stay as they are
    Keep,
    /// COM_RESET_CONNECTION, as pools do
    Reset,
    /// COM_CHANGE_USER, as older pools do
    ChangeUser,
}

/// When the next round begins.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum StalePaceName {
    /// When every reader has shown the last write, as published
    Visible,
    /// When every reader has been read once: a reader can be several versions behind then
    Ack,
}

/// `replimeter stale`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter stale --sandbox galera:3 --writer node1 --reader node2
  replimeter stale --sandbox galera:3 --load oltp-mix:32@writer --sync-reads=off,on
  replimeter stale --sandbox async:1 --sandbox semi-sync:1 --sandbox galera:3 --sandbox mysql/group:3
  replimeter stale --node mysql://u@n1/ --node mysql://u@n2/ --rounds 10000 --offsets 0,1ms,2ms,5ms
  replimeter stale --sandbox galera:3 --sync-reads --pool reset     the known hole: a pooled connection forgets
  replimeter stale --sandbox async:2 --judge-load 4:8 --for 30s     reads of a load itself are judged
  replimeter stale --sandbox galera:3 --load versioned:8@node1 --load versioned:8@node2 --judge-load
  replimeter run plans/galera-stale-reads.toml                      the published experiment

Writes only to the schema `replimeter`, which it makes and drops. docs/stale.md explains every figure.")]
pub(crate) struct StaleArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    #[command(flatten)]
    pub(crate) measure: StaleMeasureArgs,

    #[command(flatten)]
    pub(crate) load: StaleLoadArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How it is measured.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measurement")]
pub(crate) struct StaleMeasureArgs {
    /// The server that is written to, by its name [default: the primary, or the first member]
    #[arg(long, value_name = "NODE")]
    pub(crate) writer: Option<String>,

    /// A server that is read, by its name; may be repeated; the writer itself is a null replica [default: every other server]
    #[arg(long, value_name = "NODE")]
    pub(crate) reader: Vec<String>,

    /// Rounds with a read at once [default: 1000]
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub(crate) rounds: Option<u64>,

    /// Measure for this long instead of a number of rounds, such as 60s; the curve takes at most as long again
    #[arg(long = "for", id = "duration", value_name = "TIME")]
    pub(crate) duration: Option<Span>,

    /// When after the acknowledgement the reads of the curve are issued: auto (from 0 beyond the longest delay seen), none, or times with commas [default: auto]
    #[arg(long, value_name = "TIME,…|auto|none")]
    pub(crate) offsets: Option<Offsets>,

    /// Rounds at each point of the curve [default: a fifth of --rounds, from 100 to 2000]
    #[arg(long, value_name = "N")]
    pub(crate) curve_rounds: Option<u64>,

    /// Make reads wait for what was acknowledged, and count what still is stale: on (what the server offers), before (wsrep_sync_wait, group_replication_consistency), after and before-and-after (a group's writer waits), gtid (the client waits for the write's GTID), off; several with commas are measured one after another [default: off; on when given without a value]
    #[arg(long, value_name = "LEVEL,…", value_delimiter = ',', num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub(crate) sync_reads: Vec<SyncReads>,

    /// What becomes of synchronous connections between two rounds: a pool that resets them forgets what makes reads wait; several with commas are measured one after another [default: keep]
    #[arg(long, value_enum, value_name = "POOL,…", value_delimiter = ',')]
    pub(crate) pool: Vec<PoolName>,

    /// When the next round begins [default: visible]
    #[arg(long, value_enum)]
    pub(crate) pace: Option<StalePaceName>,

    /// Rows that are written to [default: 500]
    #[arg(long, value_name = "N")]
    pub(crate) rows: Option<u32>,

    /// Rounds at the beginning that are not counted [default: 50]
    #[arg(long, value_name = "N")]
    pub(crate) warm_up: Option<u64>,

    /// End with an error when a write is not seen for so long (beyond a deliberate delay) [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Span>,

    /// What the random ids and the order of the curve's offsets are drawn from [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,

    /// Keep this machine's idle cores from halting, by spinners at idle priority [default: on for a sandbox]
    #[arg(long, value_enum, value_name = "ON|OFF")]
    pub(crate) keep_awake: Option<Switch>,

    /// Give the few measuring threads real-time priority, so that they do not wait behind servers on a busy core [default: on where permitted]
    #[arg(long, value_enum, value_name = "ON|OFF")]
    pub(crate) real_time: Option<Switch>,
}

/// What goes on while it is measured.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct StaleLoadArgs {
    /// Measure while THREADS connections run a workload on that server (docs/load.md); NODE may be writer, reader, readers (each of them) or third (neither); may be repeated, all run together
    #[arg(long, value_name = "WORKLOAD:THREADS@NODE")]
    pub(crate) load: Vec<LoadSpec>,

    /// Measure one case after another: `none`, or loads with ` + ` between them; may be repeated
    #[arg(long, value_name = "LOADS", conflicts_with = "load")]
    pub(crate) case: Vec<Case>,

    /// Begin so many operations of every load per second, whatever became of the ones before (open loop) [default: each thread back to back, a closed loop]
    #[arg(long, value_name = "R")]
    pub(crate) rate: Option<u64>,

    /// When the operations of a rate are due: constant, or poisson as many independent users would come [default: constant]
    #[arg(long, value_name = "HOW", requires = "rate")]
    pub(crate) arrivals: Option<Arrivals>,

    /// How much data the loads' workloads have: rows, such as 100000, or bytes on the disk, such as 300MB [default: what the workload says]
    #[arg(long, value_name = "SIZE")]
    pub(crate) load_size: Option<Size>,

    /// Judge the reads of the load itself in place of rounds, as far as its workloads name versions (docs/stale.md); or, with numbers, of so many connections that write versions and so many on each reader that read them
    #[arg(long, value_name = "WRITERS:READERS", num_args = 0..=1, default_missing_value = "load")]
    pub(crate) judge_load: Option<JudgeLoad>,
}

impl StaleArgs {
    /// The settings for a plan.
    pub(crate) fn spec(&self) -> StaleSpec {
        let Self { measure, load, .. } = self;
        let pools = measure.pool.iter().map(|pool| match pool {
            PoolName::Keep => Pool::Keep,
            PoolName::Reset => Pool::Reset,
            PoolName::ChangeUser => Pool::ChangeUser,
        });
        let case = |case: &Case| Case(case.0.iter().cloned().map(found_from_anywhere).collect());
        StaleSpec {
            writer: measure.writer.clone(),
            reader: OneOrMore::of(measure.reader.clone()),
            rounds: measure.rounds,
            duration: measure.duration,
            pace: measure.pace.map(|pace| match pace {
                StalePaceName::Visible => StalePace::Visible,
                StalePaceName::Ack => StalePace::Ack,
            }),
            rows: measure.rows,
            offsets: measure.offsets.clone(),
            curve_rounds: measure.curve_rounds,
            warm_up: measure.warm_up,
            sync_reads: OneOrMore::of(measure.sync_reads.clone()),
            pool: OneOrMore::of(pools.collect()),
            load: load.load.iter().cloned().map(found_from_anywhere).collect(),
            cases: load.case.iter().map(case).collect(),
            rate: load.rate,
            arrivals: load.arrivals,
            load_size: load.load_size,
            judge_load: load.judge_load,
            timeout: measure.timeout,
            keep_awake: measure.keep_awake.map(Switch::is_on),
            real_time: measure.real_time.map(Switch::is_on),
            seed: measure.seed,
        }
    }
}

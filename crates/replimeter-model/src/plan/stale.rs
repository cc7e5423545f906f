//! The settings of `stale`.

mod site;
mod values;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::site::StaleSite;
pub use self::values::{
    CheckedLoadReads, JudgedConnections, LoadCase, LoadRate, READERS, ReadConsistency, ReadDelays,
    SessionReset, StalePace,
};
use super::{
    PlanError, Settings, TargetSettings, WarmUp, contradiction,
    core_use::{CoreUse, ServerPlace},
    front::Remedy,
    one_or_more::OneOrMore,
    settings::on_off,
    site::Through,
    starts,
    stop_condition::StopCondition,
    units::{self, HOUR},
};
use crate::{
    load::{Arrivals, DataSize, LoadSpec},
    target::Target,
    time_span::TimeSpan,
};

/// Rows of the table, as published: the odd numbers up to about 1,000.
const DEFAULT_ROWS: u32 = 500;
/// Maximum number of rows.
const MAX_ROWS: u32 = 1_000_000;
/// The settings of `stale`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Measurement")]
pub struct StaleSettings {
    /// Server to write to, by name [default: the primary, or the first member]
    #[arg(long, value_name = "NODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<String>,

    /// Server to read from, by name; may be repeated [default: all others]
    ///
    /// The writer itself is a null replica.
    #[arg(long, value_name = "NODE")]
    #[serde(with = "OneOrMore::<String>", skip_serializing_if = "Option::is_none")]
    pub reader: Option<Vec<String>>,

    /// Number of rounds with an immediate read [default: {default}]
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,

    /// Measure for this time instead of a number of rounds, such as 60s
    ///
    /// The curve takes at most the same time again.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<TimeSpan>,

    /// Fresh starts of the servers, which share the rounds [default: at most 10]
    ///
    /// Starts differ more than the rounds of one, so only several starts show what another run would give. The default
    /// is one start for each 100 rounds or second, and 1 for servers that run already. Each start has its own load and data.
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts: Option<u32>,

    /// Spread the starts over this time, such as 1h [default: one after another]
    ///
    /// The run measures as much as without it, and waits between the starts. Ten starts in half a minute share its minutes
    /// of the machine; spread over hours, their interval covers hours.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<TimeSpan>,

    /// Delays of the curve's reads after the acknowledgement [default: {default}]
    ///
    /// auto (from 0 to beyond the longest delay seen), none, or times with commas.
    #[arg(long, value_name = "TIME,…|auto|none")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_delays: Option<ReadDelays>,

    /// Rounds at each point of the curve [default: rounds / 5; 200 with --duration]
    ///
    /// The default is from 100 to 2000.
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve_rounds: Option<u64>,

    /// Make reads wait for acknowledged writes; count those still stale [default: {default}]
    ///
    /// on (what the server offers), before (wsrep_sync_wait, group_replication_consistency), after and
    /// before-and-after (a group's writer waits), gtid (the client waits for the write's GTID), or off; without a
    /// value: on. Several with commas are measured one after another.
    #[arg(long, value_name = "LEVEL,…", value_delimiter = ',', num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    #[serde(
        with = "OneOrMore::<ReadConsistency>",
        skip_serializing_if = "Option::is_none"
    )]
    pub read_consistency: Option<Vec<ReadConsistency>>,

    /// What to do with synchronized connections between rounds [default: keep]
    ///
    /// A connection pool that resets a connection loses what makes its reads wait. Several with commas are measured
    /// one after another.
    #[arg(long, value_name = "POOL,…", value_delimiter = ',')]
    #[serde(
        with = "OneOrMore::<SessionReset>",
        skip_serializing_if = "Option::is_none"
    )]
    pub session_reset: Option<Vec<SessionReset>>,

    /// When the next round begins [default: {default}]
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<StalePace>,

    /// Number of rows to write to [default: {default}]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u32>,

    /// Uncounted rounds, or time, of each start [default: {default}; 50 for one start]
    ///
    /// A number of rounds (50), or a time (2s): rounds that begin before it has passed are not counted.
    #[arg(long, value_name = "N|TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUp>,

    /// Fail if a write is not visible within this time [default: {default}]
    ///
    /// A replica's deliberate delay is added to it.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<TimeSpan>,

    /// Seed of the random row ids, and of the order of the read delays [default: {default}]
    #[arg(long, value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,

    /// Keep cores awake [default: on for a new sandbox with at most one load thread]
    ///
    /// Spinners at idle priority do it: a core that has to wake up delays what is measured. A load of more than
    /// one thread keeps the cores busy, and the spinners would cost it throughput.
    #[arg(long, value_name = "ON|OFF", value_parser = on_off(), help_heading = "Client")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,

    /// Give measuring threads real-time priority [default: on without local servers]
    ///
    /// They then do not wait for a busy core. Where servers run on this machine they would take its cores from them, which
    /// raises the lag.
    #[arg(long, value_name = "ON|OFF", value_parser = on_off(), help_heading = "Client")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_time: Option<bool>,

    /// How writes and reads reach the servers [default: {default}]
    ///
    /// With http a visitor of a small site posts, and reloads the page until the post is there: through HAProxy, then a
    /// front, then a server.
    #[arg(long, value_name = "HOW", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<Through>,

    /// Number of fronts of the site [default: 2]
    ///
    /// Several are behind HAProxy.
    #[arg(long, value_name = "N", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fronts: Option<u32>,

    /// Processor time that a front adds to each request, such as 500us [default: 0us]
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub front_cost: Option<TimeSpan>,

    /// Remedies of the site, measured one after another [default: all]
    ///
    /// Those that the servers do not support are left out, if others remain.
    #[arg(
        long,
        value_name = "REMEDY,…",
        value_delimiter = ',',
        help_heading = "Load"
    )]
    #[serde(with = "OneOrMore::<Remedy>", skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Vec<Remedy>>,

    /// Time after a post for which primary-for reads the primary [default: 2s]
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_for: Option<TimeSpan>,

    /// Keep the visitor's connection [default: both, one after the other]
    ///
    /// Without, every request has a connection of its own.
    #[arg(long, value_name = "ON|OFF", value_parser = on_off(), help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<bool>,

    /// Run a workload during the measurement; may be repeated
    ///
    /// THREADS connections to the server NODE run it over and over; `replimeter load --help` lists the
    /// workloads. NODE may be writer, reader,
    /// readers (each of them) or third (neither). All loads run together.
    #[arg(long, value_name = "WORKLOAD:THREADS@NODE", help_heading = "Load")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub load: Vec<LoadSpec>,

    /// Case: `none`, or loads joined by ` + `; may be repeated [default: {default}]
    ///
    /// A case is the load during the rounds. Cases are measured one after another.
    #[arg(
        long = "case",
        value_name = "LOADS",
        conflicts_with = "load",
        help_heading = "Load"
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<LoadCase>,

    /// Operations of every load per second (open loop) [default: back to back]
    ///
    /// An operation starts on schedule, without waiting for earlier ones. Without it, each thread starts its next
    /// operation when the last one has ended (closed loop). 60% is this share of what the load reaches back to back
    /// in three seconds before its case; a load of less than ten operations in them stays back to back.
    #[arg(long, value_name = "R|P%", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<LoadRate>,

    /// When operations start: constant or poisson [default: constant]
    ///
    /// poisson: as those of many independent users.
    #[arg(long, value_name = "HOW", requires = "rate", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,

    /// Data of the loads: rows (100000) or bytes (300MB) [default: the workload's]
    ///
    /// Bytes are on disk.
    #[arg(long, value_name = "SIZE", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_data_size: Option<DataSize>,

    /// Check the load's own reads for staleness, instead of rounds
    ///
    /// Its workloads have to write and read versions, as versioned, versioned-update and versioned-select do. WRITERS:READERS adds such a load: that many connections
    /// that write versions, and that many on each reader that read them.
    #[arg(long, value_name = "WRITERS:READERS", num_args = 0..=1, default_missing_value = "load", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_load_reads: Option<CheckedLoadReads>,
}

/// A `stale` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StalePlan {
    /// Server to write to; determined from the topology when `None`.
    pub writer: Option<String>,
    /// Servers to read; all others when empty.
    pub readers: Vec<String>,
    /// When the rounds with an immediate read end.
    pub until: StopCondition,
    /// Fresh starts of the servers, which share the rounds.
    pub starts: u32,
    /// The time over which the starts are spread.
    pub over: Option<TimeSpan>,
    /// When the next round begins.
    pub pace: StalePace,
    /// Rows of the table.
    pub rows: u32,
    /// Scheduled times of the curve's reads.
    pub read_delays: ReadDelays,
    /// Rounds at each point of the curve.
    pub curve_rounds: u64,
    /// The warm-up, which is not counted.
    pub warm_up: WarmUp,
    /// Ways in which reads wait, measured one after another; never empty.
    pub read_consistency: Vec<ReadConsistency>,
    /// Ways to reset synchronous connections between rounds, measured one after another; never empty.
    pub session_resets: Vec<SessionReset>,
    /// Background loads, one case after another; never empty.
    pub cases: Vec<LoadCase>,
    /// Rate of every load.
    pub rate: Option<LoadRate>,
    /// Distribution of due times in an open loop.
    pub arrivals: Arrivals,
    /// Size of the loads' data; `None` for each workload's default.
    pub load_data_size: Option<DataSize>,
    /// Check the loads' own reads, in place of rounds.
    pub check_load_reads: bool,
    /// The site that writes and reads go through; `None` for connections to the servers.
    pub site: Option<StaleSite>,
    /// Timeout for a write to become visible.
    pub timeout: TimeSpan,
    /// How the client uses the cores of this machine.
    pub cores: CoreUse,
    /// Seed of the random ids and of the order of the read delays.
    pub seed: u64,
}

impl StalePlan {
    /// Returns what the start with this number measures, from 1.
    #[must_use]
    pub fn of_start(&self, start: u32) -> Self {
        Self {
            until: starts::part(self.until, start, self.starts),
            curve_rounds: starts::share_of_start(self.curve_rounds, start, self.starts),
            seed: starts::seed(self.seed, start),
            ..self.clone()
        }
    }

    /// Returns a start's part of a number of rounds that the run has at most or at least.
    #[must_use]
    pub fn part(&self, rounds: u64) -> u64 {
        (rounds / u64::from(self.starts)).max(1)
    }
}

impl Settings for StaleSettings {
    const NAME: &'static str = "stale";
    type Plan = StalePlan;

    fn plan(&mut self, target: &mut TargetSettings) -> Result<(Vec<Target>, StalePlan), PlanError> {
        let warm_up = self.warm_up.and_then(WarmUp::as_time);
        units::check_at_most("warm-up", warm_up, HOUR, "a warm-up")?;
        let what = "the timeout for a write";
        units::check_at_most("timeout", self.timeout, HOUR, what)?;
        let targets = target.plan()?;
        starts::only_of_sandboxes(&mut self.starts, &targets)?;
        let until = StopCondition::of(self.rounds, self.duration)?;
        let rows = self.rows.unwrap_or(DEFAULT_ROWS);
        if !(1..=MAX_ROWS).contains(&rows) {
            return Err(PlanError::Contradiction(format!(
                "rows must be from 1 to {MAX_ROWS}"
            )));
        }
        let timeout = *self.timeout.get_or_insert(TimeSpan::from_secs(10));
        if timeout.0.is_zero() {
            return contradiction("timeout must be above 0; the default is 10s");
        }
        let cases = self.cases()?;
        let site = self.site()?;
        if site.is_some() && targets.iter().any(|one| matches!(one, Target::Nodes(_))) {
            return contradiction(
                "through = http needs a sandbox; for a site in front of your own servers use replimeter front",
            );
        }
        let levels = self
            .read_consistency
            .get_or_insert_with(|| vec![ReadConsistency::Off]);
        let read_consistency = distinct(levels, "read-consistency")?;
        let resets = self
            .session_reset
            .clone()
            .unwrap_or_else(|| vec![SessionReset::Keep]);
        let session_resets = distinct(&resets, "session-reset")?;
        if session_resets != [SessionReset::Keep] && read_consistency == [ReadConsistency::Off] {
            return contradiction(
                "session-reset requires synchronous reads, whose settings a reset removes; add read-consistency",
            );
        }
        self.session_reset =
            Some(session_resets.clone()).filter(|resets| *resets != [SessionReset::Keep]);
        let readers = self.reader.clone().unwrap_or_default();
        for (index, reader) in readers.iter().enumerate() {
            if readers[..index].contains(reader) {
                return Err(PlanError::Contradiction(format!(
                    "the reader `{reader}` is given twice"
                )));
            }
        }
        let judged = self.check_load_reads.is_some();
        let until = if judged {
            self.check_judged(&cases, &read_consistency, &session_resets)?
        } else {
            until
        };
        let starts = starts::number(self.starts, until)?;
        let usual = match until {
            StopCondition::Rounds(rounds) => (rounds / 5).clamp(100, 2000),
            StopCondition::Elapsed(_) => 200,
        };
        let curve_rounds = self.curve_rounds.unwrap_or(usual);
        if curve_rounds == 0 {
            return contradiction(
                "curve-rounds must be above 0; for no curve give read-delays none",
            );
        }
        let threads = |case: &LoadCase| case.0.iter().map(|load| load.threads).sum();
        let most_threads = cases.iter().map(threads).max().unwrap_or(0);
        // A site's threads are many.
        let most_threads = most_threads.max(if site.is_some() { 2 } else { 0 });
        let plan = StalePlan {
            writer: self.writer.clone(),
            readers,
            until,
            starts,
            over: starts::over(self.over, starts)?,
            pace: self.pace.unwrap_or_default(),
            // For a load whose reads are checked it was the size of its data.
            rows: if judged { DEFAULT_ROWS } else { rows },
            read_delays: self.read_delays.clone().unwrap_or_default(),
            curve_rounds,
            warm_up: *self.warm_up.get_or_insert(starts::warm_up(starts)),
            read_consistency,
            session_resets,
            cases,
            rate: self.rate,
            arrivals: self.arrivals.unwrap_or_default(),
            load_data_size: self.load_data_size.or_else(|| {
                self.rows
                    .filter(|_| judged)
                    .map(|rows| DataSize::Rows(rows.into()))
            }),
            check_load_reads: judged,
            site,
            timeout,
            cores: CoreUse::decide(
                &mut self.keep_awake,
                Some(&mut self.real_time),
                most_threads,
                ServerPlace::of(&targets),
            ),
            seed: *self.seed.get_or_insert(1),
        };
        self.fill(&plan);
        Ok((targets, plan))
    }

    fn workloads(&mut self) -> Vec<&mut String> {
        let cases = self.cases.iter_mut().flat_map(|case| &mut case.0);
        let loads = self.load.iter_mut().chain(cases);
        loads.map(|load| &mut load.workload).collect()
    }
}

impl StaleSettings {
    /// Returns the loads of each case.
    fn cases(&self) -> Result<Vec<LoadCase>, PlanError> {
        if !self.load.is_empty() && !self.cases.is_empty() {
            return contradiction("load is a case of its own; give either load or cases");
        }
        let mut cases = if self.cases.is_empty() {
            vec![LoadCase(self.load.clone())]
        } else {
            self.cases.clone()
        };
        for (index, case) in cases.iter().enumerate() {
            if cases[..index].contains(case) {
                return Err(PlanError::Contradiction(format!(
                    "the case `{case}` is given twice"
                )));
            }
        }
        if let Some(CheckedLoadReads::Own(judged)) = self.check_load_reads {
            cases
                .iter_mut()
                .for_each(|case| case.0.extend(judged.loads()));
        }
        if self.rate.is_some() && cases.iter().all(|case| case.0.is_empty()) {
            return contradiction("a rate requires a load; add load, such as oltp-mix:32@node1");
        }
        let all_visible = self.check_load_reads.is_none() && self.pace != Some(StalePace::Ack);
        if matches!(self.rate, Some(LoadRate::Percent(_))) && !all_visible {
            return contradiction(
                "a rate as a share is found back to back, which can leave the readers behind when the counted reads begin: for check-load-reads and pace ack give operations per second",
            );
        }
        if self.arrivals.is_some() && self.rate.is_none() {
            return contradiction("arrivals requires a rate; add rate, such as 2000");
        }
        if self.load_data_size.is_some() && cases.iter().all(|case| case.0.is_empty()) {
            return contradiction(
                "load-data-size requires a load; add load, such as oltp-mix:32@node1",
            );
        }
        Ok(cases)
    }

    /// Rejects settings that do not apply to a load whose reads are checked; returns its duration.
    fn check_judged(
        &self,
        cases: &[LoadCase],
        read_consistency: &[ReadConsistency],
        session_resets: &[SessionReset],
    ) -> Result<StopCondition, PlanError> {
        if cases.iter().any(|case| case.0.is_empty()) {
            return contradiction(
                "check-load-reads requires a load: add load, such as versioned-update:4@writer and versioned-select:8@reader, or give check-load-reads 4:8 for these",
            );
        }
        if read_consistency.contains(&ReadConsistency::Gtid) {
            return contradiction(
                "check-load-reads adds no statements, so reads cannot wait for a GTID: read-consistency may be off, before, after, before-and-after",
            );
        }
        if self.read_delays.is_some() || self.curve_rounds.is_some() || self.pace.is_some() {
            return contradiction(
                "check-load-reads has no rounds, and the load's reads make the curve: leave out read-delays, curve-rounds and pace",
            );
        }
        if self.rounds.is_some() {
            return contradiction("check-load-reads has no rounds: give a duration, such as 30s");
        }
        if session_resets != [SessionReset::Keep] {
            return contradiction("check-load-reads keeps connections; leave out session-reset");
        }
        Ok(StopCondition::Elapsed(
            self.duration.unwrap_or(TimeSpan::from_secs(30)),
        ))
    }

    /// Writes the plan's values into the settings.
    fn fill(&mut self, plan: &StalePlan) {
        let rounds = !plan.check_load_reads;
        let direct = rounds && plan.site.is_none();
        (self.rounds, self.duration) = plan.until.rounds_and_duration();
        self.starts = Some(plan.starts);
        self.pace = direct.then_some(plan.pace);
        self.rows = direct.then_some(plan.rows);
        self.read_delays = rounds.then(|| plan.read_delays.clone());
        self.curve_rounds = rounds.then_some(plan.curve_rounds);
        self.load = Vec::new();
        self.cases.clone_from(&plan.cases);
        self.arrivals = plan.rate.map(|_| plan.arrivals);
        self.load_data_size = plan.load_data_size;
        self.check_load_reads = plan.check_load_reads.then_some(CheckedLoadReads::Load);
    }
}

/// Rejects duplicates.
fn distinct<T: PartialEq + Clone>(values: &[T], what: &str) -> Result<Vec<T>, PlanError> {
    if values.is_empty() {
        return Err(PlanError::Contradiction(format!(
            "the list of {what} is empty"
        )));
    }
    for (index, value) in values.iter().enumerate() {
        if values[..index].contains(value) {
            return Err(PlanError::Contradiction(format!(
                "one of {what} is given twice"
            )));
        }
    }
    Ok(values.to_vec())
}

#[cfg(test)]
mod tests;

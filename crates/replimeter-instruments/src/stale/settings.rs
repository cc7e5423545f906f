//! The settings of `stale`.

mod site;
mod values;

use replimeter_model::{
    load::{Arrivals, DataSize, LoadRate, LoadSpec},
    plan::{
        PlanError, Settings, TargetSettings, WarmUp,
        checks::{HOUR, above_zero, at_most, distinct, first_twice, from_to},
        contradiction,
        core_use::{CoreUse, ServerPlace},
        on_off, starts,
        stop_condition::{DEFAULT_ROUNDS, StopCondition},
        warm_up,
    },
    read_consistency::ReadConsistency,
    settings,
    target::Target,
    time_span::TimeSpan,
};

pub use self::{
    site::StaleSite,
    values::{
        CheckedLoadReads, JudgedConnections, LoadCase, READERS, ReadDelays, SessionReset, StalePace,
    },
};
use crate::front::{
    settings::{PRIMARY_FOR, Remedy, check_primary_for},
    site::{DEFAULT_FRONTS, MAX_FRONTS, SitePlan, Through, check_cost},
};

/// Rows of the table, as published: the odd numbers up to about 1,000.
const DEFAULT_ROWS: u32 = 500;
/// Maximum number of rows.
const MAX_ROWS: u32 = 1_000_000;
/// Default duration of a load whose own reads are checked.
const CHECK_DURATION: TimeSpan = TimeSpan::from_secs(30);

settings! {
    /// The settings of `stale`.
    StaleSettings;
    /// A `stale` measurement.
    StalePlan(given, targets);

    [Measurement]
    /// Server to write to, by name [default: the primary, or the first member]
    writer "NODE": Option<String>;

    /// Server to read from, by name; may be repeated [default: all others]
    ///
    /// The writer itself is a null replica.
    #[serde(with = "replimeter_model::plan::OneOrMore::<String>")]
    reader "NODE" if (!reader.is_empty()): Vec<String> = Vec::new();

    /// Number of rounds with an immediate read [default: {default}]
    #[arg(conflicts_with = "duration")]
    only rounds "N" if (given.has_rounds() && given.duration.is_none()): u64 = DEFAULT_ROUNDS;

    /// Measure for this time instead of a number of rounds, such as 60s
    ///
    /// The curve takes at most the same time again.
    only duration "TIME" if (given.rounds.is_none()): TimeSpan = CHECK_DURATION;

    /// Fresh starts of the servers, which share the rounds [default: at most 10]
    ///
    /// Starts differ more than the rounds of one, so only several starts show what another run would give. The default
    /// is one start for each 100 rounds or second, and 1 for servers that run already. Each start has its own load and data.
    starts "N": u32 = starts::enough_for(given.until()?), starts::share(given.until()?);

    /// Spread the starts over this time, such as 1h [default: one after another]
    ///
    /// The run measures as much as without it, and waits between the starts. Ten starts in half a minute share its minutes
    /// of the machine; spread over hours, their interval covers hours.
    over "TIME": Option<TimeSpan>, starts::spread(starts);

    /// Delays of the curve's reads after the acknowledgement [default: {default}]
    ///
    /// auto (from 0 to beyond the longest delay seen), none, or times with commas.
    read_delays "TIME,…|auto|none" if (given.has_rounds()): ReadDelays = ReadDelays::default();

    /// Rounds at each point of the curve [default: rounds / 5; 200 with --duration]
    ///
    /// The default is from 100 to 2000.
    curve_rounds "N" if (given.has_rounds()): u64 = match given.rounds {
        Some(rounds) => (rounds / 5).clamp(100, 2000),
        None => 200,
    }, above_zero("; for no curve give read-delays none");

    /// Make reads wait for acknowledged writes; count those still stale [default: {default}]
    ///
    /// on (what the server offers), before (wsrep_sync_wait, group_replication_consistency), after and
    /// before-and-after (a group's writer waits), gtid (the client waits for the write's GTID), or off; without a
    /// value: on. Several with commas are measured one after another.
    #[arg(value_delimiter = ',', num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    #[serde(with = "replimeter_model::plan::OneOrMore::<ReadConsistency>")]
    read_consistency "LEVEL,…": Vec<ReadConsistency> = vec![ReadConsistency::Off], distinct;

    /// What to do with synchronized connections between rounds [default: keep]
    ///
    /// A connection pool that resets a connection loses what makes its reads wait. Several with commas are measured
    /// one after another.
    #[arg(value_delimiter = ',')]
    #[serde(with = "replimeter_model::plan::OneOrMore::<SessionReset>")]
    session_reset "POOL,…" if (session_reset != [SessionReset::Keep]): Vec<SessionReset> = vec![SessionReset::Keep], distinct;

    /// When the next round begins [default: {default}]
    pace if (given.is_direct()): StalePace = StalePace::default();

    /// Number of rows to write to [default: {default}]
    only rows "N" if (given.is_direct()): u32 = DEFAULT_ROWS, from_to(1, MAX_ROWS, "");

    /// Uncounted rounds, or time, of each start [default: {default}; 50 for one start]
    ///
    /// A number of rounds (50), or a time (2s): rounds that begin before it has passed are not counted.
    warm_up "N|TIME": WarmUp = starts::warm_up(starts), warm_up::of_rounds;

    /// Fail if a write is not visible within this time [default: {default}]
    ///
    /// A replica's deliberate delay is added to it.
    timeout "TIME": TimeSpan = TimeSpan::from_secs(10), at_most(HOUR, "the timeout for a write"), above_zero("; the default is 10s");

    /// Seed of the random row ids, and of the order of the read delays [default: {default}]
    seed "NUMBER": u64 = 1;

    /// Keep cores awake [default: on for a new sandbox with at most one load thread]
    keep_awake_under_load;
    real_time;

    [Load]
    /// How writes and reads reach the servers [default: {default}]
    ///
    /// With http a visitor of a small site posts, and reloads the page until the post is there: through HAProxy, then a
    /// front, then a server.
    only through "HOW": Through = Through::Direct;

    /// Number of fronts of the site [default: 2]
    ///
    /// Several are behind HAProxy.
    only fronts "N" if (through == Through::Http) else "through = http": u32 = DEFAULT_FRONTS, from_to(1, MAX_FRONTS, "");

    /// Processor time that a front adds to each request, such as 500us [default: 0us]
    only front_cost "TIME" if (through == Through::Http) else "through = http": TimeSpan = TimeSpan::default(), check_cost;

    /// Remedies of the site, measured one after another [default: all]
    ///
    /// Those that the servers do not support are left out, if others remain.
    #[arg(value_delimiter = ',')]
    #[serde(with = "replimeter_model::plan::OneOrMore::<Remedy>")]
    only remedy "REMEDY,…" if (through == Through::Http) else "through = http": Vec<Remedy> = vec![
        Remedy::None,
        Remedy::Sticky,
        Remedy::WaitForCommit,
        Remedy::PrimaryFor,
        Remedy::PrimaryAlways,
    ], distinct;

    /// Time after a post for which primary-for reads the primary [default: 2s]
    only primary_for "TIME" if (through == Through::Http && remedy.contains(&Remedy::PrimaryFor)) else "remedy = primary-for":
        TimeSpan = PRIMARY_FOR, check_primary_for;

    /// Keep the visitor's connection [default: both, one after the other]
    ///
    /// Without, every request has a connection of its own.
    #[arg(value_parser = on_off())]
    only keep_alive "ON|OFF" if (through == Through::Http) else "through = http": Option<bool>;

    /// Run a workload during the measurement; may be repeated
    ///
    /// THREADS connections to the server NODE run it over and over; `replimeter load --help` lists the
    /// workloads. NODE may be writer, reader,
    /// readers (each of them) or third (neither). All loads run together.
    only load "WORKLOAD:THREADS@NODE": Vec<LoadSpec>;

    /// Case: `none`, or loads joined by ` + `; may be repeated [default: {default}]
    ///
    /// A case is the load during the rounds. Cases are measured one after another.
    #[arg(long = "case", conflicts_with = "load")]
    cases "LOADS": Vec<LoadCase>;

    /// Operations of every load per second (open loop) [default: back to back]
    ///
    /// An operation starts on schedule, without waiting for earlier ones. Without it, each thread starts its next
    /// operation when the last one has ended (closed loop). 60% is this share of what the load reaches back to back
    /// in three seconds before its case; a load of less than ten operations in them stays back to back.
    rate "R|P%": Option<LoadRate>;

    /// When operations start: constant or poisson [default: constant]
    ///
    /// poisson: as those of many independent users.
    #[arg(requires = "rate")]
    arrivals "HOW" if (rate.is_some()) else "a rate; add rate, such as 2000": Arrivals = Arrivals::default();

    /// Data of the loads: rows (100000) or bytes (300MB) [default: the workload's]
    ///
    /// Bytes are on disk.
    load_data_size "SIZE": Option<DataSize>;

    /// Check the load's own reads for staleness, instead of rounds
    ///
    /// Its workloads have to write and read versions, as versioned, versioned-update and versioned-select do. WRITERS:READERS adds such a load: that many connections
    /// that write versions, and that many on each reader that read them.
    #[arg(num_args = 0..=1, default_missing_value = "load")]
    only check_load_reads "WRITERS:READERS": Option<CheckedLoadReads>;

    plan
    /// When the rounds with an immediate read end.
    until: StopCondition = given.until()?;
    /// Rows of the table.
    rows: u32 = if given.has_rounds() { rows } else { DEFAULT_ROWS };
    /// Check the loads' own reads, in place of rounds.
    check_load_reads: bool = !given.has_rounds();
    /// The site that writes and reads go through; `None` for connections to the servers.
    site: Option<StaleSite> = (through == Through::Http).then(|| StaleSite {
        site: SitePlan { fronts, cost: front_cost },
        remedies: remedy,
        primary_for,
        keep_alive: keep_alive.map_or_else(|| vec![true, false], |one| vec![one]),
    });
    /// How the client uses the cores of this machine.
    cores: CoreUse = CoreUse::decide(
        &mut given.keep_awake,
        Some(&mut given.real_time),
        most_threads(&cases, site.is_some()),
        ServerPlace::of(targets),
    );
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
        let targets = target.plan()?;
        starts::only_of_sandboxes(&mut self.starts, &targets)?;
        self.until()?;
        self.cases = self.cases()?;
        self.load.clear();
        self.check_site(&targets)?;
        if self.check_load_reads.is_some() {
            self.check_judged()?;
            self.check_load_reads = Some(CheckedLoadReads::Load);
            let rows = self.rows.map(|rows| DataSize::Rows(rows.into()));
            self.load_data_size = self.load_data_size.or(rows);
        }
        let plan = Self::resolve(self, &targets)?;
        if plan.session_reset != [SessionReset::Keep]
            && plan.read_consistency == [ReadConsistency::Off]
        {
            return contradiction(
                "session-reset requires synchronous reads, whose settings a reset removes; add read-consistency",
            );
        }
        if let Some(reader) = first_twice(&plan.reader) {
            return contradiction(format!("the reader `{reader}` is given twice"));
        }
        Ok((targets, plan))
    }

    fn workloads(&mut self) -> Vec<&mut String> {
        let cases = self.cases.iter_mut().flat_map(|case| &mut case.0);
        let loads = self.load.iter_mut().chain(cases);
        loads.map(|load| &mut load.workload).collect()
    }
}

impl StaleSettings {
    /// Returns whether it has rounds, and does not check a load's own reads.
    fn has_rounds(&self) -> bool {
        self.check_load_reads.is_none()
    }

    /// Returns whether its rounds are over connections to the servers.
    fn is_direct(&self) -> bool {
        self.has_rounds() && self.through != Some(Through::Http)
    }

    /// Returns when the run ends.
    fn until(&self) -> Result<StopCondition, PlanError> {
        let until = StopCondition::of(self.rounds, self.duration)?;
        Ok(match until {
            StopCondition::Rounds(_) if !self.has_rounds() => {
                StopCondition::Elapsed(CHECK_DURATION)
            }
            until => until,
        })
    }

    /// Returns the loads of each case.
    fn cases(&self) -> Result<Vec<LoadCase>, PlanError> {
        if !self.load.is_empty() && !self.cases.is_empty() {
            return contradiction("load is a case of its own; give either load or cases");
        }
        let mut cases = self.cases.clone();
        if cases.is_empty() {
            cases.push(LoadCase(self.load.clone()));
        }
        if let Some(case) = first_twice(&cases) {
            return contradiction(format!("the case `{case}` is given twice"));
        }
        if let Some(CheckedLoadReads::Own(judged)) = self.check_load_reads {
            cases
                .iter_mut()
                .for_each(|case| case.0.extend(judged.loads()));
        }
        let no_load = cases.iter().all(|case| case.0.is_empty());
        if self.rate.is_some() && no_load {
            return contradiction("a rate requires a load; add load, such as oltp-mix:32@node1");
        }
        let all_visible = self.has_rounds() && self.pace != Some(StalePace::Ack);
        if matches!(self.rate, Some(LoadRate::Percent(_))) && !all_visible {
            return contradiction(
                "a rate as a share is found back to back, which can leave the readers behind when the counted reads begin: for check-load-reads and pace ack give operations per second",
            );
        }
        if self.load_data_size.is_some() && no_load {
            return contradiction(
                "load-data-size requires a load; add load, such as oltp-mix:32@node1",
            );
        }
        Ok(cases)
    }

    /// Rejects settings that do not apply to a load whose reads are checked.
    fn check_judged(&self) -> Result<(), PlanError> {
        if self.cases.iter().any(|case| case.0.is_empty()) {
            return contradiction(
                "check-load-reads requires a load: add load, such as versioned-update:4@writer and versioned-select:8@reader, or give check-load-reads 4:8 for these",
            );
        }
        let mut levels = self.read_consistency.iter().flatten();
        if levels.any(|level| *level == ReadConsistency::Commit) {
            return contradiction(format!(
                "check-load-reads adds no statements, so read-consistency cannot be {}; it may be off, before, after, before-and-after",
                ReadConsistency::Commit
            ));
        }
        if self.read_delays.is_some() || self.curve_rounds.is_some() || self.pace.is_some() {
            return contradiction(
                "check-load-reads has no rounds, and the load's reads make the curve: leave out read-delays, curve-rounds and pace",
            );
        }
        if self.rounds.is_some() {
            return contradiction("check-load-reads has no rounds: give a duration, such as 30s");
        }
        let mut resets = self.session_reset.iter().flatten();
        if resets.any(|reset| *reset != SessionReset::Keep) {
            return contradiction("check-load-reads keeps connections; leave out session-reset");
        }
        Ok(())
    }
}

/// Returns the largest number of threads of a case.
fn most_threads(cases: &[LoadCase], through_site: bool) -> u32 {
    let threads = |case: &LoadCase| case.0.iter().map(|load| load.threads).sum();
    let most = cases.iter().map(threads).max().unwrap_or(0);
    // A site's threads are many.
    if through_site { most.max(2) } else { most }
}

#[cfg(test)]
mod tests;

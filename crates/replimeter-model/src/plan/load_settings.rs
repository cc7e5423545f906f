//! The settings of `load`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    PlanError, Settings, TargetSettings, WarmUp, contradiction,
    core_use::{CoreUse, ServerPlace},
    one_or_more::OneOrMore,
    settings::on_off,
    units::{self, HOUR},
};
use crate::{
    load::{Arrivals, DataSize, MAX_THREADS, OpenLoop, ReadTarget, ThreadCount},
    target::{NodeSpec, PRIMARY, Role, Target},
    time_span::TimeSpan,
};

/// Maximum number of thread counts in one run.
const MAX_STEPS: usize = 64;

/// The settings of `load`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Load")]
pub struct LoadSettings {
    /// Workload to run: a name, or the path of a file; may be repeated [default: {default}]
    ///
    /// Several run concurrently.
    #[arg(long, value_name = "WORKLOAD")]
    #[serde(with = "OneOrMore::<String>", skip_serializing_if = "Option::is_none")]
    pub workload: Option<Vec<String>>,

    /// Connections of each workload; several numbers run one after another [default: {default}]
    ///
    /// `auto` measures 1, 2, 4 and so on, until the throughput no longer rises.
    #[arg(long, value_name = "T,…|auto", value_delimiter = ',')]
    #[serde(
        with = "OneOrMore::<ThreadCount>",
        skip_serializing_if = "Option::is_none"
    )]
    pub threads: Option<Vec<ThreadCount>>,

    /// Connections that each workload opens per second [default: no limit]
    ///
    /// At most 32 of a client thread log in at a time, also when lost connections are opened again.
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_rate: Option<u32>,

    /// Operations of each workload per second (open loop) [default: back to back]
    ///
    /// An operation starts on schedule, without waiting for earlier ones. Without it, each thread starts its next
    /// operation when the last one has ended (closed loop).
    #[arg(long, value_name = "R")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,

    /// When operations start: constant or poisson [default: constant]
    ///
    /// poisson: as those of many independent users.
    #[arg(long, value_name = "HOW", requires = "rate")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,

    /// Count for this time, after the warm-up [default: {default}; threads auto: 5s]
    #[arg(long, value_name = "TIME", help_heading = "Measurement")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<TimeSpan>,

    /// Uncounted time at the beginning [default: {default}]
    ///
    /// A time, such as 2s: without rounds, a number has no meaning.
    #[arg(long, value_name = "TIME", help_heading = "Measurement")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUp>,

    /// Size of the data: rows (100000) or bytes (300MB) [default: the workload's]
    ///
    /// Bytes are on disk.
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_size: Option<DataSize>,

    /// Where workloads that only read run: replicas, primary or all [default: {default}]
    #[arg(long, value_name = "WHERE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<ReadTarget>,

    /// Keep the data for a later run with the same data size
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_data: bool,

    /// Fail if a replica has not received the data within this time [default: {default}]
    #[arg(long, value_name = "TIME", help_heading = "Measurement")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<TimeSpan>,

    /// Keep cores awake [default: on for a new sandbox with one load thread]
    ///
    /// Spinners at idle priority do it: a core that has to wake up delays what is measured. A load of more than
    /// one thread keeps the cores busy, and the spinners would cost it throughput.
    #[arg(long, value_name = "ON|OFF", value_parser = on_off(), help_heading = "Client")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,
}

/// A `load` run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadRunPlan {
    /// Workloads by their names or paths; never empty.
    pub workloads: Vec<String>,
    /// Connections of each workload, one number after another; never empty.
    pub threads: Vec<u32>,
    /// Whether the run ends with the number from which the throughput no longer rises.
    pub until_saturated: bool,
    /// Connections of each workload that are opened per second.
    pub connect_rate: Option<u32>,
    /// Schedule of each workload; `None` for a closed loop.
    pub rate: Option<OpenLoop>,
    /// Counted duration.
    pub duration: TimeSpan,
    /// Duration of the warm-up.
    pub warm_up: TimeSpan,
    /// Size of the data; `None` for each workload's default.
    pub data_size: Option<DataSize>,
    /// Servers of workloads that only read.
    pub reads: ReadTarget,
    /// Whether the data is kept.
    pub keep_data: bool,
    /// Timeout for a replica to receive the data.
    pub timeout: TimeSpan,
    /// How the client uses the cores of this machine.
    pub cores: CoreUse,
}

/// A load needs no replica: the user's primary may be a standalone server.
fn alone(target: &mut TargetSettings) {
    if target.replicas.is_empty()
        && target.nodes.is_empty()
        && let Some(url) = target.primary.take()
    {
        target.nodes = vec![NodeSpec {
            name: PRIMARY.to_owned(),
            role: Some(Role::Primary),
            source: None,
            url,
        }];
    }
}

/// Returns 1, 2, 4 and so on, to the maximum number of threads.
fn doublings() -> Vec<u32> {
    let numbers = std::iter::successors(Some(1), |number| Some(number * 2));
    numbers
        .take_while(|number| *number <= MAX_THREADS)
        .collect()
}

impl Settings for LoadSettings {
    const NAME: &'static str = "load";
    type Plan = LoadRunPlan;

    fn plan(
        &mut self,
        target: &mut TargetSettings,
    ) -> Result<(Vec<Target>, LoadRunPlan), PlanError> {
        let threads = self
            .threads
            .get_or_insert_with(|| vec![ThreadCount::Number(8)]);
        let until_saturated = threads.contains(&ThreadCount::Auto);
        let length = if until_saturated { 5 } else { 30 };
        let duration = *self.duration.get_or_insert(TimeSpan::from_secs(length));
        let warm_up = self
            .warm_up
            .get_or_insert(WarmUp::Time(TimeSpan::from_secs(2)))
            .time(Self::NAME)?;
        units::check_at_most("warm-up", Some(warm_up), HOUR, "a warm-up")?;
        units::check_within(
            "warm-up",
            Some(warm_up),
            TimeSpan::from_secs(2),
            Some(duration),
        )?;
        alone(target);
        let targets = target.plan()?;
        if targets.len() > 1 {
            return contradiction("load accepts one target; run it once for each");
        }
        let workloads = self
            .workload
            .get_or_insert_with(|| vec!["insert".to_owned()]);
        let threads = match threads.as_slice() {
            [ThreadCount::Auto] => doublings(),
            threads => threads
                .iter()
                .map(|threads| match threads {
                    ThreadCount::Number(number) => Ok(*number),
                    ThreadCount::Auto => contradiction(
                        "threads is either `auto` or numbers: `auto` measures all that are needed",
                    ),
                })
                .collect::<Result<_, _>>()?,
        };
        if workloads.is_empty() || threads.is_empty() {
            return contradiction("load requires a workload and a number of threads");
        }
        let twice = workloads
            .iter()
            .enumerate()
            .find(|(index, name)| workloads[..*index].contains(name));
        if let Some((_, twice)) = twice {
            return Err(PlanError::Contradiction(format!(
                "the workload {twice} is given twice; ask for more threads instead"
            )));
        }
        if threads
            .iter()
            .any(|threads| !(1..=MAX_THREADS).contains(threads))
        {
            return Err(PlanError::Contradiction(format!(
                "a load has 1 to {MAX_THREADS} threads"
            )));
        }
        if threads.len() > MAX_STEPS {
            return Err(PlanError::Contradiction(format!(
                "give at most {MAX_STEPS} numbers of threads"
            )));
        }
        if self.rate == Some(0) {
            return contradiction("rate must be above 0; omit it for a closed loop");
        }
        if self.rate.is_some() && until_saturated {
            return contradiction(
                "threads `auto` requires a closed loop: the throughput of an open loop is its rate; remove the rate, or name the threads",
            );
        }
        if self.connect_rate == Some(0) {
            return contradiction(
                "connect-rate must be above 0; omit it to open connections as fast as the servers take them",
            );
        }
        if self.rate.is_none() && self.arrivals.is_some() {
            return contradiction("arrivals requires an open loop; add a rate");
        }
        if duration.0.is_zero() {
            return contradiction("duration must be above 0");
        }
        self.arrivals = self.rate.map(|_| self.arrivals.unwrap_or_default());
        let concurrent = u32::try_from(workloads.len()).unwrap_or(u32::MAX);
        let most_threads = threads
            .iter()
            .max()
            .map_or(0, |threads| threads.saturating_mul(concurrent));
        let plan = LoadRunPlan {
            workloads: workloads.clone(),
            threads,
            until_saturated,
            connect_rate: self.connect_rate,
            rate: self
                .rate
                .zip(self.arrivals)
                .map(|(rate, arrivals)| OpenLoop { rate, arrivals }),
            duration,
            warm_up,
            data_size: self.data_size,
            reads: *self.reads.get_or_insert_default(),
            keep_data: self.keep_data,
            timeout: *self.timeout.get_or_insert(TimeSpan::from_secs(600)),
            cores: CoreUse::decide(
                &mut self.keep_awake,
                None,
                most_threads,
                ServerPlace::of(&targets),
            ),
        };
        Ok((targets, plan))
    }

    fn workloads(&mut self) -> Vec<&mut String> {
        self.workload.iter_mut().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::planned;

    fn resolve(load: &str) -> Result<LoadRunPlan, String> {
        planned::<LoadSettings>(&format!("command = 'load'\n[load]\n{load}"))
            .map(|planned| planned.plan)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn threads_are_numbers_or_doubled_until_saturation() {
        let plan = resolve("threads = 'auto'").unwrap();
        assert_eq!(plan.threads[..5], [1, 2, 4, 8, 16]);
        assert_eq!(plan.threads.last(), Some(&8192));
        assert_eq!(
            (plan.until_saturated, plan.duration),
            (true, TimeSpan::from_secs(5))
        );
        let plan = resolve("threads = [4, 1]").unwrap();
        assert_eq!(
            (plan.threads.as_slice(), plan.until_saturated, plan.duration),
            ([4, 1].as_slice(), false, TimeSpan::from_secs(30))
        );
        for (wrong, said) in [
            ("threads = ['auto', 8]", "either `auto` or numbers"),
            ("threads = 'auto'\nrate = 5", "requires a closed loop"),
            ("threads = 'many'", "is not a number of threads"),
            ("threads = 20000", "1 to 10000 threads"),
            ("connect-rate = 0", "connect-rate must be above 0"),
        ] {
            let error = resolve(wrong).unwrap_err();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }
}

//! The settings of `load`.

use replimeter_model::{
    load::{Arrivals, DataSize, MAX_THREADS, OpenLoop, ReadTarget, ThreadCount},
    plan::{
        PlanError, Settings, TargetSettings, WarmUp,
        checks::{HOUR, above_zero, first_twice},
        contradiction,
        core_use::{CoreUse, ServerPlace},
        warm_up,
    },
    settings,
    target::{NodeSpec, PRIMARY, Role, Target},
    time_span::TimeSpan,
};

/// Maximum number of thread counts in one run.
const MAX_STEPS: usize = 64;
/// Default warm-up.
const WARM_UP: WarmUp = WarmUp::Time(TimeSpan::from_secs(2));

settings! {
    /// The settings of `load`.
    LoadSettings;
    /// A `load` run.
    LoadRunPlan(given, targets);

    [Load]
    /// Workload to run: a name, or the path of a file; may be repeated [default: {default}]
    ///
    /// Several run concurrently.
    #[serde(with = "replimeter_model::plan::OneOrMore::<String>")]
    workload "WORKLOAD": Vec<String> = vec!["insert".to_owned()];

    /// Connections of each workload; several numbers run one after another [default: {default}]
    ///
    /// `auto` measures 1, 2, 4 and so on, until the throughput no longer rises.
    #[arg(value_delimiter = ',')]
    #[serde(with = "replimeter_model::plan::OneOrMore::<ThreadCount>")]
    only threads "T,…|auto": Vec<ThreadCount> = vec![ThreadCount::Number(8)];

    /// Connections that each workload opens per second [default: no limit]
    ///
    /// At most 32 of a client thread log in at a time, also when lost connections are opened again.
    connect_rate "N": Option<u32>, above_zero("; omit it to open connections as fast as the servers take them");

    /// Operations of each workload per second (open loop) [default: back to back]
    ///
    /// An operation starts on schedule, without waiting for earlier ones. Without it, each thread starts its next
    /// operation when the last one has ended (closed loop).
    only rate "R": Option<u64>, above_zero("; omit it for a closed loop");

    /// When operations start: constant or poisson [default: constant]
    ///
    /// poisson: as those of many independent users.
    #[arg(requires = "rate")]
    only arrivals "HOW" if (rate.is_some()) else "an open loop; add a rate": Arrivals = Arrivals::default();

    [Measurement]
    /// Count for this time, after the warm-up [default: {default}; threads auto: 5s]
    duration "TIME": TimeSpan = TimeSpan::from_secs(if threads.contains(&ThreadCount::Auto) { 5 } else { 30 }), above_zero("");

    /// Uncounted time at the beginning [default: {default}]
    ///
    /// A time, such as 2s: without rounds, a number has no meaning.
    only warm_up "TIME": WarmUp = WARM_UP, warm_up::of(Self::NAME, duration, WARM_UP, HOUR);

    [Load]
    /// Size of the data: rows (100000) or bytes (300MB) [default: the workload's]
    ///
    /// Bytes are on disk.
    data_size "SIZE": Option<DataSize>;

    /// Where workloads that only read run: replicas, primary or all [default: {default}]
    reads "WHERE": ReadTarget = ReadTarget::default();

    /// Keep the data for a later run with the same data size
    keep_data: bool;

    [Measurement]
    /// Fail if a replica has not received the data within this time [default: {default}]
    timeout "TIME": TimeSpan = TimeSpan::from_secs(600);

    /// Keep cores awake [default: on for a new sandbox with one load thread]
    keep_awake_under_load;

    plan
    /// Whether the run ends with the number of connections from which the throughput no longer rises.
    until_saturated: bool = threads.contains(&ThreadCount::Auto);
    /// Connections of each workload, one number after another; never empty.
    threads: Vec<u32> = numbers(&threads)?;
    /// Schedule of each workload; `None` for a closed loop.
    rate: Option<OpenLoop> = rate.map(|rate| OpenLoop { rate, arrivals });
    /// Duration of the warm-up.
    warm_up: TimeSpan = warm_up.as_time().unwrap_or_default();
    /// How the client uses the cores of this machine.
    cores: CoreUse = CoreUse::decide(&mut given.keep_awake, None, most_threads(&threads, &workload), ServerPlace::of(targets));
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

/// Returns the numbers of threads; 1, 2, 4 and so on to the maximum for `auto`.
fn numbers(threads: &[ThreadCount]) -> Result<Vec<u32>, PlanError> {
    if threads == [ThreadCount::Auto] {
        let doubled = std::iter::successors(Some(1), |number| Some(number * 2));
        return Ok(doubled
            .take_while(|number| *number <= MAX_THREADS)
            .collect());
    }
    let number = |threads: &ThreadCount| match threads {
        ThreadCount::Number(number) => Ok(*number),
        ThreadCount::Auto => contradiction(
            "threads is either `auto` or numbers: `auto` measures all that are needed",
        ),
    };
    threads.iter().map(number).collect()
}

/// Returns the largest number of threads at one time.
fn most_threads(threads: &[u32], workloads: &[String]) -> u32 {
    let concurrent = u32::try_from(workloads.len()).unwrap_or(u32::MAX);
    let most = threads.iter().max().copied().unwrap_or(0);
    most.saturating_mul(concurrent)
}

impl Settings for LoadSettings {
    const NAME: &'static str = "load";
    type Plan = LoadRunPlan;

    fn plan(
        &mut self,
        target: &mut TargetSettings,
    ) -> Result<(Vec<Target>, LoadRunPlan), PlanError> {
        alone(target);
        let targets = target.plan()?;
        if targets.len() > 1 {
            return contradiction("load accepts one target; run it once for each");
        }
        let plan = Self::resolve(self, &targets)?;
        let (workloads, threads) = (&plan.workload, &plan.threads);
        if workloads.is_empty() || threads.is_empty() {
            return contradiction("load requires a workload and a number of threads");
        }
        if let Some(twice) = first_twice(workloads) {
            return contradiction(format!(
                "the workload {twice} is given twice; ask for more threads instead"
            ));
        }
        if threads
            .iter()
            .any(|threads| !(1..=MAX_THREADS).contains(threads))
        {
            return contradiction(format!("a load has 1 to {MAX_THREADS} threads"));
        }
        if threads.len() > MAX_STEPS {
            return contradiction(format!("give at most {MAX_STEPS} numbers of threads"));
        }
        if plan.rate.is_some() && plan.until_saturated {
            return contradiction(
                "threads `auto` requires a closed loop: the throughput of an open loop is its rate; remove the rate, or name the threads",
            );
        }
        Ok((targets, plan))
    }

    fn workloads(&mut self) -> Vec<&mut String> {
        self.workload.iter_mut().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::planned;

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

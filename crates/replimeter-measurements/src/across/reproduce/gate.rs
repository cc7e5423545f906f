//! A machine that was disturbed decides nothing.

use replimeter_model::{
    host::HostRecord,
    reproduce::{Claim, Verdict},
};

use crate::scale::STEAL_PERCENT;

/// Share of a quota's periods in which a server or the client was paused, in percent.
const PAUSED_PERCENT: f64 = 5.0;

/// Share of the client's runnable time in which it waited for a core of its own, in percent.
const DELAYED_PERCENT: f64 = 10.0;

/// Name of the client among those that a quota limits.
const CLIENT: &str = "client";

/// What can keep a run from deciding anything.
pub struct GatedRun<'a> {
    /// The machine while it measured.
    pub machine: &'a HostRecord,
    /// Whether pauses of servers by a quota count: they do not distort the throughput of a server that is given a part of a
    /// core.
    pub by_quota: bool,
    /// Whether the client had cores of its own, so that it should not have waited for one.
    pub own_cores: bool,
}

/// Opens all verdicts if one of the runs was measured on a disturbed machine, and says so.
pub fn gate<'a>(claims: &mut [Claim], runs: impl IntoIterator<Item = GatedRun<'a>>) {
    let why = runs.into_iter().find_map(|run| disturbed(&run));
    let Some(why) = why else { return };
    for claim in claims
        .iter_mut()
        .filter(|claim| claim.verdict != Verdict::NotJudged)
    {
        claim.verdict = Verdict::Open;
        claim.why.clone_from(&why);
    }
}

/// Returns what keeps a run from deciding anything. Where servers, load and client share the cores of one machine, they wait for
/// them by design.
fn disturbed(run: &GatedRun<'_>) -> Option<String> {
    let record = run.machine;
    let steal = record.mean(|window| window.steal_percent);
    if let Some(steal) = steal.filter(|steal| *steal >= STEAL_PERCENT) {
        return Some(format!(
            "other virtual machines had {steal:.0} % of the processor time (limit {STEAL_PERCENT} %): measure again"
        ));
    }
    let delayed = record.mean(|window| window.client_delay_percent);
    if let Some(delayed) = delayed.filter(|delayed| run.own_cores && *delayed >= DELAYED_PERCENT) {
        return Some(format!(
            "the client waited for its own cores in {delayed:.0} % of the time in which it could run (limit {DELAYED_PERCENT} %)"
        ));
    }
    let counted = |name: &str| run.by_quota || name == CLIENT;
    let mut pauses = record.pauses().into_iter().filter(|one| counted(&one.name));
    let paused = pauses.find_map(|one| {
        let percent = 100.0 * one.throttled_periods as f64 / one.periods.max(1) as f64;
        (percent >= PAUSED_PERCENT).then_some((one.name, percent))
    });
    let (name, percent) = paused?;
    Some(format!(
        "{name} was paused by its quota in {percent:.0} % of the periods (limit {PAUSED_PERCENT} %): give it a larger one"
    ))
}

#[cfg(test)]
mod tests {
    use replimeter_model::host::{HostWindow, Throttled};

    use super::*;

    fn window(seconds: f64, steal: f64, throttled: u64) -> HostWindow {
        HostWindow {
            begin_us: 0.0,
            end_us: seconds * 1e6,
            steal_percent: Some(steal),
            throttled: vec![Throttled {
                name: "replica1".to_owned(),
                periods: 100,
                throttled_periods: throttled,
                throttled_us: 1.0,
            }],
            ..HostWindow::default()
        }
    }

    fn gated(windows: Vec<HostWindow>, by_quota: bool) -> Claim {
        let mut claims = [Claim {
            verdict: Verdict::Differs,
            ..Claim::default()
        }];
        let of = |windows| HostRecord {
            windows,
            ..HostRecord::default()
        };
        let machines = [of(vec![window(5.0, 0.0, 0)]), of(windows)];
        let runs = machines.iter().map(|machine| GatedRun {
            machine,
            by_quota,
            own_cores: false,
        });
        gate(&mut claims, runs);
        let [claim] = claims;
        claim
    }

    #[test]
    fn disturbed_machine_decides_nothing() {
        // A short burst is in the intervals; the mean is not above the limit.
        let quiet = gated(vec![window(9.0, 1.0, 4), window(1.0, 30.0, 4)], true);
        assert_eq!((quiet.verdict, quiet.why.as_str()), (Verdict::Differs, ""));
        let stolen = gated(vec![window(9.0, 6.0, 0)], false);
        assert_eq!(stolen.verdict, Verdict::Open);
        assert!(
            stolen.why.starts_with("other virtual machines had 6 %"),
            "{}",
            stolen.why
        );
        let often = || vec![window(9.0, 0.0, 2), window(9.0, 0.0, 10)];
        assert_eq!(gated(often(), false).verdict, Verdict::Differs);
        let paused = gated(often(), true);
        assert_eq!(paused.verdict, Verdict::Open);
        assert!(
            paused
                .why
                .contains("replica1 was paused by its quota in 6 %"),
            "{}",
            paused.why
        );
    }

    #[test]
    fn client_that_waits_for_its_own_cores_decides_nothing() {
        let machine = HostRecord {
            windows: vec![HostWindow {
                client_delay_percent: Some(12.0),
                ..window(9.0, 0.0, 0)
            }],
            ..HostRecord::default()
        };
        let why = |own_cores| {
            let mut claims = [Claim {
                verdict: Verdict::Agrees,
                ..Claim::default()
            }];
            let run = GatedRun {
                machine: &machine,
                by_quota: true,
                own_cores,
            };
            gate(&mut claims, [run]);
            assert_eq!(
                claims[0].verdict == Verdict::Open,
                !claims[0].why.is_empty()
            );
            claims[0].why.clone()
        };
        assert_eq!(why(false), "");
        assert!(why(true).contains("its own cores in 12 %"));
    }
}

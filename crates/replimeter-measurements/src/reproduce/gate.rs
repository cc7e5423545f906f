//! A machine that was disturbed decides nothing.

use replimeter_model::{
    host::HostRecord,
    reproduce::{Claim, Verdict},
};

/// Mean share of the cores' time that other virtual machines had, in percent, from which a run decides nothing.
const STEAL_PERCENT: f64 = 5.0;

/// Share of a quota's periods in which a server or the client was paused, in percent.
const PAUSED_PERCENT: f64 = 5.0;

/// Name of the client among those that a quota limits.
const CLIENT: &str = "client";

/// Opens all verdicts if one of the runs was measured on a disturbed machine, and says so. Pauses of servers by a quota count
/// `by_quota` only: they do not distort the throughput of a server that is given a part of a core.
pub fn gate<'a>(
    claims: &mut [Claim],
    machines: impl IntoIterator<Item = &'a HostRecord>,
    by_quota: bool,
) {
    let mut machines = machines.into_iter();
    let Some(why) = machines.find_map(|machine| disturbed(machine, by_quota)) else {
        return;
    };
    for claim in claims {
        claim.verdict = Verdict::Open;
        claim.why.clone_from(&why);
    }
}

/// Returns what keeps a run from deciding anything. The delay of runnable threads is not part of it: servers and load share
/// the cores of one machine, and wait for them by design.
fn disturbed(record: &HostRecord, by_quota: bool) -> Option<String> {
    let steal = record.mean(|window| window.steal_percent);
    if let Some(steal) = steal.filter(|steal| *steal >= STEAL_PERCENT) {
        return Some(format!(
            "other virtual machines had {steal:.0} % of the processor time (limit {STEAL_PERCENT} %): measure again"
        ));
    }
    let counted = |name: &str| by_quota || name == CLIENT;
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
        gate(&mut claims, &machines, by_quota);
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
}

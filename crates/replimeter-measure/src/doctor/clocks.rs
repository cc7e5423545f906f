//! How far a server is away, and how its clock stands against ours.

use replimeter_model::{
    doctor::{ClockDifference, ClockOffset, Finding, FindingCode, RoundTrip, Severity},
    time::Nanos,
};
use replimeter_server::{ServerError, Session};

use super::{View, among, topology::Tie};
use crate::clock::Calendar;

/// From which difference on clocks falsify what is read from them.
const TOLERATED_US: f64 = 1_000.0;

/// Readings of each kind.
const READINGS: usize = 30;
/// Readings after which a far server has been asked for long enough.
const ENOUGH: usize = 5;
/// How long a far server is asked, of each kind.
const LONGEST: Nanos = Nanos(2_000_000_000);
/// Readings that warm up the way.
const WARM_UP: usize = 3;
/// What the server's microseconds resolve.
const RESOLUTION: Nanos = Nanos(1_000);

/// Asks until there are enough answers or it has taken long.
fn repeat<T>(
    calendar: &Calendar,
    mut ask: impl FnMut() -> Result<T, ServerError>,
) -> Result<Vec<(Nanos, Nanos, T)>, ServerError> {
    for _ in 0..WARM_UP {
        ask()?;
    }
    let begun = calendar.now();
    let mut readings = Vec::with_capacity(READINGS);
    while readings.len() < READINGS && (readings.len() < ENOUGH || calendar.now() - begun < LONGEST) {
        let before = calendar.now();
        let answer = ask()?;
        readings.push((before, calendar.now(), answer));
    }
    Ok(readings)
}

/// Round trips of an empty select.
pub(super) fn round_trip(session: &mut Session, calendar: &Calendar) -> Result<RoundTrip, ServerError> {
    let readings = repeat(calendar, || session.run("cannot be asked", "SELECT 1"))?;
    let mut widths: Vec<Nanos> = readings.iter().map(|(before, after, ())| *after - *before).collect();
    widths.sort_unstable();
    let at = |index: usize| widths.get(index).copied().unwrap_or_default().as_micros();
    Ok(RoundTrip { min_us: at(0), p50_us: at(widths.len() / 2), count: widths.len() as u64 })
}

/// The server's clock against ours; `None` when it tells no time.
///
/// The server read its clock somewhere between our two readings, so the offset
/// is the server's time less the midpoint, wrong by at most half of what lies
/// between (Cristian 1989). The fastest of many answers has the narrowest bound.
pub(super) fn offset(session: &mut Session, calendar: &Calendar) -> Result<Option<ClockOffset>, ServerError> {
    let doing = "cannot read the server's clock";
    // Of our session only: without summer time no local time means two moments.
    session.run(doing, "SET SESSION time_zone = '+00:00'")?;
    let readings = repeat(calendar, || session.value(doing, "SELECT UNIX_TIMESTAMP(SYSDATE(6))"))?;
    let fastest = readings.iter().min_by_key(|(before, after, _)| *after - *before);
    Ok(fastest.and_then(|(before, after, text)| {
        let server = unix(text.as_deref()?)?;
        let bound = Nanos((*after - *before).0 / 2) + calendar.bound() + RESOLUTION;
        let offset = server - before.midpoint(*after);
        Some(ClockOffset { offset_us: offset.as_micros(), bound_us: bound.as_micros(), count: readings.len() as u64 })
    }))
}

/// Reads seconds since 1970 with six decimals, exactly.
fn unix(text: &str) -> Option<Nanos> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if part.len() > 9 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: i64 = format!("{part:0<9}").parse().ok()?;
    Some(Nanos(seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?))
}

/// Every server's clock against its source's, or the writer's in a cluster.
pub(super) fn differences(view: &View<'_>) -> Vec<ClockDifference> {
    let of = |index: usize| {
        let source = match view.tie(index) {
            Tie::Channel { source, .. } => *source,
            Tie::Galera | Tie::Group => view.topology.writer?,
            Tie::Writer | Tie::None | Tie::Unknown => return None,
        };
        let (theirs, own) = (view.state(source)?.clock?, view.state(index)?.clock?);
        Some(ClockDifference {
            source: view.servers[source].name.clone(),
            replica: view.servers[index].name.clone(),
            offset_us: own.offset_us - theirs.offset_us,
            bound_us: own.bound_us + theirs.bound_us,
        })
    };
    (0..view.servers.len()).filter_map(of).collect()
}

/// Clocks that differ by more than a measurement of them can be wrong.
pub(super) fn check(differences: &[ClockDifference]) -> Vec<Finding> {
    let apart = differences.iter().filter(|one| one.offset_us.abs() - one.bound_us > TOLERATED_US);
    apart
        .map(|one| {
            let mut finding = among(
                Severity::Warning,
                FindingCode::ClockOffset,
                format!(
                    "{}: its clock is {:.3} ms {} that of {} (± {:.3} ms), which falsifies Seconds_Behind, heartbeats and `stamp`",
                    one.replica,
                    one.offset_us.abs() / 1e3,
                    if one.offset_us > 0.0 { "ahead of" } else { "behind" },
                    one.source,
                    one.bound_us / 1e3,
                ),
                "let both machines follow one time source (chronyc tracking, timedatectl); `lag` by polling uses no server's clock",
            );
            finding.node = Some(one.replica.clone());
            finding
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_servers_time_exactly() {
        assert_eq!(unix("1763715923.000001"), Some(Nanos(1_763_715_923_000_001_000)));
        assert_eq!(unix("5"), Some(Nanos(5_000_000_000)));
        for text in ["", "x", "1.+5", "1.0000000001", "99999999999999999999", "9999999999999.0"] {
            assert_eq!(unix(text), None, "{text}");
        }
    }
}

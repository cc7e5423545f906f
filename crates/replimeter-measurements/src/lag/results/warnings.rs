//! Warnings about what a run measured.

use replimeter_engine::dialect::settings::{NO_FLUSHES, flushes_each_commit};
use replimeter_instruments::lag::{
    results::{LagRow, missing_rows},
    settings::{LagPlan, Pace, WritePattern},
};
use replimeter_model::{
    host::HostRecord,
    manifest::ServerRecord,
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_render::figures::{count, time};

/// Returns the warning about writes that started late.
pub(super) fn late(pace: Pace, p50_us: Option<f64>) -> Option<Warning> {
    let (Pace::Interval(interval), Some(p50)) = (pace, p50_us) else {
        return None;
    };
    let every = Nanos::from(interval.0).as_micros();
    (p50 > every / 10.0).then(|| {
        Warning::new(
            WarningCode::WriterLate,
            format!(
                "median write started {} late; the target interval of {} was not sustained",
                time(p50),
                time(every)
            ),
            "use a longer --interval; `from_intended` includes each row's delay",
        )
    })
}

/// Returns the warning about a replica that flushes, on a disk whose flushes took as long as its lag.
pub(super) fn slow_flushes(
    host: &HostRecord,
    servers: &[ServerRecord],
    rows: &[LagRow],
) -> Option<Warning> {
    let flush = host.flush_before?.p50_us.min(host.flush_after?.p50_us);
    let flushes = |row: &LagRow| {
        let is_it =
            |server: &&ServerRecord| (&server.shape, &server.name) == (&row.shape, &row.replica);
        let setting = |server: &ServerRecord| flushes_each_commit(&server.variables);
        servers.iter().find(is_it).is_some_and(setting)
    };
    let lag = |row: &LagRow| row.from_ack.p50_us.filter(|lag| *lag <= flush);
    let (row, lag) = rows
        .iter()
        .filter(|row| flushes(row))
        .find_map(|row| Some((row, lag(row)?)))?;
    Some(Warning::new(
        WarningCode::MachineDisturbed,
        format!(
            "{} {}: a flush of this disk took {} before and after the run, and the median lag is {}: it is that of the disk",
            row.shape,
            row.replica,
            time(flush),
            time(lag)
        ),
        format!(
            "measure when nothing else writes to this disk, or without flushes (--server-option {NO_FLUSHES})"
        ),
    ))
}

/// Returns the warning about rows that timed out.
pub(super) fn missing(plan: &LagPlan, rows: &[LagRow]) -> Option<Warning> {
    let sweep = matches!(plan.writes, WritePattern::Sweep { .. });
    let counted = rows.iter().filter(|row| row.size_bytes.is_some() || !sweep);
    let missing = missing_rows(counted);
    (missing > 0).then(|| {
        Warning::new(
            WarningCode::MissingRows,
            format!(
                "{} rows were not visible within the timeout; they are counted, but not part of the distributions",
                count(missing)
            ),
            "check the replica's state, or raise --timeout",
        )
    })
}

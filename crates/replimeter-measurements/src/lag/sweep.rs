//! The raw lines of a sweep over sizes.

use replimeter_instruments::lag::{
    results::{SweepLoop, SweepTable},
    sample::LagSample,
};

/// Returns the table of each replica: the last rows of all steps. `origin_unix_us` is the beginning of the run.
pub(super) fn sweep_tables(
    names: &[String],
    last_rows: &[LagSample],
    origin_unix_us: i64,
) -> Vec<SweepTable> {
    let line = |sample: &LagSample| -> Option<SweepLoop> {
        Some(SweepLoop {
            sweep: sample.write.sweep + 1,
            step: sample.write.step + 1,
            size_bytes: sample.write.size_bytes,
            sequence: sample.write.seq,
            insert_us: sample.insert().as_micros(),
            retrieval_us: sample.retrieval()?.as_micros(),
            total_us: sample.from_send()?.as_micros(),
            bare_us: sample.bare()?.as_micros(),
            inserted_unix_us: origin_unix_us + sample.write.send.0 / 1000,
            fetched_unix_us: origin_unix_us + sample.upper()?.0 / 1000,
        })
    };
    let tables = names.iter().enumerate().map(|(index, name)| {
        let mut loops: Vec<SweepLoop> = last_rows
            .iter()
            .filter(|sample| sample.replica == index)
            .filter_map(line)
            .collect();
        loops.sort_by_key(|row| row.sequence);
        SweepTable {
            replica: name.clone(),
            loops,
        }
    });
    tables.collect()
}

fn seconds(unix_us: i64) -> (i64, i64) {
    (unix_us.div_euclid(1_000_000), unix_us.rem_euclid(1_000_000))
}

/// Returns the raw lines in the published format, for every repetition: step, row id, sequence, inserted
/// (seconds, microseconds), fetched (seconds, microseconds).
#[must_use]
pub(crate) fn raw(sweep: &SweepTable, per_step: u32) -> String {
    let mut out = String::from(
        "step  row id  sequence  inserted sec  inserted us  fetched sec  fetched us\n",
    );
    for row in &sweep.loops {
        let (inserted, fetched) = (seconds(row.inserted_unix_us), seconds(row.fetched_unix_us));
        out.push_str(&format!(
            "{:>4}  {:>6}  {:>8}  {:>12}  {:>11}  {:>11}  {:>10}\n",
            row.step - 1,
            row.sequence,
            per_step,
            inserted.0,
            inserted.1,
            fetched.0,
            fetched.1
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::lag::results::SweepLoop;

    use super::*;

    fn sweep() -> SweepTable {
        let row = |sweep, step| SweepLoop {
            sweep,
            step,
            size_bytes: 1000,
            sequence: 5,
            insert_us: 1300.0,
            retrieval_us: 850.0,
            total_us: 2900.0,
            bare_us: 750.0,
            inserted_unix_us: 1_000_000_000_000_042,
            fetched_unix_us: 1_000_000_000_002_942,
        };
        SweepTable {
            replica: "replica1".to_owned(),
            loops: vec![row(1, 1), row(1, 2), row(2, 1)],
        }
    }

    #[test]
    fn raw_lines_split_seconds_and_microseconds() {
        let text = raw(&sweep(), 5);
        assert_eq!(text.lines().count(), 4);
        assert!(
            text.contains("1000000000           42   1000000000        2942"),
            "{text}"
        );
    }
}

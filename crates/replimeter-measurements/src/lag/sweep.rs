//! The raw lines of a sweep over sizes.

use replimeter_model::lag::SweepTable;

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
    use replimeter_model::lag::SweepLoop;

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

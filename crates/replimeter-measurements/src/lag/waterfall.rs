//! The stages of transactions as a table.

use replimeter_instruments::lag::results::{LagDocument, LagRow};
use replimeter_model::{
    record::Distribution,
    stages::{Mark, QuantileBreakdown, Stage, Stages},
};

use crate::lag::headline::{label_of, overall_rows};
use replimeter_render::{
    figures::{Unit, count},
    precision::Precision,
    report::{Block, Cell, Table},
};

/// Quantiles with their own columns of nearby transactions.
const NEAR: [&str; 3] = ["p50", "p90", "p99"];

/// Returns the rows of a document that have stages.
pub(crate) fn rows(document: &LagDocument) -> Vec<(String, &LagRow, &Stages)> {
    let rows = overall_rows(document).into_iter();
    rows.filter_map(|row| Some((label_of(document, row), row, row.stages.as_ref()?)))
        .collect()
}

/// Returns one table per replica; none if stages were not observed.
pub(crate) fn blocks(document: &LagDocument) -> Vec<Block> {
    let block = |((name, _, stages), index): ((String, &LagRow, &Stages), u32)| {
        let whole = &stages.end_to_end;
        let unit = Unit::for_size(whole.p50_us.or(whole.mean_us).unwrap_or(0.0));
        let title = format!(
            "From send to visible, stage by stage ({}), {name}",
            unit.symbol()
        );
        Block::table(format!("waterfall-{index}"), title, table(unit, stages))
            .with_notes(notes(unit, stages))
            .after_charts()
    };
    rows(document).into_iter().zip(1..).map(block).collect()
}

/// Returns a line per stage, then the residue and the total, then the stages in parallel to the chain.
fn table(unit: Unit, stages: &Stages) -> Table {
    let mut headings = ["stage", "from", "to", "mean", "p50", "p99"]
        .map(str::to_owned)
        .to_vec();
    headings.extend(NEAR.map(|quantile| format!("at {quantile}")));
    headings.extend(["±", "inverted"].map(str::to_owned));
    let line = |words: [&str; 3],
                distribution: &Distribution,
                half: f64,
                near: &dyn Fn(&QuantileBreakdown) -> Option<f64>| {
        let precision = Precision::within(distribution, half);
        let mut cells: Vec<Cell> = words.map(Cell::from).into();
        cells.extend([
            Cell::time(distribution.mean_us, precision.mean(), unit),
            Cell::time(distribution.p50_us, precision.single(), unit),
            Cell::time(distribution.p99_us, precision.single(), unit),
        ]);
        cells.extend(NEAR.map(|quantile| {
            let of = stages
                .tail_breakdown
                .iter()
                .find(|one| one.quantile == quantile);
            Cell::time(of.and_then(near), precision.single(), unit)
        }));
        cells
    };
    let of_stage = |name: &str, stage: &Stage, near: &dyn Fn(&QuantileBreakdown) -> Option<f64>| {
        let words = [name, stage.from.description(), stage.to.description()];
        let mut cells = line(words, &stage.duration, stage.error_mean_us, near);
        cells.push(Cell::time(Some(stage.error_mean_us), 0.0, unit));
        cells.push(Cell::Count(stage.inversions));
        cells
    };
    let chain = stages.stages.iter().enumerate();
    let mut lines: Vec<Vec<Cell>> = chain
        .map(|(index, stage)| {
            of_stage(&stage.name, stage, &|near| {
                near.stages_us.get(index).copied()
            })
        })
        .collect();
    let mut residue = line(["residue", "", ""], &stages.residue, 0.0, &|near| {
        Some(near.residue_us)
    });
    residue.extend(["".into(), Cell::Count(stages.residue_beyond)]);
    lines.push(residue);
    // The end-to-end time has only the errors of its ends.
    let error = |mark: Option<Mark>| {
        let of = stages.marks.iter().find(|one| Some(one.mark) == mark);
        of.and_then(|one| one.error_mean_us).unwrap_or(0.0)
    };
    let from = stages.stages.first().map(|stage| stage.from);
    let to = stages.stages.last().map(|stage| stage.to);
    let ends = error(from) + error(to);
    let words = [
        "end to end",
        from.map_or("", Mark::description),
        to.map_or("", Mark::description),
    ];
    let mut whole = line(words, &stages.end_to_end, ends, &|near| {
        Some(near.end_to_end_us)
    });
    whole.extend([Cell::time(Some(ends), 0.0, unit), "".into()]);
    lines.push(whole);
    let parallel = stages.parallel_stages.iter();
    lines.extend(parallel.map(|stage| of_stage(&format!("({})", stage.name), stage, &|_| None)));
    Table::new(&headings, 3, lines)
}

fn notes(unit: Unit, stages: &Stages) -> Vec<String> {
    let mut notes = vec![format!(
        "All stages are known for {} of {} transactions{}.",
        count(stages.covered),
        count(stages.transactions),
        if stages.overwritten > 0 {
            format!(
                "; for {} the server had overwritten its record before it was read",
                count(stages.overwritten)
            )
        } else {
            String::new()
        }
    )];
    notes.push(
        "The columns at p50, p90 and p99 are means over the same transactions, the 1 % (or ten) nearest to that quantile of the end-to-end \
         time; percentiles do not add up. The residue is the end-to-end time less the sum of the stages."
            .to_owned(),
    );
    let marks: Vec<String> = stages
        .marks
        .iter()
        .map(|one| {
            let error = one
                .error_mean_us
                .filter(|us| *us > 0.0)
                .map_or_else(String::new, |us| format!(" ± {}", unit.with(us)));
            format!("{} ({}{error})", one.mark.description(), one.clock)
        })
        .collect();
    notes.push(format!(
        "Clock of each mark, with the error of its offset: {}.",
        marks.join("; ")
    ));
    let inverted: u64 = stages.stages.iter().map(|stage| stage.inversions).sum();
    if inverted > 0 || stages.residue_beyond > 0 {
        notes.push(
            "Inverted: stages that ended before they began by more than their error bar, and residues beyond the error bars of \
             the stages. No value is clamped."
                .to_owned(),
        );
    }
    notes
}

/// Returns a document with two replicas' stages, for the tests of every output.
#[cfg(test)]
pub(crate) fn example() -> LagDocument {
    use replimeter_instruments::lag::results::LagResults;
    use replimeter_model::time::Nanos;
    use replimeter_stats::waterfall::{Point, Points, Waterfall};

    let row = |replica: &str, slow: i64| {
        let mut waterfall = Waterfall::new(&[
            (Mark::Send, "client"),
            (Mark::Logged, "primary"),
            (Mark::Received, replica),
            (Mark::ApplyBegan, replica),
            (Mark::Applied, replica),
            (Mark::Visible, "client"),
        ]);
        for round in 0..2_000i64 {
            let tail = if round % 50 == 49 {
                900 * slow
            } else {
                (round * 37) % 60
            };
            let mut at = 0;
            let mut next = |us: i64, error: i64| {
                at += us;
                Some(Point::new(Nanos(at * 1_000), Nanos(error * 1_000)))
            };
            let send = next(0, 0);
            let logged = next(55 + (round * 7) % 20, 8);
            let ack = Some(Point::new(Nanos(120_000), Nanos(0)));
            let received = next(70 + tail / 3, 9);
            let apply_began = next(20 + (round % 11) + tail, 9);
            let applied = next(60 * slow + (round % 17), 9);
            let visible = next(25, 12);
            let lost = round % 40 == 0;
            let received = received.filter(|_| !lost);
            waterfall.record(&Points {
                send,
                logged,
                received,
                apply_began,
                applied,
                visible,
                ack,
                overwritten: lost,
            });
        }
        LagRow {
            replica: replica.to_owned(),
            method: "poll".to_owned(),
            size_bytes: Some(1000),
            stages: waterfall.stages(),
            ..LagRow::default()
        }
    };
    LagDocument {
        results: LagResults {
            rows: vec![row("replica1", 1), row("replica2", 3)],
            ..LagResults::default()
        },
        ..LagDocument::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use replimeter_render::report::Content;

    #[test]
    fn waterfall_lists_stages_residue_and_total() {
        let blocks = blocks(&example());
        let Content::Table(table) = &blocks[0].content else {
            panic!("{blocks:?}");
        };
        let lines: Vec<Vec<String>> = table.shown().collect();
        let names: Vec<&str> = lines.iter().map(|line| line[0].as_str()).collect();
        assert_eq!(
            names,
            [
                "commit",
                "transfer",
                "queue",
                "apply",
                "show",
                "residue",
                "end to end",
                "(acknowledge)"
            ]
        );
        assert!(lines.iter().all(|line| line.len() == table.columns.len()));
        assert_eq!(lines[4][3], "30", "25 ± 21 has no second digit");
        assert_eq!(lines[5][3], "0.0");
        let notes = &blocks[0].notes;
        assert!(
            notes[0].contains("1,950 of 2,000") && notes[0].contains("for 50 "),
            "{notes:?}"
        );
        assert!(super::blocks(&LagDocument::default()).is_empty());
    }
}

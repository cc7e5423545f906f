//! The stages of transactions as a table.

use replimeter_model::{
    record::{Distribution, LagDocument, LagRow},
    stages::{Near, Stage, Stages},
};

use crate::{
    answer::overall_rows,
    figures::{Unit, count},
    precision::Precision,
};

/// Quantiles whose transactions have columns of their own.
const NEAR: [&str; 3] = ["p50", "p90", "p99"];

/// A replica's waterfall.
pub(crate) struct Table {
    /// The replica.
    pub(crate) name: String,
    /// The unit of all of its times.
    pub(crate) unit: Unit,
    /// Of the columns.
    pub(crate) headings: Vec<String>,
    /// A line per stage, then those beside the chain, the residue and the whole.
    pub(crate) lines: Vec<Vec<String>>,
    /// What a reader must know, in sentences.
    pub(crate) notes: Vec<String>,
}

/// The rows of a document that have stages.
pub(crate) fn rows(document: &LagDocument) -> Vec<(String, &LagRow, &Stages)> {
    let rows = overall_rows(document).into_iter();
    rows.filter_map(|row| Some((document.label_of(row), row, row.stages.as_ref()?)))
        .collect()
}

/// The waterfalls of a document; empty when stages were not observed.
pub(crate) fn tables(document: &LagDocument) -> Vec<Table> {
    rows(document)
        .into_iter()
        .map(|(name, _, stages)| table(name, stages))
        .collect()
}

fn table(name: String, stages: &Stages) -> Table {
    let unit = Unit::for_size(
        stages
            .end_to_end
            .p50_us
            .or(stages.end_to_end.mean_us)
            .unwrap_or(0.0),
    );
    let mut headings: Vec<String> = ["stage", "from", "to", "mean", "p50", "p99"]
        .map(str::to_owned)
        .to_vec();
    headings.extend(NEAR.map(|quantile| format!("at {quantile}")));
    headings.extend(["±", "inverted"].map(str::to_owned));
    let show = |value: Option<f64>, half: f64| {
        value.map_or_else(|| "–".to_owned(), |us| unit.show_within(us, half))
    };
    let line = |words: [&str; 3],
                distribution: &Distribution,
                half: f64,
                near: &dyn Fn(&Near) -> Option<f64>| {
        let precision = Precision::of_stage(distribution, half);
        let mut cells: Vec<String> = words.map(str::to_owned).to_vec();
        cells.push(show(distribution.mean_us, precision.mean()));
        cells.push(show(distribution.p50_us, precision.single()));
        cells.push(show(distribution.p99_us, precision.single()));
        for quantile in NEAR {
            let of = stages.near.iter().find(|one| one.quantile == quantile);
            cells.push(show(of.and_then(near), precision.single()));
        }
        cells
    };
    let of_stage = |stage: &Stage, near: &dyn Fn(&Near) -> Option<f64>| {
        let words = [stage.name.as_str(), stage.from.words(), stage.to.words()];
        let mut cells = line(words, &stage.duration, stage.error_mean_us, near);
        cells.extend([unit.show(stage.error_mean_us), count(stage.inversions)]);
        cells
    };
    let none = |_: &Near| None;
    let mut lines: Vec<Vec<String>> = stages
        .stages
        .iter()
        .enumerate()
        .map(|(index, stage)| of_stage(stage, &|near| near.stages_us.get(index).copied()))
        .collect();
    // The end-to-end time has the errors of its ends only.
    let of = |mark: Option<replimeter_model::stages::Mark>| {
        stages
            .marks
            .iter()
            .find(|one| Some(one.mark) == mark)
            .and_then(|one| one.error_mean_us)
            .unwrap_or(0.0)
    };
    let ends = of(stages.stages.first().map(|stage| stage.from))
        + of(stages.stages.last().map(|stage| stage.to));
    let closed = |mut cells: Vec<String>, error: String, beyond: String| {
        cells.extend([error, beyond]);
        cells
    };
    lines.push(closed(
        line(["residue", "", ""], &stages.residue, 0.0, &|near| {
            Some(near.residue_us)
        }),
        String::new(),
        count(stages.residue_beyond),
    ));
    let (first, last) = (stages.stages.first(), stages.stages.last());
    let whole = [
        "end to end",
        first.map_or("", |stage| stage.from.words()),
        last.map_or("", |stage| stage.to.words()),
    ];
    lines.push(closed(
        line(whole, &stages.end_to_end, ends, &|near| {
            Some(near.end_to_end_us)
        }),
        unit.show(ends),
        String::new(),
    ));
    lines.extend(stages.beside.iter().map(|stage| {
        let mut cells = of_stage(stage, &none);
        cells[0] = format!("({})", cells[0]);
        cells
    }));
    Table {
        name,
        unit,
        headings,
        lines,
        notes: notes(unit, stages),
    }
}

fn notes(unit: Unit, stages: &Stages) -> Vec<String> {
    let mut notes = vec![format!(
        "Every stage is known of {} of {} transactions{}.",
        count(stages.covered),
        count(stages.transactions),
        if stages.overwritten > 0 {
            format!(
                "; of {} the server had overwritten what it knew before it was asked",
                count(stages.overwritten)
            )
        } else {
            String::new()
        }
    )];
    notes.push(
        "At p50, p90 and p99 stand means of the same transactions, the 1 % (or ten) nearest to that quantile of the end-to-end \
         time; percentiles do not add. The residue is what the stages lack of the whole."
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
            format!("{} ({}{error})", one.mark.words(), one.clock)
        })
        .collect();
    notes.push(format!(
        "By whose clock, and how well it is known on ours: {}.",
        marks.join("; ")
    ));
    let inverted: u64 = stages.stages.iter().map(|stage| stage.inversions).sum();
    if inverted > 0 || stages.residue_beyond > 0 {
        notes.push(
            "Inverted are stages that ended before they began by more than their error bar, and residues beyond the error bars of \
             the stages; nothing is clamped."
                .to_owned(),
        );
    }
    notes
}

/// A document with two replicas' stages, for the tests of every output.
#[cfg(test)]
pub(crate) fn example() -> LagDocument {
    use replimeter_model::{stages::Mark, time::Nanos};
    use replimeter_stats::waterfall::{Point, Points, Waterfall};

    let row = |replica: &str, slow: i64| {
        let mut waterfall = Waterfall::new(&[
            (Mark::Send, "client"),
            (Mark::InBinlog, "primary"),
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
            let in_binlog = next(55 + (round * 7) % 20, 8);
            let ack = Some(Point::new(Nanos(120_000), Nanos(0)));
            let received = next(70 + tail / 3, 9);
            let apply_began = next(20 + (round % 11) + tail, 9);
            let applied = next(60 * slow + (round % 17), 9);
            let visible = next(25, 12);
            let lost = round % 40 == 0;
            let received = received.filter(|_| !lost);
            waterfall.record(&Points {
                send,
                in_binlog,
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
        results: vec![row("replica1", 1), row("replica2", 3)],
        ..LagDocument::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_per_stage_the_residue_and_the_whole() {
        let tables = tables(&example());
        let names: Vec<&str> = tables[0]
            .lines
            .iter()
            .map(|line| line[0].as_str())
            .collect();
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
        assert!(
            tables[0]
                .lines
                .iter()
                .all(|line| line.len() == tables[0].headings.len())
        );
        assert_eq!(tables[0].lines[4][3], "30", "25 ± 21 has no second digit");
        assert_eq!(tables[0].lines[5][3], "0.0");
        assert!(
            tables[0].notes[0].contains("1,950 of 2,000") && tables[0].notes[0].contains("of 50 "),
            "{:?}",
            tables[0].notes
        );
        assert!(super::tables(&LagDocument::default()).is_empty());
    }
}

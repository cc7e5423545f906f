//! Times of slowed servers in plain time: what they would be if nothing were slowed.

use replimeter_model::record::{Distribution, TargetRecord};

use crate::{
    format::Format,
    report::{Block, Cell, Table},
};

/// Returns the distributions divided by the factor by which time was slowed; an empty block where it was not. Each has a name
/// and what it is of.
#[must_use]
pub fn block<'a>(
    target: &TargetRecord,
    rows: impl IntoIterator<Item = (String, &'a str, &'a Distribution)>,
) -> Block {
    let factor = target.dilation.unwrap_or(1);
    let rows = rows.into_iter();
    let shown = rows.filter(|(_, _, of)| target.dilation.is_some() && of.count > 0);
    let lines = shown.map(|(name, what, of)| {
        let times = [of.min_us, of.mean_us, of.p50_us, of.p99_us, of.max_us];
        let times = times.map(|us| Format::Time.cell(us.map(|us| us / f64::from(factor))));
        let begin = [name.into(), what.into(), Cell::from(of.count)];
        begin.into_iter().chain(times).collect::<Vec<Cell>>()
    });
    let headings = ["row", "time", "count", "min", "mean", "p50", "p99", "max"];
    Block::table(
        "plain-time",
        format!("In plain time: as measured, divided by {factor}"),
        Table::new(&headings, 2, lines),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{report::Report, terminal};

    #[test]
    fn times_are_divided_by_the_factor() {
        let lag = Distribution {
            count: 3,
            min_us: Some(1000.0),
            p50_us: Some(2000.0),
            max_us: Some(30_000.0),
            ..Distribution::default()
        };
        let shown = |dilation| {
            let target = TargetRecord {
                dilation,
                ..TargetRecord::default()
            };
            let none = Distribution::default();
            let rows = [
                ("node2".to_owned(), "staleness", &lag),
                ("node3".to_owned(), "staleness", &none),
            ];
            let mut report = Report::default();
            report.add(block(&target, rows));
            terminal::render(&report)
        };
        let text = shown(Some(10));
        for wanted in ["divided by 10", "node2", "100", "200", "3,000"] {
            assert!(text.contains(wanted), "`{wanted}` is missing in {text}");
        }
        assert!(!text.contains("node3"), "{text}");
        assert!(!shown(None).contains("plain"));
    }
}

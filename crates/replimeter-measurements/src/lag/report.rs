//! The report of a `lag` run.

use replimeter_instruments::lag::{
    results::{LagDocument, LagRow, missing_rows},
    settings::Pace,
};
use replimeter_model::{
    load::Arrivals,
    record::{Distribution, Window},
};

use crate::{
    lag::{
        headline::{label_of, overall_rows},
        methods, shapes, sweep, waterfall,
    },
    starts::{covered, spread},
};
use replimeter_render::{
    columns::{HEADINGS, cells},
    figures::{Unit, count, time, time_within},
    format::Format,
    load,
    precision::Precision,
    report::{Block, Cell, Content, Report, Table, Timeline, Visibility},
};

/// Returns the report of a run; `raw` adds the lines of every row of a sweep over sizes.
#[must_use]
pub fn report(document: &LagDocument, raw: bool) -> Report {
    let overall = overall_rows(document);
    let samples = overall.iter().map(|row| row.from_ack.count).sum();
    let extent = format!("{} samples", count(samples));
    let mut report = Report::of(document, "Replication lag", extent);
    report.several = document.several();
    report.facts.extend(facts(document));
    add_figures(&mut report, document, &overall);
    if raw {
        let per_step = document.settings.rows_per_step.unwrap_or(1);
        for table in &document.results.size_sweep {
            let title = format!("Every row of the sweep, {}", table.replica);
            let lines = Content::Verbatim(sweep::raw(table, per_step));
            report.add(Block::new("raw", title, lines));
        }
    }
    report.add(load::block(&document.results.load, document.several()));
    report.how = how(document);
    let mut report = report.with_servers(&document.target);
    report.how.push(client(document));
    report
}

/// Returns the method, the write schedule and the row size.
fn facts(document: &LagDocument) -> Vec<String> {
    let settings = &document.settings;
    let method = settings.method.clone().unwrap_or_default();
    let mut facts = vec![format!("method {method}")];
    facts.extend(settings.pace.map(|pace| match pace {
        Pace::Interval(span) if settings.row_arrivals == Some(Arrivals::Poisson) => {
            format!("one row per {span} on average (Poisson), open loop")
        }
        Pace::Interval(span) => format!("one row per {span}, open loop"),
        Pace::Visible => "next row when the previous one is visible, closed loop".to_owned(),
        Pace::Ack => "next row when the previous one is acknowledged, closed loop".to_owned(),
    }));
    if document.target.fresh_starts > 1 {
        facts.push(format!("{} starts", document.target.fresh_starts));
    }
    // The actual size of the rows: the requested size may have been reduced.
    let mut sizes = document.results.rows.iter().map(|row| row.size_bytes);
    if let Some(Some(size)) = sizes.next()
        && sizes.all(|other| other == Some(size))
    {
        facts.push(format!("{} bytes", count(size)));
    }
    facts
}

/// Adds the figures of single rows.
fn add_figures(report: &mut Report, document: &LagDocument, overall: &[&LagRow]) {
    if document.several() {
        let title = "Comparison (µs, lag from ack unless noted)";
        let table = Table::new(&shapes::HEADINGS, 3, shapes::lines(document));
        report.add(
            Block::table("side-by-side", title, table).with_notes(vec![shapes::note(document)]),
        );
    }
    report.add(distributions(document, overall));
    methods::blocks(document)
        .into_iter()
        .for_each(|block| report.add(block));
    if overall.iter().any(|row| row.size_bytes.is_none()) {
        report.add(by_size(document));
    }
    report.add(by_row_number(document, overall));
    waterfall::blocks(document)
        .into_iter()
        .for_each(|block| report.add(block));
    // With several shapes, the page has the charts.
    if document.several() {
        return;
    }
    for row in overall
        .iter()
        .filter(|row| row.method_differences.is_none())
    {
        let name = label_of(document, row);
        let title = format!("Lag from ack, {name}");
        let bars = Content::Bars(row.histogram.clone());
        report.add(Block::new("histogram", title, bars).shown(Visibility::WithoutCharts));
        let half_us = Precision::of_brackets(&row.bracket_us, &row.from_ack).single();
        if let Some(block) = over_time(&name, &row.windows, half_us) {
            report.add(block);
        }
    }
}

/// Returns the unit that suits the lag of these rows.
fn unit_of(rows: &[&LagRow]) -> Unit {
    let typical = |row: &&LagRow| {
        row.from_send
            .p50_us
            .or(row.from_send.mean_us)
            .unwrap_or(0.0)
    };
    Unit::for_size(rows.iter().map(typical).fold(0.0, f64::max))
}

/// Returns the distributions of a row, with their names and precision.
fn parts(row: &LagRow) -> Vec<(&'static str, &Distribution, Precision<'_>)> {
    let lag = |distribution| Precision::of_brackets(&row.bracket_us, distribution);
    let mut parts = vec![
        ("lag from ack", &row.from_ack, lag(&row.from_ack)),
        ("lag from send", &row.from_send, lag(&row.from_send)),
        (
            "lag from intended start",
            &row.from_intended,
            lag(&row.from_intended),
        ),
        (
            methods::from_primary(&row.method),
            &row.from_primary,
            lag(&row.from_primary),
        ),
    ];
    // A tap has no brackets to estimate from.
    if let Some(error) = methods::error(&row.method) {
        let estimate = Precision::between(&row.estimate, row.estimate_within.p50_us);
        parts.push(("estimate from ack", &row.estimate, estimate));
        parts.push((error, &row.bracket_us, Precision::exact(&row.bracket_us)));
    }
    // The write is the same for every method.
    if row.method_differences.is_none() {
        let write = Precision::exact(&row.write_latency);
        parts.push(("insert (send to ack)", &row.write_latency, write));
    }
    let retrieval = Precision::exact(&row.retrieval);
    parts.push((
        "retrieval (the read that returned the row)",
        &row.retrieval,
        retrieval,
    ));
    // A replica that showed no row still gets a line.
    parts.retain(|(what, distribution, _)| distribution.count > 0 || *what == "lag from ack");
    parts
}

/// Returns a line of a table of distributions.
fn line(
    label: [String; 2],
    unit: Unit,
    distribution: &Distribution,
    precision: Precision<'_>,
) -> Vec<Cell> {
    let mut line: Vec<Cell> = label.map(Cell::Text).into();
    line.extend(cells(unit, distribution, precision));
    line
}

fn headings(first: [&'static str; 2]) -> Vec<&'static str> {
    first.into_iter().chain(HEADINGS).collect()
}

fn distributions(document: &LagDocument, rows: &[&LagRow]) -> Block {
    let unit = unit_of(rows);
    let lines = rows.iter().flat_map(|row| {
        let label = label_of(document, row);
        parts(row)
            .into_iter()
            .map(move |(what, distribution, precision)| {
                let label = [label.clone(), what.to_owned()];
                line(label, unit, distribution, precision)
            })
    });
    let table = Table::new(&headings(["replica", "figure"]), 2, lines);
    let mut notes = Vec::new();
    let missing = missing_rows(rows.iter().copied());
    if missing > 0 {
        notes.push(format!(
            "timed out: {} rows did not become visible before the timeout",
            count(missing)
        ));
    }
    for row in rows.iter().filter(|row| row.unplaced > 0) {
        notes.push(format!(
            "{} by {}: {} timestamps are left out, because a clock was set",
            row.replica,
            row.method,
            count(row.unplaced)
        ));
    }
    notes.extend(rows.iter().filter_map(|row| of_starts(document, row, unit)));
    let title = format!("Distributions ({})", unit.symbol());
    Block::table("figures", title, table).with_notes(notes)
}

/// Returns the tails of the lag from the acknowledgement in each start of the servers.
fn of_starts(document: &LagDocument, row: &LagRow, unit: Unit) -> Option<String> {
    let lag = &row.from_ack;
    let half_us = Precision::of_brackets(&row.bracket_us, lag).quantile(0.5);
    let tails = [
        ("p90", lag.p90_us_starts),
        ("p95", lag.p95_us_starts),
        ("p99", lag.p99_us_starts),
    ];
    let tails =
        tails.map(|(name, starts)| spread(name, starts, |us| unit.show_within(us, half_us)));
    let tails: Vec<String> = tails.into_iter().flatten().collect();
    (!tails.is_empty()).then(|| {
        format!(
            "{}, lag from ack of the starts (smallest / median / largest): {}",
            label_of(document, row),
            tails.join(", ")
        )
    })
}

fn by_size(document: &LagDocument) -> Block {
    let sized = document.results.rows.iter();
    let sized: Vec<&LagRow> = sized.filter(|row| row.size_bytes.is_some()).collect();
    let unit = unit_of(&sized);
    let lines = sized.iter().map(|row| {
        let size = row.size_bytes.map(count).unwrap_or_default();
        let precision = Precision::of_brackets(&row.bracket_us, &row.from_ack);
        line([row.replica.clone(), size], unit, &row.from_ack, precision)
    });
    Block::table(
        "by-size",
        format!("Lag from ack by payload size ({})", unit.symbol()),
        Table::new(&headings(["replica", "bytes"]), 1, lines),
    )
}

/// Returns the lag by the number of a row within its start.
fn by_row_number(document: &LagDocument, rows: &[&LagRow]) -> Block {
    let unit = unit_of(rows);
    let lines = rows.iter().flat_map(|row| {
        let label = label_of(document, row);
        let half_us = Precision::of_brackets(&row.bracket_us, &row.from_ack).quantile(0.5);
        row.by_row_number.iter().map(move |part| {
            vec![
                label.clone().into(),
                format!("{} to {}", count(part.first), count(part.last)).into(),
                Cell::Count(part.count),
                Cell::time(part.p50_us, half_us, unit),
                Format::Ratio.estimate(&part.of_last),
            ]
        })
    });
    let headings = ["replica", "rows of a start", "n", "p50", "× the last, 95 %"];
    let title = format!(
        "Lag from ack by the number of a row within its start ({})",
        unit.symbol()
    );
    Block::table("by-row-number", title, Table::new(&headings, 2, lines)).shown(Visibility::OnPage)
}

/// Returns the windows of the run: medians and maxima, each known to ± `half_us`.
fn over_time(name: &str, windows: &[Window], half_us: f64) -> Option<Block> {
    let (first, last) = (windows.first()?, windows.last()?);
    if windows.len() < 3 {
        return None;
    }
    let timeline = |name: &str, values: Vec<Option<f64>>| {
        let known = || values.iter().flatten().copied();
        let (low, high) = (
            known().fold(f64::MAX, f64::min),
            known().fold(f64::MIN, f64::max),
        );
        let height = |value: f64| (value - low) / (high - low).max(1e-9);
        (known().count() >= 3).then(|| Timeline {
            name: name.to_owned(),
            heights: values.iter().map(|value| value.map(height)).collect(),
            scale: format!(
                "{} to {}",
                time_within(low, half_us),
                time_within(high, half_us)
            ),
        })
    };
    let lines = [
        timeline("median", windows.iter().map(|one| one.p50_us).collect()),
        timeline(
            "largest",
            windows.iter().map(|one| Some(one.max_us)).collect(),
        ),
    ];
    let title = format!(
        "Over time, {name}: {} windows of {}, 0 to {}",
        windows.len(),
        time(first.end_us - first.start_us),
        time(last.end_us)
    );
    let lines = Content::Timelines(lines.into_iter().flatten().collect());
    Some(Block::new("over-time", title, lines).shown(Visibility::WithoutCharts))
}

fn how(document: &LagDocument) -> Vec<String> {
    let mut how = vec![
        "Intervals are 95 %; quantiles with fewer than ten samples beyond them are omitted."
            .to_owned(),
    ];
    let mut rows = document.results.rows.iter();
    if rows.any(|row| row.from_ack.min_us.is_some_and(|us| us < 0.0)) {
        how.push(
            "Negative lag: a row was visible on a replica before the primary acknowledged it."
                .to_owned(),
        );
    }
    how.push(covered(document.target.fresh_starts));
    how.push(format!(
        "Warm-up: {} rounds, excluded.",
        count(document.results.warm_up_rounds)
    ));
    let floors = document.results.floors.iter();
    how.extend(floors.map(|floor| methods::floor(document, floor)));
    how
}

/// Returns what delayed the client itself, and the countermeasures.
fn client(document: &LagDocument) -> String {
    let client = &document.client;
    let late = |us| Format::Time.text(us);
    let yes = |is: bool| if is { "yes" } else { "no" };
    format!(
        "Client: writes started {} late (p50), {} (p99), {} (max); idle cores kept awake: {}; real-time priority for the measuring \
         threads: {}; clock resolution: {} µs.",
        late(client.start_lateness.p50_us),
        late(client.start_lateness.p99_us),
        late(client.start_lateness.max_us),
        yes(client.keep_awake),
        yes(client.real_time),
        client.clock_step_us,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use replimeter_model::record::StartSpread;
    use replimeter_render::terminal;

    #[test]
    fn tails_of_the_starts_are_shown() {
        let starts = |min: f64, median: f64, max: f64| Some(StartSpread { min, median, max });
        let mut row = LagRow {
            replica: "replica1".to_owned(),
            ..LagRow::default()
        };
        row.from_ack = Distribution {
            count: 1_000,
            p50_us: Some(300.0),
            p90_us: Some(540.0),
            p95_us: Some(900.0),
            p90_us_starts: starts(410.0, 520.0, 1_900.0),
            p95_us_starts: starts(460.0, 610.0, 2_400.0),
            ..Distribution::default()
        };
        let mut document = LagDocument::default();
        document.results.rows.push(row);
        document.target.fresh_starts = 10;
        let text = terminal::render(&report(&document, false));
        for part in [
            "replica1, lag from ack of the starts (smallest / median / largest): p90 410 / 520 / 1,900, p95 460 / 610 / 2,400",
            "one in ten is missed by 10 starts with a probability of 35 %",
            "an interval from 22 starts on",
        ] {
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words(&text).contains(part), "`{part}` is missing in {text}");
        }
    }

    #[test]
    fn report_has_a_waterfall_per_replica() {
        let text = terminal::render(&report(&waterfall::example(), false));
        let table = text.split("stage by stage (µs), replica2").nth(1).unwrap();
        for line in [
            "transfer       in binlog",
            "residue ",
            "end to end     send",
        ] {
            assert!(table.contains(line), "`{line}` is missing in {table}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 132),
            "{text}"
        );
        let none = terminal::render(&report(&LagDocument::default(), false));
        assert!(!none.contains("stage by stage"));
    }
}

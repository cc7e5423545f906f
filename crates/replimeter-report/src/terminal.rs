//! The report people read in a terminal.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use replimeter_model::{
    plan::Pace,
    record::{Bin, Distribution, LagDocument, LagRow, Window, missing_rows},
    warning::Warning,
};

use crate::{
    answer::overall_rows,
    backlog,
    columns::{HEADINGS, cells},
    figures::{Unit, count, time, time_within},
    load, methods,
    precision::Precision,
    shapes, sweep, waterfall,
};

/// Width of a histogram's longest bar, in characters.
const BAR: f64 = 44.0;
/// Eighths of a character cell.
const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
/// Heights for a line of windows.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The whole report. `raw` adds experiment 1's raw lines.
#[must_use]
pub fn lag(document: &LagDocument, raw: bool) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}\n", head(document));
    let _ = writeln!(out, "{}\n", wrapped(&document.answer, 96, ""));
    if document.settings.backlog.is_some() {
        out.push_str(&beside(document));
        out.push_str(&warnings(&document.warnings));
        return out;
    }
    let overall = overall_rows(document);
    if document.several() {
        let _ = writeln!(
            out,
            "Side by side (µs, lag from ack unless said otherwise)\n{}",
            side_by_side(document)
        );
    }
    out.push_str(&distributions(document, &overall));
    out.push_str(&methods::text(document));
    let sizes: Vec<&LagRow> = document
        .results
        .iter()
        .filter(|row| row.size_bytes.is_some())
        .collect();
    if overall.iter().any(|row| row.size_bytes.is_none()) {
        out.push_str(&by_size(&sizes));
    }
    out.push_str(&waterfalls(document));
    for row in &overall {
        // Of several shapes the page has the pictures.
        if !row.histogram.is_empty() && !document.several() && row.against.is_none() {
            let _ = writeln!(out, "\nLag from ack, {}", document.label_of(row));
            out.push_str(&histogram(&row.histogram));
        }
        let alone = !document.several() && row.against.is_none();
        if let Some(course) =
            course(&row.windows, Precision::of_lag(row, &row.from_ack).single()).filter(|_| alone)
        {
            let _ = writeln!(out, "\n{course}");
        }
    }
    for table in &document.size_sweep {
        let _ = writeln!(
            out,
            "\nAs published in 2006 (first sweep, last row of each step, ms), {}\n{}",
            table.replica,
            sweep::table(table).trim_end()
        );
        if raw {
            let _ = writeln!(
                out,
                "\n{}",
                sweep::raw(table, document.settings.per_step.unwrap_or(1)).trim_end()
            );
        }
    }
    out.push_str(&beside(document));
    out.push_str(&floor(document));
    out.push_str(&warnings(&document.warnings));
    out
}

/// The loads, and the backlogs that they made.
fn beside(document: &LagDocument) -> String {
    let mut out = backlog::text(document);
    if !document.load.is_empty() {
        let _ = write!(out, "\nLoad\n{}", load::text(document));
    }
    out
}

fn head(document: &LagDocument) -> String {
    let settings = &document.settings;
    let mut parts = vec![format!("Replimeter lag · {}", document.target.headline())];
    let mut versions: Vec<&str> = document
        .target
        .nodes
        .iter()
        .map(|node| node.version.as_str())
        .collect();
    versions.sort_unstable();
    versions.dedup();
    parts.push(versions.join(", "));
    parts.push(match settings.backlog {
        Some(grow) => format!("a backlog of {grow}"),
        None => format!("method {}", settings.method),
    });
    parts.push(match settings.pace {
        Some(Pace::Every(span)) => format!("a row every {span}, open loop"),
        Some(Pace::Visible) => "the next row when the last was seen, closed loop".to_owned(),
        Some(Pace::Ack) => "the next row when the last was acknowledged, closed loop".to_owned(),
        None => String::new(),
    });
    // The rows' own size: what was asked for may have been cut.
    if let (Some(_), Some(size)) = (
        settings.size,
        document.results.first().and_then(|row| row.size_bytes),
    ) {
        parts.push(format!("{} bytes", count(size)));
    }
    if let Some(title) = &document.title {
        parts.push(title.clone());
    }
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

fn unit_of(rows: &[&LagRow]) -> Unit {
    let typical = |row: &&LagRow| {
        row.from_send
            .p50_us
            .or(row.from_send.mean_us)
            .unwrap_or(0.0)
    };
    Unit::for_size(rows.iter().map(typical).fold(0.0, f64::max))
}

pub(crate) fn plain_table(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    table
}

pub(crate) fn aligned(mut table: Table, left: usize) -> String {
    for (index, column) in table.column_iter_mut().enumerate() {
        if index >= left {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

fn row(
    label: [String; 2],
    unit: Unit,
    distribution: &Distribution,
    precision: Precision<'_>,
) -> Vec<String> {
    label
        .into_iter()
        .chain(cells(unit, distribution, precision))
        .collect()
}

fn table(first: &str, second: &str) -> Table {
    plain_table(
        [first, second]
            .into_iter()
            .chain(HEADINGS)
            .map(str::to_owned)
            .collect(),
    )
}

/// Lines of distributions for every replica: its name, what, and the cells; in which unit.
pub(crate) fn distribution_lines(
    document: &LagDocument,
    rows: &[&LagRow],
) -> (Unit, Vec<Vec<String>>) {
    let unit = unit_of(rows);
    let mut lines = Vec::new();
    for row in rows {
        let mut add = |what: &str, distribution: &Distribution, precision: Precision<'_>| {
            lines.push(self::row(
                [document.label_of(row), what.to_owned()],
                unit,
                distribution,
                precision,
            ));
        };
        let lag = |distribution| Precision::of_lag(row, distribution);
        add("lag from ack", &row.from_ack, lag(&row.from_ack));
        add("lag from send", &row.from_send, lag(&row.from_send));
        if matches!(document.settings.pace, Some(Pace::Every(_))) {
            add(
                "lag from intended start",
                &row.from_intended,
                lag(&row.from_intended),
            );
        }
        if row.from_primary.count > 0 {
            add(
                methods::from_primary(&row.method),
                &row.from_primary,
                lag(&row.from_primary),
            );
        }
        if let Some(error) = methods::error(&row.method) {
            add(
                "estimate from ack",
                &row.estimate,
                Precision::of_estimate(row),
            );
            add(error, &row.error_us, Precision::exact(&row.error_us));
        }
        if row.against.is_none() {
            add(
                "insert (send to ack)",
                &row.insert,
                Precision::exact(&row.insert),
            );
        }
    }
    (unit, lines)
}

fn distributions(document: &LagDocument, rows: &[&LagRow]) -> String {
    let (unit, lines) = distribution_lines(document, rows);
    let mut table = table("replica", unit.symbol());
    for line in lines {
        table.add_row(line);
    }
    let mut out = aligned(table, 2);
    let missing = missing_rows(rows.iter().copied());
    if missing > 0 {
        let _ = writeln!(out, "missing: {} rows were never seen", count(missing));
    }
    for row in rows.iter().filter(|row| row.untold > 0) {
        let _ = writeln!(
            out,
            "{} by {}: {} stamps cannot be placed, since a clock was set",
            row.replica,
            row.method,
            count(row.untold)
        );
    }
    out
}

fn by_size(rows: &[&LagRow]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let unit = unit_of(rows);
    let mut table = table("replica", "bytes");
    for row in rows {
        let size = row.size_bytes.map(count).unwrap_or_default();
        table.add_row(self::row(
            [row.replica.clone(), size],
            unit,
            &row.from_ack,
            Precision::of_lag(row, &row.from_ack),
        ));
    }
    format!(
        "\nLag from ack by payload size ({})\n{}",
        unit.symbol(),
        aligned(table, 1)
    )
}

/// The stages of transactions, a table for each replica that has them.
fn waterfalls(document: &LagDocument) -> String {
    let mut out = String::new();
    for one in waterfall::tables(document) {
        let _ = writeln!(
            out,
            "\nFrom send to visible, stage by stage ({}), {}",
            one.unit.symbol(),
            one.name
        );
        let mut table = plain_table(one.headings);
        for line in one.lines {
            table.add_row(line);
        }
        out.push_str(&aligned(table, 3));
        for note in one.notes {
            let _ = writeln!(out, "  {}", wrapped(&note, 110, "  "));
        }
    }
    out
}

/// Every replica of every shape in one line, for comparing modes.
fn side_by_side(document: &LagDocument) -> String {
    let mut table = plain_table(shapes::HEADINGS.map(str::to_owned).to_vec());
    for line in shapes::lines(document) {
        table.add_row(line);
    }
    let mut out = aligned(table, 3);
    let _ = writeln!(out, "  {}", wrapped(shapes::NOTE, 96, "  "));
    out
}

/// A histogram of block characters, a line per bar.
#[must_use]
pub fn histogram(bins: &[Bin]) -> String {
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(0);
    // The open bars at the ends must not choose the unit.
    let typical = bins
        .iter()
        .max_by_key(|bin| bin.count)
        .map_or(0.0, |bin| bin.high_us);
    let unit = Unit::for_size(typical);
    let ends: Vec<(String, String)> = bins
        .iter()
        .map(|bin| (unit.show(bin.low_us), unit.show(bin.high_us)))
        .collect();
    let wide = |pick: &dyn Fn(&(String, String)) -> usize| ends.iter().map(pick).max().unwrap_or(0);
    let (low, high) = (
        wide(&|end| end.0.chars().count()),
        wide(&|end| end.1.chars().count()),
    );
    let mut out = String::new();
    for (bin, end) in bins.iter().zip(&ends) {
        let bar = bar(bin.count as f64 / most.max(1) as f64 * BAR, bin.count > 0);
        let _ = writeln!(
            out,
            "  {:>low$} – {:>high$} {}  {} {}",
            end.0,
            end.1,
            unit.symbol(),
            bar,
            count(bin.count)
        );
    }
    out
}

/// A bar of so many character cells, in eighths; something is always drawn for
/// something.
fn bar(cells: f64, something: bool) -> String {
    let eighths = (cells * 8.0).round() as usize;
    let eighths = if something { eighths.max(1) } else { eighths };
    let mut bar: String = std::iter::repeat_n(EIGHTHS[7], eighths / 8).collect();
    if eighths % 8 > 0 {
        bar.push(EIGHTHS[eighths % 8 - 1]);
    }
    bar
}

/// The course of the run: one character a window for the median and the largest,
/// each known to ± `half_us`.
fn course(windows: &[Window], half_us: f64) -> Option<String> {
    let (first, last) = (windows.first()?, windows.last()?);
    if windows.len() < 3 {
        return None;
    }
    let medians: Vec<Option<f64>> = windows.iter().map(|window| window.p50_us).collect();
    let largest: Vec<Option<f64>> = windows.iter().map(|window| Some(window.max_us)).collect();
    let mut out = format!(
        "Over time, {} windows of {}\n",
        windows.len(),
        time(first.end_us - first.start_us),
    );
    for (name, values) in [("median", &medians), ("largest", &largest)] {
        let known: Vec<f64> = values.iter().flatten().copied().collect();
        if known.len() < 3 {
            continue;
        }
        let (low, high) = known
            .iter()
            .fold((f64::MAX, f64::MIN), |(low, high), value| {
                (low.min(*value), high.max(*value))
            });
        let line: String = values
            .iter()
            .map(|value| {
                value.map_or(' ', |value| {
                    HEIGHTS[(((value - low) / (high - low).max(1e-9)) * 7.0).round() as usize]
                })
            })
            .collect();
        let _ = writeln!(
            out,
            "  {name:>7}  {line}  {} to {}",
            time_within(low, half_us),
            time_within(high, half_us)
        );
    }
    let _ = write!(out, "  {:>7}  0 to {}", "", time(last.end_us));
    Some(out)
}

fn floor(document: &LagDocument) -> String {
    let mut out = how_measured(&methods::sentences(&methods::used(document)));
    let _ = writeln!(
        out,
        "  Medians are given with 95 % intervals, widened for dependence between rounds; quantiles with fewer than 10 samples beyond\n  \
         are left out."
    );
    if !document.target.options.is_empty() {
        let _ = writeln!(
            out,
            "  Servers: {}.",
            wrapped(&document.target.options.join("; "), 108, "  ")
        );
    }
    let _ = writeln!(
        out,
        "  Warm-up: {} rounds, not counted.",
        count(document.warm_up_rounds)
    );
    for floor in &document.floors {
        let _ = writeln!(
            out,
            "  {}",
            wrapped(&methods::floor(document, floor), 118, "  ")
        );
    }
    let client = &document.client;
    let late = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), time);
    let _ = writeln!(
        out,
        "  Client: writes started {} late (p50), {} (p99), {} at most; idle cores kept awake: {};\n  real-time priority for the measuring threads: {}.",
        late(client.start_lateness.p50_us),
        late(client.start_lateness.p99_us),
        late(client.start_lateness.max_us),
        if client.keep_awake { "yes" } else { "no" },
        if client.real_time { "yes" } else { "no" }
    );
    out
}

/// Warnings, each with what to do.
#[must_use]
pub fn warnings(warnings: &[Warning]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let mut out = String::from("\nWarnings\n");
    for warning in warnings {
        let _ = writeln!(out, "  ! {}", wrapped(&warning.message, 110, "    "));
        let _ = writeln!(out, "    → {}", wrapped(&warning.hint, 110, "      "));
    }
    out
}

/// How it was measured, in a report's text.
pub(crate) fn how_measured(sentences: &[String]) -> String {
    format!("\nHow it was measured\n{}", paragraphs(sentences))
}

/// Sentences beneath one another.
pub(crate) fn paragraphs(sentences: &[String]) -> String {
    sentences
        .iter()
        .map(|sentence| format!("  {}\n", wrapped(sentence, 118, "  ")))
        .collect()
}

/// Breaks a text into lines of at most `width` characters.
pub(crate) fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let fits = lines.last().is_some_and(|line| {
            line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width
        });
        if !fits {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join(&format!("\n{indent}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_proportional_and_never_empty_for_something() {
        assert_eq!(bar(2.0, true), "██");
        assert_eq!(bar(1.5, true), "█▌");
        assert_eq!(bar(0.001, true), "▏");
        assert_eq!(bar(0.0, false), "");
    }

    #[test]
    fn a_histogram_has_a_line_per_bar() {
        let bins = [
            Bin {
                low_us: 100.0,
                high_us: 120.0,
                count: 8,
            },
            Bin {
                low_us: 120.0,
                high_us: 140.0,
                count: 0,
            },
        ];
        let text = histogram(&bins);
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("100 – 120 µs"), "{text}");
    }

    #[test]
    fn a_waterfall_for_each_replica() {
        let text = lag(&crate::waterfall::example(), false);
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
        assert!(!lag(&LagDocument::default(), false).contains("stage by stage"));
    }

    #[test]
    fn long_texts_are_wrapped_between_words() {
        assert_eq!(wrapped("aa bb cc", 5, "  "), "aa bb\n  cc");
    }
}

//! Checks that each output has all of a report, in its order.

use replimeter_render::{
    chart::Chart,
    figures::count,
    markdown,
    report::{Block, Content, Report, Table},
    terminal::controls_terminal,
};
use serde_json::Value;

use super::{
    page::{figures, unabbreviated, without_report},
    report::{ReportData, axes, full, point_texts, title},
    runs::Rendered,
};

/// An output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Terminal,
    Markdown,
    Page,
}

/// A text that an output must have after the previous one.
#[derive(Debug)]
enum Piece {
    /// The text without its line breaks.
    Text(String),
    /// The cells of a row.
    Row(Vec<String>),
}

/// Returns the texts of a report that an output of the tool lacks, or has in another order.
#[must_use]
pub fn missing(of: &Rendered, data: &ReportData) -> Vec<String> {
    let (page, report) = without_report(&of.page);
    let mut missing = Vec::new();
    // A terminal has the reports of several runs one after the other, and their common one is on the page only.
    if of.cases.is_empty() && plain(&report) != plain(&terminal_report(&of.terminal)) {
        missing.push("the report as text on the page is not that of the terminal".to_owned());
    }
    let page = unabbreviated(&page);
    let outputs = [
        (Output::Terminal, &report),
        (Output::Markdown, &of.markdown),
        (Output::Page, &page),
    ];
    for (output, text) in outputs {
        // There is no Markdown of several runs.
        if text.is_empty() && output == Output::Markdown {
            continue;
        }
        let pieces = pieces(output, data);
        let lacks = lacking(output, &pieces, text);
        missing.extend(
            lacks
                .iter()
                .map(|piece| format!("{output:?} lacks, or has elsewhere, {piece:?}")),
        );
    }
    for block in &data.raw {
        let pieces = block_pieces(Output::Terminal, block);
        missing.extend(
            lacking(Output::Terminal, &pieces, &of.raw)
                .iter()
                .map(|piece| format!("--raw lacks {piece:?}")),
        );
    }
    missing.extend(missing_in_charts(&data.charts, &figures(&of.page)));
    missing
}

/// Returns a terminal's text without what follows the report.
#[must_use]
pub fn terminal_report(text: &str) -> String {
    let ends = [
        "\nRun kept in",
        "\nComparison kept in",
        "\nAs a page:",
        "--- exit code",
    ];
    let end = ends.iter().filter_map(|end| text.find(end)).min();
    text[..end.unwrap_or(text.len())].to_owned()
}

/// Returns a text in one line, without escapes of Markdown.
fn plain(text: &str) -> String {
    let text = text
        .replace('\\', "")
        .replace(controls_terminal, "\u{fffd}");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the pieces that `text` lacks after the previous ones.
fn lacking<'a>(output: Output, pieces: &'a [Piece], text: &str) -> Vec<&'a Piece> {
    let text = plain(text);
    let mut rest = text.as_str();
    let mut lacking = Vec::new();
    for piece in pieces {
        let wanted = match (piece, output) {
            (Piece::Text(text), _) => plain(text),
            (Piece::Row(cells), Output::Terminal) => plain(&cells.join(" ")),
            (Piece::Row(cells), Output::Markdown) => {
                let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
                plain(&format!("| {} |", cells.join(" | ")))
            }
            (Piece::Row(cells), Output::Page) => {
                // A line of a page begins with the first cell that is not empty.
                let cells = cells.iter().skip_while(|cell| plain(cell).is_empty());
                plain(
                    &cells
                        .map(|cell| plain(cell))
                        .collect::<Vec<_>>()
                        .join(" | "),
                )
            }
        };
        if let Some(at) = rest.find(&wanted) {
            rest = &rest[at + wanted.len()..];
            continue;
        }
        // Cells that are wrapped side by side are in pieces.
        let wrapped = matches!(piece, Piece::Row(_)) && output == Output::Terminal;
        if !wrapped || !wanted.split(' ').all(|word| has_broken(rest, word)) {
            lacking.push(piece);
        }
    }
    lacking
}

/// Returns whether a text has a word, which may be broken into parts of at least four characters.
fn has_broken(text: &str, word: &str) -> bool {
    let mut rest = word;
    while !rest.is_empty() {
        let mut ends: Vec<usize> = rest.char_indices().map(|(at, _)| at).skip(4).collect();
        ends.push(rest.len());
        let part = |end: &&usize| text.contains(&rest[..**end]);
        let Some(&end) = ends.iter().rev().find(part) else {
            return false;
        };
        rest = &rest[end..];
    }
    true
}

/// Returns the texts of an output, in its order.
fn pieces(output: Output, data: &ReportData) -> Vec<Piece> {
    let report = &data.report;
    let mut pieces = Vec::new();
    let mut say = |text: &str| pieces.push(Piece::Text(text.to_owned()));
    let facts = report.facts.iter().filter(|fact| !fact.is_empty());
    match output {
        Output::Terminal => {
            say(&report.named());
            facts.for_each(|fact| say(fact));
            say(&report.answer);
        }
        Output::Markdown => {
            say(&format!("# {}", report.named()));
            facts.for_each(|fact| say(fact));
            say(&report.started_at);
            say(&report.answer);
        }
        Output::Page => {
            say(&format!("Replimeter · {}", report.command));
            say(report.heading());
            say(&report.answer);
            report.error.iter().for_each(|error| say(error));
            facts.for_each(|fact| say(fact));
            say(&report.extent);
            say(&report.started_at);
        }
    }
    if output != Output::Page {
        report.error.iter().for_each(|error| say(error));
    }
    let warnings = report.warnings.iter().flat_map(|warning| {
        [
            Piece::Text(warning.message.clone()),
            Piece::Text(format!("→ {}", warning.hint)),
        ]
    });
    let warnings: Vec<Piece> = warnings.collect();
    let how = |pieces: &mut Vec<Piece>| {
        if !report.how.is_empty() {
            pieces.push(Piece::Text("Method".to_owned()));
        }
        pieces.extend(report.how.iter().cloned().map(Piece::Text));
    };
    if output != Output::Page {
        let blocks = report.blocks_for(false);
        pieces.extend(blocks.flat_map(|block| block_pieces(output, block)));
        how(&mut pieces);
        pieces.extend(warnings);
        return pieces;
    }
    pieces.extend(warnings);
    let (after, before): (Vec<&Block>, Vec<&Block>) = report
        .blocks_for(true)
        .partition(|block| block.after_charts);
    pieces.extend(before.iter().flat_map(|block| block_pieces(output, block)));
    for chart in &data.charts {
        pieces.push(Piece::Text(chart.title.to_owned()));
        pieces.push(Piece::Text(chart.note.clone()));
        pieces.extend(table_pieces(output, &chart.table));
    }
    pieces.extend(after.iter().flat_map(|block| block_pieces(output, block)));
    how(&mut pieces);
    pieces
}

fn block_pieces(output: Output, block: &Block) -> Vec<Piece> {
    let text = |text: &str| Piece::Text(text.to_owned());
    let mut pieces = vec![text(&block.title)];
    match &block.content {
        Content::Table(table) => pieces.extend(table_pieces(output, table)),
        Content::List(list) => pieces.extend(list.iter().map(|one| text(one))),
        Content::Advice(_, all) => {
            let hint = |hint: &str| Some(text(&format!("→ {hint}"))).filter(|_| !hint.is_empty());
            pieces.extend(
                all.iter()
                    .flat_map(|(message, advice)| [Some(text(message)), hint(advice)])
                    .flatten(),
            );
        }
        Content::Verbatim(lines) => pieces.extend(lines.lines().map(text)),
        Content::Bars(bins) => {
            let drawn = drawn(block);
            assert_eq!(drawn.len(), bins.len(), "{}", block.title);
            for (line, bin) in drawn.iter().zip(bins) {
                let count = count(bin.count);
                assert!(line.ends_with(&format!(" {count}")), "{line}: {count}");
            }
            pieces.extend(drawn.iter().map(|line| text(line)));
        }
        Content::Timelines(lines) => {
            let drawn = drawn(block);
            assert_eq!(drawn.len(), lines.len(), "{}", block.title);
            for (drawn, line) in drawn.iter().zip(lines) {
                let ends = drawn.starts_with(&line.name) && drawn.ends_with(&line.scale);
                assert!(ends, "{drawn}: {line:?}");
            }
            pieces.extend(drawn.iter().map(|line| text(line)));
        }
        Content::Columns(tables) => {
            for (heading, table) in tables {
                pieces.push(text(heading));
                pieces.extend(table_pieces(output, table));
            }
        }
    }
    pieces.extend(block.notes.iter().map(|note| text(note)));
    pieces
}

/// Returns the lines that a block is drawn with.
fn drawn(block: &Block) -> Vec<String> {
    let blocks = vec![block.clone()];
    let alone = markdown::render(&Report {
        blocks,
        ..Report::default()
    });
    let lines = alone.split("```").nth(1).unwrap_or_default().lines();
    lines.skip(1).map(str::to_owned).collect()
}

fn table_pieces(output: Output, table: &Table) -> Vec<Piece> {
    let headings = table.columns.iter().map(|column| column.heading.clone());
    let mut pieces = vec![Piece::Row(headings.collect())];
    if output == Output::Page {
        let rows = table.rows.iter();
        pieces.extend(rows.map(|row| Piece::Row(row.iter().map(full).collect())));
    } else {
        pieces.extend(table.shown().map(Piece::Row));
        pieces.extend(table.omitted_rows().map(Piece::Text));
    }
    pieces
}

/// Returns the texts of charts that the figures of a page lack.
fn missing_in_charts(charts: &[Chart], figures: &[Value]) -> Vec<String> {
    let ids = |all: Vec<&str>| all.join(" ");
    let (wanted, there) = (
        ids(charts.iter().map(|chart| chart.id).collect()),
        ids(figures
            .iter()
            .map(|figure| figure["id"].as_str().unwrap())
            .collect()),
    );
    if wanted != there {
        return vec![format!(
            "the page has the charts {there} instead of {wanted}"
        )];
    }
    let mut missing = Vec::new();
    for (chart, figure) in charts.iter().zip(figures) {
        let mut check = |has: bool, what: &str| {
            if !has {
                missing.push(format!("chart {} lacks {what}", chart.id));
            }
        };
        let layout = figure["layout"].to_string();
        let shown = |text: &str| text.replace(controls_terminal, "\u{fffd}");
        let quoted = |text: &str| Value::from(shown(text)).to_string();
        for (_, axis) in axes(chart) {
            let labels = axis.ticks.iter().map(|(_, label)| label.clone());
            for text in [title(axis), axis.suffix.to_owned()]
                .into_iter()
                .chain(labels)
            {
                check(text.is_empty() || layout.contains(&quoted(&text)), &text);
            }
        }
        let traces = figure["data"].as_array().unwrap();
        check(traces.len() == chart.series.len(), "a series");
        for (trace, series) in traces.iter().zip(&chart.series) {
            check(
                trace["name"].as_str() == Some(&shown(&series.name)),
                &series.name,
            );
            let template = trace["hovertemplate"].as_str().unwrap();
            let words = chart.hover.split(['{', '}']).step_by(2);
            for word in words {
                check(template.contains(word), word);
            }
            check(
                template.matches("%{").count() == chart.hover.matches('{').count() + 1,
                "a value in the text of a point",
            );
            for (kind, mut wanted) in point_texts(series) {
                let key = if kind == "text" { "hovertext" } else { "text" };
                let texts = trace[key].as_array().into_iter().flatten();
                let mut there: Vec<&str> = texts.filter_map(Value::as_str).collect();
                there.sort_unstable();
                wanted = wanted.iter().map(|text| shown(text)).collect();
                wanted.sort_unstable();
                check(
                    there == wanted,
                    &format!("the {kind} of points of {}", series.name),
                );
            }
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use replimeter_model::{
        manifest::Manifest,
        warning::{Warning, WarningCode},
    };
    use replimeter_render::{html, terminal};

    use super::*;

    /// Returns a report as the tool would render it.
    fn rendered() -> (Rendered, ReportData) {
        let rows = [vec!["replica1", "12"], vec!["a \\| b", "34"]];
        let block = Block::table("figures", "Lags", Table::new(&["replica", "lag"], 1, rows));
        let report = Report {
            command: "lag",
            question: "Replication lag",
            answer: "All is well. ".repeat(12),
            blocks: vec![block.with_notes(vec!["A note.".to_owned()])],
            how: vec!["By a clock.".to_owned()],
            warnings: vec![Warning::new(
                WarningCode::PasswordInUrl,
                "It was late.",
                "wait longer",
            )],
            ..Report::default()
        };
        let rendered = Rendered {
            name: "made".to_owned(),
            run: None,
            cases: Vec::new(),
            json: Value::Null,
            csv: String::new(),
            terminal: terminal::render(&report) + "\nRun kept in /run\n",
            raw: String::new(),
            markdown: markdown::render(&report),
            page: html::page(&report, Vec::new(), &Manifest::default(), "").unwrap(),
        };
        let data = ReportData {
            report,
            raw: Vec::new(),
            charts: Vec::new(),
            parts: Vec::new(),
        };
        (rendered, data)
    }

    #[test]
    fn outputs_of_a_report_lack_nothing() {
        let (of, data) = rendered();
        assert_eq!(missing(&of, &data), Vec::<String>::new());
    }

    #[test]
    fn output_that_lacks_a_sentence_or_a_cell_is_found() {
        let parts = [
            "Lags",
            "replica1",
            "34",
            "A note.",
            "By a clock.",
            "It was late.",
            "wait longer",
        ];
        for part in parts {
            let (of, data) = rendered();
            let markdown = of.markdown.replacen(part, "", 1);
            let page = of.page.replace(part, "");
            let terminal = of.terminal.replacen(part, "", 1);
            let all = [
                (
                    Rendered {
                        markdown,
                        ..rendered().0
                    },
                    "Markdown",
                ),
                (
                    Rendered {
                        page,
                        ..rendered().0
                    },
                    "Page",
                ),
                (
                    Rendered {
                        terminal,
                        ..rendered().0
                    },
                    "terminal",
                ),
            ];
            for (of, output) in all {
                let missing = missing(&of, &data);
                assert!(
                    missing.iter().any(|one| one.contains(output)),
                    "{part}: {missing:?}"
                );
            }
        }
    }

    #[test]
    fn order_of_sentences_is_that_of_the_report() {
        let (of, mut data) = rendered();
        data.report.blocks[0]
            .notes
            .insert(0, "By a clock.".to_owned());
        assert!(!missing(&of, &data).is_empty());
    }

    #[test]
    fn broken_words_are_found_in_their_parts() {
        assert!(has_broken(
            "sync_master_ x timeout=12",
            "sync_master_timeout=12"
        ));
        assert!(!has_broken(
            "sync_master_ x timeout=13",
            "sync_master_timeout=12"
        ));
        assert!(!has_broken("a b c", "abc"));
    }
}

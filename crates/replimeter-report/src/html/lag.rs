//! The page of a `lag` run.

use std::path::Path;

use minijinja::{Value, context, value::Serde};
use replimeter_model::{
    manifest::Manifest,
    plan::Method,
    record::{Distribution, LagDocument},
};
use serde::Serialize;

use super::{HtmlError, frame::Page, pictures};
use crate::{
    answer::overall_rows,
    backlog,
    columns::{HEADINGS, cells},
    figures::{Unit, count, time},
    load, methods,
    precision::Precision,
    samples, shapes, sweep, terminal, waterfall,
};

const TEMPLATE: &str = include_str!("lag.html");

/// A line of a table of distributions.
#[derive(Serialize)]
struct Line {
    replica: String,
    size: String,
    what: &'static str,
    cells: Vec<String>,
}

fn line(
    replica: &str,
    size: Option<u64>,
    what: &'static str,
    unit: Unit,
    distribution: &Distribution,
    precision: Precision<'_>,
) -> Line {
    let size = size.map_or_else(|| "all".to_owned(), count);
    Line {
        replica: replica.to_owned(),
        size,
        what,
        cells: cells(unit, distribution, precision),
    }
}

fn lines(document: &LagDocument) -> (Unit, Vec<Line>) {
    let overall = overall_rows(document);
    let unit = Unit::for_size(
        overall
            .iter()
            .filter_map(|row| row.from_send.p50_us.or(row.from_send.mean_us))
            .fold(0.0, f64::max),
    );
    let mut lines = Vec::new();
    for row in &overall {
        let lag = |distribution| Precision::of_lag(row, distribution);
        for (what, distribution, precision) in [
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
            (
                "estimate from ack",
                &row.estimate,
                Precision::of_estimate(row),
            ),
            (
                methods::error(&row.method).unwrap_or_default(),
                &row.error_us,
                Precision::exact(&row.error_us),
            ),
            (
                "insert (send to ack)",
                &row.insert,
                Precision::exact(&row.insert),
            ),
            (
                "retrieval (the read that showed the row)",
                &row.retrieval,
                Precision::exact(&row.retrieval),
            ),
        ] {
            // The write is the same for every method, and a tap has no brackets to estimate from.
            let again = what.starts_with("insert") && row.against.is_some();
            let nothing = what.starts_with("estimate") && methods::error(&row.method).is_none();
            if what.is_empty() || distribution.count == 0 || again || nothing {
                continue;
            }
            lines.push(line(
                &document.label_of(row),
                row.size_bytes,
                what,
                unit,
                distribution,
                precision,
            ));
        }
    }
    if overall.iter().any(|row| row.size_bytes.is_none()) {
        for row in document
            .results
            .iter()
            .filter(|row| row.size_bytes.is_some())
        {
            lines.push(line(
                &row.replica,
                row.size_bytes,
                "lag from ack",
                unit,
                &row.from_ack,
                Precision::of_lag(row, &row.from_ack),
            ));
        }
    }
    (unit, lines)
}

/// Renders the page from a run's record and its samples.
///
/// # Errors
/// When the samples cannot be read.
pub fn lag(
    document: &LagDocument,
    manifest: &Manifest,
    plan: &str,
    samples_file: &Path,
) -> Result<String, HtmlError> {
    let mut gathered = pictures::Gathered::default();
    // There are few names, and millions of samples.
    let mut names: Vec<(String, String, Method, String)> = Vec::new();
    samples::read(samples_file, |shape, replica, sample| {
        let of = |name: &(String, String, Method, String)| {
            name.0 == shape && name.1 == replica && name.2 == sample.method
        };
        let at = names.iter().position(of).unwrap_or_else(|| {
            let name = document.label(shape, replica, sample.method.name());
            names.push((shape.to_owned(), replica.to_owned(), sample.method, name));
            names.len() - 1
        });
        gathered.record(&names[at].3, sample);
    })?;
    let recorded = document
        .results
        .iter()
        .map(|row| row.from_ack.count)
        .max()
        .unwrap_or(0);
    if recorded > 0 && gathered.count() == 0 && document.settings.backlog.is_none() {
        return Err(HtmlError::OtherSamples {
            recorded,
            file: samples_file.display().to_string(),
        });
    }
    let (unit, lines) = lines(document);
    let show = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), time);
    let floors: Vec<String> = document
        .floors
        .iter()
        .map(|floor| methods::floor(document, floor))
        .collect();
    let published = document.size_sweep.iter();
    let published = published
        .map(|table| context! { replica => table.replica.as_str(), text => sweep::table(table) });
    let waterfalls = waterfall::tables(document).into_iter();
    let waterfalls = waterfalls
        .map(|one| context! { name => one.name, unit => one.unit.symbol(), headings => one.headings, lines => one.lines, notes => one.notes });
    let late = &document.client.start_lateness;
    let page = Page {
        template: TEMPLATE,
        command: "lag",
        heading: document
            .title
            .as_deref()
            .unwrap_or(match document.settings.backlog {
                Some(_) => "How fast does each replica catch up?",
                None => "How late is each replica?",
            }),
        shape: &document.target.shape,
        extent: match document.settings.backlog {
            Some(grow) => format!("a backlog of {grow}"),
            None => format!("{} samples", count(gathered.count())),
        },
        document: Value::from(Serde(document)),
        manifest,
        plan,
        several: document.several(),
        pictures: pictures::all(document, &gathered),
        text_report: terminal::lag(document, false),
    };
    page.render(context! {
        unit => unit.symbol(),
        headings => HEADINGS.to_vec(),
        lines => Value::from(Serde(&lines)),
        floors,
        method_sentences => methods::sentences(&methods::used(document)),
        methods_compared => methods::text(document),
        side_by_side => context! { headings => shapes::HEADINGS.to_vec(), lines => shapes::lines(document), note => shapes::NOTE },
        waterfalls => waterfalls.collect::<Vec<Value>>(),
        load => load::text(document),
        backlog => backlog::text(document),
        published => published.collect::<Vec<Value>>(),
        warm_up => count(document.warm_up_rounds),
        lateness => context! { p50 => show(late.p50_us), p99 => show(late.p99_us), max => show(late.max_us) },
    })
}

#[cfg(test)]
mod tests {
    use replimeter_model::manifest::Manifest;

    use super::*;
    use crate::waterfall::example;

    #[test]
    fn stages_are_a_table_and_a_picture_only_where_there_are_some() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("samples.parquet");
        samples::SamplesWriter::create(&file, "primary")
            .unwrap()
            .finish()
            .unwrap();
        let render =
            |document: &LagDocument| lag(document, &Manifest::default(), "", &file).unwrap();
        let page = render(&example());
        assert!(page.contains("stage by stage: replica1") && page.contains("id=\"stages\""));
        let none = render(&LagDocument::default());
        assert!(!none.contains("stage by stage:") && !none.contains("id=\"stages\""));
    }
}

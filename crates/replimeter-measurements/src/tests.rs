//! Every measurement has a page and a Markdown report with the expected content.

use replimeter_instruments::{
    calibrate::results::CalibrateDocument,
    exposure::results::ExposureDocument,
    lag::{
        results::{LagDocument, LagResults, LagRow},
        settings::LagSettings,
    },
    load::results::LoadDocument,
    loss::results::LossDocument,
    scale::results::ScaleDocument,
    tap::results::TapDocument,
};
use replimeter_model::{
    manifest::{Manifest, ServerRecord},
    record::Distribution,
    schema,
    warning::{Warning, WarningCode},
};
use replimeter_render::{csv, html::page, markdown::render};

use replimeter_run::{figures::StatedFigure, openmetrics::exposition};

use crate::{across::reproduce, calibrate, cost, exposure, lag, load, loss, scale, tap};

#[test]
fn page_has_its_sections_and_charts() {
    let document = cost::report::example();
    let charts = cost::charts::charts(&document);
    let cost_page = page(
        &cost::report::report(&document),
        charts,
        &Manifest::default(),
        "",
    )
    .unwrap();
    for wanted in [
        "id=\"prices\"",
        "semi-sync after-sync at 1 thread",
        "Added by each step",
        "id=\"throughput\"",
        "id=\"processor\"",
    ] {
        assert!(cost_page.contains(wanted), "`{wanted}` is missing");
    }
    assert!(!cost_page.contains("id=\"distance\""), "there are no links");
    let document = scale::report::tests::example();
    let charts = scale::charts::charts(&document);
    let scaling = page(
        &scale::report::report(&document),
        charts,
        &Manifest::default(),
        "",
    )
    .unwrap();
    for wanted in [
        "id=\"throughput\"",
        "id=\"percent\"",
        "id=\"processors\"",
        "id=\"law\"",
        "insert while selecting",
        "OUTSIDE",
    ] {
        assert!(scaling.contains(wanted), "`{wanted}` is missing");
    }
}

#[test]
fn run_without_figures_has_a_page() {
    let document = ScaleDocument::default();
    let charts = scale::charts::charts(&document);
    page(
        &scale::report::report(&document),
        charts,
        &Manifest::default(),
        "",
    )
    .unwrap();
}

#[test]
fn page_shows_the_servers_of_the_manifest() {
    let manifest = Manifest {
        servers: vec![ServerRecord {
            name: "primary".to_owned(),
            ..ServerRecord::default()
        }],
        ..Manifest::default()
    };
    let report = load::report::report(&LoadDocument::default());
    let page = page(&report, Vec::new(), &manifest, "command = 'load'").unwrap();
    assert!(page.contains("<h3>primary"), "{page}");
}

#[test]
fn published_tables_are_shown_with_results() {
    let document = reproduce::tests::example();
    let report = reproduce::report(&document);
    let charts = reproduce::charts::charts(&document);
    let page = page(&report, charts, &Manifest::default(), "").unwrap();
    for wanted in [
        "Published",
        "7451.26 (969.24)",
        "galera is missing",
        "id=\"verdicts\"",
        "The price &lt;b&gt;",
    ] {
        assert!(page.contains(wanted), "`{wanted}` is missing");
    }
}

#[test]
fn every_measurement_has_a_report_without_figures() {
    let warning = Warning::new(WarningCode::Failed, "m", "h");
    for text in [
        render(&lag::report::report(
            &LagDocument {
                headline: "None.".to_owned(),
                warnings: vec![warning.clone()],
                ..LagDocument::default()
            },
            false,
        )),
        render(&calibrate::report::report(&CalibrateDocument {
            headline: "None.".to_owned(),
            warnings: vec![warning.clone()],
            ..CalibrateDocument::default()
        })),
        render(&tap::report::report(&TapDocument {
            headline: "None.".to_owned(),
            warnings: vec![warning.clone()],
            ..TapDocument::default()
        })),
        render(&loss::report::report(&LossDocument {
            headline: "None.".to_owned(),
            warnings: vec![warning.clone()],
            ..LossDocument::default()
        })),
        render(&exposure::report::report(&ExposureDocument {
            headline: "None.".to_owned(),
            warnings: vec![warning.clone()],
            ..ExposureDocument::default()
        })),
    ] {
        assert!(
            text.starts_with("# Replimeter ")
                && text.contains("None.")
                && text.ends_with("- m → h\n"),
            "{text}"
        );
    }
}

#[test]
fn lag_report_has_its_tables() {
    let text = render(&lag::report::report(&lag::waterfall::example(), false));
    for wanted in [
        "| replica1 | lag from ack |",
        "## From send to visible, stage by stage",
        "| --- | --- | ---: |",
    ] {
        assert!(text.contains(wanted), "`{wanted}` is missing in {text}");
    }
}

#[test]
fn every_figure_has_its_csv_column() {
    let schema = schema::run::<LagSettings, LagResults>();
    let from_ack = Distribution {
        count: 7,
        p50_us: Some(-2.0),
        p50_us_ci95: Some([1.5, 2.5]),
        ..Distribution::default()
    };
    let row = LagRow {
        shape: "a,\"b\"".to_owned(),
        replica: "=1+1".to_owned(),
        from_ack,
        ..LagRow::default()
    };
    let full = LagDocument {
        results: LagResults {
            rows: vec![row],
            ..LagResults::default()
        },
        ..LagDocument::default()
    };
    let text = csv::table(&schema, &serde_json::to_value(&full).unwrap()).unwrap();
    let empty = csv::table(
        &schema,
        &serde_json::to_value(LagDocument::default()).unwrap(),
    )
    .unwrap();
    assert_eq!(text.lines().next(), empty.lines().next());
    let (header, record) = text.split_once('\n').unwrap();
    let header: Vec<&str> = header.trim().split(',').collect();
    assert_eq!(header[..4], ["shape", "replica", "method", "size_bytes"]);
    // The only field with commas.
    let record = record.trim().strip_prefix("\"a,\"\"b\"\"\",").unwrap();
    let record: Vec<&str> = record.split(',').collect();
    let of = |name: &str| record[header.iter().position(|known| *known == name).unwrap() - 1];
    assert_eq!(of("replica"), "'=1+1");
    assert_eq!(of("from_ack.count"), "7");
    assert_eq!(of("from_ack.p50_us"), "-2.0");
    assert_eq!(
        (
            of("from_ack.p50_us_ci95.low"),
            of("from_ack.p50_us_ci95.high")
        ),
        ("1.5", "2.5")
    );
    assert_eq!(of("from_ack.p99_us"), "");
    assert!(
        !header.iter().any(|name| name.starts_with("histogram")),
        "{header:?}"
    );
}

#[test]
fn no_two_figures_have_a_metric_of_one_name() {
    let mut names = Vec::new();
    for entry in crate::registry().entries() {
        let figures = entry.figure_specs().into_iter().map(|spec| StatedFigure {
            spec,
            of: Vec::new(),
            value: 1.0,
            ci95: Some([0.0, 2.0]),
            samples: 1,
        });
        let text = exposition(&figures.collect::<Vec<_>>());
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        names.extend(types.map(|line| line.trim_end_matches(" gauge").to_owned()));
    }
    assert!(names.len() > 100, "{names:?}");
    let is_valid = |name: &String| {
        name.bytes()
            .all(|letter| matches!(letter, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    };
    assert!(names.iter().all(is_valid), "{names:?}");
    for (index, name) in names.iter().enumerate() {
        assert!(!names[..index].contains(name), "{name}");
    }
}

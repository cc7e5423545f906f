//! The report of a reproduction: published and measured tables, and findings that agree.

use replimeter_model::reproduce::{Claim, Experiment, ReproduceDocument};

use replimeter_render::report::{self, Block, Cell, Content, Report, Visibility};

fn or_unknown(text: Option<&String>) -> &str {
    text.map(String::as_str)
        .filter(|text| !text.is_empty())
        .unwrap_or("unknown")
}

/// Returns a finding's words with its product.
fn finding(claim: &Claim) -> String {
    match &claim.product {
        Some(product) => format!("{product}: {}", claim.claim),
        None => claim.claim.clone(),
    }
}

/// Returns the findings, one per line.
pub fn claims_of<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> report::Table {
    report::Table::of(
        5,
        claims,
        &[
            ("finding", &|claim| finding(claim)),
            ("published", &|claim| {
                let published = claim.published.clone();
                published.unwrap_or_else(|| "not asked".to_owned())
            }),
            ("here", &|claim| claim.ours.clone()),
            ("verdict", &|claim| claim.verdict.name().to_owned()),
            ("why", &|claim| claim.why.clone()),
        ],
    )
}

/// Returns the report of a reproduction.
#[must_use]
pub fn report(document: &ReproduceDocument) -> Report {
    let size = format!("size {}", document.size);
    let claims = document.experiments.iter().map(|one| one.claims.len());
    let mut report = Report {
        command: "reproduce",
        question: "Published experiments, repeated",
        facts: vec![size.clone()],
        shape: size,
        extent: format!(
            "{} experiments, {} verdicts",
            document.experiments.len(),
            claims.sum::<usize>()
        ),
        started_at: document.started_at.clone(),
        answer: document.headline.clone(),
        several: true,
        how: vec![
            "Each experiment is a separate plan, run on servers that were started for it and removed afterwards; its own page shows how it \
             was measured, with sample counts, intervals and warnings. A finding agrees when it has the published shape, differs \
             when it has another, and is open when the measurement cannot decide. Machines, servers and networks have changed since \
             publication: absolute figures are shown side by side, and only shapes are compared."
                .to_owned(),
            format!(
                "Before the first start the plans had the SHA-256 {}; the program, with the findings and their ranges, is of commit {}.",
                or_unknown(Some(&document.plans_sha256)),
                or_unknown(document.commit.as_ref())
            ),
        ],
        ..Report::default()
    };
    let glance = document.experiments.iter().flat_map(at_a_glance);
    report.add(
        Block::table(
            "glance",
            "Summary",
            report::Table::new(&["experiment", "finding", "verdict", "run"], 4, glance),
        )
        .shown(Visibility::OnPage),
    );
    for experiment in &document.experiments {
        add_experiment(&mut report, experiment);
    }
    report
}

fn named(experiment: &Experiment) -> String {
    format!("{}. {}", experiment.number, experiment.title)
}

/// Returns a line for each finding of an experiment, or one with the reason why it has none.
fn at_a_glance(experiment: &Experiment) -> Vec<Vec<Cell>> {
    let line = |finding: &str, verdict: &str| {
        let link = Cell::Link {
            text: named(experiment),
            href: format!("#experiment-{}", experiment.number),
        };
        let run = experiment.run_dirs.first();
        let run = run.map_or(Cell::from("–"), |run| Cell::Link {
            text: run.clone(),
            href: format!("{run}/report.html"),
        });
        vec![link, finding.into(), verdict.into(), run]
    };
    if experiment.claims.is_empty() {
        return vec![line(
            experiment.error.as_deref().unwrap_or("no figures"),
            "",
        )];
    }
    let claims = experiment.claims.iter();
    claims
        .map(|claim| line(&finding(claim), claim.verdict.name()))
        .collect()
}

/// Adds the published and the measured table, the findings, and the run's location.
fn add_experiment(report: &mut Report, experiment: &Experiment) {
    let tables = [
        ("Published", &experiment.published),
        ("Here", &experiment.ours),
    ];
    let tables = tables.into_iter().filter(|(_, of)| !of.lines.is_empty());
    let tables = tables.map(|(title, of)| {
        let table = report::Table::new(&of.headings, 1, of.lines.iter().cloned());
        (title.to_owned(), table)
    });
    let id = format!("experiment-{}", experiment.number);
    let mut notes = vec![experiment.question.clone()];
    let error = experiment.error.as_ref();
    notes.extend(error.map(|error| format!("Failed: {error}")));
    let runs = experiment.run_dirs.iter();
    notes.extend(runs.map(|run| format!("`replimeter {}`, kept in {run}.", experiment.command)));
    let tables: Vec<_> = tables.collect();
    report.add(if tables.is_empty() {
        Block::list(&id, named(experiment), notes)
    } else {
        Block::new(&id, named(experiment), Content::Columns(tables)).with_notes(notes)
    });
    report.add(Block::table(
        format!("{id}-findings"),
        format!("Findings: {}", experiment.title),
        claims_of(&experiment.claims),
    ));
}

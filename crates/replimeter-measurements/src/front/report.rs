//! The report of a `front` run.

use replimeter_instruments::front::results::{FrontDocument, OwnMissing, PageShare};
use replimeter_render::{
    figures::{Unit, count, time},
    format::Format,
    headline::end_note,
    report::{Block, Report, Table},
};

/// Returns the headline in a few sentences.
pub(super) fn answer(run: &FrontDocument) -> String {
    let results = &run.results;
    let mut parts = Vec::new();
    if results.requests == 0 {
        parts.push("No request came.".to_owned());
    } else {
        let errors: u64 = results.errors.values().sum();
        parts.push(format!(
            "{} requests in {}, {} with an error.",
            count(results.requests),
            time(run.measured_us.unwrap_or_default()),
            count(errors)
        ));
    }
    let freshness = &results.freshness;
    if let Some(first) = freshness.own_missing.first() {
        parts.push(format!(
            "Within {} of a post, {} of its author's pages missed it.",
            span(first.to_us.unwrap_or(first.from_us)),
            share(&first.missing)
        ));
    } else if freshness.behind.pages > 0 {
        parts.push(format!(
            "{} of the pages missed a post that had been acknowledged.",
            share(&freshness.behind)
        ));
    }
    parts.extend(end_note(run.status).map(str::to_owned));
    parts.join(" ")
}

fn share(of: &PageShare) -> String {
    let ends = of
        .percent_ci95
        .map_or_else(String::new, |[low, high]| format!(" [{low:.1}, {high:.1}]"));
    let percent = of
        .percent
        .map_or_else(|| "–".to_owned(), |percent| format!("{percent:.1}"));
    format!("{percent}{ends} %")
}

/// Returns the end of a class, which is whole in its unit.
fn span(us: f64) -> String {
    if us < 1e6 {
        format!("{} ms", us / 1e3)
    } else {
        format!("{} s", us / 1e6)
    }
}

fn since(of: &OwnMissing) -> String {
    match of.to_us {
        Some(to) => format!("{} to {}", span(of.from_us), span(to)),
        None => format!("{} or more", span(of.from_us)),
    }
}

/// Returns the report of a run.
pub(super) fn report(run: &FrontDocument) -> Report {
    let results = &run.results;
    let mut report = Report::of(
        run,
        "Requests to a site in front of replicated servers",
        format!("{} requests", count(results.requests)),
    );
    let ms = |us: Option<f64>| Format::In(Unit::Milli).text(us);
    let rows = results.rows.iter().map(|row| {
        vec![
            row.request.clone(),
            row.server.clone(),
            count(row.requests),
            format!("{:.1}", row.per_second),
            ms(row.response.p50_us),
            ms(row.response.p95_us),
            ms(row.response.p99_us),
            ms(row.response.max_us),
            ms(row.statement.p50_us),
            ms(row.wait.mean_us),
        ]
    });
    let headings = [
        "request",
        "server",
        "answered",
        "per s",
        "response p50",
        "p95",
        "p99",
        "max",
        "statement p50",
        "wait, mean",
    ];
    report.add(Block::table(
        "requests",
        "Requests (times in ms)",
        Table::new(&headings, 2, rows),
    ));
    let freshness = &results.freshness;
    let own = freshness.own_missing.iter().map(|own| {
        vec![
            since(own),
            count(own.missing.pages),
            count(own.missing.count),
            share(&own.missing),
        ]
    });
    let headings = ["time since the post", "pages", "post missing", "share"];
    report.add(Block::table(
        "own",
        "Pages on which the visitor's own last post was missing",
        Table::new(&headings, 1, own),
    ));
    let age = &freshness.age;
    if age.count > 0 {
        let row = vec![
            count(age.count),
            share(&freshness.behind),
            ms(age.mean_us),
            ms(age.p95_us),
            ms(age.p99_us),
            ms(age.max_us),
        ];
        let headings = ["pages", "behind", "age, mean (ms)", "p95", "p99", "max"];
        report.add(Block::table(
            "age",
            "Age of the pages",
            Table::new(&headings, 1, [row]),
        ));
    }
    let errors = results
        .errors
        .iter()
        .map(|(text, number)| vec![text.clone(), count(*number)]);
    report.add(Block::table(
        "errors",
        "Requests with an error (HTTP 503)",
        Table::new(&["error", "requests"], 1, errors),
    ));
    report.how = method(run);
    report.with_servers(&run.target)
}

/// Returns the description of the method.
fn method(run: &FrontDocument) -> Vec<String> {
    let (results, settings) = (&run.results, &run.settings);
    let remedy = settings.remedy.map_or("none", |remedy| remedy.name());
    let mut method = vec![format!(
        "The site listened at {}, with {} connections of each front to each server; remedy: {remedy}. Intervals are 95 %.",
        results.address,
        settings.connections.unwrap_or_default(),
    )];
    if let Some(cpu) = results.cpu_per_request_us {
        method.push(format!(
            "The front used {cpu:.0} µs of processor time per request, its connections to the servers included."
        ));
    }
    if let Some(cpu) = results.balancer_cpu_per_request_us {
        method.push(format!(
            "{} fronts were behind HAProxy, which used {cpu:.0} µs of processor time per request.",
            settings.fronts.unwrap_or_default()
        ));
    }
    if results.freshness.fell_back > 0 {
        method.push(format!(
            "The primary answered {} reads because a replica could not be asked for the visitor's post or had not applied it in time.",
            count(results.freshness.fell_back)
        ));
    }
    if results.invalid + results.abandoned > 0 {
        method.push(format!(
            "{} requests were invalid; {} ended without an answer.",
            count(results.invalid),
            count(results.abandoned)
        ));
    }
    method
}

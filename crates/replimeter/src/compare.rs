//! The flow of `compare`: runs, their figures, what differs, conditions, the document.

mod conditions;
mod figures;
mod settings;
mod sides;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
};

use replimeter_model::{
    compare::{
        COMPARE_SCHEMA, Change, CompareDocument, CompareRow, CompareSide, Dimension, OnlyOn,
        SideFigure,
    },
    estimate::Estimate,
    manifest::Manifest,
    record::RunStatus,
    warning::{Warning, WarningCode},
};
use replimeter_report::{compare as report, html, markdown};
use replimeter_stats::compare::{
    Drawn, LEVEL, RESAMPLES, Spread, difference, holm, log_ratio, of_units,
};
use serde::Deserialize as _;

use self::{conditions::FailIf, figures::Figure, sides::Run};
use crate::{
    cli::{CompareArgs, Form},
    failure::Failure,
    print::{plain, print, print_json},
    run_dir::{PAGE, RunDir, SUMMARY, TICKET, write_json, write_text},
};

/// What a significant p-value is below.
const ALPHA: f64 = 1.0 - LEVEL;

/// Figures of different values here are not of the same thing: they are never held against one another.
const NEVER_ALIKE: [&str; 6] = [
    "injected_us",
    "judged",
    "method",
    "operation",
    "phase",
    "size",
];

/// Compares two sets of runs.
pub(crate) fn run(args: &CompareArgs, a: &[String], b: &[String]) -> Result<(), Failure> {
    let conditions = args
        .fail_if
        .iter()
        .map(|text| FailIf::parse(text))
        .collect::<Result<Vec<_>, _>>()?;
    let [a, b] = sides::read(a, b)?;
    let mut run_dir = RunDir::create(args.run_dir.as_deref(), "compare")?;
    let (document, manifest, plans) = compare(&a, &b, &conditions, args, &run_dir)?;
    let page = html::compare(&document, &manifest, &plans).map_err(|error| {
        Failure::failed(
            format!("cannot render the page: {error}"),
            "please report this as a defect",
        )
    });
    let dir = run_dir.path().to_owned();
    run_dir.keep();
    let written = write_json(&dir.join(SUMMARY), &document)
        .and_then(|()| write_text(&dir.join(PAGE), &page?))
        .and_then(|()| write_text(&dir.join(TICKET), &markdown::compare(&document)));
    // The figures are shown even where they cannot be written.
    match args.form() {
        Form::Json => print_json(&document)?,
        Form::Markdown => print(&markdown::compare(&document))?,
        // It has no options for the others.
        Form::Text { .. } | Form::Csv | Form::Silent => {
            let mut text = report::text(&document);
            text.push_str(&format!("\nComparison kept in {}\n", document.run_dir));
            if dir.join(PAGE).exists() {
                text.push_str(&format!("As a page:  file://{}/{PAGE}\n", document.run_dir));
            }
            print(&plain(&text))?;
        }
    }
    written?;
    let unjudged: Vec<String> = report::unjudged(&document)
        .map(|one| format!("{} ({})", one.condition, one.label))
        .collect();
    if !unjudged.is_empty() && !document.failed() {
        let message = format!(
            "warning: {} of {} conditions cannot be judged and so did not fail: {}\n  try: measure longer or several runs on each side; with --fail-when possible doubt fails, with --fail-when estimated the figure itself decides",
            unjudged.len(),
            document.conditions.len(),
            unjudged.join("; ")
        );
        // Nobody may be left to read it.
        let _ = writeln!(std::io::stderr(), "{}", plain(&message));
    }
    if document.failed() {
        let failed: Vec<String> = document
            .conditions
            .iter()
            .filter(|condition| condition.verdict.contains("failed"))
            .map(|condition| {
                format!(
                    "{} ({}: {})",
                    condition.condition, condition.label, condition.verdict
                )
            })
            .collect();
        return Err(Failure::void(
            format!("what must not be is: {}", failed.join("; ")),
            "the page says what else differs between the runs",
        ));
    }
    Ok(())
}

/// The figures of one side: of each, what every run says.
struct Side {
    /// In the order in which they are shown.
    order: Vec<(String, Vec<Dimension>)>,
    known: BTreeMap<(String, Vec<Dimension>), (Figure, Vec<Drawn>)>,
}

impl Side {
    /// Reads samples run by run, so that no more than one run's are in memory.
    fn gather(runs: &[Run]) -> Result<Self, Failure> {
        let mut side = Self {
            order: Vec::new(),
            known: BTreeMap::new(),
        };
        for run in runs {
            for figure in figures::of(run)? {
                let key = (figure.name.clone(), figure.of.clone());
                if let Some((_, drawn)) = side.known.get_mut(&key) {
                    drawn.push(figure.drawn);
                } else {
                    side.order.push(key.clone());
                    let drawn = vec![figure.drawn.clone()];
                    side.known.insert(key, (figure, drawn));
                }
            }
        }
        Ok(side)
    }

    /// All values of a dimension, in order.
    fn values(&self, name: &str) -> Vec<String> {
        let mut values: Vec<String> = Vec::new();
        for dimension in self
            .order
            .iter()
            .flat_map(|(_, of)| of)
            .filter(|dimension| dimension.name == name)
        {
            if !values.contains(&dimension.value) {
                values.push(dimension.value.clone());
            }
        }
        values
    }

    fn names(&self) -> BTreeSet<&str> {
        self.order
            .iter()
            .flat_map(|(_, of)| of.iter().map(|dimension| dimension.name.as_str()))
            .collect()
    }
}

/// How words of one side are those of the other.
#[derive(Default)]
struct Matching {
    /// What each side has but one of, and not the same: it differs, and tells nothing apart.
    dropped: BTreeSet<String>,
    /// B's words in A's, by dimension.
    renamed: BTreeMap<(String, String), String>,
}

impl Matching {
    fn of(a: &Side, b: &Side, warnings: &mut Vec<Warning>) -> Self {
        let mut matching = Self::default();
        let names: BTreeSet<String> = a
            .names()
            .union(&b.names())
            .map(|name| (*name).to_owned())
            .collect();
        for name in names
            .into_iter()
            .filter(|name| !NEVER_ALIKE.contains(&name.as_str()))
        {
            let (of_a, of_b) = (a.values(&name), b.values(&name));
            if of_a.iter().any(|value| of_b.contains(value)) {
                continue;
            }
            if of_a.len() <= 1 && of_b.len() <= 1 {
                matching.dropped.insert(name);
            } else if of_a.len() == of_b.len() {
                warnings.push(Warning::new(
                    WarningCode::NotChecked,
                    format!(
                        "the sides have no {name} in common: {} of A is held against {} of B, in this order",
                        of_a.join(", "),
                        of_b.join(", ")
                    ),
                    "is that the pairing you mean? compare runs of fewer at a time otherwise",
                ));
                let pairs = of_b.into_iter().zip(of_a);
                matching
                    .renamed
                    .extend(pairs.map(|(of_b, of_a)| ((name.clone(), of_b), of_a)));
            }
        }
        matching
    }

    /// What a figure of B is called on A.
    fn key(&self, of: &[Dimension], b: bool) -> Vec<Dimension> {
        let kept = of
            .iter()
            .filter(|dimension| !self.dropped.contains(&dimension.name));
        kept.map(|dimension| {
            let pair = (dimension.name.clone(), dimension.value.clone());
            match self.renamed.get(&pair).filter(|_| b) {
                Some(value) => Dimension {
                    value: value.clone(),
                    ..dimension.clone()
                },
                None => dimension.clone(),
            }
        })
        .collect()
    }
}

/// A word of a label: names stand for themselves, numbers need theirs.
fn word(dimension: &Dimension) -> String {
    match dimension.name.as_str() {
        "threads" => format!("{} threads", dimension.value),
        "replicas" => format!("{} replicas", dimension.value),
        "workers" => format!("{} workers", dimension.value),
        "size" => format!("{} bytes", dimension.value),
        "link_delay_us" => format!("links of {} µs", dimension.value),
        "injected_us" => format!("{} µs injected", dimension.value),
        "judged" if dimension.value == "load" => "the load's own reads".to_owned(),
        "load" | "sync_reads" | "pool" => {
            format!("{} {}", dimension.name.replace('_', " "), dimension.value)
        }
        _ => dimension.value.clone(),
    }
}

/// Labels that tell figures of the same name apart.
fn label(rows: &mut [CompareRow]) {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for dimension in rows.iter().flat_map(|row| &row.of) {
        values
            .entry(&dimension.name)
            .or_default()
            .insert(&dimension.value);
    }
    let several: BTreeSet<String> = values
        .iter()
        .filter(|(name, values)| values.len() > 1 || **name == "size")
        .map(|(name, _)| (*name).to_owned())
        .collect();
    for row in rows {
        let words = row
            .of
            .iter()
            .filter(|dimension| several.contains(&dimension.name))
            .map(word);
        row.label = words.collect::<Vec<_>>().join(" ");
    }
}

fn side_figure(drawn: &Drawn, runs: usize) -> SideFigure {
    let estimate = drawn.estimate();
    SideFigure {
        value: drawn.value,
        low: estimate.low,
        high: estimate.high,
        runs: runs as u64,
        samples: drawn.samples,
        blocks: drawn.blocks,
        block_length: drawn.block_length,
        short: drawn.short,
    }
}

/// What both sides are held against each other by: the ratio, or the difference where there is none.
fn contrast(
    row: &CompareRow,
    by_difference: bool,
    a: &Drawn,
    b: &Drawn,
) -> (Estimate, Estimate, Option<(Spread, bool)>) {
    let both = a.spread().zip(b.spread());
    let apart = both.map(|(a, b)| difference(&a, &b));
    let times = both.and_then(|(a, b)| log_ratio(&a, &b));
    let ends = |spread: &Spread| spread.interval(LEVEL);
    let of = |value: f64, ends: Option<[f64; 2]>| {
        let ends = ends.filter(|ends| ends.iter().all(|end| end.is_finite()));
        Estimate {
            value: Some(value),
            low: ends.map(|[low, _]| low),
            high: ends.map(|[_, high]| high),
        }
    };
    let absolute = of(row.b.value - row.a.value, apart.as_ref().map(ends));
    let positive = row.a.value > 0.0 && row.b.value > 0.0;
    let ratio = match &times {
        Some(times) => of(row.b.value / row.a.value, Some(ends(times).map(f64::exp))),
        // One of the sides may be 0 or below, as far as its interval tells.
        None if positive && both.is_none() => Estimate::of(row.b.value / row.a.value),
        None => Estimate::default(),
    };
    let judged = match times {
        Some(times) if !by_difference => Some((times, true)),
        _ => apart.map(|apart| (apart, false)),
    };
    (absolute, ratio, judged)
}

/// Judges all rows together.
fn judge(rows: &mut [CompareRow], judged: &[Option<(Spread, bool)>]) -> u64 {
    let p_values: Vec<f64> = judged
        .iter()
        .flatten()
        .map(|(spread, _)| spread.p_value())
        .collect();
    let mut adjusted = holm(&p_values).into_iter();
    let among = p_values.len() as u64;
    for (row, judged) in rows.iter_mut().zip(judged) {
        if let Some((spread, logarithm)) = judged {
            let (p, corrected) = (spread.p_value(), adjusted.next().unwrap_or(1.0));
            row.p_value = Some(p);
            row.p_adjusted = Some(corrected);
            let seen = spread.seen_from(1.0 - ALPHA / among as f64);
            // What follows the difference is not put as a percentage of A: a share of 203 % more would say nothing.
            let (absolute, percent) = if *logarithm {
                (row.a.value * seen.exp_m1(), Some(seen.exp_m1() * 100.0))
            } else {
                (seen, None)
            };
            row.seen_from = Some(absolute).filter(|seen| seen.is_finite());
            row.seen_from_percent = percent.filter(|seen| seen.is_finite());
            row.change = match (corrected < ALPHA, p < ALPHA) {
                (true, _) if spread.value > 0.0 => Change::Higher,
                (true, _) => Change::Lower,
                (false, true) => Change::NotAmongAll,
                (false, false) => Change::NotShown,
            };
        }
        row.verdict = report::verdict(row, among);
    }
    among
}

fn nothing_in_common(a: &Side, b: &Side) -> Failure {
    let words = |side: &Side| {
        let names = side.names().into_iter();
        names
            .map(|name| format!("{name} {}", side.values(name).join(", ")))
            .collect::<Vec<_>>()
            .join("; ")
    };
    Failure::usage(
        format!(
            "the runs cannot be compared: they have no figure in common (A has {}; B has {})",
            words(a),
            words(b)
        ),
        "compare runs that observed the same replicas by the same methods",
    )
}

/// A figure's name and what it is of.
type Key = (String, Vec<Dimension>);

fn compare(
    a: &[Run],
    b: &[Run],
    conditions: &[FailIf],
    args: &CompareArgs,
    run_dir: &RunDir,
) -> Result<(CompareDocument, Manifest, String), Failure> {
    let settings = settings::differences(a, b);
    let mut warnings = warnings(a, b);
    let (side_a, side_b) = (Side::gather(a)?, Side::gather(b)?);
    let matching = Matching::of(&side_a, &side_b, &mut warnings);
    let of_b: BTreeMap<Key, &Key> = side_b
        .order
        .iter()
        .map(|key| ((key.0.clone(), matching.key(&key.1, true)), key))
        .collect();
    let (mut rows, mut drawn, mut judged) = (Vec::new(), Vec::new(), Vec::new());
    let (mut only, mut matched) = (BTreeMap::<(bool, String), u64>::new(), BTreeSet::new());
    let words = |of: &[Dimension]| of.iter().map(word).collect::<Vec<_>>().join(" ");
    for key in &side_a.order {
        let of = matching.key(&key.1, false);
        let (figure, runs_a) = &side_a.known[key];
        let Some((_, runs_b)) = of_b
            .get(&(key.0.clone(), of.clone()))
            .map(|key| &side_b.known[*key])
        else {
            *only.entry((false, words(&key.1))).or_default() += 1;
            continue;
        };
        matched.insert((key.0.clone(), of.clone()));
        let (Some(of_a), Some(of_b)) = (of_units(runs_a), of_units(runs_b)) else {
            continue;
        };
        let mut row = CompareRow {
            figure: figure.name.clone(),
            of,
            unit: figure.unit,
            better: figure.better,
            a: side_figure(&of_a, runs_a.len()),
            b: side_figure(&of_b, runs_b.len()),
            ..CompareRow::default()
        };
        let (absolute, ratio, by) = contrast(&row, figure.by_difference, &of_a, &of_b);
        (row.difference, row.ratio) = (absolute, ratio);
        rows.push(row);
        drawn.push((of_a, of_b));
        judged.push(by);
    }
    for key in &side_b.order {
        if !matched.contains(&(key.0.clone(), matching.key(&key.1, true))) {
            *only.entry((true, words(&key.1))).or_default() += 1;
        }
    }
    if rows.is_empty() {
        return Err(nothing_in_common(&side_a, &side_b));
    }
    label(&mut rows);
    let corrected_for = judge(&mut rows, &judged);
    if rows.iter().any(|row| row.a.short || row.b.short) {
        warnings.push(Warning::new(
            WarningCode::NotChecked,
            "some runs are too short to see how long their samples depend on one another: such figures have intervals of four long blocks, wide and perhaps still too narrow; a quantile beyond which fewer than five independent samples lie has none",
            "measure longer, or compare several runs on each side",
        ));
    }
    // All that conditions look at is looked at together.
    let chosen = conditions
        .iter()
        .map(|condition| condition.rows(&rows))
        .collect::<Result<Vec<_>, _>>()?;
    let level = 1.0 - ALPHA / chosen.iter().map(Vec::len).sum::<usize>().max(1) as f64;
    let mut outcomes = Vec::new();
    for (condition, chosen) in conditions.iter().zip(chosen) {
        for (index, row) in chosen {
            let (a, b) = &drawn[index];
            outcomes.push(condition.judge(row, a, b, args.when(), level)?);
        }
    }
    let about = |runs: &[Run]| CompareSide {
        runs: runs.iter().map(Run::about).collect(),
    };
    let only = only.into_iter().map(|((b, of), figures)| OnlyOn {
        side: if b { "b" } else { "a" }.to_owned(),
        of,
        figures,
    });
    let mut document = CompareDocument {
        schema: COMPARE_SCHEMA.to_owned(),
        run_dir: run_dir.path().display().to_string(),
        command: a[0].command.clone(),
        answer: String::new(),
        compared_at: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        a: about(a),
        b: about(b),
        differs: settings.between,
        varies: settings.within,
        results: rows,
        only_on: only.collect(),
        corrected_for,
        level: LEVEL,
        resamples: RESAMPLES as u64,
        fail_when: args.when(),
        conditions: outcomes,
        warnings,
    };
    document.answer = report::answer(&document);
    let plans = [("A", &a[0]), ("B", &b[0])]
        .map(|(side, run)| format!("# {side}: {}\n{}", run.dir.display(), run.plan));
    Ok((
        document,
        both(&a[0].manifest, &b[0].manifest),
        plans.join("\n"),
    ))
}

/// One manifest with the servers of both sides, for the page.
fn both(a: &Manifest, b: &Manifest) -> Manifest {
    let mut both = Manifest {
        servers: Vec::new(),
        sandboxes: Vec::new(),
        ..b.clone()
    };
    for (side, manifest) in [("A", a), ("B", b)] {
        both.servers
            .extend(manifest.servers.iter().cloned().map(|mut server| {
                server.shape = format!("{side} · {}", server.shape);
                server
            }));
        both.sandboxes
            .extend(manifest.sandboxes.iter().cloned().map(|mut sandbox| {
                sandbox.shape = format!("{side} · {}", sandbox.shape);
                sandbox
            }));
    }
    both
}

/// What a reader must know of the runs themselves.
fn warnings(a: &[Run], b: &[Run]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let commands = ["lag", "stale", "load", "exposure", "tap", "calibrate"];
    if (a.len() == 1 || b.len() == 1)
        && a.first()
            .is_some_and(|run| commands.contains(&run.command.as_str()))
    {
        warnings.push(Warning::new(
            WarningCode::FewStarts,
            "one run on a side: what differs from run to run, and from start to start of the servers, is not in the intervals",
            "several runs on each side, in turns, say whether a difference comes back: replimeter compare a1,a2,a3 b1,b2,b3",
        ));
    }
    for run in a.iter().chain(b) {
        if run.about().status == RunStatus::Interrupted {
            warnings.push(Warning::new(
                WarningCode::Interrupted,
                format!(
                    "the run {} was interrupted; what was measured until then is compared",
                    run.dir.display()
                ),
                "run plan.toml in it again for as long as the other",
            ));
        }
    }
    let of = |runs: &[Run]| -> Vec<Warning> {
        let lists = runs
            .iter()
            .filter_map(|run| Vec::<Warning>::deserialize(run.record.get("warnings")?).ok());
        lists.flatten().collect()
    };
    let (of_a, of_b) = (of(a), of(b));
    for (side, ours, theirs) in [("A", &of_a, &of_b), ("B", &of_b, &of_a)] {
        let mut said: Vec<WarningCode> = Vec::new();
        for warning in ours {
            let shared = theirs.iter().any(|other| other.code == warning.code);
            if !shared && !said.contains(&warning.code) {
                said.push(warning.code);
                let message = format!(
                    "only {side} was measured with this warning: {}",
                    warning.message
                );
                warnings.push(Warning::new(warning.code, message, warning.hint.clone()));
            }
        }
    }
    warnings
}

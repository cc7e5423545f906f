//! What is said of a `scale` run besides its tables.

use replimeter_model::{
    estimate::Estimate,
    load::Reads,
    plan::ScalePhase,
    scale::{Prediction, ScaleDocument},
    span::Span,
};

use super::{INSERTS, INSERTS_OF_NONE, Pick, SELECTS, SELECTS_OF_NONE, counts, row};
use replimeter_render::{
    answer::with_ending,
    figures::{count, rate, time},
    format::{Format, number},
};

/// A fitted figure with the ends of its interval, of which either may be unknown.
pub(super) fn estimate(of: &Estimate, format: Format) -> String {
    let end = |end: Option<f64>| end.map_or_else(|| "?".to_owned(), |end| format.show(end, None));
    match of.value {
        Some(value) => format!(
            "{} [{}, {}]",
            format.show(value, None),
            end(of.low),
            end(of.high)
        ),
        None => "–".to_owned(),
    }
}

/// The residuals and the prediction of each law, in sentences.
pub(super) fn laws(run: &ScaleDocument) -> Vec<String> {
    let refusals = run.results.fits.iter().map(|fit| fit.refused.as_deref());
    let mut refusals: Vec<Option<&str>> = refusals.collect();
    refusals.dedup();
    if let [Some(reason)] = refusals[..] {
        return vec![format!("No law is fitted: {reason}.")];
    }
    let mut sentences = Vec::new();
    for fit in &run.results.fits {
        let name = format!("{} ({})", fit.figure, fit.phase);
        if let Some(reason) = &fit.refused {
            sentences.push(format!("{name}: no law is fitted: {reason}."));
            continue;
        }
        let residuals = fit.residuals.iter();
        let residuals = residuals.map(|one| format!("{}: {:+.1} %", one.replicas, one.percent));
        sentences.push(format!(
            "{name}: each start's distance from the law, by replicas: {}.",
            residuals.collect::<Vec<_>>().join(", ")
        ));
        let prediction = fit.prediction.as_ref();
        sentences.extend(prediction.map(|next| format!("{name}: {}", predicted(next))));
    }
    sentences
}

/// What a law says of one more replica, and what came of it.
fn predicted(prediction: &Prediction) -> String {
    let with = number(prediction.replicas, "replica");
    if prediction.predicted.value.is_none() {
        return format!("of {with} the law says nothing: the starts lie too far from it.");
    }
    let predicted = estimate(&prediction.predicted, Format::OneIn(100.0));
    match (prediction.measured_per_s, prediction.holds) {
        (Some(measured), Some(holds)) => format!(
            "for {with} the law predicts {predicted}/s; {}/s were measured, which is {} what it predicts.",
            Format::Rate.show(measured, prediction.measured_ci),
            if holds { "within" } else { "OUTSIDE" }
        ),
        _ => {
            format!("for {with} the law predicts {predicted}/s; --check-prediction measures it.")
        }
    }
}

/// What a phase did with each number of replicas.
fn course(
    run: &ScaleDocument,
    what: &str,
    phase: ScalePhase,
    [per_s, of_none]: [Pick; 2],
) -> Option<String> {
    let step = |replicas: u32| {
        let row = row(run, replicas, phase)?;
        let per_s = per_s(row).0?;
        let per_s = rate(per_s, per_s / 100.0);
        Some(match (replicas, of_none(row)) {
            (0, _) => format!("{per_s} with none"),
            (_, (Some(percent), ends)) => {
                let percent = Format::PercentOfNone.show(percent, ends);
                format!("{per_s} ({percent}) with {replicas}")
            }
            (_, (None, _)) => format!("{per_s} with {replicas}"),
        })
    };
    let steps: Vec<String> = counts(run).into_iter().filter_map(step).collect();
    (!steps.is_empty()).then(|| format!("{what} per second by replicas: {}.", steps.join(", ")))
}

/// Where one more replica adds no selects.
fn stops(at: &Estimate) -> String {
    match (at.value, at.low) {
        (Some(value), low) => {
            let end = |end: Option<f64>, unknown: &str| {
                end.map_or_else(|| unknown.to_owned(), |end| end.to_string())
            };
            format!(
                "For selects alone one more replica stops paying at {value} [{}, {}].",
                end(low, "?"),
                end(at.high, "no end")
            )
        }
        (None, Some(low)) => format!(
            "For selects alone the law shows no end to what replicas add; it may come at {low}."
        ),
        (None, None) => "For selects alone the law shows no end to what replicas add.".to_owned(),
    }
}

/// The finding in a few sentences.
#[must_use]
pub(crate) fn answer(run: &ScaleDocument) -> String {
    let inserts = [INSERTS, INSERTS_OF_NONE];
    let selects = [SELECTS, SELECTS_OF_NONE];
    let courses = [
        ("Inserts alone", ScalePhase::Insert, inserts),
        ("Inserts while selecting", ScalePhase::Mixed, inserts),
        ("Selects while inserting", ScalePhase::Mixed, selects),
    ];
    let courses = courses.map(|(what, phase, picks)| course(run, what, phase, picks));
    let mut parts: Vec<String> = courses.into_iter().flatten().collect();
    let fits = run.results.fits.iter();
    let fits = fits.filter(|fit| fit.refused.is_none() && fit.phase == ScalePhase::Select.name());
    parts.extend(fits.filter_map(|fit| fit.peak_replicas.as_ref()).map(stops));
    if parts.is_empty() {
        parts.push("No block came to its end.".to_owned());
    }
    with_ending(parts.join(" "), run.status)
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

/// How it was measured, and what belongs to it.
pub(super) fn sentences(run: &ScaleDocument) -> Vec<String> {
    let mut sentences = vec![clients(run), rounds(run), intervals(run), machine(run)];
    let late = run
        .results
        .rows
        .iter()
        .filter_map(|row| Some((row.caught_up_after_us?, row)))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((late, row)) = late.filter(|(late, _)| *late > 1e6) {
        sentences.push(format!(
            "The replicas did not always keep up: after a block of {} with {} they needed {} until they had all of it.",
            row.phase,
            number(row.replicas, "replica"),
            time(late)
        ));
    }
    let busiest = run.results.rows.iter().map(|row| row.client_cpu_percent);
    let nearest = run
        .results
        .rows
        .iter()
        .filter_map(|row| row.client_limit_percent);
    let limit = nearest.reduce(f64::max).map_or_else(String::new, |percent| {
        format!(
            ", and their statements came to at most {percent:.0} % of the empty questions that as many connections get answered"
        )
    });
    sentences.push(format!(
        "The load's own threads took at most {:.0} % of one core{limit}.",
        busiest.fold(0.0, f64::max)
    ));
    if run.results.fits.iter().any(|fit| fit.refused.is_none()) {
        sentences.push(
            "The law is X(N) = λN / (1 + σ(N − 1) + κN(N − 1)) (Universal Scalability Law, Gunther 2007), fitted to the starts' means by \
             relative error. For selects N is the number of servers that are read from. For writes N is the number of servers, and X \
             the writes that all of them carry out together, since each does every one. Where one more stops paying is the first number of \
             replicas that one more adds no selects to."
                .to_owned(),
        );
    }
    sentences
}

/// What the clients did.
fn clients(run: &ScaleDocument) -> String {
    let settings = &run.settings;
    let threads = settings.threads.unwrap_or_default();
    let read = match settings.reads.unwrap_or_default() {
        Reads::Replicas => "the replicas in turn (from the primary where there is none)",
        Reads::Primary => "the primary",
        Reads::All => "all servers in turn",
    };
    format!(
        "{threads} clients insert posts into the primary, {threads} select posts by a pattern of their title from {read}, each in a closed loop over a \
         connection of its own; first alone, then both at once. Data set: {} rows, {}.",
        count(run.results.data_rows),
        Format::Bytes.show(run.results.data_bytes as f64, None)
    )
}

/// In which order the servers were started, and how often each phase ran.
fn rounds(run: &ScaleDocument) -> String {
    let settings = &run.settings;
    let order = run.results.order.iter().map(|round| {
        let round = round.iter().map(u32::to_string);
        round.collect::<Vec<_>>().join(" ")
    });
    let span = |span: Option<Span>| span.map_or_else(String::new, |span| span.to_string());
    format!(
        "Every number of replicas was started afresh {}, in an order shuffled for each round ({}); on each start every phase ran \
         {} for {}, there and back again, after {} that is not counted. Between blocks replicas apply everything and what was \
         inserted is removed.",
        times(run.results.order.len() as u64),
        order.collect::<Vec<_>>().join("; "),
        times(u64::from(settings.blocks.unwrap_or_default())),
        span(settings.duration),
        span(settings.warm_up),
    )
}

/// What the intervals are of.
fn intervals(run: &ScaleDocument) -> String {
    match run.results.order.len() {
        0 | 1 => "With one start there are no intervals: nothing is known of how starts differ."
            .to_owned(),
        starts => format!(
            "Intervals are 95 %, by a bootstrap over {starts} starts and the blocks within them, widened for few starts. Percent compare \
             with the same phase without a replica, whose binary log is on."
        ),
    }
}

/// What the servers shared.
fn machine(run: &ScaleDocument) -> String {
    match &run.results.cpus_per_server {
        Some(share) => format!(
            "Each server has a share of this machine's {} cores: {share}. The load has what is left, and disk and memory are shared.",
            run.client.cores
        ),
        None => format!(
            "All servers, and the load, share the {} cores of this machine: a replica that would have brought a machine of its own takes \
             from the others here. The shape of the curves is this machine's; --cpus-per-server gives each server a fixed share.",
            run.client.cores
        ),
    }
}

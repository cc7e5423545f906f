//! The sentences of a `scale` report.

use replimeter_engine::follow::LOG;
use replimeter_instruments::{
    front::site::{HttpDriver, Through},
    scale::{
        results::{Prediction, ScaleDocument},
        settings::ScalePhase,
    },
};
use replimeter_model::{estimate::Estimate, load::ReadTarget, time_span::TimeSpan};

use super::{
    super::law::holds, FigureOf, INSERTS, INSERTS_OF_NONE, SELECTS, SELECTS_OF_NONE, counts, row,
};
use replimeter_render::{
    figures::{count, rate, time},
    format::{Format, number},
    headline::{with_end_note, with_level},
};

/// Formats a fitted figure with the ends of its interval, of which either can be unknown.
pub(super) fn estimate(of: &Estimate, format: Format) -> String {
    let end = |end: Option<f64>| end.map_or_else(|| "?".to_owned(), |end| format.show(end, None));
    match of.value {
        Some(value) => format!(
            "{} [{}, {}]",
            format.show(value, None),
            end(of.ci95.low),
            end(of.ci95.high)
        ),
        None => "–".to_owned(),
    }
}

/// Returns the residuals and the prediction of each law, in sentences.
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
            "{name}: deviation of each start from the law, by replicas: {}.",
            residuals.collect::<Vec<_>>().join(", ")
        ));
        if let Some(p) = fit.lack_of_fit_p.filter(|_| !holds(fit)) {
            sentences.push(format!(
                "{name}: the means deviate from the law more than starts scatter (p = {p:.2e}), so it predicts nothing."
            ));
        }
        let prediction = fit.prediction.as_ref();
        sentences.extend(prediction.map(|next| format!("{name}: {}", predicted(next))));
    }
    sentences
}

/// Returns a law's prediction for one more replica, and its check.
fn predicted(prediction: &Prediction) -> String {
    let with = number(prediction.replicas, "replica");
    if prediction.predicted.value.is_none() {
        return format!(
            "for {with} the law makes no prediction: the starts deviate too much from it."
        );
    }
    let predicted = estimate(&prediction.predicted, Format::OneIn(100.0));
    match (prediction.measured_per_s, prediction.holds) {
        (Some(measured), Some(holds)) => format!(
            "for {with} the law predicts {predicted}/s; {}/s were measured, {} the predicted interval.",
            Format::Rate.show(measured, prediction.measured_per_s_ci95),
            if holds { "within" } else { "OUTSIDE" }
        ),
        _ => {
            format!(
                "for {with} the law predicts {predicted}/s; use --check-prediction to measure it."
            )
        }
    }
}

/// Returns the throughput of a phase with each number of replicas.
fn throughputs_of(
    run: &ScaleDocument,
    what: &str,
    phase: ScalePhase,
    [per_s, of_none]: [FigureOf; 2],
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
    (!steps.is_empty()).then(|| {
        let steps = steps.join(", ");
        format!("{what}, mean per second by replicas (share of that without): {steps}.")
    })
}

/// Returns the number of replicas at which selects peak, in a sentence.
fn stops(at: &Estimate) -> String {
    match (at.value, at.ci95.low) {
        (Some(value), low) => {
            let end = |end: Option<f64>, unknown: &str| {
                end.map_or_else(|| unknown.to_owned(), |end| end.to_string())
            };
            format!(
                "For selects alone, throughput peaks at {value} replicas [{}, {}].",
                end(low, "?"),
                end(at.ci95.high, "no bound")
            )
        }
        (None, Some(low)) => format!(
            "For selects alone, the law shows no peak; the interval for it begins at {low} replicas."
        ),
        (None, None) => "For selects alone, the law shows no peak.".to_owned(),
    }
}

/// Returns the headline in a few sentences.
#[must_use]
pub(crate) fn answer(run: &ScaleDocument) -> String {
    let inserts = [INSERTS, INSERTS_OF_NONE];
    let selects = [SELECTS, SELECTS_OF_NONE];
    let throughputs = [
        ("Inserts alone", ScalePhase::Insert, inserts),
        ("Inserts while selecting", ScalePhase::Mixed, inserts),
        ("Selects while inserting", ScalePhase::Mixed, selects),
    ];
    let throughputs =
        throughputs.map(|(what, phase, picks)| throughputs_of(run, what, phase, picks));
    let mut parts: Vec<String> = throughputs.into_iter().flatten().collect();
    let fits = run.results.fits.iter();
    let fits = fits.filter(|fit| fit.refused.is_none() && fit.phase == ScalePhase::Select.name());
    parts.extend(fits.filter_map(|fit| fit.peak_replicas.as_ref()).map(stops));
    if parts.is_empty() {
        parts.push("No block completed.".to_owned());
    }
    with_end_note(with_level(parts.join(" ")), run.status)
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

/// Returns the description of the method.
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
            "The replicas did not always keep up: after a block of {} with {}, they needed {} to apply all of it.",
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
    let limit = nearest
        .reduce(f64::max)
        .map_or_else(String::new, |percent| {
            format!(", and throughput reached at most {percent:.0} % of the client's ping limit")
        });
    sentences.push(format!(
        "The client's threads used at most {:.0} % of one core{limit}.",
        busiest.fold(0.0, f64::max)
    ));
    sentences
}

/// Returns the description of the clients.
fn clients(run: &ScaleDocument) -> String {
    let settings = &run.settings;
    let threads = settings.threads.unwrap_or_default();
    let read = match settings.reads.unwrap_or_default() {
        ReadTarget::Replicas => "the replicas in turn (the primary without replicas)",
        ReadTarget::Primary => "the primary",
        ReadTarget::All => "all servers in turn",
    };
    if settings.through == Some(Through::Http) {
        return visitors(run, threads, read);
    }
    format!(
        "{threads} clients insert posts into the primary, {threads} select posts by a title pattern from {read}, each in a closed loop on its \
         own connection; first alone, then both concurrently. Data set: {} rows, {}.",
        count(run.results.data_rows),
        Format::Bytes.show(run.results.data_bytes as f64, None)
    )
}

/// Returns the description of the visitors of a site; `read` are the servers that its reads use.
fn visitors(run: &ScaleDocument, threads: u32, read: &str) -> String {
    let settings = &run.settings;
    let driver = settings.driver.unwrap_or_default();
    let pace = match (driver, settings.rate) {
        (HttpDriver::Ab, _) => "sent by ab, back to back (closed loop)".to_owned(),
        (_, None) => "back to back (closed loop)".to_owned(),
        (_, Some(rate)) => format!("{rate} of each kind per second (open loop)"),
    };
    let connections = if settings.keep_alive == Some(true) {
        "Each visitor keeps its connection"
    } else {
        "Each request has a connection of its own"
    };
    let fronts = settings.fronts.unwrap_or_default();
    let cost = settings.front_cost.filter(|cost| !cost.0.is_zero());
    let cost = cost.map_or_else(String::new, |cost| {
        format!(", and spend {cost} of processor time on each")
    });
    let site = if fronts > 1 {
        format!("HAProxy passes them to {fronts} fronts in turn, which send")
    } else {
        "One front sends".to_owned()
    };
    let latency = if driver == HttpDriver::Ab {
        " Latencies are the percentiles that ab gives."
    } else {
        ""
    };
    format!(
        "{threads} visitors of a site insert posts and {threads} select posts by a title pattern, {pace}; first alone, then both concurrently. \
         {connections}. {site} inserts to the primary and selects to {read}{cost}.{latency} Data set: {} rows, {}.",
        count(run.results.data_rows),
        Format::Bytes.show(run.results.data_bytes as f64, None),
    )
}

/// Returns the order in which the servers were started, and how often each phase ran.
fn rounds(run: &ScaleDocument) -> String {
    let settings = &run.settings;
    let order = run.results.order.iter().map(|round| {
        let round = round.iter().map(u32::to_string);
        round.collect::<Vec<_>>().join(" ")
    });
    let span = |span: Option<TimeSpan>| span.map_or_else(String::new, |span| span.to_string());
    // Rounds do not apply here: the only warm-up without a unit is 0.
    let warm_up = settings
        .warm_up
        .map(|warm_up| warm_up.as_time().unwrap_or_default());
    format!(
        "Each number of replicas was started {}, in an order randomized for each round ({}); on each start, every phase ran \
         {} for {}, in order and in reverse, after a warm-up of {}.",
        times(run.results.order.len() as u64),
        order.collect::<Vec<_>>().join("; "),
        times(u64::from(settings.blocks.unwrap_or_default())),
        span(settings.duration),
        span(warm_up),
    )
}

/// Returns the description of the intervals.
fn intervals(run: &ScaleDocument) -> String {
    match run.results.order.len() {
        0 | 1 => "With one start there are no intervals: the variation between starts is unknown."
            .to_owned(),
        starts => format!(
            "Intervals are 95 %, Student's of {starts} starts. Percentages are relative to the same phase of the same round without a replica, \
             with the {LOG} on."
        ),
    }
}

/// Returns the description of what the servers shared.
fn machine(run: &ScaleDocument) -> String {
    match &run.results.cpus_per_server {
        Some(share) => format!(
            "Each server has a fixed share of this machine's {} cores: {share}. The load uses the rest; disk and memory are shared.",
            run.client.cores
        ),
        None => format!(
            "All servers and the load share the {} cores of this machine, so a replica takes resources from the others instead of adding a \
             machine. The curves describe this machine; --cpus-per-server gives each server a fixed share.",
            run.client.cores
        ),
    }
}

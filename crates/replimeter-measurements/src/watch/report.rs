//! The report of a `watch` run.

use replimeter_instruments::watch::results::{State, WatchDocument, WatchRow};
use replimeter_render::{
    figures::{Unit, count, time},
    format::Format,
    headline::end_note,
    report::{Block, Report, Table},
};

/// Changes in the report.
const SHOWN_CHANGES: usize = 50;

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"))
}

/// Returns the replicas.
fn replicas(run: &WatchDocument) -> impl Iterator<Item = &WatchRow> {
    let rows = run.results.rows.iter();
    rows.filter(|row| row.state != Some(State::Primary))
}

/// Returns the headline in a few sentences.
pub(super) fn answer(run: &WatchDocument) -> String {
    let mut parts = Vec::new();
    let max_lag = run
        .settings
        .max_lag
        .map(|max| max.to_string())
        .unwrap_or_default();
    let late = |row: &&WatchRow| row.late_percent.is_some_and(|percent| percent > 0.0);
    let known = replicas(run).filter(|row| row.samples > 0).count();
    let worst = replicas(run).filter(late).max_by(|one, other| {
        one.late_percent
            .unwrap_or(0.0)
            .total_cmp(&other.late_percent.unwrap_or(0.0))
    });
    parts.push(match worst {
        _ if known == 0 => "The lag of no replica was known.".to_owned(),
        None => format!("No replica was seen later than {max_lag}."),
        Some(worst) => format!(
            "{} of {known} replicas were later than {max_lag}; {} was for {} % of the time, and at least {} at most.",
            replicas(run).filter(late).count(),
            worst.server,
            percent(worst.late_percent),
            Format::Time.text(worst.lag_max_low_us),
        ),
    });
    let bad: Vec<String> = replicas(run)
        .filter_map(|row| {
            let state = row.state?;
            (super::gathered::badness(state) >= super::gathered::badness(State::Unknown))
                .then(|| format!("{} is {}", row.server, state.name()))
        })
        .collect();
    if !bad.is_empty() {
        parts.push(format!("At the end, {}.", bad.join(", ")));
    }
    parts.extend(end_note(run.status).map(str::to_owned));
    parts.join(" ")
}

/// Returns the report of a run.
pub(super) fn report(run: &WatchDocument) -> Report {
    let results = &run.results;
    let mut report = Report::of(
        run,
        "Servers that were watched",
        format!("{} polls", count(results.polls)),
    );
    let seconds = |us: Option<f64>| Format::In(Unit::Second).text(us);
    let rows = results.rows.iter().map(|row| {
        let is_primary = row.state == Some(State::Primary);
        let figure = |text: String| if is_primary { "–".to_owned() } else { text };
        vec![
            row.server.clone(),
            row.state.map_or("–", State::name).to_owned(),
            figure(seconds(row.lag_max_low_us)),
            figure(seconds(row.lag_max_high_us)),
            figure(percent(row.late_percent)),
            figure(percent(row.maybe_late_percent)),
            row.behind_max.map_or_else(|| "–".to_owned(), count),
            row.errant.map_or_else(|| "–".to_owned(), count),
        ]
    });
    let headings = [
        "server",
        "state at the end",
        "lag, at least (s)",
        "at most (s)",
        "late (%)",
        "maybe late (%)",
        "behind, max",
        "only there",
    ];
    report.add(Block::table(
        "servers",
        format!(
            "Largest lag, over {}",
            time(run.measured_us.unwrap_or_default())
        ),
        Table::new(&headings, 2, rows),
    ));
    let states = results.rows.iter().flat_map(|row| {
        let all_us: f64 = row.state_us.values().sum();
        row.state_us.iter().map(move |(state, us)| {
            vec![
                row.server.clone(),
                state.clone(),
                time(*us),
                format!("{:.2}", us / all_us.max(f64::MIN_POSITIVE) * 100.0),
            ]
        })
    });
    report.add(Block::table(
        "states",
        "Time in each state",
        Table::new(&["server", "state", "time", "%"], 2, states),
    ));
    let skipped = results.changes.len().saturating_sub(SHOWN_CHANGES);
    let changes = results.changes[skipped..].iter().map(|change| {
        vec![
            format!("{:.1}", change.at_us / 1e6),
            change.server.clone(),
            change.text.clone(),
        ]
    });
    let title = match results.changes_seen {
        all if all as usize > SHOWN_CHANGES => {
            format!("The last {SHOWN_CHANGES} of {} changes", count(all))
        }
        _ => "Changes".to_owned(),
    };
    report.add(Block::table(
        "changes",
        title,
        Table::new(&["at (s)", "server", "what"], 2, changes),
    ));
    report.how = vec![format!(
        "Every {} all servers were asked for their positions; the lag of a replica lies between both ends. It was late if the lower end was \
             above {}, and maybe late if the upper end was, or the lag was not known.",
        run.settings
            .poll_interval
            .map(|interval| interval.to_string())
            .unwrap_or_default(),
        run.settings
            .max_lag
            .map(|max| max.to_string())
            .unwrap_or_default(),
    )];
    report.with_servers(&run.target)
}

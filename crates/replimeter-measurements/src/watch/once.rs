//! `watch --once`: whether every replica applies, within a limit, what the primary has now.

use std::sync::atomic::AtomicBool;

use clap::{Arg, ArgAction, Command};
use replimeter_engine::source::OpenContext;
use replimeter_instruments::watch::{
    once::{OnceAnswer, ask_once},
    settings::WatchSettings,
};
use replimeter_model::{
    plan::Request,
    target::Target,
    time_span::TimeSpan,
    watch_once::{OnceRow, OnceState, WATCH_ONCE_SCHEMA, WatchOnceDocument},
};
use replimeter_render::{figures::count, terminal};
use replimeter_run::{
    RunSurroundings,
    cli_error::{CliError, unexpected},
    json_text,
    options::OutputForm,
    to_measure,
};

/// The options of a measurement and its output that `--once` takes.
const TAKEN: [&str; 2] = ["max_lag", "json"];

/// Adds the option, which excludes those of a run.
pub(super) fn with_option(command: Command) -> Command {
    let of_run = |option: &&Arg| {
        let heading = option.get_help_heading();
        matches!(heading, Some("Measurement" | "Output"))
            && !TAKEN.contains(&option.get_id().as_str())
    };
    let others: Vec<_> = command
        .get_arguments()
        .filter(of_run)
        .map(|option| option.get_id().clone())
        .collect();
    let once = Arg::new("once")
        .long("once")
        .action(ArgAction::SetTrue)
        .help_heading("Measurement")
        .help("Only find out whether every replica applies what the primary has now")
        .long_help(
            "Only find out whether every replica applies what the primary has now\n\nWaits at most --max-lag and a second, and prints a \
             line per replica. Exit codes: 0 every replica has applied it within --max-lag, 1 one has not, 3 that is not known. Keeps no run.",
        )
        .conflicts_with_all(others);
    command.arg(once)
}

/// Finds out, prints the answer, and fails unless every replica is in time.
pub(super) fn answer(
    request: &Request<WatchSettings>,
    surroundings: &mut RunSurroundings<'_>,
    stop: &AtomicBool,
) -> Result<(), CliError> {
    let RunSurroundings {
        servers,
        host,
        output,
        warnings,
    } = surroundings;
    let [target] = request.targets.as_slice() else {
        return Err(unexpected("expected exactly one target"));
    };
    let hint =
        "name yours with --primary and --replica, with --node or --topology, or a running sandbox";
    if let Target::Sandbox(_) = target {
        let message = "--once is for servers that run already";
        return Err(CliError::usage(message, hint));
    }
    let context = OpenContext {
        say: &|_| (),
        quiet: &|| (),
        stop,
    };
    let servers = servers.open(target, &context)?;
    let members = to_measure(servers.as_ref());
    if members.len() < 2 {
        return Err(CliError::usage("there is no replica to wait for", hint));
    }
    host.screen.say(&terminal::warnings(warnings));
    let max_lag = request.plan.max_lag;
    let OnceAnswer {
        primary,
        error,
        rows,
    } = ask_once(&members, max_lag.0, stop)?;
    let document = WatchOnceDocument {
        schema: WATCH_ONCE_SCHEMA.to_owned(),
        shape: servers.label().to_owned(),
        status: OnceState::of(&rows),
        primary,
        error,
        max_lag,
        results: rows,
    };
    let text = match output.form.chosen {
        OutputForm::Json => json_text(&document)?,
        _ => lines(&document.results),
    };
    host.screen.print(&text)?;
    servers.close()?;
    verdict(&document, max_lag)
}

/// Returns a line per replica.
fn lines(rows: &[OnceRow]) -> String {
    let width = rows.iter().map(|row| row.server.len()).max().unwrap_or(0);
    let line = |row: &OnceRow| {
        let found = match (row.within_us, row.behind) {
            (Some(us), _) => format!("applied within {:.3} s", us / 1e6),
            (None, Some(1)) => "1 transaction behind".to_owned(),
            (None, Some(behind)) => format!("{} transactions behind", count(behind)),
            (None, None) => String::new(),
        };
        let said: Vec<&str> = [found.as_str(), &row.reason]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        let line = format!(
            "{:width$}  {:7}  {}",
            row.server,
            row.state.name(),
            said.join("; ")
        );
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}

/// Returns the failure that decides the exit code, if there is one.
fn verdict(document: &WatchOnceDocument, max_lag: TimeSpan) -> Result<(), CliError> {
    let named = |state: OnceState| -> String {
        let rows = document.results.iter().filter(|row| row.state == state);
        let names: Vec<&str> = rows.map(|row| row.server.as_str()).collect();
        names.join(", ")
    };
    match (&document.error, document.status) {
        (Some(error), _) => Err(CliError::failed(
            format!("the primary's position cannot be read: {error}"),
            "`replimeter doctor` with the same target shows what is missing",
        )),
        (None, OnceState::Late) => Err(CliError::invalid(
            format!("not applied within {max_lag}: {}", named(OnceState::Late)),
            "`replimeter watch` with the same target shows the state and the lag of each replica",
        )),
        (None, OnceState::Unknown) => Err(CliError::failed(
            format!("not known: {}", named(OnceState::Unknown)),
            "`replimeter doctor` with the same target shows what is missing",
        )),
        (None, OnceState::Ok) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use replimeter_run::cli_error::FailureKind;

    use super::*;

    fn row(server: &str, state: OnceState) -> OnceRow {
        OnceRow {
            server: server.to_owned(),
            state,
            within_us: (state == OnceState::Ok).then_some(12_300.0),
            behind: (state == OnceState::Late).then_some(3),
            reason: match state {
                OnceState::Unknown => "no answer for 5.8 s".to_owned(),
                _ => String::new(),
            },
        }
    }

    #[test]
    fn each_replica_has_a_line_and_the_worst_known_decides() {
        let (ok, late, unknown) = (OnceState::Ok, OnceState::Late, OnceState::Unknown);
        let code = |states: &[OnceState], error: Option<&str>| {
            let results: Vec<_> = states.iter().map(|state| row("db", *state)).collect();
            let document = WatchOnceDocument {
                schema: String::new(),
                shape: String::new(),
                status: OnceState::of(&results),
                primary: None,
                error: error.map(str::to_owned),
                max_lag: TimeSpan::from_secs(5),
                results,
            };
            verdict(&document, document.max_lag).map_err(|failure| failure.kind)
        };
        assert_eq!(code(&[ok, ok], None), Ok(()));
        assert_eq!(code(&[ok, unknown], None), Err(FailureKind::Failed));
        assert_eq!(code(&[late, unknown], None), Err(FailureKind::Invalid));
        assert_eq!(code(&[unknown], Some("refused")), Err(FailureKind::Failed));
        let rows = [row("db1", ok), row("replica2", late), row("db3", unknown)];
        assert_eq!(
            lines(&rows),
            "db1       ok       applied within 0.012 s\nreplica2  late     3 transactions behind\ndb3       unknown  no answer for 5.8 s\n"
        );
    }

    #[test]
    fn options_of_a_run_are_refused() {
        let registry = crate::registry();
        let command = registry.get("watch").map(|entry| entry.command());
        let command = command.unwrap();
        let try_with = |words: &[&str]| {
            let words = [&["watch", "--once"], words].concat();
            command.clone().try_get_matches_from(words).map(drop)
        };
        try_with(&["--max-lag", "1s", "--json"]).unwrap();
        for words in [
            ["--duration", "1s"],
            ["--listen", "127.0.0.1:1"],
            ["--blocked-after", "1s"],
            ["--run-dir", "x"],
            ["--stream", "csv"],
            ["--dry-run", "--csv"],
        ] {
            let refused = try_with(&words).unwrap_err().to_string();
            assert!(
                refused.contains("'--once' cannot be used with"),
                "{refused}"
            );
        }
    }
}

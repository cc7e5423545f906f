//! Carries out a `tap`: follows servers, shows what comes, and reports.

use std::{
    cell::{Cell, RefCell},
    io::{IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use replimeter_measure::tap;
use replimeter_model::{
    plan::TapPlan,
    tap::{TAP_SCHEMA, TapDocument, TapRow, TapWindow},
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_report::{
    stretches::StretchesWriter,
    tap::{CSV_HEADER, Totals, answer, csv, openmetrics, watched},
};

use crate::{
    cli::Stream,
    course::Course,
    document::Document,
    failure::{Failure, unexpected},
    frame::{Frame, Request},
    measure,
    print::{Reader, plain, print, print_to_reader},
    run_dir::SAMPLES,
};

/// Windows in the document; neighbours are joined when there would be more.
const MOST_WINDOWS: usize = 1800;

/// Carries it out.
///
/// `lines` asks for stretches on standard error where that is no terminal too.
pub(crate) fn carry_out(
    mut request: Request<'_, TapPlan>,
    stream: Option<Stream>,
    lines: bool,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let (plan, work, output) = (request.plan, request.work, request.output);
    let [target] = plan.targets.as_slice() else {
        return Err(unexpected());
    };
    let warnings = std::mem::take(&mut request.warnings);
    let mut frame = Frame::begin(
        "tap",
        plan,
        output,
        work.keep_awake,
        work.real_time,
        warnings,
    )?;
    let servers = request.obtain(target, &frame.line, stop)?;
    let declared = servers.to_measure();
    frame.line.say("checking the servers");
    let mut cluster = tap::check(&declared)?;
    frame.met(&servers, &mut cluster)?;
    let mut writer = StretchesWriter::create(&frame.run_dir.file(SAMPLES), &servers.label)?;
    let delays: Vec<_> = cluster
        .replicas
        .iter()
        .map(|replica| replica.delay())
        .collect();
    let mode = cluster.mode.to_owned();
    if stream == Some(Stream::Csv) {
        print(&format!("{CSV_HEADER}\n"))?;
    }
    let until = work.duration.map_or_else(
        || "until Ctrl-C".to_owned(),
        |duration| format!("for {duration}"),
    );
    frame.line.say(format!(
        "following {} binary logs {until}",
        cluster.replicas.len() + 1
    ));
    let shown = lines || std::io::stderr().is_terminal();
    let mut course = Course::new(MOST_WINDOWS, TapWindow::extend);
    let mut totals = Totals::default();
    let line = RefCell::new(&frame.line);
    let left = Cell::new(false);
    let say = |text: &str| line.borrow().print(&plain(text));
    let mut windows = |windows: &[TapWindow]| {
        course.push(windows);
        writer.write(windows).map_err(|error| error.to_string())?;
        if shown {
            windows.iter().for_each(|window| say(&watched(window)));
        }
        let text = match stream {
            Some(Stream::Csv) => {
                let now = jiff::Timestamp::now()
                    .strftime("%Y-%m-%dT%H:%M:%S.%3fZ")
                    .to_string();
                windows
                    .iter()
                    .map(|window| csv(window, &now) + "\n")
                    .collect()
            }
            Some(Stream::Openmetrics) => openmetrics(windows, &mut totals),
            None => return Ok(()),
        };
        if print_to_reader(&plain(&text)).map_err(|failure| failure.message)? == Reader::Gone {
            // Nobody is left to follow for.
            left.set(true);
            stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    };
    let mut note = |text: &str| say(text);
    let mut listener = tap::Listener {
        windows: &mut windows,
        note: &mut note,
        stop,
    };
    let result = tap::run(
        &mut cluster,
        work,
        &frame.clock,
        frame.real_time,
        frame.run_dir.path(),
        &mut listener,
    );
    drop(cluster);
    let label = servers.label.clone();
    frame.close(servers);
    let kept_awake = frame.let_sleep();
    let mut outcome = match result {
        Ok(outcome) => outcome,
        Err(error) => {
            frame.give_up();
            return Err(error.into());
        }
    };
    let finished = writer.finish();
    frame.run_dir.keep();
    let mut failure = outcome.failure.take().map(Failure::from);
    // Without an end that was asked for, the user's is the proper one.
    if failure.is_none() && outcome.interrupted && work.duration.is_some() && !left.get() {
        failure = Some(Failure::cut_short());
    }
    let failure = failure.or_else(|| finished.err().map(Failure::from));
    let mut warnings = std::mem::take(&mut frame.warnings);
    warnings.append(&mut outcome.warnings);
    if left.get() {
        warnings.push(Warning::new(
            WarningCode::Interrupted,
            "whoever read the stream has gone, and the run ended with them",
            "leave --stream out to follow without a reader",
        ));
    }
    warnings.extend(failure.as_ref().map(Failure::warning));
    let tags = outcome
        .results
        .iter()
        .map(|row| format!("{label}/{}/lag", row.replica));
    let series: Vec<_> = tags.zip(&outcome.lags).collect();
    let logged = frame.log(outcome.measured, &series);
    let results = outcome
        .results
        .into_iter()
        .zip(delays)
        .map(|(row, delay)| TapRow {
            shape: label.clone(),
            configured_delay_us: (!delay.is_zero()).then_some(delay.as_secs_f64() * 1e6),
            ..row
        });
    let mut document = TapDocument {
        schema: TAP_SCHEMA.to_owned(),
        run_dir: frame.run_dir.path().display().to_string(),
        title: plan.title.clone(),
        status: measure::status(failure.as_ref()),
        error: failure.as_ref().map(|failure| failure.message.clone()),
        answer: String::new(),
        started_at: frame.manifest.started_at.clone(),
        measured_us: outcome.measured.as_micros(),
        target: frame.target(plan, label.clone(), vec![mode]),
        settings: work.to_spec(),
        results: results.collect(),
        floor: outcome.floor,
        windows: course.windows,
        streams: outcome.streams,
        clocks: outcome.clocks,
        cpu_us_per_transaction: (outcome.transactions > 0)
            .then(|| Nanos::from(outcome.cpu).as_micros() / outcome.transactions as f64),
        spilled_bytes: outcome.spilled_bytes,
        keep_awake: kept_awake,
        real_time: frame.real_time,
        warnings,
    };
    document.answer = answer(&document);
    let document = Document::Tap(Box::new(document));
    if stream.is_none() {
        return frame.publish(&document, output, failure).and(logged);
    }
    frame.line.clear();
    let kept = document.keep(frame.run_dir.path(), &frame.manifest, &frame.plan);
    let _ = writeln!(
        std::io::stderr(),
        "Run kept in {}",
        frame.run_dir.path().display()
    );
    failure.map_or(kept.and(logged), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_is_told_in_few_windows_and_nothing_is_lost() {
        let mut course = Course::new(MOST_WINDOWS, TapWindow::extend);
        for second in 0..10_007u64 {
            let stretch = |name: &str| TapWindow {
                replica: name.to_owned(),
                start_us: second as f64 * 1e6,
                end_us: (second + 1) as f64 * 1e6,
                transactions: 1,
                max_us: Some(second as f64),
                ..TapWindow::default()
            };
            course.push(&[stretch("a"), stretch("b")]);
        }
        assert!(
            course.windows.len() <= MOST_WINDOWS,
            "{}",
            course.windows.len()
        );
        let of = |name: &'static str| {
            course
                .windows
                .iter()
                .filter(move |window| window.replica == name)
        };
        assert_eq!(
            of("a").map(|window| window.transactions).sum::<u64>(),
            10_007
        );
        assert_eq!(
            of("b")
                .filter_map(|window| window.max_us)
                .fold(0.0, f64::max),
            10_006.0
        );
        let windows: Vec<_> = of("a").collect();
        assert!(
            windows
                .windows(2)
                .all(|pair| pair[0].end_us == pair[1].start_us)
        );
    }
}

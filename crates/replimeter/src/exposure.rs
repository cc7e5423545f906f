//! Carries out an `exposure`: looks at servers, and reports what a crash would take.

use std::sync::{Arc, atomic::AtomicBool};

use replimeter_measure::exposure;
use replimeter_model::{
    exposure::{EXPOSURE_SCHEMA, ExposureDocument, ExposureRow, ExposureSample, ExposureWindow},
    plan::ExposurePlan,
};
use replimeter_report::{crashes::LooksWriter, exposure::answer};

use crate::{
    course::Course,
    document::Document,
    failure::{Failure, unexpected},
    frame::{Frame, Request},
    measure,
    print::plain,
    run_dir::SAMPLES,
};

/// Windows in the document; neighbours are joined when there would be more.
const MOST_WINDOWS: usize = 1800;

/// Carries it out.
pub(crate) fn carry_out(
    mut request: Request<'_, ExposurePlan>,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let (plan, work, output) = (request.plan, request.work, request.output);
    let [target] = plan.targets.as_slice() else {
        return Err(unexpected());
    };
    let warnings = std::mem::take(&mut request.warnings);
    let mut frame = Frame::begin(
        "exposure",
        plan,
        output,
        work.keep_awake,
        work.real_time,
        warnings,
    )?;
    let servers = request.obtain(target, &frame.line, stop)?;
    let declared = servers.to_measure();
    frame.line.say("checking the servers");
    let mut cluster = exposure::check(&declared)?;
    frame.met(&servers, &mut cluster)?;
    let mut writer = LooksWriter::create(&frame.run_dir.file(SAMPLES), &servers.label)?;
    let mode = cluster.mode.to_owned();
    frame.line.say(format!(
        "looking at {} replicas for {}",
        cluster.replicas.len(),
        work.duration
    ));
    let mut course = Course::new(MOST_WINDOWS, ExposureWindow::extend);
    let line = &frame.line;
    let mut sample =
        |sample: &ExposureSample| writer.write(sample).map_err(|error| error.to_string());
    let mut window = |window: &ExposureWindow| {
        course.push(std::slice::from_ref(window));
        line.say(format!(
            "{:.0} s of {}: {:.1} transactions exposed on average, {} at most",
            window.end_us / 1e6,
            work.duration,
            window.transactions_mean,
            window.transactions_max
        ));
    };
    let mut note = |text: &str| line.print(&plain(text));
    let mut listener = exposure::Listener {
        sample: &mut sample,
        window: &mut window,
        note: &mut note,
        stop,
    };
    let result = exposure::run(
        &mut cluster,
        work,
        &frame.clock,
        frame.real_time,
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
    if failure.is_none() && outcome.interrupted {
        failure = Some(Failure::cut_short());
    }
    let failure = failure.or_else(|| finished.err().map(Failure::from));
    let mut warnings = std::mem::take(&mut frame.warnings);
    warnings.append(&mut outcome.warnings);
    warnings.extend(failure.as_ref().map(Failure::warning));
    let series = [(format!("{label}/age"), &outcome.age)];
    let logged = frame.log(outcome.measured, &series);
    let mut document = ExposureDocument {
        schema: EXPOSURE_SCHEMA.to_owned(),
        run_dir: frame.run_dir.path().display().to_string(),
        title: plan.title.clone(),
        status: measure::status(failure.as_ref()),
        error: failure.as_ref().map(|failure| failure.message.clone()),
        answer: String::new(),
        started_at: frame.manifest.started_at.clone(),
        measured_us: outcome.measured.as_micros(),
        target: frame.target(plan, label.clone(), vec![mode]),
        settings: work.to_spec(),
        results: vec![ExposureRow {
            shape: label,
            ..outcome.row
        }],
        windows: course.windows,
        written: outcome.written,
        keep_awake: kept_awake,
        real_time: frame.real_time,
        warnings,
    };
    document.answer = answer(&document);
    frame
        .publish(&Document::Exposure(Box::new(document)), output, failure)
        .and(logged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_is_told_in_few_windows_and_nothing_is_lost() {
        let mut course = Course::new(MOST_WINDOWS, ExposureWindow::extend);
        for second in 0..10_007u64 {
            course.push(&[ExposureWindow {
                start_us: second as f64 * 1e6,
                end_us: (second + 1) as f64 * 1e6,
                looks: 100,
                committed: 3,
                transactions_mean: 1.0,
                transactions_max: second,
                ..ExposureWindow::default()
            }]);
        }
        let windows = &course.windows;
        assert!(windows.len() <= MOST_WINDOWS, "{}", windows.len());
        assert_eq!(
            windows.iter().map(|window| window.committed).sum::<u64>(),
            3 * 10_007
        );
        assert_eq!(
            windows.iter().map(|window| window.transactions_max).max(),
            Some(10_006)
        );
        assert!(
            windows
                .windows(2)
                .all(|pair| pair[0].end_us == pair[1].start_us)
        );
        assert!(
            windows
                .iter()
                .all(|window| (window.transactions_mean - 1.0).abs() < 1e-9)
        );
    }
}

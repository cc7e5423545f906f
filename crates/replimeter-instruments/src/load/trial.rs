//! Runs every statement of a workload once before the measurement, so that a mistake is reported as
//! an error with its line instead of failing every operation.

use std::time::Duration;

use replimeter_engine::{ServerError, wire::StatementError};

use super::{
    about,
    event_loop::TaskHandle,
    program::{Program, Routine, RoutineStep, Scratch},
    value::{Draw, ParameterSink},
    worker::{WorkerConnection, run},
    workload::Operation,
};

/// Number of attempts for an operation that a lock, a deadlock or a certification refuses.
pub(super) const TRIALS: u32 = 5;
/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Tries every operation: each of its statements once in a transaction that is rolled back, or a script
/// once, for real.
pub(super) async fn try_out(
    link: &mut WorkerConnection,
    program: &Program,
    task: &TaskHandle,
) -> Result<(), ServerError> {
    for (routine, operation) in program
        .operations
        .iter()
        .zip(&program.workload.inner.operations)
    {
        let script = routine
            .steps
            .iter()
            .any(|step| matches!(step, RoutineStep::Words(_)));
        for trial in 1..=TRIALS {
            let tried = if script {
                try_script(link, program, routine).await
            } else {
                try_statements(link, program, routine, operation).await
            };
            let error = match tried {
                Err((_, StatementError::Broken(error))) => return Err(error),
                Err((step, StatementError::Refused(refusal))) => {
                    let error = link.channel.refused(&refusal);
                    Some((step, error, refusal.class().is_retried() && trial < TRIALS))
                }
                Ok(()) => None,
            };
            let rolled_back = link.channel.roll_back().await;
            let again = error.is_some();
            if let Some((step, error, false)) = error {
                return Err(match operation.steps.get(step) {
                    Some(step) => about(error, &program.workload, step.line(), &step.excerpt()),
                    None => error,
                });
            }
            rolled_back?;
            if !again {
                break;
            }
            task.sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Runs each statement once in a transaction; an error includes the failed step.
async fn try_statements(
    link: &mut WorkerConnection,
    program: &Program,
    routine: &Routine,
    operation: &Operation,
) -> Result<(), (usize, StatementError)> {
    let mut draw = Draw::new(1, 1, program.sequences);
    let mut scratch = Scratch::default();
    scratch.share(&routine.shared, &mut draw);
    let _ = link.channel.query("BEGIN").await;
    for (index, (step, written)) in routine.steps.iter().zip(&operation.steps).enumerate() {
        let RoutineStep::Prepared {
            statement,
            parameters,
            keeps,
            ..
        } = step
        else {
            continue;
        };
        // A statement on a whole table takes long, and preparing it has shown that it is valid.
        if parameters.is_empty() && !written.reads() {
            continue;
        }
        let bind =
            &mut |push: ParameterSink<'_>| scratch.parameters(parameters, *keeps, &mut draw, push);
        let done = link.execute_once(program, *statement, bind).await;
        done.map_err(|failed| (index, failed))?;
    }
    Ok(())
}

/// Runs a script once: as text, which no server checks before, and with its own transactions.
async fn try_script(
    link: &mut WorkerConnection,
    program: &Program,
    routine: &Routine,
) -> Result<(), (usize, StatementError)> {
    let mut draw = Draw::new(0, 1, program.sequences);
    draw.pass = 1;
    run(
        link,
        program,
        routine,
        &mut draw,
        &mut Scratch::default(),
        &mut String::new(),
    )
    .await
}

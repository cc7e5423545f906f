//! A workload resolved for a data set of known size and a known number of threads.

use std::sync::Arc;

use replimeter_engine::{ServerError, wire::ParameterValue};

use super::{
    about,
    script::{Template, excerpt},
    value::{Draw, Generator, Place, ReferencedValues},
    workload::{Parameter, Step, Version, Workload},
};

/// The operations of a workload, with all parameters resolved.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) workload: Workload,
    pub(super) operations: Vec<Routine>,
    /// Sum of all weights.
    weights: u64,
    /// Distinct statements to prepare, with `?` for parameters, and their lines.
    pub(super) statements: Vec<StatementText>,
    /// Number of sequences.
    pub(super) sequences: usize,
    /// Indices of `BEGIN` and `COMMIT` among the statements, if any operation is a transaction.
    pub(super) frame: Option<(usize, usize)>,
}

/// A statement to prepare.
#[derive(Clone, Debug)]
pub(super) struct StatementText {
    pub(super) sql: String,
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) struct Routine {
    /// The sum of weights up to this one.
    until: u64,
    pub(super) transaction: bool,
    pub(super) shared: Vec<Generator>,
    pub(super) steps: Vec<RoutineStep>,
    pub(super) statements: u64,
}

/// One statement of an operation.
#[derive(Debug)]
pub(super) enum RoutineStep {
    Words(Template),
    Prepared {
        /// Index among the program's statements.
        statement: usize,
        parameters: Vec<ParameterSource>,
        repeat: u32,
        /// Whether a later parameter refers to one of this statement.
        keeps: bool,
        /// How it uses a row's version.
        version: Option<Version>,
    },
}

/// Source of a parameter's value.
#[derive(Debug)]
pub(super) enum ParameterSource {
    Drawn(Generator),
    Same(usize),
    Shared(usize),
}

impl Program {
    pub(super) fn new(workload: &Workload, rows: u64) -> Arc<Self> {
        let mut program = Self {
            workload: workload.clone(),
            operations: Vec::new(),
            weights: 0,
            statements: Vec::new(),
            sequences: 0,
            frame: None,
        };
        for operation in &workload.inner.operations {
            program.weights += operation.weight;
            let shared = operation
                .shared
                .iter()
                .map(|source| source.generator(rows, &mut program.sequences))
                .collect();
            let steps = operation
                .steps
                .iter()
                .map(|step| program.step(step, rows))
                .collect();
            program.operations.push(Routine {
                until: program.weights,
                transaction: operation.transaction,
                shared,
                steps,
                statements: operation.statements(),
            });
        }
        if program.operations.iter().any(|routine| routine.transaction) {
            program.frame = Some((program.text("BEGIN", 0), program.text("COMMIT", 0)));
        }
        Arc::new(program)
    }

    fn step(&mut self, step: &Step, rows: u64) -> RoutineStep {
        match step {
            Step::Words(template) => RoutineStep::Words(template.clone()),
            Step::Prepared(statement) => {
                let parameters: Vec<ParameterSource> = statement
                    .parameters
                    .iter()
                    .map(|parameter| match parameter {
                        Parameter::Drawn(source) => {
                            ParameterSource::Drawn(source.generator(rows, &mut self.sequences))
                        }
                        Parameter::Same(before) => ParameterSource::Same(*before),
                        Parameter::Shared(shared) => ParameterSource::Shared(*shared),
                    })
                    .collect();
                let keeps = parameters.iter().any(|parameter| {
                    matches!(
                        parameter,
                        ParameterSource::Same(_)
                            | ParameterSource::Drawn(Generator::Plus(Place::Own(_), _))
                    )
                });
                let text = self.text(&statement.sql, statement.line);
                RoutineStep::Prepared {
                    statement: text,
                    parameters,
                    repeat: statement.repeat,
                    keeps,
                    version: statement.version(),
                }
            }
        }
    }

    fn text(&mut self, sql: &str, line: usize) -> usize {
        self.statements
            .iter()
            .position(|known| known.sql == sql)
            .unwrap_or_else(|| {
                self.statements.push(StatementText {
                    sql: sql.to_owned(),
                    line,
                });
                self.statements.len() - 1
            })
    }

    /// Adds the line and the statement to the error of a connection that could not be opened, if a statement was refused.
    pub(super) fn explain(&self, (statement, error): (Option<usize>, ServerError)) -> ServerError {
        let Some(statement) = statement else {
            return error;
        };
        let text = &self.statements[statement];
        about(error, &self.workload, text.line, &excerpt(&text.sql))
    }

    /// Returns a thread's next operation.
    #[inline]
    pub(super) fn choose(&self, draw: &mut Draw) -> &Routine {
        if let [only] = self.operations.as_slice() {
            return only;
        }
        let drawn = draw.random.between(0, self.weights - 1);
        let at = self
            .operations
            .partition_point(|routine| routine.until <= drawn);
        &self.operations[at.min(self.operations.len() - 1)]
    }
}

/// Buffers for a thread's values.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    text: Vec<u8>,
    pub(super) shared: Vec<ReferencedValues>,
    own: Vec<ReferencedValues>,
}

impl Scratch {
    /// Draws the values that the statements of a pass share.
    #[inline]
    pub(super) fn share(&mut self, generators: &[Generator], draw: &mut Draw) {
        self.shared.clear();
        for generator in generators {
            let shared = &self.shared;
            let value =
                ReferencedValues::of(generator.draw(draw, &mut self.text, |place| match place {
                    Place::Shared(at) | Place::Own(at) => number(shared.get(at)),
                }));
            self.shared.push(value);
        }
    }

    /// Draws the parameters of one execution, in order.
    #[inline]
    pub(super) fn parameters(
        &mut self,
        parameters: &[ParameterSource],
        keeps: bool,
        draw: &mut Draw,
        mut push: impl FnMut(ParameterValue<'_>),
    ) {
        self.own.clear();
        for parameter in parameters {
            let value = match parameter {
                ParameterSource::Drawn(generator) => {
                    let (shared, own) = (&self.shared, &self.own);
                    generator.draw(draw, &mut self.text, |place| match place {
                        Place::Shared(at) => number(shared.get(at)),
                        Place::Own(at) => number(own.get(at)),
                    })
                }
                ParameterSource::Same(before) => self
                    .own
                    .get(*before)
                    .map_or(ParameterValue::Null, ReferencedValues::bind),
                ParameterSource::Shared(at) => self
                    .shared
                    .get(*at)
                    .map_or(ParameterValue::Null, ReferencedValues::bind),
            };
            push(value);
            if keeps {
                let kept = ReferencedValues::of(value);
                self.own.push(kept);
            }
        }
    }
}

fn number(kept: Option<&ReferencedValues>) -> i64 {
    match kept {
        Some(ReferencedValues::Number(number)) => *number,
        // The parser rejects a sum with a text.
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str, rows: u64) -> Vec<Vec<ReferencedValues>> {
        let workload = Workload::parse("x.toml", text).unwrap();
        let program = Program::new(&workload, rows);
        let mut draw = Draw::new(1, 1, program.sequences);
        let mut scratch = Scratch::default();
        let routine = program.choose(&mut draw);
        scratch.share(&routine.shared, &mut draw);
        routine
            .steps
            .iter()
            .map(|step| {
                let RoutineStep::Prepared {
                    parameters, keeps, ..
                } = step
                else {
                    panic!("words")
                };
                let mut values = Vec::new();
                scratch.parameters(parameters, *keeps, &mut draw, |bind| {
                    values.push(ReferencedValues::of(bind))
                });
                values
            })
            .collect()
    }

    #[test]
    fn shared_same_and_plus_values_agree() {
        let values = drawn(
            "[shared]\nid = {uniform = [1, 'rows']}\n[[statement]]\nsql = 'SELECT :id, :next, :a, :a, :b'\nnext = {plus = ['id', 5]}\n\
             a = {uniform = [1, 1000000]}\nb = {plus = ['a', -1]}\n[[statement]]\nsql = 'SELECT :id'",
            1000,
        );
        let number = |kept: &ReferencedValues| {
            if let ReferencedValues::Number(number) = kept {
                *number
            } else {
                panic!("{kept:?}")
            }
        };
        let first: Vec<i64> = values[0].iter().map(number).collect();
        assert_eq!(
            (
                first[1] - first[0],
                first[3] - first[2],
                first[4] - first[2]
            ),
            (5, 0, -1)
        );
        assert_eq!(number(&values[1][0]), first[0]);
    }

    #[test]
    fn statements_are_prepared_once_in_transactions() {
        let text = "transaction = true\n[[statement]]\nsql = 'SELECT 1'\n[[statement]]\nsql = 'SELECT 1'\nrepeat = 3";
        let program = Program::new(&Workload::parse("x.toml", text).unwrap(), 0);
        assert_eq!(
            program
                .statements
                .iter()
                .map(|text| text.sql.as_str())
                .collect::<Vec<_>>(),
            ["SELECT 1", "BEGIN", "COMMIT"]
        );
        assert_eq!(
            (program.frame, program.operations[0].statements),
            (Some((1, 2)), 6)
        );
    }

    #[test]
    fn operation_weights_are_respected() {
        let text = "[[operation]]\nweight = 9\n[[operation.statement]]\nsql = 'SELECT 1'\n[[operation]]\n[[operation.statement]]\nsql = 'SELECT 2'";
        let program = Program::new(&Workload::parse("x.toml", text).unwrap(), 0);
        let mut draw = Draw::new(1, 1, 0);
        let second = (0..10_000)
            .filter(|_| std::ptr::eq(program.choose(&mut draw), &raw const program.operations[1]))
            .count();
        assert!((800..1200).contains(&second), "{second}");
    }
}

//! Connections of a load, and the statements that run over them.

use std::{sync::Arc, time::Duration};

use replimeter_engine::{
    ErrorKind, Node, ServerError,
    dialect::galera::is_in_cluster,
    wire::{PreparedStatement, StatementError, WireConnection},
};

use crate::load::{
    program::{Program, Routine, RoutineStep, Scratch},
    value::{Draw, ParameterSink},
    versions::{ConnectionView, Versions},
};

/// Timeout of a load's statement.
const ANSWER: Duration = Duration::from_secs(60);
/// The server cannot prepare this kind of statement.
const NOT_PREPARABLE: u16 = 1295;

/// Operation named in a load's errors.
pub(in crate::load) const OPERATION: &str = "cannot run the load";

/// The server of a connection.
#[derive(Clone, Debug)]
pub(in crate::load) struct LoadTarget {
    pub(in crate::load) node: Node,
    /// Whether it is a replica with a channel: writes would exist on no other server.
    pub(in crate::load) reads_only: bool,
    /// Whether it is a member of a Galera cluster.
    pub(in crate::load) galera: bool,
    /// Statements that open every session.
    pub(in crate::load) session: Vec<String>,
    /// The recorder of the versions that are read here, and the index of this server in it.
    pub(in crate::load) versions: Option<(Arc<Versions>, usize)>,
}

impl LoadTarget {
    pub(in crate::load) fn new(node: Node, reads_only: bool) -> Self {
        Self {
            node,
            reads_only,
            galera: false,
            session: Vec::new(),
            versions: None,
        }
    }

    /// Finds out whether it is a member of a Galera cluster: such a member reports other conflicts as
    /// deadlocks too.
    pub(in crate::load) fn detect_galera(
        &mut self,
        channel: &mut WireConnection,
    ) -> Result<(), ServerError> {
        self.galera = is_in_cluster(channel.session(), OPERATION)?;
        Ok(())
    }

    pub(in crate::load) fn open(&self) -> Result<WireConnection, ServerError> {
        let mut channel = WireConnection::open(&Node {
            answer: ANSWER,
            ..self.node.clone()
        })?;
        if self.reads_only {
            // Privileged users can write to a read-only server.
            channel
                .session()
                .run(OPERATION, "SET SESSION TRANSACTION READ ONLY")?;
        }
        channel.session().run(OPERATION, "USE `replimeter`")?;
        for sql in &self.session {
            channel.session().run(OPERATION, sql)?;
        }
        Ok(channel)
    }
}

/// A connection with its statements prepared.
pub(in crate::load) struct WorkerConnection {
    pub(in crate::load) channel: WireConnection,
    /// `None` for statements that the server accepts only as text.
    prepared: Vec<Option<PreparedStatement>>,
    /// Set if versions that are read are recorded.
    witness: Option<Box<ConnectionView>>,
}

impl WorkerConnection {
    /// Connects and prepares.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses a statement; in that case with the statement's
    /// index.
    pub(in crate::load) fn open(
        place: &LoadTarget,
        program: &Program,
    ) -> Result<Self, (Option<usize>, ServerError)> {
        let mut channel = place.open().map_err(|error| (None, error))?;
        let mut prepared = Vec::with_capacity(program.statements.len());
        for (index, text) in program.statements.iter().enumerate() {
            prepared.push(match channel.prepare(&text.sql) {
                Ok(statement) => Some(statement),
                Err(error)
                    if error.kind == ErrorKind::Statement(NOT_PREPARABLE)
                        && !text.sql.contains('?') =>
                {
                    None
                }
                Err(error) => return Err((Some(index), error)),
            });
        }
        let witness = place
            .versions
            .as_ref()
            .map(|(versions, number)| Box::new(ConnectionView::new(versions, *number)));
        Ok(Self {
            channel,
            prepared,
            witness,
        })
    }

    /// Runs one of the program's statements once; `bind` passes its parameters on.
    pub(in crate::load) fn execute_once(
        &mut self,
        program: &Program,
        statement: usize,
        bind: &mut dyn FnMut(ParameterSink<'_>),
    ) -> Result<(), StatementError> {
        match &mut self.prepared[statement] {
            Some(prepared) => self
                .channel
                .execute(prepared, |binder| bind(&mut |value| binder.push(value)))
                .map(drop),
            None => self
                .channel
                .query(&program.statements[statement].sql)
                .map(drop),
        }
    }

    /// Runs one of the program's statements without parameters.
    fn plain(&mut self, program: &Program, statement: usize) -> Result<(), StatementError> {
        match &mut self.prepared[statement] {
            Some(prepared) => self.channel.execute(prepared, |_| {}).map(drop),
            None => self
                .channel
                .query(&program.statements[statement].sql)
                .map(drop),
        }
    }
}

/// Runs an operation; an error includes the failed step.
#[inline]
pub(in crate::load) fn run(
    link: &mut WorkerConnection,
    program: &Program,
    routine: &Routine,
    draw: &mut Draw,
    scratch: &mut Scratch,
    words: &mut String,
) -> Result<(), (usize, StatementError)> {
    if !routine.shared.is_empty() {
        scratch.share(&routine.shared, draw);
    }
    let frame = program.frame.filter(|_| routine.transaction);
    if let Some((begin, _)) = frame {
        if let Some(witness) = &mut link.witness {
            witness.begins();
        }
        link.plain(program, begin).map_err(|failed| (0, failed))?;
    }
    for (index, step) in routine.steps.iter().enumerate() {
        match step {
            RoutineStep::Words(template) => {
                template.fill(draw, words);
                link.channel
                    .query(words)
                    .map_err(|failed| (index, failed))?;
            }
            RoutineStep::Prepared {
                statement,
                parameters,
                repeat,
                keeps,
                version,
            } => {
                for _ in 0..*repeat {
                    let done = match &mut link.prepared[*statement] {
                        Some(prepared) if version.is_some() && link.witness.is_some() => {
                            let Some((version, witness)) = version.zip(link.witness.as_mut())
                            else {
                                continue;
                            };
                            let own = !routine.transaction;
                            witness.run(&mut link.channel, prepared, version, own, |push| {
                                scratch.parameters(parameters, *keeps, draw, push);
                            })
                        }
                        Some(prepared) => link.channel.execute(prepared, |binder| {
                            scratch
                                .parameters(parameters, *keeps, draw, |value| binder.push(value));
                        }),
                        None => link.channel.query(&program.statements[*statement].sql),
                    };
                    if let Err(failed) = done {
                        return Err((index, failed));
                    }
                }
            }
        }
    }
    if let Some((_, commit)) = frame {
        link.plain(program, commit)
            .map_err(|failed| (routine.steps.len(), failed))?;
        if let Some(witness) = &mut link.witness {
            witness.committed();
        }
    }
    Ok(())
}

/// After a lock timeout the server keeps the earlier statements of the transaction.
pub(in crate::load) fn roll_back(channel: &mut WireConnection) {
    let _ = channel.query("ROLLBACK");
}

//! Connections of a load, and the statements that run over them.

use std::{cell::OnceCell, rc::Rc, sync::Arc, time::Duration};

use replimeter_engine::{
    ErrorClass, Node, ServerError, Session,
    wire::{Answer, Binder, PreparedStatement, StatementError, WireTarget},
};

use crate::load::{
    OPERATION,
    channel::Channel,
    event_loop::TaskHandle,
    program::{Program, Routine, RoutineStep, Scratch},
    value::{Draw, ParameterSink},
    versions::{ConnectionView, Versions},
};

/// Timeout of a load's statement.
const ANSWER: Duration = Duration::from_secs(60);

/// The server of a connection.
#[derive(Clone, Debug)]
pub(in crate::load) struct LoadTarget {
    pub(in crate::load) node: Node,
    /// Whether it is a replica with a channel: writes would exist on no other server.
    pub(in crate::load) reads_only: bool,
    /// Whether a conflict with another server's write shows as a deadlock.
    pub(in crate::load) certifies: bool,
    /// How long an answer may take.
    pub(in crate::load) answer: Duration,
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
            certifies: false,
            answer: ANSWER,
            session: Vec::new(),
            versions: None,
        }
    }

    /// Returns the statements that begin every session.
    fn statements(&self) -> impl Iterator<Item = &str> {
        // Privileged users can write to a read-only server.
        let read_only = self
            .reads_only
            .then_some("SET SESSION TRANSACTION READ ONLY");
        let session = self.session.iter().map(String::as_str);
        read_only
            .into_iter()
            .chain(["USE `replimeter`"])
            .chain(session)
    }

    /// Opens a session for statements that are run once.
    pub(in crate::load) fn open_session(&self) -> Result<Session, ServerError> {
        let mut session = Session::open(&Node {
            answer: self.answer,
            ..self.node.clone()
        })?;
        for sql in self.statements() {
            session.run(OPERATION, sql)?;
        }
        Ok(session)
    }
}

/// The servers of the connections of one thread: names are resolved and files are read once.
#[derive(Clone)]
pub(in crate::load) struct LoopTarget {
    pub(in crate::load) target: Arc<LoadTarget>,
    wire: Rc<OnceCell<WireTarget>>,
}

impl LoopTarget {
    pub(in crate::load) fn new(target: &LoadTarget) -> Self {
        Self {
            target: Arc::new(target.clone()),
            wire: Rc::default(),
        }
    }

    fn wire(&self) -> Result<&WireTarget, ServerError> {
        if let Some(known) = self.wire.get() {
            return Ok(known);
        }
        let found = WireTarget::new(&Node {
            answer: self.target.answer,
            ..self.target.node.clone()
        })?;
        Ok(self.wire.get_or_init(|| found))
    }
}

/// A connection with its statements prepared.
pub(in crate::load) struct WorkerConnection {
    pub(in crate::load) channel: Channel,
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
    pub(in crate::load) async fn open(
        place: &LoopTarget,
        program: &Program,
        task: &TaskHandle,
    ) -> Result<Self, (Option<usize>, ServerError)> {
        let other = |error| (None, error);
        let wire = place.wire().map_err(other)?;
        let target = &*place.target;
        let opened = Channel::open(wire, task, target.answer).await;
        let mut channel = opened.map_err(other)?;
        if program.workload.is_of_user() {
            channel.use_server_defaults().await.map_err(other)?;
        }
        for sql in target.statements() {
            channel.run(sql).await.map_err(other)?;
        }
        let mut prepared = Vec::with_capacity(program.statements.len());
        for (index, text) in program.statements.iter().enumerate() {
            prepared.push(match channel.prepare(&text.sql).await {
                Ok(statement) => Some(statement),
                Err(error)
                    if error.class() == Some(ErrorClass::NotPreparable)
                        && !text.sql.contains('?') =>
                {
                    None
                }
                Err(error) => return Err((Some(index), error)),
            });
        }
        let witness = target
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
    pub(in crate::load) async fn execute_once(
        &mut self,
        program: &Program,
        statement: usize,
        bind: &mut dyn FnMut(ParameterSink<'_>),
    ) -> Result<(), StatementError> {
        let done = match &mut self.prepared[statement] {
            Some(prepared) => {
                let bind = |binder: &mut Binder<'_>| bind(&mut |value| binder.push(value));
                self.channel.execute(prepared, Answer::Counted, bind).await
            }
            None => self.channel.query(&program.statements[statement].sql).await,
        };
        done.map(drop)
    }

    /// Runs one of the program's statements without parameters.
    async fn plain(&mut self, program: &Program, statement: usize) -> Result<(), StatementError> {
        self.execute_once(program, statement, &mut |_| {}).await
    }
}

/// Runs an operation; an error includes the failed step.
#[inline]
pub(in crate::load) async fn run(
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
        let begun = link.plain(program, begin).await;
        begun.map_err(|failed| (0, failed))?;
    }
    for (index, step) in routine.steps.iter().enumerate() {
        match step {
            RoutineStep::Words(template) => {
                template.fill(draw, words);
                let done = link.channel.query(words).await;
                done.map_err(|failed| (index, failed))?;
            }
            RoutineStep::Prepared {
                statement,
                parameters,
                repeat,
                keeps,
                version,
            } => {
                for _ in 0..*repeat {
                    let channel = &mut link.channel;
                    let witness = version.zip(link.witness.as_mut());
                    let done = match (&mut link.prepared[*statement], witness) {
                        (Some(prepared), Some((version, witness))) => {
                            let own = !routine.transaction;
                            let bind = |push: ParameterSink<'_>| {
                                scratch.parameters(parameters, *keeps, draw, push);
                            };
                            witness.run(channel, prepared, version, own, bind).await
                        }
                        (Some(prepared), _) => {
                            let bind = |binder: &mut Binder<'_>| {
                                scratch.parameters(parameters, *keeps, draw, |value| {
                                    binder.push(value);
                                });
                            };
                            channel.execute(prepared, Answer::Counted, bind).await
                        }
                        (None, _) => channel.query(&program.statements[*statement].sql).await,
                    };
                    if let Err(failed) = done {
                        return Err((index, failed));
                    }
                }
            }
        }
    }
    if let Some((_, commit)) = frame {
        let committed = link.plain(program, commit).await;
        committed.map_err(|failed| (routine.steps.len(), failed))?;
        if let Some(witness) = &mut link.witness {
            witness.committed();
        }
    }
    Ok(())
}

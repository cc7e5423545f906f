//! Stops and starts a replica's applier, and leaves it as it was found.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use replimeter_model::engine::Engine;
use replimeter_server::{
    Node, ServerError, Session,
    flavour::{
        Channel,
        appliers::appliers,
        statements::{self, Part},
    },
};

use crate::preflight::CheckedReplica;

/// How long the applier may take to stop: it finishes the transaction it is in.
const ANSWER: Duration = Duration::from_secs(60);
/// How long each step may take when the user wants to be gone at once.
const HURRIED: Duration = Duration::from_secs(2);

/// What brings an applier back to how it was.
#[derive(Clone, Debug)]
struct Way {
    node: Node,
    statements: Vec<String>,
}

impl Way {
    /// Looks whether the server answers at all, before a long patience is spent on it.
    fn reachable(&self) -> Result<(), ServerError> {
        Session::open(&Node {
            answer: HURRIED,
            ..self.node.clone()
        })
        .map(drop)
    }

    fn go(&self, answer: Duration) -> Result<(), ServerError> {
        let mut session = Session::open(&Node {
            answer,
            ..self.node.clone()
        })?;
        self.statements
            .iter()
            .try_for_each(|statement| session.run("cannot start the applier again", statement))
    }
}

/// The appliers that are not as they were, for an end without clean-up.
static HELD: Mutex<Vec<Way>> = Mutex::new(Vec::new());

fn held() -> MutexGuard<'static, Vec<Way>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Brings every applier back to how it was, for a process that ends at once; what
/// could not be brought back is returned in words.
pub fn restore_all() -> Vec<String> {
    let ways = std::mem::take(&mut *held());
    ways.iter()
        .filter_map(|way| {
            way.go(HURRIED)
                .err()
                .map(|error| format!("{error}; by hand: {}", way.statements.join(" ")))
        })
        .collect()
}

/// A replica's applier, stopped. Dropped, it runs again as it did before, with as
/// many workers, whatever ended the measurement.
pub(super) struct Applier {
    session: Session,
    engine: Engine,
    channel: Channel,
    way: Way,
    /// The number of workers in effect, and its setting.
    pub(super) workers: Option<(u64, &'static str)>,
    released: bool,
}

const DOING: &str = "cannot stop the applier";

impl Applier {
    /// Stops the applier and gives it so many workers, if any number is asked for.
    ///
    /// # Errors
    /// When the server refuses; it is as it was then.
    pub(super) fn hold(
        replica: &CheckedReplica,
        channel: &Channel,
        workers: Option<u32>,
    ) -> Result<Self, ServerError> {
        let (node, facts) = (&replica.server.node, &replica.server.facts);
        let known = appliers(facts).map(|appliers| (appliers.threads, appliers.threads_variable));
        let changed = workers
            .zip(known)
            .filter(|(wanted, (was, _))| u64::from(*wanted) != *was);
        let start = statements::start(facts.engine, channel, Part::Applier);
        let stop = statements::stop(facts.engine, channel, Part::Applier);
        let back = match changed {
            // The number of workers counts from the next start on.
            Some((_, (was, variable))) => vec![
                stop.clone(),
                format!("SET GLOBAL {variable} = {was};"),
                start,
            ],
            None => vec![start],
        };
        let way = Way {
            node: node.clone(),
            statements: back,
        };
        let session = Session::open(&Node {
            answer: ANSWER,
            ..node.clone()
        })?;
        // From here on it is looked after.
        held().push(way.clone());
        let mut applier = Self {
            session,
            engine: facts.engine,
            channel: channel.clone(),
            way,
            workers: known,
            released: false,
        };
        applier.stop()?;
        if let Some((wanted, (_, variable))) = changed {
            applier.session.run(
                "cannot set the number of applier workers",
                &format!("SET GLOBAL {variable} = {wanted}"),
            )?;
            // A server may make another number of it.
            let now = applier.session.value(
                "cannot read the number of applier workers",
                &format!("SELECT @@GLOBAL.{variable}"),
            )?;
            applier.workers = now
                .and_then(|now| now.parse().ok())
                .map(|now| (now, variable));
        }
        Ok(applier)
    }

    fn stop(&mut self) -> Result<(), ServerError> {
        self.session.run(
            DOING,
            &statements::stop(self.engine, &self.channel, Part::Applier),
        )
    }

    /// Starts it with the workers that were set.
    pub(super) fn start(&mut self) -> Result<(), ServerError> {
        self.session.run(
            "cannot start the applier",
            &statements::start(self.engine, &self.channel, Part::Applier),
        )
    }

    /// Brings it back to how it was.
    ///
    /// # Errors
    /// When the server refuses or does not answer, with what to run by hand.
    pub(super) fn release(mut self) -> Result<(), ServerError> {
        self.bring_back()
    }

    fn bring_back(&mut self) -> Result<(), ServerError> {
        if self.released {
            return Ok(());
        }
        self.released = true;
        let brought = self.way.reachable().and_then(|()| self.way.go(ANSWER));
        if brought.is_ok() {
            held().retain(|way| {
                way.node.name != self.way.node.name || way.node.endpoint != self.way.node.endpoint
            });
        }
        brought.map_err(|mut error| {
            error.hint = format!("run on it by hand: {}", self.way.statements.join(" "));
            error
        })
    }
}

impl Drop for Applier {
    fn drop(&mut self) {
        // An error here is told by `release` where nothing else has gone wrong.
        let _ = self.bring_back();
    }
}

//! The two sides of a round: who writes, and who reads.

use std::{thread, time::Duration};

use mysql::{ChangeUserOpts, Statement, prelude::Queryable};
use replimeter_engine::{
    Node, ServerError, Session,
    facts::Facts,
    flavour::{
        sync_reads::{Guarantee, conflict, refused},
        waits::Wait,
        written::Written,
    },
};
use replimeter_model::{
    plan::Pool,
    stale::{StaleRead, Verdict},
    time::Nanos,
};

use super::{
    rows::{RETAKE, Rows, SELECT, UPDATE},
    shared::Shared,
};
use crate::pacing::wait_until;

/// How often a write is repeated after a conflict.
const TRIES: u32 = 20;
/// Between two reads after one that the server refused.
const AFTER_REFUSAL: Duration = Duration::from_millis(5);
/// How long after the acknowledgement a write that is not shown is first looked for on the writer; then after twice the time.
const DOUBT: Nanos = Nanos(50_000_000);

const WRITING: &str = "cannot write a row";
const READING: &str = "cannot read from the reader";
const ASKING: &str = "cannot read from the writer";

/// Gives the connection back to a pool and takes it out again: what its session was set to is forgotten.
fn pooled(session: &mut Session, pool: Pool) -> Result<(), ServerError> {
    let done = match pool {
        Pool::Keep => return Ok(()),
        Pool::Reset => session.conn().reset(),
        Pool::ChangeUser => session.conn().change_user(ChangeUserOpts::DEFAULT),
    };
    done.map_err(|error| session.error("cannot reset the connection", &error))?;
    // One statement stays one transaction, whatever the server's default.
    session.run("cannot reset the connection", "SET SESSION autocommit=1")
}

fn prepared(session: &mut Session, doing: &str, sql: &str) -> Result<Statement, ServerError> {
    let prepared = session.conn().prep(sql);
    prepared.map_err(|error| session.error(doing, &error))
}

/// A connection that writes.
pub(super) struct Writer {
    session: Session,
    update: Statement,
    retake: Statement,
    written: Option<Written>,
}

/// What a write came to.
pub(super) struct Wrote {
    pub(super) send: Nanos,
    pub(super) ack: Nanos,
    pub(super) conflicts: u32,
    /// Its GTID, where somebody waits for it and the server told.
    pub(super) gtid: Option<String>,
    /// The row did not hold what we had written last: somebody else has changed it, or taken it away.
    pub(super) foreign: bool,
    /// The row holds the round.
    pub(super) holds: bool,
}

impl Writer {
    /// Connects and prepares, with what synchronous reads ask of a writer.
    pub(super) fn open(
        node: &Node,
        facts: &Facts,
        guarantee: &Guarantee,
    ) -> Result<Self, ServerError> {
        let mut session = Session::open(node)?;
        for sql in &guarantee.writer {
            session.run("cannot enable synchronous reads", sql)?;
        }
        let written = if guarantee.gtid {
            Some(Written::prepare(&mut session, facts)?)
        } else {
            None
        };
        let update = prepared(&mut session, WRITING, UPDATE)?;
        let retake = prepared(&mut session, WRITING, RETAKE)?;
        Ok(Self {
            session,
            update,
            retake,
            written,
        })
    }

    /// What every row holds, by its place among all.
    pub(super) fn values(&mut self, rows: &Rows) -> Result<Vec<u64>, ServerError> {
        let all = vec![0; usize::try_from(rows.count()).unwrap_or(0)];
        let sql = "SELECT id, k FROM `replimeter`.`lag_probe`";
        let found = self
            .session
            .conn()
            .query_fold(sql, all, |mut all, (id, value): (u64, u64)| {
                if let Some(held) = all.get_mut(rows.index(id)) {
                    *held = value;
                }
                all
            });
        found.map_err(|error| self.session.error("cannot read the table", &error))
    }

    pub(super) fn connection(&self) -> u32 {
        self.session.connection_id()
    }

    /// Resets the connection, which forgets what [`open`](Self::open) set.
    pub(super) fn reset(&mut self, pool: Pool) -> Result<(), ServerError> {
        pooled(&mut self.session, pool)?;
        self.update = prepared(&mut self.session, WRITING, UPDATE)?;
        self.retake = prepared(&mut self.session, WRITING, RETAKE)?;
        Ok(())
    }

    /// Writes a round into a row that holds `before`; `None` when it lost every time, or the run is to end.
    pub(super) fn write(
        &mut self,
        shared: &Shared<'_>,
        row: u64,
        round: u64,
        before: u64,
    ) -> Result<Option<Wrote>, ServerError> {
        for conflicts in 0..TRIES {
            let send = shared.clock.now();
            shared.under_way(0, send);
            let result = self
                .session
                .conn()
                .exec_drop(&self.update, (round, row, before));
            let ack = shared.clock.now();
            shared.under_way(0, Nanos(0));
            match result.map_err(|error| self.session.error(WRITING, &error)) {
                Ok(()) => {
                    if self.session.conn().affected_rows() == 0 {
                        let holds = self.retake(row, round)?;
                        return Ok(Some(Wrote {
                            send,
                            ack,
                            conflicts,
                            gtid: None,
                            foreign: true,
                            holds,
                        }));
                    }
                    let gtid = match self.written {
                        Some(written) => written.last(&mut self.session)?,
                        None => None,
                    };
                    return Ok(Some(Wrote {
                        send,
                        ack,
                        conflicts,
                        gtid,
                        foreign: false,
                        holds: true,
                    }));
                }
                Err(error) if conflict(&error) => {}
                Err(error) => return Err(error),
            }
            if shared.halted() {
                break;
            }
        }
        Ok(None)
    }

    /// Writes a round into a row whatever it holds; whether it holds it now.
    fn retake(&mut self, row: u64, round: u64) -> Result<bool, ServerError> {
        let result = self.session.conn().exec_drop(&self.retake, (round, row));
        match result.map_err(|error| self.session.error(WRITING, &error)) {
            Ok(()) => Ok(self.session.conn().affected_rows() > 0),
            Err(error) if conflict(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// What the writer is asked when a reader shows what cannot be, or shows nothing new for long.
struct Origin {
    node: Node,
    session: Option<Session>,
}

impl Origin {
    /// Whether the row no longer holds the round; a writer that does not answer says nothing.
    fn changed(&mut self, order: &Order) -> bool {
        if self.session.is_none() {
            self.session = Session::open(&self.node).ok();
        }
        let Some(session) = &mut self.session else {
            return false;
        };
        let sql = format!(
            "SELECT k FROM `replimeter`.`lag_probe` WHERE id = {}",
            order.row
        );
        match session.value(ASKING, &sql) {
            Ok(value) => value != Some(order.round.to_string()),
            Err(_) => {
                self.session = None;
                false
            }
        }
    }
}

/// What a reader is to do.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) row: u64,
    pub(super) round: u64,
    /// What the row showed before that round somebody else may have written.
    pub(super) since: u64,
    pub(super) ack: Nanos,
    /// When after it the first read is to be issued.
    pub(super) offset: Nanos,
    pub(super) gtid: Option<String>,
    /// Whether to read on the connection with synchronous reads.
    pub(super) synced: bool,
    /// Whether to read on until the write is shown.
    pub(super) until_shown: bool,
}

/// A connection that reads.
struct Reading {
    session: Session,
    select: Statement,
    wait: Option<Wait>,
}

impl Reading {
    fn open(node: &Node, facts: &Facts, guarantee: &Guarantee) -> Result<Self, ServerError> {
        let mut session = Session::open(node)?;
        for sql in &guarantee.reader {
            session.run("cannot enable synchronous reads", sql)?;
        }
        let wait = if guarantee.gtid {
            Some(Wait::prepare(&mut session, facts)?)
        } else {
            None
        };
        let select = prepared(&mut session, READING, SELECT)?;
        Ok(Self {
            session,
            select,
            wait,
        })
    }

    fn value(&mut self, row: u64) -> Result<Option<u64>, ServerError> {
        let read = self
            .session
            .conn()
            .exec_first::<u64, _, _>(&self.select, (row,));
        read.map_err(|error| self.session.error(READING, &error))
    }
}

/// One read as it went.
enum Asked {
    /// A value; none for a row that is not there.
    Value(Option<u64>),
    /// The wait before it took too long.
    Refused,
}

/// One reader and its connections.
pub(super) struct Reader {
    index: usize,
    facts: Facts,
    plain: Reading,
    synced: Option<Reading>,
    /// What is waited for in place of a GTID, where the reader is the writer and knows no wait for its own.
    for_nothing: bool,
    seconds: u32,
    rows: Rows,
    origin: Origin,
    /// What each row showed last on each connection, plain and synced.
    last: [Vec<u64>; 2],
    patience: Nanos,
}

impl Reader {
    /// Connects and prepares; `guarantee` is for the synchronous connection, which is made only when it does something. The
    /// nodes are the reader's and the writer's.
    pub(super) fn open(
        index: usize,
        [node, writer]: [&Node; 2],
        facts: &Facts,
        guarantee: &Guarantee,
        rows: Rows,
        [for_nothing, wants_synced]: [bool; 2],
        [patience, timeout]: [Duration; 2],
    ) -> Result<Self, ServerError> {
        let none = Guarantee {
            reader: Vec::new(),
            writer: Vec::new(),
            gtid: false,
            ..guarantee.clone()
        };
        let plain = Reading::open(node, facts, &none)?;
        let synced = if wants_synced {
            Some(Reading::open(node, facts, guarantee)?)
        } else {
            None
        };
        let count = usize::try_from(rows.count()).unwrap_or(0);
        Ok(Self {
            index,
            facts: facts.clone(),
            plain,
            synced,
            for_nothing,
            seconds: u32::try_from(timeout.as_secs().max(1)).unwrap_or(u32::MAX),
            rows,
            origin: Origin {
                node: writer.clone(),
                session: None,
            },
            last: [vec![0; count], vec![0; count]],
            patience: Nanos::from(patience),
        })
    }

    /// The server's numbers of its connections.
    pub(super) fn connections(&self) -> Vec<u32> {
        std::iter::once(&self.plain)
            .chain(&self.synced)
            .map(|reading| reading.session.connection_id())
            .collect()
    }

    /// Resets the synchronous connection, which forgets what makes its reads wait.
    pub(super) fn reset(&mut self, pool: Pool) -> Result<(), ServerError> {
        let Some(synced) = &mut self.synced else {
            return Ok(());
        };
        pooled(&mut synced.session, pool)?;
        synced.select = prepared(&mut synced.session, READING, SELECT)?;
        if synced.wait.is_some() {
            synced.wait = Some(Wait::prepare(&mut synced.session, &self.facts)?);
        }
        Ok(())
    }

    /// One read, behind a wait for the GTID where there is one and it is to be waited for.
    fn ask(&mut self, row: u64, on_synced: bool, gtid: Option<&str>) -> Result<Asked, ServerError> {
        let for_nothing = self.for_nothing;
        let reading = match &mut self.synced {
            Some(synced) if on_synced => synced,
            _ => &mut self.plain,
        };
        if let (Some(wait), Some(gtid)) = (&reading.wait, gtid) {
            let gtid = if for_nothing { "" } else { gtid };
            if !wait.wait(&mut reading.session, gtid, self.seconds)? {
                return Ok(Asked::Refused);
            }
        }
        match reading.value(row) {
            Ok(value) => Ok(Asked::Value(value)),
            Err(error) if on_synced && refused(&error) => Ok(Asked::Refused),
            Err(error) => Err(error),
        }
    }

    /// Whether reads on a connection wait for a GTID.
    fn waits(&self, on_synced: bool) -> bool {
        self.synced
            .as_ref()
            .is_some_and(|synced| on_synced && synced.wait.is_some())
    }

    /// What an answer says of the write, and the round that it shows.
    fn judge(&self, order: &Order, answer: &Asked) -> (Verdict, u64) {
        match *answer {
            Asked::Refused => (Verdict::Refused, 0),
            Asked::Value(None) => (Verdict::Foreign, 0),
            Asked::Value(Some(seen)) if seen == order.round => (Verdict::Fresh, seen),
            Asked::Value(Some(seen))
                if seen >= order.since && self.rows.ours(order.row, seen, order.round) =>
            {
                (Verdict::Stale, seen)
            }
            Asked::Value(Some(seen)) => (Verdict::Foreign, seen),
        }
    }

    /// Does what it is to; `None` when the run is to end.
    pub(super) fn observe(
        &mut self,
        shared: &Shared<'_>,
        order: &Order,
    ) -> Result<Option<StaleRead>, ServerError> {
        if !wait_until(shared.clock, order.ack + order.offset, || shared.halted()) {
            return Ok(None);
        }
        let mut read: Option<StaleRead> = None;
        let at = self.rows.index(order.row);
        let mut doubt = DOUBT;
        loop {
            let first = read.is_none();
            let begin = shared.clock.now();
            if first {
                shared.under_way(1 + self.index, begin);
            }
            let gtid = order.gtid.as_deref().filter(|_| first);
            let answer = self.ask(order.row, order.synced, gtid)?;
            let end = shared.clock.now();
            if first {
                shared.under_way(1 + self.index, Nanos(0));
            }
            let (verdict, seen) = self.judge(order, &answer);
            let last = &mut self.last[usize::from(order.synced)][at];
            let newer = *last;
            let shows = matches!(verdict, Verdict::Fresh | Verdict::Stale);
            let went_back = shows && seen < newer;
            if shows {
                *last = seen;
            }
            let one = read.get_or_insert(StaleRead {
                seen,
                waited: gtid.is_some() && self.waits(order.synced),
                ..StaleRead::new(self.index, begin, end, verdict)
            });
            one.reads += 1;
            if went_back && !one.went_back {
                one.newer = newer;
            }
            one.went_back |= went_back;
            match verdict {
                Verdict::Fresh => (one.fresh_begin, one.fresh_end) = (Some(begin), Some(end)),
                Verdict::Stale => one.last_stale = Some(begin),
                Verdict::Foreign => one.verdict = Verdict::Foreign,
                Verdict::Refused => {}
            }
            if matches!(verdict, Verdict::Fresh | Verdict::Foreign) || !order.until_shown {
                shared.unshown(self.index, Nanos(0));
                // It would be a violation; or somebody has put the old value back.
                if one.went_back && self.origin.changed(order) {
                    one.verdict = Verdict::Foreign;
                }
                one.went_back &= one.verdict != Verdict::Foreign;
                return Ok(Some(*one));
            }
            shared.unshown(self.index, order.ack);
            if shared.halted() {
                return Ok(None);
            }
            let waited = end - order.ack;
            if verdict == Verdict::Stale && waited >= doubt.min(self.patience) {
                doubt = waited + waited;
                if self.origin.changed(order) {
                    shared.unshown(self.index, Nanos(0));
                    one.verdict = Verdict::Foreign;
                    one.went_back = false;
                    return Ok(Some(*one));
                }
            }
            if waited > self.patience {
                return Err(self.never_shown(order));
            }
            if verdict == Verdict::Refused {
                thread::sleep(AFTER_REFUSAL);
            }
        }
    }

    fn never_shown(&self, order: &Order) -> ServerError {
        self.plain.session.unfit(
            "cannot read a write",
            format!(
                "row {} still showed an older version {:.0} s after the writer acknowledged round {}",
                order.row,
                self.patience.0 as f64 / 1e9,
                order.round
            ),
            "check its replication, reduce the load, or raise --timeout",
        )
    }
}

//! Writes one round after another and has every reader read it.

use std::sync::{
    Arc,
    atomic::Ordering,
    mpsc::{Receiver, Sender},
};

use replimeter_engine::ServerError;
use replimeter_model::time::Nanos;

use super::{
    connections::{ReadCommand, Reader, Writer},
    rows::{RowAllocation, RowHistory},
    sequence::{Ended, Rounds},
    shared::Shared,
};
use crate::stale::{
    results::{StalePhase, StaleRead, StaleRound, Verdict},
    settings::{SessionReset, StalePace, StalePlan},
};

/// Maximum number of consecutive writes lost to conflicts.
const MAX_LOST: u32 = 100;

/// All readers.
pub(super) enum ReaderPool {
    /// A single reader, used by the writing thread itself: no thread has to be woken.
    One(Box<Reader>),
    /// Several readers, each with a thread.
    Several {
        orders: Vec<Sender<ReaderTask>>,
        answers: Receiver<Result<Option<StaleRead>, ServerError>>,
    },
}

/// A task of a reader's thread.
pub(super) enum ReaderTask {
    Read(Arc<ReadCommand>),
    Reset(SessionReset),
}

impl ReaderPool {
    fn observe(
        &mut self,
        shared: &Shared<'_>,
        order: ReadCommand,
    ) -> Result<Option<Vec<StaleRead>>, ServerError> {
        match self {
            Self::One(reader) => Ok(reader.observe(shared, &order)?.map(|read| vec![read])),
            Self::Several { orders, .. } => {
                let order = Arc::new(order);
                orders
                    .iter()
                    .for_each(|reader| _ = reader.send(ReaderTask::Read(Arc::clone(&order))));
                self.gather()
            }
        }
    }

    /// Returns one answer from each thread.
    fn gather(&mut self) -> Result<Option<Vec<StaleRead>>, ServerError> {
        let Self::Several { orders, answers } = self else {
            return Ok(Some(Vec::new()));
        };
        let mut reads = Vec::with_capacity(orders.len());
        let mut ended = false;
        for _ in 0..orders.len() {
            // A thread that has ended left its error with the scope.
            match answers.recv() {
                Ok(Ok(Some(read))) => reads.push(read),
                Ok(Ok(None)) => ended = true,
                Ok(Err(error)) => return Err(error),
                Err(_) => return Ok(None),
            }
        }
        reads.sort_by_key(|read| read.reader);
        Ok((!ended).then_some(reads))
    }

    fn reset(&mut self, pool: SessionReset) -> Result<bool, ServerError> {
        match self {
            Self::One(reader) => reader.reset(pool).map(|()| true),
            Self::Several { orders, answers } => {
                orders
                    .iter()
                    .for_each(|reader| _ = reader.send(ReaderTask::Reset(pool)));
                for _ in 0..orders.len() {
                    match answers.recv() {
                        Ok(Ok(_)) => {}
                        Ok(Err(error)) => return Err(error),
                        Err(_) => return Ok(false),
                    }
                }
                Ok(true)
            }
        }
    }
}

/// Executes the tasks of a reader's thread until the sender is dropped.
pub(super) fn read_on(
    mut reader: Reader,
    shared: &Shared<'_>,
    tasks: &Receiver<ReaderTask>,
    answers: &Sender<Result<Option<StaleRead>, ServerError>>,
) {
    while let Ok(task) = tasks.recv() {
        let answer = match task {
            ReaderTask::Read(order) => reader.observe(shared, &order),
            ReaderTask::Reset(pool) => reader.reset(pool).map(|()| None),
        };
        if answers.send(answer).is_err() {
            break;
        }
    }
}

/// The connections of the writing thread.
pub(super) struct RoundWriter<'a> {
    pub(super) shared: &'a Shared<'a>,
    pub(super) plan: &'a StalePlan,
    pub(super) rows: RowAllocation,
    pub(super) held: RowHistory,
    pub(super) readers: usize,
    pub(super) plain: Writer,
    pub(super) synced: Option<Writer>,
    pub(super) pool: SessionReset,
    pub(super) reader_pool: ReaderPool,
    /// Number of consecutive writes lost to conflicts.
    pub(super) lost: u32,
}

impl Rounds for RoundWriter<'_> {
    /// Writes, and has every reader read.
    fn round(
        &mut self,
        phase: StalePhase,
        round: u64,
        offset: Nanos,
        with: bool,
    ) -> Result<Ended, ServerError> {
        let row = self.rows.row_of(round);
        let until_shown = self.plan.pace == StalePace::Visible;
        let mut reset = None;
        if with && self.pool != SessionReset::Keep {
            let from = self.shared.clock.now();
            if let Some(writer) = &mut self.synced {
                writer.reset(self.pool)?;
            }
            if !self.reader_pool.reset(self.pool)? {
                return Ok(Ended::Over);
            }
            reset = Some([from, self.shared.clock.now()]);
        }
        let writer = match &mut self.synced {
            Some(synced) if with => synced,
            _ => &mut self.plain,
        };
        let at = self.rows.index(row);
        let Some(wrote) = writer.write(self.shared, row, round, self.held.at(at))? else {
            return Ok(self.gives_up());
        };
        self.lost = 0;
        if wrote.holds {
            self.held.record_write(at, round);
        }
        let reads = if wrote.foreign {
            self.held.record_foreign_write(row, round);
            // Another client changed the row before it was read.
            let unread = |reader| StaleRead::new(reader, wrote.ack, wrote.ack, Verdict::Foreign);
            Some((0..self.readers).map(unread).collect())
        } else {
            let since = self.held.own_since(row);
            let order = ReadCommand {
                row,
                round,
                since,
                ack: wrote.ack,
                offset,
                commit_id: wrote.commit_id,
                synced: with,
                until_shown,
            };
            self.reader_pool.observe(self.shared, order)?
        };
        let Some(mut reads) = reads else {
            return Ok(Ended::Over);
        };
        if reads.iter().any(|read| read.verdict == Verdict::Foreign) {
            self.held.record_foreign_write(row, round);
        }
        for read in reads
            .iter_mut()
            .filter(|read| read.verdict == Verdict::Stale)
        {
            read.behind = self.rows.behind(row, read.seen, round);
        }
        Ok(Ended::Round(StaleRound {
            phase,
            round,
            row,
            offset,
            send: wrote.send,
            ack: wrote.ack,
            conflicts: wrote.conflicts,
            reset,
            reads,
        }))
    }
}

impl RoundWriter<'_> {
    /// Counts a write lost to conflicts; returns whether the run continues.
    fn gives_up(&mut self) -> Ended {
        self.lost += 1;
        self.shared.lost.fetch_add(1, Ordering::Relaxed);
        if self.lost >= MAX_LOST {
            self.shared.all_lost.store(true, Ordering::Relaxed);
            return Ended::Over;
        }
        Ended::Nothing
    }
}

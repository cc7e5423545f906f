//! Traffic whose own reads are judged: connections that write rows with versions and connections that read them, all as
//! fast as they can. Nobody waits for anybody, and nothing is measured beside it.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64, atomic::Ordering, mpsc::Sender},
    time::Duration,
};

use replimeter_model::{
    stale::{StalePhase, StaleRead, StaleRound, Verdict},
    time::Nanos,
};
use replimeter_server::ServerError;

use super::{
    Shared,
    rows::{Rows, mixed},
    sides::{Asked, Reader, Writer},
};

/// Ages up to here are told apart; older ones are counted together.
const OLDEST: i64 = 100_000_000_000;
/// Writes of one connection that may lose one after another.
const MOST_LOST: u32 = 100;

/// What is known of a row: only one connection writes it, so its versions follow one another.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The last version that was acknowledged.
    version: u64,
    /// When.
    at: Nanos,
    gtid: Option<Arc<str>>,
}

/// The rows, as the connections know them.
pub(super) struct Board {
    rows: Rows,
    known: Vec<Mutex<Known>>,
    /// The newest version that any read has returned.
    shown: Vec<AtomicU64>,
}

impl Board {
    pub(super) fn new(rows: Rows) -> Self {
        let count = usize::try_from(rows.count()).unwrap_or(0);
        Self {
            rows,
            known: (0..count).map(|_| Mutex::default()).collect(),
            shown: (0..count).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

/// The time after the acknowledgement from which on ages are counted together with this one: 1, 2 and 5 times the powers of
/// ten from 10 µs on.
pub(super) fn age_from(age: Nanos) -> Nanos {
    let mut from = 0;
    let mut decade = 10_000i64;
    while decade <= OLDEST {
        for step in [decade, 2 * decade, 5 * decade] {
            if step > age.0 {
                return Nanos(from);
            }
            from = step;
        }
        decade *= 10;
    }
    Nanos(from)
}

/// Writes its own rows until the time is over. Versions go on from `base`, which is what the rows held before.
pub(super) fn write_on(
    mut writer: Writer,
    shared: &Shared<'_>,
    board: &Board,
    [number, of]: [u64; 2],
    base: u64,
    end: Nanos,
    out: &Sender<StaleRound>,
) -> Result<u64, ServerError> {
    let own: Vec<u64> = (0..board.rows.count()).filter(|row| row % of == number).collect();
    let mut versions = vec![base; own.len()];
    let (mut turn, mut lost) = (0u64, 0);
    while !shared.halted() && shared.clock.now() < end && !own.is_empty() {
        turn += 1;
        let at = usize::try_from(mixed(number ^ mixed(turn)) % own.len() as u64).unwrap_or(0);
        let row = own[at];
        let id = 2 * row + 1;
        versions[at] += 1;
        let Some(wrote) = writer.write(shared, id, versions[at])? else {
            // Lost every time: this version was never written, and the next write takes its number.
            versions[at] -= 1;
            lost += 1;
            shared.lost.fetch_add(1, Ordering::Relaxed);
            if lost >= MOST_LOST {
                shared.all_lost.store(true, Ordering::Relaxed);
                break;
            }
            continue;
        };
        lost = 0;
        let known = Known { version: versions[at], at: wrote.ack, gtid: wrote.gtid.map(Arc::from) };
        *board.known[board.rows.index(id)].lock().unwrap_or_else(PoisonError::into_inner) = known;
        let (send, ack, conflicts) = (wrote.send, wrote.ack, wrote.conflicts);
        let zero = Nanos(0);
        let round = StaleRound {
            phase: StalePhase::Judged,
            round: versions[at],
            row: id,
            offset: zero,
            send,
            ack,
            conflicts,
            reads: Vec::new(),
        };
        let _ = out.send(round);
    }
    Ok(versions.into_iter().max().unwrap_or(base))
}

/// Reads rows until the time is over, and judges each read by what was acknowledged when it was issued.
pub(super) fn read_on(
    mut reader: Reader,
    shared: &Shared<'_>,
    board: &Board,
    seed: u64,
    synced: bool,
    end: Nanos,
    out: &Sender<StaleRound>,
) -> Result<u64, ServerError> {
    let mut last = vec![0u64; board.known.len()];
    let mut turn = 0u64;
    while !shared.halted() && shared.clock.now() < end {
        turn += 1;
        let at = usize::try_from(mixed(seed ^ mixed(turn)) % board.rows.count()).unwrap_or(0);
        let id = 2 * at as u64 + 1;
        let known = board.known[at].lock().unwrap_or_else(PoisonError::into_inner).clone();
        let shown = board.shown[at].load(Ordering::Acquire);
        let begin = shared.clock.now();
        let asked = reader.ask(id, synced, known.gtid.as_deref())?;
        let ended = shared.clock.now();
        if known.version == 0 {
            continue;
        }
        let (verdict, seen) = match asked {
            Asked::Refused => (Verdict::Refused, 0),
            Asked::Value(None) => (Verdict::Foreign, 0),
            Asked::Value(Some(seen)) if seen >= known.version => (Verdict::Fresh, seen),
            Asked::Value(Some(seen)) => (Verdict::Stale, seen),
        };
        let counts = matches!(verdict, Verdict::Fresh | Verdict::Stale);
        let read = StaleRead {
            reader: reader.index(),
            begin,
            end: ended,
            verdict,
            seen,
            behind: u32::try_from(known.version.saturating_sub(seen)).unwrap_or(u32::MAX),
            last_stale: None,
            fresh_begin: None,
            fresh_end: None,
            reads: 1,
            went_back: counts && seen < last[at],
            went_back_across: counts && seen < shown,
        };
        if counts {
            last[at] = seen;
            board.shown[at].fetch_max(seen, Ordering::AcqRel);
        }
        let offset = age_from(begin - known.at);
        let (send, ack) = (known.at, known.at);
        let round = StaleRound {
            phase: StalePhase::Judged,
            round: known.version,
            row: id,
            offset,
            send,
            ack,
            conflicts: 0,
            reads: vec![read],
        };
        let _ = out.send(round);
    }
    Ok(0)
}

/// When the traffic ends, if by time.
pub(super) fn end(began: Nanos, length: Duration) -> Nanos {
    began + Nanos::from(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_fall_into_steps_of_one_two_and_five() {
        let from = |age: i64| age_from(Nanos(age)).0;
        assert_eq!(
            [from(-5), from(0), from(9_999), from(10_000), from(19_999), from(49_000), from(50_000)],
            [0, 0, 0, 10_000, 10_000, 20_000, 50_000]
        );
        assert_eq!(from(999_999_999_999), 500_000_000_000);
        assert_eq!(from(1_500_000_000), 1_000_000_000);
    }
}

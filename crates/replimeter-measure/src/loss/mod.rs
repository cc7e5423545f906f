//! What a crash of the primary takes with it.
//!
//! Writers insert rows and remember which were acknowledged, another session remembers
//! which it saw; then the primary ends. Replicas apply what they received, the most
//! advanced one takes over, and every transaction is looked for on it. At last the old
//! primary comes back and tells what it has that nobody else has.
//!
//! How servers are ended, promoted and started again is not known here: [`Ground`] does
//! it, which only the owner of a sandbox can give.

mod account;
mod drain;
mod errant;
mod ids;
mod watcher;
pub(crate) mod writers;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use mysql::prelude::Queryable;
use replimeter_model::{
    loss::{CrashRecord, Errant},
    plan::{Crash, LossPlan},
    time::Nanos,
};
use replimeter_server::{
    ErrorKind, Node, ServerError, Session,
    error::code,
    facts::Facts,
    flavour::{
        gtid::{Executed, executed},
        semi_sync,
    },
};

use replimeter_stats::random::Random;

use self::{
    account::account,
    ids::Ids,
    watcher::Watcher,
    writers::{Entry, Load, Style, Writer},
};
use crate::{MeasureError, clock::Clock, pacing::wait_until, preflight::Cluster, survey::Surveyed};

/// How long a semi-synchronous primary waits for an acknowledgement: above every gap, since
/// a primary that falls back acknowledges writes that no replica has.
pub const SEMI_SYNC_TIMEOUT: Duration = Duration::from_secs(600);
/// How long an answer may take: a cluster that has lost a node holds writes for seconds.
const ANSWER: Duration = Duration::from_secs(60);
/// How long the server that takes over may take until it takes a write.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(1);
/// The row that the new primary takes first; none of the load's.
const FIRST_WRITE: &str = "INSERT INTO `replimeter`.`loss_probe` (id, payload) VALUES (0, '')";
/// A row of this number is there already: an attempt whose answer was lost has written it.
const DUPLICATE: u16 = 1062;
/// After the cut what had arrived before needs this long to be read.
const SETTLE: Duration = Duration::from_millis(100);

/// What is done to servers from outside.
pub trait Ground {
    /// Cuts the primary off from everybody but its clients.
    ///
    /// # Errors
    /// When it cannot be done.
    fn cut(&mut self) -> Result<(), MeasureError>;
    /// Ends the primary at once, and does not wait for it.
    ///
    /// # Errors
    /// When it cannot be done.
    fn strike(&mut self) -> Result<(), MeasureError>;
    /// Has another server take writes, and returns its name: the wished one, unless a
    /// group elected another.
    ///
    /// # Errors
    /// When nobody takes over.
    fn promote(&mut self, wished: &str) -> Result<String, MeasureError>;
    /// Starts the old primary again, by itself.
    ///
    /// # Errors
    /// When it does not come back.
    fn bring_back(&mut self) -> Result<Node, MeasureError>;
}

/// What surrounds a crash.
pub struct Scene<'a> {
    /// The plan.
    pub plan: &'a LossPlan,
    /// The clock.
    pub clock: &'a Clock,
    /// Is told what goes on.
    pub say: &'a dyn Fn(&str),
    /// Becomes true when the user wants the run to end.
    pub stop: &'a AtomicBool,
    /// Whether semi-synchronous primaries get a time-out of ours; the user has chosen one
    /// otherwise.
    pub set_timeout: bool,
}

/// What became of the primary.
struct Fallen {
    /// When its links were cut.
    cut: Option<Nanos>,
    /// When it was ended.
    at: Nanos,
    /// Transactions that it committed although no replica acknowledged them.
    fallen_back: u64,
}

/// Who took over, and how long that took.
struct Successor {
    name: String,
    drained: Option<Nanos>,
    promoted: Nanos,
    wrote: Nanos,
}

/// Writes, crashes the primary and counts, once. `number` is that of the crash, from 1.
///
/// # Errors
/// When a server fails that should not, or the user ends it.
pub fn crash(
    cluster: &mut Cluster,
    scene: &Scene<'_>,
    number: u64,
    ground: &mut dyn Ground,
) -> Result<CrashRecord, MeasureError> {
    let (plan, clock) = (scene.plan, scene.clock);
    (scene.say)("making the table");
    prepare(cluster, scene.set_timeout)?;
    let node = patient(&cluster.primary.node);
    let writers = (0..plan.writers)
        .map(|_| Writer::open(&node))
        .collect::<Result<Vec<_>, _>>()?;
    let watcher = Watcher::open(&node)?;
    let style = Style {
        writers: plan.writers,
        size: plan.size,
        rate: plan.rate,
        journal: true,
    };
    let load = Load::default();
    let began = clock.now();
    (scene.say)("writing");
    let (result, journal, seen) = thread::scope(|scope| {
        let load = &load;
        let writers: Vec<_> = (0..)
            .zip(writers)
            .map(|(number, writer)| scope.spawn(move || load.write(writer, number, style, clock)))
            .collect();
        let watcher = scope.spawn(|| watcher.watch(&load.stop));
        let until = began + Nanos::from(plan.load.0) + jitter(plan.seed, number);
        let result = fall(cluster, scene, load, until, ground).and_then(|fallen| {
            let successor = take_over(cluster, scene, fallen.at, ground)?;
            Ok((fallen, successor))
        });
        // Those of a primary that fell have ended by themselves.
        load.stop.store(true, Ordering::Relaxed);
        let journal: Option<Vec<Vec<Entry>>> = writers
            .into_iter()
            .map(|writer| writer.join().ok())
            .collect();
        (result, journal, watcher.join().ok())
    });
    let (fallen, successor) = result?;
    let (Some(journal), Some(seen)) = (journal, seen) else {
        return Err(MeasureError::Thread);
    };
    let journal: Vec<Entry> = journal.into_iter().flatten().collect();
    (scene.say)("counting");
    let promoted = surveyed(cluster, &successor.name)?;
    let mut session = Session::open(&patient(&promoted.node))?;
    let present = present(&mut session, &promoted.facts, cluster.mode)?;
    check(&session, &journal, &present)?;
    let account = account(&journal, &seen, &present, fallen.cut, fallen.at);
    let micros = |moment: Nanos| (moment - fallen.at).as_micros();
    let mut record = CrashRecord {
        number,
        load_us: (fallen.cut.unwrap_or(fallen.at) - began).as_micros(),
        begun: account.begun,
        acknowledged: account.acknowledged,
        acknowledged_after_cut: account.acknowledged_after_cut,
        missing: account.missing,
        missing_since_us: account.missing_since.map(Nanos::as_micros),
        missing_after_cut: account.missing_after_cut,
        seen: account.seen,
        seen_then_lost: account.seen_then_lost,
        seen_unacknowledged_lost: account.seen_unacknowledged_lost,
        unacknowledged_present: account.unacknowledged_present,
        unacknowledged: account.unacknowledged,
        refused: account.refused,
        promoted: successor.name,
        drained_us: successor.drained.map(micros),
        promoted_us: micros(successor.promoted),
        recovery_us: micros(successor.wrote),
        fallen_back: fallen.fallen_back,
        ..CrashRecord::default()
    };
    (scene.say)("waiting for the old primary to come back");
    let new = executed(&promoted.facts, &mut session)?;
    let began = Instant::now();
    match come_back(ground, &journal, &present, &new) {
        Ok((answered, errant)) => {
            record.return_us = Some((answered - began).as_secs_f64() * 1e6);
            record.errant = Some(errant);
        }
        Err(MeasureError::Interrupted) => return Err(MeasureError::Interrupted),
        // The crash itself is measured.
        Err(error) => record.return_error = Some(error.to_string()),
    }
    Ok(record)
}

/// A server with patience for answers.
fn patient(node: &Node) -> Node {
    Node {
        answer: ANSWER,
        ..node.clone()
    }
}

/// Up to a tenth of a second that depends on the seed and the crash, lest all crashes
/// meet the servers at the same beat of something.
fn jitter(seed: u64, number: u64) -> Nanos {
    let mut random = Random::new(seed);
    (1..number).for_each(|_| _ = random.bits());
    Nanos((random.uniform() * 1e8) as i64)
}

/// Makes the table and waits until every server has it.
pub(crate) fn make_table(cluster: &mut Cluster) -> Result<(), MeasureError> {
    let doing = "cannot make the table";
    let primary = &mut cluster.primary.session;
    primary.run(doing, "CREATE DATABASE IF NOT EXISTS `replimeter`")?;
    primary.run(doing, writers::CREATE)?;
    for replica in &mut cluster.replicas {
        let session = &mut replica.server.session;
        let began = Instant::now();
        loop {
            match session.value(doing, "SELECT id FROM `replimeter`.`loss_probe` LIMIT 1") {
                Ok(_) => break,
                Err(error)
                    if !matches!(
                        error.kind,
                        ErrorKind::Statement(code::NO_SUCH_TABLE | code::UNKNOWN_SCHEMA)
                    ) =>
                {
                    return Err(error.into());
                }
                Err(_) if began.elapsed() > PATIENCE => {
                    return Err(session
                        .unfit(
                            doing,
                            "it does not come to this replica",
                            "does it replicate?",
                        )
                        .into());
                }
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }
    Ok(())
}

fn prepare(cluster: &mut Cluster, set_timeout: bool) -> Result<(), MeasureError> {
    make_table(cluster)?;
    let waits = cluster
        .primary
        .semi_sync
        .as_ref()
        .is_some_and(|state| state.enabled);
    if let (true, true, Some(words)) = (
        waits,
        set_timeout,
        semi_sync::Words::of(&cluster.primary.facts),
    ) {
        let ms = SEMI_SYNC_TIMEOUT.as_millis();
        let sql = format!("SET GLOBAL {}_timeout = {ms}", words.primary);
        cluster.primary.session.run(
            "cannot set how long semi-synchronous replication waits",
            &sql,
        )?;
    }
    Ok(())
}

/// Lets the load run and ends the primary.
fn fall(
    cluster: &mut Cluster,
    scene: &Scene<'_>,
    load: &Load,
    until: Nanos,
    ground: &mut dyn Ground,
) -> Result<Fallen, MeasureError> {
    let (clock, plan) = (scene.clock, scene.plan);
    let stopped = || scene.stop.load(Ordering::Relaxed);
    if !wait_until(clock, until, stopped) {
        return Err(MeasureError::Interrupted);
    }
    if let Some(error) = load.failed_before(clock.now()) {
        return Err(error.into());
    }
    if load.acknowledged() == 0 {
        let session = &cluster.primary.session;
        let hint =
            "is the machine or its disk overloaded? write for longer before the crash (--for)";
        return Err(session
            .unfit(
                "has acknowledged nothing",
                "no insert was answered before the crash",
                hint,
            )
            .into());
    }
    let cut = if plan.crash == Crash::Isolated {
        (scene.say)("cutting the links");
        ground.cut()?;
        let cut = clock.now();
        let gap = plan.gap.0.max(SETTLE);
        if !wait_until(clock, cut + Nanos::from(gap), stopped) {
            return Err(MeasureError::Interrupted);
        }
        Some(cut)
    } else {
        None
    };
    let fallen_back = fallen_back(&mut cluster.primary)?;
    (scene.say)("killing the primary");
    let at = clock.now();
    ground.strike()?;
    Ok(Fallen {
        cut,
        at,
        fallen_back,
    })
}

/// Transactions that a semi-synchronous primary committed on its own since it was surveyed.
fn fallen_back(primary: &mut Surveyed) -> Result<u64, ServerError> {
    let Some(before) = primary
        .semi_sync
        .as_ref()
        .filter(|state| state.active && state.clients > 0)
    else {
        return Ok(0);
    };
    let (Some(now), _) = semi_sync::state(&mut primary.session)? else {
        return Ok(0);
    };
    let missed = now.unacknowledged.saturating_sub(before.unacknowledged);
    // Switched off and nothing written since.
    Ok(if now.active { missed } else { missed.max(1) })
}

/// Waits for the replicas, has one take over and writes to it.
fn take_over(
    cluster: &mut Cluster,
    scene: &Scene<'_>,
    fell: Nanos,
    ground: &mut dyn Ground,
) -> Result<Successor, MeasureError> {
    let (clock, stop) = (scene.clock, scene.stop);
    let (wished, drained) = if matches!(cluster.mode, "galera" | "group") {
        (
            cluster
                .replicas
                .first()
                .map(|replica| replica.server.node.name.clone()),
            None,
        )
    } else {
        (scene.say)("waiting until the replicas have applied what they received");
        let severed = scene.plan.crash == Crash::Isolated;
        let facts = cluster.primary.facts.clone();
        let direct = cluster
            .replicas
            .iter_mut()
            .filter(|replica| drain::is_direct(replica, &facts));
        let extents = thread::scope(|scope| {
            let threads: Vec<_> = direct
                .map(|replica| {
                    scope.spawn(move || {
                        let extent = drain::drain(replica, severed, stop)?;
                        Ok::<_, MeasureError>((extent, replica.server.node.name.clone()))
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or(Err(MeasureError::Thread)))
                .collect::<Vec<_>>()
        });
        let extents = extents.into_iter().collect::<Result<Vec<_>, _>>()?;
        // Of equals the first.
        let most = extents
            .into_iter()
            .reduce(|best, next| if next.0 > best.0 { next } else { best });
        (most.map(|(_, name)| name), Some(clock.now()))
    };
    let Some(wished) = wished else {
        let session = &cluster.primary.session;
        return Err(session
            .unfit(
                "has no replica",
                "nobody is left to take over",
                "choose a shape that replicates",
            )
            .into());
    };
    (scene.say)("promoting");
    let name = ground.promote(&wished)?;
    let promoted = clock.now();
    let node = patient(&surveyed(cluster, &name)?.node);
    let wrote = first_write(&node, clock, fell, stop)?;
    Ok(Successor {
        name,
        drained,
        promoted,
        wrote,
    })
}

/// The server of this name among those that are left.
fn surveyed<'c>(cluster: &'c Cluster, name: &str) -> Result<&'c Surveyed, MeasureError> {
    let found = cluster
        .replicas
        .iter()
        .map(|replica| &replica.server)
        .find(|server| server.node.name == name);
    found.ok_or_else(|| {
        let session = &cluster.primary.session;
        MeasureError::Server(session.unfit(
            "is succeeded by a stranger",
            format!("{name} took over"),
            "please report this as a defect",
        ))
    })
}

/// Writes to the new primary until it takes it, and returns when.
fn first_write(
    node: &Node,
    clock: &Clock,
    fell: Nanos,
    stop: &AtomicBool,
) -> Result<Nanos, MeasureError> {
    let doing = "takes no writes";
    let mut session = None;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(MeasureError::Interrupted);
        }
        let tried = match &mut session {
            Some(session) => Session::run(session, doing, FIRST_WRITE),
            None => Session::open(node)
                .map(|opened| session = Some(opened))
                .and_then(|()| match &mut session {
                    Some(session) => Session::run(session, doing, FIRST_WRITE),
                    None => Ok(()),
                }),
        };
        let now = clock.now();
        match tried {
            Ok(()) => return Ok(now),
            Err(error) if error.kind == ErrorKind::Statement(DUPLICATE) => return Ok(now),
            Err(error) if now - fell > Nanos::from(PATIENCE) => return Err(error.into()),
            Err(error) => {
                if !matches!(error.kind, ErrorKind::Statement(_)) {
                    session = None;
                }
                thread::sleep(PAUSE);
            }
        }
    }
}

/// The rows of the load that a server has.
fn rows(session: &mut Session) -> Result<Ids, ServerError> {
    let sql = "SELECT id FROM `replimeter`.`loss_probe` WHERE id > 0";
    let found = session
        .conn()
        .query_fold(sql, Ids::default(), |mut ids, id: u64| {
            ids.insert(id);
            ids
        });
    found.map_err(|error| session.error("cannot count the rows", &error))
}

/// The rows on the new primary, all that it received among them.
fn present(session: &mut Session, facts: &Facts, mode: &str) -> Result<Ids, ServerError> {
    let doing = "cannot have reads wait for what was received";
    match mode {
        "galera" => session.run(doing, "SET SESSION wsrep_sync_wait = 1")?,
        "group" if !facts.get("group_replication_consistency").is_empty() => {
            session.run(
                doing,
                "SET SESSION group_replication_consistency = 'BEFORE'",
            )?;
        }
        _ => {}
    }
    rows(session)
}

/// Nothing may be there that nobody wrote.
fn check(session: &Session, journal: &[Entry], present: &Ids) -> Result<(), MeasureError> {
    let mut begun = Ids::default();
    journal.iter().for_each(|entry| _ = begun.insert(entry.id));
    match present.iter().find(|id| !begun.contains(*id)) {
        None => Ok(()),
        Some(id) => {
            let hint = "somebody else writes to the sandbox's table, or this is a defect: please report it";
            Err(session
                .unfit(
                    "cannot be counted",
                    format!("it has a row {id}, which no writer began"),
                    hint,
                )
                .into())
        }
    }
}

/// Has the old primary come back, and tells what it alone has.
fn come_back(
    ground: &mut dyn Ground,
    journal: &[Entry],
    present: &Ids,
    new: &Executed,
) -> Result<(Instant, Errant), MeasureError> {
    let node = ground.bring_back()?;
    let answered = Instant::now();
    let mut session = Session::open(&patient(&node))?;
    let facts = Facts::read(&mut session)?;
    let old = executed(&facts, &mut session)?;
    let own = rows(&mut session)?;
    let mut errant = Errant {
        missing: present.iter().filter(|id| !own.contains(*id)).count() as u64,
        ..Errant::default()
    };
    if let Some((transactions, gtids)) = errant::errant(&old, new) {
        (errant.transactions, errant.gtids) = (Some(transactions), gtids);
    }
    for entry in journal
        .iter()
        .filter(|entry| own.contains(entry.id) && !present.contains(entry.id))
    {
        errant.rows += 1;
        errant.acknowledged += u64::from(matches!(entry.fate, writers::Fate::Acknowledged(_)));
    }
    Ok((answered, errant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_come_at_moments_of_their_own() {
        let all: std::collections::BTreeSet<i64> =
            (1..=20).map(|number| jitter(1, number).0).collect();
        assert_eq!(all.len(), 20);
        assert!(all.iter().all(|nanos| (0..100_000_000).contains(nanos)));
        assert_ne!(jitter(1, 1), jitter(2, 1));
    }
}

//! The offset of a server's calendar clock from this machine's, with a bound; and whether the clock
//! was set during the measurement.
//!
//! A server reads its clock between the two local readings around a query, so each answer gives an
//! interval for the offset (Cristian 1989). The offset lies in all of these intervals, widened by what clocks can move apart
//! during this time, so their intersection is narrower than any (Marzullo & Owicki 1983). The calendar and the monotonic clock of one
//! machine are slewed together and do not move apart.

use std::fs;

use replimeter_engine::{Node, ServerError, Session};
use replimeter_model::{target::Endpoint, time::Nanos};

use crate::clock::{Calendar, Clock};

/// Answers that warm up the connection, and are discarded.
const WARM_UP: usize = 3;
/// Number of answers that is enough for a distant server.
const ENOUGH_ANSWERS: usize = 5;
/// Resolution of a server's microseconds: it truncates the rest.
const RESOLUTION: Nanos = Nanos(1_000);
/// Maximum rate at which the clocks of two machines move apart, in parts per million: the maximum slew of a kernel that follows
/// NTP (adjtimex(2)), of each. More is a step. The rate itself may change at any time, so nothing is assumed of a steady drift.
const RATE_PPM: i64 = 1_000;
/// Maximum attempts to measure a clock that is set during the measurement.
const MAX_ATTEMPTS: u32 = 3;
/// Maximum number of stored measurements; beyond it every other one is dropped.
const MAX_POINTS: usize = 4_096;

/// How long a server is queried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeLimits {
    /// Number of answers.
    pub(crate) answers: usize,
    /// After this time a few answers are enough.
    pub(crate) longest: Nanos,
}

impl ProbeLimits {
    /// For a report to the user.
    pub(crate) const EXAMINE: Self = Self {
        answers: 30,
        longest: Nanos(2_000_000_000),
    };
    /// For figures that include the bound.
    const MEASURE: Self = Self {
        answers: 150,
        longest: Nanos(500_000_000),
    };
}

/// An answer, with the local clock before the query and after the answer.
pub(crate) struct TimedAnswer<T> {
    pub(crate) before: Nanos,
    pub(crate) after: Nanos,
    pub(crate) said: T,
}

/// Queries until there are enough answers or the time is over.
pub(crate) fn repeat<T>(
    now: &dyn Fn() -> Nanos,
    patience: ProbeLimits,
    mut ask: impl FnMut() -> Result<T, ServerError>,
) -> Result<Vec<TimedAnswer<T>>, ServerError> {
    for _ in 0..WARM_UP {
        ask()?;
    }
    let begun = now();
    let mut answers = Vec::with_capacity(patience.answers);
    while answers.len() < patience.answers
        && (answers.len() < ENOUGH_ANSWERS || now() - begun < patience.longest)
    {
        let before = now();
        let said = ask()?;
        answers.push(TimedAnswer {
            before,
            after: now(),
            said,
        });
    }
    Ok(answers)
}

/// A server's clock relative to this machine's at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// When, on the local clock.
    pub at: Nanos,
    /// The server's time (nanoseconds since 1970) less the local time.
    pub offset: Nanos,
    /// The true offset lies within `offset` ± this.
    pub bound: Nanos,
    /// Number of answers it is computed from.
    pub count: u64,
}

impl Offset {
    /// Returns how far the server's clock is ahead of another's, ± the second: both were measured
    /// against the same local clock.
    #[must_use]
    pub fn difference_to(&self, other: &Self) -> (Nanos, Nanos) {
        (self.offset - other.offset, self.bound + other.bound)
    }

    /// Returns what both say of the same time, that of this one; `None` if they contradict each other.
    fn and(self, other: Self) -> Option<Self> {
        let low = (self.offset - self.bound).max(other.offset - other.bound);
        let high = (self.offset + self.bound).min(other.offset + other.bound);
        // Rounded up, so that both ends are inside.
        (low <= high).then(|| Self {
            offset: low.midpoint(high),
            bound: Nanos((high - low).0 / 2 + 1),
            ..self
        })
    }
}

/// Returns whether two servers read the same clock: their machines have one name, they are reached at one address or
/// both over the loopback, and their offsets agree within the bounds. A name alone is no proof (containers and clones
/// share names), nor is an address alone (a forwarded port leads to another machine), nor are offsets alone (clocks that
/// a time service keeps agree within the bounds, too).
pub(crate) fn is_one_clock(
    offsets: [Offset; 2],
    endpoints: [&Endpoint; 2],
    names: [&str; 2],
) -> bool {
    let (apart, bound) = offsets[0].difference_to(&offsets[1]);
    let drift = share(offsets[0].at - offsets[1].at, RATE_PPM);
    let agree = apart.0.abs() <= (bound + drift).0;
    let [one, other] = endpoints;
    let one_place = one.host == other.host || one.is_loopback() && other.is_loopback();
    agree && one_place && names[0] == names[1]
}

/// Returns whether a server reads this machine's clock.
fn is_this_machine(
    session: &mut Session,
    node: &Node,
    measured: Offset,
    clock: &Clock,
) -> Result<bool, ServerError> {
    if !node.endpoint.is_loopback() {
        return Ok(false);
    }
    let calendar = Calendar::calibrate();
    let at = clock.now();
    let own = Offset {
        at,
        offset: calendar.now() - at,
        // Between the two readings.
        bound: calendar.bound() + (clock.now() - at),
        count: 1,
    };
    let theirs = session.value("cannot read the server's host name", "SELECT @@hostname")?;
    let ours = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let names = [theirs.as_deref().unwrap_or_default(), ours.trim()];
    Ok(!names[0].is_empty() && is_one_clock([measured, own], [&node.endpoint; 2], names))
}

/// A server's clock was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStep {
    /// The step, positive when forwards.
    pub by: Nanos,
    /// Error bound of the step.
    pub bound: Nanos,
    /// Between these two points on the local clock.
    pub between: (Nanos, Nanos),
}

/// Returns `ppm` millionths of a time, at least 1 ns unless the time is 0.
fn share(of: Nanos, ppm: i64) -> Nanos {
    let of = of.0.saturating_abs();
    // Whole millions first: the product of the remainder cannot overflow.
    Nanos(
        (of / 1_000_000)
            .saturating_mul(ppm)
            .saturating_add((of % 1_000_000 * ppm + 999_999) / 1_000_000),
    )
}

/// Returns the offset that all answers allow, or `None` when they contradict one another: the clock
/// was set between them.
fn estimate(answers: &[TimedAnswer<Nanos>]) -> Option<Offset> {
    let fastest = answers
        .iter()
        .min_by_key(|answer| answer.after - answer.before)?;
    let at = fastest.before.midpoint(fastest.after);
    let (mut low, mut high) = (i64::MIN, i64::MAX);
    for answer in answers {
        // Clocks drift between the answers.
        let from_at = (answer.before - at)
            .0
            .abs()
            .max((answer.after - at).0.abs());
        let drift = share(Nanos(from_at), RATE_PPM).0;
        low = low.max((answer.said - answer.after).0 - drift);
        high = high.min((answer.said + RESOLUTION - answer.before).0 + drift);
    }
    // Rounded up, so that both ends are inside.
    let bound = high.checked_sub(low).filter(|width| *width >= 0)? / 2 + 1;
    Some(Offset {
        at,
        offset: Nanos(low.midpoint(high)),
        bound: Nanos(bound),
        count: answers.len() as u64,
    })
}

/// Measures a server's clock relative to the local one; `None` when it returns no time.
///
/// # Errors
/// When the server does not answer, or its clock is set repeatedly.
pub(crate) fn measure(
    session: &mut Session,
    now: &dyn Fn() -> Nanos,
    patience: ProbeLimits,
) -> Result<Option<Offset>, ServerError> {
    let operation = "cannot read the server's clock";
    for _ in 0..MAX_ATTEMPTS {
        // If a server runs with sysdate_is_now, the statement began between the local readings,
        // too.
        let answers = repeat(now, patience, || {
            session.value(operation, "SELECT UNIX_TIMESTAMP(SYSDATE(6))")
        })?;
        let times: Option<Vec<TimedAnswer<Nanos>>> = answers
            .into_iter()
            .map(|answer| {
                Some(TimedAnswer {
                    before: answer.before,
                    after: answer.after,
                    said: unix(answer.said.as_deref()?)?,
                })
            })
            .collect();
        let Some(times) = times else { return Ok(None) };
        if let Some(offset) = estimate(&times) {
            return Ok(Some(offset));
        }
    }
    Err(session.precondition(
        operation,
        "its clock is being adjusted during the measurement, so its times cannot be compared",
        "wait until the time service of that machine has settled (chronyc tracking, timedatectl)",
    ))
}

/// Reads seconds since 1970 with up to nine decimals, exactly.
fn unix(text: &str) -> Option<Nanos> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if part.len() > 9 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: i64 = format!("{part:0<9}").parse().ok()?;
    Some(Nanos(
        seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?,
    ))
}

/// A measurement during a run.
#[derive(Clone, Copy, Debug)]
struct OffsetPoint {
    offset: Offset,
    /// Whether the clock was set since the previous one.
    set: bool,
}

/// A server's clock during a run: measured before, repeatedly during, and after it.
#[derive(Clone, Debug)]
pub struct ServerClock {
    /// How fast it and the local clock can move apart; 0 on this machine.
    rate_ppm: i64,
    points: Vec<OffsetPoint>,
    steps: Vec<ClockStep>,
}

impl ServerClock {
    /// Measures for the first time; `None` when the server returns no time. Takes 150 answers or
    /// 0.5 s.
    ///
    /// # Errors
    /// When the server does not answer, or its clock is set repeatedly.
    pub fn measure(
        session: &mut Session,
        node: &Node,
        clock: &Clock,
    ) -> Result<Option<Self>, ServerError> {
        let Some(first) = measure(session, &|| clock.now(), ProbeLimits::MEASURE)? else {
            return Ok(None);
        };
        let rate_ppm = match is_this_machine(session, node, first, clock)? {
            true => 0,
            false => RATE_PPM,
        };
        Ok(Some(Self::from_first(first, rate_ppm)))
    }

    /// Measures again, and returns the step if the clock was set since the last time.
    ///
    /// # Errors
    /// When the server does not answer, or its clock is set repeatedly.
    pub fn remeasure(
        &mut self,
        session: &mut Session,
        clock: &Clock,
    ) -> Result<Option<ClockStep>, ServerError> {
        Ok(measure(session, &|| clock.now(), ProbeLimits::MEASURE)?
            .and_then(|offset| self.add(offset)))
    }

    fn from_first(first: Offset, rate_ppm: i64) -> Self {
        Self {
            rate_ppm,
            points: vec![OffsetPoint {
                offset: first,
                set: false,
            }],
            steps: Vec::new(),
        }
    }

    /// Returns a clock with a constant offset.
    #[cfg(test)]
    pub(crate) fn fixed(offset: Nanos, bound: Nanos) -> Self {
        let offset = Offset {
            at: Nanos(0),
            offset,
            bound,
            count: 1,
        };
        Self::from_first(offset, RATE_PPM)
    }

    /// Adds a measurement `later`, after a step of `by`.
    #[cfg(test)]
    pub(crate) fn step_for_test(&mut self, later: Nanos, by: Nanos) {
        let last = self.last();
        assert!(
            self.add(Offset {
                at: last.at + later,
                offset: last.offset + by,
                ..last
            })
            .is_some()
        );
    }

    fn add(&mut self, new: Offset) -> Option<ClockStep> {
        let old = self.last();
        let both = new.and(self.moved(old, new.at));
        let step = both.is_none().then(|| {
            let (by, bound) = new.difference_to(&old);
            ClockStep {
                by,
                bound,
                between: (old.at, new.at),
            }
        });
        self.points.push(OffsetPoint {
            offset: both.unwrap_or(new),
            set: step.is_some(),
        });
        // If it steps repeatedly, not every step is stored.
        if let Some(step) = step
            && self.steps.len() < MAX_POINTS
        {
            self.steps.push(step);
        }
        if self.points.len() > MAX_POINTS {
            self.thin();
        }
        step
    }

    /// Drops every other measurement, but neither end, and keeps the marks of steps.
    fn thin(&mut self) {
        let last = self.points.len() - 1;
        let mut set = false;
        let mut kept = Vec::with_capacity(MAX_POINTS);
        for (index, point) in self.points.iter().enumerate() {
            set |= point.set;
            if index % 2 == 0 || index == last {
                kept.push(OffsetPoint { set, ..*point });
                set = false;
            }
        }
        self.points = kept;
    }

    /// Returns the first measurement.
    #[must_use]
    pub fn first(&self) -> Offset {
        // There is one from the beginning.
        self.points[0].offset
    }

    /// Returns the latest measurement.
    #[must_use]
    pub fn last(&self) -> Offset {
        self.points[self.points.len() - 1].offset
    }

    /// Returns whether it and the local clock can move apart.
    pub(crate) fn moves(&self) -> bool {
        self.rate_ppm > 0
    }

    /// Returns what a measurement says of another time.
    fn moved(&self, known: Offset, at: Nanos) -> Offset {
        Offset {
            at,
            bound: known.bound + share(at - known.at, self.rate_ppm),
            ..known
        }
    }

    /// Returns the maximum error of a converted time at the time of its conversion, when the next measurement was not known yet: what
    /// clocks can move apart between two measurements that both hold, without steps.
    #[must_use]
    pub fn worst_bound(&self) -> Nanos {
        let between = |pair: &[OffsetPoint]| {
            let [old, new] = [pair[0].offset, pair[1].offset];
            if pair[1].set {
                return old.bound;
            }
            let (by, bound) = new.difference_to(&old);
            let at_end = Nanos(by.0.abs()) + new.bound;
            let apart = Nanos(by.0.abs()) + bound + share(new.at - old.at, self.rate_ppm);
            old.bound.max(at_end).max(Nanos(apart.0 / 2 + 1))
        };
        let bounds = self.points.windows(2).map(between);
        bounds.max().unwrap_or(Nanos(0)).max(self.last().bound)
    }

    /// Returns all steps, in order.
    #[must_use]
    pub fn steps(&self) -> &[ClockStep] {
        &self.steps
    }

    /// Returns the offset at a point on the local clock: what the measurements before and after it allow, however the clocks moved apart
    /// between them. `None` between two measurements between which the clock was set.
    #[must_use]
    pub fn at(&self, point: Nanos) -> Option<Offset> {
        let after = self
            .points
            .partition_point(|measured| measured.offset.at <= point);
        let before = after
            .checked_sub(1)
            .map(|before| self.points[before].offset);
        match (before, self.points.get(after)) {
            (Some(_), Some(next)) if next.set => None,
            (Some(before), Some(next)) => {
                let moved = self.moved(before, point);
                moved.and(self.moved(next.offset, point))
            }
            (None, _) => Some(self.moved(self.first(), point)),
            (Some(before), None) => Some(self.moved(before, point)),
        }
    }

    /// Converts the server's time (nanoseconds since 1970) to the local clock, ± the second; `near`
    /// is a point on the local clock close to it, such as the write's send. `None` when the clock
    /// was set at about that time, or for a time that is decades away.
    #[must_use]
    pub fn to_run_clock(&self, server: Nanos, near: Nanos) -> Option<(Nanos, Nanos)> {
        let mut offset = self.at(near)?;
        // The offset hardly changes with the point, so this converges immediately, unless a step
        // lies between.
        for _ in 0..4 {
            let point = Nanos(server.0.checked_sub(offset.offset.0)?);
            // The difference of two such points is a number of nanoseconds, too.
            if point.0.unsigned_abs() > i64::MAX.unsigned_abs() / 4 {
                return None;
            }
            let found = self.at(point)?;
            if (found.offset - offset.offset).0.abs() <= 1 {
                return Some((point, found.bound + Nanos(1)));
            }
            offset = found;
        }
        None
    }
}

#[cfg(test)]
mod tests;

//! Simulated runs whose stalls are light and heavy.

use super::*;
use crate::coverage::Covered;

const RUNS: u32 = 200;
/// Time between two polls, in seconds.
const POLL: f64 = 0.01;
/// Transactions a second.
const RATE: f64 = 1_000.0;

/// Lengths of stalls in seconds.
#[derive(Clone, Copy, Debug)]
enum Length {
    /// With this mean.
    Exponential(f64),
    /// With a median of 0.3 s; the logarithm has this standard deviation.
    LogNormal(f64),
    /// From 0.1 s on, with this exponent.
    Pareto(f64),
}

impl Length {
    fn draw(self, random: &mut Random) -> f64 {
        match self {
            Self::Exponential(mean) => mean * random.exponential(),
            Self::LogNormal(deviation) => 0.3 * (deviation * random.normal()).exp(),
            Self::Pareto(exponent) => 0.1 * random.uniform().powf(-1.0 / exponent),
        }
    }

    /// Returns the means of the length and of its square.
    fn moments(self) -> [f64; 2] {
        match self {
            Self::Exponential(mean) => [mean, 2.0 * mean * mean],
            Self::LogNormal(deviation) => [1.0, 2.0]
                .map(|power| (0.3f64.ln() * power + (power * deviation).powi(2) / 2.0).exp()),
            Self::Pareto(exponent) => {
                [1.0, 2.0].map(|power| 0.1f64.powf(power) * exponent / (exponent - power))
            }
        }
    }
}

/// A simulated replica.
#[derive(Clone, Copy, Debug)]
enum World {
    /// What is exposed grows by [`RATE`] in a stall; stalls are this many seconds apart on average.
    Stalls(Length, f64),
    /// The logarithm of what is exposed is autoregressive, with this correlation time in seconds.
    Autoregressive(f64),
}

impl World {
    /// Returns the true means of what is exposed and of the share of the time in which anything is.
    fn truth(self) -> [f64; 2] {
        match self {
            Self::Stalls(length, apart) => {
                let [mean, square] = length.moments();
                [RATE * square / 2.0, mean].map(|sum| sum / (mean + apart))
            }
            Self::Autoregressive(_) => [100.0 * 0.125f64.exp(), 1.0],
        }
    }

    fn run(self, seconds: f64, random: &mut Random) -> Stalls<2> {
        let mut stalls = Stalls::default();
        let polls = (seconds / POLL) as u32;
        let mut record = |poll: u32, exposed: f64| {
            let share = f64::from(u8::from(exposed > 0.0));
            let at = Nanos((f64::from(poll) * POLL * 1e9) as i64);
            stalls.record(at, [exposed, share], Nanos((POLL * 1e9) as i64));
        };
        match self {
            Self::Stalls(length, apart) => {
                let (mut begin, mut end) = (-3.0 * apart, -3.0 * apart);
                for poll in 0..polls {
                    let now = f64::from(poll) * POLL;
                    while end <= now {
                        begin = end + apart * random.exponential();
                        end = begin + length.draw(random);
                    }
                    record(poll, RATE * (now - begin).max(0.0));
                }
            }
            Self::Autoregressive(time) => {
                let keep = (-POLL / time).exp();
                let mut state = random.normal();
                for poll in 0..polls {
                    record(poll, 100.0 * (0.5 * state).exp());
                    state = keep * state + (1.0 - keep * keep).sqrt() * random.normal();
                }
            }
        }
        stalls
    }
}

impl Covered {
    /// Asserts that intervals cover at 90 % where at least a fifth of the runs have one, and that at most a tenth of all runs
    /// have one that is wrong.
    fn assert(self, case: &str) {
        assert!(
            self.given < RUNS / 5 || self.share() >= 0.9,
            "{case}: {self:?}"
        );
        assert!(self.given - self.held <= RUNS / 10, "{case}: {self:?}");
    }
}

/// Returns the interval of the mean from windows of time alone.
fn of_windows(run: &Stalls<2>) -> Option<[f64; 2]> {
    let mut windows: Vec<(f64, f64)> = run
        .windows
        .iter()
        .map(|part| (part.time, part.sums[0]))
        .collect();
    while windows.len() > COARSE_WINDOWS {
        windows = join(&windows);
    }
    let mean = run.means().means[0]?;
    let half = widest_half(windows, mean)?;
    Some([mean - half, mean + half])
}

/// Returns the coverage of the mean, of the share, and of the mean from windows alone.
fn coverage(world: World, seconds: f64) -> [Covered; 3] {
    let mut random = Random::new(seconds as u64);
    let mut covered = [Covered::default(); 3];
    let mut numbers = Vec::new();
    let truth = world.truth();
    for _ in 0..RUNS {
        let run = world.run(seconds, &mut random);
        let means = run.means();
        numbers.push(means.stalls);
        covered[0].count(means.intervals[0], truth[0]);
        covered[1].count(means.intervals[1], truth[1]);
        covered[2].count(of_windows(&run), truth[0]);
    }
    numbers.sort_unstable();
    let median = numbers[numbers.len() / 2];
    println!("{world:?}, {seconds} s, {median} stalls: {covered:?}");
    covered
}

#[test]
fn intervals_cover_light_and_heavy_stalls() {
    for length in [
        Length::Exponential(0.5),
        Length::LogNormal(0.5),
        Length::LogNormal(1.0),
        Length::LogNormal(1.5),
        Length::Pareto(2.5),
        Length::Pareto(4.5),
    ] {
        for (apart, seconds) in [(5.0, 120.0), (1.0, 120.0), (2.0, 600.0)] {
            let world = World::Stalls(length, apart);
            let [mean, share, _] = coverage(world, seconds);
            mean.assert(&format!("{world:?}, {seconds} s"));
            share.assert(&format!("{world:?}, {seconds} s, share"));
        }
    }
}

#[test]
fn intervals_cover_correlation_times() {
    for time in [0.01, 0.1, 1.0, 10.0] {
        for seconds in [60.0, 240.0] {
            let world = World::Autoregressive(time);
            let [mean, ..] = coverage(world, seconds);
            mean.assert(&format!("{world:?}, {seconds} s"));
            // From a thousand correlation times on there is one.
            assert!(time > 0.1 || mean.given > RUNS / 2, "{world:?} {mean:?}");
        }
    }
}

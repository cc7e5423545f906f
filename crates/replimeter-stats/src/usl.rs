//! The Universal Scalability Law: throughput as a function of the number of servers.
//!
//! X(N) = λN / (1 + σ(N − 1) + κN(N − 1)) (Gunther, "Guerrilla Capacity Planning", 2007, §4.4): λ
//! is the throughput of one server, σ the contention, κ the cost of coherency between all pairs.
//! Written for the time of one unit of work, N/X = a + b(N − 1) + cN(N − 1), it is linear in a =
//! 1/λ, b = σ/λ and c = κ/λ.
//!
//! The fit minimizes relative errors (those of ln X), since throughputs of different size have
//! about equal relative errors. Nothing is clamped: σ or κ below zero means that the points show no
//! such cost, or more than proportional gain.
//!
//! Intervals are those of the linear model at the fit's end, with Student's distribution for the
//! points beyond the three parameters; of figures that are quotients, such as σ = b/a, by draws
//! from that distribution of a, b and c.

use std::collections::{BTreeMap, BTreeSet};

use replimeter_model::{estimate::Estimate, random::Random};
use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use crate::student::student_point;

/// One point of a fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The number of servers.
    pub servers: u32,
    /// Operations per second of all servers together.
    pub per_s: f64,
}

/// A fitted law.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Throughput of one server, per second.
    pub lambda: Estimate,
    /// Contention.
    pub sigma: Estimate,
    /// Coherency.
    pub kappa: Estimate,
    /// (X − fitted) / fitted of each point, in order.
    pub residuals: Vec<f64>,
    /// Standard deviation of a point from the law, as a share of it.
    pub error: f64,
    /// Points beyond the three parameters.
    pub freedom: usize,
    /// How probable such a distance between the points and the law is if the law holds; `None` where it cannot be told apart from the
    /// scatter of points at one number of servers.
    pub lack_of_fit: Option<f64>,
    /// The number of servers beyond which one more adds nothing: the smallest n with X(n + 1) ≤
    /// X(n). Null where throughput grows without limit.
    pub peak_replicas: Estimate,
    coefficients: [f64; 3],
    /// (JᵀJ)⁻¹ of the linear model of ln X.
    inverse: [[f64; 3]; 3],
}

/// Why there is no fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFit {
    /// Three parameters need more than three points, at three numbers of servers.
    TooFew,
    /// A throughput that is zero or not finite.
    NoThroughput,
    /// The law does not fit the points: it would need a negative time.
    Unfit,
}

/// Draws for intervals of quotients.
const DRAWS: usize = 4000;
/// Their seed: the same points always give the same intervals.
const SEED: u64 = 0x5CA1_AB1E;
/// Maximum iterations. It converges long before, but slowly where the law does not fit the points.
const STEPS: usize = 20_000;
/// Numbers of servers beyond which the maximum is meaningless.
const ENDLESS: f64 = 1e6;

/// Returns the factors of the coefficients: 1, N − 1 and N(N − 1).
fn terms(servers: f64) -> [f64; 3] {
    [1.0, servers - 1.0, servers * (servers - 1.0)]
}

fn dot(one: &[f64; 3], other: &[f64; 3]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

fn times(matrix: &[[f64; 3]; 3], vector: &[f64; 3]) -> [f64; 3] {
    [
        dot(&matrix[0], vector),
        dot(&matrix[1], vector),
        dot(&matrix[2], vector),
    ]
}

/// Returns the lower triangle L with LLᵀ of a symmetric, positive matrix (Cholesky).
fn triangle(matrix: &[[f64; 3]; 3]) -> Option<[[f64; 3]; 3]> {
    let mut lower = [[0.0; 3]; 3];
    for row in 0..3 {
        for column in 0..=row {
            let rest = matrix[row][column]
                - (0..column)
                    .map(|k| lower[row][k] * lower[column][k])
                    .sum::<f64>();
            lower[row][column] = if row == column {
                Some(rest.sqrt()).filter(|root| root.is_finite() && *root > 0.0)?
            } else {
                rest / lower[column][column]
            };
        }
    }
    Some(lower)
}

/// Returns the inverse of a symmetric, positive matrix. Scaled to a diagonal of ones first,
/// since the terms are of very different size.
fn inverse(matrix: &[[f64; 3]; 3]) -> Option<[[f64; 3]; 3]> {
    let scale: Vec<f64> = (0..3).map(|at| matrix[at][at].sqrt()).collect();
    if scale
        .iter()
        .any(|scale| !(scale.is_finite() && *scale > 0.0))
    {
        return None;
    }
    let mut scaled = *matrix;
    for row in 0..3 {
        for column in 0..3 {
            scaled[row][column] /= scale[row] * scale[column];
        }
    }
    let lower = triangle(&scaled).filter(|lower| (0..3).all(|at| lower[at][at] > 1e-7))?;
    let mut out = [[0.0; 3]; 3];
    for column in 0..3 {
        let mut x = [0.0; 3];
        for row in 0..3 {
            let unit = if row == column { 1.0 } else { 0.0 };
            x[row] = (unit - (0..row).map(|k| lower[row][k] * x[k]).sum::<f64>()) / lower[row][row];
        }
        for row in (0..3).rev() {
            x[row] = (x[row] - (row + 1..3).map(|k| lower[k][row] * x[k]).sum::<f64>())
                / lower[row][row];
        }
        for row in 0..3 {
            out[row][column] = x[row] / (scale[row] * scale[column]);
        }
    }
    Some(out)
}

/// JᵀJ, Jᵀr and the sum of squared residuals r.
type Normal = ([[f64; 3]; 3], [f64; 3], f64);

/// Computes [`Normal`] of the model of ln(N/X) at some coefficients; `None` where it would need a
/// negative time.
fn normal(points: &[Point], coefficients: &[f64; 3]) -> Option<Normal> {
    let (mut matrix, mut right, mut squares) = ([[0.0; 3]; 3], [0.0; 3], 0.0);
    for point in points {
        let terms = terms(f64::from(point.servers));
        let modelled = dot(coefficients, &terms);
        if modelled.is_nan() || modelled <= 0.0 {
            return None;
        }
        let residual = (f64::from(point.servers) / point.per_s).ln() - modelled.ln();
        squares += residual * residual;
        let slope = terms.map(|term| term / modelled);
        for row in 0..3 {
            right[row] += slope[row] * residual;
            for column in 0..3 {
                matrix[row][column] += slope[row] * slope[column];
            }
        }
    }
    Some((matrix, right, squares))
}

/// Fits the law.
///
/// # Errors
/// When there are too few points, or the law does not fit them.
pub fn fit(points: &[Point]) -> Result<Fit, NoFit> {
    check(points)?;
    let (coefficients, (matrix, _, squares)) = least_squares(points)?;
    if coefficients[0] <= 0.0 {
        return Err(NoFit::Unfit);
    }
    let inverse = inverse(&matrix).ok_or(NoFit::Unfit)?;
    let freedom = points.len() - 3;
    let error = (squares / freedom as f64).sqrt();
    let residuals: Vec<f64> = points
        .iter()
        .map(|point| point.per_s / at(&coefficients, f64::from(point.servers)) - 1.0)
        .collect();
    let draws = draws(&coefficients, &inverse, error, freedom);
    let estimate = |of: fn(&[f64; 3]) -> f64| {
        let [low, high] = ends(draws.iter().map(of).collect());
        Estimate {
            value: Some(of(&coefficients)),
            ci95: [low, high].into(),
        }
    };
    let peak_replicas = estimate(stop);
    Ok(Fit {
        lambda: estimate(|[a, ..]| if *a > 0.0 { 1.0 / a } else { f64::INFINITY }),
        sigma: estimate(|[a, b, _]| over(*b, *a)),
        kappa: estimate(|[a, _, c]| over(*c, *a)),
        lack_of_fit: lack_of_fit(points, &residuals),
        residuals,
        error,
        freedom,
        peak_replicas: Estimate {
            value: peak_replicas.value.filter(|count| count.is_finite()),
            ..peak_replicas
        },
        coefficients,
        inverse,
    })
}

/// Returns the probability of a test for lack of fit: what the means at each number of servers differ from the law, over what
/// points at one number differ, has an F distribution if the law holds (Draper & Smith 1998, §2.2).
fn lack_of_fit(points: &[Point], residuals: &[f64]) -> Option<f64> {
    let mut numbers: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (point, residual) in points.iter().zip(residuals) {
        numbers
            .entry(point.servers)
            .or_default()
            .push(residual.ln_1p());
    }
    let (mut lack, mut scatter) = (0.0, 0.0);
    for logs in numbers.values() {
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        lack += mean.powi(2) * logs.len() as f64;
        scatter += logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
    }
    let freedom = [
        numbers.len().checked_sub(3)? as f64,
        (points.len() - numbers.len()) as f64,
    ];
    let distribution = FisherSnedecor::new(freedom[0], freedom[1]).ok()?;
    let ratio = lack / freedom[0] / (scatter / freedom[1]);
    ratio.is_finite().then(|| distribution.sf(ratio))
}

/// Checks that there are enough points, and that each is valid.
fn check(points: &[Point]) -> Result<(), NoFit> {
    let counts: BTreeSet<u32> = points.iter().map(|point| point.servers).collect();
    if counts.len() < 3 || points.len() < 4 || counts.contains(&0) {
        return Err(NoFit::TooFew);
    }
    if points
        .iter()
        .any(|point| !point.per_s.is_finite() || point.per_s <= 0.0)
    {
        return Err(NoFit::NoThroughput);
    }
    Ok(())
}

/// Returns a quotient of coefficients; infinite where the denominator is not positive.
fn over(coefficient: f64, first: f64) -> f64 {
    if first > 0.0 {
        coefficient / first
    } else {
        f64::INFINITY * coefficient.signum()
    }
}

/// Returns the coefficients with the smallest relative errors, by Levenberg & Marquardt:
/// Gauss-Newton steps, shortened where they increase the error.
fn least_squares(points: &[Point]) -> Result<([f64; 3], Normal), NoFit> {
    let mut coefficients = linear(points).ok_or(NoFit::Unfit)?;
    let mut best = match normal(points, &coefficients) {
        Some(state) => state,
        // The mean alone is a valid law, and a starting point.
        None => {
            let mean = points
                .iter()
                .map(|point| f64::from(point.servers) / point.per_s)
                .sum::<f64>()
                / points.len() as f64;
            coefficients = [mean, 0.0, 0.0];
            normal(points, &coefficients).ok_or(NoFit::Unfit)?
        }
    };
    let mut damping = 1e-6;
    for _ in 0..STEPS {
        let (matrix, right, squares) = &best;
        let mut damped = *matrix;
        for (at, row) in damped.iter_mut().enumerate() {
            row[at] *= 1.0 + damping;
        }
        let step = times(&inverse(&damped).ok_or(NoFit::Unfit)?, right);
        let next = [0, 1, 2].map(|at| coefficients[at] + step[at]);
        match normal(points, &next) {
            Some(state) if state.2 <= *squares => {
                let gained = squares - state.2;
                (coefficients, best, damping) = (next, state, damping / 10.0);
                if gained <= 1e-15 * (best.2 + 1e-30) {
                    break;
                }
            }
            _ if damping > 1e12 => break,
            _ => damping *= 10.0,
        }
    }
    Ok((coefficients, best))
}

/// Returns the starting point of the iteration: the linear fit of N/X, with weights for equal
/// relative errors.
fn linear(points: &[Point]) -> Option<[f64; 3]> {
    let (mut matrix, mut right) = ([[0.0; 3]; 3], [0.0; 3]);
    for point in points {
        let time = f64::from(point.servers) / point.per_s;
        let slope = terms(f64::from(point.servers)).map(|term| term / time);
        for row in 0..3 {
            right[row] += slope[row];
            for column in 0..3 {
                matrix[row][column] += slope[row] * slope[column];
            }
        }
    }
    Some(times(&inverse(&matrix)?, &right))
}

/// Returns X(N) for these coefficients.
fn at(coefficients: &[f64; 3], servers: f64) -> f64 {
    servers / dot(coefficients, &terms(servers))
}

/// Returns the smallest n ≥ 1 with X(n + 1) ≤ X(n), which is the case when
/// a − b ≤ c·n(n + 1); infinite without one.
fn stop([a, b, c]: &[f64; 3]) -> f64 {
    if 2.0 * c >= a - b {
        return 1.0;
    }
    if *c <= 0.0 {
        return f64::INFINITY;
    }
    let count = ((((a - b) / c) + 0.25).sqrt() - 0.5 - 1e-9).ceil().max(1.0);
    if count > ENDLESS {
        f64::INFINITY
    } else {
        count
    }
}

/// Returns plausible coefficients: draws from Student's distribution around the fitted ones (fixed
/// seed).
fn draws(
    coefficients: &[f64; 3],
    inverse: &[[f64; 3]; 3],
    error: f64,
    freedom: usize,
) -> Vec<[f64; 3]> {
    let Some(lower) = triangle(inverse) else {
        return vec![*coefficients];
    };
    let mut random = Random::new(SEED);
    (0..DRAWS)
        .map(|_| {
            let z = [random.normal(), random.normal(), random.normal()];
            let chi: f64 = (0..freedom).map(|_| random.normal().powi(2)).sum();
            let scale = error / (chi / freedom as f64).sqrt();
            let away = times(&lower, &z);
            [0, 1, 2].map(|at| coefficients[at] + scale * away[at])
        })
        .collect()
}

/// Returns the 2.5 % and the 97.5 % point; null where it is infinite.
fn ends(mut values: Vec<f64>) -> [Option<f64>; 2] {
    values.sort_by(f64::total_cmp);
    let at = |p: f64| {
        values
            .get(((values.len() - 1) as f64 * p).round() as usize)
            .copied()
            .filter(|value| value.is_finite())
    };
    [at(0.025), at(0.975)]
}

impl Fit {
    /// Returns the law's throughput with this number of servers, per second; null where it is
    /// undefined.
    #[must_use]
    pub fn at(&self, servers: u32) -> Option<f64> {
        Some(at(&self.coefficients, f64::from(servers)))
            .filter(|per_s| per_s.is_finite() && *per_s > 0.0)
    }

    /// Predicts a new measurement with this number of servers: the law's value and the interval that contains 95 %
    /// of means of `points` points; empty where that interval is too wide to be useful.
    #[must_use]
    pub fn predict(&self, servers: u32, points: u32) -> Option<Estimate> {
        let value = self.at(servers)?;
        let terms = terms(f64::from(servers));
        let slope = terms.map(|term| term / dot(&self.coefficients, &terms));
        let spread = dot(&slope, &times(&self.inverse, &slope)) + 1.0 / f64::from(points.max(1));
        let point = student_point(0.975, self.freedom as f64).unwrap_or(f64::INFINITY);
        let half = point * self.error * spread.sqrt();
        // Beyond a factor of a hundred each way the law predicts nothing for this number.
        let known = half.is_finite() && half < 100f64.ln();
        let end = |sign: f64| known.then(|| value * (sign * half).exp());
        Some(Estimate {
            value: Some(value).filter(|_| known),
            ci95: [end(-1.0), end(1.0)].into(),
        })
    }
}

#[cfg(test)]
mod tests;

//! What a run of `lag` costs servers.

use replimeter_instruments::lag::settings::{LagPlan, Method, Pace};
use replimeter_run::dry_run::{PlanEffects, load_connections};

/// Adds the cost for the primary and for each replica.
pub(super) fn add(effects: &mut PlanEffects<'_>, plan: &LagPlan) {
    let methods = plan.method.wanted();
    let writers = u64::from(plan.writers);
    let waiters = |writers| writers + u64::from(matches!(plan.pace, Pace::Interval(_)));
    let observers = |writers| -> u64 {
        let of = |method: &Method| match method {
            Method::Poll | Method::Stamp | Method::StampUdf => 1,
            Method::Wait => waiters(writers),
            // The second one asks which server ids are taken.
            Method::Tap => 2,
        };
        methods.iter().map(of).sum()
    };
    // At the floor the primary is observed as its own replica; then one connection reads for each replica's stamps
    // or stages.
    let stamps = methods.iter().any(|method| method.stamps());
    let of_replicas = effects.replicas() * (u64::from(stamps) + u64::from(plan.stages));
    let taps = 2 * u64::from(methods.contains(&Method::Tap));
    let loads = load_connections(plan.load.iter().map(|load| &load.spec));
    let primary = 2 + loads + (1 + observers(1)).max(writers + taps + of_replicas);
    let size = plan.largest_size();
    let rows = match plan.pace {
        Pace::Interval(every) => format!(
            "{:.0} rows/s of {size} bytes",
            1.0 / every.0.as_secs_f64().max(f64::MIN_POSITIVE)
        ),
        Pace::Visible | Pace::Ack => format!("rows of {size} bytes back to back"),
    };
    let polled = match methods.contains(&Method::Poll) {
        true => "reads without a pause while a row is awaited",
        false => "no polling",
    };
    effects.cost(
        "primary",
        primary,
        format!("{rows}, in transactions of one row"),
    );
    let replica = 2 + loads + observers(writers) + u64::from(plan.stages);
    effects.cost(
        "each replica",
        replica,
        format!("{polled}; applies the primary's rows"),
    );
}

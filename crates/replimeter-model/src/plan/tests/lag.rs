//! Plans of `lag`.

use super::*;

#[test]
fn runs_of_the_disturbance_differ_in_methods_only() {
    let runs = [
        include_str!("../../../../../plans/lag-histogram.toml"),
        include_str!("../../../../../plans/lag-methods.toml"),
    ];
    let [alone, all_methods] = runs.map(|text| planned::<LagSettings>(text).unwrap());
    assert_eq!(alone.targets, all_methods.targets);
    assert!(alone.plan.starts > 1 && alone.plan.method != all_methods.plan.method);
    let all_methods = LagPlan {
        method: alone.plan.method.clone(),
        ..all_methods.plan
    };
    assert_eq!(alone.plan, all_methods);
}

#[test]
fn several_writers_of_lag_leave_cores_alone() {
    let cores = |writers: u32| {
        let text = format!("command = 'lag'\n[lag]\nwriters = {writers}");
        planned::<LagSettings>(&text).unwrap().plan.cores
    };
    assert!(cores(1).keep_awake.on && !cores(4).keep_awake.on);
    assert!(
        !cores(1).real_time.on,
        "it would take the cores from the servers"
    );
}

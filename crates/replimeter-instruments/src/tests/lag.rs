//! Plans of `lag`.

use super::*;

#[test]
fn runs_of_the_disturbance_differ_in_methods_only() {
    let runs = [
        include_str!("../../../../plans/lag-histogram.toml"),
        include_str!("../../../../plans/lag-methods.toml"),
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

#[test]
fn starts_share_the_rounds_of_a_sandbox() {
    let plan = |text: &str| planned::<LagSettings>(&format!("command = 'lag'\n{text}")).unwrap();
    for (text, starts) in [
        ("", 10),
        ("[lag]\nrounds = 450", 4),
        ("[lag]\nrounds = 50", 1),
        ("[lag]\nduration = '3s'", 3),
        ("[lag]\nduration = '1h'", 10),
        ("[lag]\nrow-sizes = '1'", 1),
        ("[lag]\nstages = true", 1),
        ("[lag]\nload = ['insert:1@primary']", 1),
        ("[lag]\nstarts = 7", 7),
        ("[target]\nsandbox = ['async:1', 'work']", 1),
        (
            "[target]\nprimary = 'mysql://u@a/'\nreplicas = ['mysql://u@b/']",
            1,
        ),
    ] {
        assert_eq!(plan(text).plan.starts, starts, "{text}");
    }
    let lag = plan("[lag]\nrounds = 1001\nstarts = 3").plan;
    let parts = (1..=3).map(|start| match lag.of_start(start).writes {
        WritePattern::Rounds {
            until: StopCondition::Rounds(rounds),
            ..
        } => rounds,
        _ => 0,
    });
    assert_eq!(parts.collect::<Vec<_>>(), [333, 334, 334]);
    let own = "command = 'lag'\n[target]\nsandbox = 'work'\n[lag]\nstarts = 2";
    let error = planned::<LagSettings>(own).unwrap_err().to_string();
    assert!(error.contains("starts requires a sandbox"), "{error}");
}

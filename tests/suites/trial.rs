//! `trial` on real servers: a difference that is there is shown, and a mistake is refused before anything starts.

use std::fs;

use replimeter_suites::{LIMIT, TestEnvironment, harness::Test, test, wait};

pub(crate) const TESTS: &[Test] = &[
    test!(plans_that_have_no_trial_are_refused),
    test!(slower_link_is_worse_and_fails).starts(2).long(),
];

/// Writes a plan of a dry run into a file.
fn plan(tool: &TestEnvironment, name: &str, words: &str) {
    let args: Vec<&str> = words.split(' ').chain(["--dry-run"]).collect();
    let text = tool.run(&args).with_code(0).stdout;
    fs::write(tool.folder().join(name), text).unwrap();
}

fn plans_that_have_no_trial_are_refused() {
    let tool = TestEnvironment::new();
    plan(&tool, "lag.toml", "lag --sandbox async:1");
    plan(&tool, "load.toml", "load --sandbox async:1");
    plan(&tool, "loss.toml", "loss --sandbox async:1");
    plan(
        &tool,
        "yours.toml",
        "lag --primary mysql://u@a/ --replica mysql://u@b/",
    );
    for (plans, reason) in [
        (["lag.toml", "load.toml"], "are not comparable"),
        (["loss.toml", "loss.toml"], "loss has no trials"),
        (
            ["lag.toml", "yours.toml"],
            "a start and a run are not comparable",
        ),
        (["lag.toml", "none.toml"], "cannot read the plan none.toml"),
    ] {
        let ended = tool.run(&["trial", plans[0], plans[1]]).with_code(2);
        let _ = ended.stderr_contains(reason);
    }
    let unknown = ["trial", "lag.toml", "lag.toml", "--figure", "lag.p51"];
    let _ = tool.run(&unknown).with_code(2).stderr_contains("lag.p50");
    let planned = ["trial", "lag.toml", "lag.toml", "--dry-run"];
    let planned = tool.run(&planned).with_code(0).stdout;
    // One of the ten starts, with its share of the rounds.
    for want in [
        "# A, at most 100 times",
        "# B, at most 100 times",
        "rounds = 100",
        "starts = 1\n",
    ] {
        assert!(planned.contains(want), "`{want}` is missing in {planned}");
    }
    assert!(tool.runs().is_empty());
}

fn slower_link_is_worse_and_fails() {
    let tool = TestEnvironment::new();
    plan(&tool, "a.toml", "lag --sandbox mariadb/async:1");
    plan(
        &tool,
        "b.toml",
        "lag --sandbox mariadb/async:1 --link-delay 200ms",
    );
    let mut command = tool.command(&[
        "trial",
        "a.toml",
        "b.toml",
        "--pairs",
        "10",
        "--fail-if-worse",
        "--json",
    ]);
    let ended = wait(command.spawn().unwrap(), LIMIT * 4).with_code(1);
    let document = ended.json();
    assert_eq!(document["outcome"], "higher", "{document:#}");
    assert_eq!(document["primary"]["pairs"], 10, "{document:#}");
    assert!(
        document["headline"]
            .as_str()
            .unwrap()
            .contains("is worse in B")
    );
}

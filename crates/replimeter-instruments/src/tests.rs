//! Plans of all measurements.

use proptest::prelude::*;
use replimeter_model::{
    plan::{PlanError, PlanFile, Request, Section, Settings, StopCondition, command},
    sandbox::SandboxSpec,
    target::Target,
    time_span::TimeSpan,
};

use crate::{
    backlog::settings::BacklogSettings,
    calibrate::settings::CalibrateSettings,
    cost::settings::CostSettings,
    exposure::settings::ExposureSettings,
    lag::settings::{LagPlan, LagSettings, Pace, WritePattern},
    load::settings::LoadSettings,
    loss::settings::LossSettings,
    scale::settings::ScaleSettings,
    stale::settings::StaleSettings,
    tap::settings::TapSettings,
};

mod explain;
mod lag;
mod sockets;

/// The sections that plans have here.
const SECTIONS: [Section; 10] = [
    Section::of::<LagSettings>(),
    Section::of::<BacklogSettings>(),
    Section::of::<CalibrateSettings>(),
    Section::of::<TapSettings>(),
    Section::of::<LoadSettings>(),
    Section::of::<ScaleSettings>(),
    Section::of::<CostSettings>(),
    Section::of::<StaleSettings>(),
    Section::of::<LossSettings>(),
    Section::of::<ExposureSettings>(),
];

/// Returns the plan in a text, for this measurement.
pub(crate) fn planned<S: Settings>(text: &str) -> Result<Request<S>, PlanError> {
    PlanFile::from_toml(text, &SECTIONS)?.plan_of(text)
}

/// Returns the text of a plan, of any measurement.
fn written(text: &str) -> Result<String, PlanError> {
    fn written<S: Settings>(text: &str) -> Result<String, PlanError> {
        planned::<S>(text).map(|planned| planned.to_toml().unwrap())
    }
    match command(text, &SECTIONS)? {
        "lag" => written::<LagSettings>(text),
        "backlog" => written::<BacklogSettings>(text),
        "calibrate" => written::<CalibrateSettings>(text),
        "tap" => written::<TapSettings>(text),
        "load" => written::<LoadSettings>(text),
        "scale" => written::<ScaleSettings>(text),
        "cost" => written::<CostSettings>(text),
        "stale" => written::<StaleSettings>(text),
        "loss" => written::<LossSettings>(text),
        _ => written::<ExposureSettings>(text),
    }
}

#[test]
fn smallest_plan_gets_every_default() {
    let plan = planned::<LagSettings>("command = 'lag'").unwrap();
    assert_eq!(
        plan.targets,
        [Target::Sandbox(SandboxSpec::of("async:1".parse().unwrap()))]
    );
    let lag = plan.plan;
    assert_eq!(
        lag.writes,
        WritePattern::Rounds {
            until: StopCondition::Rounds(1000),
            size: 1000
        }
    );
    assert_eq!(lag.pace, Pace::Interval(TimeSpan::from_millis(10)));
    assert!(lag.cores.keep_awake.on);
}

#[test]
fn resolved_plan_parses_back() {
    for text in [
        "command = 'lag'",
        "command = 'tap'",
        "command = 'scale'",
        "command = 'cost'",
        "command = 'cost'\ntitle = 'x'\n[target]\nserver-options = ['innodb_flush_method=O_DIRECT']\nwait-point = 'after-sync'\n[cost]\nmodes = 'mysql/semi-sync:2, galera'\nthreads = [1, 16]\nduration = '1m'\nlink-delays = ['0', '1ms']\nseed = 9",
        "command = 'cost'\n[cost]\nmodes = 'async'\nself-test = 7\ndata-size = '300MB'",
        "command = 'scale'\n[target]\ncpus-per-server = '0.25'\nwait-point = 'after-sync'\nserver-options = ['replicas:sync_binlog=1']\n[scale]\nmode = 'semi-sync'\nreplicas = '0,1,3'\ndata-size = '300MB'\nreads = 'all'\nupdates = true",
        "command = 'scale'\n[scale]\nreplicas = '0..4'\ncheck-prediction = true\nduration = '30s'\nseed = 9",
        "command = 'tap'\n[tap]\nduration = '60s'\ngroup-by = 'table'\ninclude = ['shop', 'a.b']\nserver-id = 7",
        "command = 'loss'",
        "command = 'loss'\n[target]\nsandbox = ['async:1', 'semi-sync:2', 'galera:3']\n[loss]\ncrash = 'partition'\ncrashes = 20\nkill-delay = '1s'\nrate = 500",
        "command = 'exposure'",
        "command = 'exposure'\n[target]\nprimary = 'mysql://u@a/'\nreplicas = ['mysql://u@b/']\n[exposure]\nduration = '10m'\npoll-interval = '50ms'",
        "command = 'lag'\n[lag]\nmethod = 'tap, poll'\nwriters = 8",
        "command = 'lag'\n[lag]\nwarm-up = '2s'",
        "command = 'stale'\n[stale]\nwarm-up = '500ms'",
        "command = 'lag'\n[lag]\nmethod = 'all'\nduration = '60s'\npace = 'visible'\nrow-size = 5",
        "command = 'lag'\ntitle = 'x'\n[target]\nsandbox = 'async:2'\nserver-options = ['sync_binlog=1']\n[lag]\nrow-sizes = '1..9:2'",
        "command = 'lag'\n[target]\nprimary = 'mysql://u@a/'\nreplicas = ['mysql://u@b/']\n[lag]\nkeep-awake = true",
        "command = 'lag'\n[target]\nsandbox = ['async:1', 'semi-sync:2', 'work']\nwait-point = 'after-sync'\nlink-delay = '5ms'\nserver-options = ['replica2:sync_binlog=1']",
        "command = 'lag'\n[target]\nsandbox = ['async:1', 'async:2']\nserver-options = ['replica2:sync_binlog=1', 'sync_binlog=2', 'replica1:sync_binlog=1', 'sync_binlog=2']",
        "command = 'lag'\n[lag]\nload = ['insert:8@primary', '/x/y.sql:2@replica1']\nrate = [100, 20]",
        "command = 'lag'\n[lag]\nload = ['insert:8@primary', 'mix:2@primary']\nrate = 100",
        "command = 'backlog'",
        "command = 'backlog'\n[backlog]\nbuild-up = '5s'\nworkers = [1, 4, 1]\nload = ['insert:8@primary', 'mix:2@primary']\nrate = 100\narrivals = 'poisson'",
        "command = 'lag'\n[lag]\nload = ['insert:8@primary']\nrate = 100\narrivals = 'poisson'\nload-data-size = '300MB'",
        "command = 'load'",
        "command = 'load'\n[load]\nworkload = ['post-insert', 'select']\nthreads = [1, 8]\nrate = 50\narrivals = 'poisson'\ndata-size = 1000\nkeep-data = true",
        "command = 'load'\n[load]\nthreads = 'auto'\nconnect-rate = 100",
        "command = 'load'\n[target]\nprimary = 'mysql://a/'",
        "command = 'lag'\n[[target.nodes]]\nname = 'a'\nurl = 'mysql://a/'\n[[target.nodes]]\nname = 'b'\nrole = 'node'\nsource = 'a'\nurl = 'mysql://b/'",
    ] {
        let once = written(text).unwrap();
        assert_eq!(written(&once).unwrap(), once, "{text}");
    }
}

#[test]
fn contradictory_settings_are_refused() {
    for (lag, want) in [
        ("row-size = 1\nrow-sizes = '1'", "not both"),
        ("rounds = 1\nduration = '1s'", "not both"),
        ("rounds = 0", "at least 1"),
        ("rows-per-step = 3", "require a sweep"),
        ("row-sizes = '1'\nrounds = 9", "rows-per-step"),
        ("row-size = 0", "at least 1 byte"),
        ("pace = 'interval 0s'", "interval must be above 0"),
        (
            "pace = 'ack'\nseed = 2",
            "row-arrivals and seed need an interval",
        ),
        (
            "row-arrivals = 'constant'\nseed = 2",
            "constant row-arrivals use no seed",
        ),
        ("timeout = '0s'", "timeout must be above 0"),
        ("method = 'poke'", "unknown method"),
        ("method = 'poll,poll'", "given twice"),
        ("writers = 0", "from 1 to"),
        ("starts = 0", "starts must be from 1"),
        ("starts = 3\nrounds = 2", "at least as many rounds"),
        ("starts = 2\nstages = true", "observed in one start"),
        ("starts = 2\nrow-sizes = '1'", "observed in one start"),
        (
            "starts = 2\nload = ['insert:1@primary']",
            "observed in one start",
        ),
        ("writers = 2\nrow-sizes = '1'", "one writer"),
        ("writers = 2\npace = 'visible'", "one writer"),
        ("rate = 5", "requires a load"),
        (
            "load = ['insert:1@primary']\nrate = 0",
            "rate must be above 0",
        ),
        (
            "load = ['insert:1@primary']\nrate = [1, 2]",
            "as many rates",
        ),
        ("load = ['insert@primary']", "is not a load"),
    ] {
        let error = written(&format!("command = 'lag'\n[lag]\n{lag}"))
            .unwrap_err()
            .to_string();
        assert!(error.contains(want), "{lag}: {error}");
    }
    for (plan, want) in [
        ("command = 'lag'\n[calibrate]", "no section [calibrate]"),
        (
            "command = 'backlog'\n[backlog]\nbuild-up = '0s'",
            "build-up must be above 0",
        ),
        (
            "command = 'backlog'\n[backlog]\ntimeout = '0s'",
            "timeout must be above 0",
        ),
        ("command = 'backlog'\n[backlog]\nworkers = [1025]", "1024"),
        (
            "command = 'scale'\n[target]\nsandbox = 'async:2'",
            "starts its own servers",
        ),
        (
            "command = 'scale'\n[scale]\nreplicas = '0..3'\ncheck-prediction = true",
            "5 numbers of replicas",
        ),
        ("command = 'scale'\n[scale]\nthreads = 0", "threads must be"),
        (
            "command = 'scale'\n[scale]\nmode = 'galera'",
            "no read replicas",
        ),
        (
            "command = 'scale'\n[scale]\nduration = '1ms'",
            "is mostly startup",
        ),
        ("command = 'scale'\n[scale]\nstarts = 0", "from 1 to 1000"),
        (
            "command = 'scale'\n[scale]\nwarm-up = 50",
            "scale has no rounds",
        ),
        (
            "command = 'cost'\n[cost]\nwarm-up = 50",
            "cost has no rounds",
        ),
        (
            "command = 'load'\n[load]\nwarm-up = 50",
            "load has no rounds",
        ),
        (
            "command = 'tap'\n[tap]\nreport-interval = '1ms'",
            "report-interval must be at least",
        ),
        (
            "command = 'tap'\n[tap]\ninclude = ['.t']",
            "is not a schema",
        ),
        ("command = 'tap'\n[tap]\ncoalesce = '1s'", "at most 100ms"),
        (
            "command = 'tap'\n[target]\nsandbox = ['async:1', 'async:2']",
            "one target",
        ),
        (
            "command = 'load'\n[load]\nthreads = 0",
            "1 to 10000 threads",
        ),
        ("command = 'load'\n[load]\nrate = 0", "rate must be above 0"),
        (
            "command = 'load'\n[load]\narrivals = 'poisson'",
            "add a rate",
        ),
        (
            "command = 'load'\n[load]\nworkload = ['insert', 'insert']",
            "given twice",
        ),
        ("command = 'load'\n[load]\nduration = '0s'", "above 0"),
        (
            "command = 'loss'\n[target]\nsandbox = 'none'",
            "has no replica",
        ),
        (
            "command = 'loss'\n[target]\nsandbox = ['async:1', 'mysql/none']",
            "mysql/none has no replica",
        ),
        (
            "command = 'loss'\n[target]\nsandbox = 'galera:1'",
            "has no replica",
        ),
        (
            "command = 'loss'\n[target]\nsandbox = 'work'",
            "starts and removes itself",
        ),
        (
            "command = 'loss'\n[target]\nprimary = 'mysql://a/'\nreplicas = ['mysql://b/']",
            "never your servers",
        ),
        (
            "command = 'loss'\n[target]\nprimary = 'mysql://a/'",
            "never your servers",
        ),
        ("command = 'loss'\n[loss]\ncrashes = 0", "crashes must be"),
        (
            "command = 'loss'\n[loss]\nkill-delay = '1s'",
            "requires crash",
        ),
        (
            "command = 'loss'\n[loss]\nduration = '1h'",
            "before a crash",
        ),
        (
            "command = 'exposure'\n[target]\nsandbox = ['async:1', 'async:2']",
            "one target",
        ),
        (
            "command = 'exposure'\n[target]\nsandbox = 'work'\n[exposure]\nwriters = 2",
            "writes only",
        ),
        (
            "command = 'exposure'\n[exposure]\npoll-interval = '1us'",
            "poll-interval must be",
        ),
        (
            "command = 'calibrate'\n[calibrate]\nlink-delays = ['0']",
            "above 0",
        ),
        (
            "command = 'calibrate'\n[calibrate]\nlink-delays = ['11s']",
            "at most 10s",
        ),
        (
            "command = 'calibrate'\n[calibrate]\nrepetitions = 0",
            "repetitions",
        ),
        (
            "command = 'calibrate'\n[calibrate]\nneighbors = [1]",
            "add reference = true",
        ),
        (
            "command = 'calibrate'\n[target]\nsandbox = 'async:1'\n[calibrate]\nreference = true",
            "remove the target",
        ),
        (
            "command = 'calibrate'\n[calibrate]\nreference = true\nmethod = 'tap'",
            "poll and wait only",
        ),
        (
            "command = 'calibrate'\n[target]\nsandbox = 'galera:3'",
            "async:N only",
        ),
        (
            "command = 'calibrate'\n[target]\nlink-delay = '1ms'",
            "link-delays in [calibrate]",
        ),
        (
            "command = 'calibrate'\n[target]\nprimary = 'mysql://a/'\nreplicas = ['mysql://b/']",
            "a sandbox's replication link",
        ),
    ] {
        let error = written(plan).unwrap_err().to_string();
        assert!(error.contains(want), "{plan}: {error}");
    }
    for (target, want) in [
        ("primary = 'mysql://a/'", "without a replica"),
        ("replicas = ['mysql://a/']", "without its primary"),
        (
            "sandbox = 'async:1'\nprimary = 'mysql://a/'\nreplicas = ['mysql://b/']",
            "either a sandbox",
        ),
        ("sandbox = ['async:1', 'async:1']", "given twice"),
        ("sandbox = []", "empty"),
        ("sandbox = 'ring:3'", "unknown sandbox shape"),
        ("sandbox = 'work'\nlink-delay = '1ms'", "sandbox up"),
        (
            "sandbox = ['work', 'async:1']\nhosts = true",
            "running sandbox",
        ),
        (
            "nodes = [{ name = 'a', url = 'mysql://a/' }, { name = 'a', url = 'mysql://b/' }]",
            "two servers are named",
        ),
        (
            "nodes = [{ name = 'a', url = 'mysql://a/' }, { name = 'b', url = 'mysql://a/' }]",
            "the same address",
        ),
        (
            "nodes = [{ name = 'a', url = 'mysql://a/' }, { name = 'b', source = 'c', url = 'mysql://b/' }]",
            "is not another server",
        ),
    ] {
        let error = written(&format!("command = 'lag'\n[target]\n{target}"))
            .unwrap_err()
            .to_string();
        assert!(error.contains(want), "{target}: {error}");
    }
}

#[test]
fn udf_and_engine_need_a_started_sandbox() {
    let plan = planned::<LagSettings>("command = 'lag'\n[target]\nsandbox = ['async:1', 'galera:3']\nudf = true\nfederated = true").unwrap();
    let all = plan
        .targets
        .iter()
        .all(|target| matches!(target, Target::Sandbox(spec) if spec.udf && spec.federated));
    assert!(all && plan.target.udf, "{:?}", plan.targets);
    for target in [
        "sandbox = 'work'",
        "primary = 'mysql://a/'\nreplicas = ['mysql://b/']",
    ] {
        assert!(
            written(&format!("command = 'lag'\n[target]\n{target}\nudf = true")).is_err(),
            "{target}"
        );
    }
}

#[test]
fn both_wait_points_are_crashed_by_default() {
    let labels = |text: &str| {
        let plan = planned::<LossSettings>(text).unwrap();
        plan.plan
            .cases(&plan.targets)
            .into_iter()
            .map(|case| case.label)
            .collect::<Vec<_>>()
    };
    let both = labels("command = 'loss'\n[target]\nsandbox = ['async:1', 'mysql/semi-sync:1']");
    assert_eq!(
        both,
        [
            "async:1",
            "mysql/semi-sync:1 after-commit",
            "mysql/semi-sync:1 after-sync"
        ]
    );
    let one =
        labels("command = 'loss'\n[target]\nsandbox = 'semi-sync:1'\nwait-point = 'after-sync'");
    assert_eq!(one, ["semi-sync:1 after-sync"]);
}

#[test]
fn partition_crash_needs_a_link() {
    let plan = planned::<LossSettings>("command = 'loss'\n[loss]\ncrash = 'partition'").unwrap();
    assert!(
        matches!(plan.targets.as_slice(), [Target::Sandbox(spec)] if spec.link.is_some()),
        "{:?}",
        plan.targets
    );
}

#[test]
fn unknown_key_is_named_with_its_line() {
    let error = written("command = 'lag'\n\n[lag]\nround = 5\n")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("line 4") && error.contains("round"),
        "{error}"
    );
}

#[test]
fn misspelled_key_gets_a_suggestion() {
    for (text, want) in [
        ("command = 'lga'", "did you mean `lag`?"),
        (
            "command = 'lag'\n[lag]\nrouns = 5",
            "did you mean `rounds`?",
        ),
        (
            "command = 'lag'\n[lag]\nwarm_up = 5",
            "did you mean `warm-up`?",
        ),
        (
            "command = 'lag'\nrounds = 5",
            "`rounds` is a key of [lag] and [calibrate]",
        ),
        (
            "command = 'lag'\n[lag]\nmethod = 'pol'",
            "did you mean `poll`?",
        ),
        (
            "command = 'lag'\n[lag]\npace = 'visibel'",
            "did you mean `visible`?",
        ),
        (
            "command = 'lag'\n[target]\nsandbox = 'semisync:1'",
            "did you mean `semi-sync:1`?",
        ),
        (
            "command = 'lag'\n[target]\nwait-point = 'after-commmit'",
            "did you mean `after-commit`?",
        ),
        (
            "command = 'cost'\n[cost]\nmodes = 'none,galrea'",
            "did you mean `galera`?",
        ),
        (
            "command = 'cost'\n[cost]\ndurability = 'strikt'",
            "did you mean `strict`?",
        ),
        (
            "command = 'scale'\n[scale]\nmode = 'asinc'",
            "did you mean `async`?",
        ),
        (
            "command = 'stale'\n[stale]\nread-consistency = 'befor'",
            "did you mean `before`?",
        ),
    ] {
        let error = written(text).unwrap_err().to_string();
        assert!(error.contains(want), "{text}: {error}");
    }
}

#[test]
fn minutes_instead_of_milliseconds_are_refused() {
    for (text, wants) in [
        (
            "command = 'lag'\n[lag]\npace = 'interval 10m'",
            ["line 3, column 1", "write 10ms for milliseconds"],
        ),
        (
            "command = 'lag'\n\n[target]\nlink-delay = '5m'",
            ["line 4, column 1", "write 5ms for milliseconds"],
        ),
        (
            "command = 'calibrate'\n[calibrate]\nlink-delays = ['1ms', '2m']",
            ["line 3, column 1", "write 2ms for milliseconds"],
        ),
        (
            "command = 'cost'\n[cost]\nblock-duration = '11m'",
            ["line 3", "write 11ms for milliseconds"],
        ),
        (
            "command = 'lag'\n[lag]\nrounds = 0",
            ["line 3, column 1: rounds = 0", "at least 1"],
        ),
        (
            "command = 'lag'\n[lag]\nrounds = 5\nduration = '2s'",
            ["line 3", "not both"],
        ),
    ] {
        let error = written(text).unwrap_err().to_string();
        for want in wants {
            assert!(error.contains(want), "{text}: {error}");
        }
    }
}

#[test]
fn password_in_a_plan_is_refused() {
    let error = written("command = 'lag'\n[target]\nprimary = 'mysql://u:pw@a/'")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("line 3") && error.contains("must not hold a URL with a password"),
        "{error}"
    );
    assert!(!error.contains("pw"), "{error}");
}

proptest! {
    #[test]
    fn no_file_panics(text in "\\PC{0,120}") {
        let _ = written(&text);
        let _ = written(&format!("command = 'lag'\n[lag]\n{text}"));
    }
}

#[test]
fn part_longer_than_the_run_is_refused() {
    let said = |text: &str| written(text).map(|_| ()).map_err(|error| error.to_string());
    let target = "[target]\nprimary = 'mysql://a/'\nreplicas = ['mysql://b/']\n";
    for (plan, key) in [
        (
            "command = 'tap'\n[tap]\nreport-interval = '10m'\nduration = '5s'",
            "report-interval = 600s is longer than duration = 5s",
        ),
        (
            "command = 'tap'\n[tap]\nfloor-duration = '10m'\nduration = '5s'",
            "floor-duration = 600s is longer than duration = 5s",
        ),
        (
            "command = 'cost'\n[cost]\nblock-duration = '10m'",
            "block-duration = 600s is longer than duration = 30s",
        ),
        (
            "command = 'load'\n[load]\nwarm-up = '10m'\nduration = '5s'",
            "warm-up = 600s is longer than duration = 5s",
        ),
        (
            "command = 'scale'\n[scale]\nwarm-up = '10m'",
            "warm-up = 600s is longer than duration = 5s",
        ),
    ] {
        let error = said(plan).unwrap_err();
        assert!(error.contains(key), "{plan}: {error}");
    }
    let exposure = format!(
        "command = 'exposure'\n{target}[exposure]\nreport-interval = '10m'\nduration = '5s'"
    );
    assert!(
        said(&exposure)
            .unwrap_err()
            .contains("report-interval = 600s is longer than duration = 5s")
    );
    // Defaults that a short run's plan.toml spells out.
    for plan in [
        "command = 'tap'\n[tap]\nfloor-duration = '5s'\nreport-interval = '1s'\nduration = '2s'",
        "command = 'load'\n[load]\nwarm-up = '2s'\nduration = '1s'",
    ] {
        said(plan).unwrap();
    }
    said("command = 'tap'\n[tap]\nreport-interval = '10m'").unwrap();
}

use proptest::prelude::*;
use replimeter_model::envelope::Envelope;

use super::*;

/// The settings with all defaults, and the resolved measurement.
fn plan(text: &str) -> Result<(StaleSettings, StalePlan), PlanError> {
    let mut settings: StaleSettings = toml::from_str(text).unwrap();
    let (_, plan) = settings.plan(&mut TargetSettings::default())?;
    Ok((settings, plan))
}

#[test]
fn cases_print_and_parse_back() {
    for text in ["none", "oltp-mix:32@node1", "insert:1@a + mix:2@b"] {
        assert_eq!(text.parse::<LoadCase>().unwrap().to_string(), text);
    }
    assert!("insert:1@a + none".parse::<LoadCase>().is_err());
}

#[test]
fn offsets_are_sorted_and_unique() {
    let ReadDelays::At(spans) = "1ms, 0,100us,1ms".parse().unwrap() else {
        panic!("a list")
    };
    assert_eq!(
        spans,
        [
            TimeSpan::from_secs(0),
            "100us".parse().unwrap(),
            TimeSpan::from_millis(1)
        ]
    );
    assert!("61s".parse::<ReadDelays>().is_err() && "".parse::<ReadDelays>().is_err());
}

#[test]
fn judged_connections_are_parsed_as_loads() {
    let plan = plan("check-load-reads = '4:8'\nload = ['insert:1@b']\nrows = 70")
        .unwrap()
        .1;
    assert_eq!(
        plan.cases[0].to_string(),
        "insert:1@b + versioned-update:4@writer + versioned-select:8@readers"
    );
    assert_eq!(
        (plan.check_load_reads, plan.load_data_size),
        (true, Some(DataSize::Rows(70)))
    );
    assert!(
        "8".parse::<CheckedLoadReads>()
            .unwrap_err()
            .contains("`load`")
    );
}

#[test]
fn contradictory_settings_are_refused() {
    for (spec, want) in [
        ("rounds = 1\nduration = '1s'", "not both"),
        ("rounds = 0", "at least 1"),
        ("rows = 0", "rows must be"),
        ("timeout = '0s'", "timeout must be"),
        ("rate = 5", "requires a load"),
        (
            "check-load-reads = '2:2'\nrate = '60%'",
            "give operations per second",
        ),
        (
            "load = ['insert:1@a']\nrate = '60%'\npace = 'ack'",
            "give operations per second",
        ),
        (
            "load = ['insert:1@a']\ncases = ['none']",
            "either load or cases",
        ),
        ("cases = ['none', 'none']", "given twice"),
        ("session-reset = 'reset'", "add read-consistency"),
        ("read-consistency = ['off', 'off']", "given twice"),
        ("reader = ['a', 'a']", "given twice"),
        ("check-load-reads = '2:2'\nrounds = 5", "give a duration"),
        ("starts = 0", "starts must be from 1"),
        ("starts = 3\nrounds = 2", "at least as many rounds"),
        (
            "check-load-reads = '2:2'\nread-delays = '0'",
            "leave out read-delays",
        ),
        ("check-load-reads = 'load'", "add load"),
        (
            "check-load-reads = '2:2'\nread-consistency = ['off', 'gtid']",
            "cannot be gtid",
        ),
    ] {
        let error = plan(spec).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
}

#[test]
fn rates_are_numbers_or_shares() {
    for (text, rate) in [
        ("5", LoadRate::PerSecond(5)),
        ("'5'", LoadRate::PerSecond(5)),
        ("'60%'", LoadRate::Percent(60)),
    ] {
        let text = format!("load = ['insert:1@a']\nrate = {text}");
        let (settings, plan) = plan(&text).unwrap();
        assert_eq!(plan.rate, Some(rate));
        let written = toml::to_string(&settings).unwrap();
        assert_eq!(toml::from_str::<StaleSettings>(&written).unwrap(), settings);
    }
    for text in ["0", "'0%'", "'101%'", "-1", "'%'", "1.5"] {
        let text = format!("load = ['insert:1@a']\nrate = {text}");
        assert!(toml::from_str::<StaleSettings>(&text).is_err(), "{text}");
    }
}

#[test]
fn starts_share_the_rounds_of_the_curve_too() {
    for (text, starts) in [
        ("", 10),
        ("rounds = 450", 4),
        ("duration = '3s'", 3),
        ("starts = 7", 7),
        ("read-consistency = ['off', 'on']", 10),
        ("load = ['insert:1@primary']", 10),
        ("cases = ['none', 'insert:1@primary']\nrounds = 200", 2),
        ("check-load-reads = '2:2'\nduration = '4s'", 4),
    ] {
        assert_eq!(plan(text).unwrap().1.starts, starts, "{text}");
    }
    let plan = plan("rounds = 1001\nstarts = 3\ncurve-rounds = 100")
        .unwrap()
        .1;
    let part = |start| {
        let part = plan.of_start(start);
        (part.until, part.curve_rounds, part.seed)
    };
    let rounds = StopCondition::Rounds;
    let parts = [
        (rounds(333), 33, 1),
        (rounds(334), 33, 2),
        (rounds(334), 34, 3),
    ];
    assert_eq!([part(1), part(2), part(3)], parts);
    let mut own = TargetSettings {
        sandbox: Some(vec!["work".parse().unwrap()]),
        ..TargetSettings::default()
    };
    let mut settings = StaleSettings {
        starts: Some(2),
        ..StaleSettings::default()
    };
    let error = settings.plan(&mut own).unwrap_err().to_string();
    assert!(error.contains("starts requires a sandbox"), "{error}");
}

#[test]
fn resolved_plan_parses_back() {
    for text in [
        "",
        "duration = '3s'\nread-consistency = ['off', 'on']\nsession-reset = ['keep', 'reset']",
        "cases = ['none', 'insert:8@writer']\nrate = 10\nread-delays = '0,1ms'\nreader = ['a', 'b']",
        "check-load-reads = '2:4'\nread-consistency = 'before'\nrows = 50",
        "check-load-reads = 'load'\nload = ['versioned:4@a', 'versioned:4@b']",
    ] {
        let once = plan(text).unwrap();
        let again = plan(&toml::to_string(&once.0).unwrap()).unwrap();
        assert_eq!(again, once, "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,40}") {
        let _ = (text.parse::<LoadCase>(), text.parse::<ReadDelays>(), text.parse::<ReadConsistency>(), text.parse::<CheckedLoadReads>());
    }
}

#[test]
fn settings_are_snake_case_in_json_and_read_back() {
    let settings = StaleSettings {
        keep_awake: Some(true),
        ..StaleSettings::default()
    };
    let run = Envelope {
        settings,
        results: 1,
        ..Envelope::default()
    };
    let json = serde_json::to_value(&run).unwrap();
    assert_eq!(json["settings"], serde_json::json!({"keep_awake": true}));
    assert_eq!(
        serde_json::from_value::<Envelope<StaleSettings, i32>>(json).unwrap(),
        run
    );
}

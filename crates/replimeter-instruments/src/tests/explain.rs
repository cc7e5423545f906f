//! Errors of plans in plain words.

use super::*;

#[test]
fn plan_without_command_lists_the_commands() {
    let error = command("title = 'mine'\n", &SECTIONS)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the key `command` is missing") && error.contains("lag, backlog, calibrate"),
        "{error}"
    );
}

#[test]
fn wrong_type_is_explained_without_words_of_the_program() {
    for (text, want) in [
        (
            "[lag]\nrounds = 'five'",
            "`rounds` must be a whole number, 0 or larger, and is 'five'; for example: rounds = ",
        ),
        (
            "[lag]\nrounds = -1",
            "`rounds` must be a whole number, 0 or larger, and is -1; for example: rounds = ",
        ),
        (
            "[lag]\ninterval = 5",
            "`interval` must be a text in quotes, and is 5; for example: interval = \"250us\"",
        ),
        (
            "[lag]\nmethod = ['poll', 'tap']",
            "`method` must be a text in quotes, and is ['poll', 'tap']; for example: method = \"poll,tap\"",
        ),
        (
            "[target]\nserver-options = 'a=1'",
            "`server-options` must be a list in brackets, and is 'a=1'; for example: server-options = [\"a=1\"]",
        ),
        (
            "[target]\nserver-options = [1]",
            "each value of the list `server-options` must be a text in quotes, and is 1",
        ),
        ("lag = 5", "`lag` is a section: write [lag], and its keys"),
        ("[[lag]]\nrounds = 5", "`lag` is a section: write [lag]"),
        ("[lag]\nround = 5", "unknown key `round`; known: method, "),
        (
            "[target]\nprimary = 'mysql://h/'\nreplicas = 'mysql://u:secret@b/'",
            "`replicas` must be a list in brackets; for example: replicas = [",
        ),
    ] {
        let text = format!("command = 'lag'\n{text}\n");
        let error = written(&text).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
        for word in [
            "invalid type",
            "u64",
            "sequence",
            "struct",
            "field",
            "secret",
        ] {
            assert!(!error.contains(word), "{word} in {error}");
        }
        assert!(error.contains("line "), "{error}");
    }
    let error = written("[lag]\n").unwrap_err().to_string();
    assert!(
        error.contains("the key `command` is missing: the measurement, one of lag"),
        "{error}"
    );
}

#[test]
fn only_whole_minutes_are_perhaps_milliseconds() {
    let refused = |text: &str| {
        let plan = PlanFile::<LoadSettings>::from_toml(text, &SECTIONS).unwrap();
        plan.plan().unwrap_err().to_string()
    };
    let longer = refused("command = 'load'\n[load]\nwarm-up = '60s'\nduration = '30s'");
    assert!(
        longer.contains("is longer than duration = 30s") && !longer.contains("1ms"),
        "{longer}"
    );
    let long = refused("command = 'load'\n[load]\nwarm-up = '120m'\nduration = '3h'");
    assert!(
        long.contains("if you wrote 120m") && long.contains("120ms"),
        "{long}"
    );
}

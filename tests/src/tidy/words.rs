//! Words and phrases that are not used, and one spelling for each term.

use super::sources::{Prose, prose};

/// Phrases that are not used, each with its replacement.
const PHRASES: [(&str, &str); 62] = [
    ("anybody", "anyone, or the client or session that does it"),
    ("anew", "again"),
    ("beat", "interval"),
    ("beats", "intervals"),
    ("beside", "next to, besides, during or concurrently"),
    ("by turns", "alternately"),
    ("come to", "are, amount to"),
    ("comes to", "is, amounts to"),
    ("crew", "worker pool"),
    ("everybody", "all clients, every session"),
    ("for nothing", "without effect"),
    ("goes on", "continues"),
    ("gone round", "bypassed"),
    ("held against", "compared with"),
    ("in vain", "without effect"),
    ("is none", "there is no …, none exists"),
    ("keeper", "supervisor"),
    ("lone server", "standalone server"),
    ("look odd", "name the problem"),
    ("looks odd", "name the problem"),
    ("meanwhile", "during this time"),
    ("mend", "repair"),
    ("nobody", "no client, no session, no replica"),
    ("nought", "zero"),
    ("of ours", "of Replimeter"),
    ("of the tool's", "of Replimeter"),
    ("of yours", "your"),
    ("price of", "cost of"),
    ("primary knows", "a server does not know: state the fact"),
    ("primary says", "a server does not say: reports"),
    ("primary tells", "a server does not tell: reports"),
    ("replica knows", "a server does not know: state the fact"),
    ("replica says", "a server does not say: reports"),
    ("replica tells", "a server does not tell: reports"),
    ("run knows", "a run does not know: state the fact"),
    ("run says", "a run does not say: reports"),
    ("run tells", "a run does not tell: reports"),
    ("server knows", "a server does not know: state the fact"),
    ("server says", "a server does not say: reports"),
    ("server tells", "a server does not tell: reports"),
    ("server wants", "a server does not want: requires"),
    ("server's own word", "as the server reports"),
    ("servers know", "a server does not know: state the fact"),
    ("servers say", "a server does not say: report"),
    ("servers tell", "a server does not tell: report"),
    ("so long", "for this time, for N s"),
    ("so many", "this number of, N"),
    ("so often", "N times"),
    ("somebody", "another client, another session"),
    ("squad", "load group"),
    ("stand still", "stop"),
    ("stands still", "stops"),
    ("stood still", "stopped"),
    ("stretch", "window"),
    ("stretches", "windows"),
    ("there is nothing of", "name what is missing"),
    ("what is odd", "problems"),
    ("whatever", "any, regardless of"),
    ("whatever became of", "without waiting for"),
    ("whoever", "the client, the user"),
    ("without a word", "without a message"),
    ("yardstick", "reference"),
];

/// Spellings that are not used, and the one that is.
const SPELLINGS: [(&str, &str); 39] = [
    ("analyse", "analyze"),
    ("analysed", "analyzed"),
    ("artefact", "artifact"),
    ("behaviour", "behavior"),
    ("behaviours", "behaviors"),
    ("can not", "cannot"),
    ("catalogue", "catalog"),
    ("centre", "center"),
    ("check-sum", "checksum"),
    ("colour", "color"),
    ("coloured", "colored"),
    ("colours", "colors"),
    ("cancelled", "canceled"),
    ("dataset", "data set"),
    ("datasets", "data sets"),
    ("fail-over", "failover"),
    ("fail-overs", "failovers"),
    ("fall-back", "fallback"),
    ("favour", "favor"),
    ("filesystem", "file system"),
    ("flavour", "dialect"),
    ("flavours", "dialects"),
    ("grey", "gray"),
    ("honour", "honor"),
    ("judgement", "judgment"),
    ("labelled", "labeled"),
    ("licence", "license"),
    ("modelled", "modeled"),
    ("neighbour", "neighbor"),
    ("readonly", "read-only"),
    ("semisync", "semi-sync"),
    ("stand-alone", "standalone"),
    ("start-up", "startup"),
    ("time stamp", "timestamp"),
    ("time-out", "timeout"),
    ("time-outs", "timeouts"),
    ("warm up time", "warm-up"),
    ("warmup", "warm-up"),
    ("whilst", "while"),
];

/// Words in `-ise` that are no British spelling.
const KEPT_ISE: [&str; 34] = [
    "advise",
    "advised",
    "arise",
    "comprise",
    "comprises",
    "compromise",
    "concise",
    "devise",
    "disguise",
    "enterprise",
    "exercise",
    "exercised",
    "exercises",
    "expertise",
    "imprecise",
    "likewise",
    "noise",
    "otherwise",
    "praise",
    "schmeiser",
    "precise",
    "premise",
    "promise",
    "promised",
    "promises",
    "raise",
    "raised",
    "raises",
    "revise",
    "revised",
    "rise",
    "surprise",
    "wise",
    "arises",
];

const KEPT_ISING: [&str; 10] = [
    "advising",
    "arising",
    "comprising",
    "exercising",
    "noising",
    "promising",
    "raising",
    "revising",
    "rising",
    "surprising",
];

/// Returns the lines of all hits, and fails with them.
fn report(title: &str, mut found: Vec<String>) {
    found.sort();
    found.dedup();
    assert!(
        found.is_empty(),
        "{title} ({}):\n{}",
        found.len(),
        found.join("\n")
    );
}

fn hits(all: &[Prose], words: &[(&str, &str)]) -> Vec<String> {
    let mut found = Vec::new();
    for prose in all {
        for (not, but) in words {
            // A text of this one word is a value: a system user, the name of a phase.
            if prose.text.trim().eq_ignore_ascii_case(not) {
                continue;
            }
            let hit = |at: usize| format!("{}: `{not}`, write: {but}", prose.place(at));
            found.extend(prose.find(not).into_iter().map(hit));
        }
    }
    found
}

fn british(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let ise = ["ise", "ised", "ises", "iser", "isation", "isations"];
    word.len() > 5
        && !KEPT_ISE.contains(&word.as_str())
        && !KEPT_ISING.contains(&word.as_str())
        && !word.ends_with("wise")
        && (ise.iter().any(|end| word.ends_with(end)) || word.ends_with("ising"))
}

#[test]
fn banned_phrases_do_not_come_back() {
    report("phrases that are not used", hits(&prose(), &PHRASES));
}

#[test]
fn every_term_has_one_spelling() {
    let all = prose();
    let mut found = hits(&all, &SPELLINGS);
    for prose in &all {
        let inside = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '-';
        let mut at = 0;
        for word in prose.text.split(|letter| !inside(letter)) {
            if british(word) {
                found.push(format!("{}: `{word}`, write -ize", prose.place(at)));
            }
            at += word.len()
                + prose.text[at + word.len()..]
                    .chars()
                    .next()
                    .map_or(0, char::len_utf8);
        }
    }
    report("spellings that are not used", found);
}

#[test]
fn words_are_compared_in_lowercase() {
    for (not, _) in PHRASES.iter().chain(&SPELLINGS) {
        assert_eq!(*not, not.to_lowercase(), "words are compared in lower case");
    }
    assert!(
        british("recognised")
            && british("organisation")
            && !british("promised")
            && !british("otherwise")
    );
}

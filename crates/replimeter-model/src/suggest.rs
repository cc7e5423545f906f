//! "Did you mean": the known word nearest to a misspelled one.

/// Returns the word of `known` that is nearest to `wrong`, if one is near enough.
#[must_use]
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_lowercase().replace('_', "-");
    // One slip in three letters, and always one; a swap of two letters is one slip.
    let slips = (wrong.chars().count() / 3).max(1);
    let distance = |word: &str| {
        let short = word.len().min(wrong.len());
        // The beginning of a word, as `semi` or `conn`, is meant as often as a slip.
        if short >= 3 && (word.starts_with(&wrong) || wrong.starts_with(word)) {
            return 1;
        }
        strsim::damerau_levenshtein(&wrong, word)
    };
    let near = known.into_iter().filter(|word| distance(word) <= slips);
    // Of several words with this beginning, the one with the fewest more letters.
    near.min_by_key(|word| (distance(word), strsim::damerau_levenshtein(&wrong, word)))
}

/// Returns the same as a part of a sentence, ` (did you mean ...?)`; empty when nothing is near.
#[must_use]
pub fn hint<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(wrong, known).map_or_else(String::new, |word| format!(" (did you mean `{word}`?)"))
}

/// Parses serde's message about an unknown key or value: returns the word, and the known ones.
pub(crate) fn unknown(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message
        .strip_prefix("unknown field ")
        .or_else(|| message.strip_prefix("unknown variant "))?;
    let mut quoted = rest.split('`').skip(1).step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misspelling_is_suggested_and_unrelated_is_not() {
        let known = [
            "method",
            "rounds",
            "seed",
            "warm-up",
            "semi-sync",
            "replica-server",
            "replicas",
        ];
        for (wrong, want) in [
            ("rouns", Some("rounds")),
            ("Rounds", Some("rounds")),
            ("warm_up", Some("warm-up")),
            ("semi", Some("semi-sync")),
            ("sede", Some("seed")),
            ("replica", Some("replicas")),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(nearest(wrong, known), want, "{wrong}");
        }
    }

    #[test]
    fn serde_messages_are_parsed() {
        assert_eq!(
            unknown("unknown field `x`, expected `a` or `b`"),
            Some(("x", vec!["a", "b"]))
        );
        assert_eq!(
            unknown("unknown variant `x`, expected one of `a`, `b`, `c`"),
            Some(("x", vec!["a", "b", "c"]))
        );
        assert_eq!(
            unknown("unknown field `x`, there are no fields"),
            Some(("x", vec![]))
        );
        assert_eq!(unknown("invalid type: string"), None);
    }
}

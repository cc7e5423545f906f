//! Transactions that the old primary has but the new one has not.

use std::fmt::Write as _;

use replimeter_engine::dialect::gtid::{DomainGtid, Executed};

/// Returns the number of errant transactions and their GTIDs; `None` where they cannot be determined.
pub(super) fn errant(old: &Executed, new: &Executed) -> Option<(u64, String)> {
    match (old, new) {
        (Executed::Set(old), Executed::Set(new)) => {
            let more = old.subtract(new);
            Some((more.count(), more.to_string()))
        }
        (Executed::Domains { logged: old, .. }, Executed::Domains { logged, applied }) => {
            Some(of_domains(old, logged, applied))
        }
        _ => None,
    }
}

/// A server reports only its last number of each domain and origin; the transactions between the two
/// last numbers exist on only one server.
fn of_domains(old: &[DomainGtid], logged: &[DomainGtid], applied: &[DomainGtid]) -> (u64, String) {
    let (mut count, mut text) = (0u64, String::new());
    for last in old {
        let known = logged
            .iter()
            .chain(applied)
            .filter(|one| (one.domain, one.server) == (last.domain, last.server));
        let has = known.map(|one| one.sequence).max().unwrap_or(0);
        if last.sequence <= has {
            continue;
        }
        count = count.saturating_add(last.sequence - has);
        let first = DomainGtid {
            sequence: has + 1,
            ..*last
        };
        let separator = if text.is_empty() { "" } else { "," };
        let _ = if first == *last {
            write!(text, "{separator}{last}")
        } else {
            write!(text, "{separator}{first}…{last}")
        };
    }
    (count, text)
}

#[cfg(test)]
mod tests {
    use replimeter_engine::dialect::gtid::{GtidSet, domain_gtids};

    use super::*;

    #[test]
    fn errant_rest_is_computed_in_both_dialects() {
        let set = |text: &str| Executed::Set(GtidSet::parse(text).unwrap());
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let rest = errant(
            &set(&format!("{uuid}:1-10")),
            &set(&format!(
                "{uuid}:1-7,4e11fa47-71ca-11e1-9e33-c80aa9429562:1"
            )),
        );
        assert_eq!(rest, Some((3, format!("{uuid}:8-10"))));
        let domains = |logged: &str, applied: &str| Executed::Domains {
            logged: domain_gtids(logged).unwrap(),
            applied: domain_gtids(applied).unwrap(),
        };
        let rest = errant(&domains("0-1-10", ""), &domains("0-1-7,0-2-8", "0-1-7"));
        assert_eq!(rest, Some((3, "0-1-8…0-1-10".to_owned())));
        assert_eq!(
            errant(&domains("0-1-8", ""), &domains("0-1-7", "")),
            Some((1, "0-1-8".to_owned()))
        );
        assert_eq!(
            errant(&domains("0-1-7", ""), &domains("", "0-1-7")),
            Some((0, String::new()))
        );
        assert_eq!(
            errant(&Executed::Unknown(String::new()), &domains("", "")),
            None
        );
    }
}

//! Which of the watched servers takes the writes, by what all of them report now.

use replimeter_engine::{dialect::Channel, identity::Identity, membership::ClusterState};

/// A server that has answered lately.
pub(super) struct Reported<'a> {
    /// Which one it is.
    pub(super) index: usize,
    pub(super) identity: Option<&'a Identity>,
    /// Its channels to other servers; `None` if they are not known.
    pub(super) channels: Option<&'a [Channel]>,
    /// Its state in its cluster; `None` if it is in none, or has left.
    pub(super) member: Option<&'a ClusterState>,
}

/// Returns the server that takes the writes: of a cluster with one writer, that one; of others, the one that replicates from no server
/// and that most of them replicate from. One that was the primary, or is declared to be (`before`), stays unless another has replaced
/// it.
pub(super) fn primary(reported: &[Reported<'_>], before: Option<usize>) -> Option<usize> {
    let writer = reported
        .iter()
        .find(|one| one.member.and_then(ClusterState::takes_writes) == Some(true));
    if let Some(writer) = writer {
        return Some(writer.index);
    }
    let takes_none =
        |one: &Reported<'_>| one.member.and_then(ClusterState::takes_writes) == Some(false);
    if reported.iter().any(takes_none) {
        // Its writer has not answered.
        return before;
    }
    let active = |one: &&Reported<'_>| one.member.is_some_and(ClusterState::active);
    if let Some(first) = reported.iter().find(active) {
        let stays = reported
            .iter()
            .any(|one| Some(one.index) == before && active(&one));
        return if stays { before } else { Some(first.index) };
    }
    let mut best: Option<(usize, usize)> = None;
    for one in reported {
        if one.channels.is_none_or(|channels| !channels.is_empty()) {
            continue;
        }
        let Some(identity) = one.identity else {
            continue;
        };
        let comes_from = |other: &&Reported<'_>| {
            other
                .channels
                .unwrap_or_default()
                .iter()
                .any(|channel| channel.comes_from(identity))
        };
        let replicas = reported.iter().filter(comes_from).count();
        let is_better = best.is_none_or(|(index, most)| {
            replicas > most
                || (replicas == most && Some(one.index) == before && Some(index) != before)
        });
        if is_better {
            best = Some((one.index, replicas));
        }
    }
    match (best, before) {
        // Nobody replicates from it: that does not replace another one.
        (Some((_, 0)), Some(before)) => Some(before),
        (Some((index, _)), _) => Some(index),
        (None, before) => before,
    }
}

#[cfg(test)]
mod tests {
    use replimeter_engine::{
        dialect::group::{GroupState, Member},
        identity::RecordedIdentity,
    };

    use super::*;

    fn identity(number: u64) -> Identity {
        let one = Identity {
            server_id: number,
            uuid: String::new(),
            place: format!("db{number}"),
        };
        RecordedIdentity::of(Some(one.clone()))
            .first()
            .cloned()
            .unwrap_or(one)
    }

    fn from(source: u64) -> Vec<Channel> {
        vec![Channel {
            source_server_id: source,
            ..Channel::default()
        }]
    }

    /// Returns the primary of servers that replicate from these servers; 0 for none.
    fn found(sources: &[(usize, u64)], before: Option<usize>) -> Option<usize> {
        let all: Vec<(usize, Identity, Vec<Channel>)> = sources
            .iter()
            .map(|(index, source)| {
                let channels = if *source == 0 {
                    Vec::new()
                } else {
                    from(*source)
                };
                (*index, identity(*index as u64 + 1), channels)
            })
            .collect();
        let reported: Vec<Reported<'_>> = all
            .iter()
            .map(|(index, identity, channels)| Reported {
                index: *index,
                identity: Some(identity),
                channels: Some(channels),
                member: None,
            })
            .collect();
        primary(&reported, before)
    }

    #[test]
    fn member_that_takes_no_writes_is_never_the_primary() {
        let member = |uuid: &str| {
            let other = |uuid: &str, role: &str| Member {
                uuid: uuid.to_owned(),
                state: "ONLINE".to_owned(),
                role: role.to_owned(),
                ..Member::default()
            };
            ClusterState::Group(GroupState {
                uuid: uuid.to_owned(),
                members: vec![other("a", "SECONDARY"), other("b", "PRIMARY")],
                single_primary: true,
                ..GroupState::default()
            })
        };
        let (secondary, writer) = (member("a"), member("b"));
        let reported = |index, member| Reported {
            index,
            identity: None,
            channels: Some(&[]),
            member: Some(member),
        };
        assert_eq!(primary(&[reported(0, &secondary)], None), None);
        assert_eq!(primary(&[reported(0, &secondary)], Some(1)), Some(1));
        let both = [reported(0, &secondary), reported(1, &writer)];
        assert_eq!(primary(&both, Some(0)), Some(1));
    }

    #[test]
    fn primary_is_found_and_a_failover_followed() {
        assert_eq!(found(&[(0, 2), (1, 0), (2, 2)], Some(0)), Some(1));
        assert_eq!(found(&[(0, 0), (1, 1), (2, 2)], None), Some(0), "a chain");
        // The old primary is gone, and has returned without a channel.
        assert_eq!(found(&[(1, 0), (2, 2)], Some(0)), Some(1));
        assert_eq!(found(&[(0, 0), (1, 0), (2, 2)], Some(0)), Some(1));
        assert_eq!(found(&[(0, 0), (1, 0), (2, 2)], Some(1)), Some(1));
        // Its replicas still point to it.
        assert_eq!(found(&[(1, 1), (2, 1)], Some(0)), Some(0));
        // A replica that was reset takes no place.
        assert_eq!(found(&[(0, 0), (1, 0)], Some(0)), Some(0));
        assert_eq!(
            found(&[(0, 2), (1, 1)], Some(0)),
            Some(0),
            "two that replicate from each other"
        );
        assert_eq!(found(&[], Some(2)), Some(2));
        assert_eq!(found(&[], None), None);
    }
}

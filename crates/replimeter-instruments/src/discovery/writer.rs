//! Determines the writer among several servers.

use replimeter_engine::{ServerError, source::Member};
use replimeter_model::target::Role;

use super::{ChannelSources, DiscoveredServer, reaches};

/// Returns the index of the writer: the declared primary, or that of a group, or the server that
/// replicates from none of the others.
pub(super) fn writer(
    servers: &[DiscoveredServer],
    declared: &[Member],
    sources: &ChannelSources,
) -> Result<usize, ServerError> {
    let primary = |declared: &Member| declared.role == Some(Role::Primary);
    if let Some(index) = declared.iter().position(primary) {
        return confirm(servers, index, sources).map(|()| index);
    }
    match primary_of_group(servers)? {
        Some(index) => Ok(index),
        None => root(servers, declared, sources),
    }
}

/// Checks that neither its group nor its channels contradict that a server is the primary.
fn confirm(
    servers: &[DiscoveredServer],
    index: usize,
    sources: &ChannelSources,
) -> Result<(), ServerError> {
    let operation = "cannot be the primary";
    let session = &servers[index].session;
    if let Some(group) = servers[index].membership.group()
        && let Some(own) = group.own_member().filter(|own| own.role == "SECONDARY")
    {
        let primary = group.members.iter().find(|member| member.role == "PRIMARY");
        return Err(session.precondition(
            operation,
            format!(
                "it is declared the primary, but in its group it is {} and the primary is {}",
                own.role,
                primary.map_or("unknown", |member| &member.address)
            ),
            "name the group's primary as the primary, or leave the roles out",
        ));
    }
    // Servers that replicate in a ring usually have one writer.
    let of = |at: usize| sources[at].iter().flatten().copied();
    if let Some(source) = of(index).find(|source| !reaches(of, *source, index)) {
        let source = &servers[source].session;
        return Err(session.precondition(
            operation,
            format!("it is declared the primary, but it replicates from {source}"),
            format!(
                "declare {} the primary, or repair replication",
                source.name()
            ),
        ));
    }
    Ok(())
}

/// Returns the primary of a group that has one.
fn primary_of_group(servers: &[DiscoveredServer]) -> Result<Option<usize>, ServerError> {
    let group = servers
        .iter()
        .filter_map(|server| server.membership.group())
        .find(|group| {
            group.single_primary && group.own_member().is_some_and(|own| own.state == "ONLINE")
        });
    let primary =
        group.and_then(|group| group.members.iter().find(|member| member.role == "PRIMARY"));
    let Some(primary) = primary else {
        return Ok(None);
    };
    let named = servers
        .iter()
        .position(|server| server.facts.identity().uuid == primary.uuid);
    named.map(Some).ok_or_else(|| {
        servers[0].session.precondition(
            "is a member of a group whose primary is not named",
            format!("the group's primary is {}", primary.address),
            "name it too: it is the only member that takes writes",
        )
    })
}

/// Returns the only server, or cluster, that replicates from none of the others.
fn root(
    servers: &[DiscoveredServer],
    declared: &[Member],
    sources: &ChannelSources,
) -> Result<usize, ServerError> {
    let replica = |index: &usize| declared[*index].role == Some(Role::Replica);
    let roots: Vec<usize> = (0..servers.len())
        .filter(|index| sources[*index].iter().all(Option::is_none))
        .filter(|index| !replica(index))
        .collect();
    match roots.as_slice() {
        [] => Err(servers[0].session.precondition(
            "cannot determine which server is the primary",
            "every server replicates from another one",
            "declare the server that takes the writes as the primary",
        )),
        [first, rest @ ..] => {
            // Members of one cluster are equal: the first one named is the writer.
            let of_first = &servers[*first].membership;
            let stranger = rest
                .iter()
                .find(|other| !of_first.same_cluster(&servers[**other].membership));
            match stranger {
                None => Ok(*first),
                Some(other) => Err(servers[*other].session.precondition(
                    "cannot determine which server is the primary",
                    format!(
                        "neither it nor {} replicates from any of the others",
                        servers[*first].session
                    ),
                    "check replication and that these servers belong to one cluster; declare the one that takes the writes as the primary",
                )),
            }
        }
    }
}

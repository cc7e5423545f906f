//! Ends a run whose connections do not always reach the same server.

use std::{cell::RefCell, rc::Rc};

use replimeter_engine::{identity::RecordedIdentity, source::Member};

use crate::{
    cli_error::CliError,
    event::{Event, Flow, Observer},
};

/// The servers that the connections of a run have reached.
#[derive(Clone, Default)]
pub(super) struct ReachedServers(Rc<RefCell<Vec<RecordedIdentity>>>);

impl ReachedServers {
    /// Adds servers of a target.
    pub(super) fn add(&self, members: &[Member]) {
        let identities = members.iter().map(|member| member.node.identity.clone());
        self.0.borrow_mut().extend(identities);
    }

    /// Returns the failure if a connection has reached another server than the named one, also one of a thread that continues without it.
    pub(super) fn failure(&self) -> Option<CliError> {
        let servers = self.0.borrow();
        let other = servers.iter().find_map(RecordedIdentity::other);
        other.map(|error| error.clone().into())
    }
}

impl Observer for ReachedServers {
    fn event(&mut self, _: Event<'_>) -> Result<Flow, CliError> {
        Ok(self
            .failure()
            .map_or(Flow::Continue, |failure| Flow::Finish(failure.warning())))
    }
}

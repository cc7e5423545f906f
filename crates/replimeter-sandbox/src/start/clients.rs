//! Links between clients and servers.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Started, Starter};
use crate::{error::SandboxError, link::LinkSettings, network};

impl Starter<'_> {
    /// Puts a link in front of each server, if requested, and makes clients use it.
    pub(super) fn put_client_links(&self, started: &mut [Started]) -> Result<(), SandboxError> {
        let Some(delay) = self.settings.spec.client_link else {
            return Ok(());
        };
        let settings = LinkSettings {
            delay: delay.0,
            ..LinkSettings::default()
        };
        for server in started {
            let member = &mut server.member;
            let name = format!("client-{}", member.node.name);
            let (to, port) = (member.node.namespace.clone(), member.node.endpoint.port);
            let start = || -> io::Result<_> {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                network::link_from(&name, listener, to, port, settings)
            };
            let link = start().map_err(|source| SandboxError::Link {
                name: name.clone(),
                source,
            })?;
            member.client_node.endpoint.port = link.address().port();
            member.client_node.namespace = None;
            self.open_client_links().push(link);
        }
        Ok(())
    }
}

/// Lets this process open as many files as it may: each connection through a link takes three more. Before the first server starts, so
/// that all get the same limit.
pub(super) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // Without it, only a load of many connections fails, and says why.
    let _ = setrlimit(Resource::Nofile, raised);
}

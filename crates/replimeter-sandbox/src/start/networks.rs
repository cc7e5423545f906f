//! A network namespace for each member of a cluster, when links are requested.

use std::io;

use replimeter_engine::namespace::Namespace;
use replimeter_model::replication::Mode;

use super::{Ports, Starter, link_settings};
use crate::{
    error::SandboxError,
    link::LinkSettings,
    network::{self, ServerLinks},
};

/// The name of the link that leads clients to a member; it has no delay.
const CLIENTS: &str = "clients";

impl Starter<'_> {
    /// Returns the ports on which members connect to one another.
    fn between_members(&self, ports: &Ports) -> Vec<u16> {
        let Ports {
            sql,
            group,
            incremental,
            transfer,
        } = *ports;
        match self.mode() {
            Mode::Galera => vec![group, incremental, transfer],
            // A member that joins fetches missing transactions like any replica.
            _ => vec![group, sql],
        }
    }

    /// Returns networks with links between every two of them; none when no link is requested.
    pub(super) fn networks(
        &self,
        names: &[String],
        ports: &[Ports],
    ) -> Result<Vec<Namespace>, SandboxError> {
        let Some(spec) = &self.settings.spec.link else {
            return Ok(Vec::new());
        };
        let refuse = |source: io::Error| {
            SandboxError::Impossible {
            what: format!(
                "no link can be put between the members of {}: each needs its own network namespace, which the system refuses to create ({source})",
                self.settings.spec.shape
            ),
            hint: "run it as root, in a container with the capabilities SYS_ADMIN and NET_ADMIN (members exchange their addresses and would bypass a link in front of a port); \
                links for async:N, semi-sync:N and chain:N need no privilege"
                .to_owned(),
        }
        };
        let networks = names
            .iter()
            .map(|_| network::create())
            .collect::<io::Result<Vec<_>>>()
            .map_err(refuse)?;
        let settings = link_settings(spec);
        for one in 0..names.len() {
            // From the caller's network directly to the member: for clients that Replimeter does
            // not start.
            let name = format!("{CLIENTS}-{}", names[one]);
            let put = |from: Option<&Namespace>,
                       to: usize,
                       port: u16,
                       settings: LinkSettings,
                       name: &str| {
                network::link(name, from, &networks[to], port, settings).map_err(|source| {
                    SandboxError::Link {
                        name: name.to_owned(),
                        source,
                    }
                })
            };
            let clients = put(None, one, ports[one].sql, LinkSettings::default(), &name)?;
            self.open_client_links().push(clients);
            for other in one + 1..names.len() {
                let name = format!("{}-{}", names[one], names[other]);
                let mut links = Vec::new();
                for (from, to) in [(one, other), (other, one)] {
                    for port in self.between_members(&ports[to]) {
                        links.push(put(Some(&networks[from]), to, port, settings, &name)?);
                    }
                }
                self.open_links().push(ServerLinks { name, links });
            }
        }
        Ok(networks)
    }
}

//! A Galera cluster of clones with a common last view, so that none needs a state transfer.

use std::path::Path;

use replimeter_engine::dialect::galera::node_state;

use super::{PROVIDER_OPTIONS, Ports, Started, Starter, option_value};
use crate::{
    access::write_private, binaries::Install, capabilities::Capabilities, error::SandboxError,
};

impl Starter<'_> {
    /// Writes a view with every node of this sandbox: with it the nodes find their quorum
    /// automatically (Galera's `pc.recovery`).
    pub(super) fn write_view(
        &self,
        data: &Path,
        index: usize,
        count: usize,
    ) -> Result<(), SandboxError> {
        if count == 1 {
            return Ok(());
        }
        let path = data.join("gvwstate.dat");
        let mut text = format!(
            "my_uuid: {}\n#vwbeg\nview_id: 3 {} 1\nbootstrap: 0\n",
            self.identity.uuid(index),
            self.identity.uuid(0)
        );
        for member in 0..count {
            text.push_str(&format!("member: {} 0\n", self.identity.uuid(member)));
        }
        text.push_str("#vwend\n");
        // Never through a link: the folder already belongs to the servers' user.
        write_private(&path, &text).map_err(SandboxError::disk("write", &path))?;
        self.settings
            .home
            .user()
            .own(&path)
            .map_err(SandboxError::disk("change the owner of", &path))
    }

    /// Returns the arguments of a node.
    pub(super) fn galera_arguments(
        &self,
        install: &Install,
        index: usize,
        names: &[String],
        ports: &[Ports],
    ) -> Result<Vec<String>, SandboxError> {
        let Capabilities {
            galera: Some(library),
            ..
        } = &install.capabilities
        else {
            // `require` has already refused such a server.
            return Err(SandboxError::Impossible {
                what: "the server has no Galera library".to_owned(),
                hint: String::new(),
            });
        };
        let own = ports[index];
        // A single node has no quorum to find: it bootstraps its cluster.
        let alone = ports.len() == 1;
        let addresses: Vec<String> = ports
            .iter()
            .map(|ports| format!("127.0.0.1:{}", ports.group))
            .collect();
        let mut provider = format!(
            "base_port={};gmcast.listen_addr=tcp://127.0.0.1:{};ist.recv_addr=127.0.0.1:{}",
            own.group, own.group, own.incremental
        );
        let options: Vec<_> = self
            .settings
            .spec
            .server_options
            .iter()
            .filter(|option| option.is_for(&names[index]))
            .map(|option| option.option.clone())
            .collect();
        if let Some(more) = option_value(&options, PROVIDER_OPTIONS) {
            provider = format!("{};{provider}", more.trim_end_matches(';'));
        }
        let mut arguments = vec![
            "--wsrep-on=ON".to_owned(),
            format!("--wsrep-provider={}", library.display()),
            // At most 32 bytes.
            format!("--wsrep-cluster-name=replimeter-{}", self.identity.short()),
            format!(
                "--wsrep-cluster-address=gcomm://{}",
                if alone {
                    String::new()
                } else {
                    addresses.join(",")
                }
            ),
            format!("--wsrep-node-name={}", names[index]),
            format!("--wsrep-node-address=127.0.0.1:{}", own.group),
            format!("--wsrep-node-incoming-address=127.0.0.1:{}", own.sql),
            format!("--wsrep-sst-receive-address=127.0.0.1:{}", own.transfer),
            "--wsrep-sst-method=rsync".to_owned(),
            "--innodb-autoinc-lock-mode=2".to_owned(),
            // With these the nodes' binary logs have the same GTIDs.
            "--wsrep-gtid-mode=ON".to_owned(),
            "--wsrep-gtid-domain-id=1".to_owned(),
            format!("--gtid-domain-id={}", 11 + index),
            format!("--wsrep-provider-options={provider}"),
        ];
        if alone {
            arguments.push("--wsrep-new-cluster".to_owned());
        }
        Ok(arguments)
    }

    /// Waits until every node reports that it is synced in a cluster of all nodes.
    pub(super) fn await_galera(&self, started: &[Started]) -> Result<(), SandboxError> {
        let size = started.len() as u64;
        self.on_all(started, |server| {
            self.await_state(server, |session| {
                let state = node_state(session)?.unwrap_or_default();
                Ok((!(state.synced() && state.size == size)).then(|| state.description()))
            })
        })
    }
}

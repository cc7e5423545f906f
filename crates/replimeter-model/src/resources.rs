//! Resources that servers used: processor time, context switches, input and output.
//!
//! A field is null when neither the system nor the server reports it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Source of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UseSource {
    /// `/proc` and the server's counters.
    Process,
    /// The server's counters only: it runs elsewhere, or its process is not accessible.
    #[default]
    Status,
}

/// Resources that one server used in a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerUse {
    /// `primary`, `replica1`, …
    pub name: String,
    /// `primary`, `replica` or `node`.
    pub role: String,
    /// Source of the figures.
    pub source: UseSource,
    /// Length of the period.
    pub length_us: f64,
    /// Processor time of all threads, including those that have ended.
    pub cpu_us: Option<f64>,
    /// Processor time outside the kernel: `cpu_us`, divided in proportion to the kernel's coarser
    /// clock.
    pub cpu_user_us: Option<f64>,
    /// Processor time in the kernel.
    pub cpu_system_us: Option<f64>,
    /// Context switches of every thread.
    pub context_switches: Option<f64>,
    /// Context switches by the scheduler, not by waiting.
    pub involuntary_switches: Option<f64>,
    /// Bytes fetched from storage.
    pub read_bytes: Option<f64>,
    /// Bytes sent, or to be sent, to storage.
    pub write_bytes: Option<f64>,
    /// Reads as the storage engine counts them.
    pub reads: Option<f64>,
    /// Writes as the storage engine counts them.
    pub writes: Option<f64>,
    /// Flushes to storage as the engine counts them; a binary log's own are not among them.
    pub fsyncs: Option<f64>,
    /// Groups in which transactions were committed to the binary log (MariaDB): with
    /// `sync_binlog=1` each is a flush.
    #[serde(rename = "binlog_groups")]
    pub log_groups: Option<f64>,
    /// Bytes received from clients and replicas.
    pub received_bytes: Option<f64>,
    /// Bytes sent to clients and replicas.
    pub sent_bytes: Option<f64>,
    /// Bytes received from and sent to the other nodes of a Galera cluster.
    pub cluster_bytes: Option<f64>,
    /// Rows read.
    pub rows_read: Option<f64>,
    /// Rows inserted, updated and deleted; on MariaDB a replica's bookkeeping of positions is among them.
    pub rows_written: Option<f64>,
}

/// Resources that one server used per operation of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PerOperation {
    /// `primary`, `replica1`, …
    pub name: String,
    /// `primary`, `replica` or `node`.
    pub role: String,
    /// Processor time.
    pub cpu_us_per_op: Option<f64>,
    /// Processor time outside the kernel.
    pub cpu_user_us_per_op: Option<f64>,
    /// Processor time in the kernel.
    pub cpu_system_us_per_op: Option<f64>,
    /// Context switches of every thread.
    pub context_switches_per_op: Option<f64>,
    /// Bytes fetched from storage.
    pub read_bytes_per_op: Option<f64>,
    /// Bytes sent to storage.
    pub write_bytes_per_op: Option<f64>,
    /// Reads as the storage engine counts them.
    pub reads_per_op: Option<f64>,
    /// Writes as the storage engine counts them.
    pub writes_per_op: Option<f64>,
    /// Flushes as the storage engine counts them.
    pub fsyncs_per_op: Option<f64>,
    /// Groups committed to the binary log (MariaDB).
    #[serde(rename = "binlog_groups_per_op")]
    pub log_groups_per_op: Option<f64>,
    /// Bytes received from clients and replicas.
    pub received_bytes_per_op: Option<f64>,
    /// Bytes sent to clients and replicas.
    pub sent_bytes_per_op: Option<f64>,
    /// Bytes to and from a cluster's other nodes.
    pub cluster_bytes_per_op: Option<f64>,
    /// Rows read.
    pub rows_read_per_op: Option<f64>,
    /// Rows inserted, updated and deleted.
    pub rows_written_per_op: Option<f64>,
}

impl ServerUse {
    /// Returns all figures, in a fixed order.
    fn figures(&mut self) -> [&mut Option<f64>; 16] {
        [
            &mut self.cpu_us,
            &mut self.cpu_user_us,
            &mut self.cpu_system_us,
            &mut self.context_switches,
            &mut self.involuntary_switches,
            &mut self.read_bytes,
            &mut self.write_bytes,
            &mut self.reads,
            &mut self.writes,
            &mut self.fsyncs,
            &mut self.log_groups,
            &mut self.received_bytes,
            &mut self.sent_bytes,
            &mut self.cluster_bytes,
            &mut self.rows_read,
            &mut self.rows_written,
        ]
    }

    /// Adds the uses of the same servers in another window, in the same order, to their sums.
    pub fn add_all(sums: &mut Vec<Self>, more: &[Self]) {
        if sums.is_empty() {
            *sums = more.to_vec();
        } else {
            let sums = sums.iter_mut().zip(more);
            sums.for_each(|(sum, more)| sum.add(more));
        }
    }

    /// Adds the same server's use in another window; a figure that is unknown in one
    /// window is unknown in the sum.
    pub fn add(&mut self, other: &Self) {
        self.length_us += other.length_us;
        let mut other = other.clone();
        for (one, more) in self.figures().into_iter().zip(other.figures()) {
            *one = one.zip(*more).map(|(one, more)| one + more);
        }
    }

    /// Returns the processor time in percent of one core.
    #[must_use]
    pub fn cpu_percent(&self) -> Option<f64> {
        self.cpu_us
            .filter(|_| self.length_us > 0.0)
            .map(|cpu| cpu / self.length_us * 100.0)
    }

    /// Returns one of its figures per second.
    #[must_use]
    pub fn per_s(&self, figure: Option<f64>) -> Option<f64> {
        figure
            .filter(|_| self.length_us > 0.0)
            .map(|figure| figure / self.length_us * 1e6)
    }

    /// Returns the use per operation; all null without operations.
    #[must_use]
    pub fn per_operation(&self, operations: u64) -> PerOperation {
        let per = |figure: Option<f64>| {
            figure
                .filter(|_| operations > 0)
                .map(|figure| figure / operations as f64)
        };
        PerOperation {
            name: self.name.clone(),
            role: self.role.clone(),
            cpu_us_per_op: per(self.cpu_us),
            cpu_user_us_per_op: per(self.cpu_user_us),
            cpu_system_us_per_op: per(self.cpu_system_us),
            context_switches_per_op: per(self.context_switches),
            read_bytes_per_op: per(self.read_bytes),
            write_bytes_per_op: per(self.write_bytes),
            reads_per_op: per(self.reads),
            writes_per_op: per(self.writes),
            fsyncs_per_op: per(self.fsyncs),
            log_groups_per_op: per(self.log_groups),
            received_bytes_per_op: per(self.received_bytes),
            sent_bytes_per_op: per(self.sent_bytes),
            cluster_bytes_per_op: per(self.cluster_bytes),
            rows_read_per_op: per(self.rows_read),
            rows_written_per_op: per(self.rows_written),
        }
    }
}

impl PerOperation {
    /// Returns the processor time per operation of all servers of these roles together; `None` if one is unknown.
    pub fn cpu_of_roles<'a>(
        servers: impl Iterator<Item = &'a Self>,
        roles: &[&str],
    ) -> Option<f64> {
        let of_roles = servers.filter(|server| roles.contains(&server.role.as_str()));
        of_roles.map(|server| server.cpu_us_per_op).sum()
    }

    /// Returns the processor time per operation of all servers together; `None` if one is unknown, or there are none.
    pub fn cpu_of_all<'a>(servers: impl IntoIterator<Item = &'a Self>) -> Option<f64> {
        let mut servers = servers.into_iter().peekable();
        servers.peek()?;
        servers.map(|server| server.cpu_us_per_op).sum()
    }
}

/// Work that the storage engine of a server has postponed; null where the server does not show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PostponedWork {
    /// Pages that are changed in memory and not yet on disk.
    pub dirty_pages: Option<u64>,
    /// Transactions whose old row versions are not yet purged.
    pub history: Option<u64>,
}

impl PostponedWork {
    /// Returns each count that is known, and what it counts.
    pub fn counts(&self) -> impl Iterator<Item = (u64, &'static str)> {
        let counts = [
            (self.dirty_pages, "dirty pages"),
            (self.history, "transactions to purge"),
        ];
        let counts = counts.into_iter();
        counts.filter_map(|(count, what)| Some((count?, what)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used() -> ServerUse {
        ServerUse {
            name: "primary".to_owned(),
            length_us: 2e6,
            cpu_us: Some(1e6),
            write_bytes: Some(4000.0),
            ..ServerUse::default()
        }
    }

    #[test]
    fn per_operation_use_keeps_unknown_blank() {
        let per = used().per_operation(1000);
        assert_eq!(
            (per.cpu_us_per_op, per.write_bytes_per_op, per.fsyncs_per_op),
            (Some(1000.0), Some(4.0), None)
        );
        assert_eq!(used().per_operation(0).cpu_us_per_op, None);
        assert_eq!(used().cpu_percent(), Some(50.0));
        assert_eq!(used().per_s(Some(4000.0)), Some(2000.0));
    }

    #[test]
    fn sum_with_unknown_is_unknown() {
        let mut sum = used();
        sum.add(&ServerUse {
            write_bytes: None,
            ..used()
        });
        assert_eq!(
            (sum.length_us, sum.cpu_us, sum.write_bytes),
            (4e6, Some(2e6), None)
        );
    }
}

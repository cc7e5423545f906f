//! The published experiments: their plans, and the findings of their runs.

use replimeter_measurements::reproduce;
use replimeter_model::{
    plan::PlanError,
    reproduce::{Claim, Table},
};
use replimeter_run::{
    AnyRun, PlannedRun, Recorded, Registry, cli_error::CliError, options::CommandLineSettings,
};

use crate::{cli::ReproduceExtent, environment};

/// A published experiment.
pub(super) struct Published {
    pub(super) number: u32,
    pub(super) title: &'static str,
    pub(super) question: &'static str,
    pub(super) run: PublishedRun,
    /// A second run, to which the first is compared.
    pub(super) second: Option<PublishedRun>,
    /// Whether pauses by a quota change its figures: latencies, but not throughput.
    gated_by_quota: bool,
    /// Returns the published table.
    pub(super) table: fn() -> Table,
    /// Returns the findings of a run, and of the second one.
    pub(super) found: fn(&dyn AnyRun, Option<&dyn AnyRun>) -> Option<Found>,
}

/// A run of a published experiment.
pub(super) struct PublishedRun {
    /// Its folder.
    name: &'static str,
    plan: &'static str,
    /// Keys that replace the plan's; `{}` removes one.
    keys: &'static str,
    /// More such keys of a small run.
    small: &'static str,
}

/// The folder of a run, and the run.
pub(super) type NamedRun = (&'static str, Box<dyn PlannedRun>);

/// The measured figures, and the findings.
pub(super) type Found = (Table, Vec<Claim>);

pub(super) const PUBLISHED: [Published; 5] = [
    Published {
        number: 1,
        title: "Size sweep by polling (Giuseppe Maxia, 2006)",
        question: "How long after an insert on the primary is the row readable on the replica?",
        run: PublishedRun {
            name: "1-size-sweep",
            plan: include_str!("../../../../../plans/size-sweep.toml"),
            keys: "",
            small: "lag.sweeps = 12",
        },
        second: None,
        gated_by_quota: true,
        table: reproduce::sweep_published,
        found: |run, _| Some(reproduce::sweep(run.document().downcast_ref()?)),
    },
    Published {
        number: 2,
        title: "Read replicas 0, 1, 2 under mixed load (web scaling test)",
        question: "How does each added read replica change insert and select throughput?",
        run: PublishedRun {
            name: "2-read-replicas",
            plan: include_str!("../../../../../plans/read-replica-scaling.toml"),
            keys: "",
            small: r#"
            [target]
            # A fifth of the data, as published; MariaDB takes no less than 6 MB.
            server-options = ["innodb_flush_log_at_trx_commit=1", "sync_binlog=1", "innodb_buffer_pool_size=6M"]
            [scale]
            replicas = "0..2"
            duration = "3s"
            warm-up = "500ms"
            starts = 5
            data-size = "30MB"
            updates = false
            check-prediction = false
        "#,
        },
        second: None,
        gated_by_quota: false,
        table: reproduce::replicas_published,
        found: |run, _| Some(reproduce::replicas(run.document().downcast_ref()?)),
    },
    Published {
        number: 3,
        title: "Replication lag without polling (Baron Schwartz, 2007)",
        question: "How late does a statement run on the replica, measured without polling?",
        run: PublishedRun {
            name: "3-lag-histogram",
            plan: include_str!("../../../../../plans/lag-histogram.toml"),
            keys: "",
            small: "",
        },
        second: Some(PublishedRun {
            name: "3-lag-methods",
            plan: include_str!("../../../../../plans/lag-methods.toml"),
            keys: "",
            small: "",
        }),
        gated_by_quota: true,
        table: reproduce::histogram_published,
        found: |run, second| {
            let second = second.and_then(|run| run.document().downcast_ref());
            Some(reproduce::histogram(run.document().downcast_ref()?, second))
        },
    },
    Published {
        number: 4,
        title: "Stale reads on a multi-primary cluster (Peter Zaitsev, 2013)",
        question: "After a write on node 1, how often and for how long is a read on node 2 stale?",
        run: PublishedRun {
            name: "4-stale-reads",
            plan: include_str!("../../../../../plans/galera-stale-reads.toml"),
            keys: "",
            small: r#"
            [stale]
            # After a huge update, a round takes seconds, so the limit is a time. The table has no curve.
            rounds = {}
            duration = "8s"
            read-delays = "none"
            load-data-size = "50000"
        "#,
        },
        second: Some(PublishedRun {
            name: "4-stale-reads-local",
            plan: include_str!("../../../../../plans/galera-stale-reads.toml"),
            keys: r#"
            [target]
            client-link-delay = {}
            [stale]
            cases = ["none"]
            read-consistency = ["off"]
            load-data-size = {}
        "#,
            small: r#"
            [stale]
            rounds = 3000
            read-delays = "none"
        "#,
        }),
        gated_by_quota: true,
        table: reproduce::stale_published,
        found: |run, second| {
            let local = second.and_then(|run| run.document().downcast_ref());
            Some(reproduce::stale(run.document().downcast_ref()?, local))
        },
    },
    Published {
        number: 5,
        title: "Cost of semi-sync (a MySQL Cluster engineer, 2010)",
        question: "How much latency does waiting for a replica's acknowledgement add?",
        run: PublishedRun {
            name: "5-semi-sync-price",
            plan: include_str!("../../../../../plans/semi-sync-cost.toml"),
            keys: "",
            small: r#"
            [cost]
            duration = "4s"
            starts = 4
            warm-up = "500ms"
        "#,
        },
        second: None,
        gated_by_quota: true,
        table: reproduce::price_published,
        found: |run, _| Some(reproduce::price(run.document().downcast_ref()?)),
    },
];

impl Published {
    /// Returns the plans of its runs, each with its folder.
    pub(super) fn plans(
        &self,
        registry: &Registry,
        extent: ReproduceExtent,
    ) -> Result<Vec<NamedRun>, CliError> {
        let read = |run: &PublishedRun| {
            let small = match extent {
                ReproduceExtent::Small => run.small,
                ReproduceExtent::Full => "",
            };
            let mut text = changed(run.plan, run.keys)
                .and_then(|plan| changed(&plan, small))
                .map_err(PlanError::Syntax)?;
            // Stamps then use SYSDATE() alone.
            if !environment::has_udf() {
                text = changed(&text, "target.udf = {}").map_err(PlanError::Syntax)?;
                text = text.replace("stamp,stamp-udf", "stamp");
            }
            let plan = registry.plan(&text, &CommandLineSettings::default())?;
            Ok((run.name, plan))
        };
        let runs = std::iter::once(&self.run).chain(&self.second);
        runs.map(read).collect()
    }

    /// Returns the findings of its runs.
    pub(super) fn of_runs(&self, runs: &[Recorded]) -> Option<Found> {
        let (first, others) = runs.split_first()?;
        let second = others.first().map(|second| second.run.as_ref());
        let (table, mut claims) = (self.found)(first.run.as_ref(), second)?;
        let machines = runs.iter().map(|run| run.run.head().machine);
        reproduce::gate(&mut claims, machines, self.gated_by_quota);
        Some((table, claims))
    }
}

/// Returns a plan with other keys in its sections.
fn changed(plan: &str, keys: &str) -> Result<String, String> {
    let read = |text| toml::from_str::<toml::Table>(text).map_err(|error| error.to_string());
    let mut plan = read(plan)?;
    for (section, keys) in read(keys)? {
        let into = plan.get_mut(&section).and_then(toml::Value::as_table_mut);
        if let (Some(into), toml::Value::Table(keys)) = (into, keys) {
            into.extend(keys);
            into.retain(|_, value| value.as_table().is_none_or(|keys| !keys.is_empty()));
        }
    }
    toml::to_string(&plan).map_err(|error| error.to_string())
}

//! The published experiments: their plans, and the findings of their runs.

use replimeter_measurements::across::reproduce;
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
    /// More runs, to which the first is compared.
    pub(super) others: &'static [PublishedRun],
    /// Whether pauses by a quota change its figures: latencies, but not throughput.
    gated_by_quota: bool,
    /// Returns the published table.
    pub(super) table: fn() -> Table,
    /// Returns the findings of the first run and those of the others that were made.
    found: fn(&dyn AnyRun, &[Recorded]) -> Option<Found>,
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
    /// Set if its settings depend on what earlier runs measured.
    chosen: Option<KeysFromEarlier>,
}

/// Returns keys that replace a plan's, from the experiment's earlier runs.
pub(super) type KeysFromEarlier = fn(&[Recorded]) -> Option<String>;

impl PublishedRun {
    /// A run whose settings do not depend on earlier ones.
    const DEFAULT: Self = Self {
        name: "",
        plan: "",
        keys: "",
        small: "",
        chosen: None,
    };
}

/// A run whose settings are known, except for those that earlier runs choose.
pub(super) struct NamedRun {
    /// Its folder.
    pub(super) name: &'static str,
    pub(super) text: String,
    pub(super) plan: Box<dyn PlannedRun>,
    pub(super) chosen: Option<KeysFromEarlier>,
}

impl NamedRun {
    /// Returns the run with the settings that earlier runs choose, if there are such.
    pub(super) fn after(
        &self,
        earlier: &[Recorded],
        registry: &Registry,
    ) -> Result<Option<Box<dyn PlannedRun>>, CliError> {
        let Some(keys) = self.chosen.and_then(|chosen| chosen(earlier)) else {
            return Ok(None);
        };
        let text = changed(&self.text, &keys).map_err(PlanError::Syntax)?;
        Ok(Some(registry.plan(&text, &CommandLineSettings::default())?))
    }
}

/// The measured figures, and the findings.
pub(super) type Found = (Table, Vec<Claim>);

/// Sweeps of a small run: nearly all of a sweep's time are its pauses.
const SHORT_SWEEPS: &str = r#"
    [lag]
    sweeps = 80
    step-pause = "50ms"
"#;

pub(super) const PUBLISHED: [Published; 5] = [
    Published {
        number: 1,
        title: "Size sweep by polling (Giuseppe Maxia, 2006)",
        question: "How long after an insert on the primary is the row readable on the replica?",
        run: PublishedRun {
            name: "1-size-sweep",
            plan: include_str!("../../../../../plans/size-sweep.toml"),
            keys: "[lag]\nsweeps = 250",
            small: SHORT_SWEEPS,
            ..PublishedRun::DEFAULT
        },
        others: &[PublishedRun {
            name: "1-size-sweep-later",
            plan: include_str!("../../../../../plans/size-sweep.toml"),
            // The bare time is then about the published one.
            keys: r#"
            [target]
            link-delay = "500us"
            [lag]
            sweeps = 100
        "#,
            small: SHORT_SWEEPS,
            ..PublishedRun::DEFAULT
        }],
        gated_by_quota: true,
        table: reproduce::sweep_published,
        found: |run, others| {
            Some(reproduce::sweep(
                run.document().downcast_ref()?,
                document(others, 0),
            ))
        },
    },
    Published {
        number: 2,
        title: "Read replicas 0, 1, 2 under mixed load (web scaling test)",
        question: "How does each added read replica change insert and select throughput?",
        run: PublishedRun {
            name: "2-read-replicas",
            plan: include_str!("../../../../../plans/read-replica-scaling-http.toml"),
            keys: "",
            small: r#"
            [target]
            # A fifth of the data, as published; MariaDB takes no less than 6 MB.
            server-options = ["innodb_flush_log_at_trx_commit=1", "sync_binlog=1", "innodb_buffer_pool_size=6M"]
            [scale]
            duration = "3s"
            warm-up = "1s"
            starts = 5
            data-size = "30MB"
        "#,
            ..PublishedRun::DEFAULT
        },
        others: &[PublishedRun {
            name: "2-read-replicas-hosts",
            plan: include_str!("../../../../../plans/read-replica-scaling.toml"),
            keys: r#"
            [scale]
            replicas = "0..2"
            updates = false
            check-prediction = false
        "#,
            small: r#"
            [target]
            server-options = ["innodb_flush_log_at_trx_commit=1", "sync_binlog=1", "innodb_buffer_pool_size=6M"]
            [scale]
            duration = "3s"
            warm-up = "500ms"
            starts = 7
            data-size = "30MB"
        "#,
            ..PublishedRun::DEFAULT
        }],
        gated_by_quota: false,
        table: reproduce::replicas_published,
        found: |run, others| {
            Some(reproduce::replicas(
                run.document().downcast_ref()?,
                document(others, 0),
            ))
        },
    },
    Published {
        number: 3,
        title: "Replication lag without polling (Baron Schwartz, 2007)",
        question: "How late does a statement run on the replica, measured without polling?",
        run: PublishedRun {
            name: "3-lag-histogram",
            plan: include_str!("../../../../../plans/lag-histogram.toml"),
            ..PublishedRun::DEFAULT
        },
        others: &[PublishedRun {
            name: "3-lag-methods",
            plan: include_str!("../../../../../plans/lag-methods.toml"),
            ..PublishedRun::DEFAULT
        }],
        gated_by_quota: true,
        table: reproduce::histogram_published,
        found: |run, others| {
            Some(reproduce::histogram(
                run.document().downcast_ref()?,
                document(others, 0),
            ))
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
            duration = "6s"
            starts = 4
            read-delays = "none"
            load-data-size = "50000"
        "#,
            ..PublishedRun::DEFAULT
        },
        others: &[PublishedRun {
            name: "4-stale-reads-local",
            plan: include_str!("../../../../../plans/galera-stale-reads.toml"),
            keys: r#"
                [target]
                client-link-delay = {}
                [stale]
                cases = ["none"]
                read-consistency = ["off"]
                read-delays = "none"
                load-data-size = {}
                rate = {}
            "#,
            small: r#"
                [stale]
                rounds = 3000
            "#,
            ..PublishedRun::DEFAULT
        }],
        gated_by_quota: true,
        table: reproduce::stale_published,
        found: |run, others| {
            Some(reproduce::stale(
                run.document().downcast_ref()?,
                document(others, 0),
            ))
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
            modes = "mariadb/none,mariadb/binlog,mariadb/async,mariadb/semi-sync,mysql/none,mysql/binlog,mysql/async,mysql/semi-sync"
            duration = "6s"
            starts = 5
            warm-up = "500ms"
        "#,
            ..PublishedRun::DEFAULT
        },
        others: &[
            PublishedRun {
                name: "5-semi-sync-price-link",
                plan: include_str!("../../../../../plans/semi-sync-cost.toml"),
                // How long an insert takes with a link whose delay is nearly nothing: its own way differs by machine.
                keys: r#"
                [target]
                client-link-delay = "1us"
                [cost]
                modes = "mariadb/none,mysql/none"
                link-delays = {}
                duration = "3s"
                starts = 3
                warm-up = "500ms"
            "#,
                ..PublishedRun::DEFAULT
            },
            PublishedRun {
                name: "5-semi-sync-price-slower",
                plan: include_str!("../../../../../plans/semi-sync-cost.toml"),
                keys: r#"
                [target]
                client-link-delay = "1us"
                [cost]
                modes = "mariadb/none,mariadb/semi-sync,mysql/none,mysql/semi-sync"
            "#,
                small: r#"
                [cost]
                duration = "6s"
                starts = 5
                warm-up = "500ms"
            "#,
                // An insert then takes about as long as the published one.
                chosen: Some(|earlier| {
                    let us = reproduce::link_for_published(document(earlier, 1)?)?;
                    Some(format!("target.client-link-delay = \"{us}us\""))
                }),
            },
        ],
        gated_by_quota: true,
        table: reproduce::overhead_published,
        found: |run, others| {
            Some(reproduce::overhead(
                run.document().downcast_ref()?,
                document(others, 1),
            ))
        },
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
            Ok(NamedRun {
                name: run.name,
                plan: registry.plan(&text, &CommandLineSettings::default())?,
                text,
                chosen: run.chosen,
            })
        };
        let runs = std::iter::once(&self.run).chain(self.others);
        runs.map(read).collect()
    }

    /// Returns the findings of its runs.
    pub(super) fn of_runs(&self, runs: &[Recorded]) -> Option<Found> {
        let (first, others) = runs.split_first()?;
        let (table, mut claims) = (self.found)(first.run.as_ref(), others)?;
        let gated = runs.iter().map(|run| {
            let head = run.run.head();
            let mut sandboxes = run.manifest.sandboxes.iter();
            reproduce::GatedRun {
                machine: head.machine,
                by_quota: self.gated_by_quota,
                own_cores: sandboxes.any(|sandbox| sandbox.client_has_own_cores),
            }
        });
        reproduce::gate(&mut claims, gated);
        Some((table, claims))
    }
}

/// Returns the document of another run, if it was made.
fn document<D: 'static>(others: &[Recorded], index: usize) -> Option<&D> {
    others.get(index)?.run.document().downcast_ref()
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

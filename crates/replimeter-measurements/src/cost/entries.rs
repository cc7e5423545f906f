//! The modes to compare, each with the servers that it is measured on.

use replimeter_engine::source::{Install, ServerSource, SourceErrorKind};
use replimeter_instruments::cost::{
    results::label,
    settings::{CostMode, CostPlan, CostServers, CostSettings, LoggedMode},
};
use replimeter_model::{engine::Engine, plan::Request, sandbox::WaitPoint, time_span::TimeSpan};
use replimeter_run::cli_error::CliError;

use super::condition::ConditionKey;

/// A mode and the servers that it is measured on.
pub(super) struct CostEntry {
    pub(super) shape: CostServers,
    pub(super) install: Install,
}

impl CostEntry {
    pub(super) fn engine(&self) -> Engine {
        self.install.engine
    }

    pub(super) fn version(&self) -> String {
        format!("{} {}", self.install.engine.product(), self.install.version)
    }

    pub(super) fn replicas(&self) -> u32 {
        self.shape.spec.shape.servers() - 1
    }

    /// Returns the mode and its wait point.
    pub(super) fn mode(&self) -> String {
        label(
            self.shape.mode.kind.name(),
            self.shape.wait_point.map(WaitPoint::name),
        )
    }

    /// Returns the label of its servers in the manifest.
    pub(super) fn label(&self) -> String {
        let shape = match self.shape.mode.kind {
            kind if kind.replicates() => self.shape.spec.shape.to_string(),
            kind => kind.name().to_owned(),
        };
        let shape = shape.rsplit('/').next().unwrap_or(&shape).to_owned();
        label(
            &format!("{}/{shape}", self.engine().name()),
            self.shape.wait_point.map(WaitPoint::name),
        )
    }

    pub(super) fn key(&self, threads: u32, delay: Option<TimeSpan>) -> ConditionKey {
        ConditionKey {
            engine: self.engine(),
            version: self.version(),
            kind: self.shape.mode.kind,
            wait_point: self.shape.wait_point,
            replicas: self.replicas(),
            threads,
            delay,
        }
    }

    /// Returns the numbers of threads and link delays to measure on one start.
    pub(super) fn conditions(&self, plan: &CostPlan) -> Vec<(u32, Option<TimeSpan>)> {
        let delays: Vec<Option<TimeSpan>> = match self.shape.spec.link {
            Some(_) if !plan.link_delays.is_empty() => {
                plan.link_delays.iter().copied().map(Some).collect()
            }
            _ => vec![None],
        };
        plan.threads
            .iter()
            .flat_map(|threads| delays.iter().map(|delay| (*threads, *delay)))
            .collect()
    }
}

/// Returns the modes with the servers found for them, and the modes without servers.
pub(super) fn entries(
    request: &Request<CostSettings>,
    plan: &CostPlan,
    source: &dyn ServerSource,
) -> Result<(Vec<CostEntry>, Vec<String>), CliError> {
    let mut entries: Vec<CostEntry> = Vec::new();
    let mut left_out = Vec::new();
    for shape in &plan.shapes {
        match source.available(&shape.spec) {
            Ok(install) => entries.push(pinned(shape.clone(), install)),
            Err(error) if error.kind == SourceErrorKind::Unavailable && plan.skip_unavailable => {
                let words = format!("{}: {error}", shape.mode);
                if !left_out.contains(&words) {
                    left_out.push(words);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    if plan.self_test.is_some() {
        entries.truncate(1);
    } else {
        let mut missing: Vec<Install> = Vec::new();
        for entry in &entries {
            let program = &entry.install.program;
            let has_none = entries.iter().any(|other| {
                other.shape.mode.kind == LoggedMode::NONE && other.install.program == *program
            });
            if !has_none && !missing.iter().any(|install| install.program == *program) {
                missing.push(entry.install.clone());
            }
        }
        for install in missing {
            let mode = CostMode {
                engine: Some(install.engine),
                kind: LoggedMode::NONE,
                count: None,
            };
            entries.push(pinned(plan.shape_of(mode, &request.target, None)?, install));
        }
    }
    if entries.is_empty() {
        return Err(CliError::failed(
            format!("no mode can be measured: {}", left_out.join("; ")),
            "run `replimeter servers` to list what was found, or `make servers` to get servers",
        ));
    }
    Ok((entries, left_out))
}

/// Makes every start use this exact binary.
fn pinned(mut shape: CostServers, install: Install) -> CostEntry {
    shape.spec.servers = install.program.parent().map(ToOwned::to_owned);
    CostEntry { shape, install }
}

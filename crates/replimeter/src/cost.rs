//! Carries out a `cost` run: rounds of fresh starts of every mode in shuffled order, a load
//! on each, and the price list at the end.

mod gathered;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use replimeter_measure::{
    cost::{Bench, Block, Cell, Listener},
    load::{Filled, Workload},
    resources::Metered,
};
use replimeter_model::{
    cost::{
        BlockRecord, COST_SCHEMA, CostDocument, CostKind, CostMode, CostModes, SelfComparison,
        SelfTest, StartRecord, label, wait_point_name,
    },
    engine::Engine,
    load::Size,
    manifest::{MANIFEST_SCHEMA, SandboxRecord, ServerRecord},
    plan::{CostPlan, CostShape, Plan},
    span::Span,
    target::{Passwords, Target},
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_report::{cost::answer, cost_blocks::BlocksWriter, figures::count};
use replimeter_sandbox::{Install, Sandbox, SandboxError, kept::LinkChange};
use replimeter_stats::{binomial::Excess, random::Random, series::distribution};

use self::gathered::{Gathered, Key, against_itself, rows, steps};
use crate::{
    cli::OutputArgs,
    document::Document,
    failure::{Failure, Kind, unexpected},
    frame::Frame,
    machine,
    measure::{self, load, servers},
    run_dir::{MANIFEST, SAMPLES, write_json},
};

/// About how long servers take to start, for the time that is left.
const STARTING_S: f64 = 3.0;
/// Above this share of its own limit the client is part of the figure, in percent.
pub(crate) const NEAR_LIMIT: f64 = 80.0;
/// The share of differences that a mode compared with itself should show.
const EXPECTED: f64 = 0.05;

/// Refuses what makes no sense, before anything is touched.
pub(crate) fn check(work: &CostPlan) -> Result<(), Failure> {
    workload(work).map(|_| ())
}

/// The workload, and how much data it runs on.
fn workload(work: &CostPlan) -> Result<(Workload, Size), Failure> {
    let workload = load::workload(&work.workload)?;
    load::refuse_size(work.size, std::slice::from_ref(&workload))?;
    let size = work.size.unwrap_or_else(|| workload.default_size());
    Ok((workload, size))
}

/// A line of the price list, and the servers that it is measured on.
struct Entry {
    shape: CostShape,
    install: Install,
}

impl Entry {
    fn engine(&self) -> Engine {
        self.install.engine
    }

    fn version(&self) -> String {
        format!("{} {}", self.install.engine.product(), self.install.version)
    }

    fn replicas(&self) -> u32 {
        self.shape.spec.shape.servers() - 1
    }

    /// The mode and its wait point.
    fn mode(&self) -> String {
        label(
            self.shape.mode.kind.name(),
            self.shape.wait_point.map(wait_point_name),
        )
    }

    /// What the manifest calls its servers.
    fn label(&self) -> String {
        let shape = match self.shape.mode.kind {
            kind if kind.replicates() => self.shape.spec.shape.to_string(),
            kind => kind.name().to_owned(),
        };
        let shape = shape.rsplit('/').next().unwrap_or(&shape).to_owned();
        label(
            &format!("{}/{shape}", self.engine().name()),
            self.shape.wait_point.map(wait_point_name),
        )
    }

    fn key(&self, threads: u32, delay: Option<Span>) -> Key {
        Key {
            engine: self.engine(),
            version: self.version(),
            kind: self.shape.mode.kind,
            wait_point: self.shape.wait_point,
            replicas: self.replicas(),
            threads,
            delay,
        }
    }

    /// Numbers of threads and distances that one start is measured at.
    fn cells(&self, work: &CostPlan) -> Vec<(u32, Option<Span>)> {
        let delays: Vec<Option<Span>> = match self.shape.spec.link {
            Some(_) if !work.link_delays.is_empty() => {
                work.link_delays.iter().copied().map(Some).collect()
            }
            _ => vec![None],
        };
        work.threads
            .iter()
            .flat_map(|threads| delays.iter().map(|delay| (*threads, *delay)))
            .collect()
    }
}

/// The modes with the servers found for them, and those that must be left out.
fn entries(plan: &Plan, work: &CostPlan) -> Result<(Vec<Entry>, Vec<String>), Failure> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut left_out = Vec::new();
    for shape in &work.shapes {
        match Sandbox::install_for(&servers::settings(&shape.spec)?) {
            Ok(install) => entries.push(pinned(shape.clone(), install)),
            Err(error @ (SandboxError::NoBinary { .. } | SandboxError::Impossible { .. }))
                if work.modes == CostModes::All && work.self_test.is_none() =>
            {
                let words = format!("{}: {error}", shape.mode);
                if !left_out.contains(&words) {
                    left_out.push(words);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    if work.self_test.is_some() {
        entries.truncate(1);
    } else {
        let mut missing: Vec<Install> = Vec::new();
        for entry in &entries {
            let program = &entry.install.program;
            let has_none = entries.iter().any(|other| {
                other.shape.mode.kind == CostKind::None && other.install.program == *program
            });
            if !has_none && !missing.iter().any(|install| install.program == *program) {
                missing.push(entry.install.clone());
            }
        }
        for install in missing {
            let mode = CostMode {
                engine: Some(install.engine),
                kind: CostKind::None,
                count: None,
            };
            entries.push(pinned(work.shape_of(mode, &plan.target, None)?, install));
        }
    }
    if entries.is_empty() {
        return Err(Failure::failed(
            format!("no mode can be measured: {}", left_out.join("; ")),
            "`replimeter servers` lists what was found, `make servers` gets servers",
        ));
    }
    Ok((entries, left_out))
}

/// Has every start take this very binary.
fn pinned(mut shape: CostShape, install: Install) -> Entry {
    shape.spec.servers = install.program.parent().map(ToOwned::to_owned);
    Entry { shape, install }
}

/// A run under way.
struct Run<'a> {
    work: &'a CostPlan,
    workload: &'a Workload,
    size: Size,
    frame: Frame,
    writer: BlocksWriter,
    /// For each engine and number of threads the client's own limit.
    limits: Vec<(Engine, u32, f64)>,
    order: Vec<StartRecord>,
    /// What the settings of durability are, for each engine.
    durability: Vec<String>,
    random: Random,
    round: u32,
    /// Planned seconds, done and all.
    done_s: f64,
    all_s: f64,
    stop: &'a AtomicBool,
}

/// Carries it out.
pub(crate) fn carry_out(
    plan: &Plan,
    work: &CostPlan,
    output: &OutputArgs,
    warnings: Vec<Warning>,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    check(work)?;
    let (workload, size) = workload(work)?;
    let (entries, left_out) = entries(plan, work)?;
    let before = machine::CoreTime::read();
    let frame = Frame::begin("cost", plan, output, work.keep_awake, false, warnings)?;
    let writer = BlocksWriter::create(&frame.run_dir.file(SAMPLES))?;
    let mut run = Run {
        work,
        workload: &workload,
        size,
        frame,
        writer,
        limits: Vec::new(),
        order: Vec::new(),
        durability: Vec::new(),
        random: Random::new(work.seed),
        round: 0,
        done_s: 0.0,
        all_s: 0.0,
        stop,
    };
    run.frame.warnings.extend(left_out.iter().map(|words| {
        Warning::new(
            WarningCode::ModeLeftOut,
            format!("a mode was left out: {words}"),
            "install what it needs, or name the modes (--modes)",
        )
    }));
    let mut all: Vec<Gathered> = Vec::new();
    let (self_test, result) = match work.self_test {
        None => (None, run.rounds(&entries, &mut all)),
        Some(comparisons) => {
            let mut done = Vec::new();
            let result = run.against_itself(&entries[0], comparisons, &mut all, &mut done);
            (Some(verdict(&entries[0], work, done)), result)
        }
    };
    let Run {
        mut frame,
        writer,
        limits,
        order,
        durability,
        ..
    } = run;
    let kept_awake = frame.let_sleep();
    if all.iter().all(Gathered::is_empty) {
        let void = all.iter().any(|gathered| gathered.void() > 0);
        frame.give_up();
        let nothing = || match void {
            true => Failure::void(
                "no block counts: semi-synchronous replication fell back in every one",
                "use fewer threads, or see why the replica does not acknowledge in time",
            ),
            false => unexpected(),
        };
        return Err(result.err().unwrap_or_else(nothing));
    }
    frame.line.say("writing the report");
    let finished = writer.finish();
    frame.run_dir.keep();
    let mut failure = result.err();
    if let Some(gathered) = all
        .iter()
        .find(|gathered| gathered.is_empty() && gathered.void() > 0)
        && failure.is_none()
    {
        failure = Some(Failure::void(
            format!(
                "{} at {} threads: no block counts, because semi-synchronous replication fell back in every one",
                gathered.key.kind.name(),
                gathered.key.threads
            ),
            "use fewer threads, or see why the replica does not acknowledge in time",
        ));
    }
    if let Some(gathered) = all.iter().find(|gathered| gathered.idle())
        && failure.is_none()
    {
        let errors = gathered
            .first_error()
            .map_or_else(String::new, |error| format!(": {error}"));
        failure = Some(Failure::void(
            format!(
                "{} at {} threads: no operation was completed in the counted time{errors}",
                gathered.key.kind.name(),
                gathered.key.threads
            ),
            "measure for longer (--for), or mend the statement",
        ));
    }
    if let Some(test) = self_test
        .as_ref()
        .filter(|test| test.significant && failure.is_none())
    {
        failure = Some(Failure::void(
            format!(
                "a mode compared with itself was found to differ in {} of {} comparisons, which is significantly more than 5 %",
                test.differences,
                test.comparisons.len()
            ),
            "is something else running on this machine? its differences between modes are not to be trusted until this holds",
        ));
    }
    let failure = failure.or_else(|| finished.err().map(Failure::from));
    let mut warnings = std::mem::take(&mut frame.warnings);
    let results = rows(&all, &limits, work.durability.name());
    warnings.extend(judge(work, &all, &results));
    let idle = before
        .zip(machine::CoreTime::read())
        .and_then(|(before, after)| after.idle_share(before));
    if let (false, Some(share)) = (kept_awake, idle.filter(|share| *share > 0.2)) {
        warnings.push(Warning::new(
            WarningCode::KeepAwakeOff,
            format!("this machine's cores were idle for {:.0} % of the run and were not kept awake: at few threads waking them is part of every latency, and more servers can look faster than one", share * 100.0),
            "use --keep-awake on",
        ));
    }
    let ended = failure
        .as_ref()
        .filter(|failure| matches!(failure.kind, Kind::Interrupted | Kind::Failed));
    warnings.extend(ended.map(Failure::warning));
    let labels: Vec<String> = entries.iter().map(Entry::label).collect();
    let mut document = CostDocument {
        schema: COST_SCHEMA.to_owned(),
        run_dir: frame.run_dir.path().display().to_string(),
        title: plan.title.clone(),
        status: measure::status(failure.as_ref()),
        error: failure.as_ref().map(|failure| failure.message.clone()),
        answer: String::new(),
        started_at: frame.manifest.started_at.clone(),
        measured_us: frame.clock.now().as_micros(),
        target: frame.target(
            plan,
            labels.join(", "),
            entries.iter().map(Entry::mode).collect(),
        ),
        settings: plan.to_file().cost.unwrap_or_default(),
        durability,
        results,
        steps: steps(&all),
        order,
        self_test,
        left_out,
        cores: frame.manifest.machine.cores as u64,
        keep_awake: kept_awake,
        warnings,
    };
    document.answer = answer(&document);
    let series: Vec<_> = all.iter().map(Gathered::latencies).collect();
    let logged = frame.log(
        Nanos(all.iter().map(|gathered| gathered.counted().0).sum()),
        &series,
    );
    frame
        .publish(&Document::Cost(Box::new(document)), output, failure)
        .and(logged)
}

/// What a reader must know of the figures.
fn judge(
    work: &CostPlan,
    all: &[Gathered],
    results: &[replimeter_model::cost::CostRow],
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let fewest = results.iter().map(|row| row.starts).min().unwrap_or(0);
    let fewest = if work.self_test.is_some() {
        u64::from(work.starts)
    } else {
        fewest
    };
    if fewest < 4 {
        let words = match fewest {
            few if work.self_test.is_some() => format!(
                "each comparison has only {few} starts on each side: with fewer than 4 the intervals are so wide that hardly anything can differ, and the test shows little"
            ),
            0 | 1 => {
                "a mode was started once only: how much one start differs from the next is not known, and there are no intervals"
                    .to_owned()
            }
            few => format!(
                "some modes have only {few} starts: with fewer than 4 the intervals are very wide and may still promise too much"
            ),
        };
        warnings.push(Warning::new(
            WarningCode::FewStarts,
            words,
            "use --starts 5 or more",
        ));
    }
    for gathered in all.iter().filter(|gathered| gathered.void() > 0) {
        warnings.push(Warning::new(
            WarningCode::FellBack,
            format!(
                "{} at {} threads: {} blocks do not count, because the primary fell back to asynchronous replication in them",
                gathered.key.kind.name(),
                gathered.key.threads,
                count(gathered.void())
            ),
            "the replica did not acknowledge in time; `void` in samples.parquet says what happened in each",
        ));
    }
    for row in results {
        let what = format!("{}/{} at {} threads", row.engine, row.label(), row.threads);
        if let Some(percent) = row
            .client
            .percent_of_limit
            .filter(|percent| *percent >= NEAR_LIMIT)
        {
            warnings.push(Warning::new(
                WarningCode::ClientLimited,
                format!("{what}: its statements are {percent:.0} % of what this client can send at all, so part of the figure is the client's"),
                "measure with fewer threads, or run the client on a machine with more cores",
            ));
        }
        if row.failed > 0 {
            let first = row
                .errors
                .first()
                .map(|error| error.message.clone())
                .unwrap_or_default();
            warnings.push(Warning::new(
                WarningCode::LoadErrors,
                format!(
                    "{what}: {} operations were given up beside {} that were done; the first error: {first}",
                    count(row.failed),
                    count(row.operations)
                ),
                "`errors` in the JSON document has every error with its count",
            ));
        }
    }
    warnings
}

/// What many comparisons of a mode with itself say.
fn verdict(entry: &Entry, work: &CostPlan, comparisons: Vec<SelfComparison>) -> SelfTest {
    let differences = comparisons
        .iter()
        .filter(|comparison| comparison.differs)
        .count() as u64;
    // One without an interval has judged nothing.
    let judged = comparisons
        .iter()
        .filter(|comparison| comparison.throughput.ends().is_some())
        .count() as u64;
    let excess = Excess::over(differences, judged, EXPECTED);
    SelfTest {
        engine: entry.engine().name().to_owned(),
        mode: entry.mode(),
        threads: work.threads[0],
        starts: work.starts,
        differences,
        expected: EXPECTED,
        share: excess.share,
        p_value: excess.p_value,
        significant: excess.significant(),
        comparisons,
    }
}

impl Run<'_> {
    /// Every mode in every round, in another order each time.
    fn rounds(&mut self, entries: &[Entry], all: &mut Vec<Gathered>) -> Result<(), Failure> {
        // Each entry's rows follow one another.
        let mut first = Vec::new();
        for entry in entries {
            first.push(all.len());
            all.extend(
                entry
                    .cells(self.work)
                    .into_iter()
                    .map(|(threads, delay)| Gathered::new(entry.key(threads, delay))),
            );
        }
        let each = |entry: &Entry| self.planned(entry.cells(self.work).len());
        self.all_s = entries.iter().map(each).sum::<f64>() * f64::from(self.work.starts);
        for round in 1..=self.work.starts {
            self.round = round;
            let mut order: Vec<usize> = (0..entries.len()).collect();
            self.random.shuffle(&mut order);
            for index in order {
                let entry = &entries[index];
                let cells = entry.cells(self.work);
                let mut own: Vec<&mut Gathered> = all[first[index]..first[index] + cells.len()]
                    .iter_mut()
                    .collect();
                self.start(entry, &cells, &mut own)?;
            }
        }
        Ok(())
    }

    /// One mode against itself, again and again; the starts of both sides in shuffled order.
    fn against_itself(
        &mut self,
        entry: &Entry,
        comparisons: u32,
        all: &mut Vec<Gathered>,
        done: &mut Vec<SelfComparison>,
    ) -> Result<(), Failure> {
        let (threads, delay) = entry
            .cells(self.work)
            .first()
            .copied()
            .ok_or_else(unexpected)?;
        let cell = [(threads, delay)];
        all.push(Gathered::new(entry.key(threads, delay)));
        self.all_s = self.planned(1) * f64::from(self.work.starts) * 2.0 * f64::from(comparisons);
        for _ in 0..comparisons {
            let mut sides = [
                Gathered::new(entry.key(threads, delay)),
                Gathered::new(entry.key(threads, delay)),
            ];
            for _ in 0..self.work.starts {
                self.round += 1;
                let mut order = [0, 1];
                self.random.shuffle(&mut order);
                for side in order {
                    // The row is of all starts together.
                    let pooled = &mut all[0];
                    self.start(entry, &cell, &mut [&mut sides[side], pooled])?;
                }
            }
            done.push(against_itself(&sides[0], &sides[1]));
        }
        Ok(())
    }

    /// Seconds that a start with so many cells is to take.
    fn planned(&self, cells: usize) -> f64 {
        let (blocks, length) = self.work.blocks();
        STARTING_S
            + cells as f64
                * (self.work.ramp.0.as_secs_f64() + f64::from(blocks) * length.0.as_secs_f64())
    }

    /// How long all the rest will take, in words.
    fn left(&self) -> String {
        let passed = self.frame.clock.now().as_micros() / 1e6;
        let left = match self.done_s > 0.0 {
            true => passed / self.done_s * (self.all_s - self.done_s),
            false => self.all_s - passed,
        };
        let left = left.max(0.0).round() as u64;
        if left >= 60 {
            format!("{} min {:02} s left", left / 60, left % 60)
        } else {
            format!("{left} s left")
        }
    }

    /// One start of one mode: every cell in shuffled order. Of each row what was whole is kept,
    /// whatever happens. In a self-test every block goes to all rows that are given.
    fn start(
        &mut self,
        entry: &Entry,
        cells: &[(u32, Option<Span>)],
        own: &mut [&mut Gathered],
    ) -> Result<(), Failure> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Failure::cut_short());
        }
        let what = format!("round {}, {}", self.round, entry.label());
        self.frame
            .line
            .say(format!("{what}: starting · {}", self.left()));
        let target = Target::Sandbox(entry.shape.spec.clone());
        let servers = servers::obtain(
            &target,
            &Passwords::new(),
            None,
            false,
            &self.frame.line,
            self.stop,
        )?;
        let result = match &servers.sandbox {
            Some(sandbox) => self.measure(entry, sandbox, &what, cells, own),
            None => Err(unexpected()),
        };
        own.iter_mut().for_each(|gathered| gathered.end());
        self.frame.close(servers);
        self.done_s += self.planned(cells.len());
        result.map_err(|failure| match failure.kind {
            Kind::Interrupted => Failure::cut_short(),
            _ => failure.about(&entry.label(), true),
        })
    }

    fn measure(
        &mut self,
        entry: &Entry,
        sandbox: &Sandbox,
        what: &str,
        cells: &[(u32, Option<Span>)],
        own: &mut [&mut Gathered],
    ) -> Result<(), Failure> {
        let metered = sandbox
            .members()
            .iter()
            .map(|member| Metered {
                node: member.node.clone(),
                role: member.role,
                pid: Some(member.pid),
            })
            .collect();
        let line = &self.frame.line;
        let mut filled = |filled: &Filled| line.say(format!("{what}: {}", load::filling(filled)));
        let kind = entry.shape.mode.kind;
        let mut bench = Bench::open(
            metered,
            kind,
            self.workload,
            self.size,
            &self.frame.clock,
            &mut filled,
            self.stop,
        )?;
        self.met(entry, sandbox, &bench)?;
        if kind == CostKind::None {
            for (threads, _) in cells {
                if !self
                    .limits
                    .iter()
                    .any(|(engine, known, _)| (*engine, *known) == (entry.engine(), *threads))
                {
                    self.frame.line.say(format!(
                        "{what}: the client's own limit at {threads} threads"
                    ));
                    if let Some(limit) = bench.limit(*threads)? {
                        self.limits.push((entry.engine(), *threads, limit));
                    }
                }
            }
        }
        let mut order: Vec<usize> = (0..cells.len()).collect();
        self.random.shuffle(&mut order);
        // In a self-test there is one cell, and two rows of it.
        let several = own.len() == cells.len();
        for (place, index) in order.into_iter().enumerate() {
            let (threads, delay) = cells[index];
            if place > 0 {
                self.frame.line.say(format!(
                    "{what}: emptying the table, waiting for replicas · {}",
                    self.left()
                ));
                bench.empty(self.stop)?;
            }
            if let Some(delay) = delay {
                let delay_ns = Some(u64::try_from(delay.0.as_nanos()).unwrap_or(u64::MAX));
                let change = LinkChange {
                    delay_ns,
                    cut: None,
                    jitter_ns: None,
                    bandwidth_bits: None,
                };
                sandbox
                    .change_link(None, &change)
                    .map_err(|reason| Failure::failed(reason, "please report this as a defect"))?;
            }
            let mut rows: Vec<&mut Gathered> = match several {
                true => own
                    .iter_mut()
                    .skip(index)
                    .take(1)
                    .map(|row| &mut **row)
                    .collect(),
                false => own.iter_mut().map(|row| &mut **row).collect(),
            };
            rows.iter_mut().for_each(|row| row.begin());
            let (blocks, length) = self.work.blocks();
            let cell = Cell {
                threads,
                ramp: self.work.ramp.0,
                blocks,
                length: length.0,
            };
            let distance = delay.map_or_else(String::new, |delay| format!(", {delay} one way"));
            let left = self.left();
            let (line, writer, round) = (&self.frame.line, &mut self.writer, self.round);
            let mut rate = |per_s: f64| {
                line.say(format!(
                    "{what}, {threads} threads{distance}: {}/s · {left}",
                    count(per_s.round() as u64)
                ))
            };
            let mut number = 0;
            let mut told = |block: Block| {
                number += 1;
                rows.iter_mut().for_each(|row| row.record(&block));
                writer
                    .write(record(entry, round, number, threads, delay, &block))
                    .map_err(|error| error.to_string())
            };
            bench.run(
                cell,
                &mut Listener {
                    rate: &mut rate,
                    block: &mut told,
                    stop: self.stop,
                },
            )?;
        }
        Ok(())
    }

    /// Writes down what the servers are, at their first start.
    fn met(&mut self, entry: &Entry, sandbox: &Sandbox, bench: &Bench<'_>) -> Result<(), Failure> {
        let label = entry.label();
        let record = sandbox.record();
        self.order.push(StartRecord {
            round: self.round,
            engine: entry.engine().name().to_owned(),
            mode: entry.mode(),
            start_us: record.start_us,
        });
        let manifest = &mut self.frame.manifest;
        if manifest.sandboxes.iter().any(|known| known.shape == label) {
            return Ok(());
        }
        manifest.schema = MANIFEST_SCHEMA.to_owned();
        manifest.sandboxes.push(SandboxRecord {
            shape: label.clone(),
            ..record.clone()
        });
        manifest
            .servers
            .extend(bench.records().iter().map(|server| ServerRecord {
                shape: label.clone(),
                ..server.clone()
            }));
        write_json(&self.frame.run_dir.file(MANIFEST), &self.frame.manifest)?;
        if sandbox.in_memory()
            && !self
                .frame
                .warnings
                .iter()
                .any(|warning| warning.code == WarningCode::MemoryFileSystem)
        {
            self.frame.warnings.push(Warning::new(
                WarningCode::MemoryFileSystem,
                format!(
                    "the servers' data lies in memory ({}), where a flush costs nothing",
                    record.file_system
                ),
                "set REPLIMETER_HOME to a folder on a disk",
            ));
        }
        for warning in bench.meter_warnings() {
            if !self.frame.warnings.contains(&warning) {
                self.frame.warnings.push(warning);
            }
        }
        if let Some(server) = bench.records().first() {
            let value = |name: &str| {
                server
                    .variables
                    .get(name)
                    .map_or("unknown", String::as_str)
                    .to_owned()
            };
            let words = format!(
                "{}: innodb_flush_log_at_trx_commit={}, sync_binlog={}",
                entry.version(),
                value("innodb_flush_log_at_trx_commit"),
                value("sync_binlog")
            );
            if !self.durability.contains(&words) {
                self.durability.push(words);
            }
        }
        Ok(())
    }
}

/// A block for `samples.parquet`.
fn record(
    entry: &Entry,
    round: u32,
    number: u32,
    threads: u32,
    delay: Option<Span>,
    block: &Block,
) -> BlockRecord {
    let result = &block.result;
    let operations = (result.operations > 0).then_some(result.operations as f64);
    let cpu: Vec<Option<f64>> = block.uses.iter().map(|used| used.cpu_us).collect();
    let per_operation =
        |us: Option<f64>| us.zip(operations).map(|(us, operations)| us / operations);
    BlockRecord {
        round,
        engine: entry.engine().name().to_owned(),
        mode: entry.shape.mode.kind.name().to_owned(),
        wait_point: entry
            .shape
            .wait_point
            .map(|point| wait_point_name(point).to_owned()),
        replicas: entry.replicas(),
        threads,
        link_delay_us: delay.map(|delay| delay.0.as_secs_f64() * 1e6),
        block: number,
        void: block.void.clone(),
        began_us: result.began.as_micros(),
        counted_us: result.counted.as_micros(),
        operations: result.operations,
        retries: result.retries.iter().map(|retried| retried.count).sum(),
        failed: result.failed,
        latency: distribution(&result.service),
        primary_cpu_us_per_op: per_operation(cpu.first().copied().flatten()),
        all_cpu_us_per_op: per_operation(cpu.iter().copied().sum()),
        client_cpu_us_per_op: per_operation(Some(result.client_cpu.as_secs_f64() * 1e6)),
        behind: block.behind.iter().map(|(_, behind)| *behind).max(),
    }
}

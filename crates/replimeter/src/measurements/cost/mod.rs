//! `cost`: rounds of fresh starts of every mode in shuffled order, a load on each, and the
//! price list at the end.

mod figures;
mod gathered;

use std::{path::Path, sync::atomic::Ordering};

use clap::Arg;
use replimeter_measure::{
    clock::Clock,
    cost::{Bench, Cell, Event, Listener},
    load::{Filled, Workload},
};
use replimeter_model::{
    cost::{
        CostDocument, CostKind, CostMode, CostModes, CostResults, CostRow, SelfComparison,
        SelfTest, StartRecord, label,
    },
    engine::Engine,
    load::Size,
    plan::{CostPlan, CostSettings, CostShape, Planned},
    random::Random,
    sandbox::WaitPoint,
    span::Span,
    target::Target,
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_report::{
    chart::Chart,
    charts,
    cost::{answer, report},
    cost_blocks::CostBlocks,
    figures::count,
    html::HtmlError,
    report::Report,
    rows::Rows,
    together::Findings,
};
use replimeter_server::source::{Install, ServerSource, Servers, SourceErrorKind};
use replimeter_stats::binomial::Excess;

use self::gathered::{Call, Gathered, Key, Mode, PriceList, rows, steps};
use crate::{
    compare::figures::{Figures, SampleFile},
    failure::{Failure, Kind, unexpected},
    machine,
    run::{
        Client, Concluded, Detail, Finished, Histograms, Measurement, Progress, RunContext, Stage,
    },
    touches::{LOAD, SERVERS, TIME, Touches, WRITES, started},
    workloads::{NEAR_LIMIT, filling, refuse_size, workload},
};

/// About how long servers take to start, for the time that is left.
const STARTING_S: f64 = 3.0;
/// The share of differences that a mode compared with itself should show.
const EXPECTED: f64 = 0.05;

/// What each mode of replication costs.
pub(crate) struct Cost;

impl Measurement for Cost {
    const ABOUT: &'static str = "Measure what each mode of replication costs: throughput, latency and processor time against a lone server, with intervals";
    const EXAMPLES: &'static str = "\
Examples:
  replimeter cost
  replimeter cost --modes none,async,semi-sync --threads 1 --for 30s
  replimeter cost --modes mysql/async,mysql/semi-sync,group:3 --durability strict
  replimeter cost --modes semi-sync,galera --link-delay 0,1ms,10ms --threads 1
  replimeter cost --workload oltp-mix --size 100MB --threads 8 --json
  replimeter cost --modes async --self-test
  replimeter run plans/semi-sync-cost.toml

Servers are started for each mode and removed afterwards; yours are never touched. docs/cost.md explains the figures.";
    const OWN_SERVERS: Option<fn(&Arg) -> bool> = Some(|option| {
        [
            "server_options",
            "servers",
            "wait_point",
            "link_bandwidth",
            "cpus_per_server",
        ]
        .contains(&option.get_id().as_str())
    });
    const STARTS: bool = true;

    type Settings = CostSettings;
    type Options = ();
    type Call = Call;
    type Gathered = PriceList;
    type Columns = CostBlocks;
    type Results = CostResults;

    fn client(plan: &CostPlan) -> Client {
        Client {
            keep_awake: plan.keep_awake,
            real_time: false,
        }
    }

    fn check(plan: &Planned<CostSettings>) -> Result<(), Failure> {
        load_of(&plan.plan).map(drop)
    }

    fn touches(touches: &mut Touches, plan: &Planned<CostSettings>) -> Result<(), Failure> {
        let work = &plan.plan;
        let mut known: Vec<String> = Vec::new();
        // A mode against itself is the first of them, at one number of threads and one distance.
        let (tested, times) = match work.self_test {
            Some(comparisons) => (1, 2 * comparisons * work.starts),
            None => (work.shapes.len(), work.starts),
        };
        for shape in &work.shapes[..tested] {
            let point = shape
                .wait_point
                .map_or_else(String::new, |point| format!(", {}", point.name()));
            let line = format!(
                "{}: {}{point}, {} times, and removes them",
                shape.mode,
                started(&shape.spec),
                times
            );
            if !known.contains(&line) {
                touches.say(SERVERS, line.clone());
                known.push(line);
            }
        }
        if work.self_test.is_none()
            && !work
                .shapes
                .iter()
                .any(|shape| shape.mode.kind == CostKind::None)
        {
            touches.say(
                SERVERS,
                format!("none of each binary, which all are held against, {times} times"),
            );
        }
        if work.modes == CostModes::All && work.self_test.is_none() {
            touches.say(
                SERVERS,
                "modes that the servers found here cannot be started in are left out",
            );
        }
        touches.say(WRITES, "schema `replimeter` of these servers only");
        let workload = workload(&work.workload)?;
        let of = if work.self_test.is_some() {
            1
        } else {
            work.threads.len()
        };
        let threads: Vec<String> = work.threads[..of].iter().map(ToString::to_string).collect();
        touches.say(
            LOAD,
            format!(
                "{} with {} connections, back to back",
                workload.name,
                threads.join(", then ")
            ),
        );
        let distances = if work.self_test.is_some() {
            1
        } else {
            work.link_delays.len().max(1)
        };
        let cells = (of * distances) as u32;
        let times = work
            .self_test
            .map_or(work.shapes.len() as u32, |comparisons| 2 * comparisons);
        touches.say(
            TIME,
            format!(
                "about {} and the starts",
                Span((work.duration.0 + work.ramp.0 * work.starts) * cells * times)
            ),
        );
        Ok(())
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), Failure> {
        let work = cx.work;
        let (workload, size) = load_of(work)?;
        let (entries, left_out) = entries(cx.plan, work, cx.source())?;
        let before = machine::CoreTime::read();
        cx.warn(left_out.iter().map(|words| {
            Warning::new(
                WarningCode::ModeLeftOut,
                format!("a mode was left out: {words}"),
                "install what it needs, or name the modes (--modes)",
            )
        }));
        let mode = |entry: &Entry| Mode {
            engine: entry.engine(),
            mode: entry.mode(),
            label: entry.label(),
        };
        cx.take(Call::Modes {
            modes: entries.iter().map(mode).collect(),
            left_out,
        })?;
        let mut starts = Starts {
            work,
            workload: &workload,
            size,
            random: Random::new(work.seed),
            round: 0,
            done_s: 0.0,
            all_s: 0.0,
        };
        let result = match work.self_test {
            None => starts.rounds(cx, &entries),
            Some(comparisons) => starts.against_itself(cx, &entries[0], comparisons),
        };
        if Self::is_empty(&cx.gathered) {
            let void = cx.gathered.all.iter().any(|gathered| gathered.void() > 0);
            return result.and(match void {
                true => Err(Failure::void(
                    "no block counts: semi-synchronous replication fell back in every one",
                    "use fewer threads, or see why the replica does not acknowledge in time",
                )),
                false => Ok(()),
            });
        }
        let idle = before
            .zip(machine::CoreTime::read())
            .and_then(|(before, after)| after.idle_share(before));
        if let Some(share) = idle {
            cx.take(Call::Idle(share))?;
        }
        result
    }

    fn gathered(_: &Planned<CostSettings>) -> PriceList {
        PriceList::default()
    }

    fn take(gathered: &mut PriceList, _: &CostPlan, call: Call, rows: &mut Rows<CostBlocks>) {
        gathered.take(call, rows);
    }

    fn is_empty(gathered: &PriceList) -> bool {
        gathered.all.iter().all(Gathered::is_empty)
    }

    fn conclude(run: &mut Finished<'_, Self>, prices: PriceList) -> Concluded<CostResults> {
        let work = run.work;
        let PriceList {
            modes,
            left_out,
            all,
            limits,
            order,
            durability,
            compared,
            idle,
            ..
        } = prices;
        let self_test = work
            .self_test
            .and(modes.first())
            .map(|mode| verdict(mode, work, compared));
        let failure = &mut run.ended.failure;
        *failure = failure.take().or_else(|| void(&all, self_test.as_ref()));
        let rows = rows(&all, &limits, work.durability.name());
        let warnings = &mut run.ended.warnings;
        warnings.extend(judge(work, &all, &rows));
        if let (false, Some(share)) = (run.ended.keep_awake, idle.filter(|share| *share > 0.2)) {
            warnings.push(Warning::new(
                WarningCode::KeepAwakeOff,
                format!("this machine's cores were idle for {:.0} % of the run and were not kept awake: at few threads waking them is part of every latency, and more servers can look faster than one", share * 100.0),
                "use --keep-awake on",
            ));
        }
        let cut = failure
            .as_ref()
            .filter(|failure| matches!(failure.kind, Kind::Interrupted | Kind::Failed));
        warnings.extend(cut.map(Failure::warning));
        let labels: Vec<&str> = modes.iter().map(|mode| mode.label.as_str()).collect();
        let took = Nanos(all.iter().map(|gathered| gathered.counted().0).sum());
        Concluded {
            target: run.target(
                labels.join(", "),
                modes.iter().map(|mode| mode.mode.clone()).collect(),
            ),
            measured_us: Some(run.ended.at.as_micros()),
            histograms: Some(Histograms {
                took,
                series: all.iter().map(Gathered::latencies).collect(),
            }),
            results: CostResults {
                rows,
                durability,
                steps: steps(&all),
                order,
                self_test,
                left_out,
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &CostDocument) -> String {
        answer(document)
    }

    fn figures(_: &CostDocument, samples: &SampleFile) -> Result<Figures, Failure> {
        figures::figures(samples)
    }

    fn report(document: &CostDocument, _: bool) -> Report {
        report(document)
    }

    fn charts(document: &CostDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(charts::cost::charts(document))
    }

    fn findings(document: &CostDocument) -> Findings<'_> {
        Findings::Cost(document)
    }
}

/// Why the figures are not what was to be measured.
fn void(all: &[Gathered], self_test: Option<&SelfTest>) -> Option<Failure> {
    let of = |gathered: &Gathered| {
        format!(
            "{} at {} threads",
            gathered.key.kind.name(),
            gathered.key.threads
        )
    };
    let fallen_back = |gathered: &&Gathered| gathered.is_empty() && gathered.void() > 0;
    if let Some(gathered) = all.iter().find(fallen_back) {
        return Some(Failure::void(
            format!(
                "{}: no block counts, because semi-synchronous replication fell back in every one",
                of(gathered)
            ),
            "use fewer threads, or see why the replica does not acknowledge in time",
        ));
    }
    if let Some(gathered) = all.iter().find(|gathered| gathered.idle()) {
        let errors = gathered
            .first_error()
            .map_or_else(String::new, |error| format!(": {error}"));
        return Some(Failure::void(
            format!(
                "{}: no operation was completed in the counted time{errors}",
                of(gathered)
            ),
            "measure for longer (--for), or mend the statement",
        ));
    }
    let test = self_test.filter(|test| test.significant)?;
    Some(Failure::void(
        format!(
            "a mode compared with itself was found to differ in {} of {} comparisons, which is significantly more than 5 %",
            test.differences,
            test.comparisons.len()
        ),
        "is something else running on this machine? its differences between modes are not to be trusted until this holds",
    ))
}

/// The workload, and how much data it runs on.
fn load_of(work: &CostPlan) -> Result<(Workload, Size), Failure> {
    let workload = workload(&work.workload)?;
    refuse_size(work.size, std::slice::from_ref(&workload))?;
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
            self.shape.wait_point.map(WaitPoint::name),
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
            self.shape.wait_point.map(WaitPoint::name),
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
fn entries(
    plan: &Planned<CostSettings>,
    work: &CostPlan,
    source: &dyn ServerSource,
) -> Result<(Vec<Entry>, Vec<String>), Failure> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut left_out = Vec::new();
    for shape in &work.shapes {
        match source.available(&shape.spec) {
            Ok(install) => entries.push(pinned(shape.clone(), install)),
            Err(error)
                if error.kind == SourceErrorKind::Unavailable
                    && work.modes == CostModes::All
                    && work.self_test.is_none() =>
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

/// What the starts share.
struct Starts<'a> {
    work: &'a CostPlan,
    workload: &'a Workload,
    size: Size,
    random: Random,
    round: u32,
    /// Planned seconds, done and all.
    done_s: f64,
    all_s: f64,
}

/// What a reader must know of the figures.
fn judge(work: &CostPlan, all: &[Gathered], results: &[CostRow]) -> Vec<Warning> {
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
fn verdict(mode: &Mode, work: &CostPlan, comparisons: Vec<SelfComparison>) -> SelfTest {
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
        engine: mode.engine.name().to_owned(),
        mode: mode.mode.clone(),
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

impl Starts<'_> {
    /// Every mode in every round, in another order each time.
    fn rounds(&mut self, cx: &mut RunContext<'_, Cost>, entries: &[Entry]) -> Result<(), Failure> {
        // Each entry's rows follow one another.
        let (mut first, mut keys) = (Vec::new(), Vec::new());
        for entry in entries {
            first.push(keys.len());
            keys.extend(
                entry
                    .cells(self.work)
                    .into_iter()
                    .map(|(threads, delay)| entry.key(threads, delay)),
            );
        }
        cx.take(Call::Rows(keys))?;
        let each = |entry: &Entry| self.planned(entry.cells(self.work).len());
        self.all_s = entries.iter().map(each).sum::<f64>() * f64::from(self.work.starts);
        for round in 1..=self.work.starts {
            self.round = round;
            let mut order: Vec<usize> = (0..entries.len()).collect();
            self.random.shuffle(&mut order);
            for index in order {
                let entry = &entries[index];
                let cells = entry.cells(self.work);
                self.start(cx, entry, &cells, first[index], None)?;
            }
        }
        Ok(())
    }

    /// One mode against itself, again and again; the starts of both sides in shuffled order.
    fn against_itself(
        &mut self,
        cx: &mut RunContext<'_, Cost>,
        entry: &Entry,
        comparisons: u32,
    ) -> Result<(), Failure> {
        let (threads, delay) = entry
            .cells(self.work)
            .first()
            .copied()
            .ok_or_else(unexpected)?;
        let cell = [(threads, delay)];
        // The row is of all starts together.
        cx.take(Call::Rows(vec![entry.key(threads, delay)]))?;
        self.all_s = self.planned(1) * f64::from(self.work.starts) * 2.0 * f64::from(comparisons);
        for _ in 0..comparisons {
            cx.take(Call::Comparison)?;
            for _ in 0..self.work.starts {
                self.round += 1;
                let mut order = [0, 1];
                self.random.shuffle(&mut order);
                for side in order {
                    self.start(cx, entry, &cell, 0, Some(side))?;
                }
            }
            cx.take(Call::Compared)?;
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

    /// How long all the rest will take.
    fn left(&self, clock: Clock) -> Detail {
        let passed = clock.now().as_micros() / 1e6;
        Detail::Left(match self.done_s > 0.0 {
            true => passed / self.done_s * (self.all_s - self.done_s),
            false => self.all_s - passed,
        })
    }

    /// One start of one mode: every cell in shuffled order. Of each row what was whole is kept,
    /// whatever happens. The cells' rows begin at `first`; in a self-test every block goes to one of its sides too.
    fn start(
        &mut self,
        cx: &mut RunContext<'_, Cost>,
        entry: &Entry,
        cells: &[(u32, Option<Span>)],
        first: usize,
        side: Option<usize>,
    ) -> Result<(), Failure> {
        if cx.stop.load(Ordering::Relaxed) {
            return Err(Failure::cut_short());
        }
        let what = format!("round {}, {}", self.round, entry.label());
        let starting = Progress::new(Stage::Servers, "starting").part(&what);
        cx.observers.progress(starting.with(self.left(cx.clock)));
        let mut servers = cx.open(&Target::Sandbox(entry.shape.spec.clone()))?;
        let start = Start {
            entry,
            what,
            cells,
            first,
            side,
        };
        let result = self.measure(cx, servers.as_mut(), &start);
        cx.take(Call::StartEnded {
            rows: (first..first + cells.len()).collect(),
            side,
        })?;
        cx.close(servers);
        self.done_s += self.planned(cells.len());
        result.map_err(|failure| match failure.kind {
            Kind::Interrupted => Failure::cut_short(),
            _ => failure.about(&entry.label(), true),
        })
    }

    fn measure(
        &mut self,
        cx: &mut RunContext<'_, Cost>,
        servers: &mut dyn Servers,
        start: &Start<'_>,
    ) -> Result<(), Failure> {
        let Start { entry, what, .. } = start;
        let kind = entry.shape.mode.kind;
        let (clock, stop, observers) = (cx.clock, cx.stop, &cx.observers);
        let mut filled = |filled: &Filled| observers.progress(filling(filled).part(what));
        let mut bench = Bench::open(
            servers.members(),
            kind,
            self.workload,
            self.size,
            &clock,
            &mut filled,
            stop,
        )?;
        self.met(cx, entry, servers, &bench)?;
        if kind == CostKind::None {
            limits(cx, start, &mut bench)?;
        }
        let mut order: Vec<usize> = (0..start.cells.len()).collect();
        self.random.shuffle(&mut order);
        for (place, index) in order.into_iter().enumerate() {
            let (threads, delay) = start.cells[index];
            let left = self.left(clock);
            if place > 0 {
                let doing = "emptying the table, waiting for replicas";
                let emptying = Progress::new(Stage::CleanUp, doing).part(what);
                cx.observers.progress(emptying.with(left.clone()));
                bench.empty(stop)?;
            }
            if let Some(delay) = delay {
                let faults = servers.faults().ok_or_else(unexpected)?;
                faults.set_delay(delay.0)?;
            }
            cx.take(Call::Row {
                row: start.first + index,
                side: start.side,
            })?;
            let (blocks, length) = self.work.blocks();
            let cell = Cell {
                threads,
                ramp: self.work.ramp.0,
                blocks,
                length: length.0,
            };
            let distance = delay.map_or_else(String::new, |delay| format!(", {delay} one way"));
            let mut on = |event| match event {
                Event::Rate(per_s) => {
                    cx.observers.progress(
                        Progress::new(Stage::Measure, "measuring")
                            .part(format!("{what}, {threads} threads{distance}"))
                            .with(Detail::Rate("".into(), per_s))
                            .with(left.clone()),
                    );
                    Ok(())
                }
                Event::Block(block) => cx
                    .take(Call::Block(block))
                    .map_err(|failure| failure.message),
            };
            bench.run(cell, &mut Listener { on: &mut on, stop })?;
        }
        Ok(())
    }

    /// Writes down what the servers are, at their first start.
    fn met(
        &self,
        cx: &mut RunContext<'_, Cost>,
        entry: &Entry,
        servers: &dyn Servers,
        bench: &Bench<'_>,
    ) -> Result<(), Failure> {
        let label = entry.label();
        cx.take(Call::Start(StartRecord {
            round: self.round,
            engine: entry.engine().name().to_owned(),
            mode: entry.mode(),
            start_us: servers.record().map_or(0.0, |record| record.start_us),
        }))?;
        let mut known = cx.manifest.sandboxes.iter();
        if known.any(|known| known.shape == label) {
            return Ok(());
        }
        cx.known(&label, servers.record(), bench.records().to_vec())?;
        let found = bench.meter_warnings().into_iter();
        found.for_each(|warning| cx.warn_once(warning));
        if let Some(server) = bench.records().first() {
            let value = |name: &str| {
                let value = server.variables.get(name);
                value.map_or("unknown", String::as_str).to_owned()
            };
            let words = format!(
                "{}: innodb_flush_log_at_trx_commit={}, sync_binlog={}",
                entry.version(),
                value("innodb_flush_log_at_trx_commit"),
                value("sync_binlog")
            );
            if !cx.gathered.durability.contains(&words) {
                cx.take(Call::Durability(words))?;
            }
        }
        Ok(())
    }
}

/// One start of one mode.
struct Start<'a> {
    entry: &'a Entry,
    what: String,
    cells: &'a [(u32, Option<Span>)],
    /// The number of the first cell's row.
    first: usize,
    /// The side of a self-test.
    side: Option<usize>,
}

/// Measures the client's own limit at the numbers of threads at which it is not known.
fn limits(
    cx: &mut RunContext<'_, Cost>,
    start: &Start<'_>,
    bench: &mut Bench<'_>,
) -> Result<(), Failure> {
    let engine = start.entry.engine();
    for (threads, _) in start.cells {
        let mut known = cx.gathered.limits.iter();
        if known.any(|(of, known, _)| (*of, *known) == (engine, *threads)) {
            continue;
        }
        let doing = format!("the client's own limit at {threads} threads");
        let limit = Progress::new(Stage::Prepare, doing);
        cx.observers.progress(limit.part(&start.what));
        if let Some(per_s) = bench.limit(*threads)? {
            cx.take(Call::Limit {
                engine,
                threads: *threads,
                per_s,
            })?;
        }
    }
    Ok(())
}

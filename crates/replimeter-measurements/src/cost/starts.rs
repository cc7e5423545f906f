//! Starts the servers of each mode in turn, and measures them under load.

use std::sync::atomic::Ordering;

use replimeter_engine::source::Servers;
use replimeter_instruments::{
    clock::Clock,
    cost::{Bench, Cell, Event, Listener},
    load::{Filled, Workload},
};
use replimeter_model::{
    cost::StartRecord,
    load::Size,
    plan::{CostKind, CostPlan},
    random::Random,
    span::Span,
    target::Target,
};
use replimeter_run::{
    Detail, Progress, RunContext, Stage,
    failure::{Failure, Kind, unexpected},
    workloads::filling,
};

use super::{Cost, entries::Entry, gathered::Call};

/// Typical start time of servers in seconds, for the estimate of the time left.
const STARTING_S: f64 = 3.0;

/// State shared by all starts.
pub(super) struct Starts<'a> {
    work: &'a CostPlan,
    workload: &'a Workload,
    size: Size,
    random: Random,
    round: u32,
    /// Planned seconds: done and total.
    done_s: f64,
    all_s: f64,
}

impl<'a> Starts<'a> {
    pub(super) fn new(work: &'a CostPlan, workload: &'a Workload, size: Size) -> Self {
        Self {
            work,
            workload,
            size,
            random: Random::new(work.seed),
            round: 0,
            done_s: 0.0,
            all_s: 0.0,
        }
    }
}

impl Starts<'_> {
    /// Measures every mode in every round, in a new random order each time.
    pub(super) fn rounds(
        &mut self,
        cx: &mut RunContext<'_, Cost>,
        entries: &[Entry],
    ) -> Result<(), Failure> {
        // The rows of an entry are consecutive.
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

    /// Compares one mode with itself repeatedly, with the starts of both sides in random order.
    pub(super) fn against_itself(
        &mut self,
        cx: &mut RunContext<'_, Cost>,
        entry: &Entry,
        comparisons: u32,
    ) -> Result<(), Failure> {
        let (threads, delay) = entry
            .cells(self.work)
            .first()
            .copied()
            .ok_or_else(|| unexpected("an entry has nothing to measure"))?;
        let cell = [(threads, delay)];
        // The row covers all starts together.
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

    /// Returns the planned seconds of a start with this many cells.
    fn planned(&self, cells: usize) -> f64 {
        let (blocks, length) = self.work.blocks();
        STARTING_S
            + cells as f64
                * (self.work.warm_up.0.as_secs_f64() + f64::from(blocks) * length.0.as_secs_f64())
    }

    /// Returns the estimated time left.
    fn left(&self, clock: Clock) -> Detail {
        let passed = clock.now().as_micros() / 1e6;
        Detail::Left(match self.done_s > 0.0 {
            true => passed / self.done_s * (self.all_s - self.done_s),
            false => self.all_s - passed,
        })
    }

    /// Measures one start of one mode, with its cells in random order. On every outcome, complete rows are
    /// kept. The cells' rows begin at `first`; in a self-test, each block is also added to one of its sides.
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
                let faults = servers
                    .faults()
                    .ok_or_else(|| unexpected("these servers support no fault injection"))?;
                faults.set_delay(delay.0)?;
            }
            cx.take(Call::Row {
                row: start.first + index,
                side: start.side,
            })?;
            let (blocks, length) = self.work.blocks();
            let cell = Cell {
                threads,
                ramp: self.work.warm_up.0,
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

    /// Records the servers at their first start.
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

/// Measures the client's ping limit at each number of threads that lacks one.
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
        let doing = format!("ping limit of the client at {threads} threads");
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

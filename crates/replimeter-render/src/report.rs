//! A report as data: a head, blocks, how it was measured. Each output has one renderer of it.

use replimeter_model::{
    envelope::Envelope,
    plan::Settings,
    record::{Bin, TargetRecord},
    warning::Warning,
};

pub use crate::cell::Cell;
use crate::figures::count;

/// What people read of a run, a comparison or a reproduction, whatever the output.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The command; empty for a list that needs no head.
    pub command: &'static str,
    /// What the plan calls the run.
    pub title: Option<String>,
    /// The page's heading where the plan has no title.
    pub question: &'static str,
    /// What was measured, in short.
    pub shape: String,
    /// What was measured and how, in a few words each: shape, versions, pace.
    pub facts: Vec<String>,
    /// How much was measured, such as `1,000 samples`.
    pub extent: String,
    /// When it began.
    pub started_at: String,
    /// The finding.
    pub answer: String,
    /// What ended it.
    pub error: Option<String>,
    /// What a reader must know of the figures.
    pub warnings: Vec<Warning>,
    /// Tables, lists and texts, in their order.
    pub blocks: Vec<Block>,
    /// How it was measured, and what belongs to it, a sentence or two each.
    pub how: Vec<String>,
    /// Whether servers of several shapes or sides are named by them.
    pub several: bool,
}

/// A section of a report.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its name on the page, where links point to.
    pub id: String,
    /// Its heading; empty for none.
    pub title: String,
    /// What it holds.
    pub content: Content,
    /// What a reader must know of it, in sentences.
    pub notes: Vec<String>,
    /// The page has its charts first.
    pub after_charts: bool,
    /// The page shows it when it is opened.
    pub collapsed: bool,
    /// Which outputs show it.
    pub shown: Shown,
}

/// Which outputs show a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// All.
    #[default]
    Everywhere,
    /// Those without charts: the page has a chart of it, with its values as a table.
    WithoutCharts,
    /// The page alone: it is long, and no finding depends on it.
    OnPage,
}

/// What a block holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// Rows of cells under headings.
    Table(Table),
    /// Sentences.
    List(Vec<String>),
    /// Sentences behind this mark, each with what to do; nothing where there is nothing to do.
    Advice(char, Vec<(String, String)>),
    /// Lines that keep their columns.
    Verbatim(String),
    /// A histogram.
    Bars(Vec<Bin>),
    /// Values over time.
    Timelines(Vec<Timeline>),
    /// Tables beside one another, each with its heading.
    Columns(Vec<(String, Table)>),
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, each with a cell for every column.
    pub rows: Vec<Vec<Cell>>,
    /// Outputs without charts show as many rows; all are in the record.
    pub most: Option<usize>,
    /// Its words are not broken, however wide it is: they are to be copied.
    pub unbroken: bool,
}

/// A heading, and what stands under it in each row.
pub type Under<'a, T, C> = (&'a str, &'a dyn Fn(&T) -> C);

/// The head of a column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its heading.
    pub heading: String,
    /// Whether it holds words, which begin at the left, or numbers.
    pub words: bool,
}

/// Values over time, a character each on a terminal.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// What they are of.
    pub name: String,
    /// Heights from 0 to 1; `None` where nothing is known.
    pub heights: Vec<Option<f64>>,
    /// What lowest, highest and last mean.
    pub scale: String,
}

impl Table {
    /// A table whose first `words` columns are words and the others numbers.
    pub fn new<C: Into<Cell>>(
        headings: &[impl AsRef<str>],
        words: usize,
        rows: impl IntoIterator<Item = Vec<C>>,
    ) -> Self {
        let column = |(index, heading): (usize, &_)| Column {
            heading: AsRef::<str>::as_ref(heading).to_owned(),
            words: index < words,
        };
        let row = |row: Vec<C>| row.into_iter().map(Into::into).collect();
        Self {
            columns: headings.iter().enumerate().map(column).collect(),
            rows: rows.into_iter().map(row).collect(),
            most: None,
            unbroken: false,
        }
    }

    /// A table with a row for each of `rows`: each column is a heading, and what stands below it. The first `words`
    /// columns are words.
    pub fn of<T, C: Into<Cell>>(
        words: usize,
        rows: impl IntoIterator<Item = T>,
        columns: &[Under<'_, T, C>],
    ) -> Self {
        let headings: Vec<&str> = columns.iter().map(|&(heading, _)| heading).collect();
        let line = |row: T| -> Vec<C> { columns.iter().map(|(_, cell)| cell(&row)).collect() };
        Self::new(&headings, words, rows.into_iter().map(line))
    }

    /// The same; of its columns this one is words too.
    pub fn with_words(mut self, column: usize) -> Self {
        self.columns[column].words = true;
        self
    }

    /// What stands in the cells that outputs without charts show.
    pub fn shown(&self) -> impl Iterator<Item = Vec<String>> {
        let rows = self.rows.iter().take(self.most.unwrap_or(usize::MAX));
        rows.map(|row| row.iter().map(Cell::shown).collect())
    }

    /// How many rows they leave out, in words.
    pub fn left_out(&self) -> Option<String> {
        let hidden = self.rows.len().saturating_sub(self.most?);
        (hidden > 0).then(|| format!("and {} more, in summary.json", count(hidden as u64)))
    }
}

impl Content {
    /// Whether there is nothing to show.
    fn is_empty(&self) -> bool {
        match self {
            Self::Table(table) => table.rows.is_empty(),
            Self::List(sentences) => sentences.is_empty(),
            Self::Advice(_, all) => all.is_empty(),
            Self::Verbatim(text) => text.is_empty(),
            Self::Bars(bins) => bins.is_empty(),
            Self::Timelines(lines) => lines.is_empty(),
            Self::Columns(tables) => tables.iter().all(|(_, table)| table.rows.is_empty()),
        }
    }
}

impl Block {
    /// A block of this content.
    pub fn new(id: impl Into<String>, title: impl Into<String>, content: Content) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            content,
            notes: Vec::new(),
            after_charts: false,
            collapsed: false,
            shown: Shown::Everywhere,
        }
    }

    /// A table with a heading.
    pub fn table(id: impl Into<String>, title: impl Into<String>, table: Table) -> Self {
        Self::new(id, title, Content::Table(table))
    }

    /// Sentences with a heading.
    pub fn list(id: impl Into<String>, title: impl Into<String>, sentences: Vec<String>) -> Self {
        Self::new(id, title, Content::List(sentences))
    }

    /// The same with notes.
    pub fn noted(self, notes: Vec<String>) -> Self {
        Self { notes, ..self }
    }

    /// The same, to be opened on the page.
    pub fn collapsed(self) -> Self {
        Self {
            collapsed: true,
            ..self
        }
    }

    /// The same for some outputs.
    pub fn shown(self, shown: Shown) -> Self {
        Self { shown, ..self }
    }

    /// The same behind the page's charts.
    pub fn after_charts(self) -> Self {
        Self {
            after_charts: true,
            ..self
        }
    }
}

impl Report {
    /// The report of a run with its head, and nothing else in it yet.
    pub fn of<S: Settings, R>(
        run: &Envelope<S, R>,
        question: &'static str,
        extent: String,
    ) -> Self {
        Self {
            command: S::NAME,
            title: run.title.clone(),
            question,
            shape: run.target.shape.clone(),
            facts: facts(&run.target),
            extent,
            started_at: run.started_at.clone(),
            answer: run.headline.clone(),
            error: run.error.clone(),
            warnings: run.warnings.clone(),
            ..Self::default()
        }
    }

    /// Adds a block, unless nothing is in it.
    pub fn add(&mut self, block: Block) {
        if !block.content.is_empty() {
            self.blocks.push(block);
        }
    }

    /// The blocks of an output that has charts, or of one that has none.
    pub fn blocks_for(&self, charts: bool) -> impl Iterator<Item = &Block> {
        let other = if charts {
            Shown::WithoutCharts
        } else {
            Shown::OnPage
        };
        self.blocks.iter().filter(move |block| block.shown != other)
    }

    /// The heading: what the plan calls the run, or what it asks.
    pub fn heading(&self) -> &str {
        self.title.as_deref().unwrap_or(self.question)
    }

    /// The first line: the command, and what the plan calls the run.
    pub fn named(&self) -> String {
        match &self.title {
            Some(title) => format!("Replimeter {}: {title}", self.command),
            None if self.command.is_empty() => String::new(),
            None => format!("Replimeter {}", self.command),
        }
    }

    /// Says how the servers were set up, among how it was measured.
    pub fn with_servers(mut self, target: &TargetRecord) -> Self {
        if !target.options.is_empty() {
            self.how
                .push(format!("Servers: {}.", target.options.join("; ")));
        }
        self
    }
}

/// What every report of a run begins with: shape and modes, and the servers' versions.
fn facts(target: &TargetRecord) -> Vec<String> {
    let mut versions: Vec<&str> = target
        .nodes
        .iter()
        .map(|node| node.version.as_str())
        .collect();
    versions.sort_unstable();
    versions.dedup();
    [target.headline(), versions.join(", ")]
        .into_iter()
        .filter(|fact| !fact.is_empty())
        .collect()
}

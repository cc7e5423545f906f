//! A report as data: a head, blocks, the method. Each output has one renderer.

use replimeter_model::{
    envelope::Envelope,
    plan::Settings,
    record::{Bin, TargetRecord},
    warning::Warning,
};

pub use crate::cell::Cell;
use crate::figures::count;

/// The report of a run, a comparison or a reproduction, for all outputs.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The command; empty for a list that needs no head.
    pub command: &'static str,
    /// The title of the run in its plan.
    pub title: Option<String>,
    /// The page's heading if the plan has no title.
    pub question: &'static str,
    /// The measured shape, in short.
    pub shape: String,
    /// The conditions in a few words each: shape, versions, pace.
    pub facts: Vec<String>,
    /// The amount of data, such as `1,000 samples`.
    pub extent: String,
    /// When the run began.
    pub started_at: String,
    /// The headline.
    pub answer: String,
    /// The error that ended the run.
    pub error: Option<String>,
    /// Warnings about the figures.
    pub warnings: Vec<Warning>,
    /// Tables, lists and texts, in order.
    pub blocks: Vec<Block>,
    /// The method, one or two sentences each.
    pub how: Vec<String>,
    /// Whether servers are named with their shape or side.
    pub several: bool,
}

/// A section of a report.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its id on the page, the target of links.
    pub id: String,
    /// Its heading; can be empty.
    pub title: String,
    /// Its content.
    pub content: Content,
    /// Notes, in sentences.
    pub notes: Vec<String>,
    /// Whether it comes after the charts on the page.
    pub after_charts: bool,
    /// Whether it is collapsed on the page.
    pub collapsed: bool,
    /// The outputs that show it.
    pub shown: Visibility,
}

/// The outputs that show a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// All outputs.
    #[default]
    Everywhere,
    /// Outputs without charts: the page has a chart of it, with its values as a table.
    WithoutCharts,
    /// Only the page: it is long, and no finding depends on it.
    OnPage,
}

/// The content of a block.
#[derive(Clone, Debug)]
pub enum Content {
    /// Rows of cells under headings.
    Table(Table),
    /// Sentences.
    List(Vec<String>),
    /// Sentences after this mark, each with its hint; the hint can be empty.
    Advice(char, Vec<(String, String)>),
    /// Preformatted lines.
    Verbatim(String),
    /// A histogram.
    Bars(Vec<Bin>),
    /// Values over time.
    Timelines(Vec<Timeline>),
    /// Tables side by side, each with its heading.
    Columns(Vec<(String, Table)>),
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, each with a cell for every column.
    pub rows: Vec<Vec<Cell>>,
    /// Maximum number of rows in outputs without charts; the record has all.
    pub most: Option<usize>,
    /// Whether its text is never wrapped, since it is to be copied.
    pub unbroken: bool,
}

/// A heading, and the cell below it for each row.
pub type ColumnOf<'a, T, C> = (&'a str, &'a dyn Fn(&T) -> C);

/// The head of a column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its heading.
    pub heading: String,
    /// Whether it has text, which is left-aligned, or numbers.
    pub words: bool,
}

/// Values over time, one character each on a terminal.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Its name.
    pub name: String,
    /// Heights from 0 to 1; `None` if unknown.
    pub heights: Vec<Option<f64>>,
    /// Text for lowest, highest and last.
    pub scale: String,
}

impl Table {
    /// Creates a table with the first `words` columns as text and the others as numbers.
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

    /// Creates a table with a row for each of `rows`: each column is a heading and a function for its cells.
    /// The first `words` columns are text.
    pub fn of<T, C: Into<Cell>>(
        words: usize,
        rows: impl IntoIterator<Item = T>,
        columns: &[ColumnOf<'_, T, C>],
    ) -> Self {
        let headings: Vec<&str> = columns.iter().map(|&(heading, _)| heading).collect();
        let line = |row: T| -> Vec<C> { columns.iter().map(|(_, cell)| cell(&row)).collect() };
        Self::new(&headings, words, rows.into_iter().map(line))
    }

    /// Returns the table with this column as text too.
    pub fn with_text_column(mut self, column: usize) -> Self {
        self.columns[column].words = true;
        self
    }

    /// Returns the text of the cells that outputs without charts show.
    pub fn shown(&self) -> impl Iterator<Item = Vec<String>> {
        let rows = self.rows.iter().take(self.most.unwrap_or(usize::MAX));
        rows.map(|row| row.iter().map(Cell::display_text).collect())
    }

    /// Returns the number of rows they leave out, as text.
    pub fn omitted_rows(&self) -> Option<String> {
        let hidden = self.rows.len().saturating_sub(self.most?);
        (hidden > 0).then(|| format!("and {} more, in summary.json", count(hidden as u64)))
    }
}

impl Content {
    /// Returns whether there is nothing to show.
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
    /// Creates a block with this content.
    pub fn new(id: impl Into<String>, title: impl Into<String>, content: Content) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            content,
            notes: Vec::new(),
            after_charts: false,
            collapsed: false,
            shown: Visibility::Everywhere,
        }
    }

    /// Creates a table with a heading.
    pub fn table(id: impl Into<String>, title: impl Into<String>, table: Table) -> Self {
        Self::new(id, title, Content::Table(table))
    }

    /// Creates a list of sentences with a heading.
    pub fn list(id: impl Into<String>, title: impl Into<String>, sentences: Vec<String>) -> Self {
        Self::new(id, title, Content::List(sentences))
    }

    /// Returns the block with notes.
    pub fn with_notes(self, notes: Vec<String>) -> Self {
        Self { notes, ..self }
    }

    /// Returns the block collapsed on the page.
    pub fn collapsed(self) -> Self {
        Self {
            collapsed: true,
            ..self
        }
    }

    /// Returns the block for some outputs.
    pub fn shown(self, shown: Visibility) -> Self {
        Self { shown, ..self }
    }

    /// Returns the block after the page's charts.
    pub fn after_charts(self) -> Self {
        Self {
            after_charts: true,
            ..self
        }
    }
}

impl Report {
    /// Creates the report of a run with its head only.
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

    /// Adds a block, unless it is empty.
    pub fn add(&mut self, block: Block) {
        if !block.content.is_empty() {
            self.blocks.push(block);
        }
    }

    /// Returns the blocks of outputs with charts, or without.
    pub fn blocks_for(&self, charts: bool) -> impl Iterator<Item = &Block> {
        let other = if charts {
            Visibility::WithoutCharts
        } else {
            Visibility::OnPage
        };
        self.blocks.iter().filter(move |block| block.shown != other)
    }

    /// Returns the heading: the run's title, or the default.
    pub fn heading(&self) -> &str {
        self.title.as_deref().unwrap_or(self.question)
    }

    /// Returns the first line: the command, and the run's title.
    pub fn named(&self) -> String {
        match &self.title {
            Some(title) => format!("Replimeter {}: {title}", self.command),
            None if self.command.is_empty() => String::new(),
            None => format!("Replimeter {}", self.command),
        }
    }

    /// Adds the servers' settings to the method.
    pub fn with_servers(mut self, target: &TargetRecord) -> Self {
        if !target.options.is_empty() {
            self.how
                .push(format!("Servers: {}.", target.options.join("; ")));
        }
        self
    }
}

/// Returns the common facts of every report: shape and modes, and the servers' versions.
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

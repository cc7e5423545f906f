//! What a running measurement shows of its servers, as data: for a screen, a line in a pipe, and a page.

use serde::Serialize;

/// How much attention a server needs, from least to most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Attention {
    /// None.
    #[default]
    Good,
    /// It is worth a look.
    Notice,
    /// It is not known.
    Unknown,
    /// It is needed.
    Bad,
}

/// One column of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LiveColumn {
    /// Its title, of one or two words.
    pub title: &'static str,
    /// Whether its cells are numbers, which are aligned at the right.
    pub is_number: bool,
}

/// One server of the view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveRow {
    /// Its name.
    pub name: String,
    /// How much attention it needs.
    pub attention: Attention,
    /// A cell for each column.
    pub cells: Vec<String>,
    /// What each cell is sorted by, where it is a number; larger is worse.
    pub keys: Vec<Option<f64>>,
    /// The newest values of its main figure, oldest first, in µs; null where it was not known.
    pub trend: Vec<Option<f64>>,
    /// All about it, as a name and a text each: for the view of one server.
    pub details: Vec<(&'static str, String)>,
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LiveChange {
    /// The time of day, in UTC.
    pub at: String,
    /// How much attention it needs.
    pub attention: Attention,
    /// What happened, with the name of the server.
    pub text: String,
}

/// The servers of a running measurement, as they are now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveView {
    /// The title: the measurement and its target.
    pub title: String,
    /// The state of all, in a sentence.
    pub summary: String,
    /// The columns, without the name.
    pub columns: Vec<LiveColumn>,
    /// The servers.
    pub rows: Vec<LiveRow>,
    /// What happened, newest first.
    pub changes: Vec<LiveChange>,
    /// The state in one line, for a pipe.
    pub line: String,
}

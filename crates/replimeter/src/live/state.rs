//! What the screen shows, and what keys change of it. It knows no terminal.

use std::{cmp::Ordering, mem};

use replimeter_render::live::{Attention, LiveChange, LiveRow, LiveView};

use super::keys::Key;

/// Messages that are shown among the changes.
const MESSAGES: usize = 100;

/// What fills the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// All servers.
    Servers,
    /// The selected one.
    OneServer,
    /// The keys.
    Help,
}

/// What the servers are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sorting {
    /// How much attention they need; then as the view has them.
    Attention,
    /// Their names.
    Name,
    /// A column.
    Column(usize),
}

/// A view, and the time of day at which it came, in UTC.
#[derive(Clone, Default)]
pub(super) struct TimedView {
    pub(super) view: LiveView,
    pub(super) at: String,
}

/// What the screen shows.
pub(super) struct ScreenState {
    pub(super) now: TimedView,
    /// The newest view, while the screen is paused.
    pub(super) newest: Option<TimedView>,
    pub(super) shown: Shown,
    pub(super) sorting: Sorting,
    pub(super) is_reversed: bool,
    /// The places of the rows in the view, in the order of the screen.
    pub(super) order: Vec<usize>,
    /// The place of the selected server in this order, and its name; without a name, the place stays when other servers get it.
    pub(super) selected: usize,
    name: String,
    /// The first row that is visible, and how many are.
    pub(super) first: usize,
    height: usize,
    /// Messages, oldest first, and the change that was the newest before each.
    messages: Vec<(LiveChange, Option<LiveChange>)>,
}

impl Default for ScreenState {
    fn default() -> Self {
        Self {
            now: TimedView::default(),
            newest: None,
            shown: Shown::Servers,
            sorting: Sorting::Attention,
            is_reversed: false,
            order: Vec::new(),
            selected: 0,
            name: String::new(),
            first: 0,
            height: 0,
            messages: Vec::new(),
        }
    }
}

impl ScreenState {
    /// Takes the newest view, which is shown unless the screen is paused.
    pub(super) fn update(&mut self, view: TimedView) {
        match &mut self.newest {
            Some(newest) => *newest = view,
            None => {
                self.now = view;
                self.sort();
            }
        }
    }

    /// Adds a message to the changes.
    pub(super) fn add_message(&mut self, text: &str, at: String) {
        let message = LiveChange {
            at,
            attention: Attention::Notice,
            text: text.trim().to_owned(),
        };
        let newest = self.newest.as_ref().unwrap_or(&self.now);
        self.messages
            .push((message, newest.view.changes.first().cloned()));
        if self.messages.len() > MESSAGES {
            self.messages.remove(0);
        }
    }

    /// Returns changes and messages, newest first.
    pub(super) fn changes(&self) -> Vec<&LiveChange> {
        let changes = self.now.view.changes.iter().map(Some);
        let mut all = Vec::new();
        for change in changes.chain([None]) {
            let here = self.messages.iter().rev();
            let here = here.filter(|(_, newest)| newest.as_ref() == change);
            all.extend(here.map(|(message, _)| message));
            all.extend(change);
        }
        all
    }

    /// Returns the selected server.
    pub(super) fn server(&self) -> Option<&LiveRow> {
        self.now.view.rows.iter().find(|row| row.name == self.name)
    }

    /// Handles a key; returns whether it ends the run.
    pub(super) fn press(&mut self, key: Key) -> bool {
        let page = self.height.max(1);
        match key {
            Key::Char('?' | 'h') if self.shown != Shown::Help => self.shown = Shown::Help,
            Key::Char('q') if self.shown == Shown::Servers => return true,
            Key::Char('q' | '?' | 'h') | Key::Escape => self.shown = Shown::Servers,
            Key::Enter if self.shown == Shown::Servers => {
                self.select(self.selected);
                self.shown = Shown::OneServer;
            }
            Key::Up | Key::Char('k') => self.select(self.selected.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.select(self.selected + 1),
            Key::PageUp => self.select(self.selected.saturating_sub(page)),
            Key::PageDown => self.select(self.selected + page),
            Key::Home => {
                self.select(0);
                if self.shown == Shown::Servers {
                    self.name.clear();
                }
            }
            Key::End => self.select(usize::MAX),
            Key::Char('s') => {
                self.sorting = match self.sorting {
                    Sorting::Attention => Sorting::Name,
                    Sorting::Name => Sorting::Column(0),
                    Sorting::Column(at) => Sorting::Column(at + 1),
                };
                if matches!(self.sorting, Sorting::Column(at) if at >= self.now.view.columns.len())
                {
                    self.sorting = Sorting::Attention;
                }
                self.sort();
            }
            Key::Char('r') => {
                self.is_reversed = !self.is_reversed;
                self.sort();
            }
            Key::Char('p') => match self.newest.take() {
                None => self.newest = Some(self.now.clone()),
                Some(newest) => self.update(newest),
            },
            Key::Char(_) | Key::Enter => {}
        }
        false
    }

    /// Moves the visible rows so that the selected one is among this number of them.
    pub(super) fn scroll(&mut self, height: usize) {
        self.height = height;
        let last = (self.selected + 1).saturating_sub(height);
        let end = self.order.len().saturating_sub(height);
        self.first = self.first.clamp(last, self.selected.max(last)).min(end);
    }

    fn select(&mut self, place: usize) {
        self.selected = place.min(self.order.len().saturating_sub(1));
        if let Some(at) = self.order.get(self.selected) {
            self.name.clone_from(&self.now.view.rows[*at].name);
        }
    }

    /// Sorts the rows; the selected server stays selected.
    fn sort(&mut self) {
        let rows = mem::take(&mut self.now.view.rows);
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by(|a, b| self.compare(&rows[*a], &rows[*b]));
        self.order = order;
        let is_selected = |at: &usize| rows[*at].name == self.name;
        let place = self.order.iter().position(is_selected);
        let last = self.order.len().saturating_sub(1);
        self.selected = place.unwrap_or(self.selected).min(last);
        self.now.view.rows = rows;
    }

    /// Compares two servers: the worst is first, and one without a number last.
    fn compare(&self, a: &LiveRow, b: &LiveRow) -> Ordering {
        let order = match self.sorting {
            Sorting::Attention => b.attention.cmp(&a.attention),
            Sorting::Name => a.name.cmp(&b.name),
            Sorting::Column(at) => {
                let key = |row: &LiveRow| row.keys.get(at).copied().flatten();
                match (key(a), key(b)) {
                    (Some(a), Some(b)) => b.total_cmp(&a),
                    (Some(_), None) => return Ordering::Less,
                    (None, Some(_)) => return Ordering::Greater,
                    (None, None) => a.cells.get(at).cmp(&b.cells.get(at)),
                }
            }
        };
        match self.is_reversed {
            true => order.reverse(),
            false => order,
        }
    }
}

//! Windows of a run in bounded memory.

/// Maximum number of windows in a document of one long run; adjacent windows are joined above it.
pub(crate) const MAX_WINDOWS: usize = 1800;

/// Windows of a run in time order; adjacent windows are joined when there are too many.
pub(crate) struct WindowSeries<W> {
    /// The first window of every server, then the second of every server, and so on.
    pub(crate) windows: Vec<W>,
    most: usize,
    join: fn(&mut W, &W),
    /// Number of added windows joined in each stored window.
    joined: usize,
    /// Number of added windows in the current stored window.
    under_way: usize,
}

impl<W: Clone> WindowSeries<W> {
    /// Creates a buffer of at most `most` windows; `join` adds one window to its predecessor.
    pub(crate) fn new(most: usize, join: fn(&mut W, &W)) -> Self {
        Self {
            windows: Vec::new(),
            most,
            join,
            joined: 1,
            under_way: 0,
        }
    }

    /// Adds one window per server, always in the same order.
    pub(crate) fn push(&mut self, windows: &[W]) {
        let servers = windows.len();
        if self.under_way == 0 || self.under_way == self.joined {
            self.windows.extend_from_slice(windows);
            self.under_way = 1;
        } else {
            let from = self.windows.len() - servers;
            self.windows[from..]
                .iter_mut()
                .zip(windows)
                .for_each(|(window, next)| (self.join)(window, next));
            self.under_way += 1;
        }
        if self.windows.len() >= self.most.max(4 * servers) && self.under_way == self.joined {
            self.halve(servers);
        }
    }

    fn halve(&mut self, servers: usize) {
        let mut halved: Vec<W> = Vec::new();
        for pair in self.windows.chunks(2 * servers) {
            let (first, second) = pair.split_at(servers.min(pair.len()));
            let mut first = first.to_vec();
            first
                .iter_mut()
                .zip(second)
                .for_each(|(window, next)| (self.join)(window, next));
            halved.append(&mut first);
        }
        // The last window can be shorter than the others.
        let odd = (self.windows.len() / servers) % 2 == 1;
        self.windows = halved;
        self.under_way = if odd { self.joined } else { 2 * self.joined };
        self.joined *= 2;
    }
}

//! The course of a run in bounded memory.

/// Stretches of a run, one after another; neighbours are joined when there would be too many.
pub(crate) struct Course<W> {
    /// Of every server the first window, then of every server the second, and so on.
    pub(crate) windows: Vec<W>,
    most: usize,
    join: fn(&mut W, &W),
    /// Stretches in each window.
    joined: usize,
    /// Stretches in the windows under way.
    under_way: usize,
}

impl<W: Clone> Course<W> {
    /// At most so many windows, of which one is joined to the next by this.
    pub(crate) fn new(most: usize, join: fn(&mut W, &W)) -> Self {
        Self {
            windows: Vec::new(),
            most,
            join,
            joined: 1,
            under_way: 0,
        }
    }

    /// Adds a stretch: a window for each server, always in the same order.
    pub(crate) fn push(&mut self, stretch: &[W]) {
        let servers = stretch.len();
        if self.under_way == 0 || self.under_way == self.joined {
            self.windows.extend_from_slice(stretch);
            self.under_way = 1;
        } else {
            let from = self.windows.len() - servers;
            self.windows[from..]
                .iter_mut()
                .zip(stretch)
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
        // A last one without its neighbour is half of a window.
        let odd = (self.windows.len() / servers) % 2 == 1;
        self.windows = halved;
        self.under_way = if odd { self.joined } else { 2 * self.joined };
        self.joined *= 2;
    }
}

//! Time of measuring.

use replimeter_model::time::Nanos;

/// Leaves out the time between starts of the servers: the first sample of a start follows the last one of the start before
/// it. So windows of a run are full, and what lies between starts is no stall.
#[derive(Clone, Debug, Default)]
pub struct MeasuredTime {
    between: Nanos,
    last: Option<Nanos>,
    begins: bool,
}

impl MeasuredTime {
    /// Announces that the next sample is the first one of a start.
    pub fn begin_start(&mut self) {
        self.begins = true;
    }

    /// Returns the time of measuring at the time `at` of the run; without a start before, it is the same.
    pub fn of(&mut self, at: Nanos) -> Nanos {
        if std::mem::take(&mut self.begins)
            && let Some(last) = self.last
        {
            self.between = at - last;
        }
        let measured = at - self.between;
        self.last = self.last.max(Some(measured));
        measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_between_starts_is_left_out() {
        let mut time = MeasuredTime::default();
        time.begin_start();
        let first = [100, 105, 103].map(|at| time.of(Nanos(at)));
        assert_eq!(first, [100, 105, 103].map(Nanos));
        time.begin_start();
        let second = [9_000, 9_004].map(|at| time.of(Nanos(at)));
        assert_eq!(second, [105, 109].map(Nanos));
        time.begin_start();
        assert_eq!(time.of(Nanos(20_000)), Nanos(109));
    }
}

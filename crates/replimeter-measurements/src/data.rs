//! The data of workloads, removed at the end.

use replimeter_engine::Node;
use replimeter_instruments::load::DataSet;
use replimeter_model::warning::Warning;

/// The data of all workloads; removed on drop, unless it is to be kept.
pub(crate) struct Data {
    pub(crate) primary: Node,
    pub(crate) sets: Vec<DataSet>,
    pub(crate) stays: bool,
}

impl Data {
    pub(crate) fn remove(&mut self) -> Vec<Warning> {
        let stays = self.stays;
        let sets = std::mem::take(&mut self.sets).into_iter().rev();
        sets.flat_map(|set| {
            if stays {
                Vec::new()
            } else {
                set.remove(&self.primary)
            }
        })
        .collect()
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

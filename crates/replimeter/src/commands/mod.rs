//! One file per command.

pub(crate) mod lag;
pub(crate) mod report;
pub(crate) mod run;

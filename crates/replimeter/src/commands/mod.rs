//! One file per command.

pub(crate) mod calibrate;
pub(crate) mod compare;
pub(crate) mod cost;
pub(crate) mod doctor;
pub(crate) mod exposure;
pub(crate) mod lag;
pub(crate) mod load;
pub(crate) mod loss;
pub(crate) mod program;
pub(crate) mod report;
pub(crate) mod reproduce;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod scale;
pub(crate) mod servers;
pub(crate) mod stale;
pub(crate) mod tap;

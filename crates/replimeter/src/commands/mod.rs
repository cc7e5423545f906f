//! One file per command.

pub(crate) mod doctor;
pub(crate) mod measure;
pub(crate) mod program;
pub(crate) mod report;
pub(crate) mod reproduce;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod servers;
pub(crate) mod trial;

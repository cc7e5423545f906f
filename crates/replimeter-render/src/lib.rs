//! Renders a run: one module per output. Reads and writes the files of a run directory; connects to no
//! server.

pub mod cell;
pub mod chart;
pub mod charts;
pub mod columns;
pub mod compare;
pub mod csv;
pub mod doctor;
pub mod drawing;
pub mod figures;
pub mod files;
pub mod format;
pub mod headline;
pub mod histograms;
pub mod html;
pub mod live;
pub mod load;
pub mod markdown;
pub mod precision;
pub mod reading;
pub mod report;
pub mod rows;
mod samples_error;
pub mod sandboxes;
pub mod servers;
pub mod terminal;
pub mod trial;

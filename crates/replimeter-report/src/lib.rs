//! Renders a run: one module per output. Reads and writes the files of a run
//! directory; knows no server.

pub mod answer;
mod backlog;
pub mod blocks;
pub mod calibrate;
mod columns;
pub mod cost;
pub mod cost_blocks;
pub mod crashes;
pub mod csv;
pub mod doctor;
pub mod exposure;
pub mod figures;
pub mod histograms;
pub mod html;
mod load;
pub mod loading;
pub mod loss;
pub mod markdown;
pub mod methods;
mod precision;
pub mod rows;
pub mod samples;
pub mod sandboxes;
pub mod scale;
pub mod seconds;
pub mod servers;
mod shapes;
pub mod stale;
pub mod stale_samples;
pub mod stretches;
pub mod sweep;
pub mod tap;
pub mod terminal;
mod waterfall;

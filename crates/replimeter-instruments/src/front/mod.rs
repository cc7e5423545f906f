//! A web site in front of the servers: what `front` serves, and what `scale` and `stale` go through.

pub mod results;
pub mod settings;
pub mod site;

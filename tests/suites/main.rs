//! Tests on real servers and in a real browser, a module for each topic.

mod budget;
mod clocks;
mod compare;
mod cost;
mod docs;
mod endpoints;
mod engine;
mod exposure;
mod formats;
mod front;
mod hostile;
mod identity;
mod installed;
mod kills;
mod links;
mod load;
mod loss;
mod managed;
mod memory;
mod methods;
mod mysql;
mod net_commands;
mod net_texts;
mod net_values;
mod open_loop;
mod orphans;
mod page;
mod passwords;
mod reproduce;
mod resources;
mod sandbox;
mod scale;
mod server_cost;
mod servers;
mod settings;
mod shapes;
mod stages;
mod stale;
mod stamp;
mod tap;
mod through_http;
mod tls;
mod topology;
mod transactions;
mod trial;
mod udf;
mod unix_socket;
mod usage;
mod versions;
mod watch;
mod watch_once;
mod watch_probe;
mod watch_screen;

use std::process::ExitCode;

use replimeter_suites::{
    groups,
    harness::{self, Test},
};

/// All tests.
const GROUPS: &[(&str, &[Test])] = groups![
    budget,
    clocks,
    compare,
    cost,
    docs,
    endpoints,
    engine,
    exposure,
    formats,
    front,
    hostile,
    identity,
    installed,
    managed,
    kills,
    links,
    load,
    loss,
    memory,
    methods,
    mysql,
    net_commands,
    net_texts,
    net_values,
    open_loop,
    orphans,
    page,
    passwords,
    reproduce,
    resources,
    sandbox,
    scale,
    server_cost,
    servers,
    settings,
    shapes,
    stages,
    stale,
    stamp,
    tap,
    through_http,
    tls,
    topology,
    transactions,
    trial,
    udf,
    unix_socket,
    usage,
    versions,
    watch,
    watch_once,
    watch_probe,
    watch_screen
];

fn main() -> ExitCode {
    harness::main(GROUPS)
}

//! Extracts the script that draws charts from the crate `plotly`, so that the program contains neither its code nor its
//! scripts for formulas.

use std::{env, error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let sources = plotly::Plot::offline_js_sources();
    let end = "</script>";
    let length = sources.find(end).ok_or("the crate plotly has no script")? + end.len();
    fs::write(
        Path::new(&env::var("OUT_DIR")?).join("plotly.html"),
        &sources[..length],
    )?;
    Ok(())
}

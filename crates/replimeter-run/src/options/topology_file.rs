//! `--topology FILE.toml`: the user's servers by name.

use std::{
    fs,
    path::{Path, PathBuf},
};

use replimeter_model::{
    plan::{check_nodes, explain},
    target::NodeSpec,
};
use serde::{Deserialize, Serialize};

use crate::cli_error::CliError;

/// Maximum size of a file, in bytes; real ones are far smaller.
const MAX_FILE_SIZE: u64 = 1 << 20;

/// The file's contents.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TopologyFile {
    /// Option file with user and password; relative to this file's folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defaults_file: Option<PathBuf>,
    /// The servers.
    #[serde(rename = "node")]
    pub nodes: Vec<NodeSpec>,
}

/// Reads and checks a file; connects to nothing.
pub fn read(path: &Path) -> Result<TopologyFile, CliError> {
    let refuse = |reason: String| {
        CliError::usage(
            format!("cannot use the topology {}: {reason}", path.display()),
            "`replimeter doctor --help` shows such a file",
        )
    };
    let meta = fs::metadata(path).map_err(|error| refuse(error.to_string()))?;
    if !meta.is_file() || meta.len() > MAX_FILE_SIZE {
        return Err(refuse(
            "it is not a regular file, or too large for a topology".to_owned(),
        ));
    }
    let text = fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let mut file: TopologyFile =
        toml::from_str(&text).map_err(|error| refuse(explain(&error, &text, &[])))?;
    check_nodes(&file.nodes).map_err(refuse)?;
    if let (Some(named), Some(folder)) = (&mut file.defaults_file, path.parent())
        && named.is_relative()
    {
        *named = folder.join(&*named);
    }
    Ok(file)
}

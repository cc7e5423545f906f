//! The errors of files of samples.

use std::{
    io,
    path::{Path, PathBuf},
};

use parquet::errors::ParquetError;

/// Why samples cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SamplesError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Its content is invalid.
    #[error("{}: {reason}", path.display())]
    Format {
        /// Its path.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
}

pub(crate) fn reason(path: &Path, error: ParquetError) -> SamplesError {
    if let ParquetError::External(inner) = &error
        && let Some(source) = inner.downcast_ref::<io::Error>()
    {
        let source = io::Error::new(source.kind(), source.to_string());
        return SamplesError::File {
            path: path.to_owned(),
            source,
        };
    }
    SamplesError::Format {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

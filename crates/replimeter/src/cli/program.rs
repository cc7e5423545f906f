//! Commands about the program itself: its schemas, completions and pages.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// `replimeter schema`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  replimeter schema plan > plan.schema.json
  replimeter schema lag
  replimeter schema plan --markdown

Editors check and complete plan files that begin with the line
  #:schema ./plan.schema.json")]
pub(crate) struct SchemaArgs {
    /// What to describe: plan files, a command, or manifest.json
    #[arg(value_name = "OF")]
    pub(crate) name: String,

    /// Print tables in Markdown instead
    ///
    /// They are the keys of `plan`, or the columns of a command's samples.parquet.
    #[arg(long)]
    pub(crate) markdown: bool,
}

/// `replimeter completions`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  replimeter completions bash > /etc/bash_completion.d/replimeter
  replimeter completions zsh > ~/.zfunc/_replimeter
  replimeter completions fish > ~/.config/fish/completions/replimeter.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell to complete in
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// `replimeter man`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  replimeter man | man -l -
  replimeter man lag | man -l -
  replimeter man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Command whose page to print, or directory for all pages [default: replimeter]
    ///
    /// The directory is created if it does not exist.
    #[arg(value_name = "COMMAND|DIR")]
    pub(crate) folder: Option<PathBuf>,

    /// Print all of them as one Markdown page
    #[arg(long, conflicts_with = "folder")]
    pub(crate) markdown: bool,
}

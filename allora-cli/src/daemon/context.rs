//! The settings that all commands of a daemon share.

use super::{alerts::Alerts, runs::Results};
use allora_core::runtime::Tokio;
use std::{path::PathBuf, sync::Arc, time::Duration};

/// The settings that all commands of a daemon share.
#[derive(Debug)]
pub(crate) struct CommandContext {
    pub(crate) runtime: Tokio,
    /// The results of commands for the log.
    pub(crate) results: Results,
    pub(crate) alerts: Arc<Alerts>,
    /// The folder of secrets.
    pub(crate) secrets: Option<PathBuf>,
    /// Between TERM and KILL.
    pub(crate) kill_after: Duration,
    /// True if the output of commands goes to the log line by line.
    pub(crate) log_output: bool,
    /// The daemon's own variables that commands get.
    pub(crate) environment: Vec<(String, String)>,
    /// The variables whose values are masked in what commands print.
    pub(crate) masked: Vec<String>,
}

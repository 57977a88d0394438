//! The settings that all commands of a daemon share.

use allora_core::runtime::Tokio;
use std::time::Duration;

/// The settings that all commands of a daemon share.
#[derive(Debug)]
pub(crate) struct CommandContext {
    pub(crate) runtime: Tokio,
    /// Between TERM and KILL.
    pub(crate) kill_after: Duration,
    /// True if the output of commands goes to the log line by line.
    pub(crate) log_output: bool,
    /// The daemon's own variables that commands get.
    pub(crate) environment: Vec<(String, String)>,
}

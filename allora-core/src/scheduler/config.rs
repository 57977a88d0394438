//! The settings of a node, and the check of a job's settings.

use crate::{
    error::{Error, Result},
    job::JobSpec,
    name::{check_free, check_name},
};
use std::{sync::Arc, time::Duration};

/// The longest label of a node, in bytes.
const MAX_LABEL: usize = 64;

/// The settings of a node.
pub(crate) struct Config {
    /// The largest number of simultaneous runs.
    pub(crate) concurrency: usize,
    /// The interval at which the store is read without a notification.
    pub(crate) poll_interval: Duration,
    /// The longest duration of one request to the store.
    pub(crate) store_timeout: Duration,
    /// The time for which runs may continue when the scheduler stops.
    pub(crate) grace: Duration,
    /// The lease of at-most-once runs.
    pub(crate) lost_after: Duration,
    /// The number of attempts beyond the retry policy for runs without a result.
    pub(crate) extra_attempts: u32,
    /// The interval at which the node writes its record.
    pub(crate) heartbeat: Duration,
    /// The version of the user's build.
    pub(crate) build_version: Option<String>,
    /// The labels of the node.
    pub(crate) labels: Vec<String>,
    /// The time for which records of orphaned jobs in code are kept; `None` is for ever.
    pub(crate) prune_orphans_after: Option<Duration>,
    /// The time for which finished one-off schedules are kept; `None` is for ever.
    pub(crate) prune_finished_after: Option<Duration>,
    /// The time for which the ids of triggers are remembered.
    pub(crate) trigger_retention: Duration,
    /// The payload of jobs in code.
    pub(crate) no_data: Arc<[u8]>,
}

/// Checks the name and the settings of a job.
pub(super) fn check(name: &str, spec: &JobSpec) -> Result {
    check_free(name)?;
    spec.check().map_err(|error| error.within(format_args!("the job {name:?}")))
}

/// Checks a label of a node, or the version of its build.
pub(super) fn check_label(label: &str) -> Result {
    check_name(label)?;
    if label.len() > MAX_LABEL {
        let long =
            format!("the label {label:?} has {} bytes; use at most {MAX_LABEL}", label.len());
        return Err(Error::invalid(long));
    }
    Ok(())
}

//! The lines of this node's jobs for concurrency keys.

use crate::time::Time;
use std::{collections::HashMap, sync::Arc};

/// The first jobs of this node in the line for each key, at the last tick in which one was to ask again.
#[derive(Default)]
pub(super) struct KeyLines {
    pub(super) tick: u64,
    pub(super) first: HashMap<Arc<str>, Vec<(Time, Arc<str>)>>,
}

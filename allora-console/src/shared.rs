//! The values that all pages read.

use crate::access::Access;
use allora_core::{Handle, Schedules};
use axum::http::request::Parts;
use std::sync::Arc;

/// The closure that decides who reads.
pub(crate) type Decide = Arc<dyn Fn(&Parts) -> Option<Access> + Send + Sync>;

/// The store, and the settings of the console.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) schedules: Schedules,
    pub(crate) handle: Option<Handle>,
    /// `None`: nobody may read.
    pub(crate) access: Option<Decide>,
    /// The name in the head of the pages.
    pub(crate) title: String,
}

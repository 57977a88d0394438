//! The values that all pages read.

use crate::{
    access::{Access, Decision},
    events::Events,
    gateway::Gateway,
    origin::Hosts,
    reader::{Reader, Redact},
};
use allora_core::{Handle, Runtime, Schedules};
use axum::http::request::Parts;
use std::sync::{Arc, atomic::AtomicU64};

/// The closure that decides who reads.
pub(crate) type Decide = Arc<dyn Fn(&Parts) -> Decision + Send + Sync>;

/// The store, and the settings of the console.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Pages read through [`reader`](Self::reader).
    schedules: Schedules,
    /// The number of changes by way of this console.
    pub(crate) changes: Arc<AtomicU64>,
    pub(crate) events: Events,
    pub(crate) handle: Option<Handle>,
    pub(crate) gateway: Option<Gateway>,
    /// `None`: nobody may read.
    pub(crate) access: Option<Decide>,
    pub(crate) redact: Option<Redact>,
    /// `None`: any host.
    pub(crate) hosts: Option<Hosts>,
    pub(crate) allows_actions: bool,
    /// `false`: the API alone.
    pub(crate) has_pages: bool,
    /// The name in the head of the pages.
    pub(crate) title: String,
}

impl Shared {
    pub(crate) fn new(schedules: Schedules) -> Self {
        Self {
            events: Events::new(schedules.clone()),
            schedules,
            changes: Arc::default(),
            handle: None,
            gateway: None,
            access: None,
            redact: None,
            hosts: None,
            allows_actions: false,
            has_pages: true,
            title: "allora".to_owned(),
        }
    }

    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        self.schedules.runtime()
    }

    /// The whole store, for workers: they are limited by kinds.
    pub(crate) fn schedules(&self) -> &Schedules {
        &self.schedules
    }

    /// The store as this reader may see it.
    pub(crate) fn reader(&self, access: Access) -> Reader {
        Reader::new(self.schedules.clone(), access, self.redact.clone())
    }
}

//! The store of the example `custom_backend` keeps every promise.

use crate::store::Map;
use allora_conformance::{Capability, Fixture, suite};
use allora_core::{Backend, Result};
use async_trait::async_trait;
use std::sync::Arc;

struct Example(Arc<Map>);

#[async_trait]
impl Fixture for Example {
    async fn set_up(_: &str) -> Result<Self> {
        Ok(Self(Arc::default()))
    }

    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        Ok(self.0.clone())
    }

    fn unsupported() -> &'static [Capability] {
        &[Capability::History, Capability::Notifications, Capability::Durability]
    }
}

suite!(Example);

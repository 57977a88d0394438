//! The memory backend proves the contract.

use allora_conformance::{Capability, Fixture, suite};
use allora_core::{Backend, Result, backend::HistoryLimits};
use allora_memory::Memory;
use async_trait::async_trait;
use std::sync::Arc;

struct Store(Memory);

#[async_trait]
impl Fixture for Store {
    async fn set_up(namespace: &str) -> Result<Self> {
        Ok(Self(Memory::new().with_namespace(namespace).with_history(10_000)))
    }

    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(self.0.clone()))
    }

    async fn connect_with_history(
        &self,
        limits: HistoryLimits,
    ) -> Result<Option<Arc<dyn Backend>>> {
        Ok(Some(Arc::new(self.0.clone().with_history(limits))))
    }

    fn unsupported() -> &'static [Capability] {
        &[Capability::Durability]
    }
}

suite!(Store);

//! What happened to every occurrence, the newest entries.

use crate::Memory;
use allora_core::{
    Result,
    backend::{History, Past},
};
use async_trait::async_trait;

#[async_trait]
impl History for Memory {
    async fn past(
        &self,
        name: Option<&str>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Past>> {
        let store = self.store();
        let of_name = |past: &&Past| name.is_none_or(|name| past.name == name);
        Ok(store.past(before).filter(of_name).take(limit).cloned().collect())
    }
}

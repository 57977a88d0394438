//! The database that the processes share.

use allora::{Backend, BoxError, backend::HistoryLimits};
use allora_sql::Sql;
use std::sync::Arc;

/// Opens the store behind the URL; tables of different prefixes are invisible to each other.
pub(crate) async fn open(url: &str, prefix: &str) -> Result<Arc<dyn Backend>, BoxError> {
    // The verdict is about every run.
    let history = HistoryLimits::from(1_000_000);
    Ok(Arc::new(Sql::builder().prefix(prefix).history(history).connect(url).await?))
}

//! The database that the processes share.

use allora::{Backend, BoxError};
use allora_sql::Sql;
use std::sync::Arc;

/// Opens the store behind the URL; tables of different prefixes are invisible to each other.
pub(crate) async fn open(url: &str, prefix: &str) -> Result<Arc<dyn Backend>, BoxError> {
    Ok(Arc::new(Sql::builder().prefix(prefix).history(1_000_000).connect(url).await?))
}

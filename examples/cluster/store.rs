//! The database that the processes share.

use allora::{Backend, BoxError};
use std::sync::Arc;

/// Opens the store behind the URL; tables of different prefixes are invisible to each other.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub(crate) async fn open(url: &str, prefix: &str) -> Result<Arc<dyn Backend>, BoxError> {
    let builder = allora::sql::Sql::builder().prefix(prefix).history(1_000_000);
    Ok(Arc::new(builder.connect(url).await?))
}

/// Says what is missing.
#[cfg(not(any(feature = "sqlite", feature = "postgres", feature = "mysql")))]
pub(crate) async fn open(_: &str, _: &str) -> Result<Arc<dyn Backend>, BoxError> {
    Err("this build has no database: add `--features sqlite` (or postgres, mysql) to cargo's \
         arguments, before the `--`"
        .into())
}

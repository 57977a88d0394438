//! The names of the stores that a command can be restricted to.

use crate::{Failure, Outcome};

/// The store backends that tests can be restricted to.
pub(crate) const STORES: &[&str] =
    &["memory", "sqlite", "postgres", "mysql", "redis", "redis-quorum", "etcd"];

/// Checks a list of stores.
///
/// # Errors
/// A store that there is not.
pub(crate) fn stores(names: &str) -> Outcome<String> {
    let known = STORES.join(", ");
    match names.split(',').find(|name| !STORES.contains(name)) {
        None => Ok(names.to_owned()),
        Some(name) => {
            Err(Failure::Usage(format!("no store is called `{name}`; there is: {known}")))
        }
    }
}

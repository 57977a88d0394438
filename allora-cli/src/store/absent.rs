//! A store that this build was made without.

use super::{Store, Wanted};
use crate::failure::{Failure, Outcome};

/// Opens nothing.
///
/// # Errors
/// Always: says what to build.
pub(super) async fn open(url: &str, _: Wanted) -> Outcome<Store> {
    Err(absent(url))
}

/// Removes nothing.
///
/// # Errors
/// As [`open`].
pub(super) async fn remove(url: &str, _: Wanted) -> Outcome {
    Err(absent(url))
}

fn absent(url: &str) -> Failure {
    let scheme = url.split(':').next().unwrap_or_default();
    let feature = match scheme {
        "etcd" | "etcds" => "etcd",
        "redis-quorum" | "rediss-quorum" => "redis-quorum",
        _ => "redis",
    };
    Failure::wrong(format!(
        "this `allora` was built without {feature}; build it with `--features {feature}`"
    ))
}

//! A store that this build was made without.

use super::{Store, Wanted};
use crate::failure::{Failure, Outcome};

/// Opens nothing.
///
/// # Errors
/// Always: says what to build.
pub(super) async fn open(url: &str, _: Wanted) -> Outcome<Store> {
    let scheme = url.split(':').next().unwrap_or_default();
    let feature = match scheme {
        "etcd" | "etcds" => "etcd",
        "redis-quorum" | "rediss-quorum" => "redis-quorum",
        _ => "redis",
    };
    Err(Failure::wrong(format!(
        "this `allora` was built without {feature}; build it with `--features {feature}`"
    )))
}

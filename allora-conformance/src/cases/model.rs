//! Random walks: whatever is asked, the store says what the pure functions say.

use crate::{
    cluster::Cluster,
    walk::{ALL, AT_MOST_ONCE, Size, walk},
};

/// A few by default; many, and long ones, with `ALLORA_TEST_LONG=1`.
fn size() -> Size {
    match std::env::var("ALLORA_TEST_LONG").as_deref() {
        Ok("1") => Size { walks: 100, steps: 2_000 },
        _ => Size { walks: 6, steps: 250 },
    }
}

pub(super) async fn a_random_walk_agrees_with_the_pure_functions(w: &Cluster) {
    walk(w, ALL, size()).await;
}

pub(super) async fn a_random_walk_at_most_once_agrees_with_the_pure_functions(w: &Cluster) {
    walk(w, AT_MOST_ONCE, size()).await;
}

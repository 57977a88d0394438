//! The names of fresh stores, and errors as text.

use std::sync::atomic::{AtomicU64, Ordering};

/// A name that no other case has, in this process or in another.
pub(crate) fn namespace() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("c{:x}_{number:x}", std::process::id())
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

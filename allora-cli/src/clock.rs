//! The command's own reading of the clock, where no store decides.

use allora_core::Time;
use std::time::SystemTime;

/// Now, by this machine's clock.
#[expect(clippy::disallowed_methods, reason = "the one place where the command reads the clock")]
pub(crate) fn now() -> Time {
    allora_core::time::whole_millis(SystemTime::now().into())
}

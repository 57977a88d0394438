//! The command's own reading of the clock, where no store decides.

use allora_core::Time;
use std::time::{Duration, Instant, SystemTime};

/// Now, by this machine's clock.
#[expect(clippy::disallowed_methods, reason = "the one place where the command reads the clock")]
pub(crate) fn now() -> Time {
    allora_core::time::whole_millis(SystemTime::now().into())
}

/// Now, by a clock that never jumps.
#[expect(clippy::disallowed_methods, reason = "the one place where the command reads this clock")]
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}

/// Waits, on the runtime of this command.
#[expect(clippy::disallowed_methods, reason = "the one place where the command waits by itself")]
pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

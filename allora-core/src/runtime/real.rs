//! The common parts of the production runtimes: the machine's clocks, its random numbers, and long
//! sleeps split into legs.

use crate::time::Time;
use std::time::{Duration, Instant, SystemTime};

/// The longest single timer. Timers weeks ahead have blocked a runtime's other timers
/// (tokio-rs/tokio#8334), and after a suspension of the machine the sleep is checked within a day.
const LONGEST_LEG: Duration = Duration::from_secs(24 * 60 * 60);

/// The end of the next leg of a sleep until `at`; `None` when the sleep is over.
pub(super) fn leg(now: Instant, at: Instant) -> Option<Instant> {
    let left = at.checked_duration_since(now).filter(|left| !left.is_zero())?;
    Some(now + left.min(LONGEST_LEG))
}

#[expect(clippy::disallowed_methods, reason = "this is where `Runtime::now` comes from")]
pub(super) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "this is where `Runtime::wall` comes from")]
pub(super) fn wall() -> Time {
    SystemTime::now().into()
}

/// A random number of the operating system, read each time: ids drawn on different machines must
/// differ, even when the machines were started from one image.
pub(super) fn random() -> u64 {
    getrandom::u64().expect("the operating system has random numbers")
}

/// Makes a type the runtime with this function that spawns a task, and this one that makes a timer.
#[cfg(any(feature = "async-std", feature = "smol"))]
macro_rules! runtime {
    ($name:ident, $spawn:expr, $timer:expr) => {
        impl crate::Runtime for $name {
            fn spawn(&self, task: futures::future::BoxFuture<'static, ()>) {
                ($spawn)(task);
            }

            fn sleep_until(
                &self,
                at: std::time::Instant,
            ) -> futures::future::BoxFuture<'static, ()> {
                Box::pin(async move {
                    while let Some(leg) = real::leg(real::now(), at) {
                        ($timer)(leg).await;
                    }
                })
            }

            fn now(&self) -> std::time::Instant {
                real::now()
            }

            fn wall(&self) -> crate::Time {
                real::wall()
            }

            fn random(&self) -> u64 {
                real::random()
            }
        }
    };
}
#[cfg(any(feature = "async-std", feature = "smol"))]
pub(super) use runtime;

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn a_sleep_of_less_than_a_day_is_one_leg() {
        let now = now();
        assert_eq!(leg(now, now + HOUR), Some(now + HOUR));
    }

    #[test]
    fn a_sleep_of_a_year_is_cut_into_days() {
        let now = now();
        assert_eq!(leg(now, now + 365 * LONGEST_LEG), Some(now + LONGEST_LEG));
    }

    #[test]
    fn a_sleep_that_has_passed_has_no_leg() {
        let now = now();
        assert_eq!(leg(now, now), None);
        assert_eq!(leg(now + HOUR, now), None);
    }

    #[test]
    fn random_numbers_differ() {
        assert_ne!(random(), random());
    }
}

//! Settings of a job that were called on the builder of the scheduler. Each is a compile error that
//! names the right place, because none of these methods can be called.

use crate::scheduler::SchedulerBuilder;

/// Implemented for no type.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "this is a setting of one job, and not of the scheduler",
    label = "a setting of one job",
    note = "in place of `.job(name, schedule, work)` with the setting behind it, write `.add(name, job(schedule, work)` with the setting `)`, as in `.add(name, job(schedule, work).retry(..))`"
)]
pub trait SettingOfScheduler {}

macro_rules! misplaced {
    ($($method:ident($($argument:ident),*);)*) => {
        #[doc(hidden)]
        impl SchedulerBuilder {
            $(
                // A bound with a lifetime is checked where the method is called, not here.
                pub fn $method(self, $($argument: impl Sized),*) -> Self
                where
                    for<'a> &'a Self: SettingOfScheduler,
                {
                    $(let _ = $argument;)*
                    self
                }
            )*
        }
    };
}

misplaced! {
    at_least_once(lease);
    catch_up(policy);
    delay(delay);
    ending(at);
    jitter(longest);
    max_runs(runs);
    mutex(group);
    on_every_node();
    overlap(policy);
    retry(retry);
    starting(at);
    timeout(timeout);
    version(version);
    window(window);
}

//! A job in code that runs under the definition in the store, with this node's own code.
//!
//! That happens during a roll-out: another build has set the definition, and this node follows it.

use crate::{
    job::{Delivery, JobSpec, Overlap, Retry, Settings},
    run::Run,
    stored::Definition,
};

/// The job of this node under the stored definition: the schedule and the settings of the text,
/// with the code, the time-out, the placement and the version of this node. Of the two deliveries
/// the stricter applies. `None` if this build cannot read the whole text.
pub(in crate::planner) fn adopted(name: &str, own: &JobSpec, text: &str) -> Option<JobSpec> {
    let definition = Definition::parse(name, text).ok()?;
    if !definition.calendars().is_empty() {
        return None;
    }
    let code = own.job.clone();
    let stored = definition.settings().clone();
    let mut settings = Settings {
        timeout: own.settings.timeout,
        placement: own.settings.placement,
        version: own.settings.version,
        ..stored
    };
    if own.settings.delivery == Delivery::AtMostOnce && settings.delivery != Delivery::AtMostOnce {
        // Runs of the stored definition never overlap.
        settings.overlap = Overlap::Wait;
        (settings.delivery, settings.retry) = (Delivery::AtMostOnce, Retry::NEVER);
    }
    let spec = definition.spec(async move |run: Run| code.run(run).await);
    Some(spec.with_settings(settings))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CatchUp, every, job, time::Time};
    use std::time::Duration;

    const MINUTE: Duration = Duration::from_secs(60);

    fn own() -> JobSpec {
        job(every(MINUTE), async |_: Run| {}).timeout(MINUTE).version(3)
    }

    #[test]
    fn the_stored_schedule_and_settings_apply_and_the_nodes_own_stay() {
        let text = "@every 2m; at-least-once 30000ms; catch-up all 5; retry 3 1000ms 9000ms";
        let spec = adopted("job", &own().at_least_once(MINUTE), text).unwrap();
        let settings = &spec.settings;
        assert_eq!(spec.job.next_at(Time::UNIX_EPOCH), Some(Time::UNIX_EPOCH + 2 * MINUTE));
        assert_eq!(settings.delivery, Delivery::AtLeastOnce { lease: MINUTE / 2 });
        assert_eq!(settings.catch_up, CatchUp::All { limit: 5 });
        assert_eq!((settings.timeout, settings.version), (Some(MINUTE), 3));
    }

    #[test]
    fn of_the_two_deliveries_the_stricter_applies() {
        let at_least_once = "@every 1m; at-least-once 30000ms; retry 3 1000ms 9000ms";
        let spec = adopted("job", &own(), at_least_once).unwrap();
        let settings = &spec.settings;
        assert_eq!((settings.delivery, settings.retry), (Delivery::AtMostOnce, Retry::NEVER));
        assert_eq!(settings.overlap, Overlap::Wait);
        let spec = adopted("job", &own().at_least_once(MINUTE), "@every 1m").unwrap();
        assert_eq!(spec.settings.delivery, Delivery::AtMostOnce);
        assert_eq!(spec.settings.overlap, Overlap::Allow);
    }

    #[test]
    fn a_text_that_this_build_does_not_know_completely_is_not_adopted() {
        for text in ["@code 0 9 * * MON-FRI", "@every 1m; sparkle 3", "@v2 x", "custom", ""] {
            assert!(adopted("job", &own(), text).is_none(), "{text:?}");
        }
    }
}

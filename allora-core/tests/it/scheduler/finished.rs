//! Jobs whose schedules have ended, such as those that run once.

use crate::support::{Lab, at, ms, secs};
use allora_core::{
    ErrorKind, at as once,
    backend::{Action, Outcome, TriggerStatus},
    every,
};
use std::sync::atomic::Ordering::Relaxed;

/// They are many in a program that runs for long: each has run, and can be triggered.
#[test]
fn one_off_jobs_that_have_run_are_known_and_run_again_when_they_are_triggered() {
    for (has_notifications, at_least_once) in [(true, false), (false, true)] {
        let lab = Lab::new(3);
        let member = lab.start(|seat, b| {
            seat.faults.is_silent.store(!has_notifications, Relaxed);
            b.add("minutely", seat.job(every(secs(60)), ms(5)))
        });
        let seat = lab.seat(member.node.clone());
        let spec = |second: f64| {
            let job = seat.job(once(at(second)), ms(5));
            if at_least_once { job.at_least_once(secs(10)) } else { job }
        };
        lab.until(5.0);
        let names: Vec<String> = (0..200).map(|i| format!("job {i}")).collect();
        for (i, name) in names.iter().enumerate() {
            member.handle.add(name.as_str(), spec(10.0 + i as f64 / 10.0)).unwrap();
        }
        lab.until(100.0);
        let twice = member.handle.add("job 7", spec(200.0)).unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::AlreadyExists);
        let jobs = member.handle.jobs();
        assert_eq!(jobs.len(), 201);
        let status = jobs.iter().find(|job| job.name == "job 7").unwrap();
        assert_eq!((status.next, status.last.clone()), (None, Some(Outcome::Succeeded)));
        // One by its handle, one by a client.
        let triggered = lab.sim.block_on(member.handle.trigger("job 7", "by hand"));
        assert_eq!(triggered.unwrap().status, TriggerStatus::New);
        lab.operate("job 8", Action::trigger("by a client")).unwrap();
        lab.until(130.0);
        for name in ["job 7", "job 8"] {
            let ran = lab.log.of(name);
            assert_eq!(ran.len(), 2, "{name}");
            assert!(ran[1].began < at(103.0), "{name}: {}", ran[1].began);
        }
        assert_eq!(names.iter().map(|name| lab.log.of(name).len()).sum::<usize>(), 202);
        assert!(member.handle.health().is_healthy(), "{}", member.handle.health());
        assert!(member.handle.remove("job 7") && !member.handle.remove("job 7"));
        member.handle.add("job 7", spec(140.0)).unwrap();
        lab.until(150.0);
        assert_eq!(lab.log.of("job 7").len(), 3);
    }
}

//! One bad thing never stops the rest.

use crate::support::{Lab, Over, at, ms, secs};
use allora_core::{BoxError, Condition, Event, Job, Run, Scheduler, Time, every, job};
use std::{fmt, time::Duration};

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("in drop");
        }
    }
}

/// An error that cannot even be shown.
#[derive(Debug)]
struct Shy;

impl fmt::Display for Shy {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("in display")
    }
}

impl std::error::Error for Shy {}

/// Panics wherever it is asked to.
struct Mine(&'static str);

#[async_trait::async_trait]
impl Job for Mine {
    fn next_at(&self, after: Time) -> Option<Time> {
        assert!(self.0 != "next_at", "in next_at");
        let period = chrono::TimeDelta::seconds(10);
        match self.0 {
            "stands" => Some(after),
            "back" => Some(after - period),
            "fine" => Some(after + chrono::TimeDelta::microseconds(10)),
            "far" => Some(Time::MAX_UTC),
            _ => Some(after + period),
        }
    }

    async fn run(&self, _: Run) -> Result<(), BoxError> {
        Ok(())
    }

    fn latest_at(&self, from: Time, _: Time) -> Option<Time> {
        assert!(self.0 != "latest_at", "in latest_at");
        (self.0 != "early").then_some(from).or(Some(from - chrono::TimeDelta::seconds(1)))
    }

    fn definition(&self) -> Option<String> {
        assert!(self.0 != "definition", "in definition");
        Some(self.0.to_owned())
    }
}

#[test]
fn jobs_that_panic_are_recorded_and_harm_nobody() {
    let lab = Lab::new(1);
    lab.start(|seat, b| {
        b.job("panics", every(secs(10)), async |_: Run| -> () { panic!("as planned") })
            .job("drops", every(secs(10)), async |_: Run| {
                let bomb = Bomb;
                std::future::pending::<()>().await;
                drop(bomb);
            })
            .add(
                "dropped",
                job(every(secs(10)), async |_: Run| {
                    let _bomb = Bomb;
                    std::future::pending::<()>().await;
                })
                .timeout(secs(1)),
            )
            .job("shy", every(secs(10)), async |_: Run| -> Result<(), Shy> { Err(Shy) })
            .add("good", seat.job(every(secs(10)), ms(0)))
    });
    lab.until(25.0);
    assert_eq!(lab.ran("good"), [10., 20.]);
    for name in ["panics", "dropped", "shy"] {
        assert_eq!(lab.story(name), ["failed 10", "failed 20"], "{name}");
    }
}

#[test]
fn a_bad_schedule_is_left_alone_and_said_so() {
    let bad = ["next_at", "stands", "back", "fine", "latest_at", "early", "definition"];
    let lab = Lab::new(2);
    let member = lab.start(|seat, b| {
        let b = b.add("good", seat.job(every(secs(10)), ms(0)));
        bad.into_iter().fold(b, |b, name| b.add(name, Mine(name)))
    });
    lab.until(15.0);
    member.node.pause();
    lab.until(45.0);
    member.node.resume();
    lab.until(55.0);
    assert_eq!(lab.ran("good"), [10., 40., 50.]);
    let mut unplannable: Vec<_> = member
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Began(Condition::JobInvalid { job, .. }) => Some(job.to_string()),
            _ => None,
        })
        .collect();
    unplannable.sort();
    let mut bad = bad.map(str::to_owned);
    bad.sort();
    assert_eq!(unplannable, bad);
}

#[test]
fn a_time_beyond_the_end_of_time_is_never() {
    let lab = Lab::new(3);
    let member = lab
        .start(|seat, b| b.add("far", Mine("far")).add("good", seat.job(every(secs(10)), ms(0))));
    lab.until(15.0);
    assert_eq!(lab.state("far").next, None);
    assert_eq!(member.news(), ["Ready"]);
    assert_eq!(lab.ran("good"), [10.]);
}

#[test]
fn a_panic_in_the_users_event_handler_is_survived() {
    let lab = Lab::new(4);
    let seat = lab.seat(lab.sim.node());
    let job = seat.job(every(secs(10)), ms(0));
    let scheduler = Scheduler::builder(lab.store.clone())
        .runtime(seat.node.clone())
        .on_event(|_| panic!("in the handler"))
        .add("job", job)
        .build()
        .unwrap();
    seat.run(scheduler);
    lab.until(25.0);
    assert_eq!(lab.ran("job"), [10., 20.]);
}

#[test]
fn a_job_that_does_not_heed_its_cancellation_is_dropped() {
    let lab = Lab::new(5);
    let member = lab
        .start(|seat, b| b.grace(secs(4)).add("job", seat.job(every(secs(10)), Duration::MAX / 4)));
    lab.until(11.0);
    member.handle.stop();
    lab.until(16.0);
    assert!(member.stopped().is_some());
    lab.assert_over("job", 0, at(15.0), Over::Dropped);
}

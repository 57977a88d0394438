//! Rates: as many starts within a time as the limit says, on all nodes, in the order of the queue.

use crate::support::{Lab, Seat, at, ms, secs};
use allora_core::{Event, Run, SchedulerBuilder, Schedules, StoredSchedule, Time, every};
use chrono::TimeDelta;

const JOBS: usize = 12;

/// The starts of these jobs, in their order.
fn starts(lab: &Lab, names: &[String]) -> Vec<(Time, String)> {
    let runs = names.iter().flat_map(|name| lab.past(name));
    let mut starts: Vec<_> =
        runs.filter_map(|run| Some((run.started_at?, run.name.clone()))).collect();
    starts.sort();
    starts
}

/// At most so many starts within any 10 s.
#[track_caller]
fn keep_the_rate(starts: &[(Time, String)], limit: usize) {
    for few in starts.windows(limit + 1) {
        let span = few[limit].0 - few[0].0;
        assert!(span >= TimeDelta::milliseconds(9_900), "{span}: {few:#?}");
    }
}

fn handler(seat: &Seat, b: SchedulerBuilder) -> SchedulerBuilder {
    b.kind(
        "mail",
        seat.handler(ms(20), |run: &Run| match run.attempt() {
            1 if run.name() == "mail-03" => Err("no luck".into()),
            _ => Ok(()),
        }),
    )
}

#[test]
fn all_nodes_together_begin_no_more_runs_than_the_rate_says_and_in_the_order_of_the_queue() {
    for seed in 0..3 {
        let lab = Lab::new(seed);
        let names: Vec<String> = (0..JOBS).map(|n| format!("mail-{n:02}")).collect();
        let client = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
        for name in &names {
            let once = StoredSchedule::once(name, "mail", at(20.0)).rate("mail", 3, secs(10));
            lab.sim.block_on(client.add(&once)).unwrap();
        }
        let members = [lab.start(handler), lab.start(handler)];
        if seed == 1 {
            lab.until(31.0);
            members[0].node.crash();
        }
        lab.until(120.0);
        let starts = starts(&lab, &names);
        keep_the_rate(&starts, 3);
        // The first ones are those that asked first; the others wait in the queue, without the retry.
        let queue = &starts[3..JOBS];
        assert!(queue.is_sorted_by_key(|(_, name)| name), "seed {seed}: {queue:#?}");
        let ran = |name: &String| lab.state_of(name).is_none_or(|job| job.counters.succeeded == 1);
        assert!(names.iter().all(ran), "seed {seed}");
        assert_eq!(starts.len(), JOBS + 1, "seed {seed}: each attempt counts");
        let last = starts[JOBS].0 - at(20.0);
        assert!(last < TimeDelta::seconds(48), "seed {seed}: {last} for five times ten seconds");
    }
}

#[test]
fn a_run_of_a_rate_runs_longer_than_its_time_and_the_next_ones_begin_beside_it() {
    let lab = Lab::new(1);
    let member = lab.start(|seat, b| {
        b.add("long", seat.job(every(secs(5)).phase(secs(0)), secs(25)).rate("calls", 1, secs(10)))
    });
    lab.until(60.0);
    let starts = starts(&lab, &["long".to_owned()]);
    keep_the_rate(&starts, 1);
    assert!(starts.len() >= 5, "{starts:?}");
    let lost = |event: &Event| matches!(event, Event::LeaseLost { .. });
    assert!(!member.events().iter().any(lost));
}

//! Jobs that run some time after the end of the run before.

use crate::support::{DiesAt, Lab, Member, Seat, at, ms, secs};
use allora_conformance::faults::Wrapped;
use allora_core::{Backend, Schedules, StoredSchedule, after_end, backend::Action};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// A job in code or a stored schedule, with one of the deliveries.
#[derive(Clone, Copy, Debug)]
struct Shape {
    is_stored: bool,
    at_least_once: bool,
}

fn shapes() -> impl Iterator<Item = Shape> {
    (0..4).map(|n| Shape { is_stored: n & 1 == 1, at_least_once: n & 2 == 2 })
}

impl Shape {
    /// Keeps it in the store if it is a stored schedule.
    fn store(self, lab: &Lab) {
        let delivery = if self.at_least_once { "; at-least-once 10s" } else { "" };
        if self.is_stored {
            lab.store("job", "work", &format!("@after_end 10s{delivery}"));
        }
    }

    /// Starts a node whose runs take three seconds.
    fn start(self, seat: Seat, store: Arc<dyn Backend>) -> Member {
        let builder = seat.builder_on(store);
        let builder = if self.is_stored {
            builder.kind("work", seat.handler(secs(3), |_| Ok(())))
        } else {
            let spec = seat.job(after_end(secs(10)), secs(3));
            builder.add("job", if self.at_least_once { spec.at_least_once(secs(10)) } else { spec })
        };
        seat.run(builder.build().unwrap())
    }

    fn join(self, lab: &Lab) -> Member {
        self.start(lab.seat(lab.sim.node()), Arc::new(lab.store.clone()))
    }
}

#[test]
fn a_run_is_due_the_delay_after_the_end_of_the_one_before() {
    for shape in shapes() {
        let lab = Lab::new(1);
        shape.store(&lab);
        shape.join(&lab);
        shape.join(&lab);
        lab.until(60.0);
        let expected = [10.0, 23.0, 36.0, 49.0];
        let found: Vec<f64> = lab.ran("job").iter().map(|at| at.round()).collect();
        assert_eq!(found, expected, "{shape:?}");
        // Not more than the wait of a search or a turn.
        let late = lab.log.of("job").iter().map(|run| run.began - run.at).max().unwrap();
        assert!(late.num_milliseconds() < 1_500, "{shape:?}: {late}");
    }
}

/// Two nodes, of which one dies at the n-th step of its work. Returns `false` if it never does.
fn play(n: u64, is_applied: bool, shape: Shape) -> bool {
    let lab = Lab::new(n);
    shape.store(&lab);
    let left = Arc::new(AtomicU64::new(n));
    let victim = lab.seat(lab.sim.node());
    let dies = DiesAt { left: left.clone(), is_applied, node: victim.node.clone() };
    shape.start(victim, Arc::new(Wrapped::around(lab.store.clone(), dies)));
    lab.until(20.0);
    shape.join(&lab);
    lab.until(200.0);
    let told = format!("step {n}, applied: {is_applied}, {shape:?}: {:?}", lab.story("job"));
    let state = lab.state("job");
    let active = u64::from(!state.leases.is_empty());
    let counts = state.counters;
    assert_eq!(counts.started, counts.succeeded + counts.lost + active, "{told}");
    assert!(counts.succeeded >= 8, "{told}");
    let past = lab.past("job");
    for pair in past.windows(2) {
        let wait = pair[1].occurrence.scheduled_at - pair[0].ended_at.unwrap();
        let is_again = pair[1].occurrence == pair[0].occurrence;
        assert!(is_again || wait == chrono::TimeDelta::seconds(10), "{told}: {wait}");
    }
    left.load(Relaxed) == 0
}

#[test]
fn each_occurrence_is_planned_runs_or_is_recorded_whichever_step_kills_a_node() {
    for shape in shapes() {
        for is_applied in [false, true] {
            let deaths = (1..12).take_while(|n| play(*n, is_applied, shape)).count();
            assert!(deaths >= 4, "{deaths} steps of {shape:?}");
        }
    }
}

#[test]
fn a_node_that_ends_a_run_and_dies_leaves_the_next_one_to_the_others_in_time() {
    for shape in shapes() {
        let lab = Lab::new(3);
        shape.store(&lab);
        let first = shape.join(&lab);
        lab.until(9.0);
        let second = shape.join(&lab);
        lab.until(12.0);
        let runs =
            [&first, &second].into_iter().find(|member| member.handle.running() > 0).unwrap();
        lab.until(13.5);
        runs.node.crash();
        lab.until(40.0);
        let next = lab.log.of("job").into_iter().find(|run| run.at > at(20.0)).unwrap();
        assert!(next.began - next.at < chrono::TimeDelta::seconds(2), "{shape:?}: {}", next.began);
    }
}

/// The story of a job after this was done to it while it runs, 10 s to 13 s after its start.
fn done_at(seconds: f64, shape: Shape, act: impl FnOnce(&Lab)) -> Lab {
    let lab = Lab::new(1);
    shape.store(&lab);
    shape.join(&lab);
    lab.until(seconds);
    act(&lab);
    lab.until(60.0);
    lab
}

#[test]
fn operators_leave_a_defined_next_time() {
    let whole = |lab: &Lab| -> Vec<f64> { lab.ran("job").iter().map(|at| at.round()).collect() };
    for shape in shapes() {
        let lab = done_at(11.0, shape, |lab| {
            lab.operate("job", Action::trigger("mine")).unwrap();
        });
        let runs = lab.log.of("job");
        let scheduled: Vec<f64> =
            whole(&lab).into_iter().filter(|at| ![11.0].contains(at)).collect();
        assert_eq!(runs.len(), scheduled.len() + 1, "{shape:?}");
        assert_eq!(scheduled[..3], [10.0, 23.0, 36.0], "{shape:?}: a trigger is beside it");
        let lab = done_at(11.0, shape, |lab| {
            lab.operate("job", Action::Pause { note: "", until: Some(at(30.0)) }).unwrap();
        });
        assert_eq!(whole(&lab)[..2], [10.0, 23.0], "{shape:?}");
        let second = &lab.log.of("job")[1];
        assert!(second.began >= at(30.0) && second.began < at(32.0), "{}", second.began);
    }
    let shape = Shape { is_stored: true, at_least_once: false };
    let lab = done_at(11.0, shape, |lab| {
        let client = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
        let error = lab.sim.block_on(client.skip_next("job", 1));
        assert_eq!(error.unwrap(), None, "nothing waits while it runs");
        assert_eq!(lab.sim.block_on(client.next("job", 3)).unwrap(), []);
    });
    assert_eq!(whole(&lab)[..2], [10.0, 23.0]);
    let lab = done_at(15.0, shape, |lab| {
        let client = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
        assert_eq!(lab.sim.block_on(client.next("job", 3)).unwrap().len(), 1);
        assert!(lab.sim.block_on(client.skip_next("job", 1)).unwrap().is_some());
    });
    assert_eq!(whole(&lab)[..2], [10.0, 33.0], "the one after it is the delay later");
}

#[test]
fn a_change_of_the_delay_while_it_runs_counts_from_the_end_of_the_run() {
    let shape = Shape { is_stored: true, at_least_once: true };
    let lab = done_at(11.0, shape, |lab| {
        let client = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
        let text = "20 seconds after the end";
        let stored = StoredSchedule::new("job", "work", text).at_least_once(secs(10));
        lab.sim.block_on(client.upsert(&stored)).unwrap();
        assert!(lab.state("job").definition.starts_with("@after_end 20s"));
    });
    let found: Vec<f64> = lab.ran("job").iter().map(|at| at.round()).collect();
    assert_eq!(found, [10.0, 33.0, 56.0]);
}

#[test]
fn an_occurrence_that_was_missed_for_its_window_is_followed_by_one_the_delay_later() {
    let lab = Lab::new(1);
    let spec = |seat: &Seat| seat.job(after_end(secs(10)), ms(0)).window(secs(5));
    let member = lab.start(|seat, b| b.add("job", spec(seat)));
    lab.until(1.0);
    member.node.crash();
    lab.until(3_601.0);
    lab.start(|seat, b| b.add("job", spec(seat)));
    lab.until(3_630.0);
    let counts = lab.state("job").counters;
    assert_eq!((counts.missed, counts.started), (1, 2), "{:?}", lab.story("job"));
}

//! The liveness check finds each breach in a trace, and nothing else.

use allora_conformance::{
    faults::TracedStore,
    history::{
        Code, Delays, Execution, Seen, Trace,
        liveness::{Kind, Liveness, check},
    },
};
use allora_core::{
    Backend, Time,
    backend::{Action, Batch, Claim, Completion, Cursor, JobState, Operation, Reply, TimeSource},
    time::from_millis,
};
use allora_memory::Memory;
use futures::executor::block_on;
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

/// A store with one job, due at 10 s, and a node that does what a test says.
struct Scene {
    now: Arc<AtomicI64>,
    trace: Trace,
    store: TracedStore,
}

fn at(seconds: i64) -> Time {
    from_millis(seconds * 1_000).unwrap()
}

const LEASE: Duration = Duration::from_secs(30);

impl Scene {
    fn new() -> Self {
        let now: Arc<AtomicI64> = Arc::default();
        let clock = now.clone();
        let trace = Trace::new(7, move || at(clock.load(Relaxed)));
        let scene = Self { now, store: TracedStore::new(Memory::new(), trace.clone()), trace };
        scene.trace.write(Seen::Up { node: "n".into(), concurrency: 1 });
        let (node, job) = ("n".into(), "job".into());
        scene.trace.write(Seen::Added { node, job, code: Code::Job("every 1h".into()) });
        let first = Some(at(10).into());
        scene.act(Action::Register { definition: "every 1h", version: 0, first });
        scene
    }

    fn until(&self, seconds: i64) -> &Self {
        self.now.store(seconds, Relaxed);
        self
    }

    fn act(&self, action: Action<'_>) -> Reply {
        let operations = [Operation::new("job", action)];
        let batch = Batch::new("n", TimeSource::Fixed(self.trace.now()), &operations);
        block_on(self.store.reschedule(batch)).unwrap().single().unwrap()
    }

    fn state(&self) -> JobState {
        self.act(Action::Read).state().unwrap()
    }

    /// Claims what is due, and returns the fence.
    fn claim(&self) -> i64 {
        let claim = Claim::at_least_once(1, self.state().fence, at(10).into(), LEASE);
        self.act(Action::Claim(claim)).claimed().unwrap().fence
    }

    fn execution(&self, fence: i64) -> Execution {
        let (node, job) = ("n".into(), "job".into());
        Execution { node, job, fence, scheduled_at: at(10) }
    }

    /// The run begins and succeeds.
    fn run(&self, fence: i64) {
        self.trace.write(Seen::Began(self.execution(fence)));
        self.trace.write(Seen::Over(self.execution(fence)));
        let then = Cursor::To(Some(at(3_610).into()));
        let completion = Completion::Succeeded;
        self.act(Action::Complete { fence, then, completion });
    }

    fn found(&self) -> Vec<Kind> {
        let law = Liveness::new(Duration::from_secs(5), Duration::from_secs(1));
        check(&self.trace, &law).into_iter().map(|stall| stall.kind).collect()
    }
}

#[test]
fn what_is_run_in_time_is_no_breach() {
    let scene = Scene::new();
    let fence = scene.until(12).claim();
    scene.run(fence);
    assert_eq!(scene.until(1_000).found(), []);
}

#[test]
fn an_occurrence_that_no_node_claims_is_a_breach_with_its_job_time_nodes_and_seed() {
    let scene = Scene::new();
    assert_eq!(scene.until(23).found(), [], "within the bound");
    scene.until(24);
    let law = Liveness::new(Duration::from_secs(5), Duration::from_secs(1));
    let stall = check(&scene.trace, &law).remove(0);
    assert_eq!((stall.kind, &*stall.job, stall.seed), (Kind::NotClaimed, "job", 7));
    assert_eq!((stall.due_at, stall.occurrence), (Some(at(10)), Some(at(10).into())));
    assert_eq!(stall.nodes, [std::sync::Arc::<str>::from("n")]);
    let law = law.slower_by(Duration::from_secs(2));
    assert_eq!(check(&scene.trace, &law), [], "a slow store has more time");
}

#[test]
fn a_node_that_cannot_run_it_is_excused() {
    let excuses: [fn(&str) -> Seen; 5] = [
        |node| Seen::Reachable(node.into(), false),
        |node| Seen::Awake(node.into(), false),
        |node| Seen::Stopping(node.into()),
        |node| Seen::Down { node: node.into(), unrecorded: None },
        |node| Seen::Removed { node: node.into(), job: "job".into() },
    ];
    for excuse in excuses {
        let scene = Scene::new();
        scene.trace.write(excuse("n"));
        assert_eq!(scene.until(100).found(), [], "{:?}", excuse("n"));
    }
    let scene = Scene::new();
    let other = Execution { job: "other".into(), ..scene.execution(1) };
    scene.trace.write(Seen::Began(other));
    assert_eq!(scene.until(100).found(), [], "it is full");
}

#[test]
fn a_job_that_is_paused_or_cannot_be_read_waits() {
    let scene = Scene::new();
    scene.act(Action::Pause { note: "", until: None });
    assert_eq!(scene.until(100).found(), []);
    let scene = Scene::new();
    scene.trace.record("job", Some(JobState::unreadable("job", "newer")));
    assert_eq!(scene.until(100).found(), []);
}

#[test]
fn a_claimed_run_that_is_not_started_loses_its_lease() {
    let scene = Scene::new();
    scene.until(11).claim();
    assert_eq!(scene.until(25).found(), [Kind::NotStarted]);
    assert_eq!(scene.until(42).found(), [Kind::NotStarted, Kind::LeaseLapsed]);
}

#[test]
fn a_run_without_its_lease_is_a_breach_unless_its_node_was_away() {
    let scene = Scene::new();
    let fence = scene.until(11).claim();
    scene.trace.write(Seen::Began(scene.execution(fence)));
    scene.until(13).trace.write(Seen::Awake("n".into(), false));
    scene.until(50).trace.write(Seen::Awake("n".into(), true));
    assert_eq!(scene.until(52).found(), []);
    assert_eq!(scene.until(54).found(), [Kind::NoLease]);
}

#[test]
fn a_node_that_stops_has_no_more_leases_than_it_counts() {
    for (unrecorded, found) in [(1, vec![]), (0, vec![Kind::LeftBehind])] {
        let scene = Scene::new();
        scene.until(11).claim();
        scene.trace.write(Seen::Stopping("n".into()));
        let unrecorded = Some(unrecorded);
        scene.until(12).trace.write(Seen::Down { node: "n".into(), unrecorded });
        assert_eq!(scene.until(20).found(), found);
    }
}

#[test]
fn a_job_that_is_not_registered_is_a_breach() {
    let scene = Scene::new();
    let fence = scene.until(10).claim();
    scene.run(fence);
    let (node, job) = ("n".into(), "new".into());
    scene.trace.write(Seen::Added { node, job, code: Code::Job("every 1h".into()) });
    assert_eq!(scene.until(23).found(), []);
    assert_eq!(scene.until(24).found(), [Kind::NotRegistered]);
}

#[test]
fn an_every_node_job_runs_on_its_node_whatever_the_store_does() {
    let scene = Scene::new();
    let hourly = Arc::new(|after: Time| Some(after + Duration::from_secs(3_600)));
    let (node, job) = ("n".into(), "here".into());
    scene.until(5).trace.write(Seen::Added { node, job, code: Code::EveryNode(hourly) });
    let fence = scene.until(10).claim();
    scene.run(fence);
    scene.trace.write(Seen::Reachable("n".into(), false));
    assert_eq!(scene.until(3_608).found(), []);
    assert_eq!(scene.until(3_610).found(), [Kind::NotRunHere]);
    let old = Execution { job: "here".into(), scheduled_at: at(1), ..scene.execution(1) };
    scene.trace.write(Seen::Began(old));
    assert_eq!(scene.until(3_611).found(), [Kind::NotRunHere, Kind::OldOccurrence]);
}

#[test]
fn a_run_that_begins_after_its_lease_is_a_breach() {
    for (began, is_late) in [(40, false), (42, true)] {
        let scene = Scene::new();
        let fence = scene.until(11).claim();
        scene.trace.write(Seen::Awake("n".into(), false));
        scene.until(began).trace.write(Seen::Began(scene.execution(fence)));
        scene.trace.write(Seen::Over(scene.execution(fence)));
        let kinds = scene.found();
        assert_eq!(kinds.contains(&Kind::BegunTooLate), is_late, "{began}: {kinds:?}");
    }
}

#[test]
fn a_begun_run_that_is_released_does_not_count_as_an_attempt() {
    for (begins, found) in [(false, vec![]), (true, vec![Kind::AttemptNotCounted])] {
        let scene = Scene::new();
        let fence = scene.until(11).claim();
        if begins {
            scene.trace.write(Seen::Began(scene.execution(fence)));
            scene.trace.write(Seen::Over(scene.execution(fence)));
        }
        scene.act(Action::Release { fence });
        let fence = scene.until(12).claim();
        scene.run(fence);
        assert_eq!(scene.until(20).found(), found);
    }
}

#[test]
fn triggers_before_a_due_occurrence_are_a_breach() {
    for (triggers, found) in [(2, vec![]), (3, vec![Kind::ScheduleHeldBack])] {
        let scene = Scene::new();
        for n in 0..triggers {
            let id = format!("t{n}");
            scene.until(1).act(Action::trigger(&id));
        }
        for n in 0..triggers {
            let state = scene.until(12 + n).state();
            let head = state.head.clone().unwrap();
            assert!(head.trigger.is_some());
            let claim = Claim::at_least_once(1 + n as u128, state.fence, head, LEASE);
            let fence = scene.act(Action::Claim(claim)).claimed().unwrap().fence;
            scene.trace.write(Seen::Began(scene.execution(fence)));
            scene.trace.write(Seen::Over(scene.execution(fence)));
            let completion = Completion::Succeeded;
            scene.act(Action::Complete { fence, then: Cursor::Keep, completion });
        }
        assert_eq!(scene.found(), found, "{triggers} triggers");
    }
}

#[test]
fn more_runs_than_the_concurrency_are_a_breach() {
    let scene = Scene::new();
    let [first, second] = [1, 2].map(|fence| {
        let job = format!("other{fence}").as_str().into();
        Execution { job, ..scene.execution(fence) }
    });
    scene.trace.write(Seen::Began(first));
    assert_eq!(scene.found(), []);
    scene.trace.write(Seen::Began(second));
    assert_eq!(scene.found(), [Kind::TooManyRuns]);
}

#[test]
fn many_requests_that_change_nothing_are_a_storm() {
    let scene = Scene::new();
    let fence = scene.until(10).claim();
    scene.run(fence);
    scene.until(100);
    for _ in 0..100 {
        scene.trace.write(Seen::Request {
            node: "n".into(),
            answered: true,
            found: 0,
            delays: Delays::Nothing,
        });
    }
    assert_eq!(scene.found(), []);
    scene.trace.write(Seen::Request {
        node: "n".into(),
        answered: true,
        found: 0,
        delays: Delays::Nothing,
    });
    assert_eq!(scene.found(), [Kind::Storm]);
}

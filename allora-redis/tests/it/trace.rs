//! The observed behaviour of the Ruby original's Redis backend, step by step, in our calls.
//!
//! `golden/allora_backend_trace.jsonl` has a line for each step: the clock, what fired, and the keys
//! as they were after it, in seconds since the start. The story asks the same of this store at the
//! same instants. Where the original kept its promise, the jobs fire as its did and are due when its
//! keys say; where it did not (it shifts `every`, and a start wipes what all nodes share), the
//! story says what we do instead.

use crate::stores::{Kind, runtime};
use allora_core::{
    Backend, Schedule, Time,
    backend::{
        Action, Batch, Claim, Cursor, NotRun, NotRunReason, Operation, Reply, Sharing, TimeSource,
    },
    every,
    time::from_millis,
};
use allora_redis::Redis;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The instant so many seconds after the start.
fn t(seconds: f64) -> Time {
    from_millis(1_700_002_800_000 + (seconds * 1_000.0) as i64).unwrap()
}

/// The line of the trace that begins so.
fn step(begins: &str) -> serde_json::Value {
    let text = include_str!("../golden/allora_backend_trace.jsonl");
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let is_it = |line: &serde_json::Value| line["step"].as_str().unwrap().starts_with(begins);
    lines.find(is_it).unwrap_or_else(|| panic!("no step begins with {begins:?}"))
}

/// The jobs that fired in a step, by the trace.
fn fired(step: &serde_json::Value) -> Vec<String> {
    let fired = step["fired"].as_array().unwrap();
    fired.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Each claim has an id of its own.
static CLAIM: AtomicU64 = AtomicU64::new(1);

/// One node with jobs that it knows.
struct Node<'a> {
    store: &'a Redis,
    id: &'a str,
    jobs: &'a [(&'a str, u64)],
}

impl Node<'_> {
    async fn send(&self, now: Time, name: &str, action: Action<'_>) -> Reply {
        let operations = [Operation::new(name, action)];
        let batch = Batch::new(self.id, TimeSource::Fixed(now), &operations);
        self.store.reschedule(batch).await.unwrap().single().unwrap()
    }

    /// Registers its jobs, as every node does when it starts.
    async fn start(&self, now: f64) {
        for (name, period) in self.jobs {
            let first = Some((t(now) + Duration::from_secs(*period)).into());
            let register = Action::Register { definition: "every", version: 0, first };
            self.send(t(now), name, register).await;
        }
    }

    /// When the job is due next, in seconds.
    async fn due(&self, name: &str) -> f64 {
        let state = self.send(t(0.0), name, Action::Read).await.state().unwrap();
        (state.due_at.unwrap() - t(0.0)).as_seconds_f64()
    }

    /// Claims what is due, the latest occurrence of each job, and moves the cursor behind it.
    async fn poll(&self, now: f64) -> Vec<String> {
        let mut fired = Vec::new();
        for (name, period) in self.jobs {
            let Reply::State(state) = self.send(t(now), name, Action::Read).await else { continue };
            let due = state.next.unwrap().scheduled_at;
            let every = every(Duration::from_secs(*period));
            let start = every.latest_at(due, t(now)).map_or(due, |latest| latest.max(due));
            let then = Cursor::To(every.next_at(start).map(Into::into));
            let id = CLAIM.fetch_add(1, Ordering::Relaxed).into();
            let (expected, lease) = (due.into(), Duration::from_millis(1));
            let sharing = Sharing::Shared;
            let mut claim = Claim::at_most_once(id, state.fence, expected, then, lease, sharing);
            if start > due {
                let last = start - Duration::from_secs(*period);
                let reason = NotRunReason::CatchUp;
                claim = claim.starting(start.into(), NotRun { count: None, last, reason });
            }
            if let Reply::Claimed(_) = self.send(t(now), name, Action::Claim(claim)).await {
                fired.push((*name).to_owned());
            }
        }
        fired
    }
}

#[test]
fn the_trace_of_the_original_is_replayed_with_its_promises_kept() {
    let Some(place) = Kind::One.place() else { return };
    runtime().block_on(async {
        let (one, two) = (place.open().await, place.open().await);
        let jobs = [("c", 60), ("e", 10)];
        let a = Node { store: &one, id: "a", jobs: &jobs };
        let b = Node { store: &two, id: "b", jobs: &jobs };

        step("A starts on empty redis");
        a.start(0.0).await;
        assert_eq!((a.due("c").await, a.due("e").await), (60.0, 10.0));
        for begins in ["poll T+9.9", "poll T+10 "] {
            let step = step(begins);
            assert_eq!(a.poll(step["clock"].as_f64().unwrap()).await, fired(&step), "{begins}");
        }
        assert_eq!(a.due("e").await, 20.0);
        // Late by 5.7 s: it fires once, and stays on its grid where the original shifted to 35.
        let late = step("poll T+25.7");
        assert_eq!(a.poll(25.7).await, fired(&late));
        assert_eq!(a.due("e").await, 30.0);
        assert_eq!(a.poll(60.0).await, fired(&step("poll T+60:")));
        assert_eq!(b.poll(60.0).await, fired(&step("same instant, second backend")));
        // Nine minutes missed: each once, and then nothing.
        assert_eq!(a.poll(600.2).await, fired(&step("A silent until T+600")));
        assert_eq!(a.poll(600.6).await, fired(&step("next poll right after")));
        assert_eq!((a.due("c").await, a.due("e").await), (660.0, 610.0));
        // Stopped at 630, started at 750: what was missed fires once.
        b.start(750.0).await;
        assert_eq!(b.poll(750.0).await, fired(&step("process stopped at T+630")));
        place.clear().await;
    });
}

#[test]
fn a_start_postpones_nothing_and_runs_nothing_twice() {
    let Some(place) = Kind::One.place() else { return };
    runtime().block_on(async {
        let (one, two) = (place.open().await, place.open().await);
        let jobs = [("hourly", 3_600), ("m", 60)];
        let a = Node { store: &one, id: "a", jobs: &jobs };
        let b = Node { store: &two, id: "b", jobs: &jobs };
        a.start(0.0).await;
        // The original's keys are pushed by a second start, and the hourly job does not run at 3600.
        let pushed = step("at 3500 another scheduler starts");
        assert_eq!(pushed["redis_keys_value_minus_T_ttl"][1][1], 7_100);
        assert_eq!(fired(&step("3600: not fired")), [""; 0]);
        a.poll(3_490.0).await;
        b.start(3_500.0).await;
        assert_eq!((a.due("hourly").await, b.due("m").await), (3_600.0, 3_540.0));
        assert_eq!(a.poll(3_600.0).await, ["hourly", "m"]);
        // Its run at 60 happens twice when a third node starts beside one whose clock is behind.
        step("duplicate: A(ahead) fires 60");
        assert_eq!(b.poll(3_598.7).await, [""; 0]);
        b.start(3_600.1).await;
        assert_eq!((a.poll(3_600.2).await, b.poll(3_600.3).await), (vec![], vec![]));
        place.clear().await;
    });
}

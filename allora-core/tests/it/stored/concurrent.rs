//! Concurrent calls of one client, which share requests.

use crate::support::{Lab, ms, secs};
use allora_conformance::faults::{Hooks, Wrapped};
use allora_core::{
    Backend, Error, ErrorKind, Result, Runtime, Schedules, StoredSchedule,
    backend::{Applied, Batch, JobState},
    runtime::SimNode,
    stored::Gap,
};
use allora_memory::Memory;
use futures::{
    FutureExt, StreamExt,
    future::{AbortHandle, abortable, join_all, pending, poll_immediate},
    stream::FuturesUnordered,
};
use std::{
    collections::BTreeMap,
    error::Error as _,
    sync::{Arc, Mutex},
    time::Duration,
};

const ROUND_TRIP: Duration = ms(10);

/// A store with a round trip of 10 ms, which records the requests. A request with an operation on
/// `fails`, `panics` or `hangs` does so.
#[derive(Debug)]
struct Remote {
    node: SimNode,
    requests: Mutex<Vec<Vec<String>>>,
}

#[async_trait::async_trait]
impl Hooks for Remote {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        let names: Vec<String> = batch.operations.iter().map(|one| one.name.to_owned()).collect();
        self.requests.lock().unwrap().push(names.clone());
        let has = |name: &str| names.iter().any(|one| one == name);
        if has("hangs") {
            return pending().await;
        }
        self.node.sleep_until(self.node.now() + ROUND_TRIP).await;
        assert!(!has("panics"), "a defect of the backend");
        if has("fails") {
            let cause = std::io::Error::other("connection reset");
            return Err(Error::new(ErrorKind::Unavailable, "no answer").source(cause));
        }
        store.reschedule(batch).await
    }
}

/// A client of a remote store, and the calls of it that were begun.
struct Callers {
    lab: Lab,
    remote: Wrapped<Remote>,
    client: Schedules,
    ended: Arc<Mutex<BTreeMap<String, Result<JobState>>>>,
}

impl Callers {
    fn new(seed: u64) -> Self {
        let lab = Lab::new(seed);
        let remote = Remote { node: lab.clock(), requests: Mutex::default() };
        let remote = Wrapped::around(lab.store.clone(), remote);
        let client = Schedules::on(remote.clone(), lab.clock()).unwrap();
        // The first call reads the store's clock.
        lab.sim.block_on(client.store_now()).unwrap();
        remote.hooks().requests.lock().unwrap().clear();
        Self { lab, remote, client, ended: Arc::default() }
    }

    /// Begins to add a schedule, as a task of its own.
    fn add(&self, name: &str) -> AbortHandle {
        self.add_to(&self.client, stored(name))
    }

    fn add_to(&self, client: &Schedules, stored: StoredSchedule) -> AbortHandle {
        let (client, ended) = (client.clone(), self.ended.clone());
        let name = stored.name().to_owned();
        let (call, handle) = abortable(async move { client.add(&stored).await });
        self.lab.clock().spawn(Box::pin(async move {
            if let Ok(result) = call.await {
                ended.lock().unwrap().insert(name, result);
            }
        }));
        self.lab.sim.run_for(Duration::ZERO);
        handle
    }

    fn run_for(&self, span: Duration) {
        self.lab.sim.run_for(span);
    }

    /// The requests since the last call of this, as the names of their operations.
    fn requests(&self) -> Vec<String> {
        let requests = std::mem::take(&mut *self.remote.hooks().requests.lock().unwrap());
        requests.iter().map(|names| names.join(" ")).collect()
    }

    /// The calls that have ended, each with its error.
    fn ended(&self) -> Vec<String> {
        let text = |(name, result): (&String, &Result<JobState>)| match result {
            Ok(state) => {
                assert_eq!(&state.name, name);
                name.clone()
            }
            Err(error) => format!("{name}: {:?}", error.kind()),
        };
        self.ended.lock().unwrap().iter().map(text).collect()
    }

    fn exists(&self, name: &str) -> bool {
        self.lab.state_of(name).is_some()
    }
}

fn stored(name: &str) -> StoredSchedule {
    StoredSchedule::new(name, "t", "@hourly")
}

#[test]
fn a_single_caller_has_a_request_for_each_call_and_waits_for_nothing_else() {
    let callers = Callers::new(1);
    let begun = callers.lab.sim.elapsed();
    callers.lab.sim.block_on(async {
        for name in ["a", "b", "c"] {
            callers.client.add(&stored(name)).await.unwrap();
        }
        callers.client.delete("a").await.unwrap();
    });
    assert_eq!(callers.lab.sim.elapsed() - begun, 4 * ROUND_TRIP);
    assert_eq!(callers.requests(), ["a", "b", "c", "a"]);
}

#[test]
fn calls_that_come_while_a_request_is_on_its_way_are_sent_together() {
    let callers = Callers::new(2);
    for name in ["a", "b", "c", "d", "e"] {
        callers.add(name);
    }
    // The second call finds none that it could be sent with, and does not wait.
    assert_eq!(callers.requests(), ["a", "b"]);
    callers.run_for(2 * ROUND_TRIP);
    assert_eq!(callers.requests(), ["c d e"]);
    assert_eq!(callers.ended(), ["a", "b", "c", "d", "e"]);
}

#[test]
fn sixty_four_callers_need_few_requests() {
    const CALLERS: usize = 64;
    const EACH: usize = 10;
    let callers = Callers::new(3);
    let caller = |caller: usize| {
        let client = callers.client.clone();
        let (done, wait) = futures::channel::oneshot::channel();
        callers.lab.clock().spawn(Box::pin(async move {
            for i in 0..EACH {
                client.add(&stored(&format!("{caller}-{i}"))).await.unwrap();
            }
            let _ = done.send(());
        }));
        wait
    };
    let begun = callers.lab.sim.elapsed();
    callers.lab.sim.block_on(join_all((0..CALLERS).map(caller)));
    let requests = callers.requests().len();
    assert!(requests <= 4 * EACH, "{requests} requests");
    let took = callers.lab.sim.elapsed() - begun;
    assert!(took <= 3 * EACH as u32 * ROUND_TRIP, "{took:?}");
    assert!((0..CALLERS).all(|caller| callers.exists(&format!("{caller}-{}", EACH - 1))));
}

#[test]
fn every_kind_of_call_shares_requests() {
    let callers = Callers::new(4);
    let client = &callers.client;
    let sim = &callers.lab.sim;
    for name in ["deleted", "modified", "paused", "resumed", "triggered", "cancelled", "reset"] {
        sim.block_on(client.add(&stored(name))).unwrap();
    }
    let seen = sim.block_on(client.get("modified")).unwrap();
    let changed = StoredSchedule::of(&seen).unwrap().schedule("@daily").data_bytes(b"7".to_vec());
    callers.requests();
    sim.block_on(async {
        let others = async { futures::join!(client.cancel("cancelled"), client.reset("reset")) };
        let calls = futures::join!(
            client.store_now(),
            client.exists("paused"),
            client.pause("paused", "a note"),
            client.pause("absent", "a note"),
            client.trigger("triggered", "one"),
            client.trigger("triggered", "two"),
            client.resume("resumed", Gap::CatchUp),
            client.modify(&changed),
            client.delete("deleted"),
            others,
        );
        assert_eq!(calls.2.unwrap().paused.unwrap().note, "a note");
        assert_eq!(calls.3.unwrap_err().kind(), ErrorKind::NotFound);
        assert!(calls.4.unwrap().is_new() && calls.5.unwrap().is_new());
        assert!(calls.6.unwrap().paused.is_none());
        let modified = calls.7.unwrap();
        assert!(modified.definition.starts_with("@daily") && *modified.data == *b"7");
        calls.8.unwrap();
        assert_eq!(calls.9.0.unwrap(), 0);
        calls.9.1.unwrap();
    });
    assert!(!callers.exists("deleted"));
    let requests = callers.requests();
    // One reads the clock, the first call is alone.
    assert_eq!(requests.len(), 3, "{requests:?}");
    assert_eq!(requests[2].split(' ').count(), 8, "{requests:?}");
}

#[test]
fn an_operation_that_fails_alone_is_an_error_of_its_own_call() {
    let callers = Callers::new(5);
    callers.lab.sim.block_on(callers.client.add(&stored("taken"))).unwrap();
    for name in ["a", "b", "c", "taken", "d"] {
        callers.add(name);
    }
    callers.run_for(3 * ROUND_TRIP);
    assert_eq!(callers.requests().last().unwrap(), "c taken d");
    assert_eq!(callers.ended(), ["a", "b", "c", "d", "taken: AlreadyExists"]);
}

#[test]
fn calls_with_the_same_name_in_one_request_are_decided_in_their_order() {
    let callers = Callers::new(6);
    for name in ["a", "b"] {
        callers.add(name);
    }
    let [first, second] =
        ["first", "second"].map(|kind| StoredSchedule::new("same", kind, "@daily"));
    let (first, second) = callers.lab.sim.block_on(async {
        futures::join!(callers.client.add(&first), callers.client.add(&second))
    });
    assert_eq!(first.unwrap().kind, "first");
    assert_eq!(second.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(callers.requests().last().unwrap(), "same same");
}

#[test]
fn the_error_of_a_request_goes_to_all_its_calls_and_to_no_others() {
    let callers = Callers::new(7);
    for name in ["a", "b", "c", "fails", "d"] {
        callers.add(name);
    }
    callers.run_for(ROUND_TRIP);
    callers.add("e");
    callers.run_for(2 * ROUND_TRIP);
    assert_eq!(callers.requests(), ["a", "b", "c fails d", "e"]);
    let failed = ["c: Unavailable", "d: Unavailable", "e", "fails: Unavailable"];
    assert_eq!(callers.ended(), [&["a", "b"][..], &failed].concat());
    let ended = callers.ended.lock().unwrap();
    for name in ["c", "d", "fails"] {
        let error = ended[name].as_ref().unwrap_err();
        assert_eq!(error.to_string(), "no answer");
        assert!(error.source().unwrap().is::<std::io::Error>(), "the cause is as it was");
    }
}

#[test]
fn a_backend_that_panics_is_an_error_of_all_calls_of_the_request() {
    let callers = Callers::new(8);
    for name in ["a", "b", "c", "panics"] {
        callers.add(name);
    }
    callers.run_for(3 * ROUND_TRIP);
    assert_eq!(callers.ended(), ["a", "b", "c: Other", "panics: Other"]);
    let text = callers.ended.lock().unwrap()["c"].as_ref().unwrap_err().to_string();
    assert!(text.contains("the backend panicked"), "{text}");
}

#[test]
fn a_call_that_is_dropped_while_its_request_is_on_its_way_keeps_no_others_waiting() {
    for dropped in ["c", "d", "e"] {
        let callers = Callers::new(9);
        let calls = ["a", "b", "c", "d", "e"].map(|name| (name, callers.add(name)));
        callers.run_for(ROUND_TRIP + ms(1));
        callers.add("f");
        for (_, call) in calls.iter().filter(|(name, _)| *name == dropped) {
            call.abort();
        }
        callers.run_for(2 * ROUND_TRIP);
        assert_eq!(callers.requests(), ["a", "b", "c d e", "f"]);
        let rest = ["a", "b", "c", "d", "e", "f"].into_iter().filter(|name| *name != dropped);
        assert_eq!(callers.ended(), rest.collect::<Vec<_>>());
        assert!(callers.exists(dropped), "it was in the request");
    }
}

#[test]
fn a_call_that_is_dropped_before_its_request_is_sent_changes_nothing() {
    let callers = Callers::new(10);
    let calls = ["a", "b", "c", "d", "e"].map(|name| (name, callers.add(name)));
    for (name, call) in &calls {
        if ["c", "e"].contains(name) {
            call.abort();
        }
    }
    callers.run_for(2 * ROUND_TRIP);
    assert_eq!(callers.requests(), ["a", "b", "d"]);
    assert_eq!(callers.ended(), ["a", "b", "d"]);
    assert!(!callers.exists("c") && !callers.exists("e"));
}

#[test]
fn all_calls_may_be_dropped_and_later_ones_are_sent_at_once() {
    let callers = Callers::new(11);
    for call in ["a", "b", "c", "d"].map(|name| callers.add(name)) {
        call.abort();
    }
    callers.run_for(ms(1));
    assert_eq!(callers.requests(), ["a", "b"]);
    callers.add("e");
    assert_eq!(callers.requests(), ["e"]);
    callers.run_for(ROUND_TRIP);
    assert_eq!(callers.ended(), ["e"]);
    assert!(!callers.exists("c") && !callers.exists("d"));
}

#[test]
fn a_request_without_a_reply_keeps_others_waiting_for_a_moment_only() {
    let callers = Callers::new(12);
    for name in ["a", "hangs", "b", "c"] {
        callers.add(name);
    }
    assert_eq!(callers.requests(), ["a", "hangs"]);
    callers.run_for(secs(1));
    assert_eq!(callers.ended(), ["a"]);
    // An eighth of the time limit of 10 s.
    callers.run_for(ms(250) + ROUND_TRIP);
    assert_eq!(callers.ended(), ["a", "b", "c"]);
    assert_eq!(callers.requests(), ["b c"]);
    callers.add("d");
    callers.run_for(ROUND_TRIP);
    assert!(callers.ended().contains(&"d".to_owned()), "the late request keeps none waiting");
    callers.run_for(secs(9));
    assert_eq!(callers.ended(), ["a", "b", "c", "d", "hangs: Unavailable"]);
    assert!(!callers.exists("hangs"));
}

#[test]
fn a_call_whose_time_is_up_leaves_the_others_to_their_request() {
    let callers = Callers::new(13);
    let impatient = callers.client.clone().store_timeout(ROUND_TRIP + ms(1));
    for name in ["a", "b"] {
        callers.add(name);
    }
    // It would end after two round trips.
    callers.add_to(&impatient, stored("impatient"));
    callers.add("c");
    callers.run_for(ROUND_TRIP + ms(1));
    assert_eq!(callers.requests(), ["a", "b", "impatient c"]);
    assert_eq!(callers.ended(), ["a", "b", "impatient: Unavailable"]);
    callers.run_for(ROUND_TRIP);
    assert_eq!(callers.ended(), ["a", "b", "c", "impatient: Unavailable"]);
}

#[test]
fn calls_that_are_not_polled_keep_no_others_waiting() {
    let callers = Callers::new(14);
    let [a, b, c, d] = ["a", "b", "c", "d"].map(stored);
    callers.lab.sim.block_on(async {
        let client = &callers.client;
        let mut calls = [&a, &b, &c].map(|stored| client.add(stored).boxed());
        for call in &mut calls {
            // Twice: once it lets others join.
            assert!(poll_immediate(&mut *call).await.is_none());
            assert!(poll_immediate(&mut *call).await.is_none());
        }
        let begun = callers.lab.sim.elapsed();
        client.add(&d).await.unwrap();
        assert_eq!(callers.lab.sim.elapsed() - begun, ROUND_TRIP);
        for call in calls {
            call.await.unwrap();
        }
    });
    assert_eq!(callers.requests(), ["a", "b c d"]);
}

#[test]
fn calls_of_one_task_share_requests() {
    let callers = Callers::new(15);
    let all: Vec<StoredSchedule> = (0..256).map(|i| stored(&format!("{i}"))).collect();
    callers.lab.sim.block_on(async {
        let calls = all.iter().map(|stored| callers.client.add(stored));
        let mut added = futures::stream::iter(calls).buffer_unordered(32);
        while let Some(added) = added.next().await {
            added.unwrap();
        }
    });
    let requests = callers.requests().len();
    assert!(requests <= 40, "{requests} requests");
}

#[test]
fn a_request_has_limits() {
    let callers = Callers::new(16);
    let add = |stored: &StoredSchedule| {
        let (client, stored) = (callers.client.clone(), stored.clone());
        async move { client.add(&stored).await.map(drop) }.boxed()
    };
    let many: Vec<_> = (0..1_202).map(|i| stored(&format!("{i}"))).collect();
    let large = |i: usize| stored(&format!("large {i}")).data_bytes(vec![0; 300_000]);
    let large: Vec<_> = (0..8).map(large).collect();
    let sizes = |all: &[StoredSchedule]| {
        callers.lab.sim.block_on(async {
            let mut calls: FuturesUnordered<_> = all.iter().map(add).collect();
            while let Some(added) = calls.next().await {
                added.unwrap();
            }
        });
        let requests = std::mem::take(&mut *callers.remote.hooks().requests.lock().unwrap());
        requests.iter().map(Vec::len).collect::<Vec<_>>()
    };
    // A single call before leaves none to expect.
    assert_eq!(sizes(&[stored("first")]), [1]);
    assert_eq!(sizes(&many), [1, 500, 500, 201]);
    assert_eq!(sizes(&large), [3, 3, 2], "1 MiB");
}

/// A store whose replies come from other threads.
#[cfg(feature = "tokio")]
#[derive(Debug)]
struct Threaded {
    requests: std::sync::atomic::AtomicUsize,
}

#[cfg(feature = "tokio")]
#[async_trait::async_trait]
#[expect(clippy::disallowed_methods, reason = "a reply from another thread")]
impl Hooks for Threaded {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        self.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        for _ in 0..3 {
            let (reply, received) = futures::channel::oneshot::channel();
            tokio::spawn(async { reply.send(()) });
            received.await.unwrap();
        }
        store.reschedule(batch).await
    }
}

/// On threads, with calls that are dropped at any moment. A lost wake-up is the error of a call.
#[cfg(feature = "tokio")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[expect(clippy::disallowed_methods, reason = "callers on threads")]
async fn on_threads_every_call_that_is_not_dropped_has_a_reply() {
    const CALLERS: usize = 16;
    const EACH: usize = 200;
    let store = Wrapped::around(Memory::new(), Threaded { requests: 0.into() });
    let client = Schedules::new(store.clone()).unwrap();
    let caller = |caller: usize| {
        let client = client.clone();
        tokio::spawn(async move {
            for i in 0..EACH {
                let stored = stored(&format!("{caller}-{i}"));
                if caller.is_multiple_of(2) {
                    client.add(&stored).await.unwrap();
                    continue;
                }
                let soon = async {
                    for _ in 0..i % 8 {
                        tokio::task::yield_now().await;
                    }
                };
                futures::select_biased! {
                    added = client.add(&stored).fuse() => drop(added.unwrap()),
                    () = soon.fuse() => {}
                }
            }
        })
    };
    for ended in join_all((0..CALLERS).map(caller)).await {
        ended.unwrap();
    }
    let requests = store.hooks().requests.load(std::sync::atomic::Ordering::Relaxed);
    assert!(requests < CALLERS * EACH / 2, "{requests} requests");
}

#[test]
fn concurrent_triggers_of_a_handle_share_requests() {
    let callers = Callers::new(31);
    callers.lab.store("acme", "mail", "@every 60s");
    let seat = callers.lab.seat(callers.lab.clock());
    let scheduler = seat.builder_on(callers.remote.clone()).build().unwrap();
    let handle = scheduler.handle();
    let ids: Vec<String> = (0..50).map(|i| format!("order {i}")).collect();
    let calls = join_all(ids.iter().map(|id| handle.trigger("acme", id)));
    let triggered = callers.lab.sim.block_on(calls);
    assert!(triggered.iter().all(|one| one.as_ref().is_ok_and(|one| one.is_new())));
    let requests = callers.remote.hooks().requests.lock().unwrap().len();
    assert!(requests <= 3, "{requests} requests for 50 triggers");
}

#[test]
fn a_run_reaches_the_schedules_of_its_store() {
    let lab = Lab::new(32);
    let run = |run: allora_core::Run| async move {
        let schedules = run.schedules()?;
        schedules.trigger("report", &run.occurrence_key()).await?;
        schedules.trigger("report", &run.occurrence_key()).await.map(|_| ())
    };
    lab.start(|seat, b| {
        let import = allora_core::job(allora_core::every(secs(60)), run);
        b.add("import", import).add("report", seat.job(allora_core::every(secs(3_600)), ms(5)))
    });
    lab.until(70.0);
    assert_eq!(lab.story("import"), ["succeeded 60"]);
    assert_eq!(lab.ran("report").len(), 1);
}

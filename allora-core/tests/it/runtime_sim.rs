//! The simulated runtime, as a user's test sees it.

use allora_core::{
    Runtime, Time,
    runtime::{Sim, SimNode},
};
use chrono::TimeDelta;
use futures::{
    FutureExt, StreamExt,
    channel::{mpsc, oneshot},
    future::{BoxFuture, join_all, pending, poll_fn, select},
};
use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The events, in order.
type Log<T> = Arc<Mutex<Vec<T>>>;

fn read<T: Clone>(log: &Log<T>) -> Vec<T> {
    log.lock().expect("no panic while locked").clone()
}

/// Notes the seconds since the start, every `period`, on this node.
fn beat(sim: &Sim, node: &SimNode, period: Duration) -> Log<u64> {
    let log: Log<u64> = Arc::default();
    let (start, outside) = (sim.now() - sim.elapsed(), node.clone());
    let (node, notes) = (node.clone(), log.clone());
    outside.spawn(Box::pin(async move {
        let mut next = node.now();
        loop {
            next += period;
            node.sleep_until(next).await;
            notes.lock().expect("no panic while locked").push((node.now() - start).as_secs());
        }
    }));
    log
}

/// Twenty tasks that yield and draw, at the same instants.
fn order_of_tasks(seed: u64) -> (Vec<u64>, u64) {
    let sim = Sim::new(seed);
    let log: Log<u64> = Arc::default();
    for id in 0..20 {
        let (node, notes) = (sim.node(), log.clone());
        node.clone().spawn(Box::pin(async move {
            for _ in 0..3 {
                node.sleep_until(node.now() + SECOND).await;
                notes.lock().expect("no panic while locked").push(id);
            }
        }));
    }
    sim.run_for(MINUTE);
    (read(&log), sim.trace())
}

fn message(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("a panic");
    *panic.downcast::<String>().expect("a text")
}

#[test]
fn one_seed_is_one_run() {
    assert_eq!(order_of_tasks(7), order_of_tasks(7));
}

#[test]
fn seeds_differ_in_order_and_trace() {
    let (one, other) = (order_of_tasks(1), order_of_tasks(2));
    assert_ne!(one.0, other.0);
    assert_ne!(one.1, other.1);
}

#[test]
fn random_numbers_follow_from_seed_and_node() {
    let draw = |seed| {
        let sim = Sim::new(seed);
        [sim.random(), sim.node().random(), sim.node().random(), sim.random()]
    };
    assert_eq!(draw(1), draw(1));
    let mut all = [draw(1), draw(2)].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 8);
}

#[test]
fn sleeps_end_in_order_at_their_time() {
    let sim = Sim::new(1);
    let log: Log<(u64, Duration)> = Arc::default();
    sim.block_on(join_all([3, 1, 2].map(|wait| {
        let sleep = sim.sleep_until(sim.now() + wait as u32 * SECOND);
        let (sim, log) = (&sim, &log);
        sleep.map(move |()| log.lock().expect("no panic while locked").push((wait, sim.elapsed())))
    })));
    assert_eq!(read(&log), [(1, SECOND), (2, 2 * SECOND), (3, 3 * SECOND)]);
    sim.block_on(sim.sleep_until(sim.now() - SECOND));
    assert_eq!(sim.elapsed(), 3 * SECOND);
}

#[test]
fn run_until_includes_its_end() {
    let sim = Sim::new(1);
    let log = beat(&sim, &sim.node(), SECOND);
    sim.run_until(sim.wall() + 3 * SECOND);
    assert_eq!(read(&log), [1, 2, 3]);
    sim.run_for(SECOND / 2);
    assert_eq!((sim.elapsed(), read(&log).len()), (SECOND * 7 / 2, 3));
}

#[test]
fn a_paused_node_catches_up_when_it_goes_on() {
    let sim = Sim::new(1);
    let node = sim.node();
    let log = beat(&sim, &node, 10 * SECOND);
    sim.run_for(15 * SECOND);
    node.pause();
    sim.run_for(MINUTE);
    assert_eq!(read(&log), [10]);
    node.resume();
    sim.run_for(10 * SECOND);
    assert_eq!(read(&log), [10, 75, 75, 75, 75, 75, 75, 80]);
}

#[test]
fn a_suspended_node_has_lost_the_time() {
    let sim = Sim::new(1);
    let node = sim.node();
    let log = beat(&sim, &node, 10 * SECOND);
    sim.run_for(15 * SECOND);
    node.suspend();
    sim.run_for(MINUTE);
    assert_eq!(sim.now() - node.now(), MINUTE);
    node.resume();
    sim.run_for(5 * SECOND);
    assert_eq!((read(&log), sim.elapsed()), (vec![10, 20], 80 * SECOND));
    assert_eq!((sim.now() - node.now(), node.wall()), (MINUTE, sim.wall()));
}

#[test]
fn what_wakes_a_paused_task_is_remembered() {
    let sim = Sim::new(1);
    let node = sim.node();
    let ((send, receive), (done, ended)) = (oneshot::channel::<()>(), oneshot::channel());
    node.spawn(Box::pin(async move {
        receive.await.expect("sent");
        done.send(()).expect("awaited");
    }));
    sim.run_for(SECOND);
    node.pause();
    send.send(()).expect("awaited");
    let mut ended = ended;
    sim.run_for(SECOND);
    assert_eq!(ended.try_recv(), Ok(None));
    node.resume();
    sim.block_on(ended).expect("sent");
}

#[test]
fn a_task_that_is_woken_three_times_is_polled_once() {
    let sim = Sim::new(1);
    let mut first = true;
    sim.spawn(Box::pin(poll_fn(move |cx| {
        let wakes = if mem::take(&mut first) { 3 } else { 0 };
        (0..wakes).for_each(|_| cx.waker().wake_by_ref());
        Poll::Pending
    })));
    sim.run_for(SECOND);
    assert_eq!(sim.steps(), 2);
}

#[test]
fn a_waker_that_outlives_its_task_wakes_no_other() {
    let sim = Sim::new(1);
    let (send, mut wakers) = mpsc::unbounded();
    sim.spawn(Box::pin(poll_fn(move |cx| {
        send.unbounded_send(cx.waker().clone()).expect("somebody listens");
        Poll::Ready(())
    })));
    sim.run_for(SECOND);
    sim.spawn(Box::pin(pending()));
    sim.run_for(SECOND);
    let steps = sim.steps();
    wakers.try_recv().expect("sent").wake();
    sim.run_for(SECOND);
    assert_eq!(sim.steps(), steps);
}

#[test]
fn a_task_spawned_on_a_paused_node_waits() {
    let sim = Sim::new(1);
    let node = sim.node();
    node.pause();
    let log = beat(&sim, &node, SECOND);
    sim.run_for(5 * SECOND);
    assert_eq!(read(&log), [0; 0]);
    node.resume();
    sim.run_for(SECOND);
    assert_eq!(read(&log), [6]);
}

#[test]
fn a_crash_drops_the_nodes_tasks_and_no_others() {
    let sim = Sim::new(1);
    let (lost, lives) = (sim.node(), sim.node());
    let held = Arc::new(());
    for node in [&lost, &lives] {
        let held = held.clone();
        node.spawn(Box::pin(async move {
            let _held = held;
            pending().await
        }));
    }
    sim.run_for(SECOND);
    lost.crash();
    assert_eq!(Arc::strong_count(&held), 2);
    let late = held.clone();
    lost.spawn(Box::pin(async move { drop(late) }));
    assert_eq!(Arc::strong_count(&held), 2);
    lost.resume();
    sim.run_for(SECOND);
    drop(sim);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn a_task_may_crash_its_own_node() {
    let sim = Sim::new(1);
    let node = sim.node();
    let log = beat(&sim, &node, SECOND);
    let (doomed, held) = (node.clone(), Arc::new(()));
    let inside = held.clone();
    node.spawn(Box::pin(async move {
        let _inside = inside;
        doomed.sleep_until(doomed.now() + SECOND * 5 / 2).await;
        doomed.crash();
        doomed.sleep_until(doomed.now()).await;
        panic!("still alive");
    }));
    sim.run_for(MINUTE);
    assert_eq!((read(&log), Arc::strong_count(&held)), (vec![1, 2], 1));
}

#[test]
fn dropping_the_simulation_drops_tasks_that_hold_nodes_and_timers() {
    let held = Arc::new(());
    let sim = Sim::new(1);
    let (node, inside) = (sim.node(), held.clone());
    node.clone().spawn(Box::pin(async move {
        node.sleep_until(node.now() + MINUTE).await;
        drop(inside);
    }));
    sim.run_for(SECOND);
    drop(sim);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn each_node_has_its_own_wall_clock() {
    let sim = Sim::new(1);
    let (ahead, slow, right) = (sim.node(), sim.node(), sim.node());
    ahead.set_skew(TimeDelta::hours(1));
    slow.set_drift(-100);
    sim.run_for(10_000 * SECOND);
    assert_eq!(ahead.wall() - sim.wall(), TimeDelta::hours(1));
    assert_eq!(slow.skew(), TimeDelta::seconds(-1));
    assert_eq!((slow.wall() - sim.wall(), right.wall()), (slow.skew(), sim.wall()));
    assert_eq!([ahead.now(), slow.now()], [sim.now(); 2]);
    ahead.set_skew(TimeDelta::zero());
    assert_eq!(ahead.wall(), sim.wall());
}

#[test]
fn a_deadlock_is_reported_with_the_seed() {
    let sim = Sim::new(4242);
    let text = message(|| sim.block_on(pending()));
    assert!(text.contains("seed 4242") && text.contains("deadlock"), "{text}");
    assert_eq!(sim.block_on(async { 7 }), 7);
}

#[test]
fn waiting_for_a_paused_node_is_a_deadlock() {
    let sim = Sim::new(1);
    let node = sim.node();
    node.pause();
    let text = message(|| sim.block_on(node.sleep_until(node.now() + SECOND)));
    assert!(text.contains("paused nodes: 1"), "{text}");
    assert_eq!(sim.elapsed(), Duration::ZERO);
}

#[test]
fn a_task_that_wakes_itself_for_ever_is_reported() {
    let sim = Sim::new(1);
    let endless = poll_fn(|cx| {
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    });
    let text = message(|| sim.block_on(endless));
    assert!(text.contains("without progress of time"), "{text}");
}

#[test]
fn a_panic_of_a_task_or_of_the_test_names_seed_and_node() {
    let sim = Sim::new(99);
    let node = sim.node();
    node.spawn(Box::pin(async { panic!("{}", "boom") }));
    let text = message(|| sim.run_for(SECOND));
    assert!(text.contains("seed 99") && text.contains("node 1") && text.contains("boom"), "{text}");
    let text = message(|| sim.block_on(async { panic!("bang") }));
    assert!(text.contains("seed 99") && text.contains("bang"), "{text}");
}

#[test]
fn a_simulation_is_not_driven_from_inside() {
    let sim = Sim::new(1);
    let text = message(|| sim.block_on(async { sim.run_for(SECOND) }));
    assert!(text.contains("one thread at a time"), "{text}");
}

#[test]
fn tasks_talk_to_each_other_and_to_the_test() {
    let sim = Sim::new(1);
    let (send, received) = mpsc::unbounded();
    for id in 0..10 {
        let send = send.clone();
        sim.node()
            .spawn(Box::pin(async move { send.unbounded_send(id).expect("somebody listens") }));
    }
    drop(send);
    let mut ids: Vec<i32> = sim.block_on(received.collect());
    ids.sort_unstable();
    assert_eq!(ids, (0..10).collect::<Vec<_>>());
}

/// Nodes that, as their random numbers have it, sleep, drop sleeps, spawn, and stop each other.
fn turmoil(seed: u64) -> (u64, u64) {
    let sim = Sim::new(seed);
    let nodes: Vec<SimNode> = (0..6).map(|_| sim.node()).collect();
    for node in &nodes {
        node.spawn(anything(node.clone(), nodes.clone(), 0));
    }
    for _ in 0..20 {
        sim.run_for(MINUTE);
        nodes.iter().for_each(SimNode::resume);
    }
    (sim.trace(), sim.steps())
}

fn anything(node: SimNode, nodes: Vec<SimNode>, depth: u32) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        for _ in 0..100 {
            let draw = node.random();
            let after = |ms: u64| node.now() + Duration::from_millis(ms);
            let other = &nodes[(draw >> 32) as usize % nodes.len()];
            match draw % 64 {
                0 => other.pause(),
                1 => other.suspend(),
                2 if depth == 3 => other.crash(),
                3..10 if depth < 3 => node.spawn(anything(node.clone(), nodes.clone(), depth + 1)),
                10..30 => {
                    let there = other.now() + Duration::from_millis(draw >> 50);
                    select(other.sleep_until(there), node.sleep_until(after(5000))).await;
                }
                _ => node.sleep_until(after(draw >> 52)).await,
            }
        }
    })
}

#[test]
fn turmoil_repeats_itself() {
    let runs: Vec<_> = (0..20).map(turmoil).collect();
    assert_eq!(runs, (0..20).map(turmoil).collect::<Vec<_>>());
    let most = runs.iter().map(|&(_, steps)| steps).max();
    assert!(most > Some(1000), "{most:?}");
}

#[test]
fn wall_clocks_stop_at_the_ends_of_time() {
    let sim = Sim::new(1);
    let node = sim.node();
    node.set_skew(TimeDelta::MAX);
    assert_eq!(node.wall(), Time::MAX_UTC);
    node.set_skew(TimeDelta::MIN);
    assert_eq!(node.wall(), Time::MIN_UTC);
}

/// Every minute a sleep of a day is dropped: two timers a turn, of which one fires.
#[test]
fn a_year_of_minutes_on_three_nodes_is_no_more_work_than_its_timers() {
    const MINUTES: u64 = 60 * 24 * 365;
    let sim = Sim::new(1);
    for _ in 0..3 {
        let node = sim.node();
        node.clone().spawn(Box::pin(async move {
            let mut next = node.now();
            loop {
                next += MINUTE;
                let long = node.sleep_until(next + 1440 * MINUTE);
                select(node.sleep_until(next), long).await;
            }
        }));
    }
    sim.run_for(MINUTES as u32 * MINUTE);
    // One first poll for each node, then for each minute a timer and a poll.
    assert_eq!(sim.steps(), 3 * (1 + 2 * MINUTES));
}

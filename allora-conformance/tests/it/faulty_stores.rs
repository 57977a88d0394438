//! The slow and the partially answering store.

use allora_conformance::faults::{PartialBackend, Shares, SlowBackend, Speed};
use allora_core::{
    Backend, Runtime,
    backend::{Action, Batch, Operation, Reply, TimeSource},
    runtime::Sim,
};
use allora_memory::Memory;
use futures::future::{Either, join, select};
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A batch that registers these jobs.
async fn register(store: &dyn Backend, sim: &Sim, names: &[String]) -> Vec<bool> {
    let action = Action::Register { definition: "every 1h", version: 0, first: None };
    let operations: Vec<_> =
        names.iter().map(|name| Operation::new(name, action.clone())).collect();
    let time = TimeSource::Fixed(sim.wall());
    let applied = store.reschedule(Batch::new("node", time, &operations)).await.unwrap();
    applied.replies.iter().map(Result::is_ok).collect()
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|n| format!("job{n}")).collect()
}

#[test]
fn a_slow_store_takes_its_time_for_each_operation_and_serves_one_request_at_a_time() {
    let sim = Sim::new(1);
    let store = SlowBackend::new(Memory::new(), sim.node(), Speed::new(ms(2)).per_request(ms(5)));
    sim.block_on(join(register(&store, &sim, &names(10)), register(&store, &sim, &names(20))));
    assert_eq!(sim.elapsed(), ms(5 + 20) + ms(5 + 40));
}

#[test]
fn what_is_dropped_by_its_caller_has_no_effect_on_a_slow_store_and_frees_its_connection() {
    let sim = Sim::new(2);
    let memory = Memory::new();
    let store = SlowBackend::new(memory.clone(), sim.node(), Speed::new(ms(2)));
    let jobs = names(1_000);
    sim.block_on(async {
        let request = register(&store, &sim, &jobs);
        let limit = sim.sleep_until(sim.now() + ms(1_000));
        let ended = select(Box::pin(request), limit).await;
        assert!(matches!(ended, Either::Right(_)), "it takes 2 s");
        drop(ended);
        let time = TimeSource::Fixed(sim.wall());
        let read = [Operation::read("job0")];
        let applied = memory.reschedule(Batch::new("node", time, &read)).await.unwrap();
        assert_eq!(applied.single().unwrap(), Reply::Absent);
        register(&store, &sim, &jobs[..10]).await;
    });
    assert_eq!(sim.elapsed(), ms(1_020));
}

#[test]
fn a_partially_answering_store_applies_some_operations_and_answers_fewer() {
    let sim = Sim::new(3);
    let memory = Memory::new();
    let shares = Shares::new(300, 200);
    let store = PartialBackend::new(memory.clone(), sim.node(), shares.clone());
    let jobs = names(1_000);
    sim.block_on(async {
        let answered = register(&store, &sim, &jobs).await;
        let answered = answered.into_iter().filter(|answered| *answered).count();
        assert!((430..570).contains(&answered), "{answered}");
        let page = allora_core::backend::Page::first(2_000);
        let applied = Backend::queries(&memory).unwrap().list(page).await.unwrap().len();
        assert!((630..770).contains(&applied), "{applied}");
        shares.set(0, 0);
        assert!(register(&store, &sim, &jobs).await.into_iter().all(|answered| answered));
    });
}

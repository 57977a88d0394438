//! An occurrence of a dead node is run again unchanged, however late.

use allora_core::{
    CatchUp, Run, Runtime, Scheduler, Time, every, job,
    runtime::{Sim, SimNode},
};
use allora_memory::Memory;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

type Ran = Arc<Mutex<Vec<(Time, u32)>>>;

/// Every ten seconds, leased for five; on a node that hangs, no run ends.
fn start(node: &SimNode, store: &Memory, ran: &Ran, hangs: bool, catch_up: CatchUp) {
    let (ran, runtime) = (ran.clone(), node.clone());
    let work = move |run: Run| async move {
        ran.lock().unwrap().push((run.scheduled_at(), run.attempt()));
        if hangs {
            runtime.sleep_until(runtime.now() + Duration::from_secs(100_000)).await;
        }
    };
    let entry = job(every(Duration::from_secs(10)), work)
        .at_least_once(Duration::from_secs(5))
        .catch_up(catch_up);
    let builder = Scheduler::builder(store.clone()).runtime(node.clone());
    let scheduler = builder.add("job", entry).build().unwrap();
    node.spawn(Box::pin(async move {
        scheduler.run().await;
    }));
}

#[test]
fn a_dead_nodes_occurrence_is_run_again_when_later_ones_are_due_too() {
    for catch_up in [CatchUp::Latest, CatchUp::None, CatchUp::All { limit: 2 }] {
        let sim = Sim::new(7);
        let (store, ran) = (Memory::new(), Ran::default());
        let (dies, comes) = (sim.node(), sim.node());
        start(&dies, &store, &ran, true, catch_up);
        sim.run_for(Duration::from_secs(12));
        let first = ran.lock().unwrap()[0].0;
        dies.crash();
        sim.run_for(Duration::from_secs(65));
        start(&comes, &store, &ran, false, catch_up);
        sim.run_for(Duration::from_secs(20));
        let ran = ran.lock().unwrap();
        assert_eq!(ran[..2], [(first, 1), (first, 2)], "{catch_up:?}");
        assert!(ran.len() > 3, "and on it goes: {ran:?}");
    }
}

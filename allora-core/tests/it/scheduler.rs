//! Schedulers over one memory store, in virtual time.

use allora_core::{Run, Scheduler, Time, every, runtime::Sim};
use allora_memory::Memory;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

#[test]
fn smoke() {
    let sim = Sim::new(7);
    let store = Memory::new().with_history(1000);
    let ran: Arc<Mutex<Vec<(String, Time)>>> = Arc::default();
    for n in 0..3 {
        let ran = ran.clone();
        let node = sim.node();
        let scheduler = Scheduler::builder(store.clone())
            .runtime(node.clone())
            .label(format!("n{n}"))
            .on_event(|e| println!("{e:?}"))
            .job("tick", every(Duration::from_secs(10)), async move |run: Run| {
                ran.lock().unwrap().push((run.node().to_owned(), run.scheduled_at()));
            })
            .build()
            .unwrap();
        use allora_core::Runtime;
        node.spawn(Box::pin(async move {
            scheduler.run().await;
        }));
    }
    sim.run_for(Duration::from_secs(105));
    let ran = ran.lock().unwrap();
    for r in ran.iter() {
        println!("{r:?}");
    }
    assert_eq!(ran.len(), 10);
    println!("steps {}", sim.steps());
}

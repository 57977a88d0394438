//! Fifty nodes, the same minute: one runs it, also while a server hangs and a clock is wrong.

#![expect(clippy::disallowed_methods, reason = "real nodes in real time")]

use super::{join, patient, runtime, servers, urls};
use allora_conformance::faults::Skewed;
use allora_core::{Run, Scheduler, Time, every, runtime::Tokio};
use allora_redis_quorum::RedisQuorum;
use futures::future::join_all;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const NODES: usize = 50;

#[test]
fn fifty_machines_run_each_occurrence_once_while_a_server_hangs_and_a_clock_is_late() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let urls = urls(&servers);
        let runs: Arc<Mutex<BTreeMap<Time, u32>>> = Arc::default();
        let (mut handles, mut nodes) = (Vec::new(), Vec::new());
        for i in 0..NODES {
            let tokio = Tokio::current().unwrap();
            let ahead = chrono::TimeDelta::seconds(if i == 7 { -9 } else { 0 });
            let runs = runs.clone();
            let scheduler =
                Scheduler::builder(patient(RedisQuorum::builder(), &urls).await.unwrap())
                    .runtime(Skewed(tokio, ahead))
                    .job("minutely", every(Duration::from_secs(3)), async move |run: Run| {
                        *runs.lock().unwrap().entry(run.scheduled_at()).or_default() += 1;
                    })
                    .build()
                    .unwrap();
            handles.push(scheduler.handle());
            nodes.push(tokio::spawn(scheduler.run()));
        }
        tokio::time::sleep(Duration::from_secs(7)).await;
        servers[1].freeze();
        // Time for another attempt of a node that would try for fifteen seconds.
        tokio::time::sleep(Duration::from_secs(16)).await;
        let end = Instant::now() + Duration::from_secs(60);
        while runs.lock().unwrap().len() < 4 {
            assert!(Instant::now() < end, "{runs:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for handle in &handles {
            handle.stop();
        }
        join_all(nodes).await;
        let seen = super::read(&join(&urls, "allora").await, "minutely").await;
        let runs = runs.lock().unwrap();
        assert!(runs.values().all(|times| *times == 1), "{runs:?}");
        assert_eq!(seen.counters.started, runs.len() as u64, "{runs:?}");
        let span = *runs.keys().last().unwrap() - *runs.keys().next().unwrap();
        let instants = span.num_seconds() as u64 / 3 + 1;
        let accounted = seen.counters.started + seen.counters.missed;
        assert!(accounted >= instants, "{instants} instants: {seen:?}");
    });
}

//! The lateness of jobs in code that are due at one instant, for several numbers of jobs.

use crate::{Figures, claims::Claims, figure, place::Place};
use allora_benches::{fleet, profile, report::at as quantile};
use allora_conformance::faults::Wrapped;
use allora_core::{Run, Scheduler, Time, cron, job};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

/// The numbers of jobs; each has a second of its own.
const SIZES: [usize; 4] = [10, 100, 1_000, 5_000];
/// The nodes see each other in the registry.
const WARM_UP: Duration = Duration::from_secs(6);
const LONGEST: Duration = Duration::from_secs(30);

/// A run: the size of its group, the number of its job, its second, and its lateness in milliseconds.
type Ran = (usize, usize, i64, f64);

/// Percentiles of the instants of so many seconds, in which each size has as many instants; and the
/// part of the claims that failed because another node had the occurrence.
pub(crate) async fn measure(place: &Place, nodes: usize, seconds: usize) -> Figures {
    let ran: Arc<Mutex<Vec<Ran>>> = Arc::default();
    let stores = place.open_all(nodes).await;
    let claims = Claims::default();
    let noted = |store| Wrapped::around(store, claims.clone());
    let schedulers = stores.into_iter().map(|store| scheduler(noted(store), &ran)).collect();
    let instants = seconds.div_ceil(SIZES.len());
    let measured = async {
        tokio::time::sleep(WARM_UP).await;
        let first = now().timestamp() / 4 * 4 + 4;
        let last = first + (instants * SIZES.len()) as i64;
        profile::begin();
        tokio::time::sleep(Duration::from_secs((last - now().timestamp()) as u64)).await;
        profile::end();
        let all = instants * SIZES.iter().sum::<usize>();
        let begun = now();
        loop {
            let of_ours = |ran: &&Ran| (first..last).contains(&ran.2);
            let ours: Vec<Ran> = ran.lock().unwrap().iter().filter(of_ours).copied().collect();
            if ours.len() >= all {
                return (ours, first..last);
            }
            let waited = (now() - begun).to_std().unwrap_or_default();
            assert!(waited < LONGEST, "{} of {all} runs were started", ours.len());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let (ran, seconds) = fleet::during(schedulers, measured).await;
    let different: HashSet<_> = ran.iter().map(|(size, job, at, _)| (size, job, at)).collect();
    assert_eq!(different.len(), ran.len(), "an occurrence was run twice");
    let (sent, failed) = claims.within(&seconds);
    assert!(sent - failed >= ran.len(), "{} runs of {} claims", ran.len(), sent - failed);
    let of_size = |size: usize| {
        let late = || ran.iter().filter(move |ran| ran.0 == size).map(|ran| ran.3);
        [(0.5, "p50"), (0.99, "p99")]
            .map(|(part, name)| figure(&format!("{name}_ms_{size}"), quantile(late(), part)))
    };
    let late = SIZES.into_iter().flat_map(of_size);
    late.chain([figure("failed_claims", failed as f64 / sent as f64)]).collect()
}

fn scheduler(store: Wrapped<Claims>, ran: &Arc<Mutex<Vec<Ran>>>) -> Scheduler {
    let heartbeat = Duration::from_secs(1);
    let mut builder = Scheduler::builder(store).concurrency(10_000).heartbeat(heartbeat);
    for (second, size) in SIZES.into_iter().enumerate() {
        for i in 0..size {
            let ran = ran.clone();
            let note = async move |run: Run| {
                let late = (now() - run.scheduled_at()).as_seconds_f64() * 1_000.0;
                ran.lock().unwrap().push((size, i, run.scheduled_at().timestamp(), late));
            };
            let times = cron(&format!("{second}-59/4 * * * * *")).unwrap();
            builder = builder.add(format!("late-{size}-{i}"), job(times, note));
        }
    }
    builder.build().unwrap()
}

fn now() -> Time {
    SystemTime::now().into()
}

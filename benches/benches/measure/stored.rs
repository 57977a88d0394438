//! The influence of other stored schedules, which are due in a year.

use crate::{Figures, figure, place::Place, workers};
use allora_benches::{fleet, report::at as quantile};
use allora_core::{
    Run, Scheduler, Time, at,
    stored::{Schedules, StoredSchedule},
    time::whole_millis,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

const COUNT_AT_ONCE: usize = 1_000;
/// The number of schedules that are added one by one while a worker waits.
const WAKES: usize = 100;
/// The number of schedules that concurrent callers of one client add one by one.
const ONE_BY_ONE: u64 = 6_400;
const LONGEST: Duration = Duration::from_secs(10);

/// The rate of one worker, the time from the return of `add` to the run on a waiting worker, and the
/// rate at which concurrent callers add schedules.
pub(crate) async fn measure(place: &Place, stored: u64, count: u64) -> Figures {
    let schedules = Schedules::new(place.open().await).unwrap();
    let begun = Instant::now();
    fleet::add_later(&schedules, "stored", 0..stored).await;
    let added = (stored > 0).then(|| stored as f64 / begun.elapsed().as_secs_f64());
    let mut figures = workers::measure(place, 1, count, COUNT_AT_ONCE, 0.into()).await;
    let waits = wakes(place, &schedules).await;
    let one_by_one = fleet::add_one_by_one(&[schedules], "one-by-one", ONE_BY_ONE).await;
    figures.extend([
        figure("added_one_by_one_per_s", one_by_one),
        figure("wake_p50_ms", quantile(waits.iter().copied(), 0.5)),
        figure("wake_p99_ms", quantile(waits.iter().copied(), 0.99)),
    ]);
    figures.extend(added.map(|added| figure("added_per_s", added)));
    figures
}

async fn wakes(place: &Place, schedules: &Schedules) -> Vec<f64> {
    let began: Arc<Mutex<HashMap<String, Instant>>> = Arc::default();
    let note = began.clone();
    let run = async move |run: Run| {
        note.lock().unwrap().insert(run.name().to_owned(), Instant::now());
    };
    let worker = Scheduler::builder(place.open().await).kind("wake", run).build().unwrap();
    let one_by_one = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut waits = Vec::new();
        for i in 0..WAKES {
            let name = format!("wake-{i}");
            let due = whole_millis(Time::from(SystemTime::now()));
            schedules
                .add(&StoredSchedule::new(&name, "wake", at(due)).starting(due))
                .await
                .unwrap();
            let added = Instant::now();
            let run = loop {
                if let Some(run) = began.lock().unwrap().get(&name) {
                    break *run;
                }
                assert!(added.elapsed() < LONGEST, "{name} was not run");
                tokio::time::sleep(Duration::from_micros(200)).await;
            };
            waits.push(run.saturating_duration_since(added).as_secs_f64() * 1_000.0);
        }
        waits
    };
    fleet::during(vec![worker], one_by_one).await
}

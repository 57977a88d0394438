//! The work of a day, for a login with few rights.

use crate::faults::wall;
use allora_core::{
    Backend, Run, Scheduler, Schedules, StoredSchedule,
    backend::{HistoryQuery, TimeSource},
    every, job,
    stored::{ChangeFilter, Filter},
    time::from_millis,
};
use chrono::TimeDelta;
use std::time::Duration;

/// Does what nodes and clients do: jobs in code and stored ones run, clients add, list, count, pause, trigger and
/// delete, and read the history and the record of changes; the store is pruned. With a login of the store that has
/// just the rights of [`Backend::grants`], each of it must be possible. The store keeps a history.
///
/// # Panics
/// If something is refused, or takes longer than a minute.
pub async fn a_days_work(store: impl Backend + Clone) {
    let builder = Scheduler::builder(store.clone()).kind("mail", async |_: Run| {});
    let builder = builder.add("in code", job(every(Duration::from_secs(1)), async |_: Run| {}));
    let scheduler = builder.build().unwrap();
    let handle = scheduler.handle();
    let work = async {
        let client = Schedules::new(store.clone()).unwrap().by("ann");
        let notifications = match store.notifier() {
            Some(notifier) => Some(notifier.subscribe().await.unwrap()),
            None => None,
        };
        client.add(&StoredSchedule::new("a", "mail", "@daily").tag("x")).await.unwrap();
        let ended = client.trigger_and_wait("a", "t", Duration::from_secs(60)).await.unwrap();
        assert_eq!(ended.outcome.word(), "succeeded");
        client.pause("a", "").await.unwrap();
        assert_eq!(client.list(Filter::default(), None, 10).await.unwrap().len(), 2);
        client.counts("").await.unwrap();
        client.history(HistoryQuery::new(10)).await.unwrap();
        client.changes(ChangeFilter::default(), None, 10).await.unwrap();
        let now = from_millis(wall()).unwrap();
        client.hours("a", now - TimeDelta::hours(1), now).await.unwrap();
        client.delete("a").await.unwrap();
        store.prune(TimeSource::Fixed(now)).await.unwrap();
        drop(notifications);
        handle.stop();
    };
    futures::join!(scheduler.run(), work);
}

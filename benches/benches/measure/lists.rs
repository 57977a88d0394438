//! Pages of many stored schedules, and their reconciliation with an equal desired state.

use crate::{Figures, figure, place::Place};
use allora_benches::{fleet, report::at as quantile};
use allora_core::stored::{DesiredState, Filter, Schedules, StoredSchedule, SyncProgress};
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

/// The number of pages, which begin at places that are equally far from each other.
const PAGES: usize = 40;
/// The schedules of a page.
const LENGTH: usize = 100;
const PREFIX: &str = "listed";

/// The time of a page, and of `sync` with all schedules, by a client that has not added them.
pub(crate) async fn measure(place: &Place, stored: u64) -> Figures {
    let declared = fleet::later(PREFIX, 0..stored);
    let adds = Schedules::new(place.open().await).unwrap();
    let begun = Instant::now();
    fleet::add_all(&adds, &declared).await;
    let added = stored as f64 / begun.elapsed().as_secs_f64();
    let schedules = Schedules::new(place.open().await).unwrap();
    let mut pages = Vec::new();
    for page in 0..PAGES {
        let place = page * declared.len() / PAGES;
        let after = place.checked_sub(1).map(|last| declared[last].name());
        let begun = Instant::now();
        let listed = schedules.list(Filter::default(), after, LENGTH).await.unwrap();
        pages.push(begun.elapsed().as_secs_f64() * 1e3);
        let expected = &declared[place..place + LENGTH];
        assert!(
            listed.iter().map(|state| &*state.name).eq(expected.iter().map(StoredSchedule::name))
        );
    }
    let most = pages.iter().copied().fold(0.0, f64::max);
    let some = sync(&schedules, DesiredState::new(&declared), declared.len()).await;
    let complete = DesiredState::new(&declared).complete(PREFIX);
    let complete = sync(&schedules, complete, declared.len()).await;
    Figures::from_iter([
        figure("added_per_s", added),
        figure("page_p50_ms", quantile(pages, 0.5)),
        figure("page_most_ms", most),
        figure("sync_s", some),
        figure("sync_complete_s", complete),
    ])
}

/// The seconds of a `sync` that compares so many schedules and changes nothing.
async fn sync(schedules: &Schedules, desired: DesiredState<'_>, count: usize) -> f64 {
    let compared = AtomicUsize::new(0);
    let note = |progress: SyncProgress| compared.store(progress.compared, Ordering::Relaxed);
    let begun = Instant::now();
    let changes = schedules.sync(desired.on_progress(&note)).await.unwrap();
    let took = begun.elapsed().as_secs_f64();
    assert!(changes.is_empty(), "an equal desired state has changed {} schedules", changes.len());
    assert_eq!(compared.into_inner(), count, "not every schedule was compared");
    took
}

//! Whole workers and a burst of stored schedules, which are all due at one instant.

use crate::{
    Figures, figure,
    place::{Place, Usage},
};
use allora_benches::fleet::{Burst, work_off_with};
use allora_core::backend::HistoryLimits;

/// Occurrences per second that were acknowledged and that were started, and the processor time for
/// each.
pub(crate) async fn measure(
    place: &Place,
    nodes: usize,
    count: u64,
    concurrency: usize,
    history: HistoryLimits,
) -> Figures {
    let (prepares, stores) = (place.open().await, place.open_all_with(nodes, history).await);
    let burst = Burst { count, concurrency };
    let done = work_off_with(prepares, stores, burst, Usage::now).await;
    let (client, server) = done.after.each(done.before, count);
    let mut figures = Figures::from_iter([
        figure("per_s", count as f64 / done.took.as_secs_f64()),
        figure("started_per_s", count as f64 / done.started.as_secs_f64()),
        figure("client_us", client),
    ]);
    figures.extend(server.map(|server| figure("server_us", server)));
    figures
}

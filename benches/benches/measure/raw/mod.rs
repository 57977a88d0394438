//! The raw limit: as many occurrences, claimed and completed by bare statements or scripts. Nothing is
//! decided and nothing runs; a claim writes a lease and a fence for each record, and a completion moves
//! the record to another time if the fence is still the same.

mod postgres;
mod redis;

use crate::{
    Figures, figure,
    place::{Place, Usage},
};
use futures::future::join_all;
use std::time::Instant;

/// Occurrences per second of so many connections, and the server's processor time for each.
pub(crate) async fn measure(
    place: &Place,
    connections: usize,
    count: usize,
    batch: usize,
) -> Figures {
    let (begun, before, done) = match place {
        Place::Sql(url) if url.starts_with("postgres") => {
            let workers = postgres::fill(url, connections, count, batch).await;
            let (begun, before) = (Instant::now(), Usage::now());
            (begun, before, join_all(workers.into_iter().map(postgres::Worker::work)).await)
        }
        Place::Redis(url) => {
            let workers = redis::fill(url, connections, count, batch).await;
            let (begun, before) = (Instant::now(), Usage::now());
            (begun, before, join_all(workers.into_iter().map(redis::Worker::work)).await)
        }
        _ => panic!("this store has no raw limit"),
    };
    let (took, after) = (begun.elapsed(), Usage::now());
    assert_eq!(done.iter().sum::<usize>(), count, "not every record was moved once");
    if let Place::Sql(url) = place {
        postgres::clear(url).await;
    }
    let mut figures = Figures::from_iter([figure("per_s", count as f64 / took.as_secs_f64())]);
    let (_, server) = after.each(before, count as u64);
    figures.extend(server.map(|server| figure("server_us", server)));
    figures
}

//! The calls of a batch: one for each shard, all shards at the same time.

use crate::{error::copy, store::Store};
use allora_core::{Result, record::MAX_DATA};
use futures::future::join_all;
use std::{collections::HashMap, future::Future, time::Duration};

/// The most jobs that one script call handles: other clients wait for it.
pub(crate) const CHUNK: usize = 1_000;

/// A part of a batch: names of one shard.
pub(crate) struct Part {
    pub(crate) shard: u32,
    /// The positions of the names.
    pub(crate) which: Vec<usize>,
    /// The longest time to wait for a reply. A shard that does not reply must not make the replies of
    /// the others late.
    pub(crate) within: Duration,
}

impl Store {
    /// The longest time to wait for each of several shards.
    pub(crate) fn time_of_shards(&self, shards: usize) -> Duration {
        let timeout = self.connection.timeout;
        if shards > 1 { timeout * 3 / 4 } else { timeout }
    }

    /// Calls `call` with each part, and returns the results by position. A part has at most [`CHUNK`]
    /// positions, and, if there are several, at most [`MAX_DATA`] bytes by `size`; the calls to one
    /// shard are made one after the other. After an error the rest of that shard fails with it.
    ///
    /// # Errors
    /// If every shard failed.
    pub(crate) async fn call_shards<'n, T, F>(
        &self,
        names: impl Iterator<Item = &'n str>,
        size: impl Fn(usize) -> usize,
        call: impl Fn(Part) -> F,
    ) -> Result<Vec<Result<T>>>
    where
        F: Future<Output = Result<Vec<T>>>,
    {
        let mut shards: HashMap<u32, Vec<usize>> = HashMap::new();
        let mut count = 0;
        for (i, name) in names.enumerate() {
            shards.entry(self.keys.shard_of(name)).or_default().push(i);
            count = i + 1;
        }
        let within = self.time_of_shards(shards.len());
        let (size, call) = (&size, &call);
        let shards = shards.into_iter().map(|(shard, which)| async move {
            let mut results = Vec::with_capacity(which.len());
            let mut rest = which.as_slice();
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(fit(rest, size));
                rest = after;
                match call(Part { shard, which: chunk.to_vec(), within }).await {
                    Ok(done) => results.extend(done.into_iter().map(Ok)),
                    Err(error) => {
                        let others = results.len() + 1..which.len();
                        results.extend(others.map(|_| Err(copy(&error))));
                        results.push(Err(error));
                        break;
                    }
                }
            }
            which.into_iter().zip(results).collect::<Vec<_>>()
        });
        let mut all: Vec<Option<Result<T>>> = (0..count).map(|_| None).collect();
        for (i, result) in join_all(shards).await.into_iter().flatten() {
            all[i] = Some(result);
        }
        // Every name is in one shard, and a shard has one result for each of its names.
        let mut all: Vec<Result<T>> = all.into_iter().flatten().collect();
        if all.iter().all(Result::is_err)
            && let Some(Err(error)) = all.pop()
        {
            return Err(error);
        }
        Ok(all)
    }
}

/// The number of these that fit into one call.
fn fit(which: &[usize], size: impl Fn(usize) -> usize) -> usize {
    let mut bytes = 0;
    let fits = |i: &&usize| {
        bytes += size(**i);
        bytes <= MAX_DATA
    };
    which.iter().take(CHUNK).take_while(fits).count().max(1)
}

//! Stores in Redis: one server (`redis://`, `rediss://`, `redis+unix://`), behind sentinels
//! (`redis+sentinel://HOST,HOST/MASTER[/DB]`) or in a cluster (`redis+cluster://HOST,HOST`); the
//! latter two over TLS with `rediss+`.

use super::{Store, Wanted};
use crate::failure::{Failure, Outcome};
use allora_redis::Redis;
use std::sync::Arc;

/// Opens a store.
///
/// # Errors
/// A URL that is not one, and what the server says.
pub(super) async fn open(url: &str, wanted: Wanted) -> Outcome<Store> {
    Ok(Arc::new(connect(url, wanted).await?))
}

/// Removes a store.
///
/// # Errors
/// As [`open`].
pub(super) async fn remove(url: &str, wanted: Wanted) -> Outcome {
    Ok(connect(url, wanted).await?.delete_keys().await?)
}

async fn connect(url: &str, wanted: Wanted) -> Outcome<Redis> {
    let mut builder = Redis::builder().history(wanted.history);
    if let Some(prefix) = wanted.prefix {
        builder = builder.prefix(prefix);
    }
    Ok(match several(url)? {
        Servers::One => builder.connect(url).await?,
        Servers::Cluster(each) => builder.connect_cluster(each).await?,
        Servers::Sentinels(each, master) => builder.connect_sentinel(each, master).await?,
    })
}

/// The servers of a URL.
pub(super) enum Servers<'a> {
    One,
    Cluster(Vec<String>),
    /// With the name of the master.
    Sentinels(Vec<String>, &'a str),
}

pub(super) fn several(url: &str) -> Outcome<Servers<'_>> {
    let (scheme, _) = url.split_once(':').unwrap_or_default();
    let Some((scheme, form)) = scheme.split_once('+').filter(|(_, form)| *form != "unix") else {
        return Ok(Servers::One);
    };
    let super::Servers { login, hosts, path } = super::Servers::of(url)?;
    let each = |path: &str| -> Vec<String> {
        hosts.iter().map(|host| format!("{scheme}://{login}{host}{path}")).collect()
    };
    if form == "cluster" {
        if path.is_empty() {
            return Ok(Servers::Cluster(each("")));
        }
        let what = "the store URL has a database; a Redis cluster has only one: remove it";
        return Err(Failure::wrong(what));
    }
    let (master, db) = path.split_once('/').unwrap_or((path, ""));
    if master.is_empty() {
        let what = "the store URL names no master; write redis+sentinel://HOST,HOST/MASTER";
        return Err(Failure::wrong(what));
    }
    let db = if db.is_empty() { String::new() } else { format!("/{db}") };
    Ok(Servers::Sentinels(each(&db), master))
}

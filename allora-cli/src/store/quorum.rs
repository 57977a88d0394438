//! Stores over independent Redis servers: `redis-quorum://[USER:PASSWORD@]HOST,HOST,HOST[/DB]`, or
//! `rediss-quorum://` over TLS.

use super::{Servers, Store, Tables, Wanted};
use crate::failure::{Failure, Outcome};
use allora_redis_quorum::RedisQuorum;
use std::sync::Arc;

/// Opens a store. Only [`Tables::Initialise`] makes the servers a quorum.
///
/// # Errors
/// A URL that is not one, servers that are not a quorum yet, and what the servers say.
pub(super) async fn open(url: &str, wanted: Wanted) -> Outcome<Store> {
    let tables = wanted.tables;
    let store = connect(url, wanted).await?;
    if !store.is_initialised().await? {
        if tables != Tables::Initialise {
            return Err(Failure::failed(
                "the servers of the store URL are not a quorum yet; `allora init` makes them one, \
                 once",
            ));
        }
        store.init().await?;
    }
    Ok(Arc::new(store))
}

/// Removes what the servers have of a store.
pub(super) async fn remove(url: &str, wanted: Wanted) -> Outcome {
    Ok(connect(url, wanted).await?.delete_keys().await?)
}

async fn connect(url: &str, wanted: Wanted) -> Outcome<RedisQuorum> {
    let mut builder = RedisQuorum::builder();
    if let Some(prefix) = wanted.prefix {
        builder = builder.prefix(prefix);
    }
    Ok(builder.connect(&each(url)?).await?)
}

/// The URL of each server.
pub(super) fn each(url: &str) -> Outcome<Vec<String>> {
    let scheme = if url.starts_with("rediss-") { "rediss" } else { "redis" };
    let Servers { login, hosts, path } = Servers::of(url)?;
    if !path.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Failure::wrong(
            "the path of the store URL is not the number of a database; write \
             redis-quorum://HOST:PORT,HOST:PORT,HOST:PORT/0",
        ));
    }
    let database = if path.is_empty() { String::new() } else { format!("/{path}") };
    Ok(hosts.iter().map(|host| format!("{scheme}://{login}{host}{database}")).collect())
}

#[cfg(test)]
mod tests {
    use super::each;

    #[test]
    fn every_server_has_the_login_and_the_database() {
        let urls = each("redis-quorum://a:1,b:2,c:3").unwrap();
        assert_eq!(urls, ["redis://a:1", "redis://b:2", "redis://c:3"]);
        let urls = each("rediss-quorum://u:p%40@a,b,c:3/2").unwrap();
        assert_eq!(urls, ["rediss://u:p%40@a/2", "rediss://u:p%40@b/2", "rediss://u:p%40@c:3/2"]);
    }

    #[test]
    fn a_url_that_is_wrong_is_refused_without_its_password() {
        for bad in
            ["redis-quorum:a,b,c", "redis-quorum://:hunter2@a,,c", "redis-quorum://:hunter2@a/x"]
        {
            let said = format!("{:?}", each(bad).unwrap_err());
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}

//! A Redis server: emptied of one prefix, and asked for the number of its commands.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says so")]

use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};
use std::time::Duration;

/// A connection to the server, which waits for a reply also on a busy machine.
pub async fn connection(url: &str) -> MultiplexedConnection {
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
}

/// Removes every key that contains the prefix.
pub async fn clear(url: &str, prefix: &str) {
    let mut connection = connection(url).await;
    let mut cursor = 0_u64;
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("*{prefix}*")).arg("COUNT").arg(10_000);
        let (next, keys): (u64, Vec<String>) = scan.query_async(&mut connection).await.unwrap();
        if !keys.is_empty() {
            let () = redis::cmd("UNLINK").arg(keys).query_async(&mut connection).await.unwrap();
        }
        cursor = next;
        if cursor == 0 {
            return;
        }
    }
}

/// The number of commands that the server has carried out so far: scripts that clients called, and
/// all commands, with those of scripts.
pub async fn commands(url: &str) -> (f64, f64) {
    let mut connection = connection(url).await;
    let info: String =
        redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
    let (mut scripts, mut all) = (0.0, 0.0);
    for line in info.lines() {
        let Some((name, calls)) =
            line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls="))
        else {
            continue;
        };
        let calls: f64 = calls.split(',').next().unwrap().parse().unwrap();
        // Asking is not what is asked about.
        if !["info", "client|setinfo", "hello"].contains(&name) {
            all += calls;
            scripts += if name.starts_with("eval") { calls } else { 0.0 };
        }
    }
    (scripts, all)
}

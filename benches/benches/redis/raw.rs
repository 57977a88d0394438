//! The raw limit: the tightest script that compares and sets the same field of the same keys, called
//! over and over on one connection.

use redis::{AsyncCommands, Script, aio::MultiplexedConnection};
use std::time::{Duration, Instant};

/// Of the store's keys; those of the raw limit begin with it too.
pub(crate) const PREFIX: &str = "allora_bench";

/// As long as the line that a take writes.
const LINE: usize = 200;

/// All have one old value and one new one: nothing is read that is not compared, nothing is worked
/// out, and one number is answered.
const SCRIPT: &str = "local won = 0
for i = 1, #KEYS do
  if redis.call('HGET', KEYS[i], 'hot') == ARGV[1] then
    redis.call('HSET', KEYS[i], 'hot', ARGV[2])
    won = won + 1
  end
end
return won";

pub(crate) async fn connection(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

pub(crate) struct Raw {
    connection: MultiplexedConnection,
    keys: Vec<String>,
    script: Script,
    turn: u64,
}

fn line(turn: u64) -> String {
    format!("{turn:0LINE$}")
}

impl Raw {
    pub(crate) async fn new(url: &str, id: &str, batch: usize) -> Self {
        let keys: Vec<String> = (0..batch).map(|i| format!("{{{PREFIX}}}:raw:{id}-{i}")).collect();
        let mut connection = connection(url).await;
        for key in &keys {
            let fields = [("hot", line(0)), ("text", "every 1s".to_owned())];
            let () = connection.hset_multiple(key, &fields).await.unwrap();
        }
        Self { connection, keys, script: Script::new(SCRIPT), turn: 0 }
    }

    /// Moves all its keys, again and again; answers with moves per second.
    pub(crate) async fn work(&mut self, lasts: Duration) -> f64 {
        let (begun, mut won) = (Instant::now(), 0);
        while begun.elapsed() < lasts {
            let mut call = self.script.prepare_invoke();
            for key in &self.keys {
                call.key(key);
            }
            call.arg(line(self.turn)).arg(line(self.turn + 1));
            won += call.invoke_async::<u64>(&mut self.connection).await.unwrap();
            self.turn += 1;
        }
        won as f64 / begun.elapsed().as_secs_f64()
    }
}

/// Removes whatever is there.
pub(crate) async fn clear(url: &str) {
    let mut connection = connection(url).await;
    let mut cursor = 0_u64;
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{{{PREFIX}}}:*")).arg("COUNT").arg(10_000);
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

/// A number that the server says of itself.
pub(crate) async fn info(url: &str, section: &str, name: &str) -> f64 {
    let mut connection = connection(url).await;
    let info: String = redis::cmd("INFO").arg(section).query_async(&mut connection).await.unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().trim().parse().unwrap()
}

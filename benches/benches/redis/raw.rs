//! The raw limits: the tightest script that compares and sets the same field of the same keys, and
//! one that compares and sets short fields of one hash, called over and over on one connection.

use allora_benches::server::redis::{self as server, connection};
use redis::{AsyncCommands, Script, aio::MultiplexedConnection};
use std::time::{Duration, Instant};

/// Of the store's keys; those of the raw limit begin with it too.
pub(crate) const PREFIX: &str = "allora_bench";

/// As long as the line that a take writes.
const LINE: usize = 200;

/// The table in which the raw statement compares and sets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    /// The field that a take changes, of as many keys.
    Keys,
    /// Short fields of one key, with one command for all: less than any store of jobs can do.
    OneHash,
}

/// The least that a batch on one hash costs; all have one old value and one new one.
const ONE_HASH: &str = "local read = redis.call('HMGET', KEYS[1], unpack(ARGV, 3))
local set, won = {}, 0
for i = 1, #read do
  if read[i] == ARGV[1] then
    set[2 * won + 1] = ARGV[i + 2]
    set[2 * won + 2] = ARGV[2]
    won = won + 1
  end
end
redis.call('HSET', KEYS[1], unpack(set))
return won";

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

pub(crate) struct Raw {
    table: Table,
    connection: MultiplexedConnection,
    id: String,
    keys: Vec<String>,
    script: Script,
    turn: u64,
}

fn line(turn: u64) -> String {
    format!("{turn:0LINE$}")
}

impl Raw {
    pub(crate) async fn new(url: &str, id: &str, batch: usize, table: Table) -> Self {
        let keys: Vec<String> = (0..batch).map(|i| format!("{{{PREFIX}}}:raw:{id}-{i}")).collect();
        let mut connection = connection(url).await;
        let script = match table {
            Table::Keys => {
                for key in &keys {
                    let fields = [("hot", line(0)), ("text", "every 1s".to_owned())];
                    let () = connection.hset_multiple(key, &fields).await.unwrap();
                }
                SCRIPT
            }
            Table::OneHash => {
                let fields: Vec<(&String, u64)> = keys.iter().map(|key| (key, 0)).collect();
                let () = connection.hset_multiple(hash(id), &fields).await.unwrap();
                ONE_HASH
            }
        };
        Self { table, connection, id: id.to_owned(), keys, script: Script::new(script), turn: 0 }
    }

    /// Moves all its keys, again and again; answers with moves per second.
    pub(crate) async fn work(&mut self, lasts: Duration) -> f64 {
        let (begun, mut won) = (Instant::now(), 0);
        while begun.elapsed() < lasts {
            let mut call = self.script.prepare_invoke();
            match self.table {
                Table::Keys => {
                    call.key(&self.keys).arg(line(self.turn)).arg(line(self.turn + 1));
                }
                Table::OneHash => {
                    call.key(hash(&self.id)).arg(self.turn).arg(self.turn + 1).arg(&self.keys);
                }
            }
            let moved: u64 = call.invoke_async(&mut self.connection).await.unwrap();
            assert_eq!(moved, self.keys.len() as u64);
            won += moved;
            self.turn += 1;
        }
        won as f64 / begun.elapsed().as_secs_f64()
    }
}

fn hash(id: &str) -> String {
    format!("{{{PREFIX}}}:raw-hash:{id}")
}

/// Removes everything that is there.
pub(crate) async fn clear(url: &str) {
    server::clear(url, PREFIX).await;
}

/// A number that the server says of itself.
pub(crate) async fn info(url: &str, section: &str, name: &str) -> f64 {
    let mut connection = connection(url).await;
    let info: String = redis::cmd("INFO").arg(section).query_async(&mut connection).await.unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().trim().parse().unwrap()
}

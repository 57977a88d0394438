//! Redis: one script claims a batch, another one completes it.

use crate::place::PREFIX;
use allora_benches::server::redis::connection;
use redis::{Script, aio::MultiplexedConnection};

/// A score that is the same for a whole claim is its lease and its token.
const CLAIM: &str =
    "local names = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', 1, 'LIMIT', 0, ARGV[1])
if #names == 0 then return { '', names, names } end
local token = tostring(1000000 + redis.call('INCR', KEYS[3]))
local set = {}
for i = 1, #names do
  set[2 * i - 1] = token
  set[2 * i] = names[i]
end
redis.call('ZADD', KEYS[1], 'XX', unpack(set))
return { token, names, redis.call('HMGET', KEYS[2], unpack(names)) }";

/// Refused if one of the batch has another score.
const COMPLETE: &str = "local n = #ARGV / 2
if redis.call('ZCOUNT', KEYS[1], ARGV[1], ARGV[1]) ~= tonumber(ARGV[2]) then return 0 end
local set, lines = {}, {}
for i = 3, #ARGV, 2 do
  set[i - 2] = '1000000000000'
  set[i - 1] = ARGV[i]
  lines[i - 2] = ARGV[i]
  lines[i - 1] = ARGV[i + 1]
end
redis.call('ZADD', KEYS[1], unpack(set))
redis.call('HSET', KEYS[2], unpack(lines))
return n - 1";

pub(super) struct Worker {
    connection: MultiplexedConnection,
    claim: Script,
    complete: Script,
    batch: usize,
}

fn keys() -> [String; 3] {
    ["due", "lines", "tokens"].map(|end| format!("{{{PREFIX}}}:raw:{end}"))
}

/// So many records that are due, and connections on which the scripts have been called.
pub(super) async fn fill(url: &str, connections: usize, count: usize, batch: usize) -> Vec<Worker> {
    let [due, lines, _] = keys();
    let mut workers = Vec::new();
    for _ in 0..connections {
        let (claim, complete) = (Script::new(CLAIM), Script::new(COMPLETE));
        let mut worker = Worker { connection: connection(url).await, claim, complete, batch };
        assert!(worker.claim().await.1.is_empty());
        workers.push(worker);
    }
    let names: Vec<String> = (0..count).map(|i| format!("raw-{i}")).collect();
    for names in names.chunks(1_000) {
        let (mut scores, mut fields) = (redis::cmd("ZADD"), redis::cmd("HSET"));
        scores.arg(&due);
        fields.arg(&lines);
        for name in names {
            scores.arg(1).arg(name);
            fields.arg(name).arg(line(0));
        }
        let connection = &mut workers[0].connection;
        let () = scores.query_async(connection).await.unwrap();
        let () = fields.query_async(connection).await.unwrap();
    }
    workers
}

/// As short as the numbers of a record are.
fn line(ran: u64) -> String {
    format!("1 {ran} 1700000000000 every-day 17")
}

impl Worker {
    /// Claims and completes until nothing is due; returns the number of completed records.
    pub(super) async fn work(mut self) -> usize {
        let mut done = 0;
        loop {
            let (token, names, lines) = self.claim().await;
            if names.is_empty() {
                return done;
            }
            assert_eq!(names.len(), lines.len());
            let mut call = self.complete.prepare_invoke();
            for key in keys() {
                call.key(key);
            }
            call.arg(token).arg(names.len());
            for name in &names {
                call.arg(name).arg(line(1));
            }
            let completed: usize = call.invoke_async(&mut self.connection).await.unwrap();
            assert_eq!(completed, names.len(), "a score has changed");
            done += completed;
        }
    }

    async fn claim(&mut self) -> (String, Vec<String>, Vec<String>) {
        let mut call = self.claim.prepare_invoke();
        for key in keys() {
            call.key(key);
        }
        call.arg(self.batch).invoke_async(&mut self.connection).await.unwrap()
    }
}

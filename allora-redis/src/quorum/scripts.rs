//! What a server does with a message, as Lua; the same in Rust is in `acceptor`.
//!
//! A server has one hash for each prefix. Its fields: `m:` what concerns the server, `p:JOB` the
//! ballot that is promised for a job, `a:JOB` the ballot that was accepted last, followed by the
//! value. That it is one key is why a server cannot lose a part of what it knows: whatever is
//! evicted, deleted or flushed is gone as a whole, and then the server is blank.
//!
//! A server is blank, too, when `m:run` is not its process: then what it knows may be from an old
//! file. That is asked in every script, before anything else.

use super::register::{Known, MOST, Seal};
use redis::{Script, Value};
use std::sync::LazyLock;

/// Begins every script that only an admitted server carries out; `reply` is what its answer begins
/// with. Times are read after everything else that can fail.
const ADMITTED: &str = "
local key, place, era = KEYS[1], ARGV[1], ARGV[2]
local meta = redis.call('HMGET', key, 'm:run', 'm:place', 'm:era', 'm:life', 'm:known')
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if meta[1] ~= run then return {'blank', run} end
if meta[2] ~= place then return {'place', meta[2]} end
if era ~= '' and meta[3] ~= era then return {'era'} end
local time = redis.call('TIME')
local reply = {'ok', meta[4], meta[5], time[1], time[2]}
";

/// Begins every script that fills a blank server.
const DRAFTED: &str = "
local key, token = KEYS[1], ARGV[1]
local meta = redis.call('HMGET', key, 'm:run', 'm:draft')
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if meta[1] == run or meta[2] ~= token .. ':' .. run then return {'other'} end
";

/// Reads promised and accepted of the jobs from `ARGV[first]` on.
const READ: &str = "
local fields = {}
for i = first, #ARGV do
  fields[#fields + 1] = 'p:' .. ARGV[i]
  fields[#fields + 1] = 'a:' .. ARGV[i]
end
local got = redis.call('HMGET', key, unpack(fields))
for i = 1, #got do reply[#reply + 1] = got[i] or '' end
";

fn admitted(body: &str) -> Script {
    Script::new(&format!("{ADMITTED}{body}"))
}

fn drafted(body: &str) -> Script {
    Script::new(&format!("{DRAFTED}{body}"))
}

/// Who are you? Arguments, as of all that begin so: place, era (may be empty). Body: era, run.
pub(crate) static HELLO: LazyLock<Script> =
    LazyLock::new(|| admitted("reply[6] = meta[3]; reply[7] = run; return reply"));

/// `Acceptor::peek` of each job. Further arguments: jobs. Body: promised and accepted of each.
pub(crate) static PEEK: LazyLock<Script> =
    LazyLock::new(|| admitted(&format!("local first = 3 {READ} return reply")));

/// `Acceptor::prepare` of each job. Further arguments: ballot, jobs. Body: as `PEEK`, before.
pub(crate) static PREPARE: LazyLock<Script> = LazyLock::new(|| {
    admitted(&format!(
        "local ballot, first = ARGV[3], 4 {READ}
local write = {{}}
for i = 1, #fields, 2 do
  if (got[i] or '') < ballot then
    write[#write + 1] = fields[i]
    write[#write + 1] = ballot
  end
end
if #write > 0 then redis.call('HSET', key, unpack(write)) end
return reply"
    ))
});

/// `Acceptor::accept` of each job. Further arguments: ballot, then job and value of each. Body:
/// what was promised before.
pub(crate) static ACCEPT: LazyLock<Script> = LazyLock::new(|| {
    admitted(
        "local ballot = ARGV[3]
local fields, write = {}, {}
for i = 4, #ARGV, 2 do fields[#fields + 1] = 'p:' .. ARGV[i] end
local got = redis.call('HMGET', key, unpack(fields))
for i = 1, #fields do
  local before = got[i] or ''
  if before <= ballot then
    write[#write + 1] = fields[i]
    write[#write + 1] = ballot
    write[#write + 1] = 'a:' .. ARGV[2 * i + 2]
    write[#write + 1] = ballot .. ARGV[2 * i + 3]
  end
  reply[#reply + 1] = before
end
if #write > 0 then redis.call('HSET', key, unpack(write)) end
return reply",
    )
});

/// `Acceptor::note`. Further arguments: which server, from 0; its new life. No body.
pub(crate) static NOTE: LazyLock<Script> = LazyLock::new(|| {
    admitted(
        "local known, i = {}, 0
for life in string.gmatch(meta[5], '%d+') do
  if i == tonumber(ARGV[3]) and tonumber(life) < tonumber(ARGV[4]) then life = ARGV[4] end
  i = i + 1
  known[i] = life
end
reply[3] = table.concat(known, ',')
redis.call('HSET', key, 'm:known', reply[3])
return reply",
    )
});

/// A page of all registers. Further arguments: cursor. Body: the next cursor, then field and text
/// of each.
pub(crate) static SCAN: LazyLock<Script> = LazyLock::new(|| {
    admitted(
        "local page = redis.call('HSCAN', key, ARGV[3], 'COUNT', 500)
reply[6] = page[1]
for i = 1, #page[2] do reply[#reply + 1] = page[2][i] end
return reply",
    )
});

/// `Acceptor::draft`. Arguments: token. Answer: `drafted` and the run, or `other`.
pub(crate) static DRAFT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local key = KEYS[1]
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if redis.call('HGET', key, 'm:run') == run then return {'other'} end
redis.call('DEL', key)
redis.call('HSET', key, 'm:draft', ARGV[1] .. ':' .. run)
return {'drafted', run}",
    )
});

/// `Acceptor::fill` of each job. Arguments: token, then job, promised and accepted of each.
/// Answer: `filled` or `other`.
pub(crate) static FILL: LazyLock<Script> = LazyLock::new(|| {
    drafted(
        "local fields, write = {}, {}
for i = 2, #ARGV, 3 do
  fields[#fields + 1] = 'p:' .. ARGV[i]
  fields[#fields + 1] = 'a:' .. ARGV[i]
end
if #fields == 0 then return {'filled'} end
local got = redis.call('HMGET', key, unpack(fields))
for i = 1, #fields / 2 do
  local promised, accepted = ARGV[3 * i], ARGV[3 * i + 1]
  if (got[2 * i - 1] or '') < promised then
    write[#write + 1] = fields[2 * i - 1]
    write[#write + 1] = promised
  end
  if string.sub(got[2 * i] or '', 1, 40) < string.sub(accepted, 1, 40) then
    write[#write + 1] = fields[2 * i]
    write[#write + 1] = accepted
  end
end
if #write > 0 then redis.call('HSET', key, unpack(write)) end
return {'filled'}",
    )
});

/// `Acceptor::admit`. Arguments: token, place, era, life, known. Answer: `admitted` or `other`.
pub(crate) static ADMIT: LazyLock<Script> = LazyLock::new(|| {
    drafted(
        "redis.call('HDEL', key, 'm:draft')
redis.call('HSET', key, 'm:run', run, 'm:place', ARGV[2], 'm:era', ARGV[3],
  'm:life', ARGV[4], 'm:known', ARGV[5])
return {'admitted'}",
    )
});

/// What a server answered.
#[derive(Debug, PartialEq)]
pub(crate) enum Said {
    /// It is admitted. Its clock in microseconds, and the body.
    Sealed { seal: Seal, clock: i64, body: Vec<Vec<u8>> },
    /// It remembers nothing, or not surely.
    Blank,
    /// It belongs to another quorum, or to another place in this one; as it was told then.
    Place(String),
    /// The quorum was initialised anew since.
    Era,
    /// The first word of any other answer.
    Word(String),
}

/// Reads an answer; `None` if nobody who follows the protocol gives it.
pub(crate) fn said(value: Value) -> Option<Said> {
    let Value::Array(parts) = value else { return None };
    let mut texts = Vec::with_capacity(parts.len());
    for part in parts {
        texts.push(match part {
            Value::BulkString(bytes) => bytes,
            Value::SimpleString(text) => text.into_bytes(),
            Value::Int(number) => number.to_string().into_bytes(),
            Value::Nil => Vec::new(),
            _ => return None,
        });
    }
    let text = |i: usize| texts.get(i).and_then(|text| std::str::from_utf8(text).ok());
    match text(0)? {
        "blank" => Some(Said::Blank),
        "place" => Some(Said::Place(text(1).unwrap_or_default().to_owned())),
        "era" => Some(Said::Era),
        "ok" => {
            let seal = Seal { incarnation: text(1)?.parse().ok()?, known: known(text(2)?)? };
            let (seconds, micros): (i64, i64) = (text(3)?.parse().ok()?, text(4)?.parse().ok()?);
            let clock = seconds.checked_mul(1_000_000)?.checked_add(micros)?;
            Some(Said::Sealed { seal, clock, body: texts.split_off(5) })
        }
        word => Some(Said::Word(word.to_owned())),
    }
}

fn known(text: &str) -> Option<Known> {
    let mut known = [0; MOST];
    let mut lives = text.split(',');
    for known in &mut known {
        *known = lives.next()?.parse().ok()?;
    }
    lives.next().is_none().then_some(known)
}

/// As servers keep it.
pub(crate) fn known_text(known: &Known) -> String {
    known.map(|life| life.to_string()).join(",")
}

//! A server's answers to messages, as Lua; the same in Rust is in `acceptor`.
//!
//! A server has one hash for each prefix. Its fields: `m:` what concerns the server, `p:JOB` the
//! ballot that is promised for a job, `a:JOB` the ballot that was accepted last, followed by the
//! value. It is one key, so that a server cannot lose a part of its state: eviction, deletion and a
//! flush remove the whole key, and then the server is empty.
//!
//! A server is empty, too, when its state may come from an old file or from another server. Every
//! script checks that before anything else: `m:run` names the process and the replication id by which
//! the state was last known to be the server's own. A replica is empty as long as it is one.
//!
//! A new replication id alone proves nothing. `REPLICAOF` changes it, but so do a first replica, such
//! as `redis-cli --rdb`, and the end of the backlog, which leave the state alone; and Redis forgets the
//! earlier id in time. What tells the two apart must live in the memory of the process only, so that no
//! copy brings it back: the *mark*, a string under a key of its own that was appended to. Redis keeps
//! such a string in the encoding `raw`; one that was loaded, from a file or from a primary, is
//! `embstr`. While the mark is `raw`, no other state was loaded over the server's own. A replica that
//! merely continues from its primary's stream loads nothing, but it has lost nothing either: its
//! primary had everything first. A server is believed only after it has shown, with a copy of the mark,
//! that it encodes what it loads in another way. Without a mark every new replication id counts as a
//! loss.

use super::register::{IncarnationVector, Known, MOST};
use allora_core::store::Layout;
use allora_redis::internal::VERSION;
use redis::{Script, Value};
use std::sync::LazyLock;

/// The newest version of the registers that this build knows. Each server has one, `m:version`.
pub(crate) const LAYOUT: Layout = Layout::new(1);

/// Reads `run`: the process and the replication id, by which a server knows that its state is its own.
/// `is_own` compares it with the stored one, and follows a new replication id while the mark shows that
/// nothing was loaded. A user without the rights to the mark has none.
const RUN: &str = "
local replication = redis.call('INFO', 'replication')
local process = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. '.'
local run = process .. string.match(replication, 'master_replid:(%x+)')
local is_replica = not string.find(replication, 'role:master', 1, true)
if is_replica then run = run .. '.replica' end
local mark = KEYS[1] .. ':mark'
local function is_marked() return redis.pcall('OBJECT', 'ENCODING', mark) == 'raw' end
local function set_mark()
  redis.pcall('SET', mark, 'x')
  redis.pcall('APPEND', mark, 'y')
end
local function is_own(stored)
  if not stored or stored == run then return stored == run end
  if is_replica or string.sub(stored, 1, #process) ~= process or not is_marked() then return false end
  local copy = redis.pcall('DUMP', mark)
  if type(copy) ~= 'string' then return false end
  redis.pcall('RESTORE', mark, 0, copy, 'REPLACE')
  local is_proof = not is_marked()
  set_mark()
  if is_proof then redis.call('HSET', KEYS[1], 'm:run', run) end
  return is_proof
end
";

/// The beginning of every script that only a member carries out; `reply` is the beginning of its
/// answer. The time is read after everything else that can fail.
const MEMBER: &str = "
local key, place, cluster_id = KEYS[1], ARGV[1], ARGV[2]
local meta = redis.call('HMGET', key, 'm:run', 'm:place', 'm:cluster_id', 'm:incarnation', 'm:known')
if is_replica then return {'replica'} end
if not is_own(meta[1]) then return {'empty', run} end
if meta[2] ~= place then return {'place', meta[2]} end
if cluster_id ~= '' and meta[3] ~= cluster_id then return {'cluster_id'} end
local time = redis.call('TIME')
local reply = {'ok', meta[4], meta[5], time[1], time[2]}
";

/// The beginning of every script that fills an empty server.
const DRAFTED: &str = "
local key, token = KEYS[1], ARGV[1]
local meta = redis.call('HMGET', key, 'm:run', 'm:draft')
if is_own(meta[1]) or meta[2] ~= token .. ':' .. run then return {'other'} end
";

/// Reads `now`, in milliseconds by the server's clock.
const NOW: &str = "
local time = redis.call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
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

fn member(body: &str) -> Script {
    Script::new(&format!("{RUN}{MEMBER}{body}"))
}

fn drafted(body: &str) -> Script {
    Script::new(&format!("{RUN}{DRAFTED}{body}"))
}

/// The server's state. Arguments, as of all scripts of members: place, cluster id (may be empty).
/// Body: cluster id, run, version. It renews a mark that was evicted, and an older version.
pub(crate) static HANDSHAKE: LazyLock<Script> = LazyLock::new(|| {
    member(&format!(
        "if not is_marked() then set_mark() end {VERSION}
reply[6] = meta[3]; reply[7] = run; reply[8] = version('m:version', '{LAYOUT}'); return reply"
    ))
});

/// `Acceptor::peek` of each job. Further arguments: jobs. Body: promised and accepted of each.
pub(crate) static PEEK: LazyLock<Script> =
    LazyLock::new(|| member(&format!("local first = 3 {READ} return reply")));

/// `Acceptor::prepare` of each job. Further arguments: ballot, jobs. Body: as `PEEK`, before.
pub(crate) static PREPARE: LazyLock<Script> = LazyLock::new(|| {
    member(&format!(
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
    member(
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

/// `Acceptor::note`. Further arguments: the server's number, from 0; its new incarnation. No body.
pub(crate) static NOTE: LazyLock<Script> = LazyLock::new(|| {
    member(
        "local known, i = {}, 0
for incarnation in string.gmatch(meta[5], '%d+') do
  if i == tonumber(ARGV[3]) and tonumber(incarnation) < tonumber(ARGV[4]) then incarnation = ARGV[4] end
  i = i + 1
  known[i] = incarnation
end
reply[3] = table.concat(known, ',')
redis.call('HSET', key, 'm:known', reply[3])
return reply",
    )
});

/// `Acceptor::raise`. Further arguments: the server's number, from 0; its new incarnation. No body.
pub(crate) static RAISE: LazyLock<Script> = LazyLock::new(|| {
    member(
        "local incarnation = math.max(tonumber(meta[4]), tonumber(ARGV[4]))
local known, i = {}, 0
for of in string.gmatch(meta[5], '%d+') do
  if i == tonumber(ARGV[3]) then of = string.format('%d', math.max(tonumber(of), incarnation)) end
  i = i + 1
  known[i] = of
end
reply[2], reply[3] = string.format('%d', incarnation), table.concat(known, ',')
redis.call('HSET', key, 'm:incarnation', reply[2], 'm:known', reply[3])
return reply",
    )
});

/// A page of all registers. Further arguments: cursor. Body: the next cursor, then field and text
/// of each.
pub(crate) static SCAN: LazyLock<Script> = LazyLock::new(|| {
    member(
        "local page = redis.call('HSCAN', key, ARGV[3], 'COUNT', 500)
reply[6] = page[1]
for i = 1, #page[2] do reply[#reply + 1] = page[2][i] end
return reply",
    )
});

/// `Acceptor::draft`. Arguments: token, and the milliseconds for which an earlier node that is still
/// filling the server is left alone. Answer: `drafted` and the run, or `other`.
pub(crate) static DRAFT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        "{RUN}local key = KEYS[1]
local meta = redis.call('HMGET', key, 'm:run', 'm:draft', 'm:filled_at')
if is_own(meta[1]) then return {{'other'}} end
{NOW}local is_this_process = meta[2] and string.sub(meta[2], -string.len(run)) == run
local age = is_this_process and now - tonumber(meta[3] or 0) or -1
if age >= 0 and age < tonumber(ARGV[2]) then return {{'other'}} end
redis.call('DEL', key)
redis.call('HSET', key, 'm:draft', ARGV[1] .. ':' .. run, 'm:filled_at', now)
return {{'drafted', run}}"
    ))
});

/// Makes a server empty that has never voted on a job. No arguments. Answer: `reset` or `other`.
pub(crate) static RESET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local key = KEYS[1]
for _, field in ipairs(redis.call('HKEYS', key)) do
  if string.sub(field, 1, 2) ~= 'm:' then return {'other'} end
end
redis.call('DEL', key)
return {'reset'}",
    )
});

/// Deletes the server's state, with the mark unless the user has no rights to it. No arguments. Answer: `deleted`.
pub(crate) static DELETE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "redis.call('DEL', KEYS[1]) redis.pcall('DEL', KEYS[1] .. ':mark') return {'deleted'}",
    )
});

/// `Acceptor::fill` of each job. Arguments: token, then job, promised and accepted of each.
/// Answer: `filled` or `other`.
pub(crate) static FILL: LazyLock<Script> = LazyLock::new(|| {
    drafted(&format!(
        "{NOW}redis.call('HSET', key, 'm:filled_at', now)
local fields, write = {{}}, {{}}
for i = 2, #ARGV, 3 do
  fields[#fields + 1] = 'p:' .. ARGV[i]
  fields[#fields + 1] = 'a:' .. ARGV[i]
end
if #fields == 0 then return {{'filled'}} end
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
return {{'filled'}}"
    ))
});

/// `Acceptor::rejoin`. Arguments: token, place, cluster id, incarnation, known, version. Answer:
/// `rejoined` or `other`.
pub(crate) static REJOIN: LazyLock<Script> = LazyLock::new(|| {
    drafted(
        "redis.call('HDEL', key, 'm:draft', 'm:filled_at')
redis.call('HSET', key, 'm:run', run, 'm:place', ARGV[2], 'm:cluster_id', ARGV[3],
  'm:incarnation', ARGV[4], 'm:known', ARGV[5], 'm:version', ARGV[6])
set_mark()
return {'rejoined'}",
    )
});

/// A server's answer.
#[derive(Debug, PartialEq)]
pub(crate) enum Response {
    /// It is a member. Its clock in microseconds, and the body.
    Member { vector: IncarnationVector, clock: i64, body: Vec<Vec<u8>> },
    /// It is empty, or its state may be old.
    Empty,
    /// It replicates another server.
    Replica,
    /// It belongs to another quorum, or to another place in this one: the place stored in it.
    Place(String),
    /// The quorum was initialised again since.
    OtherCluster,
    /// The first word of any other answer.
    Word(String),
}

/// Reads an answer; `None` if no script of the protocol gives it.
pub(crate) fn parse_response(value: Value) -> Option<Response> {
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
        "empty" => Some(Response::Empty),
        "replica" => Some(Response::Replica),
        "place" => Some(Response::Place(text(1).unwrap_or_default().to_owned())),
        "cluster_id" => Some(Response::OtherCluster),
        "ok" => {
            let vector =
                IncarnationVector { incarnation: text(1)?.parse().ok()?, known: known(text(2)?)? };
            let (seconds, micros): (i64, i64) = (text(3)?.parse().ok()?, text(4)?.parse().ok()?);
            let clock = seconds.checked_mul(1_000_000)?.checked_add(micros)?;
            Some(Response::Member { vector, clock, body: texts.split_off(5) })
        }
        word => Some(Response::Word(word.to_owned())),
    }
}

fn known(text: &str) -> Option<Known> {
    let mut known = [0; MOST];
    let mut incarnations = text.split(',');
    for known in &mut known {
        *known = incarnations.next()?.parse().ok()?;
    }
    incarnations.next().is_none().then_some(known)
}

/// The text that servers store.
pub(crate) fn known_text(known: &Known) -> String {
    known.map(|incarnation| incarnation.to_string()).join(",")
}

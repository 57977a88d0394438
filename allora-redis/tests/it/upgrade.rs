//! Keys as version 1 left them, with records of every kind: this build reads all of them, and goes on.
//!
//! `ALLORA_WRITE_FIXTURE=1` writes them again, and what was said of them then. A line is a command; bytes
//! are the characters of the same numbers.

use crate::stores::{Kind, Place, runtime};
use allora_conformance::upgrade::{
    TOLD, agrees, fill, goes_on, kept, survives, told, words, words_line,
};
use allora_redis::Redis;
use redis::{AsyncCommands, aio::ConnectionLike};

async fn open(place: &Place) -> Redis {
    place.connect(Redis::builder().history(100_000)).await.unwrap()
}

#[test]
fn what_the_first_version_left_is_read_and_goes_on() {
    let Some(place) = Kind::One.place() else { return };
    runtime().block_on(async {
        kept("tests/it/upgrade/keys.jsonl", dump).await;
        load(&place).await;
        let redis = open(&place).await;
        let expected = kept(TOLD, async || told(redis.clone()).await).await;
        agrees(&told(redis.clone()).await, &expected);
        goes_on(redis).await;
        place.clear().await;
    });
}

#[test]
fn no_damage_of_any_key_ends_a_node() {
    let Some(place) = Kind::One.place() else { return };
    runtime().block_on(async {
        load(&place).await;
        let redis = open(&place).await;
        let mut raw = place.raw().await.remove(0);
        survives(&redis, &keys(&place), async |words| {
            // A score may be none any more.
            drop(raw.req_packed_command(&command(&words)).await);
        })
        .await;
        place.clear().await;
    });
}

/// A family of keys that is new has to be in the fixture of its version.
#[test]
fn the_fixture_has_each_family_of_keys() {
    let source = include_str!("../../src/keys.rs");
    let families: Vec<&str> = source
        .split("format!(\"{}:")
        .skip(1)
        .filter_map(|rest| rest.split([':', '"']).next())
        .filter(|family| *family != "notifications")
        .collect();
    assert!(families.len() > 15, "{families:?}");
    let keys = std::fs::read_to_string("tests/it/upgrade/keys.jsonl").unwrap();
    for family in families {
        // The claims of a node by a query are forgotten with the node.
        assert!(family == "claimed" || keys.contains(&format!("{{p}}:{family}")), "{family}");
    }
}

async fn load(place: &Place) {
    let mut raw = place.raw().await.remove(0);
    for line in keys(place).lines() {
        raw.req_packed_command(&command(&words(line))).await.unwrap();
    }
}

fn keys(place: &Place) -> String {
    let text = std::fs::read_to_string("tests/it/upgrade/keys.jsonl").unwrap();
    text.replace("{p}", &format!("{{{}}}", place.prefix))
}

fn command(words: &[Vec<u8>]) -> redis::Cmd {
    let mut command = redis::cmd(str::from_utf8(&words[0]).unwrap());
    command.arg(&words[1..]);
    command
}

/// The commands that make the keys of a new store, filled.
async fn dump() -> String {
    let place = Kind::One.place().unwrap();
    fill(open(&place).await).await;
    let mut raw = place.raw().await.remove(0);
    let tag = format!("{{{}}}", place.prefix);
    let mut keys: Vec<Vec<u8>> = raw.keys(format!("{tag}:*")).await.unwrap();
    keys.sort();
    let mut text = String::new();
    for key in keys {
        let kind: String = redis::cmd("TYPE").arg(&key).query_async(&mut raw).await.unwrap();
        let (set, get, size) = match &*kind {
            "hash" => ("HSET", &["HGETALL"][..], 2),
            "set" => ("SADD", &["SMEMBERS"][..], 1),
            "zset" => ("ZADD", &["ZRANGE", "0", "-1", "WITHSCORES"][..], 2),
            "string" => ("SET", &["GET"][..], 1),
            other => panic!("a key of the type {other}"),
        };
        let mut command = redis::cmd(get[0]);
        let value = command.arg(&key).arg(&get[1..]).query_async(&mut raw).await.unwrap();
        let parts: Vec<Vec<u8>> = match value {
            redis::Value::BulkString(text) => vec![text],
            value => redis::from_redis_value(value).unwrap(),
        };
        let mut parts: Vec<Vec<&[u8]>> =
            parts.chunks(size).map(|part| part.iter().map(|word| &**word).collect()).collect();
        parts.sort();
        for part in &mut parts {
            if set == "ZADD" {
                part.reverse();
            }
            text += &words_line([set.as_bytes(), &key].into_iter().chain(part.iter().copied()));
        }
    }
    place.clear().await;
    text.replace(&tag, "{p}")
}

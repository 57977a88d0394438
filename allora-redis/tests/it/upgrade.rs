//! Keys as version 1 left them, with records of every kind: this build reads all of them, and goes on.
//!
//! `ALLORA_WRITE_FIXTURE=1` writes them again, and what was said of them then. A line is a command; bytes
//! are the characters of the same numbers.

use crate::stores::{Kind, Place, runtime};
use allora_conformance::{
    differential,
    upgrade::{agrees, copy, fill, goes_on, kept, told},
};
use allora_memory::Memory;
use allora_redis::Redis;
use redis::{AsyncCommands, aio::ConnectionLike};
use std::path::{Path, PathBuf};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/upgrade").join(name)
}

async fn open(place: &Place) -> Redis {
    place.connect(Redis::builder().history(100_000)).await.unwrap()
}

#[test]
fn what_the_first_version_left_is_read_and_goes_on() {
    let Some(place) = Kind::One.place() else { return };
    runtime().block_on(async {
        kept(&file("keys.jsonl"), dump).await;
        load(&place).await;
        let redis = open(&place).await;
        let expected = kept(&file("told.txt"), async || told(redis.clone()).await).await;
        agrees(&told(redis.clone()).await, &expected);
        let memory = Memory::new().with_history(100_000);
        copy(&redis, &memory).await;
        for seed in [1, 2] {
            differential::go_on(seed, &redis, &memory).await;
        }
        place.clear().await;
        load(&place).await;
        goes_on(open(&place).await).await;
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
    let keys = std::fs::read_to_string(file("keys.jsonl")).unwrap();
    for family in families {
        // The claims of a node by a query are forgotten with the node.
        assert!(family == "claimed" || keys.contains(&format!("{{p}}:{family}")), "{family}");
    }
}

async fn load(place: &Place) {
    let text = std::fs::read_to_string(file("keys.jsonl")).unwrap();
    let mut raw = place.raw().await.remove(0);
    for line in text.lines() {
        let words: Vec<String> = serde_json::from_str(line).unwrap();
        let bytes =
            |word: &String| word.chars().map(|c| u8::try_from(c).unwrap()).collect::<Vec<u8>>();
        let key = words[1].replace("{p}", &format!("{{{}}}", place.prefix));
        let mut command = redis::cmd(&words[0]);
        command.arg(key);
        for word in &words[2..] {
            command.arg(bytes(word));
        }
        raw.req_packed_command(&command).await.unwrap();
    }
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
        let (command, mut parts): (&str, Vec<Vec<u8>>) = match &*kind {
            "hash" => {
                ("HSET", redis::cmd("HGETALL").arg(&key).query_async(&mut raw).await.unwrap())
            }
            "set" => ("SADD", raw.smembers(&key).await.unwrap()),
            "zset" => {
                let mut all = redis::cmd("ZRANGE");
                all.arg(&key).arg(0).arg(-1).arg("WITHSCORES");
                ("ZADD", all.query_async(&mut raw).await.unwrap())
            }
            "string" => ("SET", vec![raw.get(&key).await.unwrap()]),
            other => panic!("a key of the type {other}"),
        };
        let size = if kind == "set" || kind == "string" { 1 } else { 2 };
        let mut parts: Vec<&mut [Vec<u8>]> = parts.chunks_mut(size).collect();
        parts.sort();
        for part in parts {
            if kind == "zset" {
                part.reverse();
            }
            let text_of =
                |bytes: &Vec<u8>| bytes.iter().copied().map(char::from).collect::<String>();
            let mut words = vec![command.to_owned(), text_of(&key).replace(&tag, "{p}")];
            words.extend(part.iter().map(text_of));
            text += &serde_json::to_string(&words).unwrap();
            text.push('\n');
        }
    }
    place.clear().await;
    text
}

//! Keys as version 1 left them, with records of every kind: this build reads all of them, and goes on.
//!
//! `ALLORA_WRITE_FIXTURE=1` writes them again, and what was said of them then. A line is a key and its
//! value; bytes are the characters of the same numbers.

use crate::stores::{Single, members, patient, runtime};
use allora_conformance::upgrade::{
    TOLD, agrees, fill, goes_on, kept, survives, told, words, words_line,
};
use allora_etcd::{
    Etcd,
    etcd_client::{Client, DeleteOptions, GetOptions},
};

async fn open(prefix: &str) -> Etcd {
    let builder = patient(Etcd::builder().prefix(prefix).history(100_000));
    builder.connect(members::<Single>().unwrap()).await.unwrap()
}

#[test]
fn what_the_first_version_left_is_read_and_goes_on() {
    let Some(urls) = members::<Single>() else { return };
    runtime().block_on(async {
        let prefix = format!("u{:x}", std::process::id());
        let mut client = Client::connect(&urls, None).await.unwrap();
        let text =
            kept("tests/it/upgrade/keys.jsonl", async || dump(&mut client, &prefix).await).await;
        put(&mut client, &prefix, &text).await;
        let etcd = open(&prefix).await;
        let expected = kept(TOLD, async || told(etcd.clone()).await).await;
        agrees(&told(etcd.clone()).await, &expected);
        goes_on(etcd).await;
        clear(&mut client, &prefix).await;
    });
}

#[test]
fn no_damage_of_any_key_ends_a_node() {
    let Some(urls) = members::<Single>() else { return };
    runtime().block_on(async {
        let prefix = format!("d{:x}", std::process::id());
        let mut client = Client::connect(&urls, None).await.unwrap();
        let keys = std::fs::read_to_string("tests/it/upgrade/keys.jsonl").unwrap();
        put(&mut client, &prefix, &keys).await;
        let etcd = open(&prefix).await;
        survives(&etcd, &keys, async |words| {
            put(&mut client, &prefix, &words_line(words)).await;
        })
        .await;
        clear(&mut client, &prefix).await;
    });
}

/// A family of keys that is new has to be in the fixture of its version.
#[test]
fn the_fixture_has_each_family_of_keys() {
    let source = include_str!("../../src/keys.rs").split("#[cfg(test)]").next().unwrap();
    let families: Vec<&str> = ["of(\"", "under(\""]
        .into_iter()
        .flat_map(|call| source.split(call).skip(1))
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(families.len() > 8, "{families:?}");
    let keys = std::fs::read_to_string("tests/it/upgrade/keys.jsonl").unwrap();
    for family in families {
        // Sessions end with their nodes; no tombstone was removed; a hint is of one process.
        let is_fleeting = ["session/", "min_fence", "page_hint", "notification"].contains(&family);
        assert!(is_fleeting || keys.contains(&format!("[\"{family}")), "{family}");
    }
}

async fn put(client: &mut Client, prefix: &str, lines: &str) {
    for line in lines.lines() {
        let [key, value] = words(line).try_into().unwrap();
        let key = [format!("{prefix}/").as_bytes(), &key].concat();
        client.put(key, value, None).await.unwrap();
    }
}

async fn clear(client: &mut Client, prefix: &str) {
    let all = DeleteOptions::new().with_prefix();
    client.delete(format!("{prefix}/"), Some(all)).await.unwrap();
}

/// The keys of a new store, filled.
async fn dump(client: &mut Client, prefix: &str) -> String {
    fill(open(prefix).await).await;
    let prefix_len = prefix.len() + 1;
    let all = GetOptions::new().with_prefix();
    let all = client.get(format!("{prefix}/"), Some(all)).await.unwrap();
    let lines = all.kvs().iter().map(|kv| (&kv.key()[prefix_len..], kv.value()));
    let kept = lines.filter(|(key, _)| !key.starts_with(b"session/"));
    let text = kept.map(|(key, value)| words_line([key, value])).collect();
    clear(client, prefix).await;
    text
}

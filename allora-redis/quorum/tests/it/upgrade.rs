//! Registers as version 1 left them, with jobs of every kind: this build reads all of them, and goes on.
//!
//! `ALLORA_WRITE_FIXTURE=1` writes them again, and what was said of them then. A line is a field and its value;
//! bytes are the characters of the same numbers.

use super::{clear, init, join, raw, runtime, shared};
use allora_conformance::upgrade::{agrees, fill_jobs, goes_on, kept, told_of, words, words_line};
use std::collections::BTreeMap;

#[test]
fn what_the_first_version_left_is_read_and_goes_on() {
    let urls = shared();
    if urls.is_empty() {
        return;
    }
    runtime().block_on(async {
        let prefix = format!("u{:x}", std::process::id());
        let text = kept("tests/it/upgrade/registers.jsonl", async || dump(&urls, &prefix).await);
        let fields: Vec<Vec<Vec<u8>>> = text.await.lines().map(words).collect();
        init(&urls, &prefix).await.unwrap();
        for url in &urls {
            let mut set = redis::cmd("HSET");
            set.arg(format!("{prefix}:quorum"));
            set.arg(fields.concat());
            let () = set.query_async(&mut raw(url).await.unwrap()).await.unwrap();
        }
        let node = join(&urls, &prefix).await;
        let names = fields.iter().filter_map(|field| field[0].strip_prefix(b"a:"));
        let names: Vec<&str> = names.map(|name| str::from_utf8(name).unwrap()).collect();
        let told = told_of(&node, &names).await;
        agrees(&told, &kept("tests/it/upgrade/told.txt", async || told.clone()).await);
        goes_on(node).await;
        clear(&urls, &prefix).await;
    });
}

/// The registers on the first server of a new quorum, filled.
async fn dump(urls: &[String], prefix: &str) -> String {
    init(urls, prefix).await.unwrap();
    fill_jobs(&join(urls, prefix).await).await;
    let mut get = redis::cmd("HGETALL");
    get.arg(format!("{prefix}:quorum"));
    let fields: BTreeMap<Vec<u8>, Vec<u8>> =
        get.query_async(&mut raw(&urls[0]).await.unwrap()).await.unwrap();
    let is_kept = |field: &[u8]| !field.starts_with(b"m:") || field == b"m:version";
    let registers = fields.iter().filter(|(field, _)| is_kept(field));
    registers.map(|(field, value)| words_line([field, value])).collect()
}

//! What happened to every occurrence, the newest entries of each shard.

use crate::{Redis, hash::ms, store::Store};
use allora_core::{
    Occurrence, Result,
    backend::{History, Outcome, Past},
    time::from_millis,
};
use async_trait::async_trait;
use chrono::DateTime;
use futures::future::try_join_all;

const OP: &str = "past";

/// How many entries are looked at in one call.
const PAGE: usize = 500;

#[async_trait]
impl History for Redis {
    async fn past(
        &self,
        name: Option<&str>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Past>> {
        let store = &*self.store;
        let shards: Vec<u32> = match name {
            Some(name) => vec![store.keys.shard_of(name)],
            None => (0..store.keys.shards).collect(),
        };
        let all = shards.into_iter().map(|shard| store.past_in(shard, name, before, limit));
        let mut all: Vec<Past> = try_join_all(all).await?.into_iter().flatten().collect();
        all.sort_by(|a, b| (b.fence, &b.name).cmp(&(a.fence, &a.name)));
        all.truncate(limit);
        Ok(all)
    }
}

impl Store {
    async fn past_in(
        &self,
        shard: u32,
        name: Option<&str>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Past>> {
        let keys = self.keys.shard(shard);
        let highest = before.map_or("+inf".to_owned(), |before| format!("({before}"));
        let mut all = Vec::new();
        let mut skipped = 0;
        while all.len() < limit {
            let mut range = redis::cmd("ZREVRANGEBYSCORE");
            range.arg(keys.past()).arg(&highest).arg("-inf").arg("LIMIT").arg(skipped).arg(PAGE);
            let members: Vec<Vec<u8>> =
                self.link.ask(&range).await.map_err(|cause| self.failed(OP, cause))?;
            if members.is_empty() {
                break;
            }
            skipped += members.len();
            let is_asked = |member: &&Vec<u8>| match name {
                None => true,
                Some(name) => split(member).is_some_and(|(_, other)| other == name),
            };
            let members: Vec<&Vec<u8>> = members.iter().filter(is_asked).collect();
            if members.is_empty() {
                continue;
            }
            let mut get = redis::cmd("HMGET");
            get.arg(keys.told()).arg(&members);
            let told: Vec<Option<Vec<u8>>> =
                self.link.ask(&get).await.map_err(|cause| self.failed(OP, cause))?;
            // An entry that cannot be read is left out: it says nothing.
            all.extend(
                members.into_iter().zip(told).filter_map(|(member, told)| past(member, &told?)),
            );
        }
        Ok(all)
    }
}

/// An entry as its place, its score and its text.
pub(crate) fn entry(past: &Past) -> [Vec<u8>; 3] {
    let Past { name, fence, occurrence, last, count, attempt, node, at, outcome, .. } = past;
    let number = |number: Option<String>| number.unwrap_or_default();
    // No name and no id has this separator in it; the error is the last part.
    let text = [
        ms(occurrence.at).to_string(),
        occurrence.trigger.clone().unwrap_or_default(),
        number(last.map(|last| ms(last).to_string())),
        number(count.map(|count| count.to_string())),
        attempt.to_string(),
        node.replace('\0', " "),
        at.timestamp_micros().to_string(),
        outcome.word().to_owned(),
        outcome.error().to_owned(),
    ]
    .join("\0");
    let member = format!("{fence} {name}");
    [member.into_bytes(), fence.to_string().into_bytes(), text.into_bytes()]
}

fn split(member: &[u8]) -> Option<(i64, &str)> {
    let (fence, name) = std::str::from_utf8(member).ok()?.split_once(' ')?;
    Some((fence.parse().ok()?, name))
}

fn past(member: &[u8], text: &[u8]) -> Option<Past> {
    let (fence, name) = split(member)?;
    let mut parts = std::str::from_utf8(text).ok()?.splitn(9, '\0');
    let mut next = || parts.next();
    let number = |text: &str| (!text.is_empty()).then(|| text.parse::<i64>());
    let at = from_millis(next()?.parse().ok()?)?;
    let trigger = Some(next()?).filter(|id| !id.is_empty()).map(str::to_owned);
    let last = number(next()?).transpose().ok()?;
    let count = next()?;
    let count = (!count.is_empty()).then(|| count.parse()).transpose().ok()?;
    let (attempt, node) = (next()?.parse().ok()?, next()?);
    let noted = DateTime::from_timestamp_micros(next()?.parse().ok()?)?;
    let outcome = Outcome::from_word(next()?, next()?)?;
    let last = match last {
        Some(last) => Some(from_millis(last)?),
        None => None,
    };
    let past = Past::new(name, fence, Occurrence { at, trigger }, noted, outcome);
    Some(past.range(last, count).by(node, attempt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_were() {
        let t = |ms| from_millis(ms).unwrap();
        let run = Occurrence { at: t(5), trigger: Some("by hand".into()) };
        let entries = [
            Past::new("a b", 7, t(5).into(), t(6), Outcome::Running).by("node 1", 3),
            Past::new("a", i64::MAX, run, t(6), Outcome::Failed("x\0y\n".into())),
            Past::new("{}", 8, t(0).into(), t(6), Outcome::Missed)
                .range(Some(t(9)), None)
                .by("n", 0),
            Past::new("c", 9, t(0).into(), t(6), Outcome::Skipped)
                .range(Some(t(9)), Some(u64::MAX)),
        ];
        for expected in entries {
            let [member, _, text] = entry(&expected);
            assert_eq!(past(&member, &text), Some(expected));
        }
    }
}

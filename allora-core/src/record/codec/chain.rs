//! The followers and the outbox of a record, in the form of the codec.

use super::{Unreadable, all, ms, time, wrong};
use crate::backend::{Chain, FollowUp, Follower, On};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireChain<'a> {
    /// Job, ends, and the time at which it was noted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    followers: Vec<(Cow<'a, str>, Cow<'a, str>, i64)>,
    /// Job, id, number, and the time of the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    outbox: Vec<(Cow<'a, str>, Cow<'a, str>, i64, i64)>,
    number: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    received: Option<(Cow<'a, str>, i64)>,
}

impl<'a> From<&'a Chain> for WireChain<'a> {
    fn from(chain: &'a Chain) -> Self {
        let follower = |it: &'a Follower| (Cow::from(&it.job), it.on.word().into(), ms(it.since));
        let follow_up =
            |it: &'a FollowUp| (Cow::from(&it.job), Cow::from(&it.id), it.number, ms(it.ended_at));
        Self {
            followers: chain.followers.iter().map(follower).collect(),
            outbox: chain.outbox.iter().map(follow_up).collect(),
            number: chain.number,
            received: chain.received.as_ref().map(|(job, number)| (Cow::from(job), *number)),
        }
    }
}

impl WireChain<'_> {
    pub(super) fn chain(self) -> Result<Chain, Unreadable> {
        let Self { followers, outbox, number, received } = self;
        let on =
            |word: &str| On::from_word(word).ok_or_else(|| wrong(&format!("no end is {word:?}")));
        Ok(Chain {
            followers: all(followers, |(job, word, since)| {
                Ok(Follower::new(job, on(&word)?, time(since)?))
            })?,
            outbox: all(outbox, |(job, id, number, ended_at)| {
                Ok(FollowUp::new(job, id, number, time(ended_at)?))
            })?,
            number,
            received: received.map(|(job, number)| (job.into_owned(), number)),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::time::from_millis;

    pub(in crate::record::codec) fn full() -> Chain {
        let at = from_millis(7).unwrap();
        Chain {
            followers: On::ALL.map(|on| Follower::new("b \"é", on, at)).into(),
            outbox: vec![FollowUp::new("c", "allora:after:1:a/7/x", i64::MAX, at)],
            number: 9,
            received: Some(("z".into(), -1)),
        }
    }
}

//! The due index: a query finds what is due, the earliest first, wherever the low marks are.

use crate::stores::{Single, members, patient, runtime};
use allora_core::{
    Backend, Result, Time,
    backend::{
        Action, Batch, Claim, Completion, Cursor, Due, DueQuery, JobState, NewSchedule, Operation,
        Reply, TimeSource,
    },
    time::{end_of_time, from_millis},
};
use allora_etcd::{
    Etcd,
    etcd_client::{Client, GetOptions},
};
use std::{collections::BTreeMap, time::Duration};

const LEASE: Duration = Duration::from_secs(30);

/// Two stores of one node, which remember different parts of the index at different times; and what
/// there is to be found.
struct Walk {
    stores: [Etcd; 2],
    due: BTreeMap<String, i64>,
    now: i64,
    seed: u64,
}

fn at(ms: i64) -> Time {
    from_millis(ms).unwrap()
}

async fn apply(store: &Etcd, time: TimeSource, name: &str, action: Action<'_>) -> Result<Reply> {
    let operations = [Operation::new(name, action)];
    store.reschedule(Batch::new("n", time, &operations)).await.unwrap().single()
}

async fn find_due(store: &Etcd, query: DueQuery<'_>, time: TimeSource) -> Due {
    store.queries().unwrap().find_due(query.node("n"), time).await.unwrap()
}

impl Walk {
    /// Below `bound`: Knuth's linear congruences, of which the upper bits are good.
    fn below(&mut self, bound: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.seed >> 33) % bound
    }

    /// From some milliseconds up to some years.
    fn some_time(&mut self) -> i64 {
        let digits = self.below(12) as u32;
        self.below(10_u64.pow(digits)) as i64
    }

    fn time(&self) -> TimeSource {
        TimeSource::Store { fallback: at(self.now) }
    }

    async fn apply(&self, store: &Etcd, name: &str, action: Action<'_>) -> Result<Reply> {
        apply(store, self.time(), name, action).await
    }

    async fn turn(&mut self) {
        let store = self.stores[self.below(2) as usize].clone();
        let name = format!("s{}", self.below(40));
        match self.below(8) {
            0 => {
                let first = self.now + self.some_time() - self.some_time();
                let new = NewSchedule::new("mail", "x", Some(at(first).into()));
                if self.apply(&store, &name, Action::Create(new)).await.is_ok() {
                    self.due.entry(name).or_insert(first);
                }
            }
            1 => {
                let deleted = self.apply(&store, &name, Action::Delete).await;
                assert_eq!(deleted.is_ok(), self.due.remove(&name).is_some(), "{name}");
            }
            2 => self.now += self.some_time() / 1_000,
            _ => self.find(&store).await,
        }
    }

    async fn find(&mut self, store: &Etcd) {
        let until = match self.below(8) {
            0 => end_of_time(),
            1 => at(self.now) - chrono::TimeDelta::microseconds(self.some_time()),
            _ => at(self.now) + chrono::TimeDelta::microseconds(1),
        };
        let limit = self.below(20) as usize;
        let query = DueQuery::new(&["mail"], until, limit);
        let found = find_due(store, query, self.time()).await;
        let mut due: Vec<(i64, &str)> = self.due.iter().map(|(name, at)| (*at, &**name)).collect();
        due.sort_unstable();
        let ready = due.iter().take(limit).take_while(|(ms, _)| at(*ms) < until).count();
        let names: Vec<&str> = found.found.iter().map(|state| &*state.name).collect();
        let wanted: Vec<&str> = due[..ready].iter().map(|(_, name)| *name).collect();
        assert_eq!(names, wanted, "before {until}, {limit} at most");
        assert_eq!(found.next_due, due.get(ready).map(|(ms, _)| at(*ms)), "the next");
        let now = Some(at(self.now));
        for state in found.found.iter().filter(|state| state.due_at <= now) {
            self.run(store, state).await;
        }
    }

    async fn run(&mut self, store: &Etcd, state: &JobState) {
        let (claim_id, expected) = (self.below(1 << 30), state.head.clone().unwrap());
        let claim = Claim::at_least_once(claim_id.into(), state.fence, expected, LEASE);
        let reply = self.apply(store, &state.name, Action::Claim(claim)).await.unwrap();
        let Reply::Claimed(claimed) = reply else { panic!("{reply:?}") };
        if self.below(4) == 0 {
            self.due.insert(state.name.clone(), self.now + LEASE.as_millis() as i64);
            return;
        }
        let next = state.next.unwrap().scheduled_at.timestamp_millis() + 1 + self.some_time();
        let then = Cursor::To(Some(at(next).into()));
        let (fence, completion) = (claimed.fence, Completion::Succeeded);
        let complete = Action::Complete { fence, then, completion };
        let reply = self.apply(store, &state.name, complete).await.unwrap();
        assert_eq!(reply, Reply::Accepted);
        self.due.insert(state.name.clone(), next);
    }
}

#[test]
fn due_schedules_are_found_wherever_the_low_marks_stand() {
    runtime().block_on(async {
        let Some(urls) = members::<Single>() else { return };
        let client = Client::connect(&urls, None).await.unwrap();
        for seed in 0..3 {
            let prefix = format!("i{seed}{:x}", std::process::id());
            let builder = patient(Etcd::builder().prefix(&prefix));
            let open = async || builder.clone().connect(urls.clone()).await.unwrap();
            let stores = [open().await, open().await];
            let now = 1_893_456_000_000;
            let mut walk = Walk { stores, due: BTreeMap::new(), now, seed };
            for turn in 0..400 {
                walk.turn().await;
                if turn % 8 == 0 {
                    // It remembers nothing, and raises the low marks when it first finds something.
                    walk.stores[turn / 8 % 2] = open().await;
                }
            }
            let all = GetOptions::new().with_prefix();
            let lows =
                client.kv_client().get(format!("{prefix}/index_low/"), Some(all)).await.unwrap();
            assert_eq!(lows.count(), 2, "of what is due, and of what the node has");
            assert!(lows.kvs().iter().any(|low| low.version() > 10), "raised and lowered");
        }
    });
}

#[test]
fn a_schedule_added_while_a_low_mark_is_raised_is_found() {
    runtime().block_on(async {
        let Some(urls) = members::<Single>() else { return };
        let prefix = format!("j{:x}", std::process::id());
        let builder = patient(Etcd::builder().prefix(&prefix));
        let open = async || builder.clone().connect(urls.clone()).await.unwrap();
        let store = open().await;
        let now = TimeSource::Store { fallback: at(0) };
        let add = async |name: &str, due: i64| {
            let new = NewSchedule::new("mail", "x", Some(at(due).into()));
            apply(&store, now, name, Action::Create(new)).await.unwrap();
        };
        // So many that they are not read at once, the one with schedules first.
        let kinds: Vec<String> = (0..99).map(|i| format!("mail{i}")).collect();
        let kinds: Vec<&str> = kinds.iter().map(|kind| &**kind).chain(["mail"]).collect();
        // A store that is new raises the low marks when it first finds something.
        let found = async |new: Etcd| {
            let found = find_due(&new, DueQuery::new(&kinds, end_of_time(), 9), now).await.found;
            found.into_iter().map(|state| state.name).collect::<Vec<_>>()
        };
        add("last", 1_000).await;
        for round in 0..30 {
            let name = format!("s{round}");
            let new = open().await;
            futures::join!(found(new), add(&name, round));
            // The first look learns where the low mark stands, the second begins there.
            for _ in 0..2 {
                assert_eq!(found(store.clone()).await, [&*name, "last"]);
            }
            apply(&store, now, &name, Action::Delete).await.unwrap();
        }
    });
}

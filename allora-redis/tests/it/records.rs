//! Keys as they really are: garbage, strangers, hostile names, the server's clock.

use crate::{
    server::{IN_MEMORY, Server},
    stores::{Kind, Place, runtime},
};
use allora_core::{
    Backend, Time,
    backend::{
        Act, Answer, Change, Cursor, Deliver, End, Ended, Ending, Find, NewSchedule, Now, Page,
        Plan, Reschedule, Settle, Settled, Take,
    },
    time::from_millis,
};
use allora_redis::Redis;
use redis::AsyncCommands;
use std::time::Duration;

fn at(ms: i64) -> Time {
    from_millis(ms).unwrap()
}

/// Runs a test on a place of its own.
fn on(kind: Kind, test: impl AsyncFnOnce(&Place)) {
    let Some(place) = kind.place() else { return };
    runtime().block_on(async {
        test(&place).await;
        place.clear().await;
    });
}

#[test]
fn a_record_that_cannot_be_read_is_parked_and_in_nobodys_way() {
    on(Kind::One, async |place| {
        let redis = place.open().await;
        let store = redis.schedules().unwrap();
        let now = Now::At(at(5_000));
        let names = ["cut", "good", "newer", "stranger"];
        let new = names.map(|name| NewSchedule::new(name, "mail", "def", Some(at(1_000).into())));
        store.add(&new, now).await.unwrap();
        let mut raw = place.raw().await.remove(0);
        let key = |name: &str| format!("{{{}}}:job:{name}", place.prefix);
        let lines = format!("{{{}}}:lines", place.prefix);
        let () = raw.hset(&lines, "cut", "1 x 5").await.unwrap();
        let () = raw.hset(key("newer"), "cold", "{\"v\":99}").await.unwrap();
        let () = raw.del(key("stranger")).await.unwrap();
        let () = raw.set(key("stranger"), "somebody else's").await.unwrap();
        let find = |limit| {
            let find = Find::new(&["mail"], at(5_000), limit);
            Reschedule::new("n", now, &[]).find(find)
        };
        // They are shown, and then no longer stand before the others.
        let found = redis.reschedule(find(9)).await.unwrap().found;
        assert_eq!(found.iter().filter(|state| state.parked.is_some()).count(), 3, "{found:?}");
        let found = redis.reschedule(find(9)).await.unwrap().found;
        assert_eq!(found.iter().map(|state| state.name.as_str()).collect::<Vec<_>>(), ["good"]);
        let plans = names.map(|name| Plan::new(name, Act::Reap));
        let answers = redis.reschedule(Reschedule::new("n", now, &plans)).await.unwrap().answers;
        for (name, answer) in names.iter().zip(answers) {
            let Answer::State(state) = answer else { panic!("{name}: {answer:?}") };
            assert_eq!(state.parked.is_none(), *name == "good", "{state:?}");
        }
        assert_eq!(store.list(Page::first(9)).await.unwrap().len(), 4);
        for name in ["cut", "newer", "stranger"] {
            let pause = store.modify(name, Change::Pause { note: "" }, now).await.unwrap_err();
            assert_eq!(pause.kind(), allora_core::Kind::Other, "{pause}");
            // An operator gets rid of it.
            store.delete(name, now).await.unwrap();
            let gone = store.get(name).await.unwrap_err();
            assert_eq!(gone.kind(), allora_core::Kind::NotFound);
            let again = NewSchedule::new(name, "mail", "def", Some(at(9_000).into()));
            store.add(&[again], now).await.unwrap().remove(0).unwrap();
        }
        assert_eq!(store.list(Page::first(9)).await.unwrap().len(), 4);
    });
}

#[test]
fn an_entry_of_the_index_that_its_job_does_not_bear_out_is_put_right() {
    on(Kind::One, async |place| {
        let redis = place.open().await;
        let store = redis.schedules().unwrap();
        let now = Now::At(at(5_000));
        let new = NewSchedule::new("a", "mail", "def", Some(at(60_000).into()));
        store.add(&[new], now).await.unwrap().remove(0).unwrap();
        let mut raw = place.raw().await.remove(0);
        let due = format!("{{{}}}:due:mail", place.prefix);
        let () = raw.zadd(&due, "a", 1_000).await.unwrap();
        let () = raw.zadd(&due, "nobody", 1_000).await.unwrap();
        let find = Find::new(&["mail"], at(5_000), 9);
        let request = Reschedule::new("n", now, &[]).find(find);
        redis.reschedule(request).await.unwrap();
        let entries: Vec<(String, i64)> = raw.zrange_withscores(&due, 0, -1).await.unwrap();
        assert_eq!(entries, [("a".to_owned(), 60_000)]);
    });
}

#[test]
fn no_name_or_kind_reaches_beyond_its_own_key() {
    for kind in [Kind::One, Kind::Cluster] {
        on(kind, async |place| {
            let redis = place.open().await;
            let store = redis.schedules().unwrap();
            let now = Now::At(at(5_000));
            let long = "🧾".repeat(50);
            let names = [
                "a",
                "A",
                "{}",
                "{x}",
                "}{",
                "a:b",
                ":names",
                "*",
                "?[a]\\",
                "a b",
                "é",
                "e\u{301}",
                "'; return redis.call('FLUSHALL') --",
                "%s%f$1",
                "👩‍👩‍👧",
                "nil",
                "0",
                &long,
            ];
            for (i, name) in names.iter().enumerate() {
                let due = at(1_000 + i64::try_from(i).unwrap());
                let new =
                    NewSchedule::new(name, name, "def", Some(due.into())).data(name.as_bytes());
                store.add(&[new], now).await.unwrap().remove(0).unwrap();
            }
            let mut listed: Vec<String> = Vec::new();
            for state in store.list(Page::first(99)).await.unwrap() {
                assert_eq!(
                    (state.kind.as_str(), &*state.data),
                    (&*state.name, state.name.as_bytes())
                );
                listed.push(state.name);
            }
            let mut sorted = names.to_vec();
            sorted.sort_unstable();
            assert_eq!(listed, sorted);
            for name in names {
                let kinds = [name];
                let found = Find::new(&kinds, at(5_000), 9);
                let request = Reschedule::new("n", now, &[]).find(found);
                let found = redis.reschedule(request).await.unwrap().found;
                assert_eq!((found.len(), found[0].name.as_str()), (1, name));
            }
        });
    }
}

/// Takes of a job that began at 1 s, one a second.
fn take(claim: u128, fence: i64, seconds: i64) -> Act<'static> {
    let deliver = Deliver::AtLeastOnce { lease: Duration::from_secs(60) };
    Act::Take(Take::new(claim, fence, at(seconds * 1_000).into(), deliver))
}

/// Takes and finishes what is due at this second; answers with the fence.
async fn run(store: &Redis, fence: i64, seconds: i64) -> i64 {
    let now = Now::At(at(seconds * 1_000 + 500));
    let plans = [Plan::new("a", take(seconds as u128, fence, seconds))];
    let answer = store.reschedule(Reschedule::new("n", now, &plans)).await.unwrap();
    let Answer::Taken(taken) = &answer.answers[0] else { panic!("{answer:?}") };
    let then = Cursor::To(Some(at(seconds * 1_000 + 1_000).into()));
    let end = End::Finish { then, outcome: Ended::Ran };
    let endings = [Ending::new("a", taken.fence, end)];
    let settle = store.leases().unwrap().settle(Settle::new("n", now, &endings));
    assert_eq!(settle.await.unwrap(), [Settled::Done]);
    taken.fence
}

#[test]
fn what_a_node_knows_of_a_job_saves_it_a_call_and_when_others_moved_it_does_no_harm() {
    let Some(server) = Server::start(IN_MEMORY) else { return };
    let place = server.place();
    runtime().block_on(async {
        let open = || place.connect(Redis::builder().ephemeral());
        let (one, two) = (open().await.unwrap(), open().await.unwrap());
        let first = Some(at(1_000).into());
        let plans = [Plan::new("a", Act::Register { definition: "d", version: 0, first })];
        let registered = Reschedule::new("n", Now::At(at(500)), &plans);
        let answer = one.reschedule(registered).await.unwrap();
        let Answer::State(state) = &answer.answers[0] else { panic!("{answer:?}") };
        let calls = || {
            let info: String = server.ask(&["INFO", "commandstats"]).unwrap();
            let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
            line.unwrap().split(',').next().unwrap().parse::<u64>().unwrap()
        };
        // So that the server knows the scripts.
        let mut fence = run(&one, state.fence, 1).await;
        // What another has moved is read, and then written.
        for (store, seconds, cost) in [(&one, 2, 2), (&two, 3, 3), (&two, 4, 2), (&one, 5, 3)] {
            let before = calls();
            fence = run(store, fence, seconds).await;
            assert_eq!(calls() - before, cost, "at {seconds} s");
        }
    });
}

#[test]
fn the_servers_clock_decides() {
    on(Kind::One, async |place| {
        let redis = place.open().await;
        // A node whose clock is in 1970 asks.
        let wrong = Now::Store { node: at(1) };
        let now = async || redis.reschedule(Reschedule::new("n", wrong, &[])).await.unwrap().now;
        let first = now().await;
        assert!(first > at(50 * 365 * 86_400_000));
        assert!(now().await >= first);
        let new = NewSchedule::new("a", "k", "d", None);
        let made = redis.schedules().unwrap().add(&[new], wrong).await.unwrap().remove(0);
        assert!(made.unwrap().fence >= first.timestamp_micros());
        for act in [Act::Look, Act::Reap] {
            let plans = [Plan::new("a", act)];
            let answer = redis.reschedule(Reschedule::new("n", wrong, &plans)).await.unwrap();
            assert!(answer.now >= first);
        }
    });
}

#[test]
fn deleted_names_are_forgotten_after_seven_days_and_their_fences_are_not() {
    on(Kind::One, async |place| {
        let redis = place.open().await;
        let store = redis.schedules().unwrap();
        let day = |days: i64| Now::At(at(days * 86_400_000));
        let add = async |name: &str, now| {
            let new = NewSchedule::new(name, "k", "d", None);
            store.add(&[new], now).await.unwrap().remove(0).unwrap()
        };
        let fence = add("a", day(9)).await.fence;
        store.delete("a", day(9)).await.unwrap();
        add("b", day(17)).await;
        // Another deletion clears old tombstones away.
        store.delete("b", day(17)).await.unwrap();
        let mut raw = place.raw().await.remove(0);
        let key = |name: &str| format!("{{{}}}:job:{name}", place.prefix);
        assert!(!raw.exists::<_, bool>(key("a")).await.unwrap());
        let lines = format!("{{{}}}:lines", place.prefix);
        assert_eq!(raw.hkeys::<_, Vec<String>>(lines).await.unwrap(), ["b"]);
        assert!(raw.exists::<_, bool>(key("b")).await.unwrap());
        // By a clock that went back to the beginning.
        assert!(add("a", Now::At(at(0))).await.fence > fence);
    });
}

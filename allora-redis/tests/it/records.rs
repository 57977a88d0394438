//! Keys with garbage, keys of other programs, hostile names, the server's clock.

use crate::{
    server::{IN_MEMORY, ON_DISK, Server},
    stores::{Kind, Place, create, runtime, send},
};
use allora_conformance::environment::patiently;
use allora_core::{
    Backend, ErrorKind, Time,
    backend::{
        Action, Batch, Claim, Completion, Cursor, DueQuery, HistoryQuery, NewSchedule, Operation,
        Page, Reply, Sharing, TimeSource,
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
fn an_unreadable_record_is_shown_and_does_not_stop_others() {
    on(Kind::One, async |place| {
        let redis = place.open().await;
        let store = redis.queries().unwrap();
        let now = TimeSource::Fixed(at(5_000));
        let names = ["cut", "fence", "good", "newer", "stranger"];
        let new = |ms| NewSchedule::new("mail", "def", Some(at(ms).into()));
        for name in names {
            create(&redis, now, name, new(1_000)).await;
        }
        let mut raw = place.raw().await.remove(0);
        let key = |part: &str| format!("{{{}}}:{part}", place.prefix);
        let hot = key("hot");
        let () = raw.hset(&hot, "cut", "1 x 5").await.unwrap();
        let whole: String = raw.hget(&hot, "fence").await.unwrap();
        let mut words: Vec<&str> = whole.split(' ').collect();
        words[5] = "9223372036854775806";
        let () = raw.hset(&hot, "fence", words.join(" ")).await.unwrap();
        let () = raw.hset(key("rare"), "newer", "{\"v\":99}").await.unwrap();
        let () = raw.hset(key("definitions"), "stranger", "another program's").await.unwrap();
        let find = async || {
            let query = DueQuery::new(&["mail"], at(5_000), 9);
            store.find_due(query, now).await.unwrap().found
        };
        // They stay in the index: a newer build may be able to read them.
        for _ in 0..2 {
            let found = find().await;
            let unreadable = found.iter().filter(|state| state.unreadable.is_some()).count();
            assert_eq!((found[0].name.as_str(), unreadable), ("good", 4), "{found:?}");
        }
        let operations = names.map(|name| Operation::new(name, Action::Reap));
        let applied = redis.reschedule(Batch::new("n", now, &operations)).await.unwrap();
        for (name, reply) in names.iter().zip(applied.replies) {
            let state = reply.unwrap().state().unwrap();
            assert_eq!(state.unreadable.is_none(), *name == "good", "{state:?}");
        }
        assert_eq!(store.list(Page::first(9)).await.unwrap().len(), 5);
        for name in ["cut", "fence", "newer", "stranger"] {
            let pause = Operation::new(name, Action::Pause { note: "", until: None });
            let pause = send(&redis, now, pause).await.unwrap_err();
            assert_eq!(pause.kind(), ErrorKind::Other, "{pause}");
            // An operator deletes it.
            let deleted = send(&redis, now, Operation::new(name, Action::Delete)).await.unwrap();
            assert_eq!(deleted, Reply::Deleted);
            let gone = store.get(name).await.unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::NotFound);
            create(&redis, now, name, new(9_000)).await;
        }
        assert_eq!(store.list(Page::first(9)).await.unwrap().len(), 5);
    });
}

#[test]
fn an_index_entry_that_differs_from_its_job_is_repaired() {
    on(Kind::One, async |place| {
        let redis = place.open().await;
        let now = TimeSource::Fixed(at(5_000));
        let new = NewSchedule::new("mail", "def", Some(at(60_000).into()));
        create(&redis, now, "a", new).await;
        let mut raw = place.raw().await.remove(0);
        let due = format!("{{{}}}:due:mail", place.prefix);
        let () = raw.zadd(&due, "a", 1_000).await.unwrap();
        let () = raw.zadd(&due, "nobody", 1_000).await.unwrap();
        let query = DueQuery::new(&["mail"], at(5_000), 9);
        redis.queries().unwrap().find_due(query, now).await.unwrap();
        let entries: Vec<(String, i64)> = raw.zrange_withscores(&due, 0, -1).await.unwrap();
        assert_eq!(entries, [("a".to_owned(), 60_000)]);
    });
}

#[test]
fn no_name_or_kind_reaches_beyond_its_own_key() {
    for kind in [Kind::One, Kind::Cluster] {
        on(kind, async |place| {
            let redis = place.open().await;
            let store = redis.queries().unwrap();
            let now = TimeSource::Fixed(at(5_000));
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
                let new = NewSchedule::new(name, "def", Some(due.into()));
                create(&redis, now, name, new.data(name.as_bytes())).await;
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
                let query = DueQuery::new(&kinds, at(5_000), 9);
                let found = store.find_due(query, now).await.unwrap().found;
                assert_eq!((found.len(), found[0].name.as_str()), (1, name));
            }
        });
    }
}

/// Claims and completes the occurrence of this second; returns the fence.
async fn run(store: &Redis, fence: i64, seconds: i64) -> i64 {
    let now = TimeSource::Fixed(at(seconds * 1_000 + 500));
    let expected = at(seconds * 1_000).into();
    let lease = Duration::from_secs(60);
    let claim = Claim::at_least_once(seconds as u128, fence, expected, lease);
    let claimed = send(store, now, Operation::claim("a", claim)).await.unwrap().claimed().unwrap();
    let then = Cursor::To(Some(at(seconds * 1_000 + 1_000).into()));
    let complete = Operation::complete("a", claimed.fence, then, Completion::Succeeded);
    assert_eq!(send(store, now, complete).await.unwrap(), Reply::Accepted);
    claimed.fence
}

/// The number of times that the server has executed a command.
fn calls(server: &Server, command: &str) -> u64 {
    let info: String = server.ask(&["INFO", "commandstats"]).unwrap();
    let prefix = format!("cmdstat_{command}:calls=");
    let line = info.lines().find_map(|line| line.strip_prefix(&*prefix));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[test]
fn a_cached_record_saves_a_call_and_an_old_one_does_no_harm() {
    let Some(server) = Server::start(IN_MEMORY) else { return };
    let place = server.place();
    runtime().block_on(async {
        let open = || place.connect(Redis::builder().ephemeral());
        let (one, two) = (open().await.unwrap(), open().await.unwrap());
        let first = Some(at(1_000).into());
        let register = Action::Register { definition: "d", version: 0, first };
        let register = Operation::new("a", register);
        let registered = send(&one, TimeSource::Fixed(at(500)), register).await.unwrap();
        let state = registered.state().unwrap();
        let calls = || calls(&server, "evalsha");
        // So that the server knows the scripts.
        let mut fence = run(&one, state.fence, 1).await;
        // A record that another node has changed is read, and then written.
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
        // The clock of the node is in 1970.
        let wrong = TimeSource::Store { fallback: at(1) };
        let now = async || redis.reschedule(Batch::new("n", wrong, &[])).await.unwrap().now;
        let first = now().await;
        assert!(first > at(50 * 365 * 86_400_000));
        assert!(now().await >= first);
        let made = create(&redis, wrong, "a", NewSchedule::new("k", "d", None)).await;
        assert!(made.fence >= first.timestamp_micros());
        for action in [Action::Read, Action::Reap] {
            let operations = [Operation::new("a", action)];
            let applied = redis.reschedule(Batch::new("n", wrong, &operations)).await.unwrap();
            assert!(applied.now >= first);
        }
        let query = DueQuery::new(&["k"], at(1), 1);
        assert!(redis.queries().unwrap().find_due(query, wrong).await.unwrap().now >= first);
    });
}

#[test]
fn tombstones_are_removed_after_seven_days_and_their_fences_stay_used() {
    on(Kind::One, async |place| {
        let redis = place.open().await;
        let day = |days: i64| TimeSource::Fixed(at(days * 86_400_000));
        let add = async |name: &str, now| {
            create(&redis, now, name, NewSchedule::new("k", "d", None)).await
        };
        let delete = async |name: &str, now| {
            let deleted = send(&redis, now, Operation::new(name, Action::Delete)).await;
            assert_eq!(deleted.unwrap(), Reply::Deleted);
        };
        let fence = add("a", day(9)).await.fence;
        delete("a", day(9)).await;
        add("b", day(17)).await;
        delete("b", day(17)).await;
        Backend::prune(&redis, day(17)).await.unwrap();
        let mut raw = place.raw().await.remove(0);
        for part in ["hot", "definitions"] {
            let key = format!("{{{}}}:{part}", place.prefix);
            assert_eq!(raw.hkeys::<_, Vec<String>>(key).await.unwrap(), ["b"], "{part}");
        }
        // By a clock that went back to the beginning.
        assert!(add("a", TimeSource::Fixed(at(0))).await.fence > fence);
    });
}

#[test]
fn a_shard_that_fails_does_not_stop_the_others() {
    let Some(place) = Kind::One.place() else { return };
    let place = Place { shards: 4, ..place };
    runtime().block_on(async {
        let (one, two) = (place.open().await, place.open().await);
        let (then, now) = (TimeSource::Fixed(at(500)), TimeSource::Fixed(at(1_500)));
        let names: Vec<String> = (0..20).map(|i| format!("job-{i}")).collect();
        let register = |name| {
            let first = Some(at(1_000).into());
            Operation::new(name, Action::Register { definition: "d", version: 0, first })
        };
        let registrations: Vec<_> = names.iter().map(|name| register(name.as_str())).collect();
        let applied = one.reschedule(Batch::new("n", then, &registrations)).await.unwrap();
        let states = applied.replies.into_iter().map(|reply| reply.unwrap().state().unwrap());
        let claims = states.zip(&names).map(|(state, name)| {
            let lease = Duration::from_secs(60);
            let claim = Claim::at_least_once(7, state.fence, at(1_000).into(), lease);
            Operation::claim(name.as_str(), claim)
        });
        let claims: Vec<_> = claims.collect();
        let mut raw = place.raw().await.remove(0);
        let state = format!("{{{}:2}}:state", place.prefix);
        let lost = format!("{{{}:2}}:lost", place.prefix);
        let () = raw.rename(&state, &lost).await.unwrap();
        let () = raw.set(&state, "another program's").await.unwrap();
        // With cached records, and without.
        for store in [&one, &two] {
            let applied = store.reschedule(Batch::new("n", now, &claims)).await.unwrap();
            let failed = applied.replies.iter().filter_map(|reply| reply.as_ref().err());
            assert!(failed.clone().all(|error| error.kind() == ErrorKind::Unavailable));
            let failed = failed.count();
            assert!((1..names.len()).contains(&failed), "{failed} failed");
            let claimed = applied.replies.iter().flatten();
            assert!(claimed.clone().all(|reply| matches!(reply, Reply::Claimed(_))));
            assert_eq!(claimed.count(), names.len() - failed);
        }
        let () = raw.rename(&lost, &state).await.unwrap();
        let applied = one.reschedule(Batch::new("n", now, &claims)).await.unwrap();
        assert!(applied.replies.iter().all(|reply| matches!(reply, Ok(Reply::Claimed(_)))));
        place.clear().await;
    });
}

#[test]
fn a_claim_is_not_granted_before_replicas_confirm_it_also_when_it_is_sent_again() {
    let Some(server) = Server::start(IN_MEMORY) else { return };
    let place = server.place();
    runtime().block_on(async {
        let builder = || Redis::builder().ephemeral();
        let direct = place.connect(builder()).await.unwrap();
        let waits = || place.connect(builder().wait_replicas(1));
        let (one, two) = (waits().await.unwrap(), waits().await.unwrap());
        let (then, now) = (TimeSource::Fixed(at(500)), TimeSource::Fixed(at(1_500)));
        let first = Some(at(1_000).into());
        let register = Action::Register { definition: "d", version: 0, first };
        let register = send(&one, then, Operation::new("a", register)).await.unwrap();
        let fence = register.state().unwrap().fence;
        let lease = Duration::from_secs(60);
        let claim = || Claim::at_least_once(7, fence, at(1_000).into(), lease);
        for store in [&one, &one, &two] {
            let refused = send(store, now, Operation::claim("a", claim())).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unavailable);
            assert!(refused.to_string().contains("0 of 1 replicas"), "{refused}");
            assert_eq!(direct.queries().unwrap().get("a").await.unwrap().leases.len(), 1);
        }
        let claimed = send(&direct, now, Operation::claim("a", claim())).await.unwrap();
        let fence = claimed.claimed().unwrap().fence;
        let end = Cursor::To(None);
        let complete = Operation::complete("a", fence, end, Completion::Succeeded);
        assert_eq!(send(&one, now, complete).await.unwrap(), Reply::Accepted, "no claim");
    });
}

#[test]
fn a_claim_that_no_replica_confirms_is_released_before_its_lease_ends() {
    let Some(server) = Server::start(IN_MEMORY) else { return };
    runtime().block_on(async {
        for history in [0, 100] {
            let builder = Redis::builder().prefix(format!("h{history}")).ephemeral();
            let builder = builder.history(history).wait_replicas(1);
            let store = builder.connect(server.url()).await.unwrap();
            let time = |ms| TimeSource::Fixed(at(ms));
            let first = Some(at(1_000).into());
            let register = Action::Register { definition: "d", version: 0, first };
            let register = send(&store, time(500), Operation::new("a", register)).await.unwrap();
            let fence = register.state().unwrap().fence;
            let claim = || {
                let lease = Duration::from_secs(60);
                let then = Cursor::To(Some(at(2_000).into()));
                let start = at(1_000).into();
                let claim = Claim::at_most_once(7, fence, start, then, lease, Sharing::Exclusive);
                Operation::claim("a", claim)
            };
            for (now, leases) in [(1_500, 1), (31_000, 1), (32_000, 0)] {
                let refused = send(&store, time(now), claim()).await.unwrap_err();
                assert!(refused.to_string().contains("0 of 1 replicas"), "{refused}");
                let state = store.queries().unwrap().get("a").await.unwrap();
                assert_eq!((state.leases.len(), now), (leases, now));
            }
            let state = store.queries().unwrap().get("a").await.unwrap();
            assert_eq!(state.head.unwrap().scheduled_at, at(1_000), "the occurrence is due again");
        }
    });
}

#[test]
fn replicas_confirm_the_claims_of_a_batch_once() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let port = server.port.to_string();
    let follow = [ON_DISK, &["--replicaof", "127.0.0.1", &port]].concat();
    let replica = Server::start(&follow).unwrap();
    patiently("it follows", || {
        let info = replica.ask::<String>(&["INFO", "replication"]);
        info.is_ok_and(|info| info.contains("master_link_status:up"))
    });
    let place = server.place();
    runtime().block_on(async {
        let timeout = Duration::from_secs(20);
        let builder = || Redis::builder().wait_replicas(1).timeout(timeout);
        let one = place.connect(builder()).await.unwrap();
        let other = place.connect(builder()).await.unwrap();
        let (then, now) = (TimeSource::Fixed(at(500)), TimeSource::Fixed(at(1_500)));
        let mut fences = Vec::new();
        // The last record is not cached.
        for (store, name) in [(&one, "a"), (&one, "b"), (&one, "c"), (&other, "d")] {
            let first = Some(at(1_000).into());
            let register = Action::Register { definition: "d", version: 0, first };
            let registered = send(store, then, Operation::new(name, register)).await.unwrap();
            fences.push((name, registered.state().unwrap().fence));
        }
        let scripts = || calls(&server, "evalsha") + calls(&server, "eval");
        // All cached: one call. Some not: read and written by one call each.
        for (part, count) in [(&fences[..2], 1), (&fences[2..], 2)] {
            let claims = part.iter().map(|(name, fence)| {
                let lease = Duration::from_secs(60);
                let claim = Claim::at_least_once(7, *fence, at(1_000).into(), lease);
                Operation::claim(name, claim)
            });
            let claims: Vec<_> = claims.collect();
            let before = (scripts(), calls(&server, "wait"));
            let applied = one.reschedule(Batch::new("n", now, &claims)).await.unwrap();
            let is_claimed = |reply: &_| matches!(reply, Ok(Reply::Claimed(_)));
            assert!(applied.replies.iter().all(is_claimed), "{applied:?}");
            let after = (scripts(), calls(&server, "wait"));
            assert_eq!((after.0 - before.0, after.1 - before.1), (count, 1));
        }
    });
}

#[test]
fn a_kind_without_schedules_is_forgotten_and_returns_with_its_next_one() {
    for kind in [Kind::One, Kind::Cluster] {
        let Some(place) = kind.place() else { continue };
        runtime().block_on(async {
            let store = place.open().await;
            let now = TimeSource::Fixed(at(500));
            let new = || NewSchedule::new("mail", "d", Some(at(1_000).into()));
            for name in ["a", "b"] {
                create(&store, now, name, new()).await;
            }
            let kinds = async || store.queries().unwrap().kinds().await.unwrap();
            assert_eq!(kinds().await, ["mail"]);
            for (name, left) in [("a", 1), ("b", 0)] {
                send(&store, now, Operation::new(name, Action::Delete)).await.unwrap();
                assert_eq!(kinds().await.len(), left);
            }
            create(&store, now, "c", new()).await;
            assert_eq!(kinds().await, ["mail"]);
            place.clear().await;
        });
    }
}

#[test]
fn a_lowered_limit_of_the_history_is_reached_by_parts() {
    let Some(server) = Server::start(ON_DISK) else { return };
    runtime().block_on(async {
        let open = async |limit| server.place().connect(Redis::builder().history(limit)).await;
        let store = open(100_000).await.unwrap();
        let time = |ms| TimeSource::Fixed(at(ms));
        let trigger = async |store: &Redis, i: i64, name: &str| {
            let first = Some(at(i).into());
            let define = Action::Register { definition: "d", version: 0, first };
            let registered = send(store, time(i), Operation::new(name, define)).await.unwrap();
            let fence = registered.state().unwrap().fence;
            let claim = Claim::at_least_once(7, fence, at(i).into(), Duration::from_secs(60));
            let claimed = send(store, time(i), Operation::claim(name, claim)).await.unwrap();
            let fence = claimed.claimed().unwrap().fence;
            let then = Cursor::To(Some(at(i + 1).into()));
            let end = Operation::complete(name, fence, then, Completion::Succeeded);
            send(store, time(i), end).await.unwrap();
        };
        // More than one call removes.
        for i in 0..1_200 {
            trigger(&store, 1_000 + i, "job").await;
        }
        let entries = || server.ask::<usize>(&["ZCARD", "{allora}:history"]).unwrap();
        let all = entries();
        assert!(all >= 1_200, "{all} entries");
        let store = open(10).await.unwrap();
        trigger(&store, 2_200, "job").await;
        assert!(entries() > all, "no batch removes any");
        // A call that is dropped leaves the rest to the next one.
        let dropped = tokio::time::timeout(Duration::ZERO, Backend::prune(&store, time(6_000)));
        assert!(dropped.await.is_err());
        Backend::prune(&store, time(6_000)).await.unwrap();
        assert_eq!(entries(), 10);
        assert_eq!(server.ask::<usize>(&["ZCARD", "{allora}:history:job"]).unwrap(), 10);
        let hash = server.ask::<usize>(&["HLEN", "{allora}:entries"]).unwrap();
        assert_eq!(hash, entries());
    });
}

#[test]
fn a_page_of_one_job_reads_only_the_entries_of_that_job() {
    let Some(server) = Server::start(ON_DISK) else { return };
    runtime().block_on(async {
        let store = server.place().connect(Redis::builder().history(100_000)).await.unwrap();
        let entry = |i: usize, name: &str| {
            let member = format!("{i} {name}");
            let zadd = |key: String| server.ask::<()>(&["ZADD", &key, &i.to_string(), &member]);
            zadd("{allora}:history".to_owned()).unwrap();
            zadd(format!("{{allora}}:history:{name}")).unwrap();
        };
        (1..=3).for_each(|i| entry(i, "rare"));
        (4..=3_000).for_each(|i| entry(i, "busy"));
        let before = calls(&server, "zrevrangebyscore");
        let query = HistoryQuery::new(3).name("rare");
        let read = store.history().unwrap().entries(query).await.unwrap();
        assert!(read.is_empty(), "the entries are not there");
        let pages = calls(&server, "zrevrangebyscore") - before;
        assert!(pages <= 4, "{pages} pages of two sets were read for three entries");
    });
}

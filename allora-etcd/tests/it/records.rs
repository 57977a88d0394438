//! Damaged records and index entries: each harms one job, and is shown.

use crate::stores::{Single, members, patient, patiently, runtime};
use allora_core::{
    Backend, ErrorKind, Result, Time,
    backend::{
        Action, Batch, Claim, Completion, Cursor, DeadLetter, Due, DueQuery, Edit,
        ImportedProgress, JobState, NewSchedule, Operation, Page, Reply, TimeSource,
    },
    time::from_millis,
};
use allora_etcd::{Etcd, etcd_client::Client};
use std::time::Duration;

fn at(seconds: i64) -> Time {
    from_millis(1_893_456_000_000 + seconds * 1_000).unwrap()
}

/// The reply to one operation at the time 0.
async fn apply(store: &Etcd, name: &str, action: Action<'_>) -> Result<Reply> {
    let operations = [Operation::new(name, action)];
    let batch = Batch::new("n", TimeSource::Fixed(at(0)), &operations);
    store.reschedule(batch).await.unwrap().single()
}

async fn create(store: &Etcd, name: &str) -> Result<JobState> {
    let new = NewSchedule::new("mail", "x", Some(at(60).into()));
    Ok(apply(store, name, Action::Create(new)).await?.state().unwrap())
}

async fn find_due(store: &Etcd) -> Due {
    let query = DueQuery::new(&["mail"], at(99), 9);
    store.queries().unwrap().find_due(query, TimeSource::Fixed(at(0))).await.unwrap()
}

#[test]
fn a_record_that_cannot_be_read_is_shown_and_harms_no_other() {
    runtime().block_on(async {
        let Some(urls) = members::<Single>() else { return };
        let prefix = format!("d{:x}", std::process::id());
        let builder = patient(Etcd::builder().prefix(&prefix));
        let store = builder.clone().connect(urls.clone()).await.unwrap();
        let created = create(&store, "bad").await.unwrap();
        create(&store, "good").await.unwrap();
        let client = Client::connect(&urls, None).await.unwrap();
        let key = format!("{prefix}/job/bad");
        for damage in [&b""[..], b"{", b"[]", b"{\"v\":99}", b"\xff\xfe"] {
            client.kv_client().put(key.clone(), damage, None).await.unwrap();
            // A store that has it in its cache, and one that does not.
            let other = builder.clone().connect(urls.clone()).await.unwrap();
            for store in [&store, &other] {
                let lease = Duration::from_secs(30);
                let claim = Claim::at_least_once(1, created.fence, at(60).into(), lease);
                let operations = [Operation::claim("bad", claim), Operation::read("good")];
                let batch = Batch::new("n", TimeSource::Fixed(at(60)), &operations);
                let replies = store.reschedule(batch).await.unwrap().replies;
                let [Ok(Reply::State(bad)), Ok(Reply::State(good))] = &replies[..] else {
                    panic!("{replies:?}")
                };
                assert!(bad.unreadable.is_some() && good.unreadable.is_none());
                let release = Action::Release { fence: created.fence };
                assert_eq!(apply(store, "bad", release).await.unwrap(), Reply::LeaseLost);
            }
            let listed = store.queries().unwrap().list(Page::first(9)).await.unwrap();
            assert_eq!(listed.len(), 2);
            assert!(listed[0].unreadable.is_some(), "{:?}", listed[0]);
        }
        let again = create(&store, "bad").await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Other);
        let found = async || {
            let found = find_due(&store).await.found.into_iter();
            found.map(|state| (state.name, state.unreadable.is_some())).collect::<Vec<_>>()
        };
        let good = ("good".to_owned(), false);
        for _ in 0..2 {
            // Another node may be able to read it.
            assert_eq!(found().await, [("bad".to_owned(), true), good.clone()]);
        }
        apply(&store, "bad", Action::Delete).await.unwrap();
        assert!(create(&store, "bad").await.unwrap().incarnation > created.incarnation);
    });
}

#[test]
fn dead_letters_have_a_key_of_their_own_that_claims_do_not_write() {
    runtime().block_on(async {
        let Some(urls) = members::<Single>() else { return };
        let prefix = format!("w{:x}", std::process::id());
        let connect = || patient(Etcd::builder().prefix(&prefix)).connect(urls.clone());
        let store = connect().await.unwrap();
        let client = Client::connect(&urls, None).await.unwrap();
        let letter = |minute: i64| DeadLetter {
            occurrence: at(60 * minute).into(),
            attempts: 3,
            died_at: at(60 * minute),
            error: "x".repeat(1_000),
        };
        let dead: Vec<DeadLetter> = (-20..0).map(letter).collect();
        let mut progress = ImportedProgress::default();
        progress.dead = &dead;
        let new = NewSchedule::new("mail", "x", Some(at(60).into())).progress(progress);
        apply(&store, "job", Action::Create(new)).await.unwrap();
        let read = async |part: &str| {
            let key = format!("{prefix}/{part}/job");
            let reply = client.kv_client().get(key, None).await.unwrap();
            reply.kvs().first().map(|kv| (kv.value().len(), kv.version()))
        };
        assert!(read("cold").await.unwrap().0 > 20_000);
        // A node that has the record in its cache, and one that has not.
        for (store, minute) in [(&store, 1), (&connect().await.unwrap(), 2)] {
            let query = DueQuery::new(&["mail"], at(60 * minute + 1), 9);
            let time = TimeSource::Fixed(at(60 * minute));
            let found = store.queries().unwrap().find_due(query, time).await.unwrap().found;
            assert_eq!((found.len(), found[0].dead.len()), (1, 0), "queries read no dead letters");
            let at_minute = |action| {
                let operations = [Operation::new("job", action)];
                async move {
                    let batch = Batch::new("n", time, &operations);
                    store.reschedule(batch).await.unwrap().single().unwrap()
                }
            };
            let lease = Duration::from_secs(30);
            let claim = Claim::at_least_once(1, found[0].fence, at(60 * minute).into(), lease);
            let claimed = at_minute(Action::Claim(claim)).await;
            assert!(read("job").await.unwrap().0 < 1_000);
            let fence = claimed.claimed().unwrap().fence;
            let cursor = Cursor::To(Some(at(60 * (minute + 1)).into()));
            let completion = Completion::Succeeded;
            let done = Action::Complete { fence, then: cursor, completion };
            assert_eq!(at_minute(done).await, Reply::Accepted);
            assert_eq!(read("cold").await.unwrap().1, 1, "written once");
            let state = store.queries().unwrap().get("job").await.unwrap();
            assert_eq!(state.dead, dead);
        }
        let key = format!("{prefix}/cold/job");
        let value = client.kv_client().get(key.clone(), None).await.unwrap().kvs()[0].clone();
        client.kv_client().put(key.clone(), "{", None).await.unwrap();
        let damaged = connect().await.unwrap().queries().unwrap().get("job").await.unwrap();
        assert!(damaged.unreadable.unwrap().contains("dead letters"));
        client.kv_client().put(key, value.value(), None).await.unwrap();
        for letter in &dead {
            let dismiss = Action::Dismiss { occurrence: &letter.occurrence };
            apply(&store, "job", dismiss).await.unwrap();
        }
        assert_eq!(read("cold").await, None);
    });
}

#[test]
fn an_index_entry_without_a_record_is_removed() {
    runtime().block_on(async {
        let Some(urls) = members::<Single>() else { return };
        let prefix = format!("e{:x}", std::process::id());
        let store = patient(Etcd::builder().prefix(&prefix)).connect(urls.clone()).await.unwrap();
        let client = Client::connect(&urls, None).await.unwrap();
        let key = format!("{prefix}/due/mail\0{:016x}missing", at(0).timestamp_millis());
        client.kv_client().put(key.clone(), "", None).await.unwrap();
        assert_eq!(find_due(&store).await.found, []);
        assert_eq!(client.kv_client().get(key, None).await.unwrap().count(), 0);
    });
}

/// The replies to a batch of two operations.
async fn apply_both(store: &Etcd, operations: [Operation<'_>; 2]) -> [Result<Reply>; 2] {
    let batch = Batch::new("n", TimeSource::Store { fallback: at(60) }, &operations);
    store.reschedule(batch).await.unwrap().replies.try_into().unwrap()
}

#[test]
fn a_record_that_is_too_large_for_etcd_fails_alone_and_says_what_to_do() {
    runtime().block_on(async {
        let Some(urls) = members::<Single>() else { return };
        let prefix = format!("l{:x}", std::process::id());
        let store = patient(Etcd::builder().prefix(&prefix)).connect(urls.clone()).await.unwrap();
        let client = Client::connect(&urls, None).await.unwrap();
        create(&store, "large").await.unwrap();
        // As an import with many long dead letters would be.
        let key = format!("{prefix}/job/large");
        let record = client.kv_client().get(key.clone(), None).await.unwrap();
        let record = String::from_utf8(record.kvs()[0].value().to_vec()).unwrap();
        let record = record.replace("\"x\"", &format!("\"{}\"", "x".repeat(1_200_000)));
        client.kv_client().put(key, record, None).await.unwrap();
        let data = vec![b'x'; 1 << 20];
        let large = apply(&store, "large", Action::Read).await.unwrap().state().unwrap();
        let mut edit = Edit::of(large.generation);
        edit.data = Some(&data);
        let new = NewSchedule::new("mail", "x", Some(at(60).into()));
        let modify = Operation::new("large", Action::Modify(edit));
        let both = [modify, Operation::new("other", Action::Create(new))];
        let [large, other] = apply_both(&store, both).await;
        let error = large.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(
            error.to_string().contains("large") && error.to_string().contains("MiB"),
            "{error}"
        );
        other.unwrap();
    });
}

#[test]
fn a_hostile_fence_harms_no_other_record() {
    runtime().block_on(async {
        let Some(urls) = members::<Single>() else { return };
        let prefix = format!("f{:x}", std::process::id());
        let builder = patient(Etcd::builder().prefix(&prefix)).history(10);
        let store = builder.connect(urls.clone()).await.unwrap();
        let client = Client::connect(&urls, None).await.unwrap();
        let created = create(&store, "bad").await.unwrap();
        let good = create(&store, "good").await.unwrap();
        let key = format!("{prefix}/job/bad");
        let record = client.kv_client().get(key.clone(), None).await.unwrap();
        let record = String::from_utf8(record.kvs()[0].value().to_vec()).unwrap();
        let hostile = record.replace(&created.fence.to_string(), &i64::MAX.to_string());
        assert_ne!(hostile, record);
        client.kv_client().put(key, hostile, None).await.unwrap();
        let lease = Duration::from_secs(30);
        let claim = |id, fence| Claim::at_least_once(id, fence, at(60).into(), lease);
        let claims = [
            Operation::claim("bad", claim(1, i64::MAX)),
            Operation::claim("good", claim(2, good.fence)),
        ];
        let [bad, good] = apply_both(&store, claims).await;
        assert!(bad.is_ok(), "{bad:?}");
        assert!(matches!(good, Ok(Reply::Claimed(_))), "{good:?}");
        apply(&store, "bad", Action::Delete).await.unwrap();
    });
}

#[test]
fn a_kind_is_forgotten_with_its_last_schedule_and_known_again_with_the_next() {
    runtime().block_on(async {
        let Some(urls) = members::<Single>() else { return };
        let prefix = format!("q{:x}", std::process::id());
        let store = patient(Etcd::builder().prefix(&prefix)).connect(urls.clone()).await.unwrap();
        let kinds = async || store.queries().unwrap().kinds().await.unwrap();
        for _ in 0..2 {
            for name in ["a", "b", "c"] {
                create(&store, name).await.unwrap();
            }
            let pause = Action::Pause { note: "", until: None };
            apply(&store, "c", pause).await.unwrap();
            for name in ["a", "b"] {
                apply(&store, name, Action::Delete).await.unwrap();
                assert_eq!(kinds().await, ["mail"], "the paused one is left");
            }
            apply(&store, "c", Action::Delete).await.unwrap();
            patiently("the kind is forgotten", async || kinds().await.is_empty()).await;
        }
    });
}

#[test]
fn pages_of_schedules_show_each_name_once() {
    runtime().block_on(async {
        let Some(urls) = members::<Single>() else { return };
        let prefix = format!("p{:x}", std::process::id());
        let store = patient(Etcd::builder().prefix(&prefix)).connect(urls).await.unwrap();
        let names: Vec<String> = (0..2_000).map(|i| format!("job-{i:06}")).collect();
        for names in names.chunks(500) {
            let create = |name| {
                let new = NewSchedule::new("mail", "x", Some(at(60).into()));
                Operation::new(name, Action::Create(new))
            };
            let operations: Vec<Operation<'_>> = names.iter().map(|name| create(name)).collect();
            let batch = Batch::new("n", TimeSource::Fixed(at(0)), &operations);
            assert!(store.reschedule(batch).await.unwrap().replies.iter().all(Result::is_ok));
        }
        for limit in [100, 33] {
            let (mut listed, mut after) = (Vec::new(), None::<String>);
            loop {
                let page = Page::first(limit);
                let page = after.as_deref().map_or(page, |after| page.after(after));
                let page = store.queries().unwrap().list(page).await.unwrap();
                listed.extend(page.iter().map(|state| state.name.clone()));
                let Some(last) = page.last() else { break };
                after = Some(last.name.clone());
            }
            assert_eq!(listed, names);
        }
    });
}

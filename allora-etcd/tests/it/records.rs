//! Records that somebody has damaged: they harm one job, and are told.

use crate::stores::{Single, members, or_skip, patient, runtime};
use allora_core::{
    Backend, Kind, Time,
    backend::{
        Act, Answer, Deliver, End, Ending, Find, NewSchedule, Now, Page, Plan, Reschedule, Settle,
        Settled, Take,
    },
    time::from_millis,
};
use allora_etcd::{Etcd, etcd_client::Client};
use std::time::Duration;

fn at(seconds: i64) -> Time {
    from_millis(1_893_456_000_000 + seconds * 1_000).unwrap()
}

#[test]
fn a_record_that_cannot_be_read_is_parked_and_harms_no_other() {
    runtime().block_on(async {
        let Some(urls) = or_skip(members::<Single>()) else { return };
        let prefix = format!("d{:x}", std::process::id());
        let builder = patient(Etcd::builder().prefix(&prefix));
        let store = builder.clone().connect(urls.clone()).await.unwrap();
        let schedules = store.schedules().unwrap();
        let now = Now::At(at(0));
        let first = Some(at(60).into());
        let new = ["bad", "good"].map(|name| NewSchedule::new(name, "mail", "x", first));
        let added = schedules.add(&new, now).await.unwrap();
        let seen = added.into_iter().next().unwrap().unwrap();
        let client = Client::connect(&urls, None).await.unwrap();
        let key = format!("{prefix}/job/bad");
        for damage in [&b""[..], b"{", b"[]", b"{\"v\":99}", b"\xff\xfe"] {
            client.kv_client().put(key.clone(), damage, None).await.unwrap();
            // A node that remembers it, and one that does not.
            let other = builder.clone().connect(urls.clone()).await.unwrap();
            for node in [&store, &other] {
                let deliver = Deliver::AtLeastOnce { lease: Duration::from_secs(30) };
                let take = Take::new(1, seen.fence, at(60).into(), deliver);
                let plans = [Plan::new("bad", Act::Take(take)), Plan::new("good", Act::Look)];
                let request = Reschedule::new("n", Now::At(at(60)), &plans);
                let answers = node.reschedule(request).await.unwrap().answers;
                let [Answer::State(bad), Answer::State(good)] = &answers[..] else {
                    panic!("{answers:?}")
                };
                assert!(bad.parked.is_some() && good.parked.is_none());
                let ending = [Ending::new("bad", seen.fence, End::Release)];
                let settle = Settle::new("n", now, &ending);
                assert_eq!(node.leases().unwrap().settle(settle).await.unwrap(), [Settled::Lost]);
            }
            let listed = schedules.list(Page::first(9)).await.unwrap();
            assert_eq!(listed.len(), 2);
            assert!(listed[0].parked.is_some(), "{:?}", listed[0]);
        }
        let again = schedules.add(&new[..1], now).await.unwrap().remove(0).unwrap_err();
        assert_eq!(again.kind(), Kind::Other);
        let found = async || {
            let find = Find::new(&["mail"], at(99), 9);
            let request = Reschedule::new("n", now, &[]).find(find);
            let found = store.reschedule(request).await.unwrap().found;
            found.into_iter().map(|state| (state.name, state.parked.is_some())).collect::<Vec<_>>()
        };
        let good = ("good".to_owned(), false);
        assert_eq!(found().await, [("bad".to_owned(), true), good.clone()], "told");
        assert_eq!(found().await, [good], "once");
        schedules.delete("bad", now).await.unwrap();
        let new = schedules.add(&new[..1], now).await.unwrap().remove(0).unwrap();
        assert!(new.incarnation > seen.incarnation);
    });
}

#[test]
fn an_entry_of_the_index_without_a_record_goes_away() {
    runtime().block_on(async {
        let Some(urls) = or_skip(members::<Single>()) else { return };
        let prefix = format!("e{:x}", std::process::id());
        let store = patient(Etcd::builder().prefix(&prefix)).connect(urls.clone()).await.unwrap();
        let client = Client::connect(&urls, None).await.unwrap();
        let key = format!("{prefix}/due/mail\0{:016x}nobody", at(0).timestamp_millis());
        client.kv_client().put(key.clone(), "", None).await.unwrap();
        let find = Find::new(&["mail"], at(99), 9);
        let request = Reschedule::new("n", Now::At(at(0)), &[]).find(find);
        assert_eq!(store.reschedule(request).await.unwrap().found, []);
        assert_eq!(client.kv_client().get(key, None).await.unwrap().count(), 0);
    });
}

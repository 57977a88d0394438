//! Pages of the list of schedules.

use crate::{
    faults::members::Members,
    stores::{patient, patiently, runtime},
};
use allora_core::{
    Backend, Time,
    backend::{Action, Batch, NewSchedule, Operation, Page, TimeSource},
    time::from_millis,
};
use allora_etcd::{Etcd, etcd_client::DeleteOptions};

fn at(seconds: i64) -> Time {
    from_millis(1_893_456_000_000 + seconds * 1_000).unwrap()
}

async fn open(members: &Members) -> Etcd {
    patient(Etcd::builder()).connect(members.urls()).await.unwrap()
}

async fn create(store: &Etcd, names: &[String]) {
    let new = || Action::Create(NewSchedule::new("mail", "x", Some(at(0).into())));
    let operations: Vec<Operation<'_>> =
        names.iter().map(|name| Operation::new(name, new())).collect();
    let batch = Batch::new("n", TimeSource::Store { fallback: at(0) }, &operations);
    let created = store.reschedule(batch).await.unwrap();
    assert!(created.replies.iter().all(Result::is_ok));
}

/// The first page of a store that has just connected, and the number of its exchanges.
async fn first_page(members: &Members, prefix: &str) -> (Vec<String>, u64) {
    let store = open(members).await;
    let before = members.transactions(0);
    let page = store.queries().unwrap().list(Page::first(100).prefix(prefix)).await.unwrap();
    (page.into_iter().map(|state| state.name).collect(), members.transactions(0) - before)
}

#[test]
fn the_first_page_of_a_process_ends_where_another_process_has_found_its_end() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let names: Vec<String> = (0..2_000).map(|i| format!("job {i:06}")).collect();
        create(&open(&members).await, &names).await;
        let mut client = members.client(0).await;
        assert_eq!(first_page(&members, "").await.0, names[..100]);
        let mut hint = None;
        patiently("the guess is stored", async || {
            hint = client.get("allora/page_hint", None).await.unwrap().kvs().first().cloned();
            hint.is_some()
        })
        .await;
        let hint = hint.unwrap();
        // The names, and twice their records; nothing is stored again.
        assert_eq!(first_page(&members, "").await, (names[..100].to_vec(), 3));
        assert_eq!(first_page(&members, "job 0012").await.0, names[1_200..1_300]);
        let same = client.get("allora/page_hint", None).await.unwrap();
        assert_eq!(same.kvs()[0].mod_revision(), hint.mod_revision());
        // A guess that is wrong costs exchanges, and hides nothing.
        for wrong in [vec![], b"x".to_vec(), vec![0; 96], vec![1; 96], vec![0xff; 96], {
            let mut narrow = hint.value().to_vec();
            narrow[48..].fill(0);
            narrow[95] = 1;
            narrow
        }] {
            client.put("allora/page_hint", wrong, None).await.unwrap();
            assert_eq!(first_page(&members, "").await.0, names[..100]);
        }
        client.put("allora/page_hint", hint.value(), None).await.unwrap();
        for first in ["job/0000", "job/0001"] {
            let first = format!("allora/{}", first.replace('/', "/job "));
            client.delete(first, Some(DeleteOptions::new().with_prefix())).await.unwrap();
        }
        assert_eq!(first_page(&members, "").await.0, names[200..300]);
    });
}

//! Jobs with equal records: a script makes, sends and reads such records once.

use crate::stores::{Kind, runtime};
use allora_core::{
    Backend, Time,
    backend::{Action, Batch, ClaimDue, Completion, Cursor, NewSchedule, Operation, TimeSource},
    time::from_millis,
};
use allora_redis::Redis;
use std::collections::HashMap;

const DAY: i64 = 86_400_000;

fn at(ms: i64) -> Time {
    from_millis(ms).unwrap()
}

async fn send_all(store: &Redis, now: i64, operations: &[Operation<'_>]) {
    let batch = Batch::new("a node of the test", TimeSource::Fixed(at(now)), operations);
    let replies = store.reschedule(batch).await.unwrap().replies;
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
}

#[test]
fn each_job_of_a_batch_has_its_own_claim_and_its_own_end() {
    let Some(place) = Kind::One.place() else { return };
    runtime().block_on(async {
        let (store, other) = (place.open().await, place.open().await);
        let queries = store.queries().unwrap();
        assert!(queries.claims_due());
        // Written by one request: only their definitions and kinds differ.
        let names: Vec<String> = (0..24).map(|i| format!("job {i:02}")).collect();
        let new = |i: usize| {
            let definition = ["every 1d; at-least-once 60s", "every 1d; at-least-once 30s"][i % 2];
            let kind = ["mail", "sms"][i / 12];
            NewSchedule::new(kind, definition, Some(at(DAY).into()))
                .data([&b"one"[..], b"two"][i / 6 % 2])
        };
        let create = names.iter().enumerate();
        let create = create.map(|(i, name)| Operation::new(name, Action::Create(new(i))));
        send_all(&store, 1_000, &create.collect::<Vec<_>>()).await;
        for day in 1..=3 {
            let now = day * DAY + 500;
            let query = ClaimDue::new("a node of the test", 7, &["mail", "sms"], 99);
            let due = queries.claim_due(query, TimeSource::Fixed(at(now))).await.unwrap();
            assert_eq!(due.claimed.len(), names.len());
            let mut fences = HashMap::new();
            for (state, claimed) in &due.claimed {
                let i: usize = state.name[4..].parse().unwrap();
                assert_eq!((&*state.kind, &*state.data), (new(i).kind, new(i).data));
                let lease = [60_000, 30_000][i % 2];
                assert_eq!(claimed.until, at(now + lease));
                assert_eq!(*state, queries.get(&state.name).await.unwrap());
                fences.insert(i, claimed.fence);
            }
            // The second query of the same claims finds them again.
            let query = query.repeated();
            let due = queries.claim_due(query, TimeSource::Fixed(at(now + 1))).await.unwrap();
            assert_eq!(due.claimed.len(), names.len());
            let then = Cursor::To(Some(at((day + 1) * DAY).into()));
            let complete = names.iter().enumerate().map(|(i, name)| {
                Operation::complete(name, fences[&i], then, Completion::Succeeded)
            });
            let complete: Vec<_> = complete.collect();
            // A record that the other store has written first does not match the cached one.
            let part = day as usize;
            send_all(&other, now + 5, &complete[3 * part..5 * part + 1]).await;
            send_all(&store, now + 9, &complete).await;
            for (i, name) in names.iter().enumerate() {
                let state = queries.get(name).await.unwrap();
                assert_eq!((state.counters.succeeded, state.leases.len()), (day as u64, 0));
                assert_eq!((&*state.kind, state.fence), (new(i).kind, fences[&i]));
            }
        }
        place.clear().await;
    });
}

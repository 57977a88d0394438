//! Rows and sessions as they really are: garbage, clocks, time-outs, hostile names.

use crate::{
    connect::run,
    stores::{Place, on_every_database},
};
use allora_core::{
    Backend, Kind, Time,
    backend::{
        Act, Answer, Beside, Change, Cursor, Deliver, End, Ended, Ending, Find, Mark, NewSchedule,
        Now, Page, Plan, Reschedule, Settle, Settled, Take,
    },
    time::{end_of_time, from_millis},
};
use std::time::Duration;

on_every_database! {
    a_row_that_cannot_be_read_is_parked_and_in_nobodys_way
    names_and_payloads_survive_exactly
    the_databases_clock_decides
    a_take_by_the_databases_clock_answers_with_the_fence_that_ends_it
    deleted_names_are_forgotten_after_seven_days_and_their_fences_are_not
}

fn at(ms: i64) -> Time {
    from_millis(ms).unwrap()
}

async fn a_row_that_cannot_be_read_is_parked_and_in_nobodys_way(place: Place) {
    let sql = place.open().await;
    let store = sql.schedules().unwrap();
    let now = Now::At(at(5_000));
    for name in ["bad", "good"] {
        let new = NewSchedule::new(name, "mail", "def", Some(at(1_000).into()));
        store.add(&[new], now).await.unwrap().remove(0).unwrap();
    }
    let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    let (more, bad) = (hex("{\"v\":9}"), hex("bad"));
    let update = if place.url.starts_with("postgres") {
        format!("UPDATE {{p}}_job SET more = '\\x{more}', notice_at = 1 WHERE name = '\\x{bad}'")
    } else {
        format!("UPDATE {{p}}_job SET more = X'{more}', notice_at = 1 WHERE name = X'{bad}'")
    };
    run(&place, &update).await.unwrap();
    let find = |limit| Reschedule::new("n", now, &[]).find(Find::new(&["mail"], at(5_000), limit));
    // It is shown, and then no longer stands before the others.
    let found = sql.reschedule(find(1)).await.unwrap().found;
    assert!(found[0].parked.as_ref().unwrap().contains("version 9"), "{found:?}");
    let found = sql.reschedule(find(1)).await.unwrap().found;
    assert_eq!((found[0].name.as_str(), &found[0].parked), ("good", &None));
    let plans = [Plan::new("bad", Act::Reap), Plan::new("good", Act::Look)];
    let answer = sql.reschedule(Reschedule::new("n", now, &plans)).await.unwrap();
    assert!(matches!(&answer.answers[0], Answer::State(state) if state.parked.is_some()));
    assert!(matches!(&answer.answers[1], Answer::State(state) if state.parked.is_none()));
    assert_eq!(store.list(Page::first(9)).await.unwrap().len(), 2);
    let pause = Change::Pause { note: "" };
    assert_eq!(store.modify("bad", pause, now).await.unwrap_err().kind(), Kind::Other);
    // An operator gets rid of it, and its fences still grow.
    let fence = store.get("good").await.unwrap().fence;
    store.delete("bad", now).await.unwrap();
    assert_eq!(store.get("bad").await.unwrap_err().kind(), Kind::NotFound);
    let state = store
        .add(&[NewSchedule::new("bad", "mail", "def", None)], now)
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    assert!(state.fence > fence);
}

async fn names_and_payloads_survive_exactly(place: Place) {
    let sql = place.open().await;
    let store = sql.schedules().unwrap();
    let now = Now::At(at(5_000));
    let long = "🧾".repeat(50);
    let names =
        ["a", "A", "é", "e\u{301}", "ß", "ss", "'; DROP TABLE x; --", "a:b:c", "%s$1?", &long];
    let payloads = [vec![], vec![0], vec![0xFF; 3], (0..=255).cycle().take(1 << 20).collect()];
    for (i, name) in names.iter().enumerate() {
        let payload: &[u8] = &payloads[i % payloads.len()];
        let new = NewSchedule::new(name, name, "d\0'\"", Some(end_of_time().into())).data(payload);
        store.add(&[new], now).await.unwrap().remove(0).unwrap();
        let state = store.get(name).await.unwrap();
        assert!(state.data == payload && state.kind == *name && state.name == *name, "{name}");
        assert_eq!(
            (state.definition.as_str(), state.cursor),
            ("d\0'\"", Some(end_of_time().into()))
        );
    }
    assert_eq!(store.list(Page::first(99)).await.unwrap().len(), names.len());
}

async fn the_databases_clock_decides(place: Place) {
    let sql = place.open().await;
    // A node whose clock is in 1970 asks; the database and this test are on one machine.
    let wrong = Now::Store { node: at(1) };
    let now = async || sql.reschedule(Reschedule::new("n", wrong, &[])).await.unwrap().now;
    let (before, first) = (Time::from(std::time::UNIX_EPOCH), now().await);
    assert!(first > before + std::time::Duration::from_secs(50 * 365 * 86_400));
    assert!(now().await >= first);
    let made = sql.schedules().unwrap().add(&[NewSchedule::new("a", "k", "d", None)], wrong).await;
    assert!(made.unwrap().remove(0).unwrap().fence >= first.timestamp_micros());
    // Also where rows are read, and locked.
    for act in [Act::Look, Act::Reap] {
        let plans = [Plan::new("a", act)];
        let answer = sql.reschedule(Reschedule::new("n", wrong, &plans)).await.unwrap();
        assert!(answer.now >= first);
    }
}

async fn a_take_by_the_databases_clock_answers_with_the_fence_that_ends_it(place: Place) {
    let sql = place.open().await;
    let now = Now::Store { node: at(1) };
    let lease = Duration::from_secs(60);
    let mark = Mark { lasts: lease, beside: Beside::Others };
    let (first, second) = (at(1_000), Cursor::To(Some(at(2_000).into())));
    let ways = [
        (Deliver::AtLeastOnce { lease }, second),
        (Deliver::AtMostOnce { then: second, mark: Some(mark) }, Cursor::Keep),
    ];
    // Many in one batch: a clock that is read twice is seldom read alike for all of them.
    let names: Vec<String> = (0..100).map(|i| format!("job-{i}")).collect();
    for (claim, (deliver, then)) in ways.into_iter().enumerate() {
        let mut plans = Vec::new();
        for name in &names {
            let name = format!("{name}-{claim}");
            let new = NewSchedule::new(&name, "k", "d", Some(first.into()));
            let fence =
                sql.schedules().unwrap().add(&[new], now).await.unwrap().remove(0).unwrap().fence;
            plans.push((name, fence));
        }
        let take = |fence: &i64| Act::Take(Take::new(claim as u128, *fence, first.into(), deliver));
        let takes: Vec<_> =
            plans.iter().map(|(name, fence)| Plan::new(name, take(fence))).collect();
        let answers = sql.reschedule(Reschedule::new("n", now, &takes)).await.unwrap().answers;
        let end = End::Finish { then, outcome: Ended::Ran };
        let mut endings = Vec::new();
        for ((name, _), answer) in plans.iter().zip(&answers) {
            let Answer::Taken(taken) = answer else { panic!("{name} was not won: {answer:?}") };
            endings.push(Ending::new(name, taken.fence, end.clone()));
        }
        let settled = sql.leases().unwrap().settle(Settle::new("n", now, &endings)).await.unwrap();
        assert_eq!(settled, vec![Settled::Done; names.len()]);
    }
}

async fn deleted_names_are_forgotten_after_seven_days_and_their_fences_are_not(place: Place) {
    let sql = place.open().await;
    let store = sql.schedules().unwrap();
    let day = 86_400_000;
    let new = |name| NewSchedule::new(name, "k", "d", None);
    store.add(&[new("a")], Now::At(at(9 * day))).await.unwrap().remove(0).unwrap();
    let fence = store.get("a").await.unwrap().fence;
    store.delete("a", Now::At(at(9 * day))).await.unwrap();
    let look = async |name, when| {
        let plans = [Plan::new(name, Act::Look)];
        let now = Now::At(at(when));
        sql.reschedule(Reschedule::new("n", now, &plans)).await.unwrap().answers.remove(0)
    };
    assert_eq!(look("a", 10 * day).await, Answer::Gone);
    assert_eq!(look("a", 16 * day).await, Answer::Absent);
    // Another deletion clears old tombstones away.
    store.add(&[new("b")], Now::At(at(17 * day))).await.unwrap().remove(0).unwrap();
    store.delete("b", Now::At(at(17 * day))).await.unwrap();
    assert_eq!(look("a", 10 * day).await, Answer::Absent);
    // By a clock that went back, the name still gets a higher fence.
    assert!(
        store.add(&[new("a")], Now::At(at(day))).await.unwrap().remove(0).unwrap().fence > fence
    );
}

//! Servers that take only so many bytes at once.

use super::server::Server;
use crate::{
    calls::{STORE, replies},
    stores::{Db, Place, on_every_database, patiently_opened, runtime},
};
use allora_core::{
    Backend, Occurrence,
    backend::{
        Action, Claim, Completion, Cursor, DeadLetter, DueQuery, ImportedProgress, NewSchedule,
        NextRun, Operation,
    },
    time::{end_of_time, from_millis},
};
use allora_sql::Sql;
use std::time::Duration;

on_every_database! {
    schedules_with_many_dead_letters_run
}

async fn schedules_with_many_dead_letters_run(place: Place) {
    run(&place.builder().history(100_000).connect(&place.url).await.unwrap()).await;
}

/// Creates 400 schedules with 32 dead letters of 1 kB each, finds them, claims and completes their
/// next occurrences, in one batch each.
async fn run(sql: &Sql) {
    let at = |ms: i64| from_millis(ms).unwrap();
    let letter = |i: i64| DeadLetter {
        occurrence: Occurrence::from(at(i)),
        attempts: 3,
        died_at: at(i),
        error: "e".repeat(1_000),
    };
    let letters: Vec<DeadLetter> = (1..=32).map(letter).collect();
    let mut progress = ImportedProgress::default();
    progress.dead = &letters;
    let first: NextRun = at(1_000).into();
    let names: Vec<String> = (0..400).map(|i| format!("job {i}")).collect();
    let new = NewSchedule::new("k", "d", Some(first)).progress(progress);
    let all = |action: Action<'static>| -> Vec<Operation<'_>> {
        names.iter().map(|name| Operation::new(name, action.clone())).collect()
    };
    let create: Vec<_> =
        names.iter().map(|name| Operation::new(name, Action::Create(new))).collect();
    replies(sql, STORE, &create).await;

    let query = DueQuery::new(&["k"], at(2_000), 400);
    let due = sql.queries().unwrap().find_due(query, STORE).await.unwrap();
    assert_eq!((due.found.len(), &due.found[0].dead[..]), (400, &[][..]));
    let claims = due.found.iter().zip(1..).map(|(state, id)| {
        let lease = Duration::from_secs(600);
        let claim = Claim::at_least_once(id, state.fence, first.scheduled_at.into(), lease);
        Operation::claim(&state.name, claim)
    });
    let claims: Vec<_> = claims.collect();
    let claimed = replies(sql, STORE, &claims).await;
    let then = Cursor::To(Some(end_of_time().into()));
    let ends = due.found.iter().zip(claimed).map(|(state, reply)| {
        let fence = reply.claimed().unwrap().fence;
        Operation::complete(&state.name, fence, then, Completion::Succeeded)
    });
    let ends: Vec<_> = ends.collect();
    for reply in replies(sql, STORE, &ends).await {
        assert!(reply.is_accepted(), "{reply:?}");
    }
    for reply in replies(sql, STORE, &all(Action::Reap)).await {
        let state = reply.state().unwrap();
        assert_eq!((state.counters.succeeded, state.dead.len()), (1, 32));
    }
}

#[test]
fn schedules_with_many_dead_letters_run_with_packets_of_a_megabyte() {
    let Some(mut server) = Server::start(Db::MySql) else { return };
    server.restart(&["--max-allowed-packet=1M"]);
    runtime().block_on(async {
        let place = server.place();
        let sql = patiently_opened(place.builder().history(100_000), &place.url).await;
        run(&sql).await;
        sql.close().await;
    });
}

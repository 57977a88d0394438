//! Rows and sessions as they really are: garbage, clocks, time-outs, hostile names.

use crate::{
    calls::{STORE, change, create, delete, get, replies, send},
    connect::run,
    stores::{Place, on_every_database},
};
use allora_core::{
    Backend, ErrorKind, Time,
    backend::{
        Action, Batch, Claim, Completion, Cursor, DeadLetter, DueQuery, HistoryQuery,
        ImportedProgress, NewSchedule, OnExpiry, Operation, Page, Reply, Sharing, TimeSource,
    },
    time::{end_of_time, from_millis},
};
use allora_sql::Sql;
use std::time::Duration;

on_every_database! {
    a_row_that_cannot_be_read_stays_visible_beside_the_others
    thousands_of_kinds_are_found
    leased_records_hide_no_due_ones
    hostile_values_concern_no_other_record
    large_records_are_found_a_few_at_a_time
    history_that_is_too_old_is_removed_by_pruning
    names_and_payloads_survive_exactly
    the_databases_clock_decides
    a_claim_by_the_databases_clock_returns_the_fence_that_ends_it
    deleted_names_are_forgotten_after_seven_days_and_their_fences_are_not
    a_batch_of_large_data_is_written_in_parts
}

fn at(ms: i64) -> Time {
    from_millis(ms).unwrap()
}

async fn a_row_that_cannot_be_read_stays_visible_beside_the_others(place: Place) {
    let sql = place.open().await;
    let queries = sql.queries().unwrap();
    let now = TimeSource::Fixed(at(5_000));
    for name in ["bad", "good"] {
        create(&sql, name, NewSchedule::new("mail", "def", Some(at(1_000).into())), now)
            .await
            .unwrap();
    }
    let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    let more = hex("{\"v\":9}");
    let more = match place.url.starts_with("postgres") {
        true => format!("'\\x{more}'"),
        false => format!("X'{more}'"),
    };
    spoil(&place, "bad", &format!("rare.more = {more}, state.index_at = 1, state.wake_at = 1"))
        .await;
    // Each search shows it: another node may be able to read it.
    for _ in 0..2 {
        let query = DueQuery::new(&["mail"], at(5_000), 2);
        let found = queries.find_due(query, now).await.unwrap().found;
        let names: Vec<&str> = found.iter().map(|state| &*state.name).collect();
        assert_eq!(names, ["bad", "good"]);
        let reason = found[0].unreadable.as_ref().unwrap();
        assert!(reason.contains("version 9") && found[1].unreadable.is_none(), "{reason}");
    }
    assert_eq!(queries.kinds().await.unwrap(), ["mail"]);

    let operations = [Operation::new("bad", Action::Reap), Operation::read("good")];
    let replies = replies(&sql, now, &operations).await;
    assert!(matches!(&replies[0], Reply::State(state) if state.unreadable.is_some()));
    assert!(matches!(&replies[1], Reply::State(state) if state.unreadable.is_none()));
    assert_eq!(queries.list(Page::first(9)).await.unwrap().len(), 2);
    let pause = Action::Pause { note: "", until: None };
    assert_eq!(change(&sql, "bad", pause, now).await.unwrap_err().kind(), ErrorKind::Other);
    // An operator deletes it, and its fences still grow.
    let fence = get(&sql, "good").await.unwrap().fence;
    delete(&sql, "bad", now).await.unwrap();
    assert_eq!(get(&sql, "bad").await.unwrap_err().kind(), ErrorKind::NotFound);
    let state = create(&sql, "bad", NewSchedule::new("mail", "def", None), now).await.unwrap();
    assert!(state.fence > fence);
}

/// Values that no build of allora writes. Sums of some have no room, or have no time.
async fn hostile_values_concern_no_other_record(place: Place) {
    for limit in [0, 1_000] {
        let place = place.beside(limit);
        let sql = place.builder().history(limit).connect(&place.url).await.unwrap();
        for (i, (set, reason)) in [
            ("state.fence = 9223372036854775807", Some("its fence 9223372036854775807")),
            ("state.fence = 4611686018427387904", Some("its fence 4611686018427387904")),
            ("state.fence = -1", Some("its fence -1")),
            ("state.version = 9223372036854775807", None),
            ("state.started = 9223372036854775807, state.succeeded = 9223372036854775807", None),
            ("state.cursor_due_at = 9223372036854775807", Some("the time 9223372036854775807")),
            ("state.cursor_due_at = -9223372036854775807", Some("the time -9223372036854775807")),
            ("state.cursor_due_at = NULL", Some("cursor")),
            ("state.last_started = 9223372036854775807", Some("the time 9223372036854775807")),
            ("state.lease_fence = 1", Some("lease")),
            ("state.ended_fence = 1, state.ended_how = 7", Some("ended_how")),
            ("state.last_outcome = 'strange'", Some("outcome")),
            ("job.definition = LONG", Some("definition")),
            ("rare.more = LONG", Some("triggers are longer")),
            ("rare.more = SHORT", Some("")),
            ("state.rare = 2", Some("retries and triggers is missing")),
        ]
        .into_iter()
        .enumerate()
        {
            let names = ["bad", "good"].map(|name| format!("{name} {i}"));
            for name in &names {
                let new = NewSchedule::new("k", "def", Some(at(1_000).into()));
                create(&sql, name, new, STORE).await.unwrap();
            }
            spoil(&place, &names[0], set).await;
            // As read before, or as it is now.
            let fences = [get(&sql, &names[0]).await.unwrap().fence, i64::MAX];
            for (j, bad) in (0..).zip(fences) {
                let good = get(&sql, &names[1]).await.unwrap().fence;
                let expected = at(1_000 + j);
                let lease = Duration::from_secs(60);
                let operations: Vec<Operation<'_>> = names
                    .iter()
                    .zip([bad, good])
                    .map(|(name, fence)| {
                        let id = 7_000 + 10 * i as u128 + j as u128;
                        let claim = Claim::at_least_once(id, fence, expected.into(), lease);
                        Operation::claim(name, claim)
                    })
                    .collect();
                let replies = replies(&sql, STORE, &operations).await;
                let claimed = replies[1].clone().claimed().unwrap();
                if let (Some(reason), Reply::State(state)) = (reason, &replies[0]) {
                    let said = state.unreadable.as_deref().unwrap_or_default();
                    assert!(said.contains(reason) && !said.is_empty(), "{set}: {said}");
                } else {
                    assert!(reason.is_none(), "{set}: {:?}", replies[0]);
                }
                let then = Cursor::To(Some(at(1_001 + j).into()));
                let ends = [(&names[0], 5), (&names[1], claimed.fence)].map(|(name, fence)| {
                    Operation::complete(name, fence, then, Completion::Succeeded)
                });
                let replies = replies_of(&sql, &ends).await;
                assert!(matches!(&replies[1], Ok(Reply::Accepted)), "{set}: {replies:?}");
            }
            // What the reason says to do, and what a new record of the name is then.
            delete(&sql, &names[0], STORE).await.unwrap();
            let new = NewSchedule::new("k", "def", Some(at(1_000).into()));
            let state = create(&sql, &names[0], new, STORE).await.unwrap();
            assert!(state.fence < i64::MAX / 2, "{set}: {}", state.fence);
        }
        place.clear().await;
    }
}

/// Sets columns of a record's rows by hand.
async fn spoil(place: &Place, name: &str, set: &str) {
    let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    let (name, long) = (hex(name), 9 << 20);
    let [name, short, long] = match &place.url {
        url if url.starts_with("postgres") => [
            format!("'\\x{name}'"),
            "'\\x00'".to_owned(),
            format!("convert_to(repeat('x', {long}), 'UTF8')"),
        ],
        url if url.starts_with("mysql") => {
            [format!("X'{name}'"), "X'00'".to_owned(), format!("REPEAT('x', {long})")]
        }
        _ => [format!("X'{name}'"), "X'00'".to_owned(), format!("zeroblob({long})")],
    };
    let id = format!("(SELECT id FROM {{p}}_job j WHERE name = {name})");
    for set in set.split(", ") {
        let (table, set) = set.split_once('.').unwrap();
        let set = set.replace("LONG", &long).replace("SHORT", &short);
        let set = match place.url.starts_with("sqlite") {
            true => set.replace("'strange'", "X'7374'"),
            false => set,
        };
        let update = match table {
            "job" => format!("UPDATE {{p}}_job SET {set} WHERE name = {name}"),
            "state" => format!("UPDATE {{p}}_state SET {set} WHERE id = {id}"),
            _ => {
                let rare = format!("UPDATE {{p}}_state SET rare = 2 WHERE id = {id}");
                run(place, &rare).await.unwrap();
                let (column, value) = set.split_once(" = ").unwrap();
                format!("INSERT INTO {{p}}_rare (id, {column}) VALUES ({id}, {value})")
            }
        };
        run(place, &update).await.unwrap();
    }
}

async fn replies_of(sql: &Sql, operations: &[Operation<'_>]) -> Vec<allora_core::Result<Reply>> {
    sql.reschedule(Batch::new("n", STORE, operations)).await.unwrap().replies
}

/// Claims leave their rows in their places in the due index, before those of other records; and dead
/// letters keep no claim from its single statement.
async fn leased_records_hide_no_due_ones(place: Place) {
    let sql = place.open().await;
    let names: Vec<String> = (0..610).map(|i| format!("job {i:03}")).collect();
    let letter = DeadLetter {
        occurrence: at(1).into(),
        attempts: 1,
        died_at: at(1),
        error: "boom".to_owned(),
    };
    let mut progress = ImportedProgress::default();
    progress.dead = std::slice::from_ref(&letter);
    let create: Vec<_> = (0..)
        .zip(&names)
        .map(|(i, name)| {
            let new = NewSchedule::new("k", "def", Some(at(1_000 + i).into()));
            Operation::new(name, Action::Create(new.progress(progress)))
        })
        .collect();
    let created = replies(&sql, STORE, &create).await;
    let claims = (0..600).map(|i| {
        let fence = created[i].clone().state().unwrap().fence;
        let (expected, lease) = (at(1_000 + i as i64).into(), Duration::from_secs(600));
        Operation::claim(&names[i], Claim::at_least_once(i as u128, fence, expected, lease))
    });
    let claims: Vec<_> = claims.collect();
    let claimed = replies(&sql, STORE, &claims).await;
    let end = claimed.into_iter().map(|reply| reply.claimed().unwrap().until).min();
    // Also by a node that has not seen how many there are.
    for sql in [place.open().await, sql] {
        for limit in [4, 10, 100] {
            let query = DueQuery::new(&["k"], at(9_000), limit);
            let due = sql.queries().unwrap().find_due(query, STORE).await.unwrap();
            let found: Vec<&str> = due.found.iter().map(|state| &*state.name).collect();
            assert_eq!(found, names[600..].iter().take(limit).collect::<Vec<_>>());
            assert_eq!(due.next_due, if limit < 10 { Some(at(1_604)) } else { end });
        }
    }
    assert_eq!(get(&place.open().await, "job 000").await.unwrap().dead, [letter]);
}

async fn thousands_of_kinds_are_found(place: Place) {
    let sql = place.open().await;
    let queries = sql.queries().unwrap();
    let names: Vec<String> = (0..3_000).map(|i| format!("kind {i:04}")).collect();
    // The last kinds are due first.
    let due = |i: usize| at(3_000 - i as i64);
    let create = |(i, name)| {
        let new = NewSchedule::new(name, "def", Some(due(i).into()));
        Operation::new(name, Action::Create(new))
    };
    let create: Vec<_> = names.iter().map(String::as_str).enumerate().map(create).collect();
    replies(&sql, TimeSource::Fixed(at(0)), &create).await;
    assert_eq!(queries.kinds().await.unwrap(), names);
    let kinds: Vec<&str> = names.iter().map(String::as_str).collect();
    for (until, limit, expected, next) in [(9_000, 10, 10, 11), (6, 10, 5, 6), (1, 10, 0, 1)] {
        let query = DueQuery::new(&kinds, at(until), limit);
        let due = queries.find_due(query, TimeSource::Fixed(at(9_000))).await.unwrap();
        let found: Vec<&str> = due.found.iter().map(|state| &*state.name).collect();
        let first: Vec<&str> = kinds.iter().rev().take(expected).copied().collect();
        assert_eq!((found, due.next_due), (first, Some(at(next))));
    }
    let query = DueQuery::new(&kinds[..1], at(9_000), 10);
    let due = queries.find_due(query, TimeSource::Fixed(at(9_000))).await.unwrap();
    assert_eq!((due.found.len(), due.next_due), (1, None));
}

/// Creates the job of [`run_once`].
pub(crate) async fn begin_runs(sql: &Sql) {
    create(sql, "runs", NewSchedule::new("k", "def", Some(at(0).into())), STORE).await.unwrap();
}

/// One run of that job, which writes a history entry.
pub(crate) async fn run_once(sql: &Sql, number: u32) {
    let (number, lease) = (i64::from(number), Duration::from_secs(60));
    let fence = get(sql, "runs").await.unwrap().fence;
    let id = number as u128 + 1;
    let claim = Claim::at_least_once(id, fence, at(number).into(), lease);
    let reply = send(sql, "n", STORE, Operation::claim("runs", claim)).await.unwrap();
    let then = Cursor::To(Some(at(number + 1).into()));
    let fence = reply.claimed().unwrap().fence;
    let end = Operation::complete("runs", fence, then, Completion::Succeeded);
    assert!(send(sql, "n", STORE, end).await.unwrap().is_accepted());
}

/// A statement that removed all of it would take longer than any reply may.
async fn history_that_is_too_old_is_removed_by_pruning(place: Place) {
    let sql = place.builder().history(100).connect(&place.url).await.unwrap();
    crate::measurements::fill_history(&place, 10_000).await;
    begin_runs(&sql).await;
    let count = async || {
        let query = HistoryQuery::new(100_000);
        sql.history().unwrap().entries(query).await.unwrap().len()
    };
    for number in 0..20 {
        run_once(&sql, number).await;
    }
    assert!(count().await >= 10_000, "no batch removes any");
    // A call that is dropped leaves the rest to the next one.
    let dropped = tokio::time::timeout(Duration::ZERO, Backend::prune(&sql, STORE)).await;
    assert!(dropped.is_err());
    Backend::prune(&sql, STORE).await.unwrap();
    assert_eq!(count().await, 20);
}

/// 20 records of the largest size, in as many kinds as take several statements on some databases.
async fn large_records_are_found_a_few_at_a_time(place: Place) {
    let sql = place.open().await;
    let kinds: Vec<String> = (1..=20).map(|i| format!("kind {i}")).collect();
    let data = vec![7; 1 << 20];
    for (i, kind) in (1..).zip(&kinds) {
        let new = NewSchedule::new(kind, "def", Some(at(i).into())).data(&data);
        create(&sql, kind, new, TimeSource::Fixed(at(0))).await.unwrap();
    }
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let query = DueQuery::new(&kinds, at(100), 1_000);
    let mut found = Vec::new();
    for (count, next_due) in [(16, Some(at(17))), (4, None)] {
        let due = sql.queries().unwrap().find_due(query, STORE).await.unwrap();
        assert_eq!((due.found.len(), due.next_due), (count, next_due));
        for state in due.found {
            assert!(state.data == data);
            delete(&sql, &state.name, TimeSource::Fixed(at(0))).await.unwrap();
            found.push(state.name);
        }
    }
    assert_eq!(found, kinds);
}

async fn names_and_payloads_survive_exactly(place: Place) {
    let sql = place.open().await;
    let now = TimeSource::Fixed(at(5_000));
    let long = "🧾".repeat(50);
    let names =
        ["a", "A", "é", "e\u{301}", "ß", "ss", "'; DROP TABLE x; --", "a:b:c", "%s$1?", &long];
    let payloads = [vec![], vec![0], vec![0xFF; 3], (0..=255).cycle().take(1 << 20).collect()];
    for (i, name) in names.iter().enumerate() {
        let payload: &[u8] = &payloads[i % payloads.len()];
        let new = NewSchedule::new(name, "d\0'\"", Some(end_of_time().into())).data(payload);
        create(&sql, name, new, now).await.unwrap();
        let state = get(&sql, name).await.unwrap();
        assert!(state.data == payload && state.kind == *name && state.name == *name, "{name}");
        assert_eq!((state.definition.as_str(), state.next), ("d\0'\"", Some(end_of_time().into())));
    }
    let listed = sql.queries().unwrap().list(Page::first(99)).await.unwrap();
    assert_eq!(listed.len(), names.len());
}

async fn the_databases_clock_decides(place: Place) {
    let sql = place.open().await;
    // A node whose clock is in 1970 asks; the database and this test are on one machine.
    let wrong = TimeSource::Store { fallback: at(1) };
    let now = async || sql.reschedule(Batch::new("n", wrong, &[])).await.unwrap().now;
    let (before, first) = (Time::from(std::time::UNIX_EPOCH), now().await);
    assert!(first > before + std::time::Duration::from_secs(50 * 365 * 86_400));
    assert!(now().await >= first);
    let made = create(&sql, "a", NewSchedule::new("k", "d", None), wrong).await;
    assert!(made.unwrap().fence >= first.timestamp_micros());
    // Also where rows are read, found or not, and written.
    for action in [Action::Read, Action::Reap, Action::Pause { note: "", until: None }] {
        for name in ["a", "none"] {
            let operations = [Operation::new(name, action.clone())];
            let applied = sql.reschedule(Batch::new("n", wrong, &operations)).await.unwrap();
            assert!(applied.now >= first);
        }
    }
    let query = DueQuery::new(&["k"], end_of_time(), 1);
    assert!(sql.queries().unwrap().find_due(query, wrong).await.unwrap().now >= first);
}

async fn a_claim_by_the_databases_clock_returns_the_fence_that_ends_it(place: Place) {
    let sql = place.open().await;
    let lease = Duration::from_secs(60);
    let (first, second) = (at(1_000), Cursor::To(Some(at(2_000).into())));
    let ways = [(OnExpiry::Retry, Cursor::Keep, second), (OnExpiry::Lost, second, Cursor::Keep)];
    // Many in one batch: a clock that is read twice is seldom read alike for all of them.
    let names: Vec<String> = (0..100).map(|i| format!("job-{i}")).collect();
    for (id, (on_expiry, then, then_at_the_end)) in (0..).zip(ways) {
        let mut claims = Vec::new();
        let names: Vec<String> = names.iter().map(|name| format!("{name}-{id}")).collect();
        for name in &names {
            let new = NewSchedule::new("k", "d", Some(first.into()));
            let fence = create(&sql, name, new, STORE).await.unwrap().fence;
            let claim = match on_expiry {
                OnExpiry::Retry => Claim::at_least_once(id, fence, first.into(), lease),
                OnExpiry::Lost => {
                    Claim::at_most_once(id, fence, first.into(), then, lease, Sharing::Shared)
                }
            };
            claims.push(Operation::claim(name, claim));
        }
        let replies = replies(&sql, STORE, &claims).await;
        let ends = names.iter().zip(replies).map(|(name, reply)| {
            let claimed = reply.clone().claimed();
            let claimed = claimed.unwrap_or_else(|| panic!("{name} was not won: {reply:?}"));
            Operation::complete(name, claimed.fence, then_at_the_end, Completion::Succeeded)
        });
        let ends: Vec<Operation<'_>> = ends.collect();
        let accepted = crate::calls::replies(&sql, STORE, &ends).await;
        assert_eq!(accepted, vec![Reply::Accepted; names.len()]);
    }
}

async fn deleted_names_are_forgotten_after_seven_days_and_their_fences_are_not(place: Place) {
    let sql = place.open().await;
    let day = |n: i64| TimeSource::Fixed(at(n * 86_400_000));
    let new = NewSchedule::new("k", "d", None);
    let fence = create(&sql, "a", new, day(9)).await.unwrap().fence;
    delete(&sql, "a", day(9)).await.unwrap();
    let read = async |time| send(&sql, "n", time, Operation::read("a")).await.unwrap();
    assert_eq!(read(day(10)).await, Reply::Deleted);
    assert_eq!(read(day(16)).await, Reply::Absent);
    Backend::prune(&sql, day(17)).await.unwrap();
    assert_eq!(read(day(10)).await, Reply::Absent);
    // By a clock that went back, the name still gets a higher fence.
    assert!(create(&sql, "a", new, day(1)).await.unwrap().fence > fence);
}

/// More than one statement can bear, in one batch, and each decided alone.
async fn a_batch_of_large_data_is_written_in_parts(place: Place) {
    let sql = place.open().await;
    create(&sql, "job 1", NewSchedule::new("k", "d", None), STORE).await.unwrap();
    let data = vec![7; 600_000];
    let names: Vec<String> = (0..5).map(|i| format!("job {i}")).collect();
    let new = NewSchedule::new("k", "d", None).data(&data);
    let creations: Vec<Operation<'_>> =
        names.iter().map(|name| Operation::new(name, Action::Create(new))).collect();
    let replies = sql.reschedule(Batch::new("n", STORE, &creations)).await.unwrap().replies;
    for (name, reply) in names.iter().zip(replies) {
        match (name.as_str(), reply) {
            ("job 1", reply) => assert_eq!(reply.unwrap_err().kind(), ErrorKind::AlreadyExists),
            (_, reply) => assert_eq!(reply.unwrap().state().unwrap().data.len(), data.len()),
        }
        let stored = get(&sql, name).await.unwrap().data.len();
        assert_eq!(stored, if name == "job 1" { 0 } else { data.len() }, "{name}");
    }
}

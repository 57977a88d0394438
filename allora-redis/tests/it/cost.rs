//! The server's work for one occurrence.

use crate::{
    server::{IN_MEMORY, Server},
    stores::runtime,
};
use allora_core::{
    Backend, Time,
    backend::{
        Action, Batch, Claim, ClaimDue, Completion, Cursor, DueQuery, Flag, HistoryQuery, JobState,
        NewSchedule, Operation, Outcome, Page, Reply, TimeSource,
    },
    time::from_millis,
};
use allora_redis::Redis;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(60);

const DAY: i64 = 86_400_000;

const DEFINITION: &str = "cron 0 9 * * *; at-least-once 60s";

fn at(ms: i64) -> Time {
    from_millis(ms).unwrap()
}

/// The schedules that are due, as a node finds them.
async fn find(store: &Redis, now: i64, limit: usize) -> Vec<JobState> {
    let query = DueQuery::new(&["mail"], at(now), limit);
    store.queries().unwrap().find_due(query, TimeSource::Fixed(at(now))).await.unwrap().found
}

async fn send_all(store: &Redis, now: i64, operations: &[Operation<'_>]) -> Vec<Reply> {
    let batch = Batch::new("a node of the test", TimeSource::Fixed(at(now)), operations);
    let applied = store.reschedule(batch).await.unwrap();
    applied.replies.into_iter().map(Result::unwrap).collect()
}

async fn add(store: &Redis, count: usize, due: i64) {
    let names: Vec<String> = (0..count).map(|i| format!("schedule {i}")).collect();
    for names in names.chunks(1_000) {
        let new =
            || NewSchedule::new("mail", DEFINITION, Some(at(due).into())).data(b"{\"to\": 1}");
        let create: Vec<Operation<'_>> =
            names.iter().map(|name| Operation::new(name, Action::Create(new()))).collect();
        send_all(store, due - 1_000, &create).await;
    }
}

/// The fences of the claims of all that were found.
async fn claim(store: &Redis, now: i64, found: &[JobState]) -> Vec<i64> {
    let operation = |state: &JobState| {
        let claim = Claim::at_least_once(7, state.fence, state.head.clone().unwrap(), LEASE);
        (state.name.clone(), claim)
    };
    let claims: Vec<_> = found.iter().map(operation).collect();
    let claims: Vec<_> =
        claims.iter().map(|(name, claim)| Operation::claim(name, claim.clone())).collect();
    let claimed = send_all(store, now, &claims).await.into_iter();
    claimed.map(|reply| reply.claimed().unwrap().fence).collect()
}

/// Completes these; the next occurrence is a day later.
async fn complete(store: &Redis, now: i64, found: &[JobState], fences: &[i64]) {
    let next = |state: &JobState| {
        let next = state.head.as_ref().unwrap().scheduled_at.timestamp_millis() + DAY;
        Cursor::To(Some(at(next).into()))
    };
    complete_with(store, now, found, fences, next).await;
}

async fn complete_with(
    store: &Redis,
    now: i64,
    found: &[JobState],
    fences: &[i64],
    then: impl Fn(&JobState) -> Cursor,
) {
    let complete = found.iter().zip(fences).map(|(state, fence)| {
        Operation::complete(&state.name, *fence, then(state), Completion::Succeeded)
    });
    let complete: Vec<_> = complete.collect();
    let replies = send_all(store, now, &complete).await;
    assert!(replies.iter().all(Reply::is_accepted), "{replies:?}");
}

/// The number of commands that the server has executed in scripts and outside of them.
fn commands(server: &Server) -> u64 {
    let info: String = server.ask(&["INFO", "commandstats"]).unwrap();
    let of = |line: &str| line.split_once(":calls=")?.1.split(',').next()?.parse::<u64>().ok();
    info.lines().filter(|line| !line.contains("info")).filter_map(of).sum()
}

/// The number of calls of scripts.
fn calls(server: &Server) -> u64 {
    let info: String = server.ask(&["INFO", "commandstats"]).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.unwrap().split(',').next().unwrap().parse().unwrap()
}

#[test]
fn a_large_batch_costs_no_more_commands_than_a_small_one() {
    let Some(server) = Server::start(IN_MEMORY) else { return };
    runtime().block_on(async {
        let store = server.place().connect(Redis::builder().ephemeral()).await.unwrap();
        add(&store, 1_003, DAY).await;
        let now = DAY + 500;
        // So that the server knows the scripts.
        for count in [1, 2, 1_000] {
            let before = commands(&server);
            let found = find(&store, now, count).await;
            assert_eq!(found.len(), count);
            let finding = commands(&server);
            let fences = claim(&store, now, &found).await;
            let claiming = commands(&server);
            complete(&store, now, &found, &fences).await;
            let costs = [finding - before, claiming - finding, commands(&server) - claiming];
            assert!(costs.iter().all(|cost| *cost <= 10), "{costs:?} commands for {count}");
        }
    });
}

#[test]
fn the_last_runs_of_schedules_are_completed_by_one_call() {
    let Some(server) = Server::start(IN_MEMORY) else { return };
    runtime().block_on(async {
        let store = server.place().connect(Redis::builder().ephemeral()).await.unwrap();
        add(&store, 1_003, DAY).await;
        let now = DAY + 500;
        // The first call may be the one that sends the script.
        for count in [1, 2, 1_000] {
            let found = find(&store, now, count).await;
            let fences = claim(&store, now, &found).await;
            let before = calls(&server);
            complete_with(&store, now, &found, &fences, |_| Cursor::To(None)).await;
            if count > 1 {
                assert_eq!(calls(&server) - before, 1, "for {count}");
            }
        }
        let time = TimeSource::Fixed(at(now));
        let ended = store.queries().unwrap().flagged(Flag::Ended, Page::first(2_000), time).await;
        assert_eq!(ended.unwrap().found.len(), 1_003);
    });
}

#[test]
fn dead_letters_are_not_read_by_claims_and_completions() {
    let Some(server) = Server::start(IN_MEMORY) else { return };
    runtime().block_on(async {
        let store = server.place().connect(Redis::builder().ephemeral()).await.unwrap();
        add(&store, 1, DAY).await;
        let error = "x".repeat(1_000);
        for day in 1..=20 {
            let now = day * DAY + 500;
            let found = find(&store, now, 1).await;
            let fences = claim(&store, now, &found).await;
            let then = Cursor::To(Some(at((day + 1) * DAY).into()));
            let name = &found[0].name;
            let dead = Operation::complete(name, fences[0], then, Completion::Dead(&error));
            assert_eq!(send_all(&store, now, &[dead]).await, [Reply::Accepted]);
        }
        let sent = || {
            let info: String = server.ask(&["INFO", "stats"]).unwrap();
            let line = info.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
            line.unwrap().parse::<u64>().unwrap() - info.len() as u64
        };
        for day in 21..=22 {
            let now = day * DAY + 500;
            let (bytes, before) = (sent(), calls(&server));
            let found = find(&store, now, 1).await;
            let fences = claim(&store, now, &found).await;
            complete(&store, now, &found, &fences).await;
            let (bytes, calls) = (sent() - bytes, calls(&server) - before);
            // The first completion after a failure removes the failure from the rare part.
            if day == 22 {
                assert_eq!(calls, 3, "found, claimed and completed by one call each");
                assert!(bytes < 10_000, "{bytes} bytes were read");
            }
        }
        let state = store.queries().unwrap().get("schedule 0").await.unwrap();
        assert_eq!((state.dead.len(), state.counters.succeeded), (20, 2));
    });
}

#[test]
fn a_history_costs_no_further_call() {
    let Some(server) = Server::start(IN_MEMORY) else { return };
    runtime().block_on(async {
        let store = Redis::builder().ephemeral().history(1_000);
        let store = server.place().connect(store).await.unwrap();
        add(&store, 3, DAY).await;
        let queries = store.queries().unwrap();
        assert!(queries.claims_due());
        for day in 1..=4 {
            let now = day * DAY + 500;
            let before = if day > 2 { calls(&server) } else { 0 };
            // By a query on odd days.
            let (found, fences) = match day % 2 {
                0 => {
                    let found = find(&store, now, 3).await;
                    let fences = claim(&store, now, &found).await;
                    (found, fences)
                }
                _ => {
                    let query = ClaimDue::new("a \"node\"", 7, &["mail"], 3);
                    let due = queries.claim_due(query, TimeSource::Fixed(at(now))).await.unwrap();
                    due.claimed.into_iter().map(|(job, claimed)| (job, claimed.fence)).unzip()
                }
            };
            assert_eq!(found.len(), 3);
            let entries = async || {
                let query = HistoryQuery::new(3);
                store.history().unwrap().entries(query).await.unwrap()
            };
            let claimed = if day > 2 { calls(&server) - before } else { 0 };
            assert!(
                entries().await.iter().all(|entry| entry.occurrence.scheduled_at < at(day * DAY))
            );
            let before = if day > 2 { calls(&server) } else { 0 };
            complete(&store, now + 7, &found, &fences).await;
            let completed = if day > 2 { calls(&server) - before } else { 0 };
            for entry in entries().await {
                assert_eq!(entry.outcome, Outcome::Succeeded);
                assert_eq!((entry.due_at, entry.kind.as_str()), (Some(at(day * DAY)), "mail"));
                assert_eq!((entry.started_at, entry.ended_at), (Some(at(now)), Some(at(now + 7))));
            }
            // The first calls may be those that send the scripts.
            match day {
                1 | 2 => {}
                3 => assert_eq!((claimed, completed), (1, 1), "by a query"),
                _ => assert_eq!((claimed, completed), (2, 1), "found and claimed"),
            }
        }
        let query = HistoryQuery::new(100);
        assert_eq!(store.history().unwrap().entries(query).await.unwrap().len(), 12);
    });
}

//! A worker that runs stored schedules by their kinds: `cargo run --example worker`.
//!
//! Five schedules are added to a store. The worker routes them to its handlers, and passes them the
//! data as values. A failed run is tried again. When its attempts are used up, it is a dead letter,
//! which the example then reruns. The program ends by itself.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use allora::{
    BoxError, Memory, Next, Pattern, Result, Retry, Run, Scheduler, Schedules, StoredSchedule,
    stored::{Filter, ScheduleState},
};
use serde::{Deserialize, Serialize};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

/// The data of a schedule of the kind `mail`.
#[derive(Deserialize, Serialize)]
struct Mail {
    to: String,
    subject: String,
}

/// The state that the handlers share.
#[derive(Default)]
struct Office {
    sent: AtomicU32,
    press_works: AtomicBool,
}

fn worker(store: Memory, office: &Arc<Office>) -> Result<Scheduler> {
    let (mail, press) = (office.clone(), office.clone());
    Scheduler::builder(store)
        // Exactly this kind. The data is read before; what cannot be read is a dead letter at once.
        .kind("mail", async move |run: Run, letter: Mail| -> Result<(), BoxError> {
            if run.attempt() == 1 {
                return Err("the mail server is busy".into());
            }
            mail.sent.fetch_add(1, Relaxed);
            println!("    to {}: {}", letter.to, letter.subject);
            Ok(())
        })
        // Every kind that begins so.
        .kind(Pattern::prefix("print."), async move |_: Run| -> Result<(), BoxError> {
            if press.press_works.load(Relaxed) { Ok(()) } else { Err("out of paper".into()) }
        })
        // Whatever is left, if it looks like this. Other kinds wait for a worker that knows them.
        .kind(Pattern::regex("^(sweep|clean)$")?, async |_: Run| {})
        // Around every run of this worker.
        .middleware(async |run: Run, next: Next| {
            let what = format!("{} ({}), attempt {}", run.name(), run.kind(), run.attempt());
            println!("{what}");
            let ended = next.run(run).await;
            if let Err(error) = &ended {
                println!("    failed: {error}");
            }
            ended
        })
        .build()
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = Memory::new();
    let schedules = Schedules::new(store.clone())?;
    let once = |name: &str, kind: &str| {
        let retry = Retry::up_to(3, Duration::from_millis(300));
        StoredSchedule::new(name, kind, "@every 1s").max_runs(1).retry(retry)
    };
    let letter = Mail { to: "ann@acme.example".into(), subject: "your digest".into() };
    let all = [
        once("acme/digest", "mail").data(&letter),
        once("acme/typo", "mail").data(&"this is no letter"),
        once("acme/invoice", "print.a4"),
        once("yard", "sweep"),
        once("rocket", "launch"),
    ];
    for added in schedules.add_all(&all).await? {
        added?;
    }

    let office = Arc::new(Office::default());
    let scheduler = worker(store, &office)?;
    let handle = scheduler.handle();
    let operator = async {
        let dead = Filter::default().state(ScheduleState::Dead);
        let is_done = async || -> Result<bool> {
            let letters = schedules.list(dead, None, 100).await?.len();
            Ok(letters == 2 && office.sent.load(Relaxed) == 1)
        };
        while !is_done().await? {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for state in schedules.list(dead, None, 100).await? {
            let letter = &state.dead[0];
            println!("dead letter of {}: {}", state.name, letter.error);
            if state.kind == "mail" {
                schedules.dismiss(&state.name, &letter.occurrence).await?;
            } else {
                // There is paper again: the same occurrence, its attempts counted from 1.
                office.press_works.store(true, Relaxed);
                schedules.rerun(&state.name, &letter.occurrence).await?;
            }
        }
        while schedules.get("acme/invoice").await?.counters.succeeded == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        handle.stop();
        Ok::<(), BoxError>(())
    };
    let (_, operated) = tokio::join!(scheduler.run(), operator);
    operated?;

    let waiting = schedules.get("rocket").await?;
    println!(
        "{} letter sent; {} waits for a worker that knows `{}`",
        office.sent.load(Relaxed),
        waiting.name,
        waiting.kind
    );
    let dead = schedules.list(Filter::default().state(ScheduleState::Dead), None, 100).await?;
    assert!(dead.is_empty() && waiting.counters.started == 0);
    assert_eq!(office.sent.load(Relaxed), 1);
    Ok(())
}

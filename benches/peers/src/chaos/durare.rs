//! `durare`: a schedule for each job, whose ticks are started by whichever process inserts them first.
//!
//! It promises that a cron tick happens once across any number of executors, and that a step whose result is recorded
//! is not run again. Missed ticks are backfilled when a process sees the schedule for the first time, and a process
//! that is started again with the name of a dead one takes up its runs; both must be asked for, and are. No living
//! process takes up the runs of another one: it cannot know that the other is dead.

use super::{AGAIN, GRACE, Log, Occurrence, WORK, micros, stopped};
use durare::{
    ApplySchedule, DurableContext, DurableEngine, Error, Result, ScheduleOptions, ScheduledInput,
};
use tokio::time::sleep;

const WORKFLOW: &str = "occurrence";

pub(super) async fn set_up(jobs: u64, url: &str) {
    let schedule = |job: u64| {
        let options = ScheduleOptions::new().context(&job).automatic_backfill(true);
        ApplySchedule::new(format!("job-{job}"), WORKFLOW, "* * * * * *").options(options)
    };
    let mut builder = DurableEngine::connect(url).await.unwrap();
    // Known here by its name alone.
    builder.register(WORKFLOW, |_: DurableContext, _: ScheduledInput| async { Result::Ok(()) });
    let engine = builder.build().await.unwrap();
    engine.apply_schedules((0..jobs).map(schedule).collect()).await.unwrap();
}

pub(super) async fn work(log: &'static Log, number: &str, url: &str) {
    let engine = loop {
        match launched(log, number, url).await {
            Ok(engine) => break engine,
            Err(error) => eprintln!("durare {number}: {error}"),
        }
        sleep(AGAIN).await;
    };
    stopped().await;
    engine.shutdown(GRACE).await.unwrap();
}

async fn launched(log: &'static Log, number: &str, url: &str) -> Result<DurableEngine> {
    let mut builder = DurableEngine::connect(url).await?;
    builder.executor_id(number).recover_on_launch(true);
    builder.register(WORKFLOW, move |context: DurableContext, tick: ScheduledInput| async move {
        let job = tick.context_as()?.unwrap_or_default();
        let run = Occurrence { job, at: tick.scheduled_time.timestamp_millis() };
        let step = context.step("work", || async move {
            let fence = micros();
            log.begin(run, fence);
            sleep(WORK).await;
            Ok::<_, Error>(fence)
        });
        log.end(run, step.await?);
        Ok::<_, Error>(())
    });
    let engine = builder.build().await?;
    engine.launch().await?;
    Ok(engine)
}

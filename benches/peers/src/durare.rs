//! `durare`: schedules in its tables, whose ticks are started by whichever process inserts them first.

use crate::{
    Figures,
    database::Database,
    ticks::{self, Load, Log},
};
use durare::{
    ApplySchedule, DurableContext, DurableEngine, DurableEngineBuilder, ScheduleOptions,
    ScheduledInput,
};

const WORKFLOW: &str = "tick";

/// Counts the starts on three processes, or is one of them.
pub(crate) async fn measure(server: &str, load: Load) -> Figures {
    if let Some(log) = ticks::log_of_node() {
        let url = Database::url_of_created(server).await;
        let engine = engine(&url, Some(log)).await;
        engine.launch().await.unwrap();
        ticks::until_alone().await;
        return Figures::new();
    }
    let database = Database::create(server).await;
    let schedule = |i| {
        let name = format!("tick-{i}");
        let options = ScheduleOptions::new().context(&i);
        ApplySchedule::new(name, WORKFLOW, "* * * * * *").options(options)
    };
    let schedules = (0..load.schedules).map(schedule).collect();
    engine(&database.url, None).await.apply_schedules(schedules).await.unwrap();
    let transactions = "SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database";
    let figures = ticks::measure(load, async || database.number(transactions).await).await;
    database.drop().await;
    figures
}

/// An engine, which notes its runs if it has a log.
async fn engine(url: &str, log: Option<Log>) -> DurableEngine {
    let log: &'static Option<Log> = Box::leak(Box::new(log));
    let mut builder: DurableEngineBuilder = DurableEngine::connect(url).await.unwrap();
    builder.executor_id(format!("process-{}", std::process::id()));
    builder.register(WORKFLOW, move |_: DurableContext, tick: ScheduledInput| async move {
        if let Some(log) = log {
            log.add(tick.context_as()?.unwrap_or_default(), tick.scheduled_time.timestamp());
        }
        durare::Result::Ok(())
    });
    builder.build().await.unwrap()
}

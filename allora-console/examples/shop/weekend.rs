//! A weekend of a shop with 216 jobs, simulated, and the console that looks back on it.

use allora::{
    BoxError, CatchUp, Handle, Memory, Overlap, Retry, Run, Runtime, Scheduler, Schedules,
    StoredSchedule, Time,
    backend::{Author, HistoryLimits},
    cron,
    runtime::{Sim, SimNode},
};
use allora_console::{Access, Console};
use axum::Router;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The kinds of the shop, each with the shortest time that a run takes.
const KINDS: [(&str, Duration); 8] = [
    ("backup", Duration::from_secs(11 * 60)),
    ("invoice", Duration::from_secs(4)),
    ("report", Duration::from_secs(20)),
    ("sync", Duration::from_secs(8 * 60)),
    ("mail", Duration::from_secs(90)),
    ("cleanup", Duration::from_secs(6)),
    ("index", Duration::from_secs(95 * 60)),
    ("ledger", Duration::from_secs(30 * 60)),
];

/// The shop as its operators see it on Sunday afternoon.
pub(crate) struct Shop {
    pub(crate) console: Router,
    /// Their machines: as long as this lives, and no time passes.
    _sim: Sim,
}

impl Shop {
    /// # Errors
    /// None, as long as the library keeps its promises.
    pub(crate) fn after_its_weekend() -> Result<Self, BoxError> {
        let sim = Sim::starting_at(7, at("2026-10-23T12:00:00Z"));
        let store = Memory::new().with_history(HistoryLimits::default());
        let handle = weekend(&sim, &store)?;
        let schedules = Schedules::on(store, sim.node())?;
        let access = Access::reader("ann").with_data();
        let console = Console::new(schedules).handle(handle).title("shop");
        let console = console.access(move |_| Some(access.clone())).into_router();
        Ok(Self { console, _sim: sim })
    }
}

/// From Friday noon to Sunday afternoon, when the clocks have been set back.
fn weekend(sim: &Sim, store: &Memory) -> Result<Handle, BoxError> {
    let machine = sim.node();
    let schedules = Schedules::on(store.clone(), machine.clone())?;
    sim.block_on(async {
        for added in schedules.add_all(&jobs()).await? {
            added?;
        }
        let ann = Author::new("ann").via("console").note("the mail server moves on Monday");
        let by_ann = schedules.clone().by(ann);
        by_ann.pause("mail.digest", "the mail server moves on Monday, ann").await?;
        let old = StoredSchedule::of(&schedules.get("reports/old").await?)?;
        let old = old.schedule("0 9 * * MON,FRI Europe/Rome");
        schedules.clone().by("deploy").modify(&old).await?;
        schedules.pause("reports/old", "").await
    })?;
    let ids = ["web-1", "web-2", "web-3"];
    let machines = ids.map(|id| node(sim, store, id, &["backup.main"]).map(|(node, _)| node));
    sim.run_until(at("2026-10-25T00:50:00Z"));
    // The whole shop is down for an hour and a half, in the hour that the clocks show twice.
    for machine in machines {
        machine?.crash();
    }
    sim.run_until(at("2026-10-25T02:20:00Z"));
    let (_, handle) = node(sim, store, "web-1", &[])?;
    let _ = (node(sim, store, "web-2", &[])?, node(sim, store, "web-3", &[])?);
    let (gone, _) = node(sim, store, "db-1", &["backup.main"])?;
    sim.run_until(at("2026-10-25T13:24:00Z"));
    gone.crash();
    sim.run_until(at("2026-10-25T14:12:07Z"));
    Ok(handle)
}

/// A machine with a scheduler that handles the kinds of the shop and these.
fn node(sim: &Sim, store: &Memory, id: &str, more: &[&str]) -> Result<(SimNode, Handle), BoxError> {
    let machine = sim.node();
    let mut builder = Scheduler::builder(store.clone())
        .runtime(machine.clone())
        .label(id)
        .concurrency(10)
        .build_version(if id == "web-3" { "2.4.1" } else { "2.4.0" })
        .job("shop/heartbeat", cron("*/5 * * * *")?, async |_: Run| {});
    let more = more.iter().map(|kind| (*kind, 6 * MINUTE));
    for (kind, least) in KINDS.into_iter().chain(more) {
        let machine = machine.clone();
        builder = builder.kind(kind, async move |run: Run| work(&machine, &run, least).await);
    }
    let scheduler = builder.build()?;
    let handle = scheduler.handle();
    machine.spawn(Box::pin(async { _ = scheduler.run().await }));
    Ok((machine, handle))
}

/// A run takes a time that follows from its name and day, and says something at its end.
async fn work(machine: &SimNode, run: &Run, least: Duration) -> Result<(), BoxError> {
    let seed = run.name().bytes().chain(run.scheduled_at().timestamp().to_le_bytes());
    let seed = seed.fold(7_u32, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    machine.sleep_until(machine.now() + least + least * (seed % 60) / 100).await;
    if run.name() == "invoices" && run.scheduled_at() >= at("2026-10-25T00:00:00Z") {
        return Err("connect: connection refused (10.1.2.3:443)".into());
    }
    if seed % 41 == 0 || run.name() == "reports/tax" {
        return Err("the warehouse answered 502 Bad Gateway".into());
    }
    run.set_output(format!("{} rows", 900 + seed % 700));
    Ok(())
}

fn jobs() -> Vec<StoredSchedule> {
    let job = |name: &str, kind: &str, schedule: &str| StoredSchedule::new(name, kind, schedule);
    let retry = Retry::up_to(3, 20 * SECOND);
    let mut jobs = vec![
        job("invoices", "invoice", "0 2 * * * Europe/Rome")
            .retry(Retry::up_to(5, 10 * SECOND))
            .data_bytes(r#"{"to":"all customers","currency":"EUR"}"#)
            .owner("billing")
            .tag("money"),
        job("sync.crm", "sync", "*/20 * * * * Europe/Rome")
            .at_most_once()
            .overlap(Overlap::Skip)
            .owner("sales"),
        job("index.rebuild", "index", "0 6,18 * * *").catch_up(CatchUp::None).tag("search"),
        job("mail.digest", "mail", "30 7,13,19 * * * Europe/Rome").owner("marketing"),
        job("cleanup.tmp", "cleanup", "@hourly"),
        job("billing/export", "ledger", "0 15 * * * Europe/Rome").mutex("ledger").owner("billing"),
        job("billing/close", "ledger", "5 15 * * * Europe/Rome").mutex("ledger").owner("billing"),
        job("backup/db-main", "backup.main", "30 1,13 * * *").window(6 * 60 * MINUTE),
        job("thumbnails", "thumbnail", "*/30 * * * *").owner("catalogue"),
        job("reports/tax", "report", "0 1 * * * Europe/Rome").at_most_once().owner("billing"),
        job("reports/old", "report", "0 9 * * MON Europe/Rome"),
        job("<img src=x onerror=alert(1)>", "cleanup", "0 12 * * *"),
    ];
    for i in 1..=24 {
        jobs.push(job(&format!("backup/db-{i:02}"), "backup", "H 4 * * *").retry(retry).tag("db"));
    }
    let zones = ["Europe/Rome", "America/New_York", "Asia/Tokyo", "Australia/Lord_Howe"];
    for i in 0..180 {
        let (name, zone) = (format!("tenants/{}/report", tenant(i)), zones[i % zones.len()]);
        let report = job(&name, "report", &format!("0 6 * * * {zone}")).jitter(30 * MINUTE);
        jobs.push(report.retry(retry).owner("analytics").tag("tenant"));
    }
    jobs
}

fn tenant(i: usize) -> String {
    let firsts = ["acme", "bolt", "coral", "delta", "ember", "flint", "grove", "harbor", "iris"];
    let seconds = ["labs", "foods", "travel", "bikes", "books", "paper", "audio", "tools"];
    let (first, second) = (firsts[i % firsts.len()], seconds[i / firsts.len() % seconds.len()]);
    let number = i / (firsts.len() * seconds.len());
    if number == 0 { format!("{first}-{second}") } else { format!("{first}-{second}-{number}") }
}

fn at(text: &str) -> Time {
    text.parse().expect("an instant of this example")
}

//! The number of SQL statements that this process sends, as the driver logs them.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says so")]

use std::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};
use tracing::{
    Event, Id, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Record},
    subscriber::Interest,
};

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static STATEMENTS: AtomicU64 = AtomicU64::new(0);

/// Before the first statement of the process.
pub fn install() {
    tracing::subscriber::set_global_default(Counter).unwrap();
}

/// The number of statements that `work` sends; nothing else may run meanwhile. SQLite's BEGIN and
/// COMMIT are not among them: its driver does not log them.
pub async fn of(work: impl Future<Output = ()>) -> u64 {
    STATEMENTS.store(0, Ordering::SeqCst);
    IS_COUNTING.store(true, Ordering::SeqCst);
    work.await;
    IS_COUNTING.store(false, Ordering::SeqCst);
    STATEMENTS.load(Ordering::SeqCst)
}

struct Counter;

impl Subscriber for Counter {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        // To be asked every time: while the time is measured nothing is formatted.
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query" && IS_COUNTING.load(Ordering::Relaxed)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Count);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Count;

impl Visit for Count {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "summary" {
            // The driver of PostgreSQL logs the COMMIT of a transaction, that of MySQL its BEGIN as
            // well: the pair is counted at its end.
            let statements = match value.split(' ').next() {
                Some("BEGIN") => 0,
                Some("COMMIT") => 2,
                _ => 1,
            };
            STATEMENTS.fetch_add(statements, Ordering::Relaxed);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

//! Notifications of PostgreSQL, and the probe that shows whether they arrive: a pooler that lends a
//! connection for one transaction accepts a `LISTEN` and never delivers.

use super::{Connections, Lent, Payloads};
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, Either, pending, select},
    stream,
};
use sqlx::{
    Executor as _, PgPool, Postgres,
    postgres::{PgArguments, PgListener},
    query::Query,
    raw_sql,
};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Number of waits of 50 ms for the probe. A notification that is delivered at all comes at once;
/// two seconds are enough for a busy server.
const WAITS: u32 = 40;

/// The beginning of a probe's payload.
const PROBE: &str = "probe ";

/// Ends the limits of idle sessions and of transactions, of servers that have them.
pub(super) const NO_LIMITS: &str = "SELECT set_config(name, '0', false) FROM pg_settings \
    WHERE name IN ('idle_session_timeout', 'transaction_timeout')";

/// A notification to this subscriber itself.
pub(super) struct Probe {
    payload: String,
    /// Sends it through another connection, and ends when it should have arrived.
    timeout: BoxFuture<'static, sqlx::Result<()>>,
    /// Set if it has not arrived.
    undelivered: Arc<AtomicBool>,
}

impl Probe {
    /// A probe that is sent as soon as the subscriber listens; `None` if there is no random number
    /// to tell it from others.
    pub(super) fn sent(
        connections: &Connections<Postgres>,
        channel: &str,
        undelivered: &Arc<AtomicBool>,
    ) -> Option<Self> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).ok()?;
        let payload = format!("{PROBE}{:032x}", u128::from_le_bytes(random));
        let connections = connections.clone();
        let (channel, text) = (channel.to_owned(), payload.clone());
        // The server does the waiting: this crate has no timer.
        let timeout = async move {
            let notify = sqlx::query("SELECT pg_notify($1, $2)").bind(channel).bind(text);
            run(&connections, notify).await?;
            for _ in 0..WAITS {
                run(&connections, sqlx::query("SELECT pg_sleep(0.05)")).await?;
            }
            Ok(())
        };
        Some(Self { payload, timeout: timeout.boxed(), undelivered: undelivered.clone() })
    }
}

async fn run(
    connections: &Connections<Postgres>,
    query: Query<'_, Postgres, PgArguments>,
) -> sqlx::Result<()> {
    let mut slot = connections.lend().await?;
    query.execute(slot.raw()?).await?;
    Box::new(slot).release();
    Ok(())
}

/// The payloads of a channel. The stream ends with a connection that cannot be made again, or if
/// the probe does not arrive; the subscriber subscribes again.
pub(super) async fn listen(
    listeners: &PgPool,
    channel: &str,
    probe: Option<Probe>,
) -> sqlx::Result<Payloads> {
    let mut listener = PgListener::connect_with(listeners).await?;
    listener.listen(channel).await?;
    // It is idle for most of the time.
    listener.execute(raw_sql(NO_LIMITS)).await?;
    let payloads = stream::unfold((listener, probe), |(mut listener, mut probe)| async move {
        loop {
            let timeout = match &mut probe {
                Some(probe) => probe.timeout.as_mut().left_future(),
                None => pending().right_future(),
            };
            let received = match select(pin!(listener.try_recv()), timeout).await {
                Either::Left((received, _)) => received.ok()?,
                Either::Right((Ok(()), _)) => {
                    let probe = probe?;
                    probe.undelivered.store(true, Ordering::Relaxed);
                    return None;
                }
                // It was not sent: nothing is known.
                Either::Right((Err(_), _)) => {
                    probe = None;
                    continue;
                }
            };
            let payload = received.map(|received| received.payload().to_owned());
            match &payload {
                // The probe of this subscriber or of another one.
                Some(text) if text.starts_with(PROBE) => {
                    probe = probe.filter(|probe| probe.payload != *text);
                }
                _ => return Some((payload, (listener, probe))),
            }
        }
    });
    Ok(payloads.boxed())
}

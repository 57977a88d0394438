//! Notifications of PostgreSQL, and the proof that they arrive: a pooler that lends a connection for
//! one transaction takes a `LISTEN`, and then nobody hears anything.

use super::Told;
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, Either, pending, select},
    stream,
};
use sqlx::{PgPool, postgres::PgListener};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// How often it is waited for the notification that is the proof; 50 ms each. One that is delivered
/// at all comes at once; two seconds are enough for a server that has no time.
const WAITS: u32 = 40;

/// How the payload of such a notification begins.
const HELLO: &str = "hello ";

/// A notification to ourselves.
pub(super) struct Proof {
    /// Its payload.
    hello: String,
    /// Sends it by another connection, and has ended when it should have arrived long since.
    late: BoxFuture<'static, sqlx::Result<()>>,
    /// Where it is noted that it has not.
    deaf: Arc<AtomicBool>,
}

impl Proof {
    /// One that is sent as soon as somebody listens; `None` if there is no random number to tell it
    /// from others.
    pub(super) fn sent(pool: &PgPool, channel: &str, deaf: &Arc<AtomicBool>) -> Option<Self> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).ok()?;
        let hello = format!("{HELLO}{:032x}", u128::from_le_bytes(random));
        let (pool, channel, payload) = (pool.clone(), channel.to_owned(), hello.clone());
        // The server does the waiting: this crate has no timer.
        let late = async move {
            let tell = sqlx::query("SELECT pg_notify($1, $2)").bind(channel).bind(payload);
            tell.execute(&pool).await?;
            for _ in 0..WAITS {
                sqlx::query("SELECT pg_sleep(0.05)").execute(&pool).await?;
            }
            Ok(())
        };
        Some(Self { hello, late: late.boxed(), deaf: deaf.clone() })
    }
}

/// What is told on a channel. Ends with a connection that cannot be made again, or where the proof
/// does not arrive; the subscriber subscribes again.
pub(super) async fn listen(
    hints: &PgPool,
    channel: &str,
    proof: Option<Proof>,
) -> sqlx::Result<Told> {
    let mut listener = PgListener::connect_with(hints).await?;
    listener.listen(channel).await?;
    let told = stream::unfold((listener, proof), |(mut listener, mut proof)| async move {
        loop {
            let late = match &mut proof {
                Some(proof) => proof.late.as_mut().left_future(),
                None => pending().right_future(),
            };
            let told = match select(pin!(listener.try_recv()), late).await {
                Either::Left((told, _)) => told.ok()?,
                Either::Right((Ok(()), _)) => {
                    let proof = proof?;
                    proof.deaf.store(true, Ordering::Relaxed);
                    return None;
                }
                // Nothing was proven, and nothing refuted.
                Either::Right((Err(_), _)) => {
                    proof = None;
                    continue;
                }
            };
            let payload = told.map(|told| told.payload().to_owned());
            match &payload {
                // Somebody's proof; perhaps ours.
                Some(text) if text.starts_with(HELLO) => {
                    proof = proof.filter(|proof| proof.hello != *text);
                }
                _ => return Some((payload, (listener, proof))),
            }
        }
    });
    Ok(told.boxed())
}

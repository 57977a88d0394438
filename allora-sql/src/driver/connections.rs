//! The store's own connections to one database.
//!
//! A connection that was not released after a call is closed: the call failed, or was dropped in
//! the middle of it, and nothing is known of the connection then. The pool of sqlx would test it,
//! without a time limit, before another call gets its place; over a line that swallows everything
//! no call ever does. That pool is only used as the source of connections here.
#![expect(clippy::disallowed_methods, reason = "how long a connection was unused is real time")]

use super::{Conn, Lent, unless_refused};
use crate::timer::{pause, within};
use async_trait::async_trait;
use futures::{
    channel::oneshot,
    future::{BoxFuture, Either, FutureExt, select},
};
use sqlx::{Connection, Database, Pool};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// The least time between two attempts to connect in one place.
const PACE: Duration = Duration::from_secs(1);

/// The least time after which an attempt to connect is given up.
const ATTEMPT: Duration = Duration::from_secs(60);

/// A connection that was unused for longer is tested before the next call.
const UNTESTED: Duration = Duration::from_secs(1);

/// The longest life of a connection: a database that has moved, or changed its limits, is noticed.
const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// A bounded number of connections, each lent to one call at a time.
pub(crate) struct Connections<D: Database> {
    shared: Arc<Shared<D>>,
}

impl<D: Database> Clone for Connections<D> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

struct Shared<D: Database> {
    /// Makes connections, and never keeps one.
    source: Pool<D>,
    /// The application's pool, whose present settings new connections have.
    given: Option<Pool<D>>,
    /// The scripts that set up each session.
    session: Vec<String>,
    /// The longest wait of one call for its connection.
    timeout: Duration,
    /// A call that took longer has waited for a line that may be dead, and others with it.
    suspicious: Duration,
    places: Mutex<Places<D::Connection>>,
    is_closed: AtomicBool,
    /// Connections of an earlier one are not lent any more.
    epoch: AtomicU64,
}

struct Places<C> {
    /// Those with a connection that was used last at the end.
    free: Vec<Place<C>>,
    waiting: VecDeque<oneshot::Sender<Place<C>>>,
}

impl<C> Places<C> {
    /// Takes the connections that are not lent, and ends the attempts to make others.
    fn take_free(&mut self) -> Vec<Live<C>> {
        self.free.iter_mut().for_each(|place| place.attempt = None);
        self.free.iter_mut().filter_map(|place| place.live.take()).collect()
    }
}

/// Room for one connection.
struct Place<C> {
    live: Option<Live<C>>,
    /// The last attempt to connect.
    tried: Option<Instant>,
    /// An attempt that outlasted its call. The next call goes on with it: otherwise a server that
    /// needs longer for a new session than a call may take would never be connected to.
    attempt: Option<Attempt<C>>,
}

type Attempt<C> = BoxFuture<'static, sqlx::Result<C>>;

impl<C> Place<C> {
    /// Goes on with the earlier attempt, and with this one: the first of them that ends is taken.
    ///
    /// # Cancel safety
    /// The older of the two attempts stays in its place.
    async fn connect(&mut self, fresh: Attempt<C>) -> sqlx::Result<C> {
        // A line that has fallen silent holds the earlier attempt up, and not the fresh one.
        let fresh = match &mut self.attempt {
            None => fresh,
            Some(earlier) => match select(earlier, fresh).await {
                Either::Left((Err(_), fresh)) => fresh,
                Either::Left((Ok(conn), _)) | Either::Right((Ok(conn), _)) => {
                    self.attempt = None;
                    return Ok(conn);
                }
                Either::Right((Err(cause), _)) => return Err(cause),
            },
        };
        let made = self.attempt.insert(fresh).await;
        self.attempt = None;
        made
    }
}

struct Live<C> {
    conn: C,
    made: Instant,
    used: Instant,
    epoch: u64,
}

impl<D: Database> Connections<D>
where
    D::Connection: Conn,
{
    /// At most `count` connections as `source` makes them, set up by these scripts. A call waits for
    /// one as long as for a connection of `source`.
    pub(crate) fn new(
        source: Pool<D>,
        given: Option<Pool<D>>,
        count: u32,
        store_timeout: Duration,
        session: Vec<String>,
    ) -> Self {
        let options = source.options().clone();
        let timeout = options.get_acquire_timeout();
        // Two attempts for each place.
        let options = options.max_connections(2 * count).acquire_timeout(timeout.max(ATTEMPT));
        let source = options.connect_lazy_with((*source.connect_options()).clone());
        let free = (0..count).map(|_| Place { live: None, tried: None, attempt: None }).collect();
        Self {
            shared: Arc::new(Shared {
                source,
                given,
                session,
                timeout,
                suspicious: store_timeout / 2,
                places: Mutex::new(Places { free, waiting: VecDeque::new() }),
                is_closed: AtomicBool::new(false),
                epoch: AtomicU64::new(0),
            }),
        }
    }

    /// Lends a connection, when one is free.
    pub(crate) async fn lend(&self) -> sqlx::Result<Slot<D>> {
        if self.shared.is_closed.load(Ordering::Relaxed) {
            return Err(sqlx::Error::PoolClosed);
        }
        let mut slot = self.shared.clone().slot().await?;
        slot.make_ready().await?;
        Ok(slot)
    }

    /// Closes the connections: those that are lent, when they come back.
    pub(crate) async fn close(&self) {
        self.close_free().await;
        self.shared.source.close().await;
    }

    /// As [`close`](Self::close), without the end of their source.
    pub(crate) async fn close_free(&self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        let free = {
            let mut places = self.shared.places();
            places.waiting.clear();
            places.take_free()
        };
        for live in free {
            // The server may be gone.
            let _ = live.conn.close().await;
        }
    }

    /// Ends the connections: those that are lent, when they are to be lent again.
    #[cfg(feature = "sqlite")]
    pub(crate) fn renew(&self) {
        self.shared.epoch.fetch_add(1, Ordering::Relaxed);
        let free = self.shared.places().take_free();
        drop(free);
    }
}

impl<D: Database> Shared<D> {
    fn places(&self) -> MutexGuard<'_, Places<D::Connection>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a connection, and sets its session up.
    fn attempt(self: Arc<Self>, is_first: bool) -> Attempt<D::Connection>
    where
        D::Connection: Conn,
    {
        async move {
            if let Some(given) = &self.given {
                self.source.set_connect_options((*given.connect_options()).clone());
            }
            let acquiring = self.source.acquire();
            let mut conn = match is_first {
                true => acquiring.await?,
                false => {
                    let options = self.source.connect_options();
                    unless_refused(acquiring, D::Connection::connect_with(&options)).await?
                }
            }
            .detach();
            for text in &self.session {
                conn.script(super::sql(text.as_str())).await?;
            }
            Ok(conn)
        }
        .boxed()
    }

    async fn slot(self: Arc<Self>) -> sqlx::Result<Slot<D>> {
        let slot = |place, shared| Slot { place: Some(place), since: Instant::now(), shared };
        let waiting = {
            let mut places = self.places();
            match places.free.pop() {
                Some(place) => {
                    drop(places);
                    return Ok(slot(place, self));
                }
                None => {
                    let (sender, receiver) = oneshot::channel();
                    places.waiting.push_back(sender);
                    receiver
                }
            }
        };
        let mut waiting = Waiting::<D> { receiver: waiting, shared: self.clone() };
        let place = (&mut waiting.receiver).await.map_err(|_| sqlx::Error::PoolClosed)?;
        Ok(slot(place, self))
    }

    /// Passes a place on to the call that waits longest, or keeps it.
    fn put(&self, mut place: Place<D::Connection>) {
        if self.is_closed.load(Ordering::Relaxed) {
            (place.live, place.attempt) = (None, None);
        }
        loop {
            let waiting = {
                let mut places = self.places();
                match places.waiting.pop_front() {
                    Some(waiting) => waiting,
                    None => {
                        // The next call takes the last one.
                        let position = if place.live.is_some() { places.free.len() } else { 0 };
                        places.free.insert(position, place);
                        return;
                    }
                }
            };
            match waiting.send(place) {
                Ok(()) => return,
                // That call is over.
                Err(back) => place = back,
            }
        }
    }

    /// Closes the free connections that were not used since.
    fn drop_unused(&self, since: Instant) {
        let mut dead = Vec::new();
        let mut places = self.places();
        for place in &mut places.free {
            dead.extend(place.live.take_if(|live| live.used < since));
        }
        // Places without a connection are the last to be taken.
        places.free.sort_by_key(|place| place.live.is_some());
        drop(places);
    }
}

/// A call that waits for a place. Dropped with a place that it has not taken, it passes that on.
struct Waiting<D: Database> {
    receiver: oneshot::Receiver<Place<D::Connection>>,
    shared: Arc<Shared<D>>,
}

impl<D: Database> Drop for Waiting<D> {
    fn drop(&mut self) {
        self.receiver.close();
        if let Ok(Some(place)) = self.receiver.try_recv() {
            self.shared.put(place);
        }
    }
}

/// A lent connection. Dropped without being released, it is closed.
pub(crate) struct Slot<D: Database> {
    place: Option<Place<D::Connection>>,
    since: Instant,
    shared: Arc<Shared<D>>,
}

impl<D: Database> Slot<D> {
    /// The connection as the driver has it.
    pub(super) fn raw(&mut self) -> sqlx::Result<&mut D::Connection> {
        let live = self.place.as_mut().and_then(|place| place.live.as_mut());
        live.map(|live| &mut live.conn).ok_or(sqlx::Error::PoolClosed)
    }
}

impl<D: Database> Slot<D>
where
    D::Connection: Conn,
{
    /// Tests a connection that was unused for a while, or makes one.
    async fn make_ready(&mut self) -> sqlx::Result<()> {
        let Some(place) = &mut self.place else { return Ok(()) };
        let epoch = self.shared.epoch.load(Ordering::Relaxed);
        place.live.take_if(|live| live.epoch != epoch);
        if let Some(live) = &mut place.live {
            if live.used.elapsed() < UNTESTED {
                return Ok(());
            }
            if live.made.elapsed() < LIFETIME && live.conn.ping().await.is_ok() {
                live.used = Instant::now();
                return Ok(());
            }
            // The others of the same age have ended with it.
            let used = live.used;
            place.live = None;
            self.shared.drop_unused(used);
        }
        let is_first = place.tried.is_none();
        if let Some(tried) = place.tried {
            pause(PACE.saturating_sub(tried.elapsed())).await;
        }
        place.tried = Some(Instant::now());
        let fresh = self.shared.clone().attempt(is_first);
        let is_slow = place.attempt.is_some();
        let made = within(self.shared.timeout, place.connect(fresh)).await;
        let conn = made.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
        let now = Instant::now();
        let live = Live { conn, made: now, used: now, epoch };
        // Calls are cut here, and this one has little time left: cut with the connection in its hands
        // it would close that, and all later calls would go the same way.
        if is_slow && now - self.since >= self.shared.suspicious {
            let kept = self.place.take().map(|place| Place { live: Some(live), ..place });
            kept.into_iter().for_each(|place| self.shared.put(place));
            return Err(sqlx::Error::PoolTimedOut);
        }
        place.live = Some(live);
        Ok(())
    }
}

#[async_trait]
impl<D: Database> Lent for Slot<D>
where
    D::Connection: Conn,
{
    fn conn(&mut self) -> sqlx::Result<&mut dyn Conn> {
        self.raw().map(|conn| conn as &mut dyn Conn)
    }

    fn release(mut self: Box<Self>) {
        let Some(mut place) = self.place.take() else { return };
        if let Some(live) = &mut place.live {
            live.used = Instant::now();
        }
        self.shared.put(place);
    }
}

impl<D: Database> Drop for Slot<D> {
    fn drop(&mut self) {
        let Some(mut place) = self.place.take() else { return };
        place.live = None;
        if self.since.elapsed() >= self.shared.suspicious {
            self.shared.drop_unused(self.since);
        }
        self.shared.put(place);
    }
}

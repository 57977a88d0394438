//! An HTTP/1.1 server for a router, with limits that keep it answering.
//!
//! A head has 5 s and 8 KiB. When as many connections are open as there may be, the oldest one that waits
//! for its client gives way to a new one, so that half-open connections keep nobody from an answer.

use crate::failure::{Failure, Outcome, chain};
use allora_core::runtime::{Runtime, Tokio};
use axum::Router;
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{
    collections::BTreeMap,
    net::{self, IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
};
use tracing::warn;

/// The largest head of a request, in bytes.
const HEAD: usize = 8 * 1024;

/// The time in which a head must have come, counted from the connection or from the answer before.
const HEAD_TIME: Duration = Duration::from_secs(5);

/// The number of connections at a time, each of which is an open file.
const AT_A_TIME: usize = 512;

/// The wait after a connection that could not be accepted, as when no more files may be open.
const REST: Duration = Duration::from_millis(200);

/// The address from which a request comes, among its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// An address that is listened on.
#[derive(Debug)]
pub(crate) struct Server {
    listener: net::TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Takes the address that `--listen` names.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub(crate) fn bind(address: &str) -> Outcome<Self> {
        let bound = net::TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(Self { address: listener.local_addr()?, listener })
        });
        bound.map_err(|error| {
            Failure::failed(format!(
                "--listen {address}: {error}; name an address of this machine and a free port, as \
                 127.0.0.1:9117"
            ))
        })
    }

    /// The address, with the port that was chosen where none was named.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// True if only programs of this machine reach it.
    pub(crate) fn is_local(&self) -> bool {
        self.address.ip().is_loopback()
    }

    /// Serves the router until the process ends.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub(crate) async fn serve(self, router: Router, runtime: Tokio) -> Outcome {
        let listener = TcpListener::from_std(self.listener).map_err(|error| {
            Failure::failed(format!("--listen {}: {}", self.address, chain(&error)))
        })?;
        let seats = Arc::new(Mutex::new(Seats::default()));
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    if let Some(seat) = Seat::take(&seats) {
                        runtime.spawn(Box::pin(serve(
                            stream,
                            Peer(peer.ip()),
                            router.clone(),
                            seat,
                        )));
                    }
                }
                Err(error) => {
                    warn!(target: "allora", %error, "a connection to --listen was not accepted");
                    runtime.sleep_until(runtime.now() + REST).await;
                }
            }
        }
    }
}

/// Serves one connection until it ends, or gives way to another one.
async fn serve(stream: TcpStream, peer: Peer, router: Router, seat: Seat) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let (place, answer) = (seat.place.clone(), router.call(request));
        async move {
            place.is_answering.store(true, Relaxed);
            let answer = answer.await;
            place.is_answering.store(false, Relaxed);
            answer
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    // A client that is slow or gone is no concern of the server.
    tokio::select! { _ = connection => {}, () = seat.place.leave.notified() => {} }
}

/// The open connections, by their age.
#[derive(Debug, Default)]
struct Seats {
    taken: u64,
    open: BTreeMap<u64, Arc<Place>>,
}

/// An open connection, as others see it.
#[derive(Debug, Default)]
struct Place {
    /// A request has come, and its answer has not begun: the client waits for the server.
    is_answering: AtomicBool,
    leave: Notify,
}

/// An open connection, which ends when this is dropped.
#[derive(Debug)]
struct Seat {
    seats: Arc<Mutex<Seats>>,
    number: u64,
    place: Arc<Place>,
}

impl Seat {
    /// A seat for a new connection. If all are taken, the oldest one whose client is waited for becomes
    /// free; `None` if there is no such one.
    fn take(seats: &Arc<Mutex<Seats>>) -> Option<Self> {
        let mut all = seats.lock().unwrap_or_else(PoisonError::into_inner);
        if all.open.len() >= AT_A_TIME {
            let waits = |(_, place): &(&u64, &Arc<Place>)| !place.is_answering.load(Relaxed);
            let oldest = *all.open.iter().find(waits)?.0;
            all.open.remove(&oldest)?.leave.notify_one();
        }
        all.taken += 1;
        let (number, place) = (all.taken, Arc::new(Place::default()));
        all.open.insert(number, place.clone());
        Some(Self { seats: seats.clone(), number, place })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut all = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        all.open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn the_oldest_connection_that_waits_for_its_client_gives_way() {
        let seats = Arc::default();
        let open: Vec<Seat> = (0..AT_A_TIME).filter_map(|_| Seat::take(&seats)).collect();
        open[0].place.is_answering.store(true, Relaxed);
        let new = Seat::take(&seats).unwrap();
        let must_leave = |seat: &Seat| seat.place.leave.notified().now_or_never().is_some();
        let left: Vec<usize> = (0..AT_A_TIME).filter(|i| must_leave(&open[*i])).collect();
        assert_eq!(left, [1]);
        assert!(!must_leave(&new));
    }

    #[test]
    fn a_connection_that_has_ended_makes_room() {
        let seats: Arc<Mutex<Seats>> = Arc::default();
        for _ in 0..3 * AT_A_TIME {
            drop(Seat::take(&seats));
        }
        assert_eq!(seats.lock().unwrap().open.len(), 0);
        let open: Vec<Seat> = (0..AT_A_TIME).filter_map(|_| Seat::take(&seats)).collect();
        open.iter().for_each(|seat| seat.place.is_answering.store(true, Relaxed));
        assert!(Seat::take(&seats).is_none(), "nobody waits for a client");
    }
}

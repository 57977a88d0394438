//! A way to a member that can be cut and slowed down.

use crate::stores::{pause, runtime};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

#[derive(Default)]
struct Gates {
    /// Nothing passes to the member.
    mute: AtomicBool,
    /// Nothing passes back.
    deaf: AtomicBool,
    /// Milliseconds that everything takes on the way back.
    delay: AtomicU64,
    /// The number of connections so far.
    connections: AtomicU64,
    /// Nothing passes on the connections before this one.
    lost: AtomicU64,
}

pub(super) struct Proxy {
    port: u16,
    gates: Arc<Gates>,
}

impl Proxy {
    pub(super) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), gates: Arc::default() };
        let gates = proxy.gates.clone();
        runtime().spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let gates = gates.clone();
                let number = gates.connections.fetch_add(1, Ordering::SeqCst);
                runtime().spawn(async move {
                    let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                    let (near, far) = (near.into_split(), far.into_split());
                    let none = AtomicU64::new(0);
                    let lost = |gate: &AtomicBool| {
                        gate.load(Ordering::SeqCst) || number < gates.lost.load(Ordering::SeqCst)
                    };
                    let there = pass(near.0, far.1, || lost(&gates.mute), &none);
                    let back = pass(far.0, near.1, || lost(&gates.deaf), &gates.delay);
                    futures::future::select(Box::pin(there), Box::pin(back)).await;
                });
            }
        });
        proxy
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Nothing passes, and neither side receives an error.
    pub(super) fn cut(&self, cut: bool) {
        self.gates.mute.store(cut, Ordering::SeqCst);
        self.hold_replies(cut);
    }

    /// Nothing passes any more on the connections that are open, and neither side receives an error:
    /// as behind a firewall that has forgotten them. New ones are passed on.
    pub(super) fn lose_connections(&self) {
        let all = self.gates.connections.load(Ordering::SeqCst);
        self.gates.lost.store(all, Ordering::SeqCst);
    }

    /// Nothing passes, on new connections either, and what is sent is lost: what was opened meanwhile
    /// stays of no use when something passes again.
    pub(super) fn lose_everything(&self, lose: bool) {
        let all = self.gates.connections.load(Ordering::SeqCst);
        self.gates.lost.store(if lose { u64::MAX } else { all }, Ordering::SeqCst);
    }

    /// Replies take this long.
    pub(super) fn delay_replies(&self, ms: u64) {
        self.gates.delay.store(ms, Ordering::SeqCst);
    }

    /// Replies do not pass.
    pub(super) fn hold_replies(&self, deaf: bool) {
        self.gates.deaf.store(deaf, Ordering::SeqCst);
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    is_shut: impl Fn() -> bool,
    delay: &AtomicU64,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read) = from.read(&mut buffer).await {
        pause(delay.load(Ordering::SeqCst)).await;
        while is_shut() {
            pause(10).await;
        }
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

//! A line between a node and its server that is cut when the server has answered and the node has
//! not heard it.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    thread,
};

/// Stands between a node and its server.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    /// Number of answers that go through before one does not.
    fuse: Arc<AtomicI64>,
    /// Number of answers that were cut off.
    cuts: Arc<AtomicU64>,
}

impl Proxy {
    /// So many answers that none is cut off.
    pub const NEVER: i64 = i64::MAX / 2;

    /// Passes everything on to `server`, as `127.0.0.1:5432`, and cuts every `every`th answer off,
    /// with its connection. Goes on until the process ends.
    ///
    /// # Errors
    /// If there is no free port.
    pub fn new(server: String, every: i64) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let fuse = Arc::new(AtomicI64::new(every));
        let cuts: Arc<AtomicU64> = Arc::default();
        let shared = (fuse.clone(), cuts.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A server that is down is for the client to notice.
                let _ = TcpStream::connect(&server)
                    .and_then(|server| join(client, server, every, shared.clone()));
            }
        });
        Ok(Self { port, fuse, cuts })
    }

    /// The port of this machine to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets so many answers through before it cuts one off.
    pub fn cut_after(&self, answers: i64) {
        self.fuse.store(answers, Ordering::SeqCst);
    }

    /// Number of answers that were cut off so far.
    pub fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }
}

fn join(
    client: TcpStream,
    server: TcpStream,
    every: i64,
    (fuse, cuts): (Arc<AtomicI64>, Arc<AtomicU64>),
) -> io::Result<()> {
    let questions = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || pass(questions.0, questions.1, || true));
    thread::spawn(move || {
        pass(server, client, || {
            let whole = fuse.fetch_sub(1, Ordering::SeqCst) != 0;
            if !whole {
                fuse.store(every, Ordering::SeqCst);
                cuts.fetch_add(1, Ordering::SeqCst);
            }
            whole
        });
    });
    Ok(())
}

/// Passes bytes on until there are no more, or until it may not.
fn pass(mut from: TcpStream, mut to: TcpStream, may: impl Fn() -> bool) {
    let mut bytes = [0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if !may() || to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    // Either may be closed already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

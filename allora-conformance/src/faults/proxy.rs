//! A line between a node and its server that is cut, or falls silent, when the server has answered
//! and the node has not received it.

use std::{
    cell::Cell,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// Stands between a node and its server.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    /// Number of answers that go through before one does not.
    fuse: Arc<AtomicI64>,
    /// Number of answers that were cut off.
    cuts: Arc<AtomicU64>,
    silence: Arc<Silence>,
    delay: Arc<Delay>,
}

/// The time that answers take more, in milliseconds.
#[derive(Debug, Default)]
struct Delay {
    each: AtomicU64,
    /// Of the first answer of each connection.
    first: AtomicU64,
}

impl Delay {
    fn set(of: &AtomicU64, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(86_400_000);
        of.store(ms, Ordering::SeqCst);
    }
}

/// Connections that pass nothing on any more, and stay open.
#[derive(Debug)]
struct Silence {
    /// Number of answers that go through before the connections fall silent.
    fuse: AtomicI64,
    /// The connections of lower numbers are silent.
    below: AtomicU64,
    /// Number of connections so far.
    connections: AtomicU64,
}

impl Silence {
    fn begin(&self) {
        self.below.store(self.connections.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    fn holds(&self, connection: u64) -> bool {
        connection < self.below.load(Ordering::SeqCst)
    }
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
        let silence = Arc::new(Silence {
            fuse: AtomicI64::new(Self::NEVER),
            below: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        });
        let delay: Arc<Delay> = Arc::default();
        let shared = (fuse.clone(), cuts.clone(), silence.clone(), delay.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A server that is down is for the client to notice.
                let _ = TcpStream::connect(&server)
                    .and_then(|server| join(client, server, every, shared.clone()));
            }
        });
        Ok(Self { port, fuse, cuts, silence, delay })
    }

    /// The port of this machine to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets so many answers through before it cuts one off.
    pub fn cut_after(&self, answers: i64) {
        self.fuse.store(answers, Ordering::SeqCst);
    }

    /// Makes each answer arrive later by this time, of at most a day.
    pub fn delay(&self, time: Duration) {
        Delay::set(&self.delay.each, time);
    }

    /// Makes the first answer of each connection arrive later by this time, of at most a day: a server
    /// that needs long for a new session.
    pub fn delay_first(&self, time: Duration) {
        Delay::set(&self.delay.first, time);
    }

    /// Makes the present connections fall silent: each stays open and passes nothing on any more,
    /// in either direction. Later connections work.
    pub fn fall_silent(&self) {
        self.silence.begin();
    }

    /// As [`fall_silent`](Self::fall_silent), after so many answers; the one after them is lost.
    pub fn fall_silent_after(&self, answers: i64) {
        self.silence.fuse.store(answers, Ordering::SeqCst);
    }

    /// `true` if connections have fallen silent.
    pub fn is_silent(&self) -> bool {
        self.silence.below.load(Ordering::SeqCst) > 0
    }

    /// Number of connections so far.
    pub fn connections(&self) -> u64 {
        self.silence.connections.load(Ordering::SeqCst)
    }

    /// Number of answers that were cut off so far.
    pub fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }
}

#[expect(clippy::disallowed_methods, reason = "a slow line is slow in real time")]
fn join(
    client: TcpStream,
    server: TcpStream,
    every: i64,
    (fuse, cuts, silence, delay): (Arc<AtomicI64>, Arc<AtomicU64>, Arc<Silence>, Arc<Delay>),
) -> io::Result<()> {
    let questions = (client.try_clone()?, server.try_clone()?);
    let connection = silence.connections.fetch_add(1, Ordering::SeqCst);
    let is_silent = silence.clone();
    thread::spawn(move || {
        pass(questions.0, questions.1, || match is_silent.holds(connection) {
            true => Fate::Lost,
            false => Fate::Passed,
        });
    });
    thread::spawn(move || {
        let is_first = Cell::new(true);
        pass(server, client, || {
            let first = if is_first.take() { delay.first.load(Ordering::SeqCst) } else { 0 };
            thread::sleep(Duration::from_millis(first + delay.each.load(Ordering::SeqCst)));
            if !silence.holds(connection) && silence.fuse.fetch_sub(1, Ordering::SeqCst) == 0 {
                silence.begin();
            }
            if silence.holds(connection) {
                return Fate::Lost;
            }
            if fuse.fetch_sub(1, Ordering::SeqCst) != 0 {
                return Fate::Passed;
            }
            fuse.store(every, Ordering::SeqCst);
            cuts.fetch_add(1, Ordering::SeqCst);
            Fate::Cut
        });
    });
    Ok(())
}

/// The fate of bytes that were read.
enum Fate {
    Passed,
    /// The connection stays open.
    Lost,
    /// The connection ends.
    Cut,
}

/// Passes bytes on until there are no more, or until it may not.
fn pass(mut from: TcpStream, mut to: TcpStream, fate: impl Fn() -> Fate) {
    let mut bytes = [0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        match fate() {
            Fate::Lost => {}
            Fate::Passed if to.write_all(&bytes[..read]).is_ok() => {}
            Fate::Passed | Fate::Cut => break,
        }
    }
    // Either may be closed already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

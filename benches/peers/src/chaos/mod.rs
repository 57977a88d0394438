//! Workers of `cargo xtask chaos --peer`, and what is in their store before. `allora prove` starts four of these
//! processes, kills, freezes and replaces them, and judges what they wrote down.
//!
//! - `chaos PEER set-up JOBS SECONDS URL`: so many jobs, due every second.
//! - `chaos PEER work LOG NUMBER URL`: runs them until the standard input is closed.

mod durare;
mod graphile_worker;

use serde::{Deserialize, Serialize};
use std::{
    fs::{File, OpenOptions},
    io::{Read, Write, stdin},
    process::{exit, id},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, SystemTime},
};

/// The duration of a run, the time after which a dead worker's runs are to begin again, and the time that a stopping
/// worker gives to its runs: those of allora in its trials.
const WORK: Duration = Duration::from_millis(300);
const LEASE: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_secs(2);

/// The wait before another attempt to connect.
const AGAIN: Duration = Duration::from_millis(500);

/// The longest time of a stop: the server may be away.
const STOPPED: Duration = Duration::from_secs(10);

static STOP: AtomicBool = AtomicBool::new(false);

/// Of a job of this number, at this time in milliseconds since 1970.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Occurrence {
    job: u64,
    at: i64,
}

/// The log that all workers append to, in the format of allora's history checker.
struct Log {
    file: File,
    node: String,
}

pub(crate) async fn run(words: &[String]) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [peer, "set-up", jobs, seconds, url] => {
            let (jobs, seconds) = (jobs.parse().unwrap(), seconds.parse().unwrap());
            match peer {
                "durare" => durare::set_up(jobs, url).await,
                _ => graphile_worker::set_up(jobs, seconds, url).await,
            }
        }
        [peer, "work", log, number, url] => {
            thread::spawn(end_with_stdin);
            // A worker that is replaced ends first: its place, and with durare its name, is taken by one at a time.
            let place = File::create(format!("{log}-{number}")).unwrap();
            place.lock().unwrap();
            let log: &'static Log = Box::leak(Box::new(Log::open(log, number)));
            match peer {
                "durare" => durare::work(log, number, url).await,
                _ => graphile_worker::work(log, url).await,
            }
        }
        _ => panic!("`chaos {}`?", words.join(" ")),
    }
}

/// A stop is asked for by the end of the standard input.
fn end_with_stdin() {
    let _ = stdin().read_to_end(&mut Vec::new());
    STOP.store(true, Ordering::Relaxed);
    thread::sleep(STOPPED);
    exit(0);
}

/// Returns when a stop was asked for.
async fn stopped() {
    while !STOP.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Log {
    fn open(path: &str, number: &str) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        Self { file, node: format!("{number}-{}", id()) }
    }

    /// A run of this fence has begun, whose number is larger than those of earlier runs of the job.
    fn begin(&self, run: Occurrence, fence: i64) {
        let at = run.at;
        let claim =
            format!(r#""claim","occurrence":{at},"fence":{fence},"attempt":1,"until":null"#);
        let start = format!(r#""start","occurrence":{at},"fence":{fence}"#);
        self.write(run, &[claim, start]);
    }

    /// The peer has been told that the end of this run is recorded.
    fn end(&self, run: Occurrence, fence: i64) {
        let at = run.at;
        let end = format!(r#""end","occurrence":{at},"fence":{fence},"outcome":"succeeded""#);
        self.write(run, &[end]);
    }

    /// In one write, which survives a killed process.
    fn write(&self, run: Occurrence, events: &[String]) {
        let (node, now) = (&self.node, micros() / 1_000);
        let job = match run.job {
            0 => "at-least-once".to_owned(),
            number => format!("at-least-once-{number}"),
        };
        let lines = events.iter().map(|event| {
            format!("{{\"job\":\"{job}\",\"node\":\"{node}\",\"at\":{now},\"what\":{event}}}\n")
        });
        (&self.file).write_all(lines.collect::<String>().as_bytes()).unwrap();
    }
}

/// Microseconds since 1970.
fn micros() -> i64 {
    i64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap()
}

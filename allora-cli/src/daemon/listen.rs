//! `--listen`: the pages of a daemon over HTTP/1.1, for probes and for Prometheus.
//!
//! A request is its head alone, of at most 8 KiB, and has 5 s. At most 32 connections are served at a
//! time, one request each; others wait. Nothing that is asked changes anything.

use super::metrics::Metrics;
use crate::failure::{Failure, Outcome};
use allora_core::{
    ActiveCondition, Condition, Handle,
    runtime::{Runtime, Tokio},
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tracing::{info, warn};

/// The largest head of a request, in bytes.
const HEAD: usize = 8 * 1024;

/// The time that a request and its answer may take.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// The number of connections at a time.
const AT_A_TIME: usize = 32;

/// The wait after a connection that could not be accepted, as when no more files may be open.
const REST: Duration = Duration::from_millis(200);

/// The contents of the pages.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Set when the store was reached.
    pub(crate) scheduler: OnceLock<Handle>,
    pub(crate) metrics: Metrics,
}

/// The answer to a request.
struct Answer {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Answer {
    fn text(status: &'static str, body: impl Into<String>) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: body.into() }
    }
}

/// Serves the pages until the process ends.
///
/// # Errors
/// The address cannot be listened on.
pub(crate) async fn listen(address: &str, pages: Arc<Pages>, runtime: &Tokio) -> Outcome {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::failed(format!(
            "--listen {address}: {error}; name an address of this machine and a free port, as \
             127.0.0.1:9117"
        ))
    })?;
    let local = listener.local_addr().map_or_else(|_| address.to_owned(), |at| at.to_string());
    info!(target: "allora", address = local, "listening for /healthz, /readyz and /metrics");
    let of_all = runtime.clone();
    runtime.spawn(Box::pin(async move {
        let runtime = of_all;
        let turns = Arc::new(Semaphore::new(AT_A_TIME));
        loop {
            let Ok(turn) = turns.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let pages = pages.clone();
                    runtime.spawn(Box::pin(async move {
                        // A client that is slow or gone is no concern of the daemon.
                        let _ = tokio::time::timeout(TIME_LIMIT, serve(stream, &pages)).await;
                        drop(turn);
                    }));
                }
                Err(error) => {
                    warn!(target: "allora", %error, "a connection to --listen was not accepted");
                    runtime.sleep_until(runtime.now() + REST).await;
                }
            }
        }
    }));
    Ok(())
}

async fn serve(mut stream: TcpStream, pages: &Pages) -> std::io::Result<()> {
    let mut head = Vec::with_capacity(512);
    let answer = loop {
        let mut piece = [0; 1_024];
        let read = stream.read(&mut piece).await?;
        head.extend_from_slice(&piece[..read]);
        if let Some(end) = end_of_head(&head) {
            break answer(&head[..end], pages);
        }
        if head.len() > HEAD {
            break (Answer::text("431 Request Header Fields Too Large", "at most 8 KiB\n"), true);
        }
        if read == 0 {
            return Ok(());
        }
    };
    let (Answer { status, kind, body }, has_body) = answer;
    let length = body.len();
    let mut message = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    );
    if has_body {
        message.push_str(&body);
    }
    stream.write_all(message.as_bytes()).await?;
    stream.shutdown().await
}

/// Where the head ends: behind its empty line.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let crlf = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    let lf = bytes.windows(2).position(|two| two == b"\n\n").map(|at| at + 2);
    crlf.into_iter().chain(lf).min()
}

/// The answer to the request of this head, and `true` if its body is to be sent.
fn answer(head: &[u8], pages: &Pages) -> (Answer, bool) {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = str::from_utf8(line).unwrap_or_default().trim_end_matches('\r');
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else {
        return (Answer::text("400 Bad Request", "this is not an HTTP/1 request\n"), true);
    };
    if !version.starts_with("HTTP/1.") {
        return (Answer::text("400 Bad Request", "this is not an HTTP/1 request\n"), true);
    }
    let has_body = match method {
        "GET" => true,
        "HEAD" => false,
        _ => return (Answer::text("405 Method Not Allowed", "use GET\n"), true),
    };
    (page(target.split('?').next().unwrap_or_default(), pages), has_body)
}

fn page(path: &str, pages: &Pages) -> Answer {
    match path {
        // The process answers. A restart would not repair a store that is away.
        "/healthz" => Answer::text("200 OK", "ok\n"),
        "/readyz" => match pages.scheduler.get() {
            None => Answer::text("503 Service Unavailable", "waiting for the store\n"),
            Some(scheduler) => {
                let health = scheduler.health();
                let is_of_store = |one: &ActiveCondition| {
                    matches!(
                        one.condition,
                        Condition::StoreDown { .. } | Condition::StoreRejects { .. }
                    )
                };
                let is_ready = !health.conditions.iter().any(is_of_store)
                    && health.store.last_reply.is_some()
                    && !health.is_stopping;
                let status = if is_ready { "200 OK" } else { "503 Service Unavailable" };
                Answer::text(status, format!("{health}\n"))
            }
        },
        "/metrics" => Answer {
            status: "200 OK",
            kind: "text/plain; version=0.0.4; charset=utf-8",
            body: pages.metrics.text(pages.scheduler.get()),
        },
        _ => Answer::text("404 Not Found", "there are /healthz, /readyz and /metrics\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &str) -> (&'static str, bool) {
        let (answer, has_body) = answer(head.as_bytes(), &Pages::default());
        (&answer.status[..3], has_body)
    }

    #[test]
    fn requests_are_answered_by_method_and_path() {
        for (line, is) in [
            ("GET /healthz HTTP/1.1", ("200", true)),
            ("HEAD /healthz HTTP/1.0", ("200", false)),
            ("GET /healthz?a=b HTTP/1.1", ("200", true)),
            ("GET /readyz HTTP/1.1", ("503", true)),
            ("GET /metrics HTTP/1.1", ("200", true)),
            ("GET / HTTP/1.1", ("404", true)),
            ("POST /healthz HTTP/1.1", ("405", true)),
            ("GET /healthz", ("400", true)),
            ("GET  /healthz HTTP/1.1", ("400", true)),
            ("GET /healthz HTTP/2", ("400", true)),
            ("\u{7f}", ("400", true)),
            ("", ("400", true)),
        ] {
            assert_eq!(status(&format!("{line}\r\nHost: x\r\n\r\n")), is, "{line}");
        }
    }

    #[test]
    fn a_head_ends_with_its_empty_line() {
        for (text, end) in
            [("a\r\n\r\nb", Some(5)), ("a\n\nb", Some(3)), ("a\r\n", None), ("", None)]
        {
            assert_eq!(end_of_head(text.as_bytes()), end, "{text:?}");
        }
    }
}

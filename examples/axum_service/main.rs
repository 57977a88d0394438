//! A service that runs the schedules that its customers add through its API:
//! `cargo run --example axum_service`, and then
//!
//! ```console
//! $ curl -d '{"name":"acme/ping","kind":"greet","schedule":"@every 5s","data":{"whom":"Ann"}}' \
//!        -H 'content-type: application/json' localhost:3000/schedules
//! $ curl localhost:3000/schedules
//! $ curl -X POST -H 'idempotency-key: order-7' localhost:3000/trigger/acme/ping
//! $ curl -X DELETE localhost:3000/schedules/acme/ping
//! $ curl localhost:3000/health localhost:3000/jobs
//! ```
//!
//! Every instance of the service runs a scheduler beside its web server. With a store that the
//! instances share, a schedule may be added on any instance, and any instance may run it.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

mod api;
mod status;

use allora::{BoxError, Memory, Run, Scheduler, Schedules};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = Memory::new();
    let schedules = Schedules::new(store.clone())?;
    let scheduler = scheduler(store)?;
    let handle = scheduler.handle();
    let runs = tokio::spawn(scheduler.run());

    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("http://{}/schedules; Ctrl-C ends it", listener.local_addr()?);
    let pages = api::router(schedules).merge(status::router(handle.clone()));
    axum::serve(listener, pages)
        .with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await })
        .await?;
    // No request is served any more; what runs may end.
    handle.stop();
    runs.await?;
    Ok(())
}

fn scheduler(store: Memory) -> allora::Result<Scheduler> {
    Scheduler::builder(store)
        .kind("greet", async |run: Run, data: serde_json::Value| -> Result<(), BoxError> {
            let whom = data["whom"].as_str().ok_or("`whom` is missing")?;
            println!("{} {}: good day, {whom}", run.scheduled_at().format("%T"), run.name());
            Ok(())
        })
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    /// The status of a request, and the body of its answer.
    async fn ask(at: std::net::SocketAddr, request: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(at).await.unwrap();
        let head = "Host: here\r\nConnection: close\r\nContent-Type: application/json\r\n\
                    Idempotency-Key: order-7";
        let len = body.len();
        let text = format!("{request} HTTP/1.1\r\n{head}\r\nContent-Length: {len}\r\n\r\n{body}");
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    #[tokio::test]
    async fn a_schedule_that_is_added_through_the_api_is_run() {
        let store = Memory::new();
        let schedules = Schedules::new(store.clone()).unwrap();
        let scheduler = scheduler(store).unwrap();
        let handle = scheduler.handle();
        let runs = tokio::spawn(scheduler.run());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let pages = api::router(schedules).merge(status::router(handle.clone()));
        tokio::spawn(async { axum::serve(listener, pages).await });

        let new =
            r#"{"name":"acme/ping","kind":"greet","schedule":"@daily","data":{"whom":"Ann"}}"#;
        let (status, body) = ask(at, "POST /schedules", new).await;
        assert!(status == 201 && body.contains("\"scheduled_at\":\""), "{status} {body}");
        assert_eq!(ask(at, "POST /schedules", new).await.0, 409);
        let (status, body) = ask(at, "POST /schedules", &new.replace("@daily", "* * *")).await;
        assert!(status == 422 && body.contains("column"), "{status} {body}");

        assert_eq!(ask(at, "POST /trigger/acme/ping", "").await.0, 202);
        let mut body = String::new();
        for _ in 0..1_200 {
            body = ask(at, "GET /schedules/acme/ping", "").await.1;
            if body.contains("\"succeeded\":1") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(body.contains("\"succeeded\":1"), "{body}");
        assert_eq!(ask(at, "POST /trigger/acme/ping", "").await.0, 200, "not again");

        assert_eq!(ask(at, "DELETE /schedules/acme/ping", "").await.0, 204);
        assert_eq!(ask(at, "DELETE /schedules/acme/ping", "").await.0, 404);
        assert_eq!(ask(at, "GET /schedules", "").await, (200, "[]".to_owned()));
        let (status, body) = ask(at, "GET /health", "").await;
        assert!(status == 200 && body.starts_with("ok: node "), "{status} {body}");
        assert_eq!(ask(at, "GET /jobs", "").await, (200, "[]".to_owned()));
        handle.stop();
        runs.await.unwrap();
    }
}

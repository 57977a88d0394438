//! The console in a service of actix, below `/ops/allora`:
//! `cargo run -p allora-example-actix-console --example actix_console`, then open
//! <http://127.0.0.1:3000/ops/allora/>.
//!
//! Whatever can call a service of tower can mount the console. For actix, `mount.rs` translates requests and answers.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

mod mount;

use actix_web::{App, HttpServer, dev::Server, rt::System, web};
use allora::{BoxError, Memory, Schedules, StoredSchedule};
use allora_console::{Access, Console, Scope};
use mount::mount;
use std::{io, net::SocketAddr};

fn main() -> Result<(), BoxError> {
    System::new().block_on(async {
        let schedules = Schedules::new(Memory::new())?;
        schedules.add(&StoredSchedule::new("acme/report", "report", "0 9 * * MON-FRI")).await?;
        let (server, address) = serve("127.0.0.1:3000", schedules)?;
        println!("http://{address}/ops/allora/; Ctrl-C ends it");
        Ok(server.await?)
    })
}

/// The service, and the address on which it listens.
fn serve(address: &str, schedules: Schedules) -> io::Result<(Server, SocketAddr)> {
    let console = Console::new(schedules)
        .title("billing")
        // Here the service says who asks, whom it has authenticated by its own means.
        .access(|_| Some(Access::reader("ann").with(Scope::Run)))
        .allow_actions()
        .into_router();
    let app = move || {
        App::new()
            .route("/", web::get().to(async || "the service"))
            .configure(mount("/ops/allora", console.clone()))
    };
    // Pages that stay open have a stream each, for which the end of the service does not wait longer.
    let server = HttpServer::new(app).workers(2).shutdown_timeout(5).bind(address)?;
    let address = server.addrs()[0];
    Ok((server.run(), address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        time::timeout,
    };

    async fn send(at: SocketAddr, request: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(at).await.unwrap();
        let head = "Connection: close\r\nSec-Fetch-Site: same-origin\r\n\
                    Content-Type: application/x-www-form-urlencoded";
        let len = body.len();
        let text = format!(
            "{request} HTTP/1.1\r\nHost: {at}\r\n{head}\r\nContent-Length: {len}\r\n\r\n{body}"
        );
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// The answer to a request, with its head.
    async fn ask(at: SocketAddr, request: &str, body: &str) -> String {
        let mut answer = String::new();
        send(at, request, body).await.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Reads until this text has come.
    async fn read_to(stream: &mut TcpStream, text: &str) {
        let mut all = String::new();
        while !all.contains(text) {
            let mut bytes = [0; 1024];
            let read = timeout(Duration::from_secs(60), stream.read(&mut bytes)).await;
            let read = read.unwrap_or_else(|_| panic!("no {text:?} in {all}")).unwrap();
            assert_ne!(read, 0, "it ended without {text:?}: {all}");
            all += str::from_utf8(&bytes[..read]).unwrap();
        }
    }

    #[test]
    fn pages_forms_redirects_and_the_stream_work_below_the_path() {
        System::new().block_on(async {
            let schedules = Schedules::new(Memory::new()).unwrap();
            let job = |name| StoredSchedule::new(name, "report", "@daily");
            schedules.add(&job("acme/report")).await.unwrap();
            let (server, at) = serve("127.0.0.1:0", schedules.clone()).unwrap();
            let handle = server.handle();
            let running = actix_web::rt::spawn(server);

            assert!(ask(at, "GET /", "").await.ends_with("the service"));
            let slash = ask(at, "GET /ops/allora?zone=UTC", "").await;
            assert!(slash.starts_with("HTTP/1.1 308 "), "{slash}");
            assert!(slash.contains("location: ./allora/?zone=UTC\r\n"), "{slash}");
            for (page, says) in [
                ("", "1 job in all"),
                ("jobs?q=acme", "acme/report"),
                ("job?name=acme%2Freport", "Definition"),
                ("console.css", "--"),
            ] {
                let answer = ask(at, &format!("GET /ops/allora/{page}"), "").await;
                assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(says), "{answer}");
                assert!(answer.contains("content-security-policy: "), "{answer}");
                assert!(
                    !answer.contains("href=\"/") && !answer.contains("content-length"),
                    "{answer}"
                );
            }
            let lost = ask(at, "GET /ops/allora/nowhere", "").await;
            assert!(lost.starts_with("HTTP/1.1 404 ") && lost.contains("No such page"), "{lost}");
            assert!(ask(at, "GET /ops/alloras", "").await.starts_with("HTTP/1.1 404 "));

            let form = "do=trigger&name=acme%2Freport&id=7";
            let done = ask(at, "POST /ops/allora/act", form).await;
            assert!(done.starts_with("HTTP/1.1 303 ") && done.contains("done=trigger"), "{done}");
            assert_eq!(schedules.cancel("acme/report").await.unwrap(), 1);

            let mut events = send(at, "GET /ops/allora/events", "").await;
            // The watcher has subscribed.
            read_to(&mut events, "data: changed").await;
            schedules.add(&job("acme/other")).await.unwrap();
            read_to(&mut events, "data: changed").await;
            drop(events);
            handle.stop(false).await;
            running.await.unwrap().unwrap();
        });
    }
}

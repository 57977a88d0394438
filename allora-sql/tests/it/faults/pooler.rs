//! Poolers: one that takes `LISTEN` and passes no notification on, and PgBouncer.

use crate::{
    calls::{STORE, change, create, get},
    stores::{Db, on, runtime},
};
use allora_conformance::environment;
use allora_core::{
    Backend, Condition, ErrorKind, Event, Run, Scheduler, Schedules, StoredSchedule,
    backend::{Action, NewSchedule},
};
use allora_sql::{Sql, SqlxPool as _};
use futures::{StreamExt, channel::mpsc};
use sqlx::{Connection, Executor, PgConnection, Row};
use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
    time::Duration,
};

/// A line to a PostgreSQL server that loses its notifications, and nothing else; its port.
fn line_without_notifications(server: String) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(&server).unwrap();
            let (mut asks, mut asked) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || {
                // When one side has closed, the other side is shut down.
                let _ = io::copy(&mut asks, &mut asked);
                let _ = asked.shutdown(Shutdown::Both);
            });
            thread::spawn(move || {
                let _ = answers(&server, &client);
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    port
}

/// Passes messages on: a letter, a length that counts itself, and so many bytes.
fn answers(mut server: &TcpStream, mut client: &TcpStream) -> io::Result<()> {
    loop {
        let mut message = vec![0; 5];
        server.read_exact(&mut message)?;
        let [letter, length @ ..] = [0, 1, 2, 3, 4].map(|i| message[i]);
        message.resize(1 + u32::from_be_bytes(length) as usize, 0);
        server.read_exact(&mut message[5..])?;
        if letter != b'A' {
            client.write_all(&message)?;
        }
    }
}

#[test]
fn without_notifications_behind_a_pooler_the_poll_finds_work_and_an_event_says_so() {
    on(Db::Postgres, async |place| {
        let (user, rest) = place.url.split_once('@').unwrap();
        let (server, database) = rest.split_once('/').unwrap();
        let mut through = place.beside_nothing();
        let port = line_without_notifications(server.to_owned());
        through.url = format!("{user}@127.0.0.1:{port}/{database}");
        let (direct, deaf) = (place.open().await, through.open().await);
        let mut notifications = direct.notifier().unwrap().subscribe().await.unwrap();
        let (told, mut heard) = mpsc::unbounded();
        let (tell, mut ran) = mpsc::unbounded();
        let scheduler = Scheduler::builder(deaf)
            .poll_interval(Duration::from_millis(500))
            .kind("k", async move |run: Run| {
                let _ = tell.unbounded_send(run.name().to_owned());
            })
            .on_event(move |event| {
                if let Event::Began(Condition::NotificationsDown { error, .. }) = event {
                    let _ = told.unbounded_send(error.clone());
                }
            })
            .build()
            .unwrap();
        let test = async {
            let said = heard.next().await.unwrap();
            assert!(said.contains("pooler") && said.contains("only the poll finds"), "{said}");
            let schedules = Schedules::new(direct.clone()).unwrap();
            schedules.add(&StoredSchedule::new("a", "k", "@every 1h")).await.unwrap();
            let trigger = Action::trigger("t");
            change(&direct, "a", trigger, STORE).await.unwrap();
            assert_eq!(ran.next().await.unwrap(), "a");
            // The direct store receives every notification and no warning.
            assert!(notifications.next().await.is_some());
        };
        let _ = scheduler.run_until(test).await;
        heard.close();
        assert!(heard.next().await.is_none(), "it is said once");
        drop(notifications);
        direct.close().await;
    });
}

/// Statements of one client would be prepared in another one's session.
#[test]
fn a_pooler_of_transactions_is_refused_with_its_remedy_and_one_of_sessions_works() {
    let Some(url) = environment::address("postgres", "ALLORA_TEST_PGBOUNCER_URL") else { return };
    runtime().block_on(async {
        let error = Sql::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("pool_mode = session"), "{error}");
        let pool = sqlx::PgPool::connect_lazy(&url).unwrap();
        let error = Sql::builder().postgres_pool(pool).await.unwrap_err();
        assert!(error.to_string().contains("pool_mode = session"), "{error}");
        // The sessions of its other clients are as before.
        let mut client = PgConnection::connect(&url).await.unwrap();
        let row = client.fetch_one(sqlx::raw_sql("SHOW statement_timeout")).await.unwrap();
        assert_eq!(row.get::<String, _>(0), "0");

        let Some(mut place) = Db::Postgres.place() else { return };
        place.url = url.replacen("/postgres", "/session", 1);
        let sql = place.builder().history(10).connect(&place.url).await.unwrap();
        create(&sql, "a", NewSchedule::new("k", "d", None), STORE).await.unwrap();
        assert_eq!(get(&sql, "a").await.unwrap().kind, "k");
        sql.close().await;
        place.clear().await;
    });
}

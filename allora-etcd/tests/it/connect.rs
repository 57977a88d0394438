//! Opening a store, and the errors when it cannot be opened.

use crate::{
    faults::members::{Members, Papers},
    stores::{Single, members, patient, pause, runtime},
};
use allora_conformance::{a_days_work, faults::Proxy};
use allora_core::{
    Backend, Error, ErrorKind, Result, Time,
    backend::{Action, Batch, NewSchedule, Operation, Reply, TimeSource},
};
use allora_etcd::{
    Etcd, EtcdBuilder, Tls,
    etcd_client::{Client, ConnectOptions, Permission},
};
use std::{error::Error as _, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// A password that must be nowhere to be seen.
const SENTINEL: &str = "sentinel-of-a-password";

/// The error with its causes.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

/// The error of a connection to a member that cannot be reached.
async fn unreachable(builder: EtcdBuilder, url: &str) -> (ErrorKind, String) {
    let time = Duration::from_secs(3);
    refused(builder.connect_timeout(time).timeout(time), url).await
}

/// The error of this connection, which must come and hold no secret.
async fn refused(builder: EtcdBuilder, url: &str) -> (ErrorKind, String) {
    let connecting = tokio::time::timeout(Duration::from_secs(60), builder.connect([url]));
    let error = connecting.await.expect("an end of the attempt").unwrap_err();
    let said = chain(&error);
    assert!(!format!("{said} {error:?}").contains(SENTINEL), "{said}");
    (error.kind(), said)
}

async fn apply(store: &Etcd, name: &str, action: Action<'_>) -> Result<Reply> {
    let operations = [Operation::new(name, action)];
    let batch = Batch::new("n", TimeSource::Fixed(Time::UNIX_EPOCH), &operations);
    store.reschedule(batch).await?.single()
}

/// Has a member require logins: of "root", and of "jobs", which may use the prefix "mine".
async fn require_login(members: &Members) {
    let mut root = members.client(0).await;
    root.user_add("root", "root", None).await.unwrap();
    root.user_grant_role("root", "root").await.unwrap();
    root.user_add("jobs", SENTINEL, None).await.unwrap();
    root.role_add("jobs").await.unwrap();
    let mine = Permission::read_write("mine/").with_prefix();
    root.role_grant_permission("jobs", mine).await.unwrap();
    root.user_grant_role("jobs", "jobs").await.unwrap();
    root.auth_enable().await.unwrap();
}

/// The administrator of a member that requires logins.
async fn administrator(members: &Members) -> Client {
    let options = ConnectOptions::new().with_user("root", "root");
    Client::connect([members.url(0)], Some(options)).await.unwrap()
}

/// It reads and it writes.
async fn works(store: &Etcd) {
    let first = Some(Time::UNIX_EPOCH.into());
    let register = Action::Register { definition: "x", version: 0, first };
    assert!(apply(store, "job", register).await.unwrap().state().is_some());
}

#[test]
fn settings_out_of_range_are_refused() {
    runtime().block_on(async {
        let ok = || Etcd::builder();
        let day = Duration::from_secs(86_400);
        for builder in [
            ok().prefix(""),
            ok().prefix("A"),
            ok().prefix("a/b"),
            ok().prefix("a".repeat(41)),
            ok().timeout(Duration::ZERO),
            ok().timeout(day),
            ok().connect_timeout(Duration::MAX),
            ok().history(1_000_001),
            ok().operations(15),
        ] {
            let shown = format!("{builder:?}");
            let error = builder.connect(["http://127.0.0.1:1"]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{shown}: {error}");
        }
        let none: [String; 0] = [];
        assert_eq!(Etcd::connect(none).await.unwrap_err().kind(), ErrorKind::Invalid);
        let both = ok().tls(Tls::new()).connect(["http://127.0.0.1:1"]).await.unwrap_err();
        assert_eq!(both.kind(), ErrorKind::Invalid);
    });
}

#[test]
fn a_server_that_is_no_etcd_has_an_error_of_its_own() {
    runtime().block_on(async {
        let (kind, said) = unreachable(Etcd::builder(), "http://127.0.0.1:1").await;
        assert_eq!(kind, ErrorKind::Unavailable, "{said}");
        assert!(said.contains("127.0.0.1:1") && said.contains("refused"), "{said}");
        // One that is silent, and one that speaks the web's old language.
        for talks in [false, true] {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let served = runtime().spawn(async move {
                let mut held = Vec::new();
                while let Ok((mut stream, _)) = listener.accept().await {
                    if talks {
                        let _ = stream.read(&mut [0; 1_000]).await;
                        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
                    } else {
                        held.push(stream);
                    }
                }
            });
            let (kind, said) = unreachable(Etcd::builder(), &url).await;
            assert_eq!(kind, ErrorKind::Unavailable, "{said}");
            assert!(said.contains(&url), "{said}");
            served.abort();
        }
    });
}

#[test]
fn a_certificate_that_is_not_trusted_is_refused() {
    runtime().block_on(async {
        let papers = Papers::new();
        let Some(members) = Members::start_tls(&papers).await else { return };
        let (https, http) = (members.url(0), members.url(0).replace("https", "http"));
        let (kind, said) = unreachable(Etcd::builder(), &https).await;
        assert_eq!(kind, ErrorKind::Unavailable, "{said}");
        assert!(said.to_lowercase().contains("certificate"), "{said}");
        let (kind, said) = unreachable(Etcd::builder(), &http).await;
        assert_eq!(kind, ErrorKind::Unavailable, "plain text to TLS: {said}");
        let (kind, said) =
            unreachable(Etcd::builder().tls(Tls::new().authority("x")), &https).await;
        assert!(
            [ErrorKind::Invalid, ErrorKind::Unavailable].contains(&kind),
            "no certificate: {said}"
        );
        let trusting = Tls::new().authority(&*papers.authority);
        let (kind, said) = unreachable(Etcd::builder().tls(trusting.clone()), &https).await;
        assert_eq!(kind, ErrorKind::Unavailable, "it shows none of its own: {said}");
        let tls = trusting.identity(&*papers.client.0, &*papers.client.1);
        let other = Etcd::builder().tls(tls.clone().name("elsewhere.example"));
        let (kind, said) = unreachable(other, &https).await;
        assert_eq!(kind, ErrorKind::Unavailable, "another name: {said}");
        for tls in [tls.clone(), tls.name("member.example")] {
            let builder = patient(Etcd::builder().tls(tls));
            works(&builder.connect([https.clone()]).await.unwrap()).await;
        }
    });
    runtime().block_on(async {
        let Some(urls) = members::<Single>() else { return };
        let (kind, said) = unreachable(Etcd::builder(), &urls[0].replace("http", "https")).await;
        assert_eq!(kind, ErrorKind::Unavailable, "TLS to plain text: {said}");
    });
}

/// With a login, and without one, where the first call opens the connection.
#[test]
fn a_connection_that_takes_longer_than_a_call_is_there_for_a_later_one() {
    runtime().block_on(async {
        for has_login in [false, true] {
            let Some(members) = Members::start(1, &[]).await else { return };
            let mut builder = Etcd::builder().prefix("mine").timeout(Duration::from_millis(500));
            if has_login {
                require_login(&members).await;
                builder = builder.login("jobs", SENTINEL);
            }
            let server = format!("127.0.0.1:{}", members.port(0));
            let proxy = Proxy::new(server, Proxy::NEVER).unwrap();
            let patience = Duration::from_secs(30);
            let builder = builder.connect_timeout(patience);
            let store = builder.connect([format!("http://127.0.0.1:{}", proxy.port())]).await;
            let store = store.unwrap();
            works(&store).await;
            proxy.delay_first(Duration::from_millis(1_500));
            proxy.fall_silent();
            let mut calls = 0;
            while let Err(error) = apply(&store, "job", Action::Read).await {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                calls += 1;
                assert!(calls < 60, "with a login: {has_login}; {calls} calls");
            }
        }
    });
}

#[test]
fn a_login_is_asked_for_checked_and_kept_to_its_prefix() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        require_login(&members).await;
        let url = members.url(0);
        let ok = || patient(Etcd::builder()).prefix("mine");
        let (kind, said) = refused(ok(), &url).await;
        assert_eq!(kind, ErrorKind::Invalid, "{said}");
        assert!(said.contains("login"), "{said}");
        let wrong = format!("{SENTINEL}, but wrong");
        let (kind, said) = refused(ok().login("jobs", wrong), &url).await;
        assert_eq!(kind, ErrorKind::Invalid, "{said}");
        let (kind, said) = refused(ok().prefix("yours").login("jobs", SENTINEL), &url).await;
        assert_eq!(kind, ErrorKind::Invalid, "{said}");
        assert!(said.contains("prefix"), "{said}");
        // The prefix and a slash is all that it needs, whatever it does.
        let builder = ok().login("jobs", SENTINEL).history(10);
        let store = builder.connect([url]).await.unwrap();
        assert!(!format!("{store:?}").contains(SENTINEL));
        let grants = store.grants("jobs").unwrap();
        assert!(grants[1].ends_with(" jobs --prefix=true readwrite mine/"), "{grants:?}");
        a_days_work(store.clone()).await;
        works(&store).await;
        let notifications = store.notifier().unwrap().subscribe().await.unwrap();
        let new = NewSchedule::new("mail", "x", Some(Time::UNIX_EPOCH.into()));
        apply(&store, "stored", Action::Create(new)).await.unwrap();
        apply(&store, "stored", Action::Delete).await.unwrap();
        drop(notifications);
        // A permission that is revoked is reported; granted again, the store works.
        let mut root = administrator(&members).await;
        root.user_revoke_role("jobs", "jobs").await.unwrap();
        let error = apply(&store, "job", Action::Read).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{}", chain(&error));
        root.user_grant_role("jobs", "jobs").await.unwrap();
        apply(&store, "job", Action::Read).await.unwrap();
    });
}

#[test]
fn a_changed_role_or_user_does_not_stop_nodes_that_have_a_token_of_before() {
    runtime().block_on(async {
        let key = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(key.path(), "a key of this test").unwrap();
        let key = key.path().display();
        // The time after which a token is invalid in any case.
        let token = format!("--auth-token=jwt,sign-method=HS256,ttl=10s,priv-key={key}");
        let Some(members) = Members::start(1, &[&token]).await else { return };
        require_login(&members).await;
        let builder = patient(Etcd::builder()).prefix("mine").login("jobs", SENTINEL);
        let store = builder.clone().connect(members.urls()).await.unwrap();
        let options = ConnectOptions::new().with_user("jobs", SENTINEL);
        let client = Client::connect([members.url(0)], Some(options)).await.unwrap();
        let handle = runtime().handle().clone();
        let given = builder.handle(handle).client(client).await.unwrap();
        for change in 0..4 {
            // Its own token ends with each change, too.
            let mut root = administrator(&members).await;
            match change {
                0 => drop(root.role_add("other").await.unwrap()),
                1 => drop(root.user_add("other", "other", None).await.unwrap()),
                2 => drop(root.user_grant_role("other", "other").await.unwrap()),
                _ => pause(11_000).await,
            }
            for store in [&store, &given] {
                let opened = store.notifier().unwrap().subscribe().await;
                assert!(opened.is_ok(), "after change {change}");
                let read = || apply(store, "job", Action::Read);
                let both = futures::join!(read(), read());
                both.0.unwrap();
                both.1.unwrap();
            }
            if change == 2 {
                let mut root = administrator(&members).await;
                root.user_change_password("jobs", "another").await.unwrap();
                // A password is checked again.
                let error = apply(&store, "job", Action::Read).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Invalid, "{}", chain(&error));
                assert!(chain(&error).contains("password"), "{}", chain(&error));
                let mut root = administrator(&members).await;
                root.user_change_password("jobs", SENTINEL).await.unwrap();
            }
        }
    });
}

#[test]
fn keys_of_a_newer_version_are_used_only_if_they_allow_it() {
    runtime().block_on(async {
        let Some(urls) = members::<Single>() else { return };
        let prefix = format!("v{:x}", std::process::id());
        let mut client = Client::connect(&urls, None).await.unwrap();
        let key = format!("{prefix}/version");
        let builder = || patient(Etcd::builder()).prefix(&prefix);
        for (found, then) in [("0", "1"), ("2 1", "2 1")] {
            client.put(key.clone(), found, None).await.unwrap();
            builder().connect(urls.clone()).await.unwrap();
            let after = client.get(key.clone(), None).await.unwrap();
            assert_eq!(after.kvs()[0].value_str().unwrap(), then);
        }
        for (found, why) in [("3 2", "version 3, for builds that know version 2"), ("x", "none of")]
        {
            client.put(key.clone(), found, None).await.unwrap();
            let (kind, said) = refused(builder(), &urls[0]).await;
            assert_eq!(kind, ErrorKind::Invalid, "{said}");
            assert!(said.contains(why), "{said}");
            let after = client.get(key.clone(), None).await.unwrap();
            assert_eq!(after.kvs()[0].value_str().unwrap(), found, "left alone");
        }
        client.delete(key, None).await.unwrap();
    });
}

#[test]
fn one_member_of_those_that_are_named_is_enough() {
    runtime().block_on(async {
        let Some(urls) = members::<Single>() else { return };
        let builder = patient(Etcd::builder().prefix(format!("o{:x}", std::process::id())));
        let all = ["http://127.0.0.1:1".to_owned(), "http://127.0.0.1:2".into(), urls[0].clone()];
        works(&builder.connect(all).await.unwrap()).await;
    });
}

#[test]
fn a_client_and_a_runtime_that_are_there_already_are_used() {
    let Some(urls) = members::<Single>() else { return };
    let handle = runtime().handle().clone();
    let client = runtime().block_on(Client::connect(&urls, None)).unwrap();
    let builder = patient(Etcd::builder().prefix(format!("g{:x}", std::process::id())));
    let builder = builder.handle(handle);
    // From a thread that knows nothing of tokio.
    futures::executor::block_on(async {
        works(&builder.clone().client(client).await.unwrap()).await;
        works(&builder.connect(urls).await.unwrap()).await;
    });
}

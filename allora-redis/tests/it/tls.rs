//! TLS, against a server that talks nothing else; and sentinels with a password of their own.

use crate::{
    server::{ON_DISK, Server},
    stores::runtime,
};
use allora_conformance::environment::patiently;
use allora_core::{Backend, ErrorKind, backend::Page};
use allora_redis::{ClientTlsConfig, Redis, TlsCertificates};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::{fs, time::Duration};

/// An authority, and what it has signed, in PEM: certificate and key.
struct Papers {
    folder: tempfile::TempDir,
    authority: String,
    client: (String, String),
}

impl Papers {
    fn new() -> Self {
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Of one name, what it signs would look as if it had signed itself.
        authority.distinguished_name.push(DnType::CommonName, "authority");
        let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let signed = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new([name.to_owned()]).unwrap();
            (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
        };
        let (server, client) = (signed("127.0.0.1"), signed("client"));
        let folder = tempfile::tempdir().unwrap();
        for (name, pem) in [("ca", &issuer.pem()), ("cert", &server.0), ("key", &server.1)] {
            fs::write(folder.path().join(name), pem).unwrap();
        }
        Self { folder, authority: issuer.pem(), client }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// A server that talks TLS only, and asks clients for a certificate if `clients` says so.
    fn server(&self, clients: &str) -> Option<Server> {
        let (ca, cert, key) = (self.file("ca"), self.file("cert"), self.file("key"));
        let files = ["--tls-ca-cert-file", &ca, "--tls-cert-file", &cert, "--tls-key-file", &key];
        Server::start_tls(&[&files, &["--tls-auth-clients", clients][..], ON_DISK].concat())
    }

    fn trusted(&self) -> TlsCertificates {
        let root_cert = Some(self.authority.clone().into_bytes());
        TlsCertificates { client_tls: None, root_cert }
    }

    fn shown(&self) -> TlsCertificates {
        let (cert, key) = self.client.clone();
        let client = ClientTlsConfig { client_cert: cert.into(), client_key: key.into() };
        TlsCertificates { client_tls: Some(client), ..self.trusted() }
    }
}

fn connect(server: &Server, certificates: Option<TlsCertificates>) -> allora_core::Result<Redis> {
    let mut builder = Redis::builder().timeout(Duration::from_secs(20));
    if let Some(certificates) = certificates {
        builder = builder.certificates(certificates);
    }
    let shown = format!("{builder:?}");
    assert!(!shown.contains("PRIVATE") && !shown.contains("45, 45"), "{shown}");
    runtime().block_on(builder.connect(format!("rediss://127.0.0.1:{}", server.port)))
}

fn is_refused(connected: allora_core::Result<Redis>, why: &str) {
    let error = connected.map(|_| ()).unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::Invalid,
        "{error}: {:?}",
        std::error::Error::source(&error)
    );
    assert!(error.to_string().contains(why), "{error}");
}

fn works(store: &Redis) {
    runtime().block_on(async {
        let listed = store.queries().unwrap().list(Page::first(9)).await.unwrap();
        assert_eq!(listed.len(), 0);
        // Notifications have a connection of their own.
        let _notifications = Backend::notifier(store).unwrap().subscribe().await.unwrap();
    });
}

#[test]
fn a_server_is_talked_to_by_tls_if_its_authority_is_trusted() {
    let papers = Papers::new();
    let Some(server) = papers.server("no") else { return };
    works(&connect(&server, Some(papers.trusted())).unwrap());
    is_refused(connect(&server, None), "a certificate that is not trusted");
    let other = Papers::new();
    is_refused(connect(&server, Some(other.trusted())), "a certificate that is not trusted");
    let wrong = TlsCertificates { client_tls: None, root_cert: Some(b"no PEM".to_vec()) };
    assert_eq!(connect(&server, Some(wrong)).map(|_| ()).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_server_that_asks_for_a_certificate_is_shown_one() {
    let papers = Papers::new();
    let Some(server) = papers.server("yes") else { return };
    works(&connect(&server, Some(papers.shown())).unwrap());
    is_refused(connect(&server, Some(papers.trusted())), "refused the TLS handshake");
    let stranger =
        TlsCertificates { root_cert: papers.trusted().root_cert, ..Papers::new().shown() };
    is_refused(connect(&server, Some(stranger)), "refused the TLS handshake");
}

#[test]
fn certificates_are_not_ignored_where_there_is_no_tls() {
    let builder = || Redis::builder().certificates(Papers::new().trusted());
    let connecting = builder().connect("redis://127.0.0.1:1");
    is_refused(runtime().block_on(connecting), "has no TLS");
    let connecting = builder().connect_cluster(["redis://127.0.0.1:1"]);
    is_refused(runtime().block_on(connecting), "has no TLS");
}

#[test]
fn sentinels_may_have_a_password_of_their_own() {
    let Some(primary) = Server::start(&[ON_DISK, &["--requirepass", "theirs"]].concat()) else {
        return;
    };
    let port = primary.port;
    let sentinel = Server::start_sentinel(&format!(
        "requirepass s3ntinel\n\
         sentinel monitor allora 127.0.0.1 {port} 1\n\
         sentinel auth-pass allora theirs\n"
    ));
    let sentinel = sentinel.unwrap();
    let url = format!("redis://:theirs@127.0.0.1:{}", sentinel.port);
    let connect = |password: &str| {
        let builder = Redis::builder().sentinel_login("default", password);
        let shown = format!("{builder:?}");
        assert!(!shown.contains(password), "{shown}");
        runtime().block_on(builder.connect_sentinel([url.as_str()], "allora"))
    };
    let mut connected = None;
    patiently("the sentinel knows the primary", || {
        connected = connect("s3ntinel").ok();
        connected.is_some()
    });
    works(&connected.unwrap());
    for wrong in ["wr0ng", "theirs"] {
        let error = connect(wrong).map(|_| ()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(wrong), "{error:?}");
    }
}

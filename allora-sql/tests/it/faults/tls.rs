//! Servers that take TLS only, with certificates of the test's own.

use super::server::Server;
use crate::stores::{Db, patiently_opened, runtime};
use allora_core::ErrorKind;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// An authority's certificate, and one that it signed for `localhost` with its key, in PEM.
struct Papers {
    authority: String,
    certificate: String,
    key: String,
}

impl Papers {
    fn new() -> Self {
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        Self { authority: issuer.pem(), certificate, key: key.serialize_pem() }
    }
}

fn a_server_without_a_trusted_certificate_is_refused(db: Db) {
    let Some(mut server) = Server::start(db) else { return };
    let papers = Papers::new();
    let certificate = server.write("certificate.pem", &papers.certificate);
    let key = server.write("key.pem", &papers.key);
    let ours = server.write("ours.pem", &papers.authority);
    let theirs = server.write("theirs.pem", &Papers::new().authority);
    if db == Db::Postgres {
        server.write("data/pg_hba.conf", "hostssl all all 127.0.0.1/32 trust\n");
        let file = |name: &str, path: &str| format!("{name}={path}");
        let (cert, key) = (file("ssl_cert_file", &certificate), file("ssl_key_file", &key));
        server.restart(&["-c", "ssl=on", "-c", &cert, "-c", &key]);
    } else {
        let (cert, key) = (format!("--ssl-cert={certificate}"), format!("--ssl-key={key}"));
        server.restart(&["--require-secure-transport=ON", "--skip-name-resolve", &cert, &key]);
    }
    let place = server.place();
    let named =
        |host: &str, query: &str| format!("{}?{query}", place.url.replace("127.0.0.1", host));
    runtime().block_on(async {
        for url in [
            named("localhost", &format!("tls=verify-full&ca={ours}")),
            named("127.0.0.1", &format!("tls=verify-ca&ca={ours}")),
            named("127.0.0.1", "tls=require"),
        ] {
            patiently_opened(place.builder(), &url).await.close().await;
        }
        for (url, why) in [
            (named("127.0.0.1", &format!("tls=verify-full&ca={ours}")), "another name"),
            (named("localhost", &format!("tls=verify-full&ca={theirs}")), "another authority"),
            (named("127.0.0.1", &format!("tls=verify-ca&ca={theirs}")), "another authority"),
            (named("localhost", "tls=verify-full"), "an unknown authority"),
        ] {
            let error = place.builder().connect(&url).await.expect_err(why);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{why}: {error:?}");
            assert!(error.to_string().contains("TLS"), "{why}: {error}");
        }
        // The server does not speak to us otherwise: what was let in came by TLS.
        let error = place.builder().connect(&named("localhost", "tls=off")).await;
        error.expect_err("plain text");
    });
}

#[test]
fn a_postgres_without_a_trusted_certificate_is_refused() {
    a_server_without_a_trusted_certificate_is_refused(Db::Postgres);
}

#[test]
fn a_mariadb_without_a_trusted_certificate_is_refused() {
    a_server_without_a_trusted_certificate_is_refused(Db::MySql);
}

//! TLS, with an authority of the test's own.

use super::{patient, patient_init, runtime, server::Server};
use allora_core::ErrorKind;
use allora_redis_quorum::{RedisQuorum, TlsCertificates};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::{fs, time::Duration};

#[test]
fn servers_are_reached_by_tls_and_only_with_the_authority_that_is_given() {
    runtime().block_on(async {
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "authority");
        let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let cert = params.signed_by(&key, &issuer).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: String| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let ca = file("ca", issuer.pem());
        let (cert, key) = (file("cert", cert.pem()), file("key", key.serialize_pem()));
        let files = ["--tls-ca-cert-file", &ca, "--tls-cert-file", &cert, "--tls-key-file", &key];
        let arguments = [&files, &["--tls-auth-clients", "no"][..]].concat();
        let servers: Option<Vec<Server>> = (0..3).map(|_| Server::start()).collect();
        let Some(mut servers) = servers else { return };
        servers.iter_mut().for_each(|server| server.use_tls(&arguments));
        let open = super::urls(&servers);
        let urls: Vec<String> = open.iter().map(|url| url.replace("redis:", "rediss:")).collect();

        let root_cert = Some(issuer.pem().into_bytes());
        let trusted = TlsCertificates { client_tls: None, root_cert };
        let builder = || RedisQuorum::builder().deadline(Duration::from_secs(1));
        let trusting = builder().certificates(trusted);
        let node = patient(trusting.clone(), &urls).await.unwrap();
        patient_init(&node).await.unwrap();
        assert!(node.is_initialised().await.unwrap());
        let strange = patient(builder(), &urls).await.unwrap_err();
        assert_eq!(strange.kind(), ErrorKind::Invalid, "{strange}");
        assert!(strange.to_string().contains("certificate that is not trusted"), "{strange}");
        let plain = patient(trusting, &open).await.unwrap_err();
        assert!(plain.to_string().contains("write rediss://"), "{plain}");
    });
}

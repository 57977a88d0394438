//! etcd: one member, and a cluster of three.
//!
//! Both sync to a temporary folder as they would to a disk: what a test proves of a crash is only
//! worth something with that on.

use super::{Prepared, Service, Site, says_yes};
use crate::Outcome;
use std::{path::PathBuf, process::Command};

pub(super) const ALONE: Service = Service {
    store: "etcd",
    name: "etcd",
    variables: &["ALLORA_TEST_ETCD_URL"],
    packages: &["etcd-server", "etcd-client"],
    user: "etcd",
    programs: &["etcd", "etcdctl"],
    places,
    ports: 2,
    prepare,
    answers,
};

/// Three members; every other port is the one on which they talk to each other.
pub(super) const CLUSTER: Service = Service {
    name: "etcd-cluster",
    variables: &["ALLORA_TEST_ETCD_CLUSTER_URLS"],
    ports: 6,
    ..ALONE
};

fn places() -> Vec<PathBuf> {
    vec!["/usr/bin".into(), "/usr/local/bin".into()]
}

fn prepare(site: &Site) -> Outcome<Prepared> {
    let members: Vec<(&u16, &u16)> =
        site.ports.chunks(2).map(|pair| (&pair[0], &pair[1])).collect();
    let peers: Vec<String> =
        members.iter().map(|(port, peer)| format!("m{port}=http://127.0.0.1:{peer}")).collect();
    let urls: Vec<String> =
        members.iter().map(|(port, _)| format!("http://127.0.0.1:{port}")).collect();
    let server = |(port, peer): &(&u16, &u16)| {
        let (url, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
        let mut server = site.command(&site.program);
        server.arg(format!("--name=m{port}"));
        server.arg(format!("--data-dir={}", site.folder.join(port.to_string()).display()));
        server.arg(format!("--listen-client-urls={url}"));
        server.arg(format!("--advertise-client-urls={url}"));
        server.arg(format!("--listen-peer-urls={peer}"));
        server.arg(format!("--initial-advertise-peer-urls={peer}"));
        server.arg(format!("--initial-cluster={}", peers.join(",")));
        server.arg("--initial-cluster-state=new");
        server
    };
    Ok(Prepared { servers: members.iter().map(server).collect(), told: vec![urls.join(",")] })
}

/// The port that is asked answers only once its member has a leader.
fn answers(site: &Site) -> bool {
    site.ports.chunks(2).all(|pair| {
        let mut asked = Command::new("bash");
        // Not every machine has a client for etcd or for HTTP.
        asked.arg("-c").arg(format!(
            "exec 3<>/dev/tcp/127.0.0.1/{}; printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3; \
             grep -q '\"health\": *\"true\"' <&3",
            pair[0]
        ));
        says_yes(asked)
    })
}

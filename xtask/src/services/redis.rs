//! Redis: one server, a cluster, Sentinel, and independent servers.
//!
//! All with an append-only file, which is what makes Redis a store; see the first page of
//! `allora-redis`.

use super::{Prepared, Service, Site, failed, said};
use crate::Outcome;
use std::{fmt::Write, fs, path::PathBuf, process::Command};

pub(super) const ALONE: Service = Service {
    store: "redis",
    name: "redis",
    variables: &["ALLORA_TEST_REDIS_URL"],
    packages: &["redis-server"],
    user: "redis",
    programs: &["redis-server"],
    places,
    ports: 1,
    prepare: independent,
    answers,
};

/// Three primaries; the other three ports are those on which they talk to each other.
pub(super) const CLUSTER: Service = Service {
    name: "redis-cluster",
    variables: &["ALLORA_TEST_REDIS_CLUSTER_URLS"],
    ports: 6,
    prepare: cluster,
    answers: is_joined,
    ..ALONE
};

/// The same with a replica of each, which takes the place of a primary that is gone.
pub(super) const REPLICATED: Service =
    Service { name: "redis-cluster-replicas", ports: 12, ..CLUSTER };

/// The number of primaries of a cluster: the servers behind them are their replicas, in the same order.
const PRIMARIES: usize = 3;

/// A primary, its replica and three sentinels.
pub(super) const SENTINEL: Service = Service {
    name: "redis-sentinel",
    variables: &["ALLORA_TEST_REDIS_SENTINEL_URLS", "ALLORA_TEST_REDIS_SENTINEL_MASTER"],
    ports: 5,
    prepare: sentinel,
    answers: is_watched,
    ..ALONE
};

/// Five independent servers.
pub(super) const QUORUM: Service = Service {
    store: "redis-quorum",
    name: "redis-quorum",
    variables: &["ALLORA_TEST_REDIS_QUORUM_URLS"],
    ports: 5,
    prepare: independent,
    ..ALONE
};

/// The sentinels' name for their primary.
const MASTER: &str = "allora";

fn places() -> Vec<PathBuf> {
    vec!["/usr/bin".into(), "/usr/local/bin".into()]
}

/// A server on the `i`-th port, with a folder of its own. Its title stays its command line: by that
/// it is known as ours.
fn server(site: &Site, i: usize) -> Outcome<Command> {
    let port = site.ports[i].to_string();
    let data = folder(site, i);
    let mut made = site.command("mkdir");
    made.arg(&data);
    site.run(made)?;
    let mut server = site.command(&site.program);
    server.args(["--bind", "127.0.0.1", "--port", &port, "--set-proc-title", "no"]);
    server.arg("--dir").arg(data);
    server.args(["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]);
    Ok(server)
}

fn folder(site: &Site, i: usize) -> PathBuf {
    site.folder.join(site.ports[i].to_string())
}

fn urls(ports: &[u16]) -> String {
    let urls: Vec<String> = ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect();
    urls.join(",")
}

fn independent(site: &Site) -> Outcome<Prepared> {
    let servers = (0..site.ports.len()).map(|i| server(site, i)).collect::<Outcome<_>>()?;
    Ok(Prepared { servers, told: vec![urls(&site.ports)] })
}

/// The nodes find each other by the file in which a node remembers its cluster: no command is
/// needed to make them one.
fn cluster(site: &Site) -> Outcome<Prepared> {
    const SLOTS: [&str; PRIMARIES] = ["0-5460", "5461-10922", "10923-16383"];
    let (ports, buses) = site.ports.split_at(site.ports.len() / 2);
    let mut servers = Vec::new();
    for i in 0..ports.len() {
        let mut server = server(site, i)?;
        server.args(["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"]);
        server.args(["--cluster-port", &buses[i].to_string(), "--cluster-node-timeout", "2000"]);
        servers.push(server);
        let mut nodes = String::new();
        for (j, (port, bus)) in ports.iter().zip(buses).enumerate() {
            let (id, epoch) = (j + 1, j % PRIMARIES + 1);
            let me = if i == j { "myself," } else { "" };
            let role = match SLOTS.get(j) {
                Some(slots) => format!("{me}master - 0 0 {epoch} connected {slots}"),
                None => format!("{me}slave {epoch:040x} 0 0 {epoch} connected"),
            };
            let _ = writeln!(nodes, "{id:040x} 127.0.0.1:{port}@{bus} {role}");
        }
        let _ = writeln!(nodes, "vars currentEpoch {PRIMARIES} lastVoteEpoch 0");
        write(site, folder(site, i).join("nodes.conf"), &nodes)?;
    }
    Ok(Prepared { servers, told: vec![urls(ports)] })
}

fn sentinel(site: &Site) -> Outcome<Prepared> {
    let primary = site.ports[0];
    let mut servers = vec![server(site, 0)?, server(site, 1)?];
    servers[1].args(["--replicaof", &format!("127.0.0.1 {primary}")]);
    for i in 2..5 {
        let sentinel = server(site, i)?;
        let file = folder(site, i).join("sentinel.conf");
        let settings = format!(
            "sentinel monitor {MASTER} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {MASTER} 2000\n\
             sentinel failover-timeout {MASTER} 5000\n"
        );
        write(site, file.clone(), &settings)?;
        let mut command = site.command(sentinel.get_program());
        // The file goes first; what a sentinel cannot use, as the append-only file, is left out.
        command.arg(file).args(sentinel.get_args().take(8)).arg("--sentinel");
        servers.push(command);
    }
    Ok(Prepared { servers, told: vec![urls(&site.ports[2..]), MASTER.to_owned()] })
}

/// A file that the server, which may run as another user, writes anew.
fn write(site: &Site, file: PathBuf, text: &str) -> Outcome {
    fs::write(&file, text).map_err(|cause| failed(&file, &cause))?;
    match site.owner {
        None => Ok(()),
        Some((user, group)) => std::os::unix::fs::chown(&file, Some(user), Some(group))
            .map_err(|cause| failed(&file, &cause)),
    }
}

fn asked(port: u16, words: &[&str]) -> String {
    let mut client = Command::new("redis-cli");
    client.args(["-h", "127.0.0.1", "-p", &port.to_string()]).args(words);
    said(client)
}

fn answers(site: &Site) -> bool {
    site.ports.iter().all(|port| asked(*port, &["PING"]).starts_with("PONG"))
}

/// True if all slots have their servers, and each replica is up to date. The roles change with each failover.
fn is_joined(site: &Site) -> bool {
    let ports = &site.ports[..site.ports.len() / 2];
    ports.iter().all(|port| asked(*port, &["CLUSTER", "INFO"]).contains("cluster_state:ok"))
        && ports.iter().filter(|port| follows(**port)).count() == ports.len() - PRIMARIES
}

/// True for a replica that has what its primary has.
fn follows(port: u16) -> bool {
    asked(port, &["INFO", "replication"]).contains("master_link_status:up")
}

/// True if each sentinel knows enough others for a majority, and the replica is up to date.
fn is_watched(site: &Site) -> bool {
    // Which of the two is the replica changes with each failover.
    site.ports[..2].iter().any(|port| follows(*port))
        && site.ports[2..].iter().all(|port| {
            asked(*port, &["SENTINEL", "CKQUORUM", MASTER]).starts_with("OK 3")
                && asked(*port, &["SENTINEL", "REPLICAS", MASTER]).contains("slave")
        })
}

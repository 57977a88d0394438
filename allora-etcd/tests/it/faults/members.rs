//! Members of a test's own, to be killed and frozen.

use super::patiently;
use allora_conformance::environment;
use allora_etcd::etcd_client::{Client, ConnectOptions};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::{
    ffi::OsStr,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

pub(crate) struct Members {
    folder: tempfile::TempDir,
    program: PathBuf,
    /// The port for clients and that for the other members.
    ports: Vec<(u16, u16)>,
    processes: Vec<Option<Child>>,
    arguments: Vec<String>,
    scheme: &'static str,
    /// Where its certificates are: it reads them again and again.
    papers: Option<tempfile::TempDir>,
    /// The first member's data are on a disk of their own.
    disk: bool,
}

impl Drop for Members {
    fn drop(&mut self) {
        for i in 0..self.ports.len() {
            self.kill(i);
        }
        if self.disk {
            environment::unmount(&self.data(0));
        }
    }
}

/// Certificates of one authority, with their keys, in PEM.
pub(crate) struct Papers {
    pub(crate) authority: String,
    member: (String, String),
    pub(crate) client: (String, String),
}

impl Papers {
    pub(crate) fn new() -> Self {
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let signed = |names: &[&str]| {
            let key = KeyPair::generate().unwrap();
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let params = CertificateParams::new(names).unwrap();
            (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
        };
        let (member, client) = (signed(&["127.0.0.1", "member.example"]), signed(&["client"]));
        Self { authority: issuer.pem(), member, client }
    }
}

impl Members {
    /// Fresh ones that answer; `None`, with a line that says so, where etcd is not installed or is
    /// left out.
    pub(crate) async fn start(count: usize, arguments: &[&str]) -> Option<Self> {
        let mut members = Self::new(count, arguments, "http")?;
        members.serve_all().await;
        Some(members)
    }

    /// Fresh ones, the first with a disk of 256 MiB to itself; `None`, with a line that says so,
    /// also where none can be mounted.
    pub(crate) async fn start_on_small_disk(count: usize) -> Option<Self> {
        let mut members = Self::new(count, &[], "http")?;
        std::fs::create_dir(members.data(0)).unwrap();
        members.disk = environment::mount_small_disk(&members.data(0), 256 << 20);
        if !members.disk {
            return None;
        }
        members.serve_all().await;
        Some(members)
    }

    async fn serve_all(&mut self) {
        let count = self.ports.len();
        (0..count).for_each(|i| self.serve(i));
        for i in 0..count {
            patiently("the members start", async || self.leader_by(i).await.is_some()).await;
        }
    }

    /// One that speaks TLS, and only with those who show a certificate of its authority's.
    pub(crate) async fn start_tls(papers: &Papers) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, pem: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, pem).unwrap();
            path.display().to_string()
        };
        let arguments = [
            format!("--trusted-ca-file={}", file("ca", &papers.authority)),
            format!("--cert-file={}", file("cert", &papers.member.0)),
            format!("--key-file={}", file("key", &papers.member.1)),
            "--client-cert-auth=true".to_owned(),
        ];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut members = Self::new(1, &arguments, "https")?;
        members.serve(0);
        members.papers = Some(folder);
        let takes = || TcpStream::connect(("127.0.0.1", members.port(0))).is_ok();
        patiently("the member starts", async || takes()).await;
        Some(members)
    }

    fn new(count: usize, arguments: &[&str], scheme: &'static str) -> Option<Self> {
        let program = environment::program("etcd", "etcd", Vec::new())?.join("etcd");
        let free = || environment::free_ports::<2>().into();
        Some(Self {
            folder: tempfile::tempdir().unwrap(),
            program,
            ports: (0..count).map(|_| free()).collect(),
            processes: (0..count).map(|_| None).collect(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            scheme,
            papers: None,
            disk: false,
        })
    }

    /// Where a member has its data.
    pub(crate) fn data(&self, i: usize) -> PathBuf {
        self.folder.path().join(format!("m{i}"))
    }

    /// True if its process has ended by itself.
    pub(crate) fn has_ended(&mut self, i: usize) -> bool {
        self.processes[i].as_mut().unwrap().try_wait().unwrap().is_some()
    }

    pub(crate) fn url(&self, i: usize) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.ports[i].0)
    }

    pub(crate) fn port(&self, i: usize) -> u16 {
        self.ports[i].0
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        (0..self.ports.len()).map(|i| self.url(i)).collect()
    }

    /// Starts a member on its data, as they are.
    pub(crate) fn serve(&mut self, i: usize) {
        let peer = |i: usize| format!("http://127.0.0.1:{}", self.ports[i].1);
        let all: Vec<String> = (0..self.ports.len()).map(|i| format!("m{i}={}", peer(i))).collect();
        let mut member = Command::new(&self.program);
        member.arg(format!("--name=m{i}"));
        member.arg(format!("--data-dir={}", self.data(i).display()));
        member.arg(format!("--listen-client-urls={}", self.url(i)));
        member.arg(format!("--advertise-client-urls={}", self.url(i)));
        member.arg(format!("--listen-peer-urls={}", peer(i)));
        member.arg(format!("--initial-advertise-peer-urls={}", peer(i)));
        member.arg(format!("--initial-cluster={}", all.join(",")));
        member.args(&self.arguments);
        member.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.processes[i] = Some(member.spawn().unwrap());
    }

    /// Writes a backup of the first member to a file; false, with a line that says so, where the
    /// program for it is not installed.
    pub(crate) fn back_up(&self, file: &Path) -> bool {
        let Some(folder) = environment::program("etcd", "etcdctl", Vec::new()) else {
            return false;
        };
        let mut command = command_of(folder.join("etcdctl"));
        command.args(["--endpoints", &self.url(0), "snapshot", "save"]).arg(file);
        assert!(command.status().unwrap().success());
        true
    }

    /// Stops the only member, and starts it with the data of a backup instead of its own. The token
    /// is a part of the cluster's id.
    pub(crate) fn restore(&mut self, file: &Path, token: &str) {
        self.kill(0);
        std::fs::remove_dir_all(self.data(0)).unwrap();
        // From 3.6 on, only the first one restores; before 3.5, only the other.
        let mut programs = ["etcdutl", "etcdctl"].into_iter().map(command_of);
        let has =
            |of: &mut Command| of.arg("version").status().is_ok_and(|status| status.success());
        let program = programs.find_map(|mut of| has(&mut of).then(|| of.get_program().to_owned()));
        let peer = format!("http://127.0.0.1:{}", self.ports[0].1);
        let mut command = command_of(program.unwrap());
        command.args(["snapshot", "restore"]).arg(file);
        command.arg("--name=m0").arg(format!("--data-dir={}", self.data(0).display()));
        command.arg(format!("--initial-cluster=m0={peer}"));
        command.arg(format!("--initial-advertise-peer-urls={peer}"));
        command.arg(format!("--initial-cluster-token={token}"));
        assert!(command.status().unwrap().success());
        self.serve(0);
    }

    /// SIGKILL, which also ends a frozen one.
    pub(crate) fn kill(&mut self, i: usize) {
        if let Some(mut process) = self.processes[i].take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub(crate) fn signal(&self, i: usize, signal: &str) {
        let pid = self.processes[i].as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// The number of transactions that this member has been sent since it was started.
    pub(crate) fn transactions(&self, i: usize) -> u64 {
        self.metric(i, |line| {
            line.starts_with("grpc_server_started_total") && line.contains("\"Txn\"")
        })
    }

    /// The number of bytes that this member has sent to clients since it was started.
    pub(crate) fn sent_bytes(&self, i: usize) -> u64 {
        self.metric(i, |line| line.starts_with("etcd_network_client_grpc_sent_bytes_total"))
    }

    /// The number of keys that were written to this member since it was started.
    pub(crate) fn puts(&self, i: usize) -> u64 {
        self.metric(i, |line| {
            // The first name is that of 3.4.
            ["etcd_debugging_mvcc_put_total ", "etcd_mvcc_put_total "]
                .iter()
                .any(|name| line.starts_with(name))
        })
    }

    fn metric(&self, i: usize, is_named: impl Fn(&str) -> bool) -> u64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port(i))).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let line = text.lines().find(|line| is_named(line)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64
    }

    /// A client of one member, for the test's own questions.
    pub(crate) async fn client(&self, i: usize) -> Client {
        let options = ConnectOptions::new().with_timeout(Duration::from_secs(5));
        Client::connect([self.url(i)], Some(options)).await.unwrap()
    }

    /// The leader, as this member says; `None` if it does not answer or knows of none.
    pub(crate) async fn leader_by(&self, i: usize) -> Option<u64> {
        let mut client = self.client(i).await;
        let status = client.status();
        let status = tokio::time::timeout(Duration::from_millis(500), status).await.ok()?.ok()?;
        Some(status.leader()).filter(|leader| *leader != 0)
    }

    /// Which member leads, by what the others say.
    pub(crate) async fn leader(&self) -> usize {
        let mut leader = None;
        patiently("there is a leader", async || {
            for i in 0..self.ports.len() {
                let mut client = self.client(i).await;
                let status = client.status();
                let status = tokio::time::timeout(Duration::from_millis(500), status).await;
                if let Ok(Ok(status)) = status
                    && status.header().is_some_and(|header| header.member_id() == status.leader())
                {
                    leader = Some(i);
                }
            }
            leader.is_some()
        })
        .await;
        leader.unwrap()
    }
}

/// A command of etcd's that speaks its third protocol, in silence.
fn command_of(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("ETCDCTL_API", "3").stdout(Stdio::null()).stderr(Stdio::null());
    command
}

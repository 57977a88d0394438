//! Members of a test's own, to be killed and frozen.

use super::patiently;
use allora_etcd::etcd_client::{Client, ConnectOptions};
use std::{
    env,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

pub(super) struct Members {
    folder: tempfile::TempDir,
    program: PathBuf,
    /// The port for clients and that for the other members.
    ports: Vec<(u16, u16)>,
    processes: Vec<Option<Child>>,
    arguments: Vec<&'static str>,
}

impl Drop for Members {
    fn drop(&mut self) {
        for i in 0..self.ports.len() {
            self.kill(i);
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

impl Members {
    /// Fresh ones that answer; `None`, with a line that says so, where etcd is not installed or is
    /// left out.
    pub(super) async fn start(count: usize, arguments: &[&'static str]) -> Option<Self> {
        let only = env::var("ALLORA_TEST_STORES").ok();
        if only.is_some_and(|only| !only.split(',').any(|store| store == "etcd")) {
            return None;
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path).map(|folder| folder.join("etcd"));
        let Some(program) = found.into_iter().find(|program| program.is_file()) else {
            assert!(env::var_os("CI").is_none(), "etcd is not installed");
            #[expect(clippy::print_stderr, reason = "a skip is not silent")]
            let () = eprintln!("skipped: etcd is not installed");
            return None;
        };
        let mut members = Self {
            folder: tempfile::tempdir().unwrap(),
            program,
            ports: (0..count).map(|_| (free_port(), free_port())).collect(),
            processes: (0..count).map(|_| None).collect(),
            arguments: arguments.to_vec(),
        };
        for i in 0..count {
            members.serve(i);
        }
        for i in 0..count {
            patiently("the members start", async || members.leader_by(i).await.is_some()).await;
        }
        Some(members)
    }

    pub(super) fn url(&self, i: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[i].0)
    }

    pub(super) fn port(&self, i: usize) -> u16 {
        self.ports[i].0
    }

    pub(super) fn urls(&self) -> Vec<String> {
        (0..self.ports.len()).map(|i| self.url(i)).collect()
    }

    /// Starts a member on its data, as they are.
    pub(super) fn serve(&mut self, i: usize) {
        let peer = |i: usize| format!("http://127.0.0.1:{}", self.ports[i].1);
        let all: Vec<String> = (0..self.ports.len()).map(|i| format!("m{i}={}", peer(i))).collect();
        let mut member = Command::new(&self.program);
        member.arg(format!("--name=m{i}"));
        member.arg(format!("--data-dir={}", self.folder.path().join(format!("m{i}")).display()));
        member.arg(format!("--listen-client-urls={}", self.url(i)));
        member.arg(format!("--advertise-client-urls={}", self.url(i)));
        member.arg(format!("--listen-peer-urls={}", peer(i)));
        member.arg(format!("--initial-advertise-peer-urls={}", peer(i)));
        member.arg(format!("--initial-cluster={}", all.join(",")));
        member.args(&self.arguments);
        member.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.processes[i] = Some(member.spawn().unwrap());
    }

    /// SIGKILL, which also ends a frozen one.
    pub(super) fn kill(&mut self, i: usize) {
        if let Some(mut process) = self.processes[i].take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub(super) fn signal(&self, i: usize, signal: &str) {
        let pid = self.processes[i].as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// A client of one member, for the test's own questions.
    pub(super) async fn client(&self, i: usize) -> Client {
        let options = ConnectOptions::new().with_timeout(Duration::from_secs(5));
        Client::connect([self.url(i)], Some(options)).await.unwrap()
    }

    /// Who leads, as this member says; `None` if it does not answer or knows of none.
    async fn leader_by(&self, i: usize) -> Option<u64> {
        let mut client = self.client(i).await;
        let status = client.status();
        let status = tokio::time::timeout(Duration::from_millis(500), status).await.ok()?.ok()?;
        Some(status.leader()).filter(|leader| *leader != 0)
    }

    /// Which member leads, by what the others say.
    pub(super) async fn leader(&self) -> usize {
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

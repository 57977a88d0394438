//! A Redis server of the test's own, to be stopped, frozen and killed.

use allora_conformance::environment::{free_ports, patiently};
use std::{
    fs,
    net::TcpStream,
    process::{Child, Command, Stdio},
};

pub(crate) struct Server {
    folder: tempfile::TempDir,
    port: u16,
    /// The files of its certificate, if it talks TLS only.
    tls: Vec<String>,
    process: Option<Child>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Server {
    /// A fresh one that answers; `None` if Redis is not installed, or tests of this store are not
    /// wanted.
    pub(crate) fn start() -> Option<Self> {
        if !super::is_wanted() {
            return None;
        }
        let [port] = free_ports();
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self { folder, port, tls: Vec::new(), process: None };
        server.serve().then_some(server)
    }

    /// From now on it talks TLS only, with these arguments.
    pub(crate) fn use_tls(&mut self, arguments: &[&str]) {
        self.kill();
        self.tls = arguments.iter().map(|&argument| argument.to_owned()).collect();
        assert!(self.serve());
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Starts it on what its folder has. False if Redis is not installed.
    pub(crate) fn serve(&mut self) -> bool {
        // Whatever becomes of the test, the server does not stay.
        let mut command = Command::new("timeout");
        command.args(["--foreground", "-s", "KILL", "900", "redis-server"]);
        let port = self.port.to_string();
        if self.tls.is_empty() {
            command.args(["--port", &port]);
        } else {
            command.args(["--port", "0", "--tls-port", &port]).args(&self.tls);
        }
        command.args(["--bind", "127.0.0.1", "--save", ""]);
        command.args(["--appendonly", "yes", "--appendfsync", "everysec"]);
        command.arg("--dir").arg(self.folder.path());
        command.arg("--pidfile").arg(self.folder.path().join("pid"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else { return false };
        self.process = Some(child);
        let (pid, port) = (self.folder.path().join("pid"), self.port);
        let process = self.process.as_mut().unwrap();
        let mut is_installed = true;
        patiently("redis-server starts", || {
            // `timeout` found no such program.
            let ended = process.try_wait().unwrap();
            is_installed = ended.is_none_or(|status| status.code() != Some(127));
            let has_pid = || fs::read_to_string(&pid).is_ok_and(|pid| !pid.is_empty());
            !is_installed || has_pid() && TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        if !is_installed {
            self.process = None;
        }
        is_installed
    }

    /// As a power cut does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            self.signal("-KILL");
            process.wait().unwrap();
            let _ = fs::remove_file(self.folder.path().join("pid"));
        }
    }

    /// As a new machine has it.
    pub(crate) fn wipe(&mut self) {
        let _ = fs::remove_dir_all(self.folder.path().join("appendonlydir"));
    }

    /// It takes connections, and answers nothing.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = fs::read_to_string(self.folder.path().join("pid")).unwrap();
        assert!(Command::new("kill").args([signal, pid.trim()]).status().unwrap().success());
    }
}

//! A server of the test's own, to be set up wrongly, killed, frozen and cut off.

use crate::stores::{Kind, Place};
use allora_conformance::environment::{self, free_ports, patiently};
use redis::FromRedisValue;
use std::{
    fs,
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

/// The arguments of a server that keeps its data.
pub(crate) const ON_DISK: &[&str] = &["--appendonly", "yes", "--appendfsync", "everysec"];

/// The arguments of a server that keeps nothing on disk.
pub(crate) const IN_MEMORY: &[&str] = &["--appendonly", "no"];

pub(crate) struct Server {
    program: PathBuf,
    folder: tempfile::TempDir,
    pub(crate) port: u16,
    /// By which its port is named.
    port_word: &'static str,
    arguments: Vec<String>,
    process: Option<Child>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Server {
    /// A fresh one that answers; `None`, with a line that says so, where Redis is not installed.
    pub(crate) fn start(arguments: &[&str]) -> Option<Self> {
        let [port] = free_ports();
        Self::start_at(port, &[&["--save", ""], arguments].concat())
    }

    /// As [`start`](Self::start), by TLS only.
    pub(crate) fn start_tls(arguments: &[&str]) -> Option<Self> {
        let [port] = free_ports();
        let mut server = Self::new(tempfile::tempdir().unwrap(), port, arguments)?;
        server.port_word = "--tls-port";
        server.serve();
        Some(server)
    }

    /// A sentinel with these settings.
    pub(crate) fn start_sentinel(settings: &str) -> Option<Self> {
        let [port] = free_ports();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sentinel.conf");
        fs::write(&file, settings).unwrap();
        let mut server = Self::new(folder, port, &[file.to_str().unwrap(), "--sentinel"])?;
        server.serve();
        Some(server)
    }

    /// As [`start`](Self::start), on this port; with arguments for snapshots, too.
    pub(crate) fn start_at(port: u16, arguments: &[&str]) -> Option<Self> {
        let mut server = Self::new(tempfile::tempdir().unwrap(), port, arguments)?;
        server.serve();
        Some(server)
    }

    fn new(folder: tempfile::TempDir, port: u16, arguments: &[&str]) -> Option<Self> {
        let folders = environment::program("redis", "redis-server", Vec::new())?;
        let program = folders.join("redis-server");
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Some(Self { program, folder, port, port_word: "--port", arguments, process: None })
    }

    /// Starts it on its data, as they are, and waits until it takes connections.
    pub(crate) fn serve(&mut self) {
        let mut command = Command::new(&self.program);
        // A file with settings goes before what is set on the command line.
        let is_file = |argument: &&String| argument.starts_with('/');
        command.args(self.arguments.iter().take_while(is_file));
        command.args(["--bind", "127.0.0.1"]);
        if self.port_word != "--port" {
            command.args(["--port", "0"]);
        }
        command.args([self.port_word, &self.port.to_string()]);
        command.arg("--dir").arg(self.folder.path());
        command.args(self.arguments.iter().skip_while(is_file));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().unwrap());
        let port = self.port;
        patiently("the server starts", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let _ = process.kill();
        let _ = process.wait();
    }

    /// As `-STOP` or `-CONT`.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn place(&self) -> Place {
        Place { kind: Kind::One, urls: vec![self.url()], prefix: "allora".into(), shards: 1 }
    }

    /// Asks it, on a connection of its own.
    pub(crate) fn ask<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let mut connection = redis::Client::open(self.url())?.get_connection()?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).query(&mut connection)
    }
}

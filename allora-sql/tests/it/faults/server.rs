//! A database server of the test's own, to be killed.

use crate::stores::{Db, Place};
use allora_conformance::environment::{self, patiently};
use std::{
    fs,
    net::TcpStream,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
};

pub(super) struct Server {
    db: Db,
    folder: tempfile::TempDir,
    programs: PathBuf,
    port: u16,
    /// Additional arguments of its command line.
    arguments: Vec<String>,
    /// True if its folder is a file system of its own.
    is_mounted: bool,
    /// User and group, where we are root: servers refuse to run so.
    owner: Option<(u32, u32)>,
    process: Option<Child>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if self.is_mounted {
            environment::unmount(self.folder.path());
        }
    }
}

fn id(args: &[&str]) -> u32 {
    let told = Command::new("id").args(args).output().unwrap();
    String::from_utf8(told.stdout).unwrap().trim().parse().unwrap()
}

/// The folder of the server's programs, if it is installed and wanted.
fn programs(db: Db) -> Option<PathBuf> {
    match db {
        Db::Sqlite => None,
        Db::MySql => {
            let folders = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
            environment::program("mysql", "mariadbd", folders.into())
        }
        Db::Postgres => {
            // Debian keeps the programs of each version apart.
            let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
            let folders = versions.map(|version| version.path().join("bin")).collect();
            environment::program("postgres", "postgres", folders)
        }
    }
}

impl Server {
    /// A fresh one that listens; `None`, with a line that says so, where it is not installed.
    pub(super) fn start(db: Db) -> Option<Self> {
        Self::start_on(db, tempfile::tempdir().unwrap(), false)
    }

    /// The same, on a disk of so many bytes; `None` where we may not mount one.
    pub(super) fn start_on_small_disk(db: Db, bytes: u32) -> Option<Self> {
        Self::start_on(db, mounted(bytes)?, true)
    }

    fn start_on(db: Db, folder: tempfile::TempDir, is_mounted: bool) -> Option<Self> {
        let programs = programs(db)?;
        let name = if db == Db::Postgres { "postgres" } else { "mysql" };
        let owner = (id(&["-u"]) == 0).then(|| (id(&["-u", name]), id(&["-g", name])));
        if let Some((user, group)) = owner {
            chown(&folder, Some(user), Some(group)).unwrap();
        }
        let [port] = environment::free_ports();
        let (arguments, process) = (Vec::new(), None);
        let mut server = Self { db, folder, programs, port, arguments, is_mounted, owner, process };
        server.initialise();
        server.serve();
        Some(server)
    }

    fn command(&self, program: &str) -> Command {
        let path = self.programs.join(program);
        let mut command = Command::new(if path.is_file() { path } else { program.into() });
        command.current_dir(&self.folder).stdin(Stdio::null());
        // The files of several servers would have the same names there.
        command.env("TMPDIR", self.folder.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    fn in_folder(&self, name: &str, file: &str) -> String {
        format!("--{name}={}", self.folder.path().join(file).display())
    }

    fn initialise(&self) {
        let data =
            self.in_folder(if self.db == Db::Postgres { "pgdata" } else { "datadir" }, "data");
        let mut command = if self.db == Db::Postgres {
            let mut init = self.command("initdb");
            init.args(["-U", "allora", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]);
            init
        } else {
            let users = "CREATE DATABASE IF NOT EXISTS allora;\n\
                         CREATE USER IF NOT EXISTS allora@'127.0.0.1';\n\
                         GRANT ALL ON allora.* TO allora@'127.0.0.1';\n";
            fs::write(self.folder.path().join("users.sql"), users).unwrap();
            let mut init = self.command("mariadb-install-db");
            init.args(["--no-defaults", "--skip-test-db"]);
            init.arg("--auth-root-authentication-method=normal");
            init
        };
        let told =
            command.arg(data).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        assert!(told.status.success(), "{command:?}: {told:?}");
    }

    /// Starts it once more, with these arguments and no others.
    pub(super) fn restart(&mut self, arguments: &[&str]) {
        self.kill();
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        self.serve();
    }

    /// Writes a file of the server's into its folder; its path.
    pub(super) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if let Some((user, group)) = self.owner {
            chown(&path, Some(user), Some(group)).unwrap();
        }
        path.display().to_string()
    }

    /// Where a file of its folder is.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts it on its data, as they are, and waits until it listens.
    pub(super) fn serve(&mut self) {
        let port = self.port.to_string();
        let mut command = if self.db == Db::Postgres {
            let mut server = self.command("postgres");
            server.arg("-D").arg(self.folder.path().join("data"));
            server.args(["-p", &port, "-h", "127.0.0.1", "-k"]).arg(self.folder.path());
            server
        } else {
            let mut server = self.command("mariadbd");
            server.args(["--no-defaults", "--bind-address=127.0.0.1", &format!("--port={port}")]);
            server.args([self.in_folder("datadir", "data"), self.in_folder("socket", "socket")]);
            server.args([
                self.in_folder("pid-file", "pid"),
                self.in_folder("init-file", "users.sql"),
            ]);
            server
        };
        command.args(&self.arguments);
        patiently("the server starts", || {
            let process = self.process.get_or_insert_with(|| command.spawn().unwrap());
            if process.try_wait().unwrap().is_some() {
                // Remains of the killed one are still in its way.
                self.process = None;
                return false;
            }
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    /// SIGKILL, to it and to all that it has started.
    pub(super) fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let parent = process.id().to_string();
        let told = Command::new("ps").args(["-o", "pid=", "--ppid", &parent]).output();
        let told = told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned());
        let children = told.unwrap_or_default();
        let _ = process.kill();
        if children.split_whitespace().next().is_some() {
            let mut kill = Command::new("kill");
            // Some have ended by themselves when the first died.
            let _ =
                kill.arg("-KILL").args(children.split_whitespace()).stderr(Stdio::null()).status();
        }
        let _ = process.wait();
    }

    pub(super) fn place(&self) -> Place {
        let (scheme, database) = match self.db {
            Db::Postgres => ("postgres", "postgres"),
            _ => ("mysql", "allora"),
        };
        let url = format!("{scheme}://allora@127.0.0.1:{}/{database}", self.port);
        Place { url, prefix: "allora".into(), folder: None }
    }
}

/// A folder with room for so many bytes; `None`, with a line that says so, where we may not mount.
pub(super) fn mounted(bytes: u32) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    environment::mount_small_disk(folder.path(), bytes).then_some(folder)
}

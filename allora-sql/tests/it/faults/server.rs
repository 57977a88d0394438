//! A database server of the test's own, to be killed.

use super::patiently;
use crate::stores::{Db, Place};
use std::{
    env, fs,
    net::{TcpListener, TcpStream},
    os::unix::{fs::chown, process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

pub(super) struct Server {
    db: Db,
    folder: tempfile::TempDir,
    programs: PathBuf,
    port: u16,
    /// User and group, where we are root: servers refuse to run so.
    owner: Option<(u32, u32)>,
    process: Option<Child>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn id(args: &[&str]) -> u32 {
    let told = Command::new("id").args(args).output().unwrap();
    String::from_utf8(told.stdout).unwrap().trim().parse().unwrap()
}

/// The folder of the server's programs, if it is installed.
fn programs(db: Db) -> Option<PathBuf> {
    let (program, places) = match db {
        Db::Sqlite => return None,
        Db::MySql => ("mariadbd", vec!["/usr/sbin".into(), "/usr/local/sbin".into()]),
        Db::Postgres => {
            // Debian keeps the programs of each version apart.
            let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
            ("postgres", versions.map(|version| version.path().join("bin")).collect())
        }
    };
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places = places.into_iter().chain(env::split_paths(&path));
    places.find(|folder| folder.join(program).is_file())
}

impl Server {
    /// A fresh one that answers; `None`, with a line that says so, where it is not installed.
    pub(super) fn start(db: Db) -> Option<Self> {
        let Some(programs) = programs(db) else {
            assert!(env::var_os("CI").is_none(), "the server of {db:?} is not installed");
            #[expect(clippy::print_stderr, reason = "a skip is not silent")]
            let () = eprintln!("skipped: the server of {db:?} is not installed");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let name = if db == Db::Postgres { "postgres" } else { "mysql" };
        let owner = (id(&["-u"]) == 0).then(|| (id(&["-u", name]), id(&["-g", name])));
        if let Some((user, group)) = owner {
            chown(&folder, Some(user), Some(group)).unwrap();
        }
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let mut server = Self { db, folder, programs, port, owner, process: None };
        server.initialise();
        server.serve();
        Some(server)
    }

    fn command(&self, program: &str) -> Command {
        let path = self.programs.join(program);
        let mut command = Command::new(if path.is_file() { path } else { program.into() });
        command.current_dir(&self.folder).stdin(Stdio::null());
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
        assert!(command.arg(data).status().unwrap().success(), "{command:?}");
    }

    /// Starts it on its data, as they are, and waits until it takes connections.
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

//! Servers for the tests: private instances on free ports of this machine, with their data in a
//! temporary folder. The machine's own ones are never touched.
//!
//! For `cargo xtask test` each server has a guard: a shell that holds the other end of a pipe of
//! ours. However this program ends, the pipe is closed; the guard then stops the server and removes
//! its data. `cargo xtask services up` starts them without guards, for development.

mod install;
mod mariadb;
mod postgres;

use crate::{
    Failure, Outcome,
    command::{root, step},
};
use std::{
    env, fs,
    net::TcpListener,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

/// A kind of server.
pub(crate) struct Service {
    /// The store it is for, as `--only` names it.
    pub(crate) store: &'static str,
    /// Where the tests look for its address; set already, it is used and nothing is started.
    pub(crate) variable: &'static str,
    /// The package that brings it on Debian and Ubuntu.
    package: &'static str,
    /// The user that it runs as when we are root.
    user: &'static str,
    /// The program, in `PATH` or one of the other places.
    program: &'static str,
    places: fn() -> Vec<PathBuf>,
    /// Creates its data; answers with the command that serves it and with its address.
    prepare: fn(&Site) -> Outcome<(Command, String)>,
    /// Whether it answers.
    answers: fn(&Site) -> bool,
}

/// Another store's server is one more file with one more of these.
const SERVICES: &[&Service] = &[&postgres::SERVICE, &mariadb::SERVICE];

/// Where one server lives.
struct Site {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    /// User and group, if it is to be another than ours.
    owner: Option<(u32, u32)>,
}

impl Site {
    /// A program that stands beside the server's own.
    fn beside(&self, name: &str) -> PathBuf {
        match self.program.parent().map(|folder| folder.join(name)) {
            Some(path) if path.exists() => path,
            _ => name.into(),
        }
    }

    /// A command that runs as the server's user, quietly.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder).stdin(Stdio::null());
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    /// Runs a command of the preparation; what it said is in the error.
    fn run(&self, mut command: Command) -> Outcome {
        let said = command.output().map_err(|cause| failed(&self.program, &cause))?;
        if said.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&said.stderr);
        Err(Failure::Check(format!("{command:?}: {}", why.trim())))
    }
}

/// The servers of one test run; dropped, they are stopped.
#[derive(Default)]
pub(crate) struct Running {
    guards: Vec<(Child, ChildStdin)>,
    /// What the tests are told.
    pub(crate) environment: Vec<(&'static str, String)>,
}

impl Drop for Running {
    fn drop(&mut self) {
        for (mut guard, pipe) in self.guards.drain(..) {
            drop(pipe);
            // An error leaves nothing to do.
            let _ = guard.wait();
        }
    }
}

/// Starts what these stores need and what is not there already; no list is all stores.
pub(crate) fn start(only: Option<&str>) -> Outcome<Running> {
    let mut running = Running::default();
    for service in SERVICES {
        let wanted = only.is_none_or(|only| only.split(',').any(|store| store == service.store));
        if !wanted || env::var_os(service.variable).is_some() {
            continue;
        }
        if let Some(up) = Up::read(service).filter(Up::is_alive) {
            running.environment.push((service.variable, up.url));
            continue;
        }
        let site = service.site()?;
        step(&format!("{} on port {}", service.store, site.port));
        let (server, url) = (service.prepare)(&site)?;
        let mut guard = guard(&site, &server).map_err(|cause| failed(&site.program, &cause))?;
        let pipe = guard.stdin.take().expect("piped by the guard");
        running.guards.push((guard, pipe));
        service.wait(&site)?;
        running.environment.push((service.variable, url));
    }
    Ok(running)
}

/// `cargo xtask services up|down|status`.
pub(crate) fn run(args: &[String]) -> Outcome {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["up"] => up(),
        ["down"] => down(),
        ["status"] => status(),
        _ => Err(Failure::Usage("`services` knows up, down and status".into())),
    }
}

fn up() -> Outcome {
    for service in SERVICES {
        if Up::read(service).is_some_and(|up| up.is_alive()) {
            continue;
        }
        let site = service.site()?;
        let (mut server, url) = (service.prepare)(&site)?;
        let log = fs::File::create(site.folder.join("log"));
        let log = log.map_err(|cause| failed(&site.folder, &cause))?;
        let errors = log.try_clone().map_err(|cause| failed(&site.folder, &cause))?;
        // A group of its own: Ctrl-C in this terminal is not for it.
        server.process_group(0).stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = server.spawn().map_err(|cause| failed(&site.program, &cause))?;
        let up = Up { pid: child.id(), folder: site.folder.clone(), url };
        up.write(service)?;
        service.wait(&site)?;
    }
    status()
}

fn down() -> Outcome {
    for service in SERVICES {
        let Some(up) = Up::read(service) else { continue };
        if up.is_alive() {
            let pid = up.pid.to_string();
            let _ = Command::new("kill").args(["-TERM", &pid]).status();
            patiently(|| !up.is_alive());
        }
        let _ = fs::remove_dir_all(&up.folder);
        let _ = fs::remove_file(Up::path(service));
    }
    status()
}

fn status() -> Outcome {
    for service in SERVICES {
        match Up::read(service).filter(Up::is_alive) {
            Some(up) => println!("export {}={}", service.variable, up.url),
            None => println!("# {} is down", service.store),
        }
    }
    Ok(())
}

impl Service {
    /// A new folder and a free port; the program is installed if it is not there.
    fn site(&self) -> Outcome<Site> {
        let program = match self.find() {
            Some(program) => program,
            None => {
                install::package(self)?;
                let gone =
                    || Failure::Check(format!("{} is not where it was looked for", self.program));
                self.find().ok_or_else(gone)?
            }
        };
        let owner = if install::is_root() { Some(install::user(self.user)?) } else { None };
        let port = free_port().map_err(|cause| failed(Path::new("127.0.0.1"), &cause))?;
        let folder = env::temp_dir().join(format!("allora-{}-{port}", self.store));
        let made = fs::create_dir(&folder)
            .and_then(|()| owner.map_or(Ok(()), |(u, g)| chown(&folder, Some(u), Some(g))));
        made.map_err(|cause| failed(&folder, &cause))?;
        Ok(Site { program, folder, port, owner })
    }

    fn find(&self) -> Option<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = (self.places)().into_iter().chain(env::split_paths(&path));
        folders.map(|folder| folder.join(self.program)).find(|program| program.is_file())
    }

    fn wait(&self, site: &Site) -> Outcome {
        if patiently(|| (self.answers)(site)) {
            return Ok(());
        }
        let log = fs::read_to_string(site.folder.join("log")).unwrap_or_default();
        let end: Vec<&str> = log.lines().rev().take(5).collect();
        let end: Vec<&str> = end.into_iter().rev().collect();
        let what = format!("{} does not answer after 60 s:\n{}", self.store, end.join("\n"));
        Err(Failure::Check(what))
    }
}

/// The shell that stops the server when our end of its pipe is closed.
fn guard(site: &Site, server: &Command) -> std::io::Result<Child> {
    // SIGINT is the terminal's word to the whole group: the server and we get it, the guard stays.
    const SCRIPT: &str = "trap '' INT HUP; folder=$1; shift; \"$@\" >\"$folder/log\" 2>&1 </dev/null & \
                          server=$!; read -r _; kill -TERM $server; wait $server; \
                          cd /; rm -rf \"$folder\"";
    let mut guard = site.command("sh");
    guard.args(["-c", SCRIPT, "guard"]).arg(&site.folder);
    guard.arg(server.get_program()).args(server.get_args());
    guard.stdin(Stdio::piped()).spawn()
}

/// A server that was left running.
struct Up {
    pid: u32,
    folder: PathBuf,
    url: String,
}

impl Up {
    fn path(service: &Service) -> PathBuf {
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into);
        target.join(format!("service-{}", service.store))
    }

    fn read(service: &Service) -> Option<Self> {
        let text = fs::read_to_string(Self::path(service)).ok()?;
        let mut lines = text.lines();
        let pid = lines.next()?.parse().ok()?;
        Some(Self { pid, folder: lines.next()?.into(), url: lines.next()?.to_owned() })
    }

    fn write(&self, service: &Service) -> Outcome {
        let path = Self::path(service);
        let text = format!("{}\n{}\n{}\n", self.pid, self.folder.display(), self.url);
        fs::write(&path, text).map_err(|cause| failed(&path, &cause))
    }

    /// Whether the process is there and ours: ids are given out again.
    fn is_alive(&self) -> bool {
        let told = Command::new("ps").args(["-o", "args=", "-p", &self.pid.to_string()]).output();
        let folder = self.folder.to_string_lossy().into_owned();
        told.is_ok_and(|told| String::from_utf8_lossy(&told.stdout).contains(&folder))
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Asks for up to a minute, ten times a second.
#[expect(clippy::disallowed_methods, reason = "a chore waits for another program")]
fn patiently(asked: impl Fn() -> bool) -> bool {
    (0..600).any(|_| {
        let yes = asked();
        if !yes {
            std::thread::sleep(Duration::from_millis(100));
        }
        yes
    })
}

/// Whether a command says yes.
fn says_yes(mut command: Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

fn failed(what: &Path, cause: &std::io::Error) -> Failure {
    Failure::Check(format!("{}: {cause}", what.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_command_line_is_refused() {
        for words in [&[] as &[&str], &["sideways"], &["up", "now"]] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert!(matches!(run(&words), Err(Failure::Usage(_))), "{words:?}");
        }
    }

    #[test]
    fn stores_without_a_server_need_none() {
        let running = start(Some("memory,sqlite"));
        assert!(running.is_ok_and(|running| running.environment.is_empty()));
    }

    #[test]
    fn ports_are_free() {
        let port = free_port().unwrap();
        assert!(TcpListener::bind(("127.0.0.1", port)).is_ok());
    }
}

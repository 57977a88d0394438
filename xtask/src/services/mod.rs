//! Servers for the tests: private instances on free ports of this machine, with their data in a
//! temporary folder. The machine's own ones are never touched.
//!
//! A service may be several processes, as a cluster is. For `cargo xtask test` each of them has a
//! guard: a shell that holds the other end of a pipe of ours. However this program ends, the pipe is
//! closed; the guard then stops its server, hung or not, and removes the data. `cargo xtask services
//! up` starts them without guards, for development.

mod arena;
mod etcd;
mod ground;
pub(crate) mod install;
mod mariadb;
mod postgres;
mod redis;

pub(crate) use arena::{Arena, Wanted};
pub(crate) use ground::{Disk, FakeClock};
pub(crate) use install::faketime;

use crate::{
    Failure, Outcome,
    command::{step, target},
    stores,
};
use std::{
    env, fs,
    net::TcpListener,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

/// A kind of server, or a topology of several.
struct Service {
    /// The store it is for, as `--only` names it.
    store: &'static str,
    /// Its name: that of the store, unless a store has several.
    name: &'static str,
    /// Where the tests look for its addresses. The first set already, that one is used and nothing
    /// is started.
    variables: &'static [&'static str],
    /// The packages that bring its programs on Debian and Ubuntu.
    packages: &'static [&'static str],
    /// The user that it runs as when we are root.
    user: &'static str,
    /// The server, and the programs that tests use beside it, in `PATH` or one of the other places.
    programs: &'static [&'static str],
    places: fn() -> Vec<PathBuf>,
    /// The number of ports of this machine that it needs.
    ports: usize,
    /// Creates its data; answers with what serves it.
    prepare: fn(&Site) -> Outcome<Prepared>,
    /// Returns true if all of it answers.
    answers: fn(&Site) -> bool,
}

/// A service that can be started.
struct Prepared {
    /// One command for each process; the site's folder is among its words.
    servers: Vec<Command>,
    /// The value of each of its variables.
    told: Vec<String>,
}

impl Prepared {
    /// One process at one address.
    fn one(server: Command, url: String) -> Self {
        Self { servers: vec![server], told: vec![url] }
    }
}

/// Another store's server is one more file with one more of these.
const SERVICES: &[&Service] = &[
    &postgres::SERVICE,
    &postgres::POOLED,
    &mariadb::SERVICE,
    &redis::ALONE,
    &redis::CLUSTER,
    &redis::SENTINEL,
    &redis::QUORUM,
    &etcd::ALONE,
    &etcd::CLUSTER,
];

/// Those that only trials start.
const OF_TRIALS: &[&Service] = &[&redis::REPLICATED];

/// Where one service lives.
struct Site {
    program: PathBuf,
    folder: PathBuf,
    ports: Vec<u16>,
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
    guards: Vec<(&'static str, Child, ChildStdin)>,
    /// The environment of the tests.
    pub(crate) environment: Vec<(&'static str, String)>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // All at once: PostgreSQL waits for the connections of the pooler before it.
        let ending: Vec<Child> = self.guards.drain(..).map(|(_, guard, _pipe)| guard).collect();
        for mut guard in ending {
            // An error leaves nothing to do.
            let _ = guard.wait();
        }
    }
}

impl Running {
    /// The process from which the server of a store descends, if it was started for us.
    pub(crate) fn pid(&self, store: &str) -> Option<u32> {
        self.guards.iter().find(|(of, ..)| *of == store).map(|(_, guard, _)| guard.id())
    }
}

/// Starts what these stores need and what is not there already; no list is all stores. The console's tests
/// need a browser, and those of its clients their languages and a generator of clients.
pub(crate) fn start(only: Option<&str>) -> Outcome<Running> {
    install::browser()?;
    install::languages()?;
    let generator = install::generator()?.display().to_string();
    let mut running = start_all(wanted(only), Other::Used)?;
    running.environment.push(("ALLORA_TEST_PYTHON_GENERATOR", generator));
    Ok(running)
}

/// Starts one server for each of these stores that needs one, and no topology of several.
pub(crate) fn start_single(stores: &[&str]) -> Outcome<Running> {
    start_all(single(stores), Other::Used)
}

/// As [`start_single`], also where others are running: what is measured has its servers for itself.
pub(crate) fn start_private(stores: &[&str]) -> Outcome<Running> {
    start_all(single(stores), Other::Left)
}

fn single(stores: &[&str]) -> impl Iterator<Item = &'static Service> {
    // The service of one server has its store's name.
    SERVICES.iter().copied().filter(|service| stores.contains(&service.name))
}

/// Servers that are running already.
#[derive(Clone, Copy, PartialEq)]
enum Other {
    Used,
    Left,
}

fn start_all(services: impl Iterator<Item = &'static Service>, other: Other) -> Outcome<Running> {
    let mut running = Running::default();
    for service in services {
        if other == Other::Used {
            if env::var_os(service.variables[0]).is_some() {
                continue;
            }
            if let Some(up) = Up::read(service).filter(Up::is_alive) {
                running.environment.extend(service.environment(up.told));
                continue;
            }
        }
        let site = service.site()?;
        step(&format!("{} on port {}", service.name, site.ports[0]));
        let Prepared { servers, told } = (service.prepare)(&site)?;
        for server in &servers {
            let mut guard = guard(&site, server).map_err(|cause| failed(&site.program, &cause))?;
            let pipe = guard.stdin.take().expect("piped by the guard");
            running.guards.push((service.store, guard, pipe));
        }
        service.wait(&site)?;
        running.environment.extend(service.environment(told));
    }
    Ok(running)
}

/// The server of the service with this name, if it is installed.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    SERVICES.iter().find(|service| service.name == name)?.find()
}

#[cfg(test)]
pub(crate) fn is_known(name: &str) -> bool {
    SERVICES.iter().any(|service| service.name == name)
}

/// The services of these stores; no list is all stores.
fn wanted(only: Option<&str>) -> impl Iterator<Item = &'static Service> {
    let is_wanted = move |service: &Service| {
        only.is_none_or(|only| only.split(',').any(|store| store == service.store))
    };
    SERVICES.iter().copied().filter(move |service| is_wanted(service))
}

/// `cargo xtask services up [STORE,..]|down|status`.
pub(crate) fn run(args: &[String]) -> Outcome {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["up"] => up(None),
        ["up", only] => up(Some(&stores::stores(only)?)),
        ["down"] => down(),
        ["status"] => status(),
        _ => Err(Failure::Usage("`services` knows up [STORE,..], down and status".into())),
    }
}

fn up(only: Option<&str>) -> Outcome {
    for service in wanted(only) {
        if Up::read(service).is_some_and(|up| up.is_alive()) {
            continue;
        }
        let site = service.site()?;
        let Prepared { servers, told } = (service.prepare)(&site)?;
        let mut up = Up { pids: Vec::new(), folder: site.folder.clone(), told };
        for mut server in servers {
            let log = fs::File::options().create(true).append(true).open(site.folder.join("log"));
            let log = log.map_err(|cause| failed(&site.folder, &cause))?;
            let errors = log.try_clone().map_err(|cause| failed(&site.folder, &cause))?;
            // A group of its own: Ctrl-C in this terminal is not for it.
            server.process_group(0).stdin(Stdio::null()).stdout(log).stderr(errors);
            let child = server.spawn().map_err(|cause| failed(&site.program, &cause))?;
            up.pids.push(child.id());
            up.write(service)?;
        }
        service.wait(&site)?;
    }
    status()
}

fn down() -> Outcome {
    for service in SERVICES {
        let Some(up) = Up::read(service) else { continue };
        for signal in ["-TERM", "-CONT"] {
            let pids = up.living().map(|pid| pid.to_string());
            // One that has ended meanwhile is no failure.
            let _ = Command::new("kill").arg(signal).args(pids).stderr(Stdio::null()).status();
        }
        patiently(|| up.living().next().is_none());
        let _ = fs::remove_dir_all(&up.folder);
        let _ = fs::remove_file(Up::path(service));
    }
    status()
}

fn status() -> Outcome {
    for service in SERVICES {
        match Up::read(service).filter(Up::is_alive) {
            Some(up) => {
                for (variable, value) in service.environment(up.told) {
                    println!("export {variable}={value}");
                }
            }
            None => println!("# {} is down", service.name),
        }
    }
    Ok(())
}

impl Service {
    fn environment(&self, told: Vec<String>) -> impl Iterator<Item = (&'static str, String)> {
        self.variables.iter().copied().zip(told)
    }

    /// A new folder and free ports; the program is installed if it is not there.
    fn site(&self) -> Outcome<Site> {
        let program = match self.find() {
            Some(program) => program,
            None => {
                install::packages(self)?;
                let programs = self.programs.join(" or ");
                let gone = || Failure::Check(format!("{programs} is not where it was looked for"));
                self.find().ok_or_else(gone)?
            }
        };
        let owner = if install::is_root() { Some(install::user(self.user)?) } else { None };
        let ports =
            free_ports(self.ports).map_err(|cause| failed(Path::new("127.0.0.1"), &cause))?;
        let folder = env::temp_dir().join(format!("allora-{}-{}", self.name, ports[0]));
        let made = fs::create_dir(&folder)
            .and_then(|()| owner.map_or(Ok(()), |(u, g)| chown(&folder, Some(u), Some(g))));
        made.map_err(|cause| failed(&folder, &cause))?;
        Ok(Site { program, folder, ports, owner })
    }

    /// The server, if all programs are there.
    fn find(&self) -> Option<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> =
            (self.places)().into_iter().chain(env::split_paths(&path)).collect();
        let find = |program: &&str| {
            folders.iter().map(|folder| folder.join(program)).find(|program| program.is_file())
        };
        let found: Option<Vec<PathBuf>> = self.programs.iter().map(find).collect();
        found?.into_iter().next()
    }

    fn wait(&self, site: &Site) -> Outcome {
        if patiently(|| (self.answers)(site)) {
            return Ok(());
        }
        let log = fs::read_to_string(site.folder.join("log")).unwrap_or_default();
        let end: Vec<&str> = log.lines().rev().take(5).collect();
        let end: Vec<&str> = end.into_iter().rev().collect();
        let what = format!("{} does not answer after 60 s:\n{}", self.name, end.join("\n"));
        Err(Failure::Check(what))
    }
}

/// The shell that stops one server when our end of its pipe is closed, and starts it again for each line that
/// comes through it. The folder is gone when the last server of the service is.
fn guard(site: &Site, server: &Command) -> std::io::Result<Child> {
    // SIGINT is the terminal's word to the whole group: the server and we get it, the guard stays.
    // A server that a test has stopped with SIGSTOP takes SIGTERM only when it goes on.
    const SCRIPT: &str = "trap '' INT HUP; folder=$1; shift; \
                          while \"$@\" >>\"$folder/log\" 2>&1 </dev/null & server=$!; read -r _; \
                          do wait $server; done; kill -TERM $server; kill -CONT $server; \
                          wait $server; cd /; rm -rf \"$folder\"";
    let mut guard = site.command("sh");
    guard.args(["-c", SCRIPT, "guard"]).arg(&site.folder);
    guard.arg(server.get_program()).args(server.get_args());
    guard.stdin(Stdio::piped()).spawn()
}

/// A service that was left running.
struct Up {
    pids: Vec<u32>,
    folder: PathBuf,
    told: Vec<String>,
}

impl Up {
    fn path(service: &Service) -> PathBuf {
        target().join(format!("service-{}", service.name))
    }

    fn read(service: &Service) -> Option<Self> {
        let text = fs::read_to_string(Self::path(service)).ok()?;
        let mut lines = text.lines();
        let pids = lines.next()?.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        let folder = lines.next()?.into();
        Some(Self { pids, folder, told: lines.map(str::to_owned).collect() })
    }

    fn write(&self, service: &Service) -> Outcome {
        let path = Self::path(service);
        let pids: Vec<String> = self.pids.iter().map(u32::to_string).collect();
        let told = self.told.join("\n");
        let text = format!("{}\n{}\n{told}\n", pids.join(" "), self.folder.display());
        fs::write(&path, text).map_err(|cause| failed(&path, &cause))
    }

    /// True if every process lives.
    fn is_alive(&self) -> bool {
        self.living().count() == self.pids.len()
    }

    /// The processes that are there and ours: ids are given out again.
    fn living(&self) -> impl Iterator<Item = u32> {
        let folder = self.folder.to_string_lossy().into_owned();
        self.pids.iter().copied().filter(move |pid| {
            let told = Command::new("ps").args(["-o", "args=", "-p", &pid.to_string()]).output();
            told.is_ok_and(|told| String::from_utf8_lossy(&told.stdout).contains(&folder))
        })
    }
}

/// Ports that nobody listens on; bound all at once, so that they are different ones.
fn free_ports(count: usize) -> std::io::Result<Vec<u16>> {
    let bound: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<Result<_, _>>()?;
    bound.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
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

/// The output of a command; empty if it cannot be run.
fn said(mut command: Command) -> String {
    let told = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned()).unwrap_or_default()
}

/// True if a command succeeds.
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
        for words in [&[] as &[&str], &["sideways"], &["up", "now"], &["up", "redis", "now"]] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert!(matches!(run(&words), Err(Failure::Usage(_))), "{words:?}");
        }
    }

    #[test]
    fn stores_without_a_server_need_none() {
        let running = start_all(wanted(Some("memory,sqlite")), Other::Used);
        assert!(running.is_ok_and(|running| running.environment.is_empty()));
    }

    #[test]
    fn every_store_with_a_server_has_one_that_is_single() {
        for service in SERVICES {
            let single = SERVICES.iter().filter(|other| other.name == service.store);
            assert_eq!(single.count(), 1, "{}", service.store);
        }
    }

    #[test]
    fn ports_are_free() {
        let mut ports = free_ports(3).unwrap();
        assert!(ports.iter().all(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()));
        ports.dedup();
        assert_eq!(ports.len(), 3);
    }

    #[test]
    fn a_hung_server_is_stopped_and_its_data_removed() {
        let folder = env::temp_dir().join(format!("allora-hung-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let site = Site { program: "sh".into(), folder, ports: Vec::new(), owner: None };
        let mut server = site.command("sh");
        server.args(["-c", "echo here >stopped; kill -STOP $$; sleep 1000"]);
        let mut guard = guard(&site, &server).unwrap();
        let pipe = guard.stdin.take().unwrap();
        let running = Running { guards: vec![("redis", guard, pipe)], environment: Vec::new() };
        assert!(patiently(|| site.folder.join("stopped").exists()));
        drop(running);
        assert!(!site.folder.exists());
    }
}

//! A place for daemons: a folder with a crontab, a store, and what commands write.

use crate::allora::{Observed, allora_in, command};
use std::{
    cell::Cell,
    env, fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The time that anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until it is so.
#[track_caller]
pub(crate) fn patiently(what: &str, is_so: impl FnMut() -> bool) {
    patiently_or(|| what.to_owned(), is_so);
}

/// Waits until it is so; what is not so is worked out at the end.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "other processes do the work")]
fn patiently_or(what: impl Fn() -> String, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not so: {}", what());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Lets real time pass.
#[expect(clippy::disallowed_methods, reason = "other processes do the work")]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}

pub(crate) struct Site {
    folder: tempfile::TempDir,
    daemons: Cell<usize>,
    /// The arguments of daemons beside the crontab.
    pub(crate) args: Vec<String>,
}

/// A daemon that was started; dropped, it is killed.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
    errors: PathBuf,
}

impl Site {
    /// A place with this crontab, and a store in an SQLite file.
    pub(crate) fn new(crontab: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        let args = ["--url", &url, "--zone", "UTC"].map(String::from).to_vec();
        let site = Self { folder, daemons: Cell::default(), args };
        site.write("jobs", crontab);
        site
    }

    /// With more arguments.
    pub(crate) fn with(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces a file at once, as editors do. `DIR` in the text is this folder.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let text = text.replace("DIR", &self.folder.path().display().to_string());
        fs::write(self.path(".new"), text).unwrap();
        fs::rename(self.path(".new"), self.path(name)).unwrap();
    }

    /// The line that `allora token new` makes, and the token.
    pub(crate) fn token(&self, args: &[&str]) -> (String, String) {
        let made = command(&[&["token", "new"], args].concat()).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(made.stdout), text(made.stderr).trim().to_owned())
    }

    /// The contents of a file; empty if there is none.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The logs of all daemons there were.
    pub(crate) fn logs(&self) -> String {
        (1..=self.daemons.get()).map(|number| self.read(&format!("log.{number}"))).collect()
    }

    /// The number of lines of a file.
    pub(crate) fn lines(&self, name: &str) -> usize {
        self.read(name).lines().count()
    }

    /// Waits until a file has so many lines more.
    #[track_caller]
    pub(crate) fn more_lines(&self, name: &str, more: usize) {
        let before = self.lines(name);
        patiently(&format!("{more} more lines in {name}"), || self.lines(name) >= before + more);
    }

    /// A daemon for the crontab, which has reached its store.
    pub(crate) fn start(&self) -> Daemon {
        let daemon = self.begin(&[]);
        daemon.says("has reached its store");
        daemon
    }

    /// A daemon with the store and the options of its configuration alone.
    pub(crate) fn start_configured(&self) -> Daemon {
        let mut command = command(&["run", "jobs"]);
        command.current_dir(self.folder.path());
        self.begin_as(command)
    }

    /// A daemon that may not come far.
    pub(crate) fn begin(&self, args: &[&str]) -> Daemon {
        self.begin_as(self.command(args))
    }

    /// A daemon by this command.
    pub(crate) fn begin_as(&self, mut command: Command) -> Daemon {
        self.daemons.set(self.daemons.get() + 1);
        let file = |what: &str| self.path(&format!("{what}.{}", self.daemons.get()));
        let (log, errors) = (file("log"), file("errors"));
        command.arg("--log-file").arg(&log);
        let stderr = fs::File::create(&errors).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        Daemon { child: command.spawn().unwrap(), log, errors }
    }

    /// The command for a daemon.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_for("jobs", args)
    }

    /// The command for a daemon with another crontab.
    pub(crate) fn command_for(&self, crontab: &str, args: &[&str]) -> Command {
        let mut command = command(&["run", crontab]);
        command.args(&self.args).args(args).current_dir(self.folder.path());
        command
    }

    /// Another command of `allora` in this folder.
    pub(crate) fn allora(&self, args: &[&str]) -> Observed {
        allora_in(self.folder.path(), args)
    }
}

impl Daemon {
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its standard error so far.
    pub(crate) fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }

    /// Waits until the log has this in it.
    #[track_caller]
    pub(crate) fn says(&self, text: &str) {
        self.says_often(text, 1);
    }

    /// Waits until so many lines of the log have this in them.
    #[track_caller]
    pub(crate) fn says_often(&self, text: &str, times: usize) {
        let count = |log: &str| log.lines().filter(|line| line.contains(text)).count();
        let what = || format!("the log says {text:?}: {}; {}", self.log(), self.errors());
        patiently_or(what, || count(&self.log()) >= times);
    }

    /// Sends it a signal by its name, as `-TERM`.
    pub(crate) fn signal(&self, signal: &str) {
        send(signal, self.child.id());
    }

    /// Waits for its end; answers with its exit code.
    #[track_caller]
    pub(crate) fn end(mut self) -> i32 {
        let mut code = None;
        patiently("the daemon ends", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        code.and_then(|status| status.code()).expect("it was not killed")
    }

    /// Stops it gracefully.
    #[track_caller]
    pub(crate) fn stop(self) -> i32 {
        self.signal("-TERM");
        self.end()
    }

    /// Stops it gracefully; nothing was killed.
    #[track_caller]
    pub(crate) fn stop_well(self) {
        let (log, errors) = (self.log.clone(), self.errors.clone());
        let code = self.stop();
        let [log, errors] = [log, errors].map(|file| fs::read_to_string(file).unwrap_or_default());
        let last: Vec<&str> = log.lines().rev().take(40).collect();
        assert_eq!(code, 0, "{errors}, {last:#?}");
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // One that has ended already is as dead.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process.
pub(crate) fn send(signal: &str, pid: u32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// True if a process lives.
pub(crate) fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// The address of a store's server; `None`, and a word about it, where there is none or it is not
/// wanted. In CI there must be one.
pub(crate) fn server(store: &str, variable: &str) -> Option<String> {
    let only = env::var("ALLORA_TEST_STORES").ok();
    if only.is_some_and(|only| !only.split(',').any(|wanted| wanted == store)) {
        return None;
    }
    let url = env::var(variable).ok();
    if url.is_none() {
        assert!(env::var_os("CI").is_none(), "{variable} is not set");
        skipped(&format!("{variable} is not set"));
    }
    url
}

/// Says that a test did not run.
#[expect(clippy::print_stderr, reason = "a skip must be seen")]
pub(crate) fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

//! `allora run`: the daemon, and the check of crontabs.

use crate::{
    clock,
    console_access::AccessArgs,
    crontab_files::{self, Defaults, Diagnostic, EnvFile, Form, LEASE, Source, find},
    daemon::{
        Daemon, Log, LogFormat, Served, WorkersArgs, init_process, receivers::Receiver, user,
    },
    failure::{Failure, Outcome},
    kinds,
    output::{complain, counted, on_one_line},
    store::{HistoryOptions, StoreArgs, Tables},
    values::{duration, shown},
};
use allora_core::{CatchUp, Delivery, Overlap, Schedule, Settings};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::{
    env,
    io::{self, Write},
    path::{PathBuf, absolute},
    time::Duration,
};
use tracing::Level;

/// Runs crontabs as a daemon, each occurrence on one machine.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Run {
    /// The crontabs; a folder stands for the files in it that cron would read.
    #[arg(required_unless_present_any = ["stored", "test", "workers"])]
    crontabs: Vec<PathBuf>,
    #[command(flatten)]
    place: StoreArgs,
    /// Runs stored schedules of these kinds, too. Everyone who can write to the store can then start
    /// commands on this node.
    #[arg(long, value_name = "KINDS", value_delimiter = ',', num_args = 0..=1, require_equals = true, default_missing_value = "command,http", value_parser = [kinds::COMMAND, kinds::HTTP])]
    stored: Vec<String>,
    /// Reads the crontabs, reports their errors, and ends.
    #[arg(long)]
    check: bool,
    /// Reads this line, says when it runs and what, and ends; nothing is run.
    #[arg(long, value_name = "LINE", conflicts_with_all = ["crontabs", "stored", "check"])]
    test: Option<String>,
    /// With --check: prints JSON, one object a line.
    #[arg(long, requires = "check")]
    json: bool,
    /// Crontabs have a user before the command, as /etc/crontab [default: by the file's folder].
    #[arg(long, conflicts_with = "user")]
    system: bool,
    /// The crontabs have no user before the command, as those of `crontab -e`.
    #[arg(long)]
    user: bool,
    /// Lines have six time fields, seconds first, unless the crontab sets ALLORA_SECONDS=0.
    #[arg(long)]
    seconds: bool,
    /// The zone of schedules that name none [default: the machine's].
    #[arg(long)]
    zone: Option<String>,
    /// A name for people in front of this node's id, and at the end of the names of lines that run
    /// on every node; another one for each daemon [default: the host's].
    #[arg(long)]
    node_name: Option<String>,
    /// A label of this node: lines below `ALLORA_LABEL=LABEL`, and stored schedules that were added
    /// with `--label LABEL`, run on nodes that have it. May be given several times.
    #[arg(long = "node-label", value_name = "LABEL", value_parser = node_label)]
    node_labels: Vec<String>,
    /// Runs an occurrence again if its node dies, instead of recording it as lost.
    #[arg(long)]
    at_least_once: bool,
    /// Which missed occurrences are run: `latest`, `none`, or `all` and a limit, as 'all 100'.
    #[arg(long, default_value = "latest")]
    catch_up: CatchUp,
    /// Does not run what is later than this [default: however late].
    #[arg(long, value_parser = duration)]
    window: Option<Duration>,
    /// The treatment of an occurrence while the one before still runs: allow, skip, wait or replace.
    #[arg(long, default_value = "allow")]
    overlap: Overlap,
    /// Ends commands that take longer [default: never].
    #[arg(long, value_parser = duration)]
    timeout: Option<Duration>,
    /// Time between TERM and KILL for a command.
    #[arg(long, default_value = "10s", value_parser = duration)]
    kill_after: Duration,
    /// Time that commands have to end when the daemon is stopped.
    #[arg(long, default_value = "30s", value_parser = duration)]
    grace: Duration,
    /// The lease of an at-most-once run: it is recorded as lost if its node does not extend the
    /// lease for so long.
    #[arg(long, default_value = "30s", value_parser = duration)]
    lost_after: Duration,
    /// The interval at which this node writes its record, which `allora nodes` shows: 1 s to 5 min.
    #[arg(long, default_value = "15s", value_parser = duration)]
    heartbeat: Duration,
    /// Removes the records of lines that no live daemon has after this time, at least 1 h [default:
    /// never].
    #[arg(long, value_parser = duration)]
    prune_orphans: Option<Duration>,
    /// Time to wait at the start for a store that does not answer; 0 fails at once [default: until
    /// it answers].
    #[arg(long, value_parser = duration)]
    store_wait: Option<Duration>,
    /// The largest number of commands, and of runs that workers have, at once on this node.
    #[arg(long, default_value_t = 1_000)]
    concurrency: usize,
    #[command(flatten)]
    history: HistoryOptions,
    /// Where what commands print goes.
    #[arg(long, default_value = "log")]
    output: Output,
    /// A file of variables for the commands of crontabs, `NAME=value` line by line as in systemd's
    /// EnvironmentFile; read at the start and with HUP. May be given several times.
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
    /// Replaces the value of this variable of a command, or else of the daemon, by *** in what
    /// commands print, before it reaches log, history, alerts and mail. Values of less than 4 bytes
    /// are left. May be given several times.
    #[arg(long = "mask", value_name = "NAME")]
    masked: Vec<String>,
    /// Gives commands the daemon's own environment, too.
    #[arg(long)]
    keep_environment: bool,
    /// Appends the log to this file, which USR2 reopens [default: standard error].
    #[arg(long)]
    log_file: Option<PathBuf>,
    /// Form of the log's lines.
    #[arg(long, default_value = "text")]
    log_format: LogFormat,
    /// Serves /healthz, /readyz and /metrics over HTTP on this address, as 127.0.0.1:9117 [default:
    /// not at all].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Also serves the pages of `allora console` there. Without --tokens, the address must be a loopback one.
    #[arg(long, requires = "listen")]
    console: bool,
    /// Serves the HTTP API there as well, below /v1. --console and --workers include it.
    #[arg(long, requires = "listen")]
    api: bool,
    #[command(flatten)]
    workers: WorkersArgs,
    #[command(flatten)]
    access: AccessArgs,
    /// The folder with a file for each secret that stored schedules name [default: the variables
    /// ALLORA_SECRET_NAME].
    #[arg(long, value_name = "FOLDER", requires = "stored")]
    secrets: Option<PathBuf>,
    /// A command, or a URL, that gets failed, dead, lost, expired, missed, recovered and cut off runs
    /// as JSON, as ALLORA_ON_FAILURE does: for stored schedules, and for lines without that variable.
    #[arg(long, value_name = "COMMAND")]
    on_failure: Option<String>,
    /// The receiver of alerts about the stored schedules of an owner, in place of --on-failure: a command, a URL,
    /// mailto:ADDRESS, or ping:URL, which is requested after each success, and with /fail after a
    /// failure; {job} in it is the job's name. Repeated for several.
    #[arg(long, value_name = "OWNER=TARGET", requires = "stored")]
    receiver: Vec<Receiver>,
    /// The program that sends the mail of lines below `MAILTO`.
    #[arg(long, default_value = "/usr/sbin/sendmail")]
    sendmail: PathBuf,
    /// Level of the log.
    #[arg(long, default_value = "info")]
    log_level: LogLevel,
}

const HELP: &str = "\
CRONTABS
  Lines are those of Debian's cron. Schedules go by CRON_TZ=ZONE above them, else by --zone, else by
  the machine's zone. Variables above a line say how it is run:
    ALLORA_DELIVERY=at-least-once        run again when a node dies during the run
    ALLORA_LEASE=30s                     the lease of such a run, unless it is extended
    ALLORA_ATTEMPTS=3 ALLORA_RETRY_WAIT=10s   try a failed at-least-once line again
    ALLORA_CATCH_UP=latest|none|all 100  which missed occurrences run
    ALLORA_WINDOW=1h                     not run when later than this
    ALLORA_OVERLAP=allow|skip|wait|replace   while the one before still runs; replace ends that
    ALLORA_CONCURRENCY_KEY=tapes         one at a time with all lines and jobs of this key;
                                         tapes:2 for two at a time
    ALLORA_MAX_KEY_WAIT=1h               skipped when the key is busy for longer
    ALLORA_BREAKER='5 10m'               pauses itself after five failed occurrences in a row, and
                                         tries one after ten minutes
    ALLORA_ALERT='3 6h'                  tells people after three failed ones in a row, again at most
                                         every six hours, and when one succeeds again
    ALLORA_HISTORY='50 30d'              keeps so many failures and so many other entries, and their age
    ALLORA_AFTER='import failed'         after each failure of this job (or `succeeded`, `ended`), too;
                                         `@never` in place of time fields for nothing else
    ALLORA_TIMEOUT=10m                   TERM, and KILL after --kill-after, to all it started
    ALLORA_DELAY=30s ALLORA_JITTER=5m    later than scheduled; jitter follows from the name
    ALLORA_START=2027-01-01T00:00:00Z    not before; ALLORA_END: not after; ALLORA_MAX_RUNS: so often
    ALLORA_SECONDS=1                     six time fields, seconds first
    ALLORA_NODES=one|every               on one of the nodes, or on each; then its name ends in
                                         @ and --node-name, as that of a @reboot line
    ALLORA_LABEL=gpu,!spot               only on nodes with --node-label gpu and without spot
    ALLORA_ON_FAILURE='page-me'          a command (or URL) that gets a failed, dead, lost, expired or
                                         cut off run, one that was lost and has ended all the same
                                         (recovered), and missed occurrences as JSON;
                                         ALLORA_PING=URL is requested after each success, and with
                                         /fail after a failure
                                         --on-failure is for all jobs that name none
    MAILTO=a@example.org                 mails what a command prints, with --sendmail
  Each on a line of its own, for the lines below it; an empty value ends that. One is for the
  next line alone:
    ALLORA_NAME=backup                   its name, FILE:backup, which an edit of the line keeps

COMMANDS
  run by $SHELL -c in $HOME, in a process group of their own, with PATH=/usr/bin:/bin unless the
  crontab says otherwise. Their environment has ALLORA_JOB, ALLORA_SCHEDULED_AT, ALLORA_ATTEMPT,
  ALLORA_FENCE (grows with every run of the job), ALLORA_MUTEX_FENCE (with every run of its key),
  ALLORA_OCCURRENCE (the same for every attempt) and
  ALLORA_NODE. A status other than 0 is a failure.
  Of a variable that is set in several places, these count, the last first: ALLORA_JOB and the others
  above, LOGNAME and USER; the crontab; --env-file, of several files the last one; PATH, SHELL, HOME
  and TZ as cron sets them; --keep-environment.

STORED SCHEDULES
  with --stored, those of two kinds are run as `allora add` has stored them:
    command  {\"command\": [\"/usr/local/bin/backup\", \"--all\"], \"env\": {..}, \"input\": \"..\",
              \"folder\": \"..\", \"timeout\": \"10m\"}, without any shell
    http     {\"url\": \"https://..\", \"method\": \"POST\", \"headers\": {..}, \"body\": ..,
              \"timeout\": \"30s\", \"sign\": {\"key\": \"NAME\", \"secret\": {\"secret\": \"NAME\"}}}, with the
              headers Idempotency-Key (the same for every attempt), Allora-Job, Allora-Scheduled-At,
              Allora-Attempt and Allora-Fence; a status of 200 to 299 is success, and redirects are
              not followed. With `sign`, each attempt is signed by RFC 9421 (hmac-sha256), so that its
              receiver can tell who sent it. The history has the beginning of the answer
  One that was added with --label 'gpu,!spot' has the kind command@gpu,!spot or http@gpu,!spot, and
  runs on nodes with --node-label gpu and without spot.
  A value of env or headers may be {\"secret\": \"NAME\"}, as the secret of `sign` is: the file NAME of
  --secrets, or the variable ALLORA_SECRET_NAME of the daemon.

WORKERS
  with --workers, programs in any language ask for runs at /v1/claims, and the runs of their kinds are
  theirs: the guide \"Workers in any language\" has the requests. Their tokens need the scope `work`.
    (umask 077; allora token key > workers-key)       once; the same file for all gateways

SIGNALS
  HUP, USR1         reads the crontabs and --tokens again; active runs continue (changed crontabs are
                    noticed within 5 s without it). A bad new version changes nothing; log,
                    `allora status` and `allora doctor` say why, and a start with bad lines runs the
                    good ones
  USR2              reopens the log file
  TERM, INT, QUIT   claims nothing more, lets commands end within --grace; the second one ends them
                    at once

STORE
  Without --url: allora.db in $STATE_DIRECTORY, /var/lib/allora (root), $XDG_STATE_HOME/allora or
  ~/.local/state/allora. Daemons that share a store share the work. One that is started before its
  store waits until that answers, and the log says so; a login that is refused, an address that
  cannot be right, and tables of a newer version end it at once.

EXAMPLES
  allora run --check crontab
  allora run --test '30 2 * * 1-5 backup --all'
  allora run /etc/crontab /etc/cron.d
  allora run crontab --url postgres://cron@db.example/cron --at-least-once
  allora run --stored --url postgres://cron@db.example/cron
  allora run --workers --listen 127.0.0.1:9117 --url postgres://cron@db.example/cron";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Each line into the log; of failed runs the last ones into the history, too.
    Log,
    /// Of failed runs the last lines into log and history, else nowhere.
    History,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogLevel {
    /// Nothing.
    Off,
    Error,
    Warn,
    Info,
    Debug,
}

/// The number of next times of a line that is tested.
const NEXT: usize = 3;

impl Run {
    pub(crate) fn run(self) -> Outcome {
        let has_sendmail = self.sendmail.is_file();
        let (zone, settings) = (Some(crontab_files::zone(self.zone.as_deref())?), self.settings()?);
        let env_file = EnvFile::read(&self.env_file);
        let env_file = env_file.map_err(|wrong| Failure::wrong(wrong.to_string()))?;
        let seconds = self.seconds;
        let defaults = Defaults { zone, settings, seconds, has_sendmail, env_file };
        if let Some(line) = &self.test {
            return self.test(line, &defaults);
        }
        if self.check {
            return self.check(&defaults);
        }
        if init_process::is_first() {
            return init_process::run();
        }
        init_process::unblock_signals();
        let log = Log::open(self.log_file.clone())?;
        log.begin(self.log_level.level(), self.log_format);
        let daemon = self.daemon(defaults)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
        let (place, history) = (self.place, self.history);
        let open = async || place.open(Tables::Make, history).await;
        let ended = runtime.block_on(daemon.run(open, &log));
        log.end(ended)
    }

    fn form(&self) -> Option<Form> {
        match (self.system, self.user) {
            (true, _) => Some(Form::System),
            (_, true) => Some(Form::User),
            _ => None,
        }
    }

    /// Reads everything, runs nothing; for the eyes of people and of CI.
    fn check(&self, defaults: &Defaults) -> Outcome {
        let (mut jobs, mut bad) = (0, 0);
        let mut out = io::stdout().lock();
        for source in find(&self.crontabs, self.form())? {
            let mut reading = match source.text() {
                Ok(text) => crontab_files::read(&source, &text, defaults),
                Err(diagnostic) => {
                    crontab_files::Reading { diagnostics: vec![diagnostic], ..Default::default() }
                }
            };
            for line in &reading.lines {
                let error = user::unknown(line.shell.user.as_deref());
                let error = error.map(|what| source.diagnostic(Some(line.number), what));
                reading.diagnostics.extend(error);
            }
            for diagnostic in &reading.diagnostics {
                self.say(&mut out, "error", diagnostic)?;
            }
            for notice in &reading.notices {
                self.say(&mut out, "warning", notice)?;
            }
            jobs += reading.lines.len();
            bad += reading.diagnostics.len();
        }
        for notice in crontab_files::ignored(&self.crontabs) {
            self.say(&mut out, "warning", &notice)?;
        }
        match self.json {
            true => writeln!(out, "{}", json!({ "version": 1, "jobs": jobs, "errors": bad }))?,
            false => writeln!(out, "{}, {}.", counted(jobs, "job"), counted(bad, "error"))?,
        }
        out.flush()?;
        if bad == 0 { Ok(()) } else { Err(Failure::Said(1)) }
    }

    /// Reads one line as a crontab of its own.
    fn test(&self, line: &str, defaults: &Defaults) -> Outcome {
        let form = self.form().unwrap_or(Form::User);
        let source = Source { path: "line".into(), form, owner: None };
        let text = format!("{}\n", line.trim_end_matches(['\r', '\n']));
        let reading = crontab_files::read(&source, text.as_bytes(), defaults);
        for notice in &reading.notices {
            complain("warning", &notice.to_string());
        }
        if let Some(diagnostic) = reading.diagnostics.first() {
            return Err(Failure::failed(diagnostic.to_string()));
        }
        let Some(line) = reading.lines.first() else {
            return Err(Failure::failed(
                "this is not the line of a job; write a time and a command",
            ));
        };
        let mut out = io::stdout().lock();
        let when = match &line.schedule {
            None => Some("at the start of the daemon".to_owned()),
            Some(schedule) => schedule.describe(),
        };
        if let Some(when) = when {
            writeln!(out, "runs     {}", on_one_line(&when))?;
        }
        if let Some(schedule) = &line.schedule {
            for next in line.settings.explain(&line.name, schedule, clock::now(), NEXT) {
                writeln!(out, "next     {}", shown(next.nominal))?;
            }
        }
        if let Some(user) = &line.shell.user {
            writeln!(out, "user     {user}")?;
            if let Some(error) = user::unknown(Some(user)) {
                complain("error", &error);
                return Err(Failure::Said(1));
            }
        }
        writeln!(out, "command  {}", on_one_line(&line.shell.command))?;
        if let Some(input) = &line.shell.stdin {
            writeln!(out, "input    {}", on_one_line(input.trim_end()))?;
        }
        Ok(out.flush()?)
    }

    /// Says what was found in a crontab.
    fn say(&self, out: &mut impl Write, sort: &str, found: &Diagnostic) -> Outcome {
        if !self.json {
            complain(sort, &found.to_string());
            return Ok(());
        }
        let Diagnostic { path, line, column, what } = found;
        let path = path.display().to_string();
        let object = json!({
            "severity": sort, "file": path, "line": line, "column": column, "message": what,
        });
        Ok(writeln!(out, "{object}")?)
    }

    fn settings(&self) -> Outcome<Settings> {
        let lease = Delivery::AtLeastOnce { lease: LEASE };
        let mut settings = Settings::default();
        settings.delivery = if self.at_least_once { lease } else { Delivery::AtMostOnce };
        (settings.catch_up, settings.overlap) = (self.catch_up, self.overlap);
        (settings.window, settings.timeout) = (self.window, self.timeout);
        settings.check().map_err(|error| Failure::Invalid(error.to_string()))?;
        Ok(settings)
    }

    fn daemon(&self, defaults: Defaults) -> Outcome<Daemon> {
        let is_served = self.console || self.api || self.workers.workers;
        if let Some(option) = self.access.given().filter(|_| !is_served) {
            let what = format!(
                "{option} is an option of the console and of the API; add --console, --api or --workers, or leave it away"
            );
            return Err(Failure::wrong(what));
        }
        let served = Served { access: self.access.clone(), has_pages: self.console };
        let host = || nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let environment = env::vars().filter(|(name, _)| self.keep_environment && passes(name));
        Ok(Daemon {
            crontabs: self.crontabs.clone(),
            env_files: self.env_file.clone(),
            form: self.form(),
            defaults,
            store: self.place.shown()?,
            kinds: self.stored.clone(),
            node_name: self.node_name.clone().or_else(host).unwrap_or_else(|| "node".into()),
            node_labels: self.node_labels.clone(),
            concurrency: self.concurrency,
            grace: self.grace,
            kill_after: self.kill_after,
            lost_after: self.lost_after,
            heartbeat: self.heartbeat,
            prune_orphans: self.prune_orphans,
            store_wait: self.store_wait,
            log_output: self.output == Output::Log,
            secrets: self.secrets.clone(),
            listen: self.listen.clone(),
            served: is_served.then_some(served),
            workers: self.workers.clone(),
            on_failure: self.on_failure.clone(),
            receivers: self.receiver.clone(),
            // It is started in the folder of the line's user.
            sendmail: absolute(&self.sendmail)
                .unwrap_or(self.sendmail.clone())
                .display()
                .to_string(),
            environment: environment.collect(),
            masked: self.masked.clone(),
        })
    }
}

/// A label that a selector can name.
fn node_label(text: &str) -> Result<String, String> {
    if text.contains([',', '!', '@']) {
        return Err("one label, without commas, ! and @; repeat the option for several".into());
    }
    Ok(text.to_owned())
}

/// True unless the variable is the daemon's alone: its store's address may hold a password, and its
/// supervisor accepts messages only from the daemon.
fn passes(name: &str) -> bool {
    !name.starts_with("ALLORA_")
        && !matches!(name, "NOTIFY_SOCKET" | "WATCHDOG_PID" | "WATCHDOG_USEC")
}

impl LogLevel {
    fn level(self) -> Option<Level> {
        match self {
            Self::Off => None,
            Self::Error => Some(Level::ERROR),
            Self::Warn => Some(Level::WARN),
            Self::Info => Some(Level::INFO),
            Self::Debug => Some(Level::DEBUG),
        }
    }
}

//! Alerts to people: commands, URLs, mails and pings that a line asks for.
//!
//! They are sent beside the runs, at most eight at a time. An alert that cannot be sent is logged,
//! and not tried again. Of a job with a rule, the store counts the failures in a row, and the event about
//! them is the alert; single failures are none.

use super::{
    group::Group,
    metrics,
    receivers::{Lookup, Receiver, Target, Wishes},
    user::Account,
};
use crate::{
    clock::monotonic,
    crontab_files::{Line, Notices},
    kinds::http,
    values::shown,
};
use allora_core::{AlertRule, BoxError, Time, backend::NotRunReason};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};
use tokio::{io::AsyncWriteExt, sync::Semaphore};
use tracing::{error, warn};
use ureq::Agent;

/// The time that a command, a mail or a request may take.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The number of alerts that are sent at a time, and of those that wait.
const AT_A_TIME: usize = 8;
const WAITING: usize = 1_000;

/// The alerts of this daemon's lines.
pub(crate) struct Alerts {
    by_job: Mutex<HashMap<String, Arc<OfLine>>>,
    /// The receivers of stored schedules, and what their definitions say.
    receivers: Vec<Receiver>,
    lookup: Lookup,
    /// The last failure of each job with a rule, until its alert is due: it has the output.
    last: Mutex<HashMap<String, Alert>>,
    /// When people were last told that something of a job was not run.
    told: Mutex<HashMap<String, Instant>>,
    /// This node's id.
    node: OnceLock<String>,
    /// The command or URL for failures of jobs that name none.
    on_failure: Option<String>,
    sendmail: String,
    /// Made for the first request: it reads the machine's certificates.
    agent: Arc<OnceLock<Agent>>,
    turns: Arc<Semaphore>,
    room: Arc<Semaphore>,
    runtime: tokio::runtime::Handle,
}

/// The alerts of a line, its rule, and the user who sends them.
#[derive(Debug)]
struct OfLine {
    notices: Notices,
    wishes: Wishes,
    user: Option<String>,
}

/// One thing that people should know.
#[derive(Clone, Debug)]
pub(crate) struct Alert {
    pub(crate) event: &'static str,
    pub(crate) job: String,
    pub(crate) scheduled_at: Time,
    pub(crate) fence: i64,
    pub(crate) node: String,
    pub(crate) attempt: Option<u32>,
    pub(crate) exit_status: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) took: Option<Duration>,
    pub(crate) error: Option<String>,
    /// Why a run was cancelled, if this node knows it.
    pub(crate) reason: Option<NotRunReason>,
    pub(crate) output: String,
    /// The number of failed occurrences in a row, of a job with a rule about them.
    pub(crate) failures: Option<u32>,
    pub(crate) owner: Option<String>,
}

impl Alert {
    pub(crate) fn new(
        event: &'static str,
        job: &str,
        scheduled_at: Time,
        fence: i64,
        node: &str,
    ) -> Self {
        Self {
            event,
            job: job.to_owned(),
            scheduled_at,
            fence,
            node: node.to_owned(),
            attempt: None,
            exit_status: None,
            signal: None,
            took: None,
            error: None,
            reason: None,
            output: String::new(),
            failures: None,
            owner: None,
        }
    }

    /// The documented object, version 1.
    fn json(&self) -> Value {
        let took = self.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        json!({
            "version": 1,
            "event": self.event,
            "job": self.job,
            "scheduled_at": shown(self.scheduled_at),
            "fence": self.fence,
            "node": self.node,
            "attempt": self.attempt,
            "exit_status": self.exit_status,
            "signal": self.signal,
            "took_ms": took,
            "error": self.error,
            "reason": self.reason.map(NotRunReason::word),
            "output": self.output,
            "failures": self.failures,
            "owner": self.owner,
        })
    }

    /// The text of a mail: the output; without one, the error.
    fn text(&self) -> &str {
        match self.output.is_empty() {
            true => self.error.as_deref().unwrap_or_default(),
            false => &self.output,
        }
    }

    /// True if people are to know it: a failure, but not before the last attempt; what was not run;
    /// and the end of what was reported as lost.
    fn is_sent(&self) -> bool {
        self.is_counted()
            || self.is_not_run()
            || matches!(self.event, "failing" | "paused" | "recovered" | "resolved")
    }

    /// A failed occurrence, which counts among those in a row.
    fn is_counted(&self) -> bool {
        matches!(self.event, "failed" | "dead" | "lost")
    }

    /// Something was not run, or not to its end.
    fn is_not_run(&self) -> bool {
        matches!(self.event, "expired" | "missed" | "overdue") || self.is_cut_off()
    }

    /// True if a stop cut the run off, and it is not run again.
    fn is_cut_off(&self) -> bool {
        self.event == "cancelled" && self.reason == Some(NotRunReason::Shutdown)
    }
}

impl std::fmt::Debug for Alerts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alerts").field("sendmail", &self.sendmail).finish_non_exhaustive()
    }
}

impl Alerts {
    pub(crate) fn new(
        on_failure: Option<String>,
        sendmail: String,
        (receivers, lookup): (Vec<Receiver>, Lookup),
        runtime: tokio::runtime::Handle,
    ) -> Self {
        Self {
            by_job: Mutex::default(),
            receivers,
            lookup,
            last: Mutex::default(),
            told: Mutex::default(),
            node: OnceLock::new(),
            on_failure,
            sendmail,
            agent: Arc::default(),
            turns: Arc::new(Semaphore::new(AT_A_TIME)),
            room: Arc::new(Semaphore::new(WAITING)),
            runtime,
        }
    }

    /// Sets this node's id, before it runs anything.
    pub(crate) fn set_node(&self, node: &str) {
        self.node.get_or_init(|| node.to_owned());
    }

    pub(crate) fn node(&self) -> &str {
        self.node.get().map_or("", String::as_str)
    }

    /// Alerts about the job of this line as it says.
    pub(crate) fn set(&self, line: &Line) {
        let wishes = Wishes { owner: None, rule: line.settings.alert };
        let (notices, user) = (line.notices.clone(), line.shell.user.clone());
        self.by_job().insert(line.name.clone(), Arc::new(OfLine { notices, wishes, user }));
    }

    /// A run has ended.
    pub(crate) fn ended(self: &Arc<Self>, alert: Alert) {
        if alert.is_counted() {
            // Before the alert about the count, which may overtake this one.
            self.last().insert(alert.job.clone(), alert.clone());
        }
        let Some(line) = self.line(&alert.job) else {
            let pings = self.receivers.iter().any(|one| matches!(one.target, Target::Ping(_)));
            if alert.is_sent() || pings {
                self.look_up(alert);
            }
            return;
        };
        if let Some(to) = &line.notices.mail_to
            && !alert.output.is_empty()
        {
            let (from, user) = (line.notices.mail_from.clone(), line.user.clone());
            self.spawn(&alert, "the mail to MAILTO", self.mail(to, from, user, &alert));
        }
        if let Some(url) = &line.notices.ping {
            self.ping(url, "the request of ALLORA_PING", &alert);
        }
        self.send(alert);
    }

    /// Something else has happened to an occurrence.
    pub(crate) fn send(self: &Arc<Self>, alert: Alert) {
        if !alert.is_sent() {
            return;
        }
        let Some(line) = self.line(&alert.job) else { return self.look_up(alert) };
        let Some(alert) = self.by_rule(line.wishes.rule, alert) else { return };
        match &line.notices.on_failure {
            // The daemon's own command runs as the daemon.
            None => self.call_default(&alert),
            Some(target) => {
                let what = match is_url(target) {
                    true => "the request of ALLORA_ON_FAILURE",
                    false => "the command of ALLORA_ON_FAILURE",
                };
                self.call(target, what, line.user.clone(), &alert);
            }
        }
    }

    /// Reads what the definition of a stored schedule says, and tells its owner.
    fn look_up(self: &Arc<Self>, alert: Alert) {
        // It is among those that a stop waits for.
        let Ok(room) = self.room.clone().try_acquire_owned() else {
            metrics::alerted(false);
            let (job, event) = (alert.job, alert.event);
            error!(target: "allora", job, event, "alert not sent: {WAITING} others wait");
            return;
        };
        let this = self.clone();
        self.runtime.spawn(async move {
            let Wishes { owner, rule } = this.lookup.wishes(&alert.job).await;
            this.tell(Alert { owner, ..alert }, rule);
            drop(room);
        });
    }

    /// Tells the receivers of the owner of a stored schedule; without one, the daemon's own.
    fn tell(&self, alert: Alert, rule: Option<AlertRule>) {
        let of_owner = self.receivers.iter().filter(|one| Some(&one.owner) == alert.owner.as_ref());
        for receiver in of_owner.clone() {
            if let Target::Ping(url) = &receiver.target {
                self.ping(&Receiver::ping(url, &alert.job), "the ping of --receiver", &alert);
            }
        }
        let Some(alert) = Some(alert).filter(Alert::is_sent) else { return };
        let Some(alert) = self.by_rule(rule, alert) else { return };
        let mut is_told = false;
        for receiver in self.receivers.iter().filter(|one| Some(&one.owner) == alert.owner.as_ref())
        {
            match &receiver.target {
                Target::Ping(_) => continue,
                Target::Call(target) => self.call(target, "the target of --receiver", None, &alert),
                Target::Mail(to) => {
                    let mail = self.mail(to, None, None, &alert);
                    self.spawn(&alert, "the mail of --receiver", mail);
                }
            }
            is_told = true;
        }
        if !is_told {
            self.call_default(&alert);
        }
    }

    /// The alert, if the rule of its job does not hold it back. A failure waits for the count of the
    /// store, and gives its output to the alert about that.
    fn by_rule(&self, rule: Option<AlertRule>, alert: Alert) -> Option<Alert> {
        let Some(rule) = rule else {
            if alert.is_counted() {
                self.last().remove(&alert.job);
            }
            return Some(alert);
        };
        if let Some(failures) = alert.failures {
            let before = self.last().remove(&alert.job).filter(|_| alert.event != "recovered");
            return Some(match before {
                None => alert,
                Some(before) => {
                    let (event, owner) = (alert.event, alert.owner);
                    Alert { event, owner, failures: Some(failures), ..before }
                }
            });
        }
        if alert.is_counted() || alert.event == "recovered" {
            return None;
        }
        if let Some(period) = rule.again_every.filter(|_| alert.is_not_run()) {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.get(&alert.job).is_some_and(|at| at.elapsed() < period) {
                return None;
            }
            told.insert(alert.job.clone(), monotonic());
        }
        Some(alert)
    }

    fn last(&self) -> MutexGuard<'_, HashMap<String, Alert>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call_default(&self, alert: &Alert) {
        let Some(target) = &self.on_failure else { return };
        let what = match is_url(target) {
            true => "the request of --on-failure",
            false => "the command of --on-failure",
        };
        self.call(target, what, None, alert);
    }

    /// Requests a URL, or runs a command, with the object.
    fn call(&self, target: &str, what: &'static str, user: Option<String>, alert: &Alert) {
        let target = target.to_owned();
        match is_url(&target) {
            true => self.spawn(alert, what, self.request(target, Some(alert.json()))),
            false => self.spawn(alert, what, self.command(target, user, alert)),
        }
    }

    /// Requests the URL of a dead-man's switch, if the end of the run is one that it waits for.
    fn ping(&self, url: &str, what: &'static str, alert: &Alert) {
        let url = match alert.event {
            "succeeded" => url.to_owned(),
            "failed" | "dead" => format!("{}/fail", url.trim_end_matches('/')),
            _ if alert.is_cut_off() => format!("{}/fail", url.trim_end_matches('/')),
            _ => return,
        };
        self.spawn(alert, what, self.request(url, None));
    }

    /// Waits until every alert is sent, or until `enough` is ready. Returns the number of those that
    /// are not sent.
    pub(crate) async fn sent(&self, enough: impl Future<Output = ()>) -> usize {
        let all = u32::try_from(WAITING).unwrap_or(u32::MAX);
        let are_sent = tokio::select! {
            _ = self.room.acquire_many(all) => true,
            () = enough => false,
        };
        if are_sent { 0 } else { WAITING - self.room.available_permits() }
    }

    fn line(&self, job: &str) -> Option<Arc<OfLine>> {
        self.by_job().get(job).cloned()
    }

    fn by_job(&self) -> MutexGuard<'_, HashMap<String, Arc<OfLine>>> {
        self.by_job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends it when it is its turn.
    fn spawn(
        &self,
        alert: &Alert,
        what: &'static str,
        work: impl Future<Output = Result<(), BoxError>> + Send + 'static,
    ) {
        let (job, event) = (alert.job.clone(), alert.event);
        let Ok(room) = self.room.clone().try_acquire_owned() else {
            metrics::alerted(false);
            error!(target: "allora", job, event, alert = what, "alert not sent: {WAITING} others wait");
            return;
        };
        let turns = self.turns.clone();
        self.runtime.spawn(async move {
            let turn = turns.acquire_owned().await;
            let sent = tokio::time::timeout(TIME_LIMIT, work).await;
            let result =
                sent.unwrap_or_else(|_| Err(format!("it did not end within {TIME_LIMIT:?}").into()));
            metrics::alerted(result.is_ok());
            if let Err(error) = result {
                warn!(target: "allora", job, event, alert = what, error = %error, "alert not sent; correct it, or what it calls");
            }
            drop((turn, room));
        });
    }

    /// A GET, or a POST of JSON.
    fn request(
        &self,
        url: String,
        body: Option<Value>,
    ) -> impl Future<Output = Result<(), BoxError>> + Send + 'static {
        let agent = self.agent.clone();
        async move {
            let sent = tokio::task::spawn_blocking(move || -> Result<u16, String> {
                let agent = agent.get_or_init(http::agent);
                let answer = match body {
                    None => {
                        agent.get(&url).config().timeout_global(Some(TIME_LIMIT)).build().call()
                    }
                    Some(body) => agent
                        .post(&url)
                        .config()
                        .timeout_global(Some(TIME_LIMIT))
                        .build()
                        .header("content-type", "application/json")
                        .send(body.to_string()),
                };
                Ok(answer.map_err(|error| error.to_string())?.status().as_u16())
            });
            match sent.await?? {
                200..=299 => Ok(()),
                status => Err(format!("the receiver answered with status {status}").into()),
            }
        }
    }

    /// A command of the shell, with the object as its input, as this user.
    fn command(
        &self,
        command: String,
        user: Option<String>,
        alert: &Alert,
    ) -> impl Future<Output = Result<(), BoxError>> + Send + 'static {
        let args = vec!["-c".to_owned(), command];
        let variables = vec![
            ("ALLORA_EVENT".to_owned(), alert.event.to_owned()),
            ("ALLORA_JOB".to_owned(), alert.job.clone()),
            ("ALLORA_SCHEDULED_AT".to_owned(), shown(alert.scheduled_at)),
        ];
        let input = alert.json().to_string() + "\n";
        run("/bin/sh".into(), args, variables, user, input)
    }

    /// The output by mail, as cron sends it.
    fn mail(
        &self,
        to: &str,
        from: Option<String>,
        user: Option<String>,
        alert: &Alert,
    ) -> impl Future<Output = Result<(), BoxError>> + Send + 'static {
        let one_line = |text: &str| text.replace(['\r', '\n'], " ");
        let result = match alert.event {
            "succeeded" => "succeeded".to_owned(),
            event if alert.failures.is_some() => {
                let failures = alert.failures.unwrap_or_default();
                format!("{event}, {failures} failed in a row")
            }
            _ if alert.is_cut_off() => "cut off by the stop of its daemon".to_owned(),
            event => match (alert.exit_status, alert.signal) {
                (Some(status), _) => format!("{event}, exit status {status}"),
                (None, Some(signal)) => format!("{event}, signal {signal}"),
                (None, None) => event.to_owned(),
            },
        };
        let from = from.map(|from| format!("From: {}\n", one_line(&from))).unwrap_or_default();
        // A name may have a line feed, which would end the header.
        let job = one_line(&alert.job);
        let (at, node) = (shown(alert.scheduled_at), one_line(&alert.node));
        let text = format!(
            "{from}To: {}\nSubject: {job}: {result}\nAuto-Submitted: auto-generated\n\
             MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nX-Allora-Job: {job}\n\
             X-Allora-Scheduled-At: {at}\nX-Allora-Node: {node}\n\n{}\n",
            one_line(to),
            alert.text()
        );
        let args = vec!["-i".to_owned(), "-t".to_owned()];
        run(self.sendmail.clone(), args, Vec::new(), user, text)
    }
}

fn is_url(target: &str) -> bool {
    target.starts_with("http://") || target.starts_with("https://")
}

/// Runs a program with this input; it must end with status 0.
async fn run(
    program: String,
    args: Vec<String>,
    mut variables: Vec<(String, String)>,
    user: Option<String>,
    input: String,
) -> Result<(), BoxError> {
    let account = tokio::task::spawn_blocking(move || Account::of(user.as_deref())).await??;
    let home = account.home.to_string_lossy().into_owned();
    for (name, value) in [
        ("HOME", home.as_str()),
        ("LOGNAME", &account.name),
        ("USER", &account.name),
        ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"),
    ] {
        variables.push((name.to_owned(), value.to_owned()));
    }
    let folder = if account.home.is_dir() { account.home.as_path() } else { Path::new("/") };
    let command = account.command(&program, &args, folder, &variables);
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.process_group(0).spawn();
    let child = child.map_err(|error| format!("cannot start {program}: {error}"))?;
    // Dropped at the time limit, it ends all that the command has started.
    let mut group = Group::new(child, Vec::new());
    if let Some(mut stdin) = group.child.stdin.take() {
        // A program that does not read all of its input is no failure.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let status = group.child.wait().await?;
    // Processes that it left in the background may go on.
    group.has_ended();
    if status.success() { Ok(()) } else { Err(format!("{program}: {status}").into()) }
}

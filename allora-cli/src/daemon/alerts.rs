//! Alerts to people: commands, URLs, mails and pings that a line asks for.
//!
//! They are sent beside the runs, at most eight at a time. An alert that cannot be sent is logged,
//! and not tried again.

use super::{group::Group, metrics, user::Account};
use crate::{
    crontab_files::{Line, Notices},
    kinds::http,
    values::shown,
};
use allora_core::{BoxError, Time, backend::NotRunReason};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
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
    by_job: Mutex<HashMap<String, Arc<Receiver>>>,
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

/// The alerts of a line, and the user who sends them.
#[derive(Debug)]
struct Receiver {
    notices: Notices,
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
        })
    }

    /// True if people are to know it: a failure, but not before the last attempt; what was not run;
    /// and the end of what was reported as lost.
    fn is_sent(&self) -> bool {
        matches!(self.event, "failed" | "dead" | "lost" | "expired" | "missed" | "recovered")
            || self.is_cut_off()
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
        runtime: tokio::runtime::Handle,
    ) -> Self {
        Self {
            by_job: Mutex::default(),
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
        let receiver = Receiver { notices: line.notices.clone(), user: line.shell.user.clone() };
        self.by_job().insert(line.name.clone(), Arc::new(receiver));
    }

    /// A run has ended.
    pub(crate) fn ended(&self, alert: Alert) {
        let Some(receiver) = self.receiver(&alert.job) else { return self.send(alert) };
        if let Some(to) = &receiver.notices.mail_to
            && !alert.output.is_empty()
        {
            self.spawn(&alert, "the mail to MAILTO", self.mail(to, &receiver, &alert));
        }
        if let Some(url) = &receiver.notices.ping
            && (matches!(alert.event, "succeeded" | "failed" | "dead") || alert.is_cut_off())
        {
            let url = match alert.event {
                "succeeded" => url.clone(),
                _ => format!("{}/fail", url.trim_end_matches('/')),
            };
            self.spawn(&alert, "the request of ALLORA_PING", self.request(url, None));
        }
        self.send(alert);
    }

    /// Something else has happened to an occurrence.
    pub(crate) fn send(&self, alert: Alert) {
        if !alert.is_sent() {
            return;
        }
        let receiver = self.receiver(&alert.job);
        let own = receiver.as_ref().and_then(|receiver| receiver.notices.on_failure.clone());
        // The daemon's own command runs as the daemon.
        let user = own.as_ref().and(receiver.as_ref()).and_then(|receiver| receiver.user.clone());
        let is_own = own.is_some();
        let Some(target) = own.or_else(|| self.on_failure.clone()) else { return };
        let is_url = target.starts_with("http://") || target.starts_with("https://");
        let what = match (is_url, is_own) {
            (true, true) => "the request of ALLORA_ON_FAILURE",
            (true, false) => "the request of --on-failure",
            (false, true) => "the command of ALLORA_ON_FAILURE",
            (false, false) => "the command of --on-failure",
        };
        match is_url {
            true => self.spawn(&alert, what, self.request(target, Some(alert.json()))),
            false => self.spawn(&alert, what, self.command(target, user, &alert)),
        }
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

    fn receiver(&self, job: &str) -> Option<Arc<Receiver>> {
        self.by_job().get(job).cloned()
    }

    fn by_job(&self) -> MutexGuard<'_, HashMap<String, Arc<Receiver>>> {
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
        receiver: &Receiver,
        alert: &Alert,
    ) -> impl Future<Output = Result<(), BoxError>> + Send + 'static {
        let one_line = |text: &str| text.replace(['\r', '\n'], " ");
        let result = match alert.event {
            "succeeded" => "succeeded".to_owned(),
            _ if alert.is_cut_off() => "cut off by the stop of its daemon".to_owned(),
            event => match (alert.exit_status, alert.signal) {
                (Some(status), _) => format!("{event}, exit status {status}"),
                (None, Some(signal)) => format!("{event}, signal {signal}"),
                (None, None) => event.to_owned(),
            },
        };
        let from = receiver.notices.mail_from.clone();
        let from = from.map(|from| format!("From: {}\n", one_line(&from))).unwrap_or_default();
        // A name may have a line feed, which would end the header.
        let job = one_line(&alert.job);
        let (at, node) = (shown(alert.scheduled_at), one_line(&alert.node));
        let text = format!(
            "{from}To: {}\nSubject: {job}: {result}\nAuto-Submitted: auto-generated\n\
             MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nX-Allora-Job: {job}\n\
             X-Allora-Scheduled-At: {at}\nX-Allora-Node: {node}\n\n{}\n",
            one_line(to),
            alert.output
        );
        let args = vec!["-i".to_owned(), "-t".to_owned()];
        run(self.sendmail.clone(), args, Vec::new(), receiver.user.clone(), text)
    }
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

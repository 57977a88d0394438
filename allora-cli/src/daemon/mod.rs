//! The daemon: crontabs, run by a scheduler, with the signals and reloads of a cron.

mod alerts;
mod boot;
mod connect_with_retry;
mod context;
mod files;
mod group;
pub(crate) mod init_process;
mod jobs;
mod listen;
mod log;
mod log_format;
mod mask;
mod metrics;
mod notify;
mod output;
mod process;
pub(crate) mod receivers;
mod route;
mod runs;
pub(crate) mod user;
mod workers;

pub(crate) use listen::Served;
pub(crate) use log::Log;
pub(crate) use log_format::LogFormat;
pub(crate) use process::foreground;
pub(crate) use workers::WorkersArgs;

use crate::{
    console_access::Guard,
    crontab_files::{Defaults, Form},
    failure::{Failure, Outcome, chain},
    output::{complain, counted},
    store::Store,
};
use alerts::Alerts;
use allora_core::{
    Event, Handle, ProgramReport, Scheduler, Schedules, Stopped,
    runtime::{Runtime, Tokio},
};
use context::CommandContext;
use files::{Files, Reload};
use jobs::Jobs;
use listen::Pages;
use notify::notify;
use receivers::{Lookup, Receiver};
use runs::Results;
use std::{path::PathBuf, pin::pin, sync::Arc, time::Duration};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

/// The settings of a daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) crontabs: Vec<PathBuf>,
    /// The files of variables for the commands of crontabs.
    pub(crate) env_files: Vec<PathBuf>,
    pub(crate) form: Option<Form>,
    pub(crate) defaults: Defaults,
    /// The store, without secrets.
    pub(crate) store: String,
    /// The kinds of stored schedules to run.
    pub(crate) kinds: Vec<String>,
    pub(crate) node_name: String,
    pub(crate) node_labels: Vec<String>,
    pub(crate) concurrency: usize,
    pub(crate) grace: Duration,
    pub(crate) kill_after: Duration,
    pub(crate) lost_after: Duration,
    /// The interval at which the daemon writes its record.
    pub(crate) heartbeat: Duration,
    /// The time after which records of lines that no daemon has are removed; `None` is never.
    pub(crate) prune_orphans: Option<Duration>,
    /// The time to wait for the store at the start; `None` is for ever.
    pub(crate) store_wait: Option<Duration>,
    pub(crate) log_output: bool,
    /// The address of the pages for probes and metrics.
    pub(crate) listen: Option<String>,
    /// The console, or its API alone, that this address also serves.
    pub(crate) served: Option<Served>,
    pub(crate) workers: WorkersArgs,
    /// The folder of secrets.
    pub(crate) secrets: Option<PathBuf>,
    /// The command or URL for failures of jobs that name none.
    pub(crate) on_failure: Option<String>,
    /// The receivers of alerts about the stored schedules of owners.
    pub(crate) receivers: Vec<Receiver>,
    /// The program that sends mail.
    pub(crate) sendmail: String,
    pub(crate) environment: Vec<(String, String)>,
    /// The variables whose values are masked in what commands print.
    pub(crate) masked: Vec<String>,
}

/// The interval at which the crontabs are checked for changes.
const LOOK: Duration = Duration::from_secs(5);

/// The longest wait for the alerts of the last runs, when the scheduler has ended.
const LAST_ALERTS: Duration = Duration::from_secs(10);

/// The longest time from the end of the grace period to the end of the scheduler: its last requests
/// to the store.
const LAST_RESULTS: Duration = Duration::from_secs(5);

impl Daemon {
    /// The crontabs as they are now; refuses what a daemon would not start with. Bad lines are said on
    /// standard error.
    ///
    /// # Errors
    /// A crontab that cannot be read, or that has errors and no good line.
    fn files(&self) -> Outcome<Files> {
        let (crontabs, defaults) = (self.crontabs.clone(), self.defaults.clone());
        let mut files = Files::new(crontabs, self.env_files.clone(), self.form, defaults);
        let Reload { diagnostics, notices, .. } = files.look(true)?;
        for notice in notices {
            complain("warning", &notice.to_string());
        }
        for diagnostic in &diagnostics {
            complain("error", &diagnostic.to_string());
        }
        for name in self.masked.iter().filter(|name| !files.have_variable(name)) {
            complain(
                "warning",
                &format!(
                    "--mask {name} masks nothing in what lines print: neither a line nor this \
                     daemon has a variable of this name; correct it, if it is misspelt"
                ),
            );
        }
        if let Some(path) = files.hopeless().first() {
            return Err(Failure::wrong(format!(
                "not started: {} has no good line, see above; correct it",
                path.display()
            )));
        }
        Ok(files)
    }

    /// Tells health, metrics and the other daemons how this one is configured, and what is wrong with
    /// its crontabs.
    fn report(&self, handle: &Handle, files: &Files, jobs: &Jobs, pages: &Pages) {
        let mut report = ProgramReport::default();
        report.conditions = files.conditions();
        report.conditions.extend(pages.guard.as_ref().and_then(Guard::condition));
        report.kept_prefixes = files.bad_prefixes();
        let (names, prefixes) = jobs.elsewhere();
        report.kept_jobs = names;
        report.kept_prefixes.extend(prefixes);
        let zone = self.defaults.zone.clone().unwrap_or_else(|| "UTC".into());
        report.settings.insert("the zone (--zone)".into(), zone);
        report.settings.insert("the options of lines".into(), self.options_of_lines());
        let crontabs = files.summaries().into_iter();
        report.settings.extend(crontabs.map(|(name, lines)| (format!("crontab {name}"), lines)));
        report.unique_name = Some(self.node_name.clone());
        handle.report(report);
        metrics::crontab_errors(files.errors());
    }

    /// The options that change how a line runs, where they are not the default.
    fn options_of_lines(&self) -> String {
        let Defaults { settings, seconds, .. } = &self.defaults;
        let mut text = settings.definition("lines").trim_start_matches("lines").to_owned();
        if *seconds {
            text.push_str("; seconds");
        }
        if text.is_empty() { "the defaults".into() } else { text.trim_start_matches("; ").into() }
    }

    /// Runs until a signal stops it.
    ///
    /// # Errors
    /// A start that fails, and commands that were killed at the end.
    pub(crate) async fn run(self, open: impl AsyncFn() -> Outcome<Store>, log: &Log) -> Outcome {
        let mut files = self.files()?;
        // Before anything takes time: from now on a signal means what the documentation says.
        let mut signals = Signals::listen()?;
        let runtime = Tokio::current()?;
        let gateway = self.workers.gateway(&runtime)?;
        let pages = match &self.listen {
            Some(address) => listen::listen(address, self.served.as_ref(), &runtime)?,
            None => Arc::default(),
        };
        let reached = connect_with_retry::connect_with_retry(
            open,
            self.store_wait,
            &runtime,
            &mut signals,
            log,
        )
        .await?;
        let Some(store) = reached else { return Ok(()) };
        let (on_failure, sendmail) = (self.on_failure.clone(), self.sendmail.clone());
        let lookup = Lookup::new(Schedules::on(store.clone(), runtime.clone()).ok());
        let told = (self.receivers.clone(), lookup);
        let alerts = Alerts::new(on_failure, sendmail, told, tokio::runtime::Handle::current());
        let alerts = Arc::new(alerts);
        let context = Arc::new(CommandContext {
            results: Results::default(),
            secrets: self.secrets.clone(),
            alerts: alerts.clone(),
            runtime: runtime.clone(),
            kill_after: self.kill_after,
            log_output: self.log_output,
            environment: self.environment.clone(),
            masked: self.masked.clone(),
        });
        // The lines are added later, so the scheduler itself has nothing to warn for.
        if let Some(what) = store.durability_warning() {
            warn!(target: "allora", "{what}");
        }
        let builder = Scheduler::builder(store.clone())
            .runtime(runtime.clone())
            .label(&self.node_name)
            .concurrency(self.concurrency)
            .grace(self.grace)
            .lost_after(self.lost_after)
            .heartbeat(self.heartbeat)
            .build_version(env!("CARGO_PKG_VERSION"))
            .node_labels(self.node_labels.iter().cloned())
            .prune_orphans_after(self.prune_orphans)
            .on_event({
                let context = context.clone();
                move |event: &Event| on_event(event, &context)
            });
        let builder = route::route(builder, &self.kinds, &self.node_labels, &context);
        let builder = match &gateway {
            Some(gateway) => gateway.handle_on(builder),
            None => builder,
        };
        let scheduler = builder.build().map_err(Failure::of_input)?;
        let handle = scheduler.handle();
        alerts.set_node(handle.node());
        pages.open(&store, &handle, gateway, &runtime)?;
        let (machine, labels) = (self.node_name.clone(), self.node_labels.clone());
        let mut jobs = Jobs::new(handle.clone(), context, machine, labels);
        jobs.apply(files.lines())?;
        // That may have taken long.
        reload(&mut files, &mut jobs, false);
        pages.reload();
        if boot::is_first_start(&self.crontabs) {
            jobs.start_up(&files.lines())?;
        }
        self.report(&handle, &files, &jobs, &pages);
        info!(target: "allora", node = handle.node(), jobs = jobs.len(), store = self.store, "started");
        let mut running = pin!(scheduler.run());
        let mut stopping = false;
        let (watchdog, mut said) = (notify::watchdog(), String::new());
        let stopped = loop {
            // The look at the crontabs is also the sign of life.
            let status = status(jobs.len(), handle.running(), stopping);
            if said != status {
                notify(&format!("STATUS={status}"));
                said = status;
            }
            if watchdog.is_some() {
                notify("WATCHDOG=1");
            }
            pages.metrics.tidy();
            let wait = watchdog.map_or(LOOK, |watchdog| LOOK.min(watchdog / 2));
            let look = runtime.sleep_until(runtime.now() + wait);
            let all = tokio::select! {
                stopped = &mut running => break stopped,
                order = signals.next() => match order {
                    Order::Reload => true,
                    Order::Reopen => {
                        log.reopen();
                        continue;
                    }
                    Order::Stop => {
                        stop(&handle, self.grace, &mut stopping);
                        continue;
                    }
                },
                () = look => false,
            };
            if !stopping {
                if all {
                    notify(&notify::reloading());
                    pages.reload();
                }
                reload(&mut files, &mut jobs, all);
                self.report(&handle, &files, &jobs, &pages);
                if all {
                    notify("READY=1");
                }
            }
        };
        let enough = async {
            let timer = runtime.sleep_until(runtime.now() + LAST_ALERTS);
            let signal = async { while !matches!(signals.next().await, Order::Stop) {} };
            tokio::select! { () = timer => {} () = signal => {} }
        };
        let unsent = alerts.sent(enough).await;
        if unsent > 0 {
            warn!(target: "allora", alerts = unsent, "ended before they were sent");
        }
        end(stopped)
    }
}

/// Reports to systemd that the scheduler is ready, and to log and people what becomes of runs.
fn on_event(event: &Event, context: &CommandContext) {
    if let Event::Ready { .. } = event {
        notify("READY=1");
    }
    self::metrics::count(event);
    runs::report(event, &context.results, &context.alerts);
}

/// The state of the daemon for `systemctl status`.
fn status(jobs: usize, running: usize, stopping: bool) -> String {
    let stopping = if stopping { "stopping: " } else { "" };
    format!("{stopping}{}, {running} running", counted(jobs, "line"))
}

/// The first time gracefully, then at once.
fn stop(handle: &Handle, grace: Duration, stopping: &mut bool) {
    notify(&notify::stopping(grace + LAST_RESULTS + LAST_ALERTS));
    if std::mem::replace(stopping, true) {
        warn!(target: "allora", running = handle.running(), "stopping at once");
        handle.stop_now();
    } else {
        info!(target: "allora", running = handle.running(), "stopping; a second signal stops at once");
        handle.stop();
    }
}

fn reload(files: &mut Files, jobs: &mut Jobs, all: bool) {
    let news = match files.look(all) {
        Ok(news) if news.any => news,
        Ok(_) => return,
        // Errors of the crontabs become conditions of the node, which logs them.
        Err(_) => return metrics::crontabs_loaded(false),
    };
    metrics::crontabs_loaded(news.diagnostics.is_empty());
    for diagnostic in &news.diagnostics {
        error!(target: "allora", "{diagnostic}");
    }
    for notice in &news.notices {
        warn!(target: "allora", "{notice}");
    }
    match jobs.apply(files.lines()) {
        Ok(difference) => {
            let jobs::Difference { added, removed, changed } = difference;
            info!(target: "allora", jobs = jobs.len(), added, removed, changed, "crontabs loaded");
        }
        Err(error) => error!(target: "allora", "a line was rejected: {}", chain(&error)),
    }
}

fn end(stopped: Stopped) -> Outcome {
    let Stopped { cancelled, unrecorded, unresolved, .. } = stopped;
    info!(target: "allora", cancelled, unrecorded, unresolved, "ended");
    if cancelled == 0 && unrecorded == 0 && unresolved == 0 {
        return Ok(());
    }
    let mut text = format!(
        "stopped: {} killed, {} not recorded",
        counted(cancelled, "command"),
        counted(unrecorded, "result")
    );
    if unresolved > 0 {
        text += &format!(", {} without a reply", counted(unresolved, "claim"));
    }
    text += "; `allora history --outcome lost,interrupted,cancelled` lists them";
    Err(Failure::failed(text))
}

/// The request that a signal makes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Reload,
    Reopen,
    Stop,
}

/// The signals that a daemon, and a console, obey.
pub(crate) struct Signals {
    listeners: Vec<(Signal, Order)>,
}

impl Signals {
    /// # Errors
    /// The system refuses.
    pub(crate) fn listen() -> Outcome<Self> {
        let obeyed = [
            (SignalKind::hangup(), Order::Reload),
            (SignalKind::user_defined1(), Order::Reload),
            (SignalKind::user_defined2(), Order::Reopen),
            (SignalKind::terminate(), Order::Stop),
            (SignalKind::interrupt(), Order::Stop),
            (SignalKind::quit(), Order::Stop),
        ];
        let listeners = obeyed.into_iter().map(|(kind, order)| Ok((signal(kind)?, order)));
        let listeners: std::io::Result<Vec<_>> = listeners.collect();
        let listeners = listeners
            .map_err(|error| Failure::failed(format!("cannot listen to signals: {error}")))?;
        Ok(Self { listeners })
    }

    /// The next order.
    pub(crate) async fn next(&mut self) -> Order {
        std::future::poll_fn(|cx| {
            for (signal, order) in &mut self.listeners {
                if signal.poll_recv(cx).is_ready() {
                    return std::task::Poll::Ready(*order);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

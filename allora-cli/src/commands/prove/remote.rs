//! Remote workers of `allora prove`: processes without a store, which ask the gateways for runs. Each worker is one.

use crate::{clock, failure::Outcome, kinds::http, server::Server, session, store::Store};
use allora_conformance::{
    faults::{Log, Node, REMOTE_KIND, wall},
    history::What,
};
use allora_console::{Access, Console, Gateway, Scope};
use allora_core::{Handle, Schedules, Time, runtime::Tokio};
use clap::Args;
use serde_json::{Value, json};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use ureq::Agent;

/// The name of the hidden command.
pub(crate) const REMOTE_WORKER: &str = "prove-remote";

/// The duration of a run: long enough that each fault meets some.
pub(super) const WORK: Duration = Duration::from_millis(300);

/// The file with the key that all gateways share, in the folder of their addresses.
const KEY: &str = "key";

/// The longest time that a request waits for a run.
const WAIT: Duration = Duration::from_secs(2);

/// The longest time of a request, and the wait before another one.
const TIME_LIMIT: Duration = Duration::from_secs(4);
const AGAIN: Duration = Duration::from_millis(200);

/// Makes the folder of the gateways, with their key.
pub(super) fn prepare(gateways: &Path, key: &[u8]) -> io::Result<()> {
    fs::create_dir(gateways)?;
    fs::write(gateways.join(KEY), key)
}

/// The gateway of a worker that is to write its address into this file.
pub(super) fn gateway(address: &Path) -> Outcome<Gateway> {
    Ok(Gateway::new(&fs::read(address.with_file_name(KEY))?)?)
}

/// Serves the gateway until the process ends.
pub(super) async fn serve(
    address: &Path,
    gateway: Gateway,
    store: Store,
    handle: Handle,
) -> Outcome {
    let server = Server::bind("127.0.0.1:0")?;
    fs::write(address, server.address().to_string())?;
    let console = Console::new(Schedules::new(store)?).handle(handle).gateway(gateway).pages(false);
    let router = console.access(|_| Some(Access::new("remote").with(Scope::Work))).into_router();
    server.serve(router, Tokio::current()?).await
}

#[derive(Debug, Args)]
pub(crate) struct ProveRemote {
    /// The file of what the workers do.
    log: PathBuf,
    /// The folder with the addresses of the gateways.
    gateways: PathBuf,
    /// Its number.
    number: usize,
}

/// A run that a gateway has given.
struct Given {
    gateway: String,
    run: Value,
}

/// Sends requests.
struct Client {
    agent: Agent,
    gateways: PathBuf,
}

impl ProveRemote {
    /// The command that starts it.
    pub(super) fn command(log: &Path, gateways: &Path, number: usize) -> Outcome<Command> {
        let mut command = super::this_program(REMOTE_WORKER)?;
        command.arg(log).arg(gateways).arg(number.to_string());
        Ok(command)
    }

    pub(crate) fn run(self) -> Outcome {
        let stop = Node::stop_request();
        session::run(async {
            tokio::select! {
                () = stop => Ok(()),
                () = self.work() => Ok(()),
            }
        })
    }

    async fn work(&self) {
        let client = Client { agent: http::agent(), gateways: self.gateways.clone() };
        let log = Log::append(&self.log);
        let name = format!("remote-{}-{}", self.number, std::process::id());
        let (mut turn, mut requests) = (self.number, 0_u64);
        loop {
            requests += 1;
            let id = format!("{name}-{requests}");
            let Some(given) = client.claim(turn, &name, &id).await else {
                turn += 1;
                clock::pause(AGAIN).await;
                continue;
            };
            for given in given {
                client.work_on(given, &name, &log).await;
            }
        }
    }
}

impl Client {
    /// The addresses of the gateways, in the order of their numbers. One whose worker is dead does not answer.
    fn gateways(&self) -> Vec<String> {
        let files = fs::read_dir(&self.gateways).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
        files.sort();
        let texts = files.iter().filter(|file| !file.ends_with(KEY)).map(fs::read_to_string);
        texts.filter_map(Result::ok).collect()
    }

    /// The status and the value of the answer; `None` if none came.
    async fn ask(&self, gateway: &str, path: &str, body: Value) -> Option<(u16, Value)> {
        let (agent, url) = (self.agent.clone(), format!("http://{gateway}/v1{path}"));
        let asked = tokio::task::spawn_blocking(move || {
            let request = agent.post(url).config().timeout_global(Some(TIME_LIMIT)).build();
            let sent = request.header("Content-Type", "application/json").send(body.to_string());
            let mut answer = sent.ok()?;
            let text = answer.body_mut().read_to_string().ok()?;
            Some((answer.status().as_u16(), serde_json::from_str(&text).unwrap_or_default()))
        });
        asked.await.ok()?
    }

    /// Runs of the gateway whose turn it is; `None` if it does not answer.
    async fn claim(&self, turn: usize, worker: &str, id: &str) -> Option<Vec<Given>> {
        let gateways = self.gateways();
        let gateway = gateways.get(turn.checked_rem(gateways.len())?)?;
        let body = json!({
            "worker": worker, "kinds": [REMOTE_KIND], "wait_ms": WAIT.as_millis() as u64, "claim_id": id,
        });
        // If the answer was lost, the same id gets the same runs.
        let answer = match self.ask(gateway, "/claims", body.clone()).await {
            None => self.ask(gateway, "/claims", body).await?,
            Some(answer) => answer,
        };
        let (200 | 204, mut answer) = answer else { return None };
        let runs = answer["runs"].as_array_mut().map(std::mem::take).unwrap_or_default();
        Some(runs.into_iter().map(|run| Given { gateway: gateway.clone(), run }).collect())
    }

    /// Begins a run if it is still this worker's, and reports its end as long as its lease lasts.
    async fn work_on(&self, Given { gateway, run }: Given, worker: &str, log: &Log) {
        let (sent, token) = (clock::monotonic(), &run["token"]);
        let lease = Duration::from_millis(run["lease_ms"].as_u64().unwrap_or_default());
        let beat = self.ask(&gateway, "/claim/heartbeat", json!({ "tokens": [token] })).await;
        let is_ok = beat.is_some_and(|(_, told)| told["runs"][0]["state"] == "ok");
        let (Some(name), Some(at), Some(fence)) =
            (run["name"].as_str(), run["scheduled_at"].as_str(), run["fence"].as_i64())
        else {
            return;
        };
        let Ok(at) = at.parse::<Time>() else { return };
        if !is_ok || clock::monotonic() >= sent + lease {
            return;
        }
        let occurrence = at.timestamp_millis();
        log.write(name, worker, wall(), What::Start { occurrence, fence });
        clock::pause(WORK).await;
        // Any gateway takes the end.
        let mut others = self.gateways().into_iter().cycle();
        let mut next = Some(gateway);
        while let Some(gateway) = next.filter(|_| clock::monotonic() < sent + lease) {
            match self.ask(&gateway, "/claim/complete", json!({ "token": token })).await {
                Some((status, _)) if status < 500 => return,
                _ => clock::pause(AGAIN).await,
            }
            next = others.next();
        }
    }
}

//! The clients against real gateways, of which one is killed in the middle, as is a worker.

use super::{Language, Worker, with_key};
use crate::{
    shared_store::{SharedStore, on_postgres},
    site::{Daemon, Site, patiently},
};
use allora_conformance::environment::free_ports;
use allora_core::backend::Outcome;
use serde_json::json;

/// Two gateways over one store, and a token.
struct Gateways {
    site: Site,
    store: SharedStore,
    ports: [u16; 2],
    token: String,
}

impl Gateways {
    fn new(url: Option<String>) -> Self {
        let site = with_key(Site::new("")).with(&["--tokens", "tokens", "--allow-actions"]);
        let (line, token) = site.token(&["ruby", "--scope", "admin,work"]);
        site.write("tokens", &line);
        let (site, store) = SharedStore::of(site, url);
        Self { site, store, ports: free_ports(), token }
    }

    fn start(&self, number: usize) -> Daemon {
        let address = format!("127.0.0.1:{}", self.ports[number]);
        let daemon = self.site.begin(&["--listen", &address]);
        daemon.says("has reached its store");
        daemon
    }

    /// Adds a job that runs once, for so many seconds.
    fn add(&self, name: &str, seconds: u32) {
        let data = json!({ "seconds": seconds }).to_string();
        let place = [&self.site.args[..2], &self.site.args[self.site.args.len() - 2..]].concat();
        let place: Vec<&str> = place.iter().map(String::as_str).collect();
        let job = ["add", name, "work", "@every 1s", &data, "--max-runs", "1", "--lease", "3s"];
        let said = self.site.allora(&[&job[..], &place].concat());
        assert_eq!(said.code, 0, "{said:?}");
    }

    /// The attempts and the outputs of a job, the last first.
    fn outcomes(&self, name: &str) -> Vec<(u32, Outcome, Option<String>)> {
        let past = self.store.past().into_iter().filter(|past| past.name == name);
        past.map(|past| (past.attempt, past.outcome, past.output)).collect()
    }
}

fn survives(language: Language, url: Option<String>) {
    let gateways = Gateways::new(url);
    let mut daemons = [0, 1].map(|number| Some(gateways.start(number)));
    let worker = |number: usize| {
        let log = gateways.site.path(&format!("worker.{number}"));
        Worker::start(language, &gateways.ports, 2, log, Some(&gateways.token))
    };
    let Some(first) = worker(1) else { return };
    gateways.add("killed", 2);
    patiently("a worker begins", || first.has("killed", "start"));
    drop(first);
    let second = worker(2).unwrap();
    patiently("another one runs it again", || second.has("killed", "done"));
    // The first gateway, which has given the run, does not hear of its end.
    gateways.add("orphan", 2);
    patiently("a worker begins", || second.has("orphan", "start"));
    daemons[0].take().unwrap().kill();
    patiently("the work is done", || second.has("orphan", "done"));
    let succeeded =
        |attempt: u32| (attempt, Outcome::Succeeded, Some(format!("attempt {attempt}")));
    patiently("the other gateway takes its end", || !gateways.outcomes("orphan").is_empty());
    assert_eq!(gateways.outcomes("orphan"), [succeeded(1)]);
    let killed = gateways.outcomes("killed");
    assert_eq!((killed.len(), &killed[0]), (2, &succeeded(2)), "{killed:?}");

    let mut edit = language.command("edit", &gateways.ports).unwrap();
    let said = edit.env("TOKEN", &gateways.token).output().unwrap();
    let left = "left edited/0 edited/1 edited/3 edited/4";
    let said = (String::from_utf8(said.stdout).unwrap(), String::from_utf8(said.stderr).unwrap());
    assert_eq!(said, (format!("listed 5\nstale 412\n{left}\n"), String::new()));
    drop(second);
    daemons[1].take().unwrap().kill();
}

mod a_client_survives_the_kill_of_a_worker_and_of_a_gateway {
    use super::Language;

    #[test]
    fn in_python() {
        super::on_postgres(|url| super::survives(Language::Python, url));
    }

    #[test]
    fn in_ruby() {
        super::on_postgres(|url| super::survives(Language::Ruby, url));
    }
}

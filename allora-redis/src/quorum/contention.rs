//! Nodes that want the same jobs at once, over servers and a network that are made up: what becomes
//! of whom follows from a seed.

use super::{
    Inner, RedisQuorum,
    acceptor::Acceptor,
    ballot::Ballot,
    register::{Register, Seal},
    scripts::{ACCEPT, PEEK, PREPARE, known_text},
    server::Server,
    unheard::Unheard,
    vain::Vain,
    wire::Wire,
};
use allora_core::{
    Runtime, Time,
    backend::{
        Act, Answer, Backend, Cursor, Deliver, End, Ended, Ending, Leases, Now, Plan, Reschedule,
        Settle, Settled, State, Take,
    },
    runtime::{Sim, SimNode},
    time::from_millis,
};
use futures::future::BoxFuture;
use redis::{InfoDict, RedisError, RedisResult, Script, Value};
use std::{
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::Duration,
};

type Memory = Arc<Mutex<Acceptor<Vec<u8>, Vec<u8>>>>;

/// How long a message takes, one way, in microseconds; one in thirty-two meets a process that has to
/// wait for its processor.
const USUAL: u64 = 500;
const STALLED: u64 = 20_000;

/// A server's memory at the other end of a network.
struct Simulated {
    memory: Memory,
    runtime: Arc<SimNode>,
}

impl Simulated {
    async fn travel(&self) {
        let most = if self.runtime.random().is_multiple_of(32) { STALLED } else { USUAL };
        let micros = self.runtime.random() % most;
        self.runtime.sleep_until(self.runtime.now() + Duration::from_micros(micros)).await;
    }

    fn answer(&self, script: &Script, args: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut memory = self.memory.lock().unwrap();
        let text = |ballot: Option<Ballot>| ballot.map_or(Vec::new(), |b| b.to_string().into());
        let texts = |register: Register<Vec<u8>>| {
            let accepted = register.accepted.map_or(Vec::new(), |(ballot, value)| {
                [ballot.to_string().as_bytes(), &value[..]].concat()
            });
            [text(register.promised), accepted]
        };
        let ballot = || Ballot::parse(&args[2]).unwrap();
        let is = |other: &Script| script.get_hash() == other.get_hash();
        let mut body = Vec::new();
        // A look, a ballot, a value: the servers are up, and none of them forgets.
        if is(&PEEK) {
            args[2..].iter().for_each(|job| body.extend(texts(memory.peek(job).unwrap().1)));
        } else if is(&PREPARE) {
            let prepare = |job| memory.prepare(job, ballot()).unwrap().1;
            body.extend(args[3..].iter().map(prepare).flat_map(texts));
        } else if is(&ACCEPT) {
            for pair in args[3..].chunks(2) {
                body.push(text(memory.accept(&pair[0], ballot(), pair[1].clone()).unwrap().1));
            }
        } else {
            panic!("another script");
        }
        let seal = memory.seal.unwrap();
        let life = seal.incarnation.to_string().into_bytes();
        let head = [b"ok".to_vec(), life, known_text(&seal.known).into_bytes()];
        let clock = [b"0".to_vec(), b"0".to_vec()];
        head.into_iter().chain(clock).chain(body).collect()
    }
}

impl Wire for Simulated {
    fn call<'a>(
        &'a self,
        _: Duration,
        script: &'a Script,
        _: &'a str,
        args: &'a [Vec<u8>],
    ) -> BoxFuture<'a, RedisResult<Value>> {
        Box::pin(async move {
            self.travel().await;
            let answer = self.answer(script, args);
            self.travel().await;
            Ok(Value::Array(answer.into_iter().map(Value::BulkString).collect()))
        })
    }

    fn info(&self, _: Duration) -> BoxFuture<'_, RedisResult<InfoDict>> {
        unreachable!("nobody connects here")
    }

    fn failed(&self, _: Option<&RedisError>) {}
}

/// Another node.
fn join(sim: &Sim, memories: &[Memory]) -> (Arc<SimNode>, RedisQuorum) {
    let runtime = Arc::new(sim.node());
    let wire = |memory: &Memory| Simulated { memory: memory.clone(), runtime: runtime.clone() };
    let server = |(i, memory)| Server::new(format!("server {i}"), wire(memory));
    let inner = Inner {
        prefix: "allora".into(),
        key: "allora:quorum".into(),
        servers: memories.iter().enumerate().map(server).collect(),
        places: vec![String::new(); memories.len()],
        deadline: DEADLINE,
        proposer: runtime.random(),
        runtime: runtime.clone(),
        round: AtomicU64::new(0),
        era: Mutex::new(Some("era".into())),
        unheard: Unheard::default(),
        vain: Vain::default(),
    };
    (runtime, RedisQuorum { inner: Arc::new(inner) })
}

fn memories(n: usize) -> Vec<Memory> {
    let seal = Seal { incarnation: 1, known: [1; 5] };
    let memory = || Acceptor { seal: Some(seal), ..Acceptor::blank() };
    (0..n).map(|_| Arc::new(Mutex::new(memory()))).collect()
}

const JOBS: usize = 16;
const DEADLINE: Duration = Duration::from_millis(250);
/// Longer than any of this.
const LEASE: Deliver = Deliver::AtLeastOnce { lease: Duration::from_secs(3_600) };

fn t(seconds: i64) -> Time {
    from_millis(1_893_456_000_000 + seconds * 1_000).unwrap()
}

fn names() -> Vec<String> {
    (0..JOBS).map(|i| format!("job {i}")).collect()
}

async fn ask(node: &RedisQuorum, now: Time, plans: &[Plan<'_>]) -> Vec<Answer> {
    node.reschedule(Reschedule::new("n", Now::At(now), plans)).await.unwrap().answers
}

async fn register(node: &RedisQuorum, names: &[String]) -> Vec<State> {
    let first = Some(t(1).into());
    let act = Act::Register { definition: "every 1s", version: 0, first };
    let plans: Vec<Plan<'_>> = names.iter().map(|name| Plan::new(name, act.clone())).collect();
    let seen = |answer| match answer {
        Answer::State(seen) => *seen,
        other => panic!("{other:?}"),
    };
    ask(node, t(0), &plans).await.into_iter().map(seen).collect()
}

/// The fences under which these were taken.
async fn take(node: &RedisQuorum, names: &[String], seen: &[State]) -> Vec<i64> {
    let plan = |(name, seen): (&'_ String, &State)| {
        (name.clone(), Act::Take(Take::new(1, seen.fence, seen.head.clone().unwrap(), LEASE)))
    };
    let acts: Vec<(String, Act<'_>)> = names.iter().zip(seen).map(plan).collect();
    let plans: Vec<Plan<'_>> =
        acts.iter().map(|(name, act)| Plan::new(name, act.clone())).collect();
    let taken = |answer| match answer {
        Answer::Taken(taken) => taken.fence,
        other => panic!("{other:?}"),
    };
    ask(node, t(1), &plans).await.into_iter().map(taken).collect()
}

/// What the others do again and again, as fast as they get answers.
#[derive(Clone, Copy)]
enum Others {
    Look,
    /// Ask for what is held: a take that comes too early.
    Take,
}

/// How long one node's finish of what it holds takes while others want to know of it.
fn finish_beside(others: Others, seed: u64) -> Duration {
    let sim = Sim::new(seed);
    let memories = memories(3);
    let (_, holder) = join(&sim, &memories);
    let names = names();
    sim.block_on(async {
        let seen = register(&holder, &names).await;
        let fences = take(&holder, &names, &seen).await;
        for i in 1..8 {
            let (runtime, node) = join(&sim, &memories);
            let (names, seen, fences) = (names.clone(), seen.clone(), fences.clone());
            runtime.spawn(Box::pin(async move {
                let plan = |job: usize| {
                    let head = seen[job].head.clone().unwrap();
                    let act = match others {
                        Others::Look => Act::Look,
                        Others::Take => Act::Take(Take::new(i << 64, fences[job], head, LEASE)),
                    };
                    Plan::new(&names[job], act)
                };
                let plans: Vec<Plan<'_>> = (0..JOBS).map(plan).collect();
                loop {
                    ask(&node, t(1), &plans).await;
                }
            }));
        }
        sim.sleep_until(sim.now() + Duration::from_millis(50)).await;
        let end = End::Finish { then: Cursor::To(None), outcome: Ended::Ran };
        let ending = |job: usize| Ending::new(&names[job], fences[job], end.clone());
        let endings: Vec<Ending<'_>> = (0..JOBS).map(ending).collect();
        let began = sim.elapsed();
        let settled = holder.settle(Settle::new("n", Now::At(t(1)), &endings)).await.unwrap();
        assert!(settled.iter().all(|settled| *settled == Settled::Done), "{settled:?}");
        sim.elapsed() - began
    })
}

/// Within one deadline, whatever the others do.
fn check(others: Others) {
    for seed in 0..60 {
        let took = finish_beside(others, seed);
        assert!(took < DEADLINE, "seed {seed}: {took:?}");
    }
}

#[test]
fn a_finish_is_not_held_up_by_those_who_look() {
    check(Others::Look);
}

#[test]
fn a_finish_is_not_held_up_by_those_who_take_too_early() {
    check(Others::Take);
}

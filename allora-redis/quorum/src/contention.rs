//! Nodes that contend for the same jobs, over simulated servers and a simulated network. The course
//! of each test follows from a seed.

use super::{
    RedisQuorum,
    acceptor::Acceptor,
    ballot::Ballot,
    inner::Inner,
    noop_proposals::NoopProposals,
    register::{IncarnationVector, Register},
    scripts::{ACCEPT, PEEK, PREPARE, known_text},
    server::Server,
    unacknowledged::Unacknowledged,
    wire::Wire,
};
use allora_core::{
    ErrorKind, Result, Runtime, Time,
    backend::{
        Action, Backend, Batch, Claim, Completion, Cursor, JobState, NewSchedule, Operation, Reply,
        TimeSource,
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

/// The time of a message, one way, in microseconds. One message in thirty-two meets a process that
/// waits for its processor.
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
        // A read, a prepare, an accept: the servers are up, and none of them forgets.
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
        let vector = memory.vector.unwrap();
        let incarnation = vector.incarnation.to_string().into_bytes();
        let head = [b"ok".to_vec(), incarnation, known_text(&vector.known).into_bytes()];
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
        unreachable!("no test connects")
    }

    fn failed(&self, _: Option<&RedisError>) {}
}

/// Another node.
fn join(sim: &Sim, memories: &[Memory]) -> (Arc<SimNode>, RedisQuorum) {
    let runtime = Arc::new(sim.node());
    let wire = |memory: &Memory| Simulated { memory: memory.clone(), runtime: runtime.clone() };
    let server = |(i, memory)| Server::new(format!("server {i}"), wire(memory));
    let inner = Inner {
        security_warning: None,
        prefix: "allora".into(),
        key: "allora:quorum".into(),
        servers: memories.iter().enumerate().map(server).collect(),
        places: vec![String::new(); memories.len()],
        deadline: DEADLINE,
        proposer: runtime.random(),
        runtime: runtime.clone(),
        round: AtomicU64::new(0),
        cluster_id: Mutex::new(Some("cluster_id".into())),
        unacknowledged: Unacknowledged::default(),
        noop_proposals: NoopProposals::default(),
    };
    (runtime, RedisQuorum { inner: Arc::new(inner) })
}

fn memories(n: usize) -> Vec<Memory> {
    let vector = IncarnationVector { incarnation: 1, known: [1; 5] };
    let memory = || Acceptor { vector: Some(vector), ..Acceptor::empty() };
    (0..n).map(|_| Arc::new(Mutex::new(memory()))).collect()
}

const JOBS: usize = 16;
const DEADLINE: Duration = Duration::from_millis(250);
/// Longer than any of this.
const LEASE: Duration = Duration::from_secs(3_600);

fn t(seconds: i64) -> Time {
    from_millis(1_893_456_000_000 + seconds * 1_000).unwrap()
}

fn names() -> Vec<String> {
    (0..JOBS).map(|i| format!("job {i}")).collect()
}

async fn ask(node: &RedisQuorum, now: Time, operations: &[Operation<'_>]) -> Vec<Result<Reply>> {
    let batch = Batch::new("n", TimeSource::Fixed(now), operations);
    node.reschedule(batch).await.unwrap().replies
}

/// The replies to operations that must not fail.
async fn fine(node: &RedisQuorum, now: Time, operations: &[Operation<'_>]) -> Vec<Reply> {
    ask(node, now, operations).await.into_iter().map(Result::unwrap).collect()
}

async fn register(node: &RedisQuorum, names: &[String]) -> Vec<JobState> {
    let first = Some(t(1).into());
    let action = Action::Register { definition: "every 1s", version: 0, first };
    let operations: Vec<Operation<'_>> =
        names.iter().map(|name| Operation::new(name, action.clone())).collect();
    let states = fine(node, t(0), &operations).await.into_iter().map(Reply::state);
    states.collect::<Option<_>>().unwrap()
}

/// The fences under which these were claimed.
async fn claim(node: &RedisQuorum, names: &[String], seen: &[JobState]) -> Vec<i64> {
    let operation = |(name, seen): (&'_ String, &JobState)| {
        (name.clone(), Claim::at_least_once(1, seen.fence, seen.head.clone().unwrap(), LEASE))
    };
    let claims: Vec<(String, Claim)> = names.iter().zip(seen).map(operation).collect();
    let operations: Vec<Operation<'_>> =
        claims.iter().map(|(name, claim)| Operation::claim(name, claim.clone())).collect();
    let fence = |reply: Reply| reply.claimed().map(|claimed| claimed.fence);
    fine(node, t(1), &operations).await.into_iter().map(fence).collect::<Option<_>>().unwrap()
}

/// The requests that the other nodes repeat without a pause.
#[derive(Clone, Copy)]
enum Others {
    Read,
    /// Ask for a job that is leased: a claim that comes too early.
    Claim,
}

/// The time of one node's completions while other nodes ask for the same jobs.
fn complete_beside(others: Others, seed: u64) -> Duration {
    let sim = Sim::new(seed);
    let memories = memories(3);
    let (_, holder) = join(&sim, &memories);
    let names = names();
    sim.block_on(async {
        let seen = register(&holder, &names).await;
        let fences = claim(&holder, &names, &seen).await;
        for i in 1..8 {
            let (runtime, node) = join(&sim, &memories);
            let (names, seen, fences) = (names.clone(), seen.clone(), fences.clone());
            runtime.spawn(Box::pin(async move {
                let operation = |job: usize| {
                    let head = seen[job].head.clone().unwrap();
                    let claim = Claim::at_least_once(i << 64, fences[job], head, LEASE);
                    match others {
                        Others::Read => Operation::read(&names[job]),
                        Others::Claim => Operation::claim(&names[job], claim),
                    }
                };
                let operations: Vec<Operation<'_>> = (0..JOBS).map(operation).collect();
                loop {
                    ask(&node, t(1), &operations).await;
                }
            }));
        }
        sim.sleep_until(sim.now() + Duration::from_millis(50)).await;
        let complete = |job: usize| {
            Operation::complete(&names[job], fences[job], Cursor::To(None), Completion::Succeeded)
        };
        let operations: Vec<Operation<'_>> = (0..JOBS).map(complete).collect();
        let began = sim.elapsed();
        let replies = fine(&holder, t(1), &operations).await;
        assert!(replies.iter().all(Reply::is_accepted), "{replies:?}");
        sim.elapsed() - began
    })
}

/// Within one deadline, whatever the others do.
fn check(others: Others) {
    for seed in 0..60 {
        let took = complete_beside(others, seed);
        assert!(took < DEADLINE, "seed {seed}: {took:?}");
    }
}

#[test]
fn a_completion_is_not_delayed_by_nodes_that_read() {
    check(Others::Read);
}

#[test]
fn a_completion_is_not_delayed_by_nodes_that_claim_too_early() {
    check(Others::Claim);
}

/// The replies to a node that creates a schedule while other nodes trigger it, whose ballots may
/// overtake that of the creation, and commit it.
fn create_beside_triggers(seed: u64) -> Result<Reply> {
    let sim = Sim::new(seed);
    let memories = memories(3);
    let (_, creator) = join(&sim, &memories);
    sim.block_on(async {
        for i in 1..6 {
            let (runtime, node) = join(&sim, &memories);
            runtime.spawn(Box::pin(async move {
                let id = format!("trigger {i}");
                let action = Action::trigger(&id);
                while ask(&node, t(1), &[Operation::new("job", action.clone())]).await[0].is_err() {
                }
            }));
        }
        let create = Action::Create(NewSchedule::new("kind", "every 1s", None));
        ask(&creator, t(1), &[Operation::new("job", create)]).await.remove(0)
    })
}

/// No other node creates it.
#[test]
fn a_creation_that_was_overtaken_is_not_reported_as_a_conflict_with_itself() {
    let mut unknown = 0;
    for seed in 0..200 {
        match create_beside_triggers(seed) {
            Ok(reply) => assert!(matches!(reply, Reply::State(_)), "seed {seed}: {reply:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "seed {seed}: {error}");
                unknown += 1;
            }
        }
    }
    assert!(unknown > 0, "no creation was overtaken: the test shows nothing");
}

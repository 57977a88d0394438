//! The Lua acceptor and the Rust acceptor give the same answers to random messages.

use super::{
    acceptor::Acceptor,
    ballot::Ballot,
    change::register,
    register::{IncarnationVector, Known, Register},
    scripts::{
        ACCEPT, DRAFT, FILL, HANDSHAKE, NOTE, PEEK, PREPARE, RAISE, REJOIN, Response, SCAN,
        known_text, parse_response,
    },
};
use redis::{Connection, Script, Value};
use std::collections::BTreeMap;

const PLACE: &str = "2|a|b|c";
const CLUSTER_ID: &str = "the cluster_id";
/// Names that are awkward as fields, one of them the name of a field of the server's own.
const JOBS: &[&str] = &["a", "m:run", "{x}:p:a 🧾", "\0"];

type Bytes = Vec<u8>;

/// A small generator: its numbers depend on the seed only (the constants are Steele and Vigna's,
/// "SplitMix64").
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn ballot(&mut self) -> Ballot {
        // Digits of different lengths, as in rounds that are counted and rounds by the clock.
        let round = [1, 2, 9, 10, 11, 1_795_224_327_117][self.next(6) as usize];
        Ballot { round, proposer: self.next(3) * (u64::MAX / 2) }
    }

    fn jobs(&mut self) -> Vec<&'static str> {
        JOBS.iter().copied().filter(|_| self.next(2) == 0).collect()
    }

    fn value(&mut self) -> Bytes {
        (0..self.next(4)).map(|_| self.next(256) as u8).collect()
    }
}

/// A real server beside the pure one.
struct Pair {
    connection: Connection,
    key: String,
    pure: Acceptor<String, Bytes>,
}

impl Pair {
    fn call(&mut self, script: &Script, args: &[Bytes]) -> Response {
        let mut invocation = script.key(&self.key);
        for arg in args {
            invocation.arg(&arg[..]);
        }
        let answer: Value = invocation.invoke(&mut self.connection).unwrap();
        parse_response(answer).unwrap()
    }

    fn ask(&mut self, script: &Script, args: &[Bytes]) -> Option<(IncarnationVector, Vec<Bytes>)> {
        let mut all = vec![PLACE.into(), CLUSTER_ID.into()];
        all.extend_from_slice(args);
        match self.call(script, &all) {
            Response::Member { vector, body, .. } => Some((vector, body)),
            Response::Empty => None,
            other => panic!("{other:?}"),
        }
    }

    fn filled(&mut self, script: &Script, args: &[Bytes]) -> bool {
        let Response::Word(word) = self.call(script, args) else { panic!("no word") };
        word != "other"
    }

    fn step(&mut self, random: &mut Random) {
        match random.next(16) {
            0..=2 => self.read(random, None),
            3..=5 => {
                let ballot = random.ballot();
                self.read(random, Some(ballot));
            }
            6..=8 => self.accept(random),
            9 => {
                let (k, incarnation) = (random.next(3), random.next(4) as u32);
                let args = [k.to_string().into_bytes(), incarnation.to_string().into_bytes()];
                let told = self.ask(&NOTE, &args).map(|(vector, _)| vector);
                assert_eq!(told, self.pure.note(k as usize, incarnation));
                if random.next(4) == 0 {
                    let told = self.ask(&RAISE, &args).map(|(vector, _)| vector);
                    assert_eq!(told, self.pure.raise(k as usize, incarnation));
                }
            }
            10..=14 => self.rejoin(random),
            _ => self.loss(random),
        }
        self.compare();
    }

    fn read(&mut self, random: &mut Random, ballot: Option<Ballot>) {
        let jobs = random.jobs();
        if jobs.is_empty() {
            return;
        }
        let mut args: Vec<Bytes> = ballot.iter().map(|b| b.to_string().into_bytes()).collect();
        args.extend(jobs.iter().map(|job| Bytes::from(*job)));
        let script = if ballot.is_some() { &PREPARE } else { &PEEK };
        let told = self.ask(script, &args);
        for (i, job) in jobs.iter().enumerate() {
            let key = (*job).to_owned();
            let pure = match ballot {
                Some(ballot) => self.pure.prepare(&key, ballot),
                None => self.pure.peek(&key),
            };
            let real = told
                .as_ref()
                .map(|(vector, body)| (*vector, register(&body[2 * i], &body[2 * i + 1]).unwrap()));
            assert_eq!(real, pure, "{job:?} {ballot:?}");
        }
    }

    fn accept(&mut self, random: &mut Random) {
        let (ballot, jobs) = (random.ballot(), random.jobs());
        if jobs.is_empty() {
            return;
        }
        let values: Vec<Bytes> = jobs.iter().map(|_| random.value()).collect();
        let mut args = vec![ballot.to_string().into_bytes()];
        for (job, value) in jobs.iter().zip(&values) {
            args.extend([Bytes::from(*job), value.clone()]);
        }
        let told = self.ask(&ACCEPT, &args);
        for (i, (job, value)) in jobs.iter().zip(values).enumerate() {
            let pure = self.pure.accept(&(*job).to_owned(), ballot, value);
            let real = told.as_ref().map(|(vector, body)| (*vector, Ballot::parse(&body[i])));
            assert_eq!(real, pure, "{job:?} {ballot}");
        }
    }

    fn rejoin(&mut self, random: &mut Random) {
        let token = random.next(3);
        let text = token.to_string().into_bytes();
        match random.next(3) {
            0 => {
                let drafted = self.filled(&DRAFT, &[text, b"0".to_vec()]);
                assert_eq!(drafted, self.pure.draft(token));
            }
            1 => {
                let job = JOBS[random.next(JOBS.len() as u64) as usize];
                let promised = (random.next(2) == 0).then(|| random.ballot());
                let accepted = (random.next(2) == 0).then(|| (random.ballot(), random.value()));
                let register = Register { promised, accepted };
                let args = [vec![text], triple(job, &register)].concat();
                let filled = self.filled(&FILL, &args);
                assert_eq!(filled, self.pure.fill(token, &job.to_owned(), register));
            }
            _ => {
                let mut known: Known = [0; 5];
                known[..3].fill_with(|| random.next(4) as u32);
                let vector = IncarnationVector { incarnation: random.next(4) as u32 + 1, known };
                let incarnation = vector.incarnation.to_string().into_bytes();
                let args = [
                    text,
                    PLACE.into(),
                    CLUSTER_ID.into(),
                    incarnation,
                    known_text(&known).into_bytes(),
                    "1".into(),
                ];
                let rejoined = self.filled(&REJOIN, &args);
                assert_eq!(rejoined, self.pure.rejoin(token, vector));
            }
        }
    }

    fn loss(&mut self, random: &mut Random) {
        let connection = &mut self.connection;
        let mark = format!("{}:mark", self.key);
        match random.next(24) {
            // Its memory.
            0 => {
                redis::cmd("DEL").arg(&self.key).exec(connection).unwrap();
                self.pure = Acceptor::empty();
            }
            // Its process: what is there was another one's.
            1 => {
                for field in ["m:run", "m:draft"] {
                    let other = if field == "m:run" { "another" } else { "1:another" };
                    let set =
                        redis::cmd("HSET").arg(&self.key).arg(field).arg(other).exec(connection);
                    set.unwrap();
                }
                (self.pure.vector, self.pure.draft) = (None, None);
            }
            // Its replication id: its state is its own.
            2..=6 => self.rename(),
            // The same, with a copy of its state: what a server loads has another encoding.
            7 => {
                redis::cmd("SET").arg(&mark).arg("xy").exec(connection).unwrap();
                self.rename();
                (self.pure.vector, self.pure.draft) = (None, None);
            }
            // Its mark, which it renews.
            8 => redis::cmd("DEL").arg(&mark).exec(connection).unwrap(),
            _ => {}
        }
    }

    /// Another replication id: as if the state had been written under an earlier one.
    fn rename(&mut self) {
        let connection = &mut self.connection;
        for field in ["m:run", "m:draft"] {
            let mut get = redis::cmd("HGET");
            let run: Option<String> = get.arg(&self.key).arg(field).query(connection).unwrap();
            let Some(run) = run else { continue };
            let (process, _) = run.rsplit_once('.').unwrap_or((&run, ""));
            let other = format!("{process}.0123456789");
            redis::cmd("HSET").arg(&self.key).arg(field).arg(other).exec(connection).unwrap();
        }
        if self.pure.vector.is_none() {
            // A node that fills it begins again.
            self.pure.draft = None;
        }
    }

    /// Compares the state of both.
    fn compare(&mut self) {
        let handshake = self.ask(&HANDSHAKE, &[]);
        assert_eq!(handshake.map(|(vector, _)| vector), self.pure.vector);
        let Some((_, page)) = self.ask(&SCAN, &[Bytes::from("0")]) else { return };
        let mut registers: BTreeMap<String, (Bytes, Bytes)> = BTreeMap::new();
        for pair in page[1..].chunks(2) {
            let (field, text) = (String::from_utf8(pair[0].clone()).unwrap(), pair[1].clone());
            match field.split_at(2) {
                ("p:", job) => registers.entry(job.into()).or_default().0 = text,
                ("a:", job) => registers.entry(job.into()).or_default().1 = text,
                _ => {}
            }
        }
        let real: BTreeMap<String, Register<Bytes>> = registers
            .into_iter()
            .map(|(job, (promised, accepted))| (job, register(&promised, &accepted).unwrap()))
            .collect();
        let known = |(_, register): &(&String, &Register<Bytes>)| **register != Register::default();
        let pure: BTreeMap<String, Register<Bytes>> =
            self.pure.registers.iter().filter(known).map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(real, pure);
    }
}

fn triple(job: &str, register: &Register<Bytes>) -> Vec<Bytes> {
    let promised = register.promised.map(|ballot| ballot.to_string().into_bytes());
    let accepted = register.accepted.as_ref();
    let accepted = accepted.map(|(ballot, value)| [ballot.to_string().as_bytes(), value].concat());
    vec![job.into(), promised.unwrap_or_default(), accepted.unwrap_or_default()]
}

#[test]
fn lua_and_rust_do_the_same_with_every_message() {
    let Ok(urls) = std::env::var("ALLORA_TEST_REDIS_QUORUM_URLS") else {
        let is_wanted = std::env::var_os("ALLORA_TEST_STORES").is_none();
        let is_required = std::env::var_os("CI").is_some() && is_wanted;
        assert!(!is_required, "ALLORA_TEST_REDIS_QUORUM_URLS is not set");
        return;
    };
    let client = redis::Client::open(urls.split(',').next().unwrap()).unwrap();
    let mut token = [0; 8];
    getrandom::fill(&mut token).unwrap();
    let long = std::env::var_os("ALLORA_TEST_LONG").is_some();
    for seed in 0..if long { 200 } else { 6 } {
        let connection = client.get_connection().unwrap();
        let key = format!("differential:{:x}", u64::from_le_bytes(token));
        let mut pair = Pair { connection, key, pure: Acceptor::empty() };
        let mut random = Random(seed);
        let mut rejoined = 0;
        for _ in 0..1_000 {
            pair.step(&mut random);
            rejoined += usize::from(pair.pure.vector.is_some());
        }
        assert!(rejoined > 100, "seed {seed}: it voted in {rejoined} steps only");
        let mark = format!("{}:mark", pair.key);
        redis::cmd("DEL").arg(&pair.key).arg(mark).exec(&mut pair.connection).unwrap();
    }
}

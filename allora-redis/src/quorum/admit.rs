//! How servers become voters: all at once at the very beginning, and one by one when they have
//! forgotten.

use super::{
    Inner,
    proposer::{Reply, latest, majority, next_life, trusted},
    register::{Known, MOST, Seal},
    round::Heard,
    scripts::{ADMIT, DRAFT, FILL, HELLO, NOTE, SCAN, Said, known_text},
    server::Fault,
};
use allora_core::{Error, Kind, Result};
use redis::Script;
use std::{
    collections::HashSet,
    sync::{Arc, LazyLock},
    time::Duration,
};

/// How long a server may take that is being filled: nobody waits for it.
const UNHURRIED: Duration = Duration::from_secs(2);

type Page = (Vec<u8>, Vec<Vec<u8>>, Seal);

impl Inner {
    /// Which initialisation of the quorum this is.
    ///
    /// # Errors
    /// `Invalid` if there was none, `Unavailable` if too few servers answer.
    pub(crate) async fn need_era(self: &Arc<Self>) -> Result<String> {
        if let Some(era) = self.era() {
            return Ok(era);
        }
        let heard = self.hello().await?;
        match self.agreed_era(&heard)? {
            Some(era) => {
                self.set_era(era.clone());
                Ok(era)
            }
            None if heard.faults.is_empty() => Err(Error::invalid(
                "these servers are no quorum yet: call `init` once, from one place",
            )),
            None => Err(self.too_few(&heard)),
        }
    }

    /// Asks all servers who they are.
    pub(crate) async fn hello(self: &Arc<Self>) -> Result<Heard> {
        let n = self.servers.len();
        let all = |heard: &Heard| heard.replies.len() + heard.blank.len() == n;
        self.ask(&HELLO, vec![Vec::new()], false, all).await
    }

    /// The initialisation that a majority knows; `None` if there is none.
    fn agreed_era(&self, heard: &Heard) -> Result<Option<String>> {
        let era = |reply: &Reply<Vec<Vec<u8>>>| {
            String::from_utf8(reply.body.first().cloned().unwrap_or_default()).ok()
        };
        let eras: HashSet<Option<String>> = trusted(&heard.replies).map(era).collect();
        if eras.len() > 1 {
            return Err(Error::invalid(format!(
                "these servers were initialised at different times: delete the key {:?} on all of \
                 them and call `init` again",
                self.key
            )));
        }
        if trusted(&heard.replies).count() < majority(self.servers.len()) {
            return Ok(None);
        }
        Ok(eras.into_iter().next().flatten())
    }

    /// See [`RedisQuorum::init`](super::RedisQuorum::init).
    pub(crate) async fn init(self: &Arc<Self>) -> Result {
        let n = self.servers.len();
        for server in self.servers.iter().filter(|server| !server.is_well()) {
            // Not one of them may be left out because it was slow before.
            let _ = server.info(&*self.runtime, UNHURRIED).await;
        }
        let heard = self.hello().await?;
        if !heard.replies.is_empty() {
            let there = "some of these servers are initialised already; nothing was changed";
            return Err(Error::new(Kind::AlreadyExists, there));
        }
        if heard.blank.len() < n {
            return Err(self.too_few(&heard));
        }
        let token = self.token();
        let era = format!("{:016x}{:016x}", self.runtime.random(), self.runtime.random());
        for k in 0..n {
            let drafted = self.fill_call(k, &DRAFT, vec![token.clone()]).await;
            self.need(k, drafted, "drafted")?;
        }
        let mut known: Known = [0; MOST];
        known[..n].fill(1);
        for k in 0..n {
            let admitted = self.enter(k, &token, &era, Seal { incarnation: 1, known }).await;
            self.need(k, admitted, "admitted")?;
        }
        self.set_era(era);
        Ok(())
    }

    /// Admits server `k`, which remembers nothing: the others are told of its new life, then it is
    /// told what they know, then it votes.
    ///
    /// Any number of nodes may do so at once, and each can be stopped anywhere: only who began last
    /// can fill it, and only whole.
    pub(crate) async fn admit(self: &Arc<Self>, k: usize) -> Result {
        let quorum = majority(self.servers.len());
        let era = self.need_era().await?;
        let token = self.token();
        let others = |heard: &Heard| {
            trusted(&heard.replies).filter(|reply| reply.from != k).count() >= quorum
        };
        let head = vec![era.clone().into_bytes()];
        let heard = self.ask(&HELLO, head.clone(), false, others).await?;
        if !others(&heard) {
            // What a blank server still has is not thrown away while nobody can replace it.
            return Err(self.too_few(&heard));
        }
        self.need(k, self.fill_call(k, &DRAFT, vec![token.clone()]).await, "drafted")?;
        // Only from now on nobody else's admission can come between: the life must be read after.
        let heard = self.ask(&HELLO, head.clone(), false, others).await?;
        let Some(life) = next_life(&heard.replies, k, quorum) else {
            return Err(self.too_few(&heard));
        };
        let mut note = head.clone();
        note.extend([k.to_string().into_bytes(), life.to_string().into_bytes()]);
        let heard = self.ask(&NOTE, note, false, others).await?;
        let told: Vec<Reply<()>> = trusted(&heard.replies)
            .filter(|reply| reply.from != k)
            .take(quorum)
            .map(|reply| Reply { from: reply.from, seal: reply.seal, body: () })
            .collect();
        if told.len() < quorum {
            return Err(self.too_few(&heard));
        }
        let mut last = Vec::new();
        for reply in &told {
            let seal = self.copy(k, reply, &token, &era).await?;
            last.push(Reply { seal, ..reply.clone() });
        }
        if trusted(&last).count() < quorum {
            return Err(Error::new(Kind::Unavailable, "a server forgot while it was copied"));
        }
        let mut known = latest(last.iter().map(|reply| &reply.seal));
        known[k] = known[k].max(life);
        let admitted = self.enter(k, &token, &era, Seal { incarnation: life, known }).await;
        self.need(k, admitted, "admitted")
    }

    /// Copies all registers of a server to server `k`; answers with its last seal.
    async fn copy(&self, k: usize, from: &Reply<()>, token: &[u8], era: &str) -> Result<Seal> {
        let mut cursor = b"0".to_vec();
        loop {
            let (next, fields, seal) = self.page(from.from, era, cursor).await?;
            if seal.incarnation != from.seal.incarnation {
                let forgot = "a server forgot while it was copied";
                return Err(Error::new(Kind::Unavailable, forgot));
            }
            let mut args = vec![token.to_vec()];
            for pair in fields.chunks_exact(2) {
                let (place, other) = match pair[0].split_at_checked(2) {
                    Some((b"p:", job)) => (1, job),
                    Some((b"a:", job)) => (2, job),
                    _ => continue,
                };
                let mut triple = [other.to_vec(), Vec::new(), Vec::new()];
                triple[place] = pair[1].clone();
                args.extend(triple);
            }
            if args.len() > 1 {
                for part in args[1..].chunks(3 * 1_000) {
                    let mut part = part.to_vec();
                    part.insert(0, token.to_vec());
                    self.need(k, self.fill_call(k, &FILL, part).await, "filled")?;
                }
            }
            if next == b"0" {
                return Ok(seal);
            }
            cursor = next;
        }
    }

    async fn page(&self, i: usize, era: &str, cursor: Vec<u8>) -> Result<Page> {
        let args = [era.as_bytes().to_vec(), cursor];
        match self.call_one(i, &SCAN, &args).await {
            Ok(Said::Sealed { seal, mut body, .. }) if !body.is_empty() => {
                let fields = body.split_off(1);
                Ok((body.remove(0), fields, seal))
            }
            Ok(_) => Err(self.lost(i, Fault::Garbled)),
            Err(fault) => Err(self.lost(i, fault)),
        }
    }

    async fn enter(&self, k: usize, token: &[u8], era: &str, seal: Seal) -> Result<Said, Fault> {
        let args = vec![
            token.to_vec(),
            self.places[k].clone().into_bytes(),
            era.as_bytes().to_vec(),
            seal.incarnation.to_string().into_bytes(),
            known_text(&seal.known).into_bytes(),
        ];
        self.fill_call(k, &ADMIT, args).await
    }

    async fn fill_call(
        &self,
        k: usize,
        script: &'static LazyLock<Script>,
        args: Vec<Vec<u8>>,
    ) -> Result<Said, Fault> {
        let deadline = self.deadline.max(UNHURRIED);
        self.servers[k].call(&*self.runtime, deadline, script, &self.key, &args).await
    }

    fn need(&self, k: usize, said: Result<Said, Fault>, word: &str) -> Result {
        match said {
            Ok(Said::Word(said)) if said == word => Ok(()),
            Ok(_) => {
                let address = &self.servers[k].address;
                let other = format!("somebody else is admitting {address}; ask again");
                Err(Error::new(Kind::Unavailable, other))
            }
            Err(fault) => Err(self.lost(k, fault)),
        }
    }

    fn lost(&self, i: usize, fault: Fault) -> Error {
        let said = format!("{}: {fault}", self.servers[i].address);
        Error::new(Kind::Unavailable, said)
    }

    fn token(&self) -> Vec<u8> {
        self.runtime.random().to_string().into_bytes()
    }
}

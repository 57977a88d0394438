//! Servers become voters: all at once at `init`, and one by one when they rejoin after they have
//! forgotten. A voter whose incarnation the others no longer count is raised to one that they count.

use super::{
    inner::Inner,
    proposer::{Reply, latest, latest_incarnation, majority, next_incarnation, trusted},
    register::{IncarnationVector, Known, MOST},
    round::{NOT_INITIALISED, Responses},
    scripts::{
        DELETE, DRAFT, FILL, HANDSHAKE, LAYOUT, NOTE, RAISE, REJOIN, RESET, Response, SCAN,
        known_text,
    },
    server::Fault,
};
use allora_core::{Error, ErrorKind, Result, store::Layout};
use redis::Script;
use std::{
    collections::HashSet,
    sync::{Arc, LazyLock},
    time::Duration,
};

/// The deadline of a call to a server that is being filled. No job waits for it.
const UNHURRIED: Duration = Duration::from_secs(2);

/// A node that has neither begun to fill a server nor sent it anything for so long is overtaken by
/// another one. Without that time, many nodes that notice an empty server would begin one after the
/// other, and none of them would come to its end.
const FILLS_ALONE: Duration = Duration::from_secs(2);

/// The newest version that these servers have. A text that is none is newer than all: nobody may use it.
fn newest_version(responses: &Responses) -> String {
    let versions = trusted(&responses.replies).filter_map(|reply| reply.body.get(2));
    let versions = versions.map(|text| String::from_utf8_lossy(text).into_owned());
    let order = |text: &String| Layout::from_text(text).map_or(i64::MAX, |found| found.version);
    versions.max_by_key(order).unwrap_or_else(|| LAYOUT.to_string())
}

type Page = (Vec<u8>, Vec<Vec<u8>>, IncarnationVector);

impl Inner {
    /// The id of the quorum's initialisation.
    ///
    /// # Errors
    /// `Invalid` if there was none, `Unavailable` if too few servers answer.
    pub(crate) async fn require_cluster_id(self: &Arc<Self>) -> Result<String> {
        if let Some(cluster_id) = self.cluster_id() {
            return Ok(cluster_id);
        }
        let cluster_id =
            self.find_cluster_id().await?.ok_or_else(|| Error::invalid(NOT_INITIALISED))?;
        self.set_cluster_id(cluster_id.clone());
        Ok(cluster_id)
    }

    /// The cluster id that the servers have now; `None` if they are not initialised.
    ///
    /// # Errors
    /// `Unavailable` if too few servers answer, `Invalid` if a majority has lost its data.
    pub(crate) async fn find_cluster_id(self: &Arc<Self>) -> Result<Option<String>> {
        let responses = self.handshake().await?;
        match self.agreed_cluster_id(&responses)? {
            None if self.needs_init(&responses) && responses.empty.len() < self.servers.len() => {
                Err(Error::invalid(self.missing(&responses)))
            }
            None if !responses.faults.is_empty() || !responses.replies.is_empty() => {
                Err(self.too_few(&responses))
            }
            cluster_id => Ok(cluster_id),
        }
    }

    /// Asks all servers for their state.
    pub(crate) async fn handshake(self: &Arc<Self>) -> Result<Responses> {
        let n = self.servers.len();
        let all = |responses: &Responses| responses.replies.len() + responses.empty.len() == n;
        self.ask(&HANDSHAKE, vec![Vec::new()], false, all).await
    }

    /// The cluster id that a majority knows; `None` if there is none.
    fn agreed_cluster_id(&self, responses: &Responses) -> Result<Option<String>> {
        let cluster_id = |reply: &Reply<Vec<Vec<u8>>>| {
            String::from_utf8(reply.body.first().cloned().unwrap_or_default()).ok()
        };
        let cluster_ids: HashSet<Option<String>> =
            trusted(&responses.replies).map(cluster_id).collect();
        if cluster_ids.len() > 1 {
            return Err(Error::invalid(format!(
                "these servers were initialised at different times: delete the key {:?} on all of \
                 them and call `init` again",
                self.key
            )));
        }
        if trusted(&responses.replies).count() < majority(self.servers.len()) {
            return Ok(None);
        }
        if let Some(refusal) = Layout::refusal_of(&newest_version(responses), LAYOUT.version) {
            return Err(Error::invalid(format!("the registers under {:?} {refusal}", self.key)));
        }
        Ok(cluster_ids.into_iter().next().flatten())
    }

    /// See [`RedisQuorum::init`](super::RedisQuorum::init).
    pub(crate) async fn init(self: &Arc<Self>) -> Result {
        let n = self.servers.len();
        for server in self.servers.iter().filter(|server| !server.is_healthy()) {
            // Every server must take part, also one that was slow before.
            let _ = server.info(&*self.runtime, UNHURRIED).await;
        }
        let responses = self.handshake().await?;
        if responses.replies.len() >= majority(n) {
            return Err(self.has_begun());
        }
        if responses.empty.len() + responses.replies.len() < n {
            return Err(self.too_few(&responses));
        }
        // A minority without any register is the work of an earlier call that was interrupted, or that
        // met another one.
        for reply in &responses.replies {
            match self.fill_call(reply.from, &RESET, Vec::new()).await {
                Ok(Response::Word(word)) if word == "reset" => {}
                Ok(_) => return Err(self.has_begun()),
                Err(fault) => return Err(self.lost(reply.from, fault)),
            }
        }
        let token = self.token();
        let cluster_id = format!("{:016x}{:016x}", self.runtime.random(), self.runtime.random());
        for k in 0..n {
            let drafted = self.draft(k, &token, Duration::ZERO).await;
            self.need(k, drafted, "drafted")?;
        }
        let mut known: Known = [0; MOST];
        known[..n].fill(1);
        for k in 0..n {
            let rejoined = self
                .enter(
                    k,
                    &token,
                    &cluster_id,
                    IncarnationVector { incarnation: 1, known },
                    LAYOUT.to_string(),
                )
                .await;
            self.need(k, rejoined, "rejoined")?;
        }
        self.set_cluster_id(cluster_id);
        Ok(())
    }

    /// See [`RedisQuorum::delete_keys`](super::RedisQuorum::delete_keys).
    pub(crate) async fn delete(&self) -> Result {
        let mut failed = Ok(());
        for k in 0..self.servers.len() {
            match self.fill_call(k, &DELETE, Vec::new()).await {
                Ok(Response::Word(word)) if word == "deleted" => {}
                Ok(_) => failed = Err(self.lost(k, Fault::Unexpected)),
                Err(fault) => failed = Err(self.lost(k, fault)),
            }
        }
        failed
    }

    fn has_begun(&self) -> Error {
        let key = &self.key;
        let there = format!(
            "some of these servers are initialised already, and nothing was changed; to begin anew, \
             delete the key {key:?} on all of them first"
        );
        Error::new(ErrorKind::AlreadyExists, there)
    }

    /// Lets server `k`, which is empty, rejoin: the others store its new incarnation, then their
    /// registers are copied to it, then it votes.
    ///
    /// Any number of nodes may do so at once, and each may be stopped at any step: only the node
    /// that began last can fill the server, and only as a whole. A message of an earlier one may
    /// arrive late and store a higher incarnation; see [`raise`](Self::raise).
    pub(crate) async fn rejoin(self: &Arc<Self>, k: usize) -> Result {
        let quorum = majority(self.servers.len());
        let cluster_id = self.require_cluster_id().await?;
        let token = self.token();
        let others = |responses: &Responses| {
            trusted(&responses.replies).filter(|reply| reply.from != k).count() >= quorum
        };
        let head = vec![cluster_id.clone().into_bytes()];
        let responses = self.ask(&HANDSHAKE, head.clone(), false, others).await?;
        if !others(&responses) {
            // The remains on an empty server are kept while nothing can replace them.
            return Err(self.too_few(&responses));
        }
        self.need(k, self.draft(k, &token, FILLS_ALONE).await, "drafted")?;
        // The incarnation must be read after this: no node that began before can fill the server now.
        let responses = self.ask(&HANDSHAKE, head.clone(), false, others).await?;
        let Some(incarnation) = next_incarnation(&responses.replies, k, quorum) else {
            return Err(self.too_few(&responses));
        };
        let version = newest_version(&responses);
        let told = self.note(k, incarnation, &cluster_id).await?;
        let mut last = Vec::new();
        for reply in &told {
            let vector = self.copy(k, reply, &token, &cluster_id).await?;
            last.push(Reply { vector, ..reply.clone() });
        }
        if trusted(&last).count() < quorum {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "a server restarted or lost its data while it was copied",
            ));
        }
        let mut known = latest(last.iter().map(|reply| &reply.vector));
        if known[k] > incarnation {
            let address = &self.servers[k].address;
            let other = format!("another node is filling {address}; try again");
            return Err(Error::new(ErrorKind::Unavailable, other));
        }
        known[k] = incarnation;
        let rejoined = self
            .enter(k, &token, &cluster_id, IncarnationVector { incarnation, known }, version)
            .await;
        self.need(k, rejoined, "rejoined")
    }

    /// Raises server `k`, a member, to the latest incarnation that the others know of it. It keeps
    /// all its registers.
    ///
    /// That is safe for the reason for which a rejoin is: a majority of the others store the
    /// incarnation first, so a node that lets the server rejoin later takes a higher one. No two
    /// memories of a server have the same incarnation.
    pub(crate) async fn raise(self: &Arc<Self>, k: usize) -> Result {
        let quorum = majority(self.servers.len());
        let cluster_id = self.require_cluster_id().await?;
        let others =
            |responses: &Responses| latest_incarnation(&responses.replies, k, quorum).is_some();
        let head = vec![cluster_id.clone().into_bytes()];
        let responses = self.ask(&HANDSHAKE, head.clone(), false, others).await?;
        let Some(incarnation) = latest_incarnation(&responses.replies, k, quorum) else {
            return Err(self.too_few(&responses));
        };
        self.note(k, incarnation, &cluster_id).await?;
        let args = Self::incarnation_args(k, incarnation, &cluster_id);
        match self.call_one(k, &RAISE, &args, self.deadline.max(UNHURRIED)).await {
            Ok(Response::Member { .. } | Response::Empty) => Ok(()),
            Ok(_) => Err(self.lost(k, Fault::Unexpected)),
            Err(fault) => Err(self.lost(k, fault)),
        }
    }

    /// Lets a majority of the others store an incarnation of server `k`, and returns their vectors.
    async fn note(
        self: &Arc<Self>,
        k: usize,
        incarnation: u32,
        cluster_id: &str,
    ) -> Result<Vec<Reply<()>>> {
        let quorum = majority(self.servers.len());
        let stored = |responses: &Responses| -> Vec<Reply<()>> {
            trusted(&responses.replies)
                .filter(|reply| reply.from != k)
                .take(quorum)
                .map(|reply| Reply { from: reply.from, vector: reply.vector, body: () })
                .collect()
        };
        let args = Self::incarnation_args(k, incarnation, cluster_id);
        let is_enough = |responses: &Responses| stored(responses).len() >= quorum;
        let responses = self.ask(&NOTE, args, false, is_enough).await?;
        let stored = stored(&responses);
        if stored.len() < quorum { Err(self.too_few(&responses)) } else { Ok(stored) }
    }

    fn incarnation_args(k: usize, incarnation: u32, cluster_id: &str) -> Vec<Vec<u8>> {
        [cluster_id.to_owned(), k.to_string(), incarnation.to_string()].map(Vec::from).to_vec()
    }

    /// Copies all registers of a server to server `k`, and returns the source's last vector.
    async fn copy(
        &self,
        k: usize,
        from: &Reply<()>,
        token: &[u8],
        cluster_id: &str,
    ) -> Result<IncarnationVector> {
        let mut cursor = b"0".to_vec();
        loop {
            let (next, fields, vector) = self.page(from.from, cluster_id, cursor).await?;
            if vector.incarnation != from.vector.incarnation {
                let forgot = "a server restarted or lost its data while it was copied";
                return Err(Error::new(ErrorKind::Unavailable, forgot));
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
                return Ok(vector);
            }
            cursor = next;
        }
    }

    async fn page(&self, i: usize, cluster_id: &str, cursor: Vec<u8>) -> Result<Page> {
        let args = [cluster_id.as_bytes().to_vec(), cursor];
        match self.call_one(i, &SCAN, &args, self.deadline.max(UNHURRIED)).await {
            Ok(Response::Member { vector, mut body, .. }) if !body.is_empty() => {
                let fields = body.split_off(1);
                Ok((body.remove(0), fields, vector))
            }
            Ok(_) => Err(self.lost(i, Fault::Unexpected)),
            Err(fault) => Err(self.lost(i, fault)),
        }
    }

    async fn enter(
        &self,
        k: usize,
        token: &[u8],
        cluster_id: &str,
        vector: IncarnationVector,
        version: String,
    ) -> Result<Response, Fault> {
        let args = vec![
            token.to_vec(),
            self.places[k].clone().into_bytes(),
            cluster_id.as_bytes().to_vec(),
            vector.incarnation.to_string().into_bytes(),
            known_text(&vector.known).into_bytes(),
            version.into_bytes(),
        ];
        self.fill_call(k, &REJOIN, args).await
    }

    /// Lets `token` fill server `k`, unless another node has done something for that within
    /// `patience`.
    async fn draft(&self, k: usize, token: &[u8], patience: Duration) -> Result<Response, Fault> {
        let patience = patience.as_millis().to_string().into_bytes();
        self.fill_call(k, &DRAFT, vec![token.to_vec(), patience]).await
    }

    async fn fill_call(
        &self,
        k: usize,
        script: &'static LazyLock<Script>,
        args: Vec<Vec<u8>>,
    ) -> Result<Response, Fault> {
        let deadline = self.deadline.max(UNHURRIED);
        self.servers[k].call(&*self.runtime, deadline, script, &self.key, &args).await
    }

    fn need(&self, k: usize, response: Result<Response, Fault>, word: &str) -> Result {
        match response {
            Ok(Response::Word(response)) if response == word => Ok(()),
            Ok(_) => {
                let address = &self.servers[k].address;
                let other = format!("another node is filling {address}; try again");
                Err(Error::new(ErrorKind::Unavailable, other))
            }
            Err(fault) => Err(self.lost(k, fault)),
        }
    }

    fn lost(&self, i: usize, fault: Fault) -> Error {
        let message = format!("{}: {fault}", self.servers[i].address);
        Error::new(ErrorKind::Unavailable, message)
    }

    fn token(&self) -> Vec<u8> {
        self.runtime.random().to_string().into_bytes()
    }
}

//! The parts of a store: one namespace of one cluster.

use crate::{
    cache::Cache, client::Client, due_index::DueIndex, keys::Keys, name_pages::NamePages,
    sessions::Sessions,
};
use allora_core::{Result, backend::plain_text_warning, store::HistoryPruning};
use chrono::TimeDelta;
use etcd_client::{DeleteOptions, Txn, TxnOp};
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, atomic::AtomicBool},
};

/// A store in etcd. A clone shares its connections.
#[derive(Clone)]
pub struct Etcd {
    pub(crate) store: Arc<Store>,
}

/// One namespace of one cluster.
pub(crate) struct Store {
    pub(crate) client: Arc<Client>,
    pub(crate) keys: Keys,
    pub(crate) namespace: String,
    pub(crate) security_warning: Option<String>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) due_index: DueIndex,
    pub(crate) cache: Cache,
    pub(crate) name_pages: NamePages,
    pub(crate) history: HistoryPruning,
    /// The kinds that may have lost their last schedule.
    pub(crate) left_kinds: Mutex<BTreeSet<String>>,
    /// A schedule of each kind that was looked for, to begin with the next time.
    pub(crate) examples: Mutex<HashMap<String, Vec<u8>>>,
    pub(crate) is_pruning: AtomicBool,
}

impl Etcd {
    /// The difference by which this machine's clock is ahead of the other nodes', by their median;
    /// negative if it is behind. `None` until another node has shown its clock: each node does so when
    /// it begins to run something, and as long as it lives. The clocks arrive with the notifications,
    /// so that a scheduler must run on this store. The error is the time that a notification takes.
    ///
    /// A difference of more than two seconds is also logged as a warning.
    pub fn skew(&self) -> Option<TimeDelta> {
        self.store.sessions.skew()
    }

    /// Deletes all keys of this store's prefix, with all jobs and their history. For scratch stores: nodes
    /// that use it see an emptied store.
    ///
    /// # Errors
    /// That of etcd, which may have deleted them. Repeat the call.
    ///
    /// # Cancel safety
    /// A dropped call may have deleted them.
    pub async fn delete_keys(self) -> Result {
        let all = TxnOp::delete(self.store.keys.all(), Some(DeleteOptions::new().with_prefix()));
        self.store.client.txn("delete_keys", Txn::new().and_then([all])).await.map(drop)
    }
}

impl Store {
    pub(crate) fn new(client: Client, namespace: String, history: HistoryPruning) -> Self {
        let (client, keys) = (Arc::new(client), Keys::new(&namespace));
        let security_warning = client.endpoints().find_map(plain_text);
        if let Some(warning) = &security_warning {
            tracing::warn!(target: "allora", "{warning}");
        }
        Self {
            security_warning,
            sessions: Arc::new(Sessions::new(client.clone(), keys.clone())),
            due_index: DueIndex::new(client.clone(), keys.clone()),
            cache: Cache::default(),
            name_pages: NamePages::default(),
            history,
            left_kinds: Mutex::default(),
            examples: Mutex::default(),
            is_pruning: AtomicBool::new(false),
            client,
            keys,
            namespace,
        }
    }
}

/// The warning of a member on another machine that is reached without TLS.
fn plain_text(endpoint: &str) -> Option<String> {
    let place = endpoint.strip_prefix("http://")?.split('/').next()?;
    let host = match place.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => place,
    };
    plain_text_warning(endpoint, host, "write https:// for TLS")
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("endpoints", &self.store.client.endpoints().collect::<Vec<_>>())
            .field("prefix", &self.store.namespace)
            .finish_non_exhaustive()
    }
}

#[test]
fn members_elsewhere_without_tls_are_warned_of() {
    for fine in [
        "http://127.0.0.1:2379",
        "http://[::1]:2379",
        "http://localhost",
        "https://db:2379",
        "the given client",
    ] {
        assert_eq!(plain_text(fine), None, "{fine}");
    }
    let said = plain_text("http://db:2379").unwrap();
    assert!(said.contains("http://db:2379 is plain text") && said.contains("https://"), "{said}");
    assert!(plain_text("http://db").is_some());
}

//! Consoles that are served on a port of this machine.

use allora::{Memory, Schedules, StoredSchedule, backend::HistoryLimits};
use allora_console::{Access, Console, Scope};
use axum::Router;
use std::{net::SocketAddr, sync::LazyLock};
use tokio::{net::TcpListener, runtime::Runtime, sync::oneshot, task::JoinHandle};

/// The runtime of stores, consoles and servers.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// A server, stopped when it is dropped.
pub(crate) struct Served {
    address: SocketAddr,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Served {
    pub(crate) fn new(router: Router) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), router)
    }

    pub(crate) fn at(address: SocketAddr, router: Router) -> Self {
        let listener = RUNTIME.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serve =
            axum::serve(listener, router).with_graceful_shutdown(async { _ = stopped.await });
        let task = RUNTIME.spawn(async { serve.await.unwrap() });
        Self { address, running: Some((stop, task)) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of a page.
    pub(crate) fn page(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let (stop, task) = self.running.take().unwrap();
        drop(stop);
        // Until the listener is closed, and the connections that a browser keeps open.
        let _ = RUNTIME.block_on(task);
    }
}

/// A store with these jobs, and its console for an operator who may do everything.
pub(crate) fn console_of(jobs: &[StoredSchedule]) -> (Schedules, Router) {
    let store = Memory::new().with_history(HistoryLimits::default());
    let _guard = RUNTIME.enter();
    let schedules = Schedules::new(store).unwrap();
    for added in RUNTIME.block_on(schedules.add_all(jobs)).unwrap() {
        added.unwrap();
    }
    let access = Access::reader("ann").with(Scope::Admin);
    let console = Console::new(schedules.clone()).allow_actions();
    (schedules, console.access(move |_| Some(access.clone())).into_router())
}

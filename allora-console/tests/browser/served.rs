//! Consoles that are served on a port of this machine.

use allora::{Memory, Schedules, StoredSchedule, backend::HistoryLimits};
use allora_console::{Access, Console};
use axum::Router;
use std::net::SocketAddr;
use tokio::{net::TcpListener, runtime::Runtime};

/// A server, stopped when it is dropped.
pub(crate) struct Served {
    runtime: Option<Runtime>,
    address: SocketAddr,
}

impl Served {
    pub(crate) fn new(router: Router) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), router)
    }

    pub(crate) fn at(address: SocketAddr, router: Router) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async { axum::serve(listener, router).await });
        Self { runtime: Some(runtime), address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of a page.
    pub(crate) fn page(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Runs what uses the same store as the pages.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.as_ref().unwrap().block_on(future)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Open connections are closed too.
        self.runtime.take().unwrap().shutdown_background();
    }
}

/// A store with these jobs, and its console for a reader who may see everything.
pub(crate) fn console_of(jobs: &[StoredSchedule]) -> (Schedules, Router) {
    let store = Memory::new().with_history(HistoryLimits::default());
    let schedules = Schedules::new(store).unwrap();
    let runtime = Runtime::new().unwrap();
    for added in runtime.block_on(schedules.add_all(jobs)).unwrap() {
        added.unwrap();
    }
    let access = Access::reader("ann").with_data();
    let console = Console::new(schedules.clone()).access(move |_| Some(access.clone()));
    (schedules, console.into_router())
}

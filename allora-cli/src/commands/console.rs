//! `allora console`: the console of a store, for browsers on this machine.

use crate::{
    failure::{Failure, Outcome},
    local_console::{self, NOT_LOCAL},
    server::Server,
    session::{self, Session},
    store::StoreArgs,
};
use allora_console::Access;
use allora_core::runtime::Tokio;
use clap::Args;
use std::io::{self, Write};

/// Serves pages that show what runs, what does not, and why.
///
/// Any program on this machine can read them, and nothing can be changed from them. With --listen and
/// --console, `allora run` serves the same pages.
#[derive(Debug, Args)]
pub(crate) struct Console {
    /// The address to listen on, which must be one of this machine alone.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9118")]
    listen: String,
    /// Also shows the data of schedules and the output of runs. Every account of this machine can then
    /// read them.
    #[arg(long)]
    show_data: bool,
    #[command(flatten)]
    place: StoreArgs,
}

impl Console {
    pub(crate) fn run(self) -> Outcome {
        let server = Server::bind(&self.listen)?;
        if !server.is_local() {
            return Err(Failure::wrong(format!("--listen {}: {NOT_LOCAL}", self.listen)));
        }
        let reader = Access::reader("");
        let access = if self.show_data { reader.with_data() } else { reader };
        session::with(&self.place, async |session: Session| {
            let console = allora_console::Console::new(session.schedules);
            let router = local_console::local(console, access);
            let mut out = io::stdout().lock();
            let (address, store) = (server.address(), self.place.shown()?);
            writeln!(out, "http://{address}/ shows {store}, read-only; Ctrl-C ends it")?;
            out.flush()?;
            drop(out);
            server.serve(router, Tokio::current()?).await
        })
    }
}

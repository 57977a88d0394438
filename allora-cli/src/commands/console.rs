//! `allora console`: the console of a store, for browsers on this machine or with a token.

use crate::{
    console_access::AccessArgs,
    daemon::{Log, LogFormat, Order, Signals},
    failure::Outcome,
    server::Server,
    session::{self, Session},
    store::StoreArgs,
};
use allora_core::runtime::Tokio;
use clap::Args;
use std::{
    io::{self, Write},
    pin::pin,
};
use tracing::Level;

/// Serves pages that show what runs, what does not, and why.
///
/// Without --tokens, any program on this machine can read them, and no other. Nothing can be changed from them
/// without --allow-actions. With --listen and --console, `allora run` serves the same pages.
#[derive(Debug, Args)]
#[command(after_help = "\
SIGNALS
  HUP, USR1         reads the file of --tokens again; a bad one changes nothing, and the log says why
  TERM, INT, QUIT   ends it

EXAMPLES
  allora token new ann --scope data,run >> tokens
  allora console --tokens tokens --listen 0.0.0.0:9118 --host cron.example --allow-actions")]
pub(crate) struct Console {
    /// The address to listen on. Without --tokens, one of this machine alone.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9118")]
    listen: String,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    place: StoreArgs,
}

impl Console {
    pub(crate) fn run(self) -> Outcome {
        let server = Server::bind(&self.listen)?;
        let access = self.access.checked(&server, &self.listen)?;
        // The actions with their actors, and the causes of pages that could not be made.
        let log = Log::open(None)?;
        log.begin(Some(Level::INFO), LogFormat::Text);
        session::with(&self.place, async |session: Session| {
            let router = access.guard(allora_console::Console::new(session.schedules));
            let mut signals = Signals::listen()?;
            let mut out = io::stdout().lock();
            let (address, store, how) =
                (server.address(), self.place.shown()?, self.access.shown());
            writeln!(out, "http://{address}/ shows {store}, {how}; Ctrl-C ends it")?;
            out.flush()?;
            drop(out);
            let mut served = pin!(server.serve(router, Tokio::current()?));
            loop {
                let order = tokio::select! {
                    ended = &mut served => return ended,
                    order = signals.next() => order,
                };
                match order {
                    Order::Reload => access.reload(),
                    Order::Reopen => log.reopen(),
                    Order::Stop => return Ok(()),
                }
            }
        })
    }
}

//! The console of a shop: `cargo run -p allora-console --example shop [ADDRESS]`.
//!
//! A simulated weekend has passed in its store, with all that a console is for: a night in which the clocks
//! were set back, an outage, a service that refuses, a node that is gone, a kind that nobody handles, a
//! pause, and a hostile name. Its clock stands still, so every page can be looked at for long.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

mod weekend;

use allora::BoxError;
use std::env;
use tokio::net::TcpListener;
use weekend::Shop;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9119".to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("The weekend passes …");
    let shop = Shop::after_its_weekend()?;
    println!("The console is at http://{}/; Ctrl-C ends it.", listener.local_addr()?);
    Ok(axum::serve(listener, shop.console).await?)
}

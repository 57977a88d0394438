//! Where the schedule is kept.

use allora::{Backend, BoxError, Memory};
use std::sync::Arc;

/// The process's memory, or a database.
pub(crate) async fn open(store: &str) -> Result<Arc<dyn Backend>, BoxError> {
    match store {
        "memory" => Ok(Arc::new(Memory::new())),
        "sqlite" => database(&temporary()?).await,
        url => database(url).await,
    }
}

/// A file under the system's temporary folder, the same each time.
fn temporary() -> Result<String, BoxError> {
    let file = std::env::temp_dir().join("allora-quickstart.db");
    let path =
        file.to_str().ok_or("the temporary folder is not UTF-8; name a file: sqlite:FILE")?;
    Ok(format!("sqlite:{}", path.replace('%', "%25").replace('?', "%3F")))
}

/// Opens a database, and tells what it remembers.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
async fn database(url: &str) -> Result<Arc<dyn Backend>, BoxError> {
    use allora::{backend::Page, sql::Sql};
    let store: Arc<dyn Backend> = Arc::new(Sql::connect(url).await?);
    let known = match store.queries() {
        Some(queries) => queries.list(Page::first(10)).await?,
        None => Vec::new(),
    };
    let begun = if known.is_empty() { "a new schedule" } else { "continuing" };
    println!("{begun} in {store:?}");
    for state in known {
        let Some(next) = state.next else { continue };
        let (runs, at) = (state.counters.started, next.scheduled_at.format("%F %H:%M:%S%.3f"));
        println!("  {}: {runs} runs so far, the next was set for {at}", state.name);
    }
    Ok(store)
}

/// Says what to type instead: a database would double the time that the first build takes.
#[cfg(not(any(feature = "sqlite", feature = "postgres", feature = "mysql")))]
async fn database(url: &str) -> Result<Arc<dyn Backend>, BoxError> {
    let feature = match url.split(':').next().unwrap_or_default() {
        "postgres" | "postgresql" => "postgres",
        "mysql" | "mariadb" => "mysql",
        _ => "sqlite",
    };
    // A server's address may hold a password.
    let store = if feature == "sqlite" { url } else { "URL" };
    Err(format!(
        "this build has no databases; type: \
         cargo run --example quickstart --features {feature} -- --store '{store}'"
    )
    .into())
}

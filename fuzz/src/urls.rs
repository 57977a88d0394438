//! The addresses of stores.

use crate::text::{is_one_line, text};
use allora_redis::internal::connection_info;
use allora_sql::Url;

/// The password of the seeds.
const SECRET: &str = "s3cret";

/// The address of a database or of a Redis server.
pub(crate) fn url(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let said = match Url::parse(text) {
        Ok(url) => format!("{url} {url:?} {}", url.security_warning().unwrap_or_default()),
        Err(error) => error.to_string(),
    };
    is_one_line(&said, text);
    let asked = connection_info(text, None);
    let of_redis = asked.err().map(|error| error.to_string()).unwrap_or_default();
    if has_password(text) {
        assert!(!said.contains(SECRET), "{text:?}: {said}");
        assert!(!of_redis.contains(SECRET), "{text:?}: {of_redis}");
    }
}

/// `true` if it has the password where a server's address has it.
fn has_password(text: &str) -> bool {
    let schemes = ["postgres", "postgresql", "mysql", "mariadb", "redis", "rediss"];
    text.split_once("://").is_some_and(|(scheme, rest)| {
        let login = rest.split(['/', '?', '#']).next().and_then(|part| part.split_once('@'));
        schemes.contains(&scheme)
            && login.is_some_and(|(login, place)| {
                login.ends_with(&format!(":{SECRET}")) && !place.contains(SECRET)
            })
            && rest.matches(SECRET).count() == 1
    })
}

//! Stores in etcd: `etcd://[USER:PASSWORD@]HOST:PORT,HOST:PORT`, or `etcds://` over TLS.

use super::{Servers, Store, Wanted};
use crate::failure::{Failure, Outcome};
use allora_etcd::Etcd;
use std::sync::Arc;

/// Opens a store.
///
/// # Errors
/// A URL that is not one, and what etcd says.
pub(super) async fn open(url: &str, wanted: Wanted) -> Outcome<Store> {
    Ok(Arc::new(connect(url, wanted).await?))
}

/// Removes a store.
///
/// # Errors
/// As [`open`].
pub(super) async fn remove(url: &str, wanted: Wanted) -> Outcome {
    Ok(connect(url, wanted).await?.delete_keys().await?)
}

async fn connect(url: &str, wanted: Wanted) -> Outcome<Etcd> {
    let (login, endpoints) = parts(url)?;
    let mut builder = Etcd::builder().history(wanted.history);
    if let Some(prefix) = wanted.prefix {
        builder = builder.prefix(prefix);
    }
    if let Some((user, password)) = login {
        builder = builder.login(user, password);
    }
    Ok(builder.connect(endpoints).await?)
}

/// A user, and the password.
type Login = (String, String);

/// The user with the password, and the endpoints.
pub(super) fn parts(url: &str) -> Outcome<(Option<Login>, Vec<String>)> {
    let servers = Servers::of(url)?;
    if !servers.path.is_empty() {
        return Err(Failure::wrong(
            "the store URL has a path; remove it, and separate stores in etcd by --prefix",
        ));
    }
    let login = match servers.login.strip_suffix('@') {
        Some(login) => {
            let (user, password) = login.split_once(':').ok_or_else(|| {
                Failure::wrong("the store URL has a login without a password; write USER:PASSWORD@")
            })?;
            Some((unescaped(user)?, unescaped(password)?))
        }
        None => None,
    };
    let scheme = if url.starts_with("etcds:") { "https" } else { "http" };
    Ok((login, servers.hosts.iter().map(|host| format!("{scheme}://{host}")).collect()))
}

/// A part of a URL without its percent signs.
fn unescaped(text: &str) -> Outcome<String> {
    let wrong = || Failure::wrong("the login in the store URL has a % that no two digits follow");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte.unwrap_or_default()).to_digit(16);
        let (high, low) = (digit(rest.next()), digit(rest.next()));
        let value = high.zip(low).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        bytes.push(value.ok_or_else(wrong)?);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn reserved_characters_are_written_with_percent_signs() {
        assert_eq!(unescaped("p%40ss%25").unwrap(), "p@ss%");
        for bad in ["%", "%4", "%zz", "%ff"] {
            assert!(unescaped(bad).is_err(), "{bad}");
        }
    }
}

//! The reader of the addresses of databases: checked by us, word for word.

use crate::{
    url::{System, Url, decode, escape},
    url_query,
};
use allora_core::{Error, Result};
use std::path::PathBuf;

impl Url {
    /// Reads an address: `sqlite:FILE`, `postgres://USER:PASSWORD@HOST:PORT/DATABASE` or
    /// `mysql://…` alike. Reserved characters in a part are written as `%XX`.
    ///
    /// Query keys of both databases: `tls` (`off`, `require`, `verify-ca`, `verify-full`), `ca` (a
    /// file with the certificates of authorities to trust in addition to the system's), `socket` (the
    /// path of a Unix socket: of PostgreSQL the folder, of MySQL the socket itself).
    ///
    /// PostgreSQL, with the meaning that libpq gives them: `sslmode`, `sslrootcert` (a file, or
    /// `system`), `sslcert` with `sslkey`, `application_name` (default: `allora`), `options` (`-c
    /// name=value` and `--name=value`), `connect_timeout` (1 to 600 seconds), `host` (a name, or the
    /// folder of a socket), `port`, `user`, `password` and `dbname`. Exceptions:
    /// - Without `sslmode`, a server on another machine is verified as with `verify-full`.
    /// - The authorities of `sslrootcert` are trusted in addition to the system's.
    /// - `sslmode=allow` is an error.
    /// - `channel_binding=require` means `sslmode=verify-full`: the driver has no channel binding.
    /// - The files of `~/.postgresql` and `~/.pgpass` are not read.
    ///
    /// MySQL, with the meaning that its clients give them: `ssl-mode`, `ssl-ca`, `ssl-cert` with
    /// `ssl-key`. Without `ssl-mode`, a server on another machine is verified as with
    /// `VERIFY_IDENTITY`. `unix_socket` is `socket`.
    ///
    /// # Errors
    /// `Invalid` for whatever is not exactly that; the message names the part and never the
    /// password.
    ///
    /// ```
    /// use allora_sql::Url;
    ///
    /// let url = Url::parse("postgres://app:s3cret@db.example/jobs")?;
    /// assert_eq!(url.to_string(), "postgres://app:***@db.example/jobs");
    /// assert!(Url::parse("postgres://db.example/jobs?tsl=off").is_err());
    /// # Ok::<(), allora::Error>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: String| Err(Error::invalid(format!("the database URL {why}")));
        if text.len() > 4096 {
            return wrong(format!("has {} bytes; at most 4096 are read", text.len()));
        }
        if text.trim() != text || text.chars().any(char::is_control) {
            return wrong("has white space around it or control characters in it".into());
        }
        let Some((scheme, rest)) = text.split_once(':') else {
            return wrong("has no scheme; write sqlite:FILE, postgres://… or mysql://…".into());
        };
        match scheme {
            "sqlite" => Self::file(rest),
            "postgres" | "postgresql" => Self::server(System::Postgres, rest),
            "mysql" | "mariadb" => Self::server(System::MySql, rest),
            "jdbc" => {
                wrong("begins with jdbc:; remove that, and write postgres://USER:PASSWORD@…".into())
            }
            other if other.contains('+') && other.chars().all(|c| c.is_ascii_graphic()) => {
                let system: String = other.split('+').next().unwrap_or_default().to_owned();
                wrong(format!("names a driver in its scheme; write {system}://…"))
            }
            other if other.chars().all(|c| c.is_ascii_alphanumeric() || c == '+') => {
                wrong(format!("has the scheme {other:?}; there are sqlite, postgres and mysql"))
            }
            _ => wrong("has no scheme; there are sqlite, postgres and mysql".into()),
        }
    }

    /// The file of an SQLite database.
    pub fn sqlite(file: impl Into<PathBuf>) -> Result<Self> {
        let file = file.into();
        match file.to_str() {
            Some(path) => Self::file(&escape(path)),
            None => Err(Error::invalid("the path of the SQLite file is not UTF-8; rename it")),
        }
    }

    fn file(rest: &str) -> Result<Self> {
        let path = rest.strip_prefix("//").unwrap_or(rest);
        if path.contains('?') {
            return Err(Error::invalid(
                "the database URL of an SQLite file has no query; remove what is behind the ?, or \
                 write a ? in the file's name as %3F",
            ));
        }
        let path = decode(path, "path")?;
        if path.is_empty() || path.contains(":memory:") {
            return Err(Error::invalid(
                "an SQLite database is a file here: sqlite:FILE; for jobs that need not survive \
                 the process take the memory backend",
            ));
        }
        Ok(Self { database: path, ..Self::empty(System::Sqlite) })
    }

    fn server(system: System, rest: &str) -> Result<Self> {
        let wrong = |why: String| Error::invalid(format!("the database URL {why}"));
        let Some(rest) = rest.strip_prefix("//") else {
            return Err(wrong("lacks the // behind its scheme".into()));
        };
        if rest.contains('#') {
            return Err(wrong("has a #; in a password or name write %23".into()));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, address) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some((login, _)) if login.contains('@') => {
                return Err(wrong("has more than one @; in a password write %40".into()));
            }
            Some((login, address)) => (Some(login), address),
        };
        let (user, password) = match login {
            None => (None, None),
            Some(login) => match login.split_once(':') {
                None => (Some(decode(login, "user")?), None),
                Some((user, password)) => {
                    (Some(decode(user, "user")?), Some(decode(password, "password")?))
                }
            },
        };
        let (host, port) = address_of(address)?;
        let mut url = Self {
            host,
            port,
            user: user.filter(|user| !user.is_empty()),
            password,
            database: decode(path, "database")?,
            ..Self::empty(system)
        };
        if system == System::Postgres && url.host.starts_with('/') {
            // As libpq: the folder of a socket in place of a host.
            url.socket = Some(std::mem::take(&mut url.host).into());
        }
        url_query::read(&mut url, query)?;
        if url.database.is_empty() || url.database.contains('/') {
            return Err(wrong("does not name one database behind the host".into()));
        }
        if url.host.is_empty() && url.socket.is_none() {
            return Err(wrong("names no host".into()));
        }
        Ok(url)
    }
}

fn address_of(address: &str) -> Result<(String, Option<u16>)> {
    let wrong = |why: &str| Error::invalid(format!("the database URL {why}"));
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let Some((host, port)) = rest.split_once(']') else {
                return Err(wrong("has an IPv6 address without its closing bracket"));
            };
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(wrong("has something else than an IPv6 address in brackets"));
            }
            match port.strip_prefix(':') {
                _ if port.is_empty() => (host, None),
                Some(port) => (host, Some(port)),
                None => return Err(wrong("has text behind the bracket of its address")),
            }
        }
        None => match address.split_once(':') {
            None => (address, None),
            Some((_, port)) if port.contains(':') => {
                return Err(wrong("has an IPv6 address without brackets"));
            }
            Some((host, port)) => (host, Some(port)),
        },
    };
    if host.contains(',') {
        return Err(wrong("names several hosts; give the one that takes writes"));
    }
    let port = match port {
        None => None,
        Some(port) => match port.parse::<u16>() {
            Ok(port) if port > 0 => Some(port),
            _ => return Err(wrong("has a port that is not a number from 1 to 65535")),
        },
    };
    Ok((decode(host, "host")?, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tls;

    #[test]
    fn an_address_is_read_part_by_part() {
        let url = Url::parse("mysql://a%40b:p%3Aw@[::1]:3307/jobs?tls=verify-ca&ca=/x").unwrap();
        assert_eq!((url.host.as_str(), url.port), ("::1", Some(3307)));
        assert_eq!(url.user.as_deref(), Some("a@b"));
        assert_eq!(url.password.as_deref(), Some("p:w"));
        assert_eq!((url.database.as_str(), url.tls), ("jobs", Tls::VerifyCa));
        let file = Url::parse("sqlite:/tmp/a%3Fb.db").unwrap();
        assert_eq!(file.database, "/tmp/a?b.db");
        assert_eq!(Url::sqlite("/tmp/a?b.db").unwrap(), file);
    }

    #[test]
    fn other_machines_are_verified_unless_told_otherwise() {
        let tls = |url| Url::parse(url).unwrap().tls();
        assert_eq!(tls("postgres://h/db"), Tls::VerifyFull);
        assert_eq!(tls("postgres://h/db?tls=off"), Tls::Off);
        assert_eq!(tls("postgres://localhost/db"), Tls::Off);
        assert_eq!(tls("postgres://127.0.0.1/db"), Tls::Off);
        assert_eq!(tls("mysql://[::1]/db"), Tls::Off);
        assert_eq!(tls("mysql://localhost/db?tls=verify-full"), Tls::VerifyFull);
        assert_eq!(tls("mysql:///db?socket=/run/mysqld.sock"), Tls::Off);
    }

    #[test]
    fn what_is_not_an_address_is_refused_without_its_password() {
        for text in [
            "",
            "postgres",
            "http://u:s3cret@h/db",
            "postgres:u:s3cret@h/db",
            "postgres://u:s3cret@x@h/db",
            "postgres://u:s3cret%@h/db",
            "postgres://u:s3cret%00@h/db",
            "postgres://u:s3cret@h/d%0ab",
            "postgres://u:s3cret@h",
            "postgres://u:s3cret@/db",
            "postgres://u:s3cret@h:0/db",
            "postgres://u:s3cret@h:99999/db",
            "postgres://u:s3cret@h1,h2/db",
            "postgres://u:s3cret@::1/db",
            "postgres://u:s3cret@[::1/db",
            "postgres://u:s3cret@[h]/db",
            "postgres://u:s3cret@h/db ",
            "postgres://u:s3cret@h/a/b",
            "postgres://u:s3cret@h/db#x",
            "postgres://u:s3cret@h/db?ssl=true",
            "postgres://u:s3cret@h/db?tls=maybe",
            "mysql://u:s3cret@h/db?foo=s3cret",
            "u:s3cret@h/db",
            "sqlite:",
            "sqlite::memory:",
            "sqlite:x.db?mode=ro",
        ] {
            let said = match Url::parse(text) {
                Ok(url) => panic!("{text} was read as {url}"),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!said.contains("s3cret"), "{text}: {said}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let url = Url::parse("postgres://u:s3cret@h/db").unwrap();
        assert_eq!(format!("{url} {url:?}"), "postgres://u:***@h/db Url(postgres://u:***@h/db)");
    }
}

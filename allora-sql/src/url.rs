//! Addresses of databases, shown without what is secret.

use allora_core::{
    Error, Result,
    backend::{is_this_machine, plain_text_warning},
};
use std::{fmt, path::PathBuf, time::Duration};

/// The database of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// SQLite: `sqlite:FILE`.
    Sqlite,
    /// PostgreSQL: `postgres://…`.
    Postgres,
    /// MySQL and MariaDB: `mysql://…` or `mariadb://…`.
    MySql,
}

/// The protection of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Not at all: plain text. The default for this machine.
    Off,
    /// Encrypted if the server can; the server is not verified.
    Prefer,
    /// Encrypted; the server is not verified.
    Require,
    /// Encrypted, and the server's certificate is signed by an authority we know.
    VerifyCa,
    /// The same, and the certificate is for this host. The default for every other machine.
    VerifyFull,
}

/// The address of a database. `Debug` and `Display` leave out the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    pub(crate) system: System,
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: String,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) tls: Tls,
    pub(crate) ca: Option<PathBuf>,
    /// The client's certificate and its key.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
    pub(crate) application_name: Option<String>,
    /// Settings of the session.
    pub(crate) options: Vec<(String, String)>,
    pub(crate) connect_timeout: Option<Duration>,
}

impl Url {
    /// The parts that are known of a pool that the application provides.
    pub(crate) fn of_pool(system: System, database: String) -> Self {
        let host = "pool".to_owned();
        Self { host, database, ..Self::empty(system) }
    }

    pub(crate) fn empty(system: System) -> Self {
        Self {
            system,
            host: String::new(),
            port: None,
            user: None,
            password: None,
            database: String::new(),
            socket: None,
            tls: Tls::Off,
            ca: None,
            certificate: None,
            application_name: None,
            options: Vec::new(),
            connect_timeout: None,
        }
    }

    /// On this machine, where there is no network between.
    pub(crate) fn is_local(&self) -> bool {
        self.socket.is_some() || is_this_machine(&self.host)
    }

    /// The protection of the connection.
    pub fn tls(&self) -> Tls {
        self.tls
    }

    /// The protection that the connection lacks: it is plain text to another machine, or the server's
    /// certificate is not verified, or not its name.
    pub fn security_warning(&self) -> Option<String> {
        let full = match self.system {
            System::MySql => "ssl-mode=VERIFY_IDENTITY",
            _ => "sslmode=verify-full",
        };
        let lack = match self.tls {
            Tls::Prefer => "may be plain text, and the server's certificate is not verified",
            Tls::Require => "is encrypted, and the server's certificate is not verified",
            Tls::VerifyCa => {
                "is encrypted, and the name in the server's certificate is not verified: each \
                 certificate of an authority that this system trusts is accepted"
            }
            Tls::Off if self.is_local() || self.system == System::Sqlite => return None,
            Tls::Off => {
                let remedy = format!("write {full}, or leave the setting out");
                return plain_text_warning(&self.to_string(), &self.host, &remedy);
            }
            Tls::VerifyFull => return None,
        };
        Some(format!("the connection to {self} {lack}; {full} in the URL verifies it"))
    }

    /// Which database it is of.
    pub fn system(&self) -> System {
        self.system
    }
}

pub(crate) fn decode(text: &str, what: &str) -> Result<String> {
    let wrong = || Error::invalid(format!("the {what} of the database URL is badly %-encoded"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else { return Err(wrong()) };
        bytes.push((high * 16 + low) as u8);
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong())?;
    // All but the password are shown.
    if text.contains(|c: char| c == '\0' || c.is_control() && what != "password") {
        let bad = format!("the {what} of the database URL has a control character in it");
        return Err(Error::invalid(bad));
    }
    Ok(text)
}

pub(crate) fn escape(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3F")
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.system {
            System::Sqlite => return write!(f, "sqlite:{}", escape(&self.database)),
            System::Postgres => "postgres",
            System::MySql => "mysql",
        };
        write!(f, "{scheme}://")?;
        if let Some(user) = &self.user {
            f.write_str(user)?;
            if self.password.is_some() {
                f.write_str(":***")?;
            }
            f.write_str("@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        write!(f, "/{}", self.database)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

//! Query keys of database URLs: those of this library, of libpq, and of MySQL's clients.
//!
//! A key has the meaning that libpq and MySQL's clients give it, or the URL is rejected.
//! `sslmode=require` with `sslrootcert` verifies; `channel_binding=require`, which the driver lacks,
//! becomes `verify-full`, which protects against the same attack; `allow`, which would never
//! encrypt, is an error.

use crate::url::{System, Tls, Url, decode};
use allora_core::{Error, Result};
use std::{collections::BTreeMap, time::Duration};

const POSTGRES: &str = "tls, ca, socket, sslmode, sslrootcert, sslcert, sslkey, channel_binding, \
                        application_name, options, connect_timeout, host, port, user, password and \
                        dbname";
const MYSQL: &str = "tls, ca, socket, unix_socket, ssl-mode, ssl-ca, ssl-cert and ssl-key";

/// The values of the keys, each of which is taken out when it is read.
struct Query<'a>(BTreeMap<&'a str, String>);

impl<'a> Query<'a> {
    fn split(query: &'a str) -> Result<Self> {
        let mut values = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(wrong(format!("has the query key {:?} without a value", short(pair))));
            };
            if values.insert(key, decode(value, "query")?).is_some() {
                return Err(wrong(format!("has the query key {:?} twice; keep one", short(key))));
            }
        }
        Ok(Self(values))
    }

    fn take(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)
    }

    /// The value under one of these keys, which mean the same.
    fn take_one_of(&mut self, keys: &[&str]) -> Result<Option<String>> {
        let mut found: Option<(&str, String)> = None;
        for key in keys {
            let Some(value) = self.take(key) else { continue };
            if let Some((other, _)) = &found {
                return Err(wrong(format!("has {other} and {key}, which mean the same; keep one")));
            }
            found = Some((key, value));
        }
        Ok(found.map(|(_, value)| value))
    }

    /// Refuses the keys that were not read.
    fn end(self, system: System) -> Result {
        let Some(key) = self.0.into_keys().next() else { return Ok(()) };
        let known = if system == System::Postgres { POSTGRES } else { MYSQL };
        Err(wrong(match remedy(system, key) {
            Some(remedy) => format!("has the query key {key}: {remedy}"),
            None => format!("has the unknown query key {:?}; known are {known}", short(key)),
        }))
    }
}

/// Reads the query of a URL whose other parts are read already.
pub(crate) fn read(url: &mut Url, query: &str) -> Result {
    let mut query = Query::split(query)?;
    let own = query.take("tls").map(|value| own_mode(&value)).transpose()?;
    let socket = query.take_one_of(match url.system {
        System::Postgres => &["socket"],
        _ => &["socket", "unix_socket"],
    })?;
    if let Some(socket) = socket
        && url.socket.replace(socket.into()).is_some()
    {
        return Err(wrong("has a socket in place of the host and in the query; keep one"));
    }
    let mode = match url.system {
        System::Postgres => postgres(url, &mut query, own)?,
        _ => mysql(url, &mut query, own)?,
    };
    query.end(url.system)?;
    // Files that are given are for a connection that is verified.
    let is_plain = url.is_local() && url.ca.is_none() && url.certificate.is_none();
    url.tls = mode.unwrap_or(if is_plain { Tls::Off } else { Tls::VerifyFull });
    Ok(())
}

fn own_mode(value: &str) -> Result<Tls> {
    Ok(match value {
        "off" => Tls::Off,
        "require" => Tls::Require,
        "verify-ca" => Tls::VerifyCa,
        "verify-full" => Tls::VerifyFull,
        _ => {
            let known = "off, require, verify-ca and verify-full";
            return Err(wrong(format!("has an unknown value for tls; there are {known}")));
        }
    })
}

/// <https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS>
fn postgres(url: &mut Url, query: &mut Query<'_>, own: Option<Tls>) -> Result<Option<Tls>> {
    login_and_address(url, query)?;
    let mode = match query.take("sslmode").as_deref() {
        None => None,
        Some("disable") => Some(Tls::Off),
        Some("prefer") => Some(Tls::Prefer),
        Some("require") => Some(Tls::Require),
        Some("verify-ca") => Some(Tls::VerifyCa),
        Some("verify-full") => Some(Tls::VerifyFull),
        Some("allow") => {
            return Err(wrong(
                "has sslmode=allow, which the driver cannot do; write sslmode=prefer, which encrypts \
                 if the server can, or sslmode=disable",
            ));
        }
        Some(_) => {
            return Err(wrong(
                "has an unknown value for sslmode; there are disable, prefer, require, verify-ca and \
                 verify-full",
            ));
        }
    };
    let mut mode = one_mode(own, mode, "sslmode")?;
    let root = query.take_one_of(&["sslrootcert", "ca"])?;
    match root.as_deref() {
        // The authorities of the system are known in any case. libpq refuses the weaker modes, too:
        // of these authorities, a certificate for another name is easy to have.
        Some("system") => {
            if mode.is_some_and(|mode| mode != Tls::VerifyFull) {
                return Err(wrong(
                    "has sslrootcert=system with a weaker mode; write sslmode=verify-full",
                ));
            }
            mode = Some(Tls::VerifyFull);
        }
        // As libpq: a file makes `require` verify.
        Some(_) if mode == Some(Tls::Require) && own.is_none() => mode = Some(Tls::VerifyCa),
        _ => {}
    }
    url.ca = root.filter(|root| root != "system").map(Into::into);
    url.certificate = both(query.take("sslcert"), query.take("sslkey"), "sslcert", "sslkey")?;
    // libpq has no TLS on a socket, whatever the mode.
    if url.socket.is_some() && own.is_none() {
        mode = mode.map(|_| Tls::Off);
    }
    match query.take("channel_binding").as_deref() {
        None | Some("disable" | "prefer") => {}
        // It proves that the server knows the password, and that no other server is between. The
        // driver does not have it. A verified certificate proves the same of the line.
        Some("require") if mode == Some(Tls::Off) || url.socket.is_some() => {
            return Err(wrong("has channel_binding=require without TLS; remove one of the two"));
        }
        Some("require") => mode = Some(Tls::VerifyFull),
        Some(_) => {
            return Err(wrong(
                "has an unknown value for channel_binding; there are disable, prefer and require",
            ));
        }
    }
    url.application_name = query.take("application_name");
    if let Some(options) = query.take("options") {
        url.options = command_line(&options, &url.host)?;
    }
    url.connect_timeout = query.take("connect_timeout").map(|text| seconds(&text)).transpose()?;
    Ok(mode)
}

/// Login and address in the query, where libpq reads them, too.
fn login_and_address(url: &mut Url, query: &mut Query<'_>) -> Result {
    let twice =
        |what: &str| wrong(format!("has the {what} twice, before its ? and behind; keep one"));
    if let Some(host) = query.take("host") {
        if !url.host.is_empty() && url.host != "localhost" {
            return Err(twice("host"));
        }
        if host.starts_with('/') {
            if url.socket.replace(host.into()).is_some() {
                return Err(wrong("has host and socket, which mean the same; keep one"));
            }
        } else if host.contains(',') {
            return Err(wrong("names several hosts; give the one that takes writes"));
        } else {
            url.host = host;
        }
    }
    if let Some(port) = query.take("port") {
        let Some(port) = port.parse::<u16>().ok().filter(|port| *port > 0) else {
            return Err(wrong("has a port that is not a number from 1 to 65535"));
        };
        if url.port.replace(port).is_some() {
            return Err(twice("port"));
        }
    }
    if let Some(user) = query.take("user")
        && url.user.replace(user).is_some()
    {
        return Err(twice("user"));
    }
    if let Some(password) = query.take("password")
        && url.password.replace(password).is_some()
    {
        return Err(twice("password"));
    }
    if let Some(database) = query.take("dbname") {
        if !url.database.is_empty() {
            return Err(twice("database"));
        }
        url.database = database;
    }
    Ok(())
}

/// <https://dev.mysql.com/doc/refman/8.4/en/connection-options.html#encrypted-connection-options>
fn mysql(url: &mut Url, query: &mut Query<'_>, own: Option<Tls>) -> Result<Option<Tls>> {
    let mode = match query.take("ssl-mode").map(|mode| mode.to_ascii_uppercase()).as_deref() {
        None => None,
        Some("DISABLED") => Some(Tls::Off),
        Some("PREFERRED") => Some(Tls::Prefer),
        Some("REQUIRED") => Some(Tls::Require),
        Some("VERIFY_CA") => Some(Tls::VerifyCa),
        Some("VERIFY_IDENTITY") => Some(Tls::VerifyFull),
        Some(_) => {
            return Err(wrong(
                "has an unknown value for ssl-mode; there are DISABLED, PREFERRED, REQUIRED, \
                 VERIFY_CA and VERIFY_IDENTITY",
            ));
        }
    };
    url.ca = query.take_one_of(&["ssl-ca", "ca"])?.map(Into::into);
    url.certificate = both(query.take("ssl-cert"), query.take("ssl-key"), "ssl-cert", "ssl-key")?;
    one_mode(own, mode, "ssl-mode")
}

fn one_mode(own: Option<Tls>, standard: Option<Tls>, key: &str) -> Result<Option<Tls>> {
    match (own, standard) {
        (Some(_), Some(_)) => {
            Err(wrong(format!("has tls and {key}, which mean the same; keep one")))
        }
        (own, standard) => Ok(own.or(standard)),
    }
}

fn both<T: From<String>>(
    certificate: Option<String>,
    key: Option<String>,
    certificate_name: &str,
    key_name: &str,
) -> Result<Option<(T, T)>> {
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some((certificate.into(), key.into()))),
        (Some(_), None) => Err(wrong(format!("has {certificate_name} without {key_name}"))),
        (None, Some(_)) => Err(wrong(format!("has {key_name} without {certificate_name}"))),
    }
}

/// The time of libpq's `connect_timeout`: of one second it makes two.
fn seconds(text: &str) -> Result<Duration> {
    match text.parse::<u64>() {
        Ok(seconds @ 1..=600) => Ok(Duration::from_secs(seconds.max(2))),
        _ => Err(wrong(
            "has a connect_timeout that is not 1 to 600 seconds; a wait without end is not possible",
        )),
    }
}

/// Settings of the session as the server's command line has them: `-c name=value`, `-cname=value` or
/// `--name=value`. A backslash stands before white space in a value.
///
/// Neon has `endpoint=ID` there, for clients that do not send the host's name with TLS. This one does.
fn command_line(text: &str, host: &str) -> Result<Vec<(String, String)>> {
    let unread =
        || wrong("has options other than -c name=value and --name=value; set others on the server");
    let mut words = words(text).into_iter();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        if let Some(id) = word.strip_prefix("endpoint=").or_else(|| word.strip_prefix("project=")) {
            let label = host.split('.').next().unwrap_or_default();
            if label.strip_suffix("-pooler").unwrap_or(label) != id {
                return Err(wrong(
                    "names in options another endpoint than in its host; name the endpoint's host",
                ));
            }
            continue;
        }
        let setting = if word == "-c" {
            words.next().ok_or_else(unread)?
        } else {
            let rest = word.strip_prefix("--").or_else(|| word.strip_prefix("-c"));
            rest.ok_or_else(unread)?.to_owned()
        };
        let (name, value) = setting.split_once('=').ok_or_else(unread)?;
        let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if name.is_empty() || !name.chars().all(is_letter) {
            return Err(unread());
        }
        settings.push((name.to_owned(), value.to_owned()));
    }
    Ok(settings)
}

fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match (c, words.last_mut()) {
            ('\\', Some(word)) => word.extend(rest.next()),
            (c, Some(word)) if !c.is_ascii_whitespace() => word.push(c),
            _ => words.push(String::new()),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The way to say it here, for keys that other clients have.
fn remedy(system: System, key: &str) -> Option<&'static str> {
    Some(match (system, key) {
        (System::Postgres, "ssl" | "ssl-mode" | "ssl_mode" | "sslaccept") => {
            "write sslmode=require"
        }
        (System::Postgres, "ssl-ca" | "sslca" | "ssl-root-cert") => "write sslrootcert=FILE",
        (System::Postgres, "pgbouncer") => {
            "remove it, and give an address whose pooler lends whole sessions, or that has no pooler"
        }
        (System::Postgres, "schema" | "search_path" | "currentSchema") => {
            "write options=--search_path%3DNAME"
        }
        (System::Postgres, "hostaddr") => "write the address in place of the host",
        (System::Postgres, "target_session_attrs") => {
            "remove it; a server that takes no writes is refused in any case"
        }
        (System::Postgres, "passfile" | "service" | "servicefile" | "requiressl") => {
            "it is not read; write what it stands for"
        }
        (System::MySql, "sslmode" | "ssl_mode" | "sslMode" | "useSSL" | "ssl" | "sslaccept") => {
            "write ssl-mode=REQUIRED or ssl-mode=VERIFY_IDENTITY"
        }
        (System::MySql, "sslca" | "ssl_ca" | "sslcert" | "ssl_cert" | "sslkey" | "ssl_key") => {
            "write it with a hyphen, as ssl-ca, ssl-cert and ssl-key"
        }
        (System::MySql, "charset" | "characterEncoding") => "remove it; it is always utf8mb4",
        (System::MySql, "serverTimezone" | "timezone" | "time_zone") => {
            "remove it; it is always UTC"
        }
        (_, "connection_limit" | "pool_size" | "max_connections") => {
            "remove it; the number of connections is a setting of the builder"
        }
        (_, "connect-timeout" | "connectTimeout" | "pool_timeout") => {
            "remove it; the connect timeout is a setting of the builder"
        }
        _ => return None,
    })
}

fn wrong(why: impl AsRef<str>) -> Error {
    Error::invalid(format!("the database URL {}", why.as_ref()))
}

fn short(key: &str) -> String {
    key.split('=').next().unwrap_or_default().chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// The parts of a URL that the forms below differ in.
    fn parts(text: &str) -> String {
        let url = Url::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut parts = vec![url.to_string(), format!("{:?}", url.tls)];
        let file = |name: &str, path: &PathBuf| format!("{name} {}", path.display());
        parts.extend(url.socket.iter().map(|path| file("socket", path)));
        parts.extend(url.ca.iter().map(|path| file("ca", path)));
        if let Some((certificate, key)) = &url.certificate {
            parts.extend([file("certificate", certificate), file("key", key)]);
        }
        parts.extend(url.application_name.iter().map(|name| format!("as {name}")));
        parts.extend(url.options.iter().map(|(name, value)| format!("{name} = {value}")));
        parts.extend(url.connect_timeout.iter().map(|time| format!("within {time:?}")));
        let shown = format!("{} {url:?} {:?}", parts.join(", "), url.security_warning());
        assert!(!shown.contains("s3cret"), "{shown}");
        parts.join(", ")
    }

    #[test]
    fn the_urls_that_providers_hand_out_are_read() {
        for (provider, text, expected) in [
            (
                "RDS",
                "postgresql://app:s3cret@db-1.abc123.eu-central-1.rds.amazonaws.com:5432/jobs?sslmode=verify-full&sslrootcert=/certs/global-bundle.pem",
                "postgres://app:***@db-1.abc123.eu-central-1.rds.amazonaws.com:5432/jobs, VerifyFull, ca /certs/global-bundle.pem",
            ),
            (
                "RDS, MySQL",
                "mysql://app:s3cret@db-1.abc123.eu-central-1.rds.amazonaws.com:3306/jobs?ssl-mode=VERIFY_IDENTITY&ssl-ca=/certs/global-bundle.pem",
                "mysql://app:***@db-1.abc123.eu-central-1.rds.amazonaws.com:3306/jobs, VerifyFull, ca /certs/global-bundle.pem",
            ),
            (
                "Cloud SQL, the socket in the query",
                "postgresql://app:s3cret@/jobs?host=/cloudsql/project:europe-west1:db",
                "postgres://app:***@/jobs, Off, socket /cloudsql/project:europe-west1:db",
            ),
            (
                "Cloud SQL, beside a host that is not used",
                "postgresql://app:s3cret@localhost/jobs?host=/cloudsql/project:europe-west1:db",
                "postgres://app:***@localhost/jobs, Off, socket /cloudsql/project:europe-west1:db",
            ),
            (
                "Cloud SQL, the socket in place of the host",
                "postgres://app:s3cret@%2Fcloudsql%2Fproject%3Aeurope-west1%3Adb/jobs",
                "postgres://app:***@/jobs, Off, socket /cloudsql/project:europe-west1:db",
            ),
            (
                "Cloud SQL, MySQL",
                "mysql://app:s3cret@/jobs?unix_socket=/cloudsql/project:europe-west1:db",
                "mysql://app:***@/jobs, Off, socket /cloudsql/project:europe-west1:db",
            ),
            (
                "Cloud SQL, with certificates",
                "postgres://app:s3cret@203.0.113.7/jobs?sslmode=verify-ca&sslrootcert=ca.pem&sslcert=client.pem&sslkey=client-key.pem",
                "postgres://app:***@203.0.113.7/jobs, VerifyCa, ca ca.pem, certificate client.pem, key client-key.pem",
            ),
            (
                "Neon",
                "postgresql://alex:s3cret@ep-cool-darkness-123456.us-east-2.aws.neon.tech/jobs?sslmode=require&channel_binding=require",
                "postgres://alex:***@ep-cool-darkness-123456.us-east-2.aws.neon.tech/jobs, VerifyFull",
            ),
            (
                "Neon, for clients without SNI",
                "postgres://alex:s3cret@ep-cool-darkness-123456.us-east-2.aws.neon.tech/jobs?sslmode=require&options=endpoint%3Dep-cool-darkness-123456",
                "postgres://alex:***@ep-cool-darkness-123456.us-east-2.aws.neon.tech/jobs, Require",
            ),
            (
                "Supabase, direct",
                "postgresql://postgres:s3cret@db.abcdefghij.supabase.co:5432/postgres",
                "postgres://postgres:***@db.abcdefghij.supabase.co:5432/postgres, VerifyFull",
            ),
            (
                "Supabase, the session pooler",
                "postgres://postgres.abcdefghij:s3cret@aws-0-eu-central-1.pooler.supabase.com:5432/postgres?sslmode=require",
                "postgres://postgres.abcdefghij:***@aws-0-eu-central-1.pooler.supabase.com:5432/postgres, Require",
            ),
            (
                "Heroku",
                "postgres://u4f2:s3cret@ec2-203-0-113-7.compute-1.amazonaws.com:5432/d7ab3",
                "postgres://u4f2:***@ec2-203-0-113-7.compute-1.amazonaws.com:5432/d7ab3, VerifyFull",
            ),
            (
                "DigitalOcean",
                "mysql://doadmin:s3cret@db-1-do-user-1-0.b.db.ondigitalocean.com:25060/defaultdb?ssl-mode=REQUIRED",
                "mysql://doadmin:***@db-1-do-user-1-0.b.db.ondigitalocean.com:25060/defaultdb, Require",
            ),
        ] {
            assert_eq!(parts(text), expected, "{provider}");
        }
    }

    #[test]
    fn keys_have_the_meaning_that_libpq_gives_them() {
        for (query, expected) in [
            ("sslmode=disable", "Off"),
            ("sslmode=prefer", "Prefer"),
            ("sslmode=require", "Require"),
            ("sslmode=require&sslrootcert=ca.pem", "VerifyCa, ca ca.pem"),
            ("sslmode=prefer&sslrootcert=ca.pem", "Prefer, ca ca.pem"),
            ("sslrootcert=ca.pem", "VerifyFull, ca ca.pem"),
            ("sslrootcert=system", "VerifyFull"),
            ("sslmode=verify-full&sslrootcert=system", "VerifyFull"),
            ("sslmode=require&socket=/run", "Off, socket /run"),
            ("channel_binding=prefer&sslmode=require", "Require"),
            ("application_name=billing", "VerifyFull, as billing"),
            ("connect_timeout=10", "VerifyFull, within 10s"),
            ("connect_timeout=1", "VerifyFull, within 2s"),
            (
                "options=-c%20geqo%3Doff%20--search_path%3Dcron%20-cwork_mem%3D1%5C%20MB",
                "VerifyFull, geqo = off, search_path = cron, work_mem = 1 MB",
            ),
        ] {
            let read = parts(&format!("postgres://u:s3cret@h/db?{query}"));
            assert_eq!(read, format!("postgres://u:***@h/db, {expected}"), "{query}");
        }
        let read = parts("postgres:///?host=h&port=6543&user=u&password=s3cret&dbname=db");
        assert_eq!(read, "postgres://u:***@h:6543/db, VerifyFull");
        // A server on this machine is verified if there is something to verify it with.
        assert_eq!(parts("postgres://localhost/db"), "postgres://localhost/db, Off");
        let read = parts("postgres://localhost/db?sslrootcert=ca.pem");
        assert_eq!(read, "postgres://localhost/db, VerifyFull, ca ca.pem");
    }

    #[test]
    fn keys_have_the_meaning_that_mysql_gives_them() {
        for (query, expected) in [
            ("ssl-mode=DISABLED", "Off"),
            ("ssl-mode=preferred", "Prefer"),
            ("ssl-mode=REQUIRED", "Require"),
            // Unlike libpq, a file does not make it verify.
            ("ssl-mode=REQUIRED&ssl-ca=ca.pem", "Require, ca ca.pem"),
            ("ssl-mode=VERIFY_CA&ssl-ca=ca.pem", "VerifyCa, ca ca.pem"),
            ("ssl-mode=VERIFY_IDENTITY", "VerifyFull"),
            ("ssl-cert=c.pem&ssl-key=k.pem", "VerifyFull, certificate c.pem, key k.pem"),
        ] {
            let read = parts(&format!("mysql://u:s3cret@h/db?{query}"));
            assert_eq!(read, format!("mysql://u:***@h/db, {expected}"), "{query}");
        }
    }

    #[test]
    fn keys_that_cannot_be_kept_are_errors_with_the_remedy() {
        for (text, remedy) in [
            ("postgres://h/db?sslmode=allow", "write sslmode=prefer"),
            ("postgres://h/db?sslmode=verify_full", "verify-full"),
            ("postgres://h/db?sslmode=require&sslrootcert=system", "write sslmode=verify-full"),
            ("postgres://h/db?sslmode=require&tls=require", "keep one"),
            ("postgres://h/db?sslmode=require&sslmode=disable", "twice; keep one"),
            ("postgres://h/db?sslcert=c.pem", "sslcert without sslkey"),
            ("postgres://h/db?ca=a.pem&sslrootcert=b.pem", "keep one"),
            ("postgres://h/db?sslmode=disable&channel_binding=require", "remove one"),
            ("postgres://h/db?connect_timeout=0", "1 to 600 seconds"),
            ("postgres://h/db?options=-d", "-c name=value"),
            ("postgres://ep-a.neon.tech/db?options=endpoint%3Dep-b", "endpoint's host"),
            ("postgres://h/db?host=other", "keep one"),
            ("postgres://%2Frun/db?socket=/tmp", "keep one"),
            ("postgres:///db?host=a,b", "takes writes"),
            ("postgres://h/db?pgbouncer=true", "whole sessions"),
            ("postgres://h/db?schema=cron", "search_path"),
            ("postgres://h/db?ssl-mode=REQUIRED", "sslmode=require"),
            ("postgres://h/db?sslmode", "without a value"),
            ("postgres://h/db?colour=red", "known are tls, ca, socket, sslmode"),
            ("mysql://h/db?sslmode=require", "ssl-mode=REQUIRED"),
            ("mysql://h/db?ssl-mode=verify-full", "VERIFY_IDENTITY"),
            ("mysql://h/db?ssl_ca=x", "hyphen"),
            ("mysql://h/db?colour=red", "known are tls, ca, socket, unix_socket, ssl-mode"),
            ("postgresql+asyncpg://h/db", "postgresql://"),
            ("jdbc:postgresql://h/db", "jdbc:"),
        ] {
            let said = match Url::parse(text) {
                Ok(url) => panic!("{text} was read as {url}"),
                Err(error) => error.to_string(),
            };
            assert!(said.contains(remedy), "{text}: {said}");
        }
    }

    #[test]
    fn a_server_that_is_not_verified_is_warned_of() {
        let warning = |text| Url::parse(text).unwrap().security_warning();
        let said = warning("postgres://u:s3cret@h/db?sslmode=require").unwrap();
        assert!(said.contains("not verified") && said.contains("sslmode=verify-full"), "{said}");
        let said = warning("mysql://h/db?ssl-mode=PREFERRED").unwrap();
        assert!(said.contains("plain text") && said.contains("VERIFY_IDENTITY"), "{said}");
        assert!(warning("postgres://h/db?sslmode=verify-ca").is_some());
        assert_eq!(warning("postgres://h/db"), None);
        let said = warning("postgres://u:s3cret@h/db?sslmode=disable").unwrap();
        assert!(said.contains("is plain text") && !said.contains("s3cret"), "{said}");
        assert!(warning("mysql://h/db?tls=off").is_some());
        for here in
            ["postgres://localhost/db?sslmode=disable", "mysql://127.0.0.1/db", "sqlite:a.db"]
        {
            assert_eq!(warning(here), None, "{here}");
        }
    }
}

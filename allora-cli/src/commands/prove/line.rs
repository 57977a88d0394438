//! The line of a worker to its store: led through this process, it can be cut, silent and slow.

use crate::{
    failure::{Failure, Outcome},
    store::StoreArgs,
};
use allora_conformance::faults::Proxy;

/// The schemes whose lines can be led through another process, with the ports that they mean.
const PORTS: [(&str, u16); 6] = [
    ("postgres", 5432),
    ("postgresql", 5432),
    ("mysql", 3306),
    ("mariadb", 3306),
    ("redis", 6379),
    ("etcd", 2379),
];

/// A line of its own, and the store at its end. None where there is no server or there are several, and with
/// TLS, whose certificate names the server.
///
/// # Errors
/// As those of the settings; without a free port.
pub(super) fn of(place: &StoreArgs) -> Outcome<(Option<Proxy>, StoreArgs)> {
    let url = place.url()?;
    let Some(parts) = url.as_deref().and_then(Parts::of) else { return Ok((None, place.clone())) };
    let line = Proxy::new(parts.server(), Proxy::NEVER)
        .map_err(|error| Failure::failed(format!("cannot listen on this machine: {error}")))?;
    let url = parts.at(&format!("127.0.0.1:{}", line.port()));
    Ok((Some(line), place.with_url(url)))
}

/// A URL around its server.
#[derive(Debug, PartialEq, Eq)]
struct Parts<'a> {
    before: &'a str,
    host: &'a str,
    after: &'a str,
    port: u16,
}

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (_, port) = PORTS.iter().find(|(name, _)| *name == scheme)?;
        let place = rest.split(['/', '?', '#']).next()?;
        let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
        let after = &rest[place.len()..];
        let is_secured = after.split_once('?').is_some_and(|(_, query)| {
            ["ssl", "tls", "host", "socket"].iter().any(|word| query.contains(word))
        });
        let is_one = !host.is_empty() && !host.contains([',', '%']);
        let before = &url[..url.len() - after.len() - host.len()];
        (is_one && !is_secured).then_some(Self { before, host, after, port: *port })
    }

    /// The server, with its port.
    fn server(&self) -> String {
        let has_port =
            self.host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        match has_port {
            true => self.host.to_owned(),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    fn at(&self, server: &str) -> String {
        format!("{}{server}{}", self.before, self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_leads_to_another_server_and_keeps_the_rest() {
        for (url, server, at) in [
            ("postgres://u:p@db/d", "db:5432", "postgres://u:p@x:1/d"),
            (
                "postgres://u:p@:x@db:6000/d?application_name=a",
                "db:6000",
                "postgres://u:p@:x@x:1/d?application_name=a",
            ),
            ("redis://[::1]:7000/2", "[::1]:7000", "redis://x:1/2"),
            ("redis://[::1]", "[::1]:6379", "redis://x:1"),
            ("etcd://u:p@e", "e:2379", "etcd://u:p@x:1"),
        ] {
            let parts = Parts::of(url).unwrap();
            assert_eq!((parts.server().as_str(), parts.at("x:1").as_str()), (server, at));
        }
    }

    #[test]
    fn what_has_no_server_or_several_or_tls_has_no_line() {
        for url in [
            "sqlite:a.db",
            "rediss://h",
            "etcd://a,b,c",
            "redis+sentinel://a,b/m",
            "postgres://u@h/d?sslmode=verify-full",
            "postgres:///d?host=/run",
            "postgres://u@%2Frun/d",
        ] {
            assert_eq!(Parts::of(url), None, "{url}");
        }
    }
}

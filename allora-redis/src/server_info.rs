//! Checks of a server before it is used.

use crate::{client::Connection, server::Failure};
use allora_core::{Error, ErrorKind, Result};
use std::collections::HashMap;

/// The oldest version that is supported: 6.2, the first whose scripts do all that ours do, and the
/// oldest that was still maintained when this was written.
const OLDEST: (u64, u64) = (6, 2);

/// The answers of a server about itself.
#[derive(Debug, Default)]
pub(crate) struct ServerInfo {
    version: String,
    is_replica: bool,
    /// It has just been started, and says of itself meanwhile that it keeps no file.
    is_loading: bool,
    is_clustered: bool,
    is_sentinel: bool,
    has_file: bool,
    /// True if it makes snapshots; `None` if unknown.
    has_snapshots: Option<bool>,
    evicts: Option<String>,
    /// The setting `appendfsync`; `None` if unknown.
    flushes: Option<String>,
    replicas: u32,
}

/// The kind of server that the caller named.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Expected {
    /// One server, or one behind sentinels.
    One,
    /// A node of a cluster.
    Cluster,
}

impl ServerInfo {
    /// Asks the server; in a cluster, every primary.
    pub(crate) async fn ask(connection: &Connection) -> std::result::Result<Vec<Self>, Failure> {
        let infos: Vec<String> = connection.ask_each(redis::cmd("INFO").arg("default")).await?;
        let mut servers: Vec<Self> = infos.iter().map(|info| Self::read(info)).collect();
        // Managed servers often forbid `CONFIG`: the settings are unknown there.
        let settings = async |name: &str| -> Vec<Option<String>> {
            let replies: std::result::Result<Vec<HashMap<String, String>>, Failure> =
                connection.ask_each(redis::cmd("CONFIG").arg("GET").arg(name)).await;
            replies.unwrap_or_default().into_iter().map(|mut reply| reply.remove(name)).collect()
        };
        for (server, save) in servers.iter_mut().zip(settings("save").await) {
            server.has_snapshots = save.map(|save| !save.trim().is_empty());
        }
        for (server, flushes) in servers.iter_mut().zip(settings("appendfsync").await) {
            server.flushes = flushes;
        }
        Ok(servers)
    }

    /// The acknowledged writes that it may lose, and the settings that prevent it.
    pub(crate) fn durability_warnings(&self, waits_for: u32) -> Vec<&'static str> {
        let mut all = Vec::new();
        match (self.has_file, self.has_snapshots) {
            (true, _) if self.flushes.as_ref().is_some_and(|flushes| flushes != "always") => {
                all.push(
                    "a power cut can make Redis lose the claims of the last second, and their \
                     occurrences may run again; `appendfsync always` prevents that",
                );
            }
            (true, _) => {}
            (false, Some(true)) => all.push(
                "a restart of Redis loses the claims since its last snapshot, and their \
                 occurrences may run again; set `appendonly yes`",
            ),
            (false, Some(false)) => {
                all.push("a restart of Redis loses everything, and all occurrences may run again")
            }
            (false, None) => all.push(
                "it is not known which writes a restart of Redis loses; ask its operator for \
                 `appendonly yes`",
            ),
        }
        if self.replicas > 0 && waits_for == 0 {
            all.push(
                "a failover of Redis can lose the last claims, whose occurrences may then run \
                 again; `wait_replicas` makes that less likely",
            );
        }
        all
    }

    fn read(info: &str) -> Self {
        let mut server = Self::default();
        let mut policy = "";
        let mut memory = "0";
        for line in info.lines() {
            let Some((name, value)) = line.trim().split_once(':') else { continue };
            match name {
                "redis_version" => server.version = value.to_owned(),
                "redis_mode" => server.is_sentinel = value == "sentinel",
                "role" => server.is_replica = value == "slave",
                "loading" => server.is_loading = value == "1",
                "cluster_enabled" => server.is_clustered = value == "1",
                "aof_enabled" => server.has_file = value == "1",
                "connected_slaves" => server.replicas = value.parse().unwrap_or(0),
                "maxmemory" => memory = value,
                "maxmemory_policy" => policy = value,
                _ => {}
            }
        }
        if memory != "0" && policy.starts_with("allkeys") {
            server.evicts = Some(policy.to_owned());
        }
        server
    }

    /// Checks that the server can keep the promises.
    pub(crate) fn check(&self, place: &str, expected: Expected, ephemeral: bool) -> Result {
        let wrong = |what: String| Err(Error::invalid(format!("{place} {what}")).op("connect"));
        check_version(place, &self.version)?;
        if self.is_loading {
            let what = format!("{place} is loading its data; try again");
            return Err(Error::new(ErrorKind::Unavailable, what).op("connect"));
        }
        if self.is_sentinel {
            return wrong("is a sentinel; connect with `RedisBuilder::connect_sentinel`".into());
        }
        if self.is_replica {
            return wrong(
                "is a replica, which is read-only; name the primary, or connect through sentinels"
                    .into(),
            );
        }
        match (expected, self.is_clustered) {
            (Expected::One, true) => {
                return wrong(
                    "is a node of a cluster; connect with `RedisBuilder::connect_cluster`".into(),
                );
            }
            (Expected::Cluster, false) => {
                return wrong(
                    "is not a node of a cluster; connect with `RedisBuilder::connect`".into(),
                );
            }
            _ => {}
        }
        if let Some(policy) = &self.evicts {
            return wrong(format!(
                "evicts any key when its memory is full (maxmemory-policy {policy}), jobs too; \
                 set noeviction, or a volatile policy"
            ));
        }
        if !self.has_file && self.has_snapshots == Some(false) && !ephemeral {
            return wrong(
                "keeps nothing on disk: after a restart everything would run again; set \
                 `appendonly yes` there, or call `RedisBuilder::ephemeral`"
                    .into(),
            );
        }
        Ok(())
    }
}

/// Checks that a server of this version can be used.
///
/// # Errors
/// `Invalid` if it is too old, or says no version.
pub fn check_version(place: &str, version: &str) -> Result {
    let wrong = |what: String| Err(Error::invalid(format!("{place} {what}")).op("connect"));
    if version.is_empty() {
        return wrong("does not report a Redis version: is it a Redis?".into());
    }
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < OLDEST {
        let (major, minor) = OLDEST;
        return wrong(format!("is Redis {version}, at least {major}.{minor} is needed"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrole:master\r\n\
        cluster_enabled:0\r\naof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n";

    fn check(from: &str, to: &str, expected: Expected) -> std::result::Result<(), String> {
        assert!(GOOD.contains(from));
        let server = ServerInfo::read(&GOOD.replace(from, to));
        server.check("redis://h:1", expected, false).map_err(|error| error.to_string())
    }

    #[test]
    fn a_good_server_is_accepted() {
        assert_eq!(check("7.0.15", "7.0.15", Expected::One), Ok(()));
        assert_eq!(check("7.0.15", "6.2.0", Expected::One), Ok(()));
        assert_eq!(check("7.0.15", "10.0.0", Expected::One), Ok(()));
        assert_eq!(check("enabled:0", "enabled:1", Expected::Cluster), Ok(()));
        assert_eq!(check("noeviction", "allkeys-lru", Expected::One), Ok(()), "it has no limit");
    }

    #[test]
    fn a_wrong_server_is_rejected_with_the_reason() {
        for (from, to, said) in [
            ("7.0.15", "6.0.16", "at least 6.2"),
            ("7.0.15", "5.9", "at least 6.2"),
            ("redis_version:", "other:", "is it a Redis?"),
            ("mode:standalone", "mode:sentinel", "is a sentinel"),
            ("role:master", "role:slave", "is a replica"),
            ("enabled:0", "enabled:1", "node of a cluster"),
            (
                "maxmemory:0\r\nmaxmemory_policy:noeviction",
                "maxmemory:1000\r\nmaxmemory_policy:allkeys-lfu",
                "allkeys-lfu",
            ),
        ] {
            let why = check(from, to, Expected::One).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
        let why = check("enabled:0", "enabled:0", Expected::Cluster).unwrap_err();
        assert!(why.contains("not a node"), "{why}");
    }

    #[test]
    fn a_server_that_loads_its_data_is_asked_again() {
        let info = GOOD.replace("aof_enabled:1", "aof_enabled:0\r\nloading:1");
        let mut server = ServerInfo::read(&info);
        server.has_snapshots = Some(false);
        let refused = server.check("redis://h:1", Expected::One, false).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    }

    #[test]
    fn the_writes_that_may_be_lost_are_named() {
        let warnings = |info: &str, snapshots, flushes: &str, waits| {
            let mut server = ServerInfo::read(info);
            (server.has_snapshots, server.flushes) = (snapshots, Some(flushes.to_owned()));
            server.durability_warnings(waits).join("; ")
        };
        let without = GOOD.replace("aof_enabled:1", "aof_enabled:0");
        let followed = format!("{GOOD}connected_slaves:2\r\n");
        assert_eq!(warnings(GOOD, None, "always", 0), "");
        assert!(warnings(GOOD, None, "everysec", 0).contains("power cut"));
        assert!(warnings(&followed, None, "always", 0).contains("failover"));
        assert_eq!(warnings(&followed, None, "always", 1), "");
        assert!(warnings(&without, Some(true), "always", 1).contains("snapshot"));
        assert!(warnings(&without, Some(false), "always", 1).contains("everything"));
        assert!(warnings(&without, None, "always", 1).contains("not known"));
        let both = warnings(&followed, None, "everysec", 0);
        assert!(both.contains("power cut") && both.contains("failover"), "{both}");
    }

    #[test]
    fn a_server_without_a_file_or_snapshots_needs_ephemeral() {
        let mut server = ServerInfo::read(&GOOD.replace("aof_enabled:1", "aof_enabled:0"));
        let mut check = |snapshots, ephemeral| {
            server.has_snapshots = snapshots;
            server.check("redis://h:1", Expected::One, ephemeral).is_ok()
        };
        assert!(!check(Some(false), false));
        assert!(check(Some(false), true));
        assert!(check(Some(true), false));
        assert!(check(None, false));
    }
}

//! The faults of servers. Each waits until it has happened, and says what it was.

use super::{Random, pause};
use crate::{Failure, Outcome, services::Arena};
use std::{process::Command, time::Duration};

/// The longest time that a server is away, and the shortest and longest for which it is frozen, in milliseconds.
const AWAY: u64 = 3_000;
const FROZEN: (u64, u64) = (1_000, 8_000);

/// The longest time of a failover.
const FAILOVER: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// SIGKILL, and a start after some time.
    Kill,
    /// SIGSTOP for some time.
    Freeze,
    /// An orderly stop, and a start after some time.
    Restart,
    /// SIGKILL for the primary, until its replica has its place.
    FailOver,
}

impl Fault {
    /// Those of a store.
    pub(super) fn of(store: &str) -> &'static [Self] {
        match store {
            "redis-sentinel" => &[Self::FailOver],
            _ => &[Self::Kill, Self::Freeze, Self::Restart],
        }
    }

    /// Injects it, and says so to `mark` when it begins and ends.
    pub(super) fn inject(
        self,
        arena: &mut Arena,
        random: &mut Random,
        mark: &mut dyn FnMut(&str),
    ) -> Outcome<String> {
        if self == Self::FailOver {
            return fail_over(arena, mark);
        }
        let servers = arena.len();
        let number = usize::try_from(random.below(servers as u64)).unwrap_or(0);
        let server = match servers {
            1 => "the server".to_owned(),
            _ => format!("server {} of {servers}", number + 1),
        };
        let away = Duration::from_millis(random.below(AWAY));
        match self {
            Self::Freeze => {
                let (least, most) = FROZEN;
                let long = Duration::from_millis(least + random.below(most - least));
                arena.freeze(number)?;
                mark(&format!("{server} is frozen for {long:?}"));
                pause(long);
                arena.thaw(number)?;
                return Ok("frozen".into());
            }
            Self::Restart => {
                mark(&format!("{server} is restarted, and away for {away:?}"));
                arena.stop(number)?;
            }
            _ => {
                arena.kill(number)?;
                mark(&format!("{server} is killed, and away for {away:?}"));
            }
        }
        pause(away);
        arena.restart(number)?;
        arena.wait()?;
        mark(&format!("{server} answers again"));
        Ok(if self == Self::Restart { "restarted" } else { "killed" }.into())
    }
}

/// Kills the server that the sentinels call the primary; the sites' first two are primary and replica.
fn fail_over(arena: &mut Arena, mark: &mut dyn FnMut(&str)) -> Outcome<String> {
    let before = primary(arena).ok_or_else(|| Failure::Check("no sentinel answers".into()))?;
    let number = (0..2).find(|number| arena.port(*number) == before).unwrap_or(0);
    arena.kill(number)?;
    mark("the primary is killed");
    let step = Duration::from_millis(100);
    let mut left = FAILOVER.as_millis() / step.as_millis();
    while primary(arena).is_none_or(|now| now == before) {
        left -= 1;
        if left == 0 {
            return Err(Failure::Check("the sentinels choose no other primary".into()));
        }
        pause(step);
    }
    mark("another server is the primary");
    arena.restart(number)?;
    // The sentinels tell it that it is a replica now.
    while !asked(arena.port(number), &["INFO", "replication"]).contains("master_link_status:up") {
        left = left.saturating_sub(1);
        if left == 0 {
            return Err(Failure::Check("the former primary becomes no replica".into()));
        }
        pause(step);
    }
    Ok("failed over".into())
}

/// The port of the primary, as a sentinel knows it.
fn primary(arena: &Arena) -> Option<u16> {
    let words = ["SENTINEL", "get-master-addr-by-name", "allora"];
    asked(arena.port(2), &words).lines().nth(1)?.trim().parse().ok()
}

fn asked(port: u16, words: &[&str]) -> String {
    let mut client = Command::new("redis-cli");
    client.args(["-h", "127.0.0.1", "-p", &port.to_string()]).args(words);
    client
        .output()
        .map(|said| String::from_utf8_lossy(&said.stdout).into_owned())
        .unwrap_or_default()
}

//! The command line.

use crate::{jobs::Span, machine::Orders, processes::Plan};
use allora::BoxError;
use std::{path::PathBuf, time::Duration};

/// The task of this process.
pub(crate) enum Task {
    /// A day on fast clocks, in memory.
    Day { nodes: usize, seconds: u32 },
    /// Start processes, and judge them.
    Processes(Plan),
    /// Be one of those processes.
    Machine(Orders),
}

const USAGE: &str = "usage: cluster [--nodes N] [--seconds N] \
                     [--store sqlite[:FILE] | memory | postgres://… | mysql://…] [--kill]";

pub(crate) fn read(mut args: impl Iterator<Item = String>) -> Result<Task, BoxError> {
    let (mut nodes, mut seconds, mut store, mut kill) = (3, 12, "sqlite".to_owned(), false);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(USAGE);
        match arg.as_str() {
            "--nodes" => nodes = value()?.parse()?,
            "--seconds" => seconds = value()?.parse()?,
            "--store" => store = value()?,
            "--kill" => kill = true,
            MACHINE => return Ok(Task::Machine(orders(args)?)),
            _ => return Err(USAGE.into()),
        }
    }
    if nodes == 0 || !(1..=3_600).contains(&seconds) {
        return Err("at least 1 node, and from 1 to 3600 seconds".into());
    }
    if store != "memory" {
        let url = if store == "sqlite" { temporary()? } else { store };
        let lasts = Duration::from_secs(seconds.into());
        if kill && (nodes < 2 || seconds < 8) {
            return Err("--kill wants at least 2 nodes and 8 seconds, to see what follows".into());
        }
        return Ok(Task::Processes(Plan { nodes, lasts, url, kill }));
    }
    if kill {
        return Err("--kill wants nodes that are processes: leave --store memory out".into());
    }
    Ok(Task::Day { nodes, seconds })
}

/// A file under the system's temporary folder, the same each time.
fn temporary() -> Result<String, BoxError> {
    let file = std::env::temp_dir().join("allora-cluster.db");
    let path =
        file.to_str().ok_or("the temporary folder is not UTF-8; name a file: sqlite:FILE")?;
    Ok(format!("sqlite:{}", path.replace('%', "%25").replace('?', "%3F")))
}

/// Not for people: how the example calls itself.
const MACHINE: &str = "--machine";

/// The arguments that make another process a machine.
pub(crate) fn of_machine(orders: &Orders) -> Result<[String; 7], BoxError> {
    let log = orders.log.to_str().ok_or("the temporary folder is not UTF-8")?.to_owned();
    let Span { from, until } = orders.span;
    let (from, until) = (from.to_rfc3339(), until.to_rfc3339());
    let Orders { label, url, prefix, .. } = orders;
    Ok([MACHINE.into(), label.clone(), url.clone(), prefix.clone(), log, from, until])
}

fn orders(mut args: impl Iterator<Item = String>) -> Result<Orders, BoxError> {
    let mut next = || args.next().ok_or("a machine is started by the example itself");
    Ok(Orders {
        label: next()?,
        url: next()?,
        prefix: next()?,
        log: PathBuf::from(next()?),
        span: Span { from: next()?.parse()?, until: next()?.parse()? },
    })
}

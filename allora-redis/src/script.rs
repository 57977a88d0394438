//! The scripts, and one call of one.

use redis::{Arg, Cmd, ToRedisArgs};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// A script and its hash, by which a server that has seen it finds it.
#[derive(Debug)]
pub(crate) struct Script {
    script: redis::Script,
    text: String,
    /// It was sent with its text.
    is_sent: AtomicBool,
}

/// All scripts.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) read: Script,
    pub(crate) update: Script,
    pub(crate) write: Script,
    pub(crate) find_due: Script,
    pub(crate) claim_due: Script,
    pub(crate) kinds: Script,
    pub(crate) repair_index: Script,
    pub(crate) purge_tombstones: Script,
    pub(crate) trim_history: Script,
    pub(crate) trim_changes: Script,
    pub(crate) watch_unused: Script,
}

impl Default for Scripts {
    fn default() -> Self {
        let script = |body: &str| {
            let text = format!("{}{body}", include_str!("lua/prelude.lua"));
            Script { script: redis::Script::new(&text), text, is_sent: AtomicBool::new(false) }
        };
        Self {
            read: script(include_str!("lua/read.lua")),
            update: script(include_str!("lua/update.lua")),
            write: script(include_str!("lua/write.lua")),
            find_due: script(include_str!("lua/find_due.lua")),
            claim_due: script(include_str!("lua/claim_due.lua")),
            kinds: script(include_str!("lua/kinds.lua")),
            repair_index: script(include_str!("lua/repair_index.lua")),
            purge_tombstones: script(include_str!("lua/purge_tombstones.lua")),
            trim_history: script(include_str!("lua/trim_history.lua")),
            trim_changes: script(include_str!("lua/trim_changes.lua")),
            watch_unused: script(include_str!("lua/watch_unused.lua")),
        }
    }
}

/// One call of a script.
pub(crate) struct Call<'a> {
    script: &'a Script,
    /// The call by the script's hash.
    command: Cmd,
    /// The replicas that must have what it writes.
    pub(crate) confirm: Option<Confirm>,
    /// The longest time to wait, if it is not the store's.
    pub(crate) within: Option<Duration>,
}

/// The number of replicas that must have a write before its reply, and the time to wait for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirm {
    pub(crate) replicas: u32,
    pub(crate) within: Duration,
}

impl<'a> Call<'a> {
    pub(crate) fn new(script: &'a Script, keys: &[String]) -> Self {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script.script.get_hash()).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        Self { script, command, confirm: None, within: None }
    }

    pub(crate) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.command.arg(arg);
        self
    }

    /// An empty argument for `None`.
    pub(crate) fn optional(&mut self, arg: Option<i64>) -> &mut Self {
        match arg {
            Some(arg) => self.arg(arg),
            None => self.arg(""),
        }
    }

    /// The first command to send: with the script's hash, which is shorter. A call that is confirmed
    /// has the text at first: it would wait for replicas although the server does not know the hash.
    pub(crate) fn first(&self) -> Cmd {
        match self.confirm {
            Some(_) if !self.script.is_sent.swap(true, Ordering::Relaxed) => self.with_text(),
            _ => self.command.clone(),
        }
    }

    /// With the script's text, for a server that does not know the hash.
    pub(crate) fn with_text(&self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(&self.script.text);
        for arg in self.command.args_iter().skip(2) {
            if let Arg::Simple(arg) = arg {
                command.arg(arg);
            }
        }
        command
    }
}

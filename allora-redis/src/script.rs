//! The scripts, and one call of one.

use redis::{Arg, Cmd, ToRedisArgs};

/// A script and the name under which a server that has seen it knows it.
#[derive(Debug)]
pub(crate) struct Script {
    script: redis::Script,
    text: String,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) read: Script,
    pub(crate) moves: Script,
    pub(crate) write: Script,
    pub(crate) find: Script,
    pub(crate) mend: Script,
    pub(crate) forget: Script,
    pub(crate) watch: Script,
}

impl Default for Scripts {
    fn default() -> Self {
        let script = |body: &str| {
            let text = format!("{}{body}", include_str!("lua/head.lua"));
            Script { script: redis::Script::new(&text), text }
        };
        Self {
            read: script(include_str!("lua/read.lua")),
            moves: script(include_str!("lua/move.lua")),
            write: script(include_str!("lua/write.lua")),
            find: script(include_str!("lua/find.lua")),
            mend: script(include_str!("lua/mend.lua")),
            forget: script(include_str!("lua/forget.lua")),
            watch: script(include_str!("lua/watch.lua")),
        }
    }
}

/// One call of a script.
pub(crate) struct Call<'a> {
    script: &'a Script,
    /// The call by the script's name.
    command: Cmd,
}

impl<'a> Call<'a> {
    pub(crate) fn new(script: &'a Script, keys: &[String]) -> Self {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script.script.get_hash()).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        Self { script, command }
    }

    pub(crate) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.command.arg(arg);
        self
    }

    /// Empty, if it is nothing.
    pub(crate) fn optional(&mut self, arg: Option<i64>) -> &mut Self {
        match arg {
            Some(arg) => self.arg(arg),
            None => self.arg(""),
        }
    }

    /// By name, which is shorter.
    pub(crate) fn by_name(&self) -> &Cmd {
        &self.command
    }

    /// With its text, for a server that does not know the name.
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

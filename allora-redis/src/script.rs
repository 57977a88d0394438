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
    pub(crate) take: Script,
    pub(crate) settle: Script,
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
            take: script(include_str!("lua/take.lua")),
            settle: script(include_str!("lua/settle.lua")),
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

    /// So many arguments that say nothing.
    pub(crate) fn empty(&mut self, count: usize) {
        for _ in 0..count {
            self.command.arg("");
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

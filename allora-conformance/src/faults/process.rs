//! Nodes in processes of their own: the test binary, run once more.

use futures::{FutureExt, channel::oneshot};
use std::{
    env,
    io::{self, Read, stdin},
    process::{Child, Command, Stdio},
    thread,
};

/// A process that the tests start; dropped, it is killed.
#[derive(Debug)]
pub struct Node(Child);

impl Node {
    /// Starts the test of this name, which receives these values.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(test: &str, values: &[(&str, String)]) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture"]);
        command.envs(values.iter().map(|(name, value)| (variable(name), value)));
        Self::spawn(command).unwrap()
    }

    /// Starts a node by this command, which must await [`stop_request`](Self::stop_request).
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().map(Self)
    }

    /// The process has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// The values that this process received, if it is such a node.
    pub fn values<const N: usize>(names: [&str; N]) -> Option<[String; N]> {
        let values = names.iter().map_while(|name| env::var(variable(name)).ok());
        values.collect::<Vec<_>>().try_into().ok()
    }

    /// Waits, in such a node, until it is to stop: when the other end of its standard input is gone.
    pub fn stop_request() -> impl Future<Output = ()> + Send + 'static {
        let (open, closed) = oneshot::channel::<()>();
        thread::spawn(move || {
            // Whatever ends it ends the waiting.
            let _ = stdin().read_to_end(&mut Vec::new());
            drop(open);
        });
        closed.map(drop)
    }

    /// Sends a signal, as `-STOP`.
    ///
    /// # Panics
    /// If that fails.
    pub fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// SIGKILL, which also ends a frozen one.
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn kill(&mut self) {
        // One that has ended already is as dead.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }

    /// Stops it as a deployment does.
    ///
    /// # Panics
    /// If it does not end well.
    pub fn stop(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

fn variable(name: &str) -> String {
    format!("ALLORA_FAULTS_{name}")
}

//! The processes of one command: those of its group, and those that have left it.

use allora_core::runtime::Runtime;
use futures::future::{Either, select};
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use std::{
    fs,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitStatus,
    time::Duration,
};
use tokio::process::Child;

/// The interval at which a group that was asked to end is checked.
const LOOK: Duration = Duration::from_millis(50);

/// A command and the processes that it has started: those of its group, and those that have left it
/// (`setsid`) with the variables of its run.
pub(super) struct Group {
    pub(super) child: Child,
    /// `None` once the command has ended: then another process may have the number.
    id: Option<Pid>,
    /// Variables and their values that only processes of this run have. Empty: only the group counts.
    marks: Vec<String>,
}

impl Group {
    pub(super) fn new(child: Child, marks: Vec<String>) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        Self { child, id, marks }
    }

    /// The command has ended by itself. Processes that it left in the background may go on, as with
    /// cron.
    pub(super) fn has_ended(&mut self) {
        self.id = None;
    }

    /// Asks the processes to end, and kills what has not ended in time. The status is the command's,
    /// if it ended when asked.
    pub(super) async fn end(
        &mut self,
        rt: &dyn Runtime,
        kill_after: Duration,
    ) -> Option<ExitStatus> {
        self.signal(Signal::SIGTERM);
        let until = rt.now() + kill_after;
        let mut status = None;
        // A group's number is free for others only when the last of the group is gone.
        while rt.now() < until && (status.is_none() || self.lives()) {
            let look = rt.sleep_until((rt.now() + LOOK).min(until));
            if status.is_some() {
                look.await;
            } else if let Either::Left((Ok(ended), _)) = select(pin!(self.child.wait()), look).await
            {
                status = Some(ended);
            }
        }
        self.signal(Signal::SIGKILL);
        self.id = None;
        status
    }

    /// True if a process of the run lives. A zombie does not count: in a container, its parent
    /// may never reap it.
    fn lives(&self) -> bool {
        let Some(id) = self.id else { return false };
        if !self.outsiders(id).is_empty() {
            return true;
        }
        if killpg(id, None).is_err() {
            return false;
        }
        let mut stats = processes().filter_map(|(_, folder)| stat(&folder)).peekable();
        // Where there is no such thing, the group is believed to live.
        stats.peek().is_none() || stats.any(|stat| is_alive_in(&stat, id.as_raw()))
    }

    /// The living processes of the run that are not in its group. None where there is no /proc.
    fn outsiders(&self, id: Pid) -> Vec<Pid> {
        if self.marks.is_empty() {
            return Vec::new();
        }
        let is_one = |folder: &Path| {
            // The kernel shows the environment of a zombie as empty.
            let environment = fs::read(folder.join("environ")).unwrap_or_default();
            has_all(&environment, &self.marks)
                && stat(folder).is_some_and(|stat| !is_alive_in(&stat, id.as_raw()))
        };
        processes().filter(|(_, folder)| is_one(folder)).map(|(pid, _)| pid).collect()
    }

    fn signal(&self, signal: Signal) {
        let Some(id) = self.id else { return };
        for outsider in self.outsiders(id) {
            // An error means that the process has ended meanwhile.
            let _ = kill(outsider, signal);
        }
        let _ = killpg(id, signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// The processes of this machine, with their folders in /proc.
fn processes() -> impl Iterator<Item = (Pid, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((Pid::from_raw(pid), entry.path()))
    })
}

fn stat(folder: &Path) -> Option<String> {
    fs::read_to_string(folder.join("stat")).ok()
}

/// True if an environment, as /proc shows it, has all of these variables.
fn has_all(environment: &[u8], marks: &[String]) -> bool {
    let has =
        |mark: &String| environment.split(|byte| *byte == 0).any(|one| one == mark.as_bytes());
    marks.iter().all(has)
}

/// True if `/proc/PID/stat` shows a process of this group that has not ended. The name in it is in
/// brackets, and may contain any character.
fn is_alive_in(stat: &str, group: i32) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let mut fields = rest.split_ascii_whitespace();
    let (state, of) = (fields.next(), fields.nth(1));
    of.and_then(|of| of.parse().ok()) == Some(group) && !matches!(state, Some("Z" | "X"))
}

#[cfg(test)]
mod tests {
    use super::{has_all, is_alive_in};

    #[test]
    fn a_process_of_the_run_has_all_of_its_variables() {
        let marks = ["ALLORA_OCCURRENCE=a/1".to_owned(), "ALLORA_FENCE=7".to_owned()];
        assert!(has_all(b"A=b\0ALLORA_FENCE=7\0ALLORA_OCCURRENCE=a/1\0", &marks));
        assert!(!has_all(b"ALLORA_OCCURRENCE=a/1\0ALLORA_FENCE=77\0", &marks));
        assert!(!has_all(b"", &marks));
    }

    #[test]
    fn who_has_ended_is_not_alive() {
        assert!(is_alive_in("12 (a) R) S 1 77 77 0 -1", 77));
        assert!(!is_alive_in("12 (sh) Z 1 77 77 0 -1", 77));
        assert!(!is_alive_in("12 (sh) S 77 12 12 0 -1", 77));
        assert!(!is_alive_in("", 77));
    }
}

//! A service whose servers are killed, frozen and started again, whose disk becomes full, and whose clock is set.

use super::{
    Disk, FakeClock, OF_TRIALS, Prepared, SERVICES, Service, Site, failed, guard, patiently, said,
};
use crate::{Failure, Outcome};
use std::{
    fs,
    io::Write,
    process::{Child, ChildStdin, Command, Stdio},
};

/// Things wanted of a service besides its servers.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) disk: bool,
    pub(crate) clock: bool,
}

/// One service, in a folder of its own; dropped, it is stopped.
pub(crate) struct Arena {
    service: &'static Service,
    site: Site,
    guards: Vec<(Child, ChildStdin)>,
    /// The disk of the data, if it can become full.
    pub(crate) disk: Option<Disk>,
    /// That of the servers, if it can be set.
    pub(crate) clock: Option<FakeClock>,
    /// The values of its variables.
    pub(crate) told: Vec<String>,
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Lazily, so that the guards can remove its folder.
        self.disk = None;
        let ending: Vec<Child> = self.guards.drain(..).map(|(guard, _pipe)| guard).collect();
        for mut guard in ending {
            // An error leaves nothing to do.
            let _ = guard.wait();
        }
        if let Some(clock) = &self.clock {
            clock.remove();
        }
    }
}

impl Arena {
    /// Starts the service of this name, also where others run already, on a disk of its own if it may have one,
    /// and with a clock of its own where that is wanted.
    pub(crate) fn start(name: &str, wanted: Wanted) -> Outcome<Self> {
        let mut services = SERVICES.iter().chain(OF_TRIALS).copied();
        let service = services.find(|service| service.name == name);
        let service = service.ok_or_else(|| Failure::Usage(format!("no service is `{name}`")))?;
        let site = service.site()?;
        let disk = if wanted.disk { Disk::mount(&site.folder)? } else { None };
        let clock = match wanted.clock {
            true => Some(FakeClock::new(site.folder.with_extension("clock"))?),
            false => None,
        };
        let Prepared { servers, told } = (service.prepare)(&site)?;
        let mut guards = Vec::new();
        for server in &servers {
            let clocked = clock.as_ref().map(|clock| clock.of(server));
            let mut guard = guard(&site, clocked.as_ref().unwrap_or(server))
                .map_err(|cause| failed(&site.program, &cause))?;
            let pipe = guard.stdin.take().expect("piped by the guard");
            guards.push((guard, pipe));
        }
        service.wait(&site)?;
        Ok(Self { service, site, guards, disk, clock, told })
    }

    /// The number of its servers.
    pub(crate) fn len(&self) -> usize {
        self.guards.len()
    }

    /// The log of its servers.
    pub(crate) fn log(&self) -> String {
        let log = fs::read(self.site.folder.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    pub(crate) fn port(&self, number: usize) -> u16 {
        self.site.ports[number]
    }

    /// The server of this number, while it lives.
    pub(crate) fn pid(&self, number: usize) -> Option<u32> {
        children(self.guards[number].0.id()).into_iter().next()
    }

    /// SIGKILL, also for the processes that it has started. They are gone when this returns.
    pub(crate) fn kill(&self, number: usize) -> Outcome {
        let pid = self.living(number)?;
        // Frozen, it starts no more children: one that is not killed with it keeps its successor from starting.
        signal("-STOP", &[pid])?;
        let all = with_descendants(pid);
        signal("-KILL", &all)?;
        match patiently(|| all.iter().all(|pid| !lives(*pid))) {
            true => Ok(()),
            false => Err(Failure::Check(format!("{} survives SIGKILL", self.service.name))),
        }
    }

    /// An orderly stop, as by its service manager. It is gone when this returns.
    pub(crate) fn stop(&self, number: usize) -> Outcome {
        let pid = self.living(number)?;
        // SIGTERM makes PostgreSQL wait for its sessions, and SIGINT makes PgBouncer.
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = if program.trim() == "postgres" { "-INT" } else { "-TERM" };
        signal(name, &[pid])?;
        match patiently(|| !lives(pid)) {
            true => Ok(()),
            false => Err(Failure::Check(format!("{} does not stop", self.service.name))),
        }
    }

    /// SIGSTOP for all its processes.
    pub(crate) fn freeze(&self, number: usize) -> Outcome {
        let all = with_descendants(self.living(number)?);
        signal("-STOP", &all)?;
        // One that has ended meanwhile, as a session's process, has no state.
        let is_still = |pid: &u32| matches!(state(*pid).chars().next(), None | Some('T' | 'Z'));
        match patiently(|| all.iter().all(is_still)) {
            true => Ok(()),
            false => Err(Failure::Check(format!("{} does not freeze", self.service.name))),
        }
    }

    pub(crate) fn thaw(&self, number: usize) -> Outcome {
        signal("-CONT", &with_descendants(self.living(number)?))
    }

    /// Starts a server that has ended.
    pub(crate) fn restart(&mut self, number: usize) -> Outcome {
        let (_, pipe) = &mut self.guards[number];
        writeln!(pipe)
            .and_then(|()| pipe.flush())
            .map_err(|cause| failed(&self.site.folder, &cause))
    }

    /// Waits until all of it answers.
    pub(crate) fn wait(&self) -> Outcome {
        self.service.wait(&self.site)
    }

    fn living(&self, number: usize) -> Outcome<u32> {
        let name = self.service.name;
        self.pid(number).ok_or_else(|| Failure::Check(format!("{name} has ended by itself")))
    }
}

fn signal(name: &str, pids: &[u32]) -> Outcome {
    let mut kill = Command::new("kill");
    kill.arg(name).args(pids.iter().map(u32::to_string)).stderr(Stdio::null());
    // A child may have ended meanwhile; that the others have received it is looked at.
    kill.status().map(drop).map_err(|cause| Failure::Check(format!("kill: {cause}")))
}

fn lives(pid: u32) -> bool {
    !matches!(state(pid).chars().next(), None | Some('Z'))
}

/// As `ps` prints it; empty if there is no such process.
fn state(pid: u32) -> String {
    let mut ps = Command::new("ps");
    ps.args(["-o", "stat=", "-p", &pid.to_string()]);
    said(ps).trim().to_owned()
}

/// The living processes that this one has started.
fn children(pid: u32) -> Vec<u32> {
    let mut ps = Command::new("ps");
    ps.args(["-o", "pid=", "--ppid", &pid.to_string()]);
    let pids = said(ps);
    pids.lines().filter_map(|line| line.trim().parse().ok()).filter(|pid| lives(*pid)).collect()
}

fn with_descendants(pid: u32) -> Vec<u32> {
    let below = children(pid).into_iter().flat_map(with_descendants);
    std::iter::once(pid).chain(below).collect()
}

//! The file in which every process writes down what it runs, a line at a time.

use allora::{BoxError, Run, Runtime, Time, runtime::Tokio};
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::Write,
    path::Path,
    sync::Arc,
};

/// One line: a run began its work, or came to the end of it.
pub(crate) struct Line {
    pub(crate) at: Time,
    pub(crate) began: bool,
    pub(crate) node: String,
    pub(crate) fence: i64,
    pub(crate) attempt: u32,
    pub(crate) scheduled: Time,
    pub(crate) job: String,
}

/// The file, open for appending.
#[derive(Clone)]
pub(crate) struct Log {
    file: Arc<File>,
    clock: Tokio,
}

impl Log {
    pub(crate) fn append(path: &Path) -> Result<Self, BoxError> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file: Arc::new(file), clock: Tokio::current()? })
    }

    /// Writes one line in one call: the lines of many processes do not mix, and a process that is
    /// killed leaves none half written.
    pub(crate) fn note(&self, what: &str, run: &Run) -> Result<(), BoxError> {
        let (at, scheduled) = (self.clock.wall().to_rfc3339(), run.scheduled_at().to_rfc3339());
        let (node, fence, attempt, job) = (run.node(), run.fence(), run.attempt(), run.name());
        let line = format!("{at}\t{what}\t{node}\t{fence}\t{attempt}\t{scheduled}\t{job}\n");
        Ok((&*self.file).write_all(line.as_bytes())?)
    }
}

pub(crate) fn read(path: &Path) -> Result<Vec<Line>, BoxError> {
    fs::read_to_string(path)?
        .split_inclusive('\n')
        // Who reads while others write may see the beginning of a line.
        .filter_map(|line| line.strip_suffix('\n'))
        .map(|line| parse(line).map_err(|why| format!("{why} in the line {line:?}").into()))
        .collect()
}

impl Line {
    /// True if the machine of this label wrote it.
    pub(crate) fn is_by(&self, label: &str) -> bool {
        // Behind the label, a node's id has a random part.
        self.node.strip_prefix(label).is_some_and(|rest| rest.starts_with('-'))
    }
}

/// The runs that this machine began and did not end.
pub(crate) fn unfinished<'a>(lines: &'a [Line], label: &str) -> Vec<&'a Line> {
    let mut open = BTreeMap::new();
    for line in lines.iter().filter(|line| line.is_by(label)) {
        let run = (&line.job, line.fence);
        if line.began {
            open.insert(run, line)
        } else {
            open.remove(&run)
        };
    }
    open.into_values().collect()
}

fn parse(line: &str) -> Result<Line, BoxError> {
    let mut cells = line.split('\t');
    let mut next = || cells.next().ok_or("too few cells");
    Ok(Line {
        at: next()?.parse()?,
        began: next()? == BEGAN,
        node: next()?.into(),
        fence: next()?.parse()?,
        attempt: next()?.parse()?,
        scheduled: next()?.parse()?,
        job: next()?.into(),
    })
}

pub(crate) const BEGAN: &str = "began";
pub(crate) const ENDED: &str = "ended";

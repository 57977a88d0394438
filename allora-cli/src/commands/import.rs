//! `allora import`: the lines of `allora export`, into another store.

use super::{
    file::{self, shown_as},
    import_crontab::{self, Conversion},
    import_perfectsched,
};
use crate::{
    crontab_files,
    failure::{Failure, Outcome, chain},
    output::{Progress, complain},
    session::{self, Session},
    store::StoreArgs,
};
use allora_core::{
    Schedules,
    stored::{ExportLine, Imported},
};
use clap::{Args, ValueEnum};
use std::{
    io::{self, BufRead, Write},
    path::{Path, PathBuf},
};

/// Adds the calendars and the schedules of an export.
///
/// Each schedule keeps its next time, pause, counters and dead letters. Good lines are imported, and
/// each bad line is reported with its number. An interrupted import is repeated with --skip-existing.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES
  allora import --from perfectsched --dry-run mysql://app@db.example/sched --table schedules
  allora import --from crontab --dry-run /etc/crontab
  allora import schedules.jsonl --url postgres://cron@db.example/cron
  allora export --url sqlite:old.db | allora import - --url redis://cron.example")]
pub(crate) struct Import {
    /// The file; - is standard input.
    file: PathBuf,
    /// The form of the file. Lines of a crontab become schedules of the kind `command`.
    #[arg(long, default_value = "export")]
    from: Format,
    /// With --from perfectsched: the table.
    #[arg(long, default_value = "perfect_sched")]
    table: String,
    /// With --from crontab: imports lines of other users, too, which then run as the daemon.
    #[arg(long)]
    as_daemon: bool,
    /// With --from crontab: the zone of schedules that name none [default: the machine's].
    #[arg(long)]
    zone: Option<String>,
    /// Skips schedules whose names exist already, instead of failing at the end.
    #[arg(long)]
    skip_existing: bool,
    /// Reads the file and reports its errors, and imports nothing.
    #[arg(long, short = 'n')]
    dry_run: bool,
    #[command(flatten)]
    place: StoreArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The lines of `allora export`.
    Export,
    /// A crontab.
    Crontab,
    /// PerfectSched's table; FILE is the URL of its database.
    Perfectsched,
}

/// The number of schedules that are sent at once.
const BATCH: usize = 500;

/// The results of the lines.
#[derive(Debug, Default)]
struct Tally {
    imported: usize,
    skipped: usize,
    refused: usize,
}

impl Import {
    pub(crate) fn run(self) -> Outcome {
        let conversion = Conversion {
            as_daemon: self.as_daemon,
            skip_existing: self.skip_existing,
            dry_run: self.dry_run,
        };
        if self.from == Format::Perfectsched {
            let (mut stored, mut rejected) = (Vec::new(), 0);
            let url = self.file.to_string_lossy();
            for (id, schedule) in import_perfectsched::schedules(&url, &self.table)? {
                match schedule {
                    Ok(schedule) => stored.push(schedule),
                    Err(what) => {
                        complain("error", &format!("the row {id:?}: {what}"));
                        rejected += 1;
                    }
                }
            }
            return import_crontab::add_all(&stored, rejected, conversion, &self.place);
        }
        if self.from == Format::Crontab {
            let zone = crontab_files::zone(self.zone.as_deref())?;
            return import_crontab::import(&self.file, zone, conversion, &self.place);
        }
        if self.as_daemon || self.zone.is_some() {
            return Err(Failure::Invalid(
                "--as-daemon and --zone are only for --from crontab".into(),
            ));
        }
        let input = file::open(&self.file)?;
        let tally = if self.dry_run {
            session::run(self.import(input, None))?
        } else {
            session::with(&self.place, async |session: Session| {
                self.import(input, Some(&session.schedules)).await
            })?
        };
        let Tally { imported, skipped, refused } = tally;
        let done = if self.dry_run { "readable" } else { "imported" };
        let skipped =
            if skipped == 0 { String::new() } else { format!(", {skipped} exist already") };
        writeln!(io::stdout(), "{imported} {done}{skipped}, {refused} rejected.")?;
        if refused == 0 { Ok(()) } else { Err(Failure::Said(1)) }
    }

    async fn import(&self, input: Box<dyn BufRead>, into: Option<&Schedules>) -> Outcome<Tally> {
        let mut tally = Tally::default();
        let mut progress = Progress::new("lines imported");
        let (mut numbers, mut lines) = (Vec::new(), Vec::new());
        for (index, line) in input.lines().enumerate() {
            let number = index + 1;
            let line = line.map_err(|error| file::unread(&self.file, &error))?;
            if line.trim().is_empty() {
                continue;
            }
            match line.parse::<ExportLine>() {
                Ok(line) => {
                    numbers.push(number);
                    lines.push(line);
                }
                Err(error) => tally.refuse(&mut progress, &self.file, number, &error.to_string()),
            }
            if lines.len() == BATCH {
                self.send(&mut numbers, &mut lines, into, &mut tally, &mut progress).await?;
            }
        }
        self.send(&mut numbers, &mut lines, into, &mut tally, &mut progress).await?;
        Ok(tally)
    }

    async fn send(
        &self,
        numbers: &mut Vec<usize>,
        lines: &mut Vec<ExportLine>,
        into: Option<&Schedules>,
        tally: &mut Tally,
        progress: &mut Progress,
    ) -> Outcome {
        let sent = lines.len();
        match into {
            None => tally.imported += sent,
            Some(schedules) => {
                let answers = schedules.import_lines(lines, self.skip_existing).await?;
                for (answer, number) in answers.into_iter().zip(numbers.iter()) {
                    match answer {
                        Ok(Imported::Added) => tally.imported += 1,
                        Ok(Imported::Kept) => tally.skipped += 1,
                        Err(error) => tally.refuse(progress, &self.file, *number, &chain(&error)),
                    }
                }
            }
        }
        numbers.clear();
        lines.clear();
        progress.more(sent);
        Ok(())
    }
}

impl Tally {
    fn refuse(&mut self, progress: &mut Progress, file: &Path, line: usize, what: &str) {
        progress.clear();
        complain("error", &format!("{}:{line}: {what}", shown_as(file)));
        self.refused += 1;
    }
}

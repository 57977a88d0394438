//! A line of a crontab, ready to be run.

use super::{
    Source,
    notices::Notices,
    settings::{Defaults, LABEL, SettingError, settings},
};
use allora_core::{
    AnySchedule, LabelSelector, MAX_NAME, Settings, check_name,
    crontab::{Entry, When},
};
use std::{fmt, path::PathBuf, sync::Arc};

/// A line of a crontab, ready to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The job's: the file's name and the entry's.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) number: usize,
    /// `None`: at the start of the daemon.
    pub(crate) schedule: Option<AnySchedule>,
    pub(crate) settings: Settings,
    /// The nodes that the line is for.
    pub(crate) nodes: LabelSelector,
    pub(crate) notices: Notices,
    pub(crate) shell: Arc<Shell>,
}

/// A command for the shell, and its surroundings. `Debug` shows no values: they may be secrets.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Shell {
    pub(crate) command: String,
    pub(crate) stdin: Option<String>,
    pub(crate) environment: Arc<[(String, String)]>,
    /// As whom; `None`: as the daemon.
    pub(crate) user: Option<String>,
}

impl Line {
    /// True if the two lines run alike, wherever they stand.
    pub(crate) fn runs_as(&self, other: &Self) -> bool {
        let place = |line: &Self| Self { path: PathBuf::new(), number: 0, ..line.clone() };
        place(self) == place(other)
    }
}

impl Line {
    /// The line as text, to compare it with others. It has no value of a variable: they may be secrets.
    pub(crate) fn summary(&self) -> String {
        let Self { name, path: _, number: _, schedule, settings, nodes, notices: _, shell } = self;
        format!("{name} {schedule:?} {settings:?} {nodes:?} {shell:?}\n")
    }
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell")
            .field("command", &self.command)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

pub(super) fn line(
    source: &Source,
    entry: &Entry,
    defaults: &Defaults,
) -> Result<Line, SettingError> {
    let name = format!("{}:{}", source.label(), entry.name);
    check_name(&name).map_err(|error| {
        let long = name.len() > MAX_NAME;
        let advice = if long { "; give the file a shorter name" } else { "; rename the file" };
        SettingError::line(format!("{error}{advice}"))
    })?;
    let settings = settings(entry, &defaults.settings)?;
    let nodes = entry.variable(LABEL).map(str::parse).transpose();
    let nodes = nodes.map_err(|error: allora_core::Error| SettingError::line(error.to_string()))?;
    let schedule = match entry.when.clone() {
        When::Reboot => None,
        When::Every(every) => Some(AnySchedule::Every(every)),
        When::At(at) => Some(AnySchedule::At(at)),
        When::Never(never) => Some(AnySchedule::Never(never)),
        When::Schedule(schedule) => Some(match &defaults.zone {
            Some(zone) if schedule.lacks_zone() => schedule
                .in_zone(zone)
                .map_err(|error| SettingError::line(format!("the zone: {error}")))?,
            _ => *schedule,
        }),
        When::Quartz(quartz) => Some(AnySchedule::Quartz(match &defaults.zone {
            Some(zone) if !quartz.names_zone() => quartz
                .in_zone(zone)
                .map_err(|error| SettingError::line(format!("the zone: {error}")))?,
            _ => quartz,
        })),
        When::Recurrence(rule) => Some(AnySchedule::Recurrence(match &defaults.zone {
            Some(zone) if !rule.names_zone() => Box::new(
                rule.in_zone(zone)
                    .map_err(|error| SettingError::line(format!("the zone: {error}")))?,
            ),
            _ => rule,
        })),
        When::Cron(cron) => Some(AnySchedule::Cron(match &defaults.zone {
            Some(zone) if !cron.names_zone() => cron
                .in_zone(zone)
                .map_err(|error| SettingError::line(format!("the zone: {error}")))?,
            _ => cron,
        })),
        other => {
            return Err(SettingError::line(format!("{other:?} is not supported in crontabs")));
        }
    };
    Ok(Line {
        name,
        path: source.path.clone(),
        number: entry.line,
        schedule,
        settings,
        nodes: nodes.unwrap_or_default(),
        notices: Notices::of(entry)?,
        shell: Arc::new(Shell {
            command: entry.command.clone(),
            stdin: entry.stdin.clone(),
            environment: defaults.env_file.below(&entry.environment),
            user: entry.user.clone().or_else(|| source.owner.clone()),
        }),
    })
}

//! A line of a crontab, ready to be run.

use super::{
    Source,
    notices::Notices,
    settings::{Defaults, LABEL, SettingError, settings},
};
use allora_core::{
    AnySchedule, MAX_NAME, Settings, check_name,
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
    pub(crate) nodes: Nodes,
    pub(crate) notices: Notices,
    pub(crate) shell: Arc<Shell>,
}

/// The nodes that a line is for: those that have all labels of one list and none of the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(crate) with: Vec<String>,
    pub(crate) without: Vec<String>,
}

impl Nodes {
    /// Reads labels with commas between them, `!` in front of those that a node must not have.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut nodes = Self::default();
        for word in text.split(',').map(str::trim) {
            let (label, list) = match word.strip_prefix('!') {
                Some(label) => (label, &mut nodes.without),
                None => (word, &mut nodes.with),
            };
            check_name(label).map_err(|error| error.to_string())?;
            list.push(label.to_owned());
        }
        Ok(nodes)
    }

    /// True if a node with these labels is one of them.
    pub(crate) fn include(&self, labels: &[String]) -> bool {
        self.with.iter().all(|label| labels.contains(label))
            && !self.without.iter().any(|label| labels.contains(label))
    }
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
    let labels = entry.variable(LABEL).filter(|labels| !labels.is_empty());
    let nodes = labels.map(Nodes::parse).transpose().map_err(SettingError::line)?;
    let schedule = match entry.when.clone() {
        When::Reboot => None,
        When::Every(every) => Some(AnySchedule::Every(every)),
        When::At(at) => Some(AnySchedule::At(at)),
        When::Cron(cron) => Some(AnySchedule::Cron(match &defaults.zone {
            Some(zone) if !cron.names_zone() => cron
                .in_zone(zone)
                .map_err(|error| SettingError::line(format!("the zone: {error}")))?,
            _ => cron,
        })),
        other => {
            return Err(SettingError::line(format!("{other:?} is new, and not known here yet")));
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
            environment: entry.environment.clone(),
            user: entry.user.clone().or_else(|| source.owner.clone()),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::Nodes;

    #[test]
    fn a_line_runs_on_nodes_with_all_its_labels_and_none_of_those_it_excludes() {
        let nodes = Nodes::parse("gpu, big,!spot").unwrap();
        let include = |labels: &[&str]| {
            nodes.include(&labels.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert!(include(&["gpu", "big"]) && include(&["big", "other", "gpu"]));
        assert!(!include(&["gpu"]) && !include(&[]) && !include(&["gpu", "big", "spot"]));
        assert!(Nodes::parse("!spot").unwrap().include(&[]));
        for wrong in ["gpu,", "!", ",", "gpu,,big"] {
            assert!(Nodes::parse(wrong).is_err(), "{wrong}");
        }
    }
}

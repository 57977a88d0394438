//! The decision about a job, after a slice of its schedule was walked if that is needed to decide.

use super::{
    backlog::Backlog,
    decide::{Claimant, Decision, decide},
    known::Known,
};
use crate::{
    job::{CatchUp, CheckedSchedule, InvalidNextAt, JobSpec},
    time::Time,
};

/// Decides about a job. If its schedule must be walked, one slice of that comes first; the decision
/// is [`Walk`](Decision::Walk) if there is more. `walking`: the number of jobs that share a slice.
pub(in crate::planner) fn walk_and_decide(
    name: &str,
    spec: &JobSpec,
    known: &Known,
    backlog: &mut Option<Box<Backlog>>,
    now: Time,
    claimant: Claimant,
    walking: usize,
) -> Result<Decision, InvalidNextAt> {
    let Some(cursor) = known.open_cursor().filter(|next| next.due_at <= now) else {
        *backlog = None;
        return decide(name, spec, known, None, now, claimant);
    };
    let first = cursor.scheduled_at;
    *backlog = backlog.take().and_then(|found| Some(Box::new(found.starting(first)?)));
    if backlog.is_none() {
        let decision = decide(name, spec, known, None, now, claimant)?;
        let Decision::Walk = decision else { return Ok(decision) };
    }
    let keep = match spec.settings.catch_up {
        CatchUp::All { limit } => limit,
        CatchUp::Latest | CatchUp::None => 1,
    };
    let found = backlog.get_or_insert_with(|| Box::new(Backlog::new(first, keep)));
    let schedule = CheckedSchedule::of(name, spec);
    let until = schedule.due_until(now).unwrap_or(first);
    if !found.walk(schedule, until, walking)? {
        return Ok(Decision::Walk);
    }
    decide(name, spec, known, Some(found), now, claimant)
}

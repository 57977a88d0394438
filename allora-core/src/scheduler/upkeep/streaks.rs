//! Jobs that fail again and again, or have paused themselves.
//!
//! The operation that ends a run decides whether people are told, and writes that into the record. If
//! its node dies before it has told them, the first of the live nodes does so: twice is better than never.

use crate::{
    backend::{Flag, JobState, Operation, Page, Reply, StreakChange, StreakReport, TimeSource},
    condition::{ActiveCondition, Code, Condition},
    error::Result,
    event::Event,
    registry::{Fleet, NodeInfo},
    scheduler::{
        node::Node,
        store_request::{send, within},
    },
    time::saturating_add,
};
use chrono::TimeDelta;
use std::{collections::BTreeSet, sync::Arc};

/// The largest number of records that are read at once.
const READS: usize = 1_000;

/// A node that has been silent for longer has died before this one began to look.
const RECENT: TimeDelta = TimeDelta::minutes(5);

/// The dead nodes whose alerts were looked for.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct Streaks {
    dead: BTreeSet<String>,
}

impl Streaks {
    pub(in crate::scheduler) async fn look(&mut self, node: &Node) -> Result {
        let fleet = node.board.seen().fleet.clone().unwrap_or_default();
        self.tell_for_dead(node, &fleet).await?;
        check(node).await
    }

    /// Reports again what nodes have decided that died at about that time.
    async fn tell_for_dead(&mut self, node: &Node, fleet: &Fleet) -> Result {
        let now = node.now(&node.shared());
        let is_new = |one: &&NodeInfo| {
            one.is_dead() && one.last_seen + RECENT > now && !self.dead.contains(&one.node)
        };
        let dead: Vec<&NodeInfo> = fleet.nodes.iter().filter(is_new).collect();
        let is_first = fleet.live().map(|one| &*one.node).min() == Some(&*node.id);
        let queries = node.backend.queries().filter(|_| is_first && !dead.is_empty());
        if let Some(queries) = queries {
            let time = TimeSource::Store { fallback: node.runtime.wall() };
            let failing = queries.flagged(Flag::Failing, Page::first(READS), time);
            for state in within(node, "flagged", failing).await?.found {
                let told = state.streak.as_ref().and_then(|streak| streak.alerted_at);
                let may_be_untold = |one: &&NodeInfo| {
                    let until = saturating_add(one.last_seen, 2 * one.heartbeat);
                    told.is_some_and(|at| (one.last_seen..=until).contains(&at))
                };
                if dead.iter().any(may_be_untold) {
                    node.report_streaks(last_report(&state));
                }
            }
        }
        self.dead =
            fleet.nodes.iter().filter(|one| one.is_dead()).map(|one| one.node.clone()).collect();
        Ok(())
    }
}

/// The last change that people were told of; `None` if nothing fails, or they were not told.
fn last_report(state: &JobState) -> Option<StreakReport> {
    let streak = state.streak.as_ref().filter(|streak| streak.failures > 0)?;
    let alerted_at = streak.alerted_at?;
    let scheduled_at = state.last_started.unwrap_or(alerted_at);
    let until = state.paused.as_ref().and_then(|pause| pause.until);
    let change = StreakChange::of(streak, state.paused.is_some(), until);
    Some(StreakReport::new(&state.name, &state.kind, scheduled_at, (streak.failures, change)))
}

/// Reads the jobs again about which this node has such a condition.
async fn check(node: &Node) -> Result {
    let names: Vec<Arc<str>> = {
        let seen = node.board.seen();
        let job = |one: &Arc<ActiveCondition>| one.condition.job().map(Arc::from);
        let codes = [Code::JobFailing, Code::JobPausedItself].into_iter();
        codes.flat_map(|code| seen.active.of(code).filter_map(job).collect::<Vec<_>>()).collect()
    };
    for names in names.chunks(READS) {
        let operations: Vec<_> = names.iter().map(|name| Operation::read(name)).collect();
        for (name, reply) in names.iter().zip(send(node, &operations).await?.replies) {
            let report = match reply? {
                Reply::State(state) => last_report(&state),
                _ => None,
            };
            node.show_streak(name, report.as_ref());
        }
    }
    Ok(())
}

impl Node {
    /// Tells of failures in a row: events, and a condition until they are over.
    pub(in crate::scheduler) fn report_streaks(
        &self,
        reports: impl IntoIterator<Item = StreakReport>,
    ) {
        for report in reports {
            self.show_streak(&report.name, Some(&report));
            self.emit([Event::from(report)]);
        }
    }

    fn show_streak(&self, name: &str, report: Option<&StreakReport>) {
        let (job, failures) = (Arc::from(name), report.map_or(0, |report| report.failures));
        let (condition, other) = match report.map(|report| report.change) {
            Some(StreakChange::Failing) => {
                (Some(Condition::JobFailing { job, failures }), Code::JobPausedItself)
            }
            Some(StreakChange::Paused { .. }) => {
                (Some(Condition::JobPausedItself { job, failures }), Code::JobFailing)
            }
            Some(StreakChange::Over) | None => {
                self.end_condition(Code::JobPausedItself, name);
                (None, Code::JobFailing)
            }
        };
        self.end_condition(other, name);
        condition.into_iter().for_each(|condition| self.begin_condition(condition));
    }
}

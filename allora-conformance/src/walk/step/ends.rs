//! The steps that end runs, or put them off.

use super::{AFTER_END, Planned, Walker, Won};
use crate::random::Random;
use allora_core::backend::{Action, CancelScope, Completion, Cursor, RetryCause};
use chrono::TimeDelta;
use std::time::Duration;

impl Walker {
    /// The cancellation of all runs, or of one.
    pub(super) fn cancel(&self, random: &mut Random, name: &str) -> Planned {
        let mine: Vec<&Won> =
            self.won.iter().rev().filter(|won| won.name == name).take(4).collect();
        match random.pick(&mine).filter(|_| random.one_in(2)) {
            Some(won) => Planned::pair(
                Action::Cancel(CancelScope::Run(won.store)),
                Action::Cancel(CancelScope::Run(won.reference)),
            ),
            None if random.one_in(3) => Planned::same(Action::Cancel(CancelScope::Trigger("x"))),
            None => Planned::same(Action::Cancel(CancelScope::All)),
        }
    }

    /// An operation on a run that was claimed, mostly a recent one, which is likelier to be alive.
    pub(super) fn end(&self, random: &mut Random) -> Option<(&'static str, Planned)> {
        let recent: Vec<Won> = self.won.iter().rev().take(4).cloned().collect();
        let all: &[Won] = if random.one_in(6) { &self.won } else { &recent };
        let won = random.pick(all)?;
        let later =
            |random: &mut Random| self.now + TimeDelta::milliseconds(random.below(60_000) as i64);
        let completion = match random.below(4) {
            0 => Completion::Failed("broken"),
            1 => Completion::Dead("dead"),
            2 => Completion::Cancelled,
            _ => Completion::Succeeded,
        };
        let pair = |action: &dyn Fn(i64) -> Action<'static>| {
            Some((won.name, Planned::pair(action(won.store), action(won.reference))))
        };
        let record = self.reference.record(won.name);
        let follows_end = record.is_some_and(|record| record.definition == AFTER_END);
        let then = match random.below(8) {
            4.. if random.one_in(if follows_end { 2 } else { 12 }) => Cursor::AfterEnd,
            0 | 1 => {
                let duration = Duration::from_millis(random.below(60_000));
                return pair(&|fence| Action::Extend { fence, duration });
            }
            2 => {
                let not_before = later(random);
                let cause = match random.below(3) {
                    0 => RetryCause::Failed("again"),
                    1 => RetryCause::Interrupted,
                    _ => RetryCause::Released,
                };
                return pair(&|fence| Action::Retry { fence, not_before, cause });
            }
            3 if random.one_in(2) => {
                let then = match follows_end {
                    true => Cursor::AfterEnd,
                    false => Cursor::To(Some(later(random).into())),
                };
                return pair(&|fence| {
                    let occurrence = won.occurrence.clone();
                    Action::GiveUp { fence, occurrence, then, error: "given up" }
                });
            }
            3 => return pair(&|fence| Action::Release { fence }),
            4 => Cursor::Keep,
            5 => Cursor::To(None),
            6 => Cursor::To(Some(won.occurrence.scheduled_at.into())),
            _ => Cursor::To(Some(later(random).into())),
        };
        pair(&|fence| Action::Complete { fence, then, completion })
    }
}

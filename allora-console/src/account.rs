//! An account: a reader with limits on the number of its jobs, and on how often they run.

use crate::reader::Reader;
use allora_core::{
    Error, ErrorKind, Result,
    backend::JobState,
    schedule::{next_n, period_text},
    stored::Filter,
    time::since,
};

/// The jobs that one request reads to count them.
const PAGE: usize = 500;

/// The times of a schedule whose distances are looked at: of one that repeats itself within as many, all of them.
const TIMES: usize = 1_000;

impl Reader {
    /// Refuses a definition by which a job would run more often than the reader may have it, as its next 1,000 times
    /// show.
    ///
    /// # Errors
    /// `Invalid`: it would run too often. `Unavailable`.
    pub(crate) async fn admits_period(&self, name: &str, definition: &str) -> Result<()> {
        let Some(least) = self.access().shortest_period() else { return Ok(()) };
        let mut state = JobState::empty(name);
        definition.clone_into(&mut state.definition);
        let definition = match self.definition(&state).await {
            // The store refuses it as well.
            Err(error) if error.kind() == ErrorKind::Invalid => return Ok(()),
            definition => definition?,
        };
        let times = next_n(definition.schedule(), self.store_now().await?, TIMES);
        let shortest = times.windows(2).map(|pair| since(pair[1], pair[0])).min();
        match shortest.filter(|period| *period < least) {
            None => Ok(()),
            Some(period) => Err(Error::invalid(format!(
                "the schedule has two times within {}, and account {:?} may have them {} apart; write a longer period",
                period_text(period),
                self.access().who(),
                period_text(least)
            ))),
        }
    }

    /// As [`admits_new`](Self::admits_new), for the jobs of these names that do not exist yet.
    pub(crate) async fn admits_all(&self, names: impl Iterator<Item = &str>) -> Result<()> {
        if self.access().max_jobs().is_none() {
            return Ok(());
        }
        let mut new = 0;
        for name in names {
            new += usize::from(!self.is_taken(name).await?);
        }
        self.admits_new(new).await
    }

    /// Refuses so many new jobs if more would exist for the reader than it may have. It lists the jobs that exist, up
    /// to that number. Two requests at the same time may both be let through.
    ///
    /// # Errors
    /// `Invalid`: the limit would be exceeded. `Unavailable`.
    pub(crate) async fn admits_new(&self, more: usize) -> Result<()> {
        let Some(most) = self.access().max_jobs().filter(|_| more > 0) else { return Ok(()) };
        let (mut own, mut after) = (0, None);
        while own < most {
            let page = self.list(Filter::default(), after.as_deref(), PAGE).await?;
            own += page.len();
            let is_last = page.len() < PAGE;
            after = page.into_iter().next_back().map(|last| last.name);
            if is_last {
                break;
            }
        }
        if own.saturating_add(more) <= most {
            return Ok(());
        }
        let (who, added) =
            (self.access().who(), if more == 1 { "one".into() } else { more.to_string() });
        let text = format!(
            "account {who:?} has {} of at most {most} schedules, and cannot add {added} more; delete some, or ask the \
             operator",
            own.min(most)
        );
        Err(Error::invalid(text).op("add"))
    }
}

#[cfg(test)]
mod tests {
    use crate::{access::Access, reader::Reader};
    use allora::{ErrorKind, Memory, Schedules, StoredSchedule, runtime::Sim};

    #[test]
    fn an_account_adds_jobs_up_to_its_limit_and_those_of_others_do_not_count() {
        let sim = Sim::new(1);
        let schedules = Schedules::on(Memory::new(), sim.node()).unwrap();
        sim.block_on(async {
            for name in ["acme/a", "acme/b", "beta/a", "beta/b"] {
                schedules.add(&StoredSchedule::new(name, "mail", "@daily")).await.unwrap();
            }
            for (most, more, is_admitted) in
                [(3, 1, true), (3, 2, false), (2, 1, false), (1, 1, false), (0, 0, true)]
            {
                let access = Access::reader("acme").only_prefixes(["acme/"]).with_max_jobs(most);
                let reader = Reader::new(schedules.clone(), access, None);
                let admitted = reader.admits_new(more).await;
                assert_eq!(admitted.is_ok(), is_admitted, "{more} more of {most}");
                let Err(error) = admitted else { continue };
                let says = format!("of at most {most} schedules");
                assert!(
                    error.kind() == ErrorKind::Invalid && error.to_string().contains(&says),
                    "{error}"
                );
            }
            let unlimited = Reader::new(schedules.clone(), Access::reader("ann"), None);
            unlimited.admits_new(usize::MAX).await.unwrap();
        });
    }

    #[test]
    fn an_account_has_no_schedule_that_runs_too_often() {
        let sim = Sim::new(1);
        let schedules = Schedules::on(Memory::new(), sim.node()).unwrap();
        let minute = std::time::Duration::from_secs(60);
        let access = Access::reader("acme").with_shortest_period(5 * minute);
        let reader = Reader::new(schedules, access, None);
        sim.block_on(async {
            for (schedule, is_admitted) in [
                ("@every 5m", true),
                ("@every 299s", false),
                ("*/5 * * * *", true),
                ("*/5,7 * * * *", false),
                ("58 23 * * *", true),
                ("0,4 0 1 1 *", false),
                ("@every 1m; except 2026-12-25", false),
                ("every weekday at 9:30", true),
            ] {
                let admitted = reader.admits_period("acme/a", schedule).await;
                assert_eq!(admitted.is_ok(), is_admitted, "{schedule}: {admitted:?}");
            }
        });
    }

    #[test]
    fn a_count_goes_over_pages() {
        let sim = Sim::new(1);
        let schedules = Schedules::on(Memory::new(), sim.node()).unwrap();
        sim.block_on(async {
            let all: Vec<_> = (0..501)
                .map(|i| StoredSchedule::new(format!("acme/{i}"), "mail", "@daily"))
                .collect();
            schedules.add_all(&all).await.unwrap();
            let with = |most| {
                let access = Access::reader("acme").only_prefixes(["acme/"]).with_max_jobs(most);
                Reader::new(schedules.clone(), access, None)
            };
            with(502).admits_new(1).await.unwrap();
            with(501).admits_new(1).await.unwrap_err();
        });
    }
}

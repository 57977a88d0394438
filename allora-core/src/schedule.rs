//! The schedules of [`allora_schedule`].

pub use allora_schedule::{
    AfterEnd, AnySchedule, At, Between, Calendar, Cron, Dates, Dst, Every, Excluded, Exclusion,
    Field, Filtered, Move, Never, Note, NoteReason, ParseError, Quartz, Recurrence, Schedule,
    ScheduleError, Sun, SunEvent, Warning, Weekdays, after_end, at, between, cron, every, jitter,
    never, next_n, parse, parse_instant, parse_period, period_text, tz_version, zone_name,
};

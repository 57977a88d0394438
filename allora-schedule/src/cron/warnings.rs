//! Warnings about legal expressions that are seldom intended.

use super::{Warning, field::Word};

/// The warnings about the fields of one expression: the second if there is one; minute, hour, day of
/// month, month, weekday.
pub(super) fn of(second: Option<Word<'_>>, fields: [Word<'_>; 5]) -> Vec<Warning> {
    let [minute, hour, day, month, weekday] = fields;
    let days = [
        both_days(day, weekday),
        either_day(second, fields),
        short_month(day, month, weekday),
        second.and_then(|_| weekday_number(weekday)),
    ];
    let times = of_times(second, minute, hour);
    times.into_iter().chain(days.into_iter().flatten()).collect()
}

/// The warnings about the time of day.
pub(super) fn of_times(second: Option<Word<'_>>, minute: Word<'_>, hour: Word<'_>) -> Vec<Warning> {
    let by_minute = every_minute(second, minute, hour);
    let by_second = second.and_then(|second| every_second(second, minute));
    by_minute.into_iter().chain(by_second).collect()
}

/// `* 2 * * *`, `* */2 * * *`: each minute of some hours. Ranges, as in `* 9-17 * * *`, are mostly
/// intended.
fn every_minute(second: Option<Word<'_>>, minute: Word<'_>, hour: Word<'_>) -> Option<Warning> {
    if minute.text != "*" || !is_picked(hour) {
        return None;
    }
    let zeros = if second.is_some() { "0 0" } else { "0" };
    let hour = hour.text;
    let message = format!(
        "minute * with hour {hour}: sixty runs, one in each minute of such an hour; for one run at \
         its beginning write {zeros} {hour}"
    );
    Some(Warning { code: "every-minute", message })
}

/// `* 30 2 * * *`, `* */15 * * * *`: each second of some minutes.
fn every_second(second: Word<'_>, minute: Word<'_>) -> Option<Warning> {
    if second.text != "*" || !is_picked(minute) {
        return None;
    }
    let minute = minute.text;
    let message = format!(
        "second * with minute {minute}: sixty runs, one in each second of such a minute; for one \
         run at its beginning write 0 {minute}"
    );
    Some(Warning { code: "every-second", message })
}

/// Values one by one, without `*`, range or step.
fn is_single(word: Word<'_>) -> bool {
    is_list(word.text)
}

/// Values one by one, or `*` with a step above 1; no range.
fn is_picked(word: Word<'_>) -> bool {
    word.text.strip_prefix("*/").map_or(is_single(word), |step| step != "1" && is_list(step))
}

fn is_list(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || byte == b',')
}

/// `1 * 13 * FRI`: two restricted day fields, of which a day matches either.
fn either_day(second: Option<Word<'_>>, fields: [Word<'_>; 5]) -> Option<Warning> {
    let [minute, hour, day, month, weekday] = fields.map(|word| word.text);
    if fields[2].is_starred() || fields[4].is_starred() {
        return None;
    }
    let second = second.map_or("0", |second| second.text);
    // In Quartz both must match; numbers mean other weekdays there, and `H` nothing.
    let is_portable =
        [second, minute, hour, day, month, weekday].iter().all(|text| !has_hash(text))
            && !has_number(fields[4]);
    let quartz = format!("@quartz {second} {minute} {hour} {day} {month} {weekday}");
    let instead = if is_portable { quartz } else { "it in the Quartz dialect".to_owned() };
    let message = format!(
        "day of month {day} and weekday {weekday}: a day matches if either does, as in Debian's \
         cron; for days that match both write {instead}"
    );
    Some(Warning { code: "either-day", message })
}

/// `0 9 31 * *`: days that some months do not have.
fn short_month(day: Word<'_>, month: Word<'_>, weekday: Word<'_>) -> Option<Warning> {
    if !month.is_any() || !weekday.is_any() || !is_single(day) {
        return None;
    }
    let first = day.text.split(',').filter_map(|one| one.parse().ok()).min()?;
    let without = match first {
        29 => "February has it in leap years only",
        30 => "February has none",
        31 => "five months have none",
        _ => return None,
    };
    let day = day.text;
    let message = format!(
        "day of month {day}: {without}, and it does not run in them; for the last day of each month write L"
    );
    Some(Warning { code: "short-month", message })
}

fn has_hash(text: &str) -> bool {
    text.split(',').any(|item| {
        item.starts_with(['H', 'h']) && matches!(item.as_bytes().get(1), None | Some(b'/' | b'('))
    })
}

/// A field such as `*/2` beside another restricted one: Debian's cron wants both, others either.
fn both_days(day: Word<'_>, weekday: Word<'_>) -> Option<Warning> {
    let stepped = |word: Word<'_>| word.is_starred() && !word.is_any();
    if day.is_any() || weekday.is_any() || !(stepped(day) || stepped(weekday)) {
        return None;
    }
    let (day, weekday) = (day.text, weekday.text);
    let message = format!(
        "day of month {day} and weekday {weekday}: since one of them starts with *, the day must \
         match both, as in Debian's cron; some other crons run on either"
    );
    Some(Warning { code: "both-days", message })
}

/// Six fields are also what Quartz and Spring read, where weekdays have other numbers.
fn weekday_number(weekday: Word<'_>) -> Option<Warning> {
    if !has_number(weekday) {
        return None;
    }
    let weekday = weekday.text;
    let message = format!(
        "weekday {weekday} in an expression with seconds: 1 is Monday here, and Sunday in Quartz; \
         write names, such as MON, or @quartz before an expression in that dialect"
    );
    Some(Warning { code: "weekday-number", message })
}

/// `true` if a number names a weekday: not in `*/2`, `MON#2` or `MON-FRI/2`.
fn has_number(weekday: Word<'_>) -> bool {
    let bounds = weekday
        .text
        .split(',')
        .flat_map(|item| item.split(['/', '#']).next().unwrap_or_default().split('-'));
    bounds.into_iter().any(|bound| bound.starts_with(|first: char| first.is_ascii_digit()))
}

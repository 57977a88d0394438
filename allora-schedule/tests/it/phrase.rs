//! Phrases: accepted with one meaning, or rejected with the nearest accepted one.

use allora_schedule::{AnySchedule, Cron, parse};

#[test]
fn phrases_with_one_reading_are_accepted() {
    for (phrase, same) in [
        ("every 5 minutes", "@every 5m"),
        ("every 1 minute", "@every 1m"),
        ("Every 90 Seconds", "@every 90s"),
        ("every 36 hours", "@every 36h"),
        ("every day", "@daily"),
        ("every day at 9:00", "0 9 * * *"),
        ("every day at 09:05", "5 9 * * *"),
        ("every day at 9:00 and 17:00", "0 9,17 * * *"),
        ("every day at 9:30, 12:30 and 17:30 +02:00", "30 9,12,17 * * * +02:00"),
        ("every day at noon", "@noon"),
        ("every day at midnight UTC", "@midnight UTC"),
        ("every day at 9:30pm", "30 21 * * *"),
        ("every weekday at 9:00", "0 9 * * MON-FRI"),
        ("every monday", "0 0 * * MON"),
        ("every monday at 9am Europe/Rome", "0 9 * * MON Europe/Rome"),
        ("EVERY MONDAY AT 9AM europe/rome", "0 9 * * MON Europe/Rome"),
        ("every mon at 9am", "0 9 * * MON"),
        ("every monday and thursday at 9:00", "0 9 * * MON,THU"),
        ("every tuesday, thursday, and saturday at 9:30 and 17:30", "30 9,17 * * 2,4,6"),
        ("every monday to thursday at noon", "0 12 * * MON-THU"),
        ("every friday to monday, wednesday at 1:00", "0 1 * * FRI-MON,WED"),
        ("first monday of every month", "0 0 * * MON#1"),
        ("second tue of every month at 8:15 America/New_York", "15 8 * * TUE#2 America/New_York"),
        ("2nd monday of every month", "0 0 * * MON#2"),
        ("last friday of every month at 17:00", "0 17 * * FRIL"),
        ("first day of every month", "@monthly"),
        ("15th day of every month at midnight", "0 0 15 * *"),
        ("28th day of every month at 6am", "0 6 28 * *"),
        ("last day of every month at 23:59", "59 23 L * *"),
        ("first weekday of every month at 9:00", "0 9 1W * *"),
        ("last weekday of every month at 9:00", "0 9 LW * *"),
        ("  every   day\tat 9:00 ", "0 9 * * *"),
    ] {
        let read = parse(phrase).unwrap_or_else(|error| panic!("{phrase}: {error}"));
        assert_eq!(read, parse(same).unwrap(), "{phrase}");
        assert_eq!(AnySchedule::for_job("job", phrase), Ok(read), "{phrase}");
    }
}

#[test]
fn other_phrases_are_rejected_with_one_that_means_the_same() {
    let mut wrong = Vec::new();
    for (phrase, position, nearest) in [
        // Two readings.
        ("every hour", 6, "every 1 hour"),
        ("every minute", 6, "every 1 minute"),
        ("every 1 day", 11, "every day"),
        ("every week", 6, "every sunday"),
        ("every month", 6, "first day of every month"),
        ("every day at 9", 13, "every day at 9:00"),
        ("every day at 12am", 13, "every day at midnight"),
        ("every day at 12pm", 13, "every day at noon"),
        ("every weekend at 9:00", 6, "every saturday and sunday at 9:00"),
        // Other words.
        ("every 5m", 6, "every 5 minutes"),
        ("every 5 mins", 8, "every 5 minutes"),
        ("every 5min", 6, "every 5 minutes"),
        ("each 5 minutes", 0, "every 5 minutes"),
        ("daily at 9:00", 0, "every day at 9:00"),
        ("hourly", 0, "every 1 hour"),
        ("weekdays at 9:00", 0, "every weekday at 9:00"),
        ("every mondays at 9 o'clock", 6, "every monday at 9:00"),
        ("monday at 9:00", 0, "every monday at 9:00"),
        ("on mondays at 9:00", 0, "every monday at 9:00"),
        ("every monday at 9 am", 16, "every monday at 9am"),
        ("every monday at 9:00 pm Europe/Rome", 21, "every monday at 9pm Europe/Rome"),
        ("every day at 9.30", 13, "every day at 9:30"),
        ("every monday through friday at 9:00", 13, "every monday to friday at 9:00"),
        ("first monday of the month", 16, "first monday of every month"),
        ("the first monday of each month", 0, "first monday of every month"),
        ("the 2nd mon of each month", 0, "2nd mon of every month"),
        ("at 9:00 every day", 0, "every day at 9:00"),
        ("monthly", 0, "first day of every month"),
        // Slips.
        ("evry day at 9:00", 0, "every day at 9:00"),
        ("every monady at 9:00", 6, "every monday at 9:00"),
        ("every wendesday", 6, "every wednesday"),
        ("every 5 mintues", 8, "every 5 minutes"),
        // Words that change nothing.
        ("every 5 minutes Europe/Rome", 16, "every 5 minutes"),
        ("every day at 9:00 Europe/Rome please", 30, "every day at 9:00 Europe/Rome"),
        ("every day at 9:00 please", 18, "every day at 9:00"),
        ("weekly at 9:00", 0, "every sunday at 9:00"),
    ] {
        let error = parse(phrase).expect_err(phrase);
        assert!(parse(nearest).is_ok(), "{nearest}");
        let expected = format!("write `{nearest}`");
        if (error.position(), error.advice()) != (position, &expected) {
            wrong.push(format!("{phrase}, {position}, {nearest}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn where_nothing_means_the_same_no_phrase_is_suggested() {
    for phrase in [
        "every day at",
        "every",
        "every 0 minutes",
        "every 5x",
        "every day at 24:00",
        "every day at 13pm",
        "every day at 9:5",
        "every day until",
        "every 5 minutes in january",
    ] {
        let error = parse(phrase).expect_err(phrase);
        assert!(error.advice().starts_with("phrases are of these forms:"), "{phrase}: {error}");
    }
}

#[test]
fn the_error_of_a_phrase_names_its_second_reading() {
    for (phrase, says) in [
        (
            "every hour",
            "schedule, column 7: \"hour\" is by the clock to some, and from now on to others; write \
             `every 1 hour`",
        ),
        ("every day at 9", "\"9\" is in the morning to some, and in the evening to others"),
        ("every day at 12am", "\"12am\" is noon to some, and midnight to others"),
        ("31st day of every month", "\"31st\" is not in every month"),
        (
            "every day at 9:00 and 17:30",
            "\"17:30\" has another minute: that is a schedule of its own",
        ),
        (
            "every monday at 9:00 Europe/Pari",
            "column 22: \"Europe/Pari\" is not an IANA time zone; write Europe/Paris",
        ),
        ("every day until", "\"until\" has no place in a phrase; phrases are of these forms"),
    ] {
        let error = parse(phrase).expect_err(phrase).to_string();
        assert!(error.contains(says), "{error}");
    }
    let error = Cron::parse("every day at 9:00").unwrap_err().to_string();
    assert!(
        error.contains("begins a phrase") && error.contains("write five fields: minute"),
        "{error}"
    );
}

#[test]
fn texts_that_are_no_phrases_keep_the_errors_of_their_kind() {
    for (text, says) in [
        ("JAN * * * *", "minute"),
        ("* * * * *; rm -rf /", "is not a rule of a calendar"),
        ("TZ=UTC 0 0 * * *", "variable of a crontab"),
        ("H * * * *", "for_job"),
        ("@evry 5m", "\"@evry\" is not a macro; write @every, or"),
        ("@dayly Europe/Rome", "\"@dayly\" is not a macro; write @daily, or"),
        ("@tomorrow", "is not a macro; write @hourly,"),
        ("5 every * * *", "hour"),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

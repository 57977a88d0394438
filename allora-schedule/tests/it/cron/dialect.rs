//! The meaning of expressions, and their canonical text.

use super::{Dice, cron, oracle::Expression, time};
use allora_schedule::{AnySchedule, Cron, Dst, Field, ScheduleError, Time, next_n, parse};

/// The canonical text in UTC, which is as good as the meaning.
fn means(text: &str, canonical: &str) {
    assert_eq!(cron(text).to_string(), format!("{canonical} UTC"), "{text}");
}

#[test]
fn fields_mean_what_debians_cron_says() {
    means("*/15 * * * *", "*/15 * * * *");
    means("10-50/20 * * * *", "10,30,50 * * * *");
    means("5/15 * * * *", "5,20,35,50 * * * *");
    means("0 0 * * 5/1", "0 0 * * 5,6");
    means("0 0 * * 7/2", "0 0 * * 0,2,4,6");
    means("0 22-6 * * *", "0 0-6,22,23 * * *");
    means("0 22-6/2 * * *", "0 0,2,4,6,22 * * *");
    means("0 0 * NOV-FEB *", "0 0 * 1,2,11,12 *");
    means("0 0 * * FRI-MON", "0 0 * * 0,1,5,6");
    means("0 0 * * FRI-MON/2", "0 0 * * 0,5");
    means("0 0 * * 7-2", "0 0 * * 0-2");
    means("0 0 * * 5-7", "0 0 * * 0,5,6");
    means("0 0 * * mon-FRI/2", "0 0 * * 1,3,5");
    means("0 0 * * 0-7", "0 0 * * 0-6");
    means("0 0 ? jan,Feb ?", "0 0 * 1,2 *");
    means("0 0 l,l-3,lw,15w * *", "0 0 L,L-3,LW,15W * *");
    means("0 0 * * 5L,monL,7L,FRI#3", "0 0 * * 5#3,0L,1L,5L");
    means("*,5 * * * *", "* * * * *");
    means("*/20,5 * * * *", "*/60,5,20,40 * * * *");
    means("0 0 0 * * *", "0 0 * * *");
    means("*/10 0 0 * * *", "*/10 0 0 * * *");
    means("* * * * * *", "* * * * * *");
    means("@Hourly", "0 * * * *");
    means("@weekly", "0 0 * * 0");
    means("@annually", "0 0 1 1 *");
    means("  0\t0 * * *\r\n", "0 0 * * *");
}

#[test]
fn a_zone_or_an_offset_may_be_the_last_word() {
    assert_eq!(cron("0 0 * * * europe/ROME").to_string(), "0 0 * * * Europe/Rome");
    assert_eq!(cron("0 0 0 * * MON Europe/Rome").zone(), "Europe/Rome");
    assert_eq!(cron("@daily -03:30").zone(), "-03:30");
    assert_eq!(cron("0 0 * * * +00:00").zone(), "UTC");
    assert_eq!(cron("0 0 * * * HST").zone(), "HST");
    assert!(!cron("0 0 * * *").names_zone() && cron("0 0 * * * UTC").names_zone());
    let literal = cron("0 0 * * * Europe/Rome dst=literal");
    assert_eq!(literal, cron("0 0 * * *").in_zone("Europe/Rome").unwrap().dst(Dst::Literal));
    assert_ne!(literal, cron("0 0 * * * Europe/Rome"));
    assert_eq!(cron("0 0 * * * dst=debian"), cron("0 0 * * *"));
}

#[test]
fn the_nearest_workday_stays_in_its_month() {
    let days = |text: &str| -> Vec<String> {
        next_n(&cron(text), time("2025-12-31T00:00:00Z"), 12)
            .iter()
            .map(|at| at.format("%m-%d").to_string())
            .collect()
    };
    // 2026: 1 February, March and November are Sundays, 1 August is a Saturday.
    assert_eq!(
        days("0 0 1W * *"),
        [
            "01-01", "02-02", "03-02", "04-01", "05-01", "06-01", "07-01", "08-03", "09-01",
            "10-01", "11-02", "12-01"
        ]
    );
    // 31 January and October are Saturdays, 31 May is a Sunday; short months have no 31st.
    assert_eq!(days("0 0 31W * *")[..5], ["01-30", "03-31", "05-29", "07-31", "08-31"]);
    assert_eq!(
        days("0 0 LW * *")[..8],
        ["01-30", "02-27", "03-31", "04-30", "05-29", "06-30", "07-31", "08-31"]
    );
    assert_eq!(days("0 0 L-3 * *")[..3], ["01-28", "02-25", "03-28"]);
    assert_eq!(days("0 0 * * MON#2")[..3], ["01-12", "02-09", "03-09"]);
    assert_eq!(days("0 0 * * MON#5")[..3], ["03-30", "06-29", "08-31"]);
}

#[test]
fn two_day_fields_are_one_or_the_other_unless_one_starts_with_a_star() {
    let days = |text: &str| -> Vec<String> {
        next_n(&cron(text), time("2026-01-31T00:00:00Z"), 4)
            .iter()
            .map(|at| at.format("%m-%d").to_string())
            .collect()
    };
    assert_eq!(days("0 0 13 * FRI"), ["02-06", "02-13", "02-20", "02-27"]);
    assert_eq!(days("0 0 */13 * FRI"), ["02-27", "03-27", "05-01", "08-14"]);
    assert_eq!(days("0 0 ? * FRI"), ["02-06", "02-13", "02-20", "02-27"]);
    assert_eq!(days("0 0 13 * ?"), ["02-13", "03-13", "04-13", "05-13"]);
    assert_eq!(days("0 0 L * MON"), ["02-02", "02-09", "02-16", "02-23"]);
}

#[test]
fn what_has_no_single_meaning_is_refused_where_it_stands() {
    for (text, field, position) in [
        ("0 0 * * L", Field::Weekday, 8),
        ("0 0 1-5W * *", Field::Day, 7),
        ("0 0 W * *", Field::Day, 4),
        ("0 0 L-0 * *", Field::Day, 4),
        ("0 0 L-31 * *", Field::Day, 4),
        ("0 0 L-3W * *", Field::Day, 7),
        ("0 0 15L * *", Field::Day, 6),
        ("0 0 * * MON#0", Field::Weekday, 8),
        ("0 0 * * MON#6", Field::Weekday, 8),
        ("0 0 * * MON#2-3", Field::Weekday, 13),
        ("0 0 * * 8", Field::Weekday, 8),
        ("? * * * *", Field::Minute, 0),
        ("0 0 ?,5 * *", Field::Day, 4),
        ("H * * * *", Field::Minute, 0),
        ("0 0 * * * H", Field::Weekday, 10),
        ("*/0 * * * *", Field::Minute, 2),
        ("5/0 * * * *", Field::Minute, 2),
        ("0 0 * * * * * UTC", Field::Text, 12),
        ("0 0\n* * *", Field::Text, 3),
        ("0 0 * * *\u{a0}", Field::Text, 9),
        ("\u{feff}0 0 * * *", Field::Text, 0),
        ("@every 90m", Field::Text, 0),
        ("@reboot", Field::Text, 0),
        ("@daily UTC x", Field::Text, 7),
        ("0 0 * * * dst=maybe", Field::Text, 10),
        ("0 0 30W 2 *", Field::Day, 4),
        ("0 0 L-30 2 *", Field::Day, 4),
        ("0 0 L-30 4,6 *", Field::Day, 4),
        ("0 0 31 2 */2", Field::Day, 4),
        ("0 0 29 * * Europe/Nowhere", Field::Zone, 11),
        ("0 0 29 * * +2:00", Field::Zone, 11),
    ] {
        let error = Cron::parse(text).expect_err(text);
        assert_eq!((error.field(), error.position()), (field, position), "{text}: {error}");
    }
}

#[test]
fn errors_are_short_and_cannot_forge_a_line() {
    let long = format!("{} * * * *", "7".repeat(900));
    let error = Cron::parse(&long).unwrap_err();
    assert_eq!(error.found(), format!("{}…", "7".repeat(40)));
    let error = Cron::parse("0 0 * * *\u{202e}MON").unwrap_err();
    assert_eq!(error.found(), "\\u{202e}");
    assert_eq!(Cron::parse("0 0 * * \u{1b}[31m").unwrap_err().found(), "\\u{1b}");
    assert_eq!(ScheduleError::from(error.clone()).to_string(), error.to_string());
    assert!(Cron::parse(&" ".repeat(1025)).unwrap_err().reason().contains("1024"));
    assert!(Cron::parse(&format!("{}* * * * *", " ".repeat(1015))).is_ok());
}

#[test]
fn warnings_name_what_was_perhaps_meant() {
    let codes = |text: &str| -> Vec<&str> {
        cron(text).warnings().iter().map(|warning| warning.code).collect()
    };
    for (text, code) in [
        ("*/90 * * * *", "long-step"),
        ("0 0 */2 * MON", "both-days"),
        ("0 0 1 * */2", "both-days"),
        ("* 2 * * *", "every-minute"),
        ("* 2,14 * * MON-FRI", "every-minute"),
        ("0 * 2 * * *", "every-minute"),
        ("* */2 * * *", "every-minute"),
        ("* */15 * * * *", "every-second"),
        ("* 30 2 * * *", "every-second"),
        ("0 0 13 * FRI", "either-day"),
        ("0 0 L * MON#1", "either-day"),
        ("0 0 9 * * 1", "weekday-number"),
        ("0 0 9 * * MON,3-FRI", "weekday-number"),
        ("0 0 9 * * 5L", "weekday-number"),
        ("0 9 31 * *", "short-month"),
        ("0 9 30,31 * *", "short-month"),
        ("0 9 29 * *", "short-month"),
    ] {
        assert_eq!(codes(text), [code], "{text}");
    }
    for text in [
        "0 0 1 * *",
        "7-7/1 * * * *",
        "* 9-17 * * MON-FRI",
        "* * * * *",
        "* * * * * *",
        "*/5 2 * * *",
        "* */1 * * *",
        "0 0 9 * * MON-FRI/2",
        "0 0 9 * * */2",
        "0 0 9 * * MON#2",
        "0 9 * * 1",
        "0 0 ? * 1",
        "@weekly",
        "@noon",
        "0 9 28 * *",
        "0 9 1,31 * *",
        "0 9 L * *",
        "0 9 31 1,12 *",
    ] {
        assert_eq!(codes(text), [""; 0], "{text}");
    }
    let says = |text: &str, part: &str| {
        let message = cron(text).warnings()[0].to_string();
        assert!(message.contains(part), "{message}");
    };
    says("*/90 * * * *", "@every 90m");
    says(
        "* 2 * * *",
        "sixty runs, one in each minute of such an hour; for one run at its beginning write 0 2",
    );
    says("0 0 13 * FRI", "for days that match both write @quartz 0 0 0 13 * FRI");
    says("0 0 13 * 5", "write it in the Quartz dialect");
    says("0 9 31 * *", "five months have none, and it does not run in them; for the last day");
    says("0 0 9 * * 1", "1 is Monday here, and Sunday in Quartz");
}

#[test]
fn a_step_on_a_weekday_has_both_readings_in_its_error() {
    for (text, says) in [
        (
            "0 0 * * MON/2",
            "weekday, column 9: \"MON/2\" is MON,WED,FRI of each week in some crons, and MON of \
             every other week to others; write MON,WED,FRI, or @every 2w from the instant of the \
             first MON",
        ),
        ("0 0 * * SUN,tue/3", "is TUE,FRI of each week in some crons, and TUE of one week in 3"),
        ("0 0 * * THU/1", "write THU,FRI,SAT, or THU alone"),
    ] {
        let error = Cron::parse(text).expect_err(text).to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(Cron::parse("0 0 * * 1/2").is_ok() && Cron::parse("0 0 * * MON-SAT/2").is_ok());
    let error = Cron::parse("0 0 * * MON/x").unwrap_err();
    assert!(error.reason().contains("unexpected 'x'"), "{error}");
}

#[test]
fn seven_fields_suggest_the_quartz_dialect() {
    let error = Cron::parse("0 0 9 * * MON 2026").unwrap_err();
    assert_eq!(
        error.to_string(),
        "schedule, column 15: \"2026\" is too much: a cron expression has no seventh field, for \
         years; remove the year, or write @quartz before it: in a Quartz expression Sunday is 1",
    );
    assert!(Cron::parse("* * * * * * * *").unwrap_err().reason().contains("8 fields"));
}

#[test]
fn the_spread_by_name_never_changes() {
    // Whoever changes these moves every such job of every user.
    let spread = |name: &str, text: &str| Cron::for_job(name, text).unwrap().to_string();
    assert_eq!(spread("invoices", "H H H H H"), "47 22 16 9 1 UTC");
    assert_eq!(spread("a", "H H H H H"), "37 2 8 2 3 UTC");
    assert_eq!(spread("invoices", "H * * * * *"), "0-59 * * * * UTC".replace("0-59", "56 *"));
    assert_eq!(spread("invoices", "H/15 * * * *"), "11,26,41,56 * * * * UTC");
    assert_eq!(spread("invoices", "0 H(1-4) * * *"), "0 4 * * * UTC");
    assert_eq!(spread("invoices", "0 H(22-1) * * *"), "0 1 * * * UTC");
    assert_eq!(spread("invoices", "0 0 * * * Europe/Rome"), "0 0 * * * Europe/Rome");
    assert_eq!(
        AnySchedule::for_job("invoices", "H * * * *").unwrap().to_string(),
        "47 * * * * UTC"
    );
    for text in ["H/90 * * * *", "H(5) * * * *", "H(5-1) * * * *", "H(0-29 * * * *", "H-5 * * * *"]
    {
        assert!(Cron::for_job("invoices", text).is_err(), "{text}");
    }
}

#[test]
fn the_canonical_text_is_read_back_as_the_same_schedule() {
    let mut dice = Dice(3);
    let (mut read, days) = (0, ["L", "L-3", "LW", "15W", "1W,15W", "*/2,L", "?", "1,LW"]);
    let weekdays = ["5L", "MON#2", "1,5L", "*/2,0#1", "?", "FRI-MON"];
    for _ in 0..5_000 {
        let mut text = Expression::random(&mut dice).text;
        if dice.one_in(3) {
            let mut words: Vec<&str> = text.split(' ').collect();
            words[2] = dice.choose(&days);
            words[4] = dice.choose(&weekdays);
            text = words.join(" ");
        }
        if dice.one_in(3) {
            text = format!("*/{} {text}", dice.within(1..=70));
        }
        if dice.one_in(2) {
            text += " America/New_York dst=literal";
        }
        let Ok(schedule) = Cron::parse(&text) else { continue };
        let canonical = schedule.to_string();
        let again = Cron::parse(&canonical).unwrap_or_else(|error| panic!("{canonical}: {error}"));
        assert_eq!(again, schedule, "{text}");
        assert_eq!(again.to_string(), canonical, "{text}");
        assert_eq!(parse(&canonical), Ok(AnySchedule::Cron(schedule)));
        read += 1;
    }
    assert!(read > 4_000, "{read}");
}

#[test]
fn quartz_keeps_its_own_rules() {
    let schedule = Cron::quartz("0 0 12 ? * 1").unwrap();
    let sunday: Time = time("2026-01-04T12:00:00Z");
    assert_eq!(next_n(&schedule, time("2026-01-01T00:00:00Z"), 1), [sunday]);
    use allora_schedule::Schedule;
    assert_eq!(schedule.definition().as_deref(), Some("@quartz 0 0 12 ? * 1"));
    assert_eq!(parse("@quartz 0 0  12 ? * 1"), Ok(AnySchedule::Quartz(schedule.clone())));
    assert_eq!(
        schedule.latest_at(time("2026-01-01T00:00:00Z"), time("2026-01-05T00:00:00Z")),
        Some(sunday)
    );
    for text in [
        "",
        "* * * * *",
        "0 0 12 ? * 9",
        "0 0 0 30 2 MONDAYS",
        "@quartz",
        "0 0 0 30 2 ?",
        "0 0 0 29 2 ? 2001",
        "0 0 0 ? * MON/2",
        "0 0 0 1 * ? 2200",
        "0 0 0 1 * ? 2030-2026",
        "0 0 0 1 * ? 2026/0",
        "0 0 0 1 * ? twenty",
        "H 0 0 1 * ?",
        "0 0 0 1 * ? 2026 Mars/X",
    ] {
        assert!(Cron::quartz(text).is_err(), "{text}");
    }
    let error = "@quartz 0 0 0 1 * ? 2026,2026-99999".parse::<AnySchedule>().unwrap_err();
    assert_eq!((error.field(), error.position()), (Field::Year, 25), "{error}");
}

#[test]
fn the_examples_of_quartz_are_read_as_quartz_means_them() {
    // The table of Quartz's CronTrigger tutorial, from Thursday, 1 January 2026.
    for (text, expected) in [
        ("0 0 12 * * ?", "01-01 12:00, 01-02 12:00"),
        ("0 15 10 ? * *", "01-01 10:15, 01-02 10:15"),
        ("0 15 10 * * ?", "01-01 10:15, 01-02 10:15"),
        ("0 15 10 * * ? *", "01-01 10:15, 01-02 10:15"),
        ("0 15 10 * * ? 2005", ""),
        ("0 * 14 * * ?", "01-01 14:00, 01-01 14:01"),
        ("0 0/5 14 * * ?", "01-01 14:00, 01-01 14:05"),
        ("0 0/5 14,18 * * ?", "01-01 14:00, 01-01 14:05"),
        ("0 0-5 14 * * ?", "01-01 14:00, 01-01 14:01"),
        ("0 10,44 14 ? 3 WED", "03-04 14:10, 03-04 14:44"),
        ("0 15 10 ? * MON-FRI", "01-01 10:15, 01-02 10:15"),
        ("0 15 10 15 * ?", "01-15 10:15, 02-15 10:15"),
        ("0 15 10 L * ?", "01-31 10:15, 02-28 10:15"),
        ("0 15 10 L-2 * ?", "01-29 10:15, 02-26 10:15"),
        ("0 15 10 ? * 6L", "01-30 10:15, 02-27 10:15"),
        ("0 15 10 ? * 6L 2002-2005", ""),
        ("0 15 10 ? * 6#3", "01-16 10:15, 02-20 10:15"),
        ("0 0 12 1/5 * ?", "01-01 12:00, 01-06 12:00"),
        ("0 11 11 11 11 ?", "11-11 11:11, 11-11 11:11"),
        ("0 0 9 LW * ?", "01-30 09:00, 02-27 09:00"),
        ("0 0 9 15W * ?", "01-15 09:00, 02-16 09:00"),
        ("0 0 9 ? * L", "01-03 09:00, 01-10 09:00"),
        ("0 0 9 13 * FRI", "02-13 09:00, 03-13 09:00"),
        ("0 /20 9 ? NOV-FEB 1", "01-04 09:00, 01-04 09:20"),
        ("0 0 9 ? * MONDAY-Wednesday", "01-05 09:00, 01-06 09:00"),
        ("@weekly", "01-04 00:00, 01-11 00:00"),
    ] {
        let schedule = Cron::quartz(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found: Vec<String> = next_n(&schedule, time("2026-01-01T00:00:00Z"), 2)
            .iter()
            .map(|at| at.format("%m-%d %H:%M").to_string())
            .collect();
        assert_eq!(found.join(", "), expected, "{text}");
    }
}

#[test]
fn a_quartz_expression_has_a_zone_and_years() {
    let winter = time("2026-01-01T00:00:00Z");
    let rome = Cron::quartz("0 0 9 ? * MON 2026,2028/2 europe/rome").unwrap();
    assert_eq!(rome.to_string(), "@quartz 0 0 9 ? * MON 2026,2028/2 Europe/Rome");
    assert_eq!(parse(&rome.to_string()), Ok(AnySchedule::Quartz(rome.clone())));
    assert_eq!(next_n(&rome, winter, 1), [time("2026-01-05T08:00:00Z")]);
    assert_eq!(next_n(&rome, time("2027-01-01T00:00:00Z"), 1), [time("2028-01-03T08:00:00Z")]);
    let by_zone = Cron::quartz("0 0 9 ? * MON 2026,2028/2").unwrap();
    assert!(!by_zone.names_zone());
    assert_eq!(by_zone.in_zone("Europe/Rome").unwrap(), rome);
    // The clocks of a zone that lags behind UTC show the old year when UTC shows the new one.
    let last = Cron::quartz("0 0 20 31 12 ? 2199 America/New_York").unwrap();
    let instant = time("2200-01-01T01:00:00Z");
    assert_eq!(next_n(&last, winter, 2), [instant]);
    for after in [instant, time("2599-12-31T00:00:00Z"), time("2600-01-01T00:30:00Z")] {
        assert!(next_n(&last, after, 1).is_empty(), "{after}");
    }
    use allora_schedule::Schedule;
    assert_eq!(last.count(winter, Time::MAX_UTC), Some(1));
    assert_eq!(last.latest_at(winter, Time::MAX_UTC), Some(instant));
    let nightly = Cron::quartz("0 30 2 * * ? 2026 Europe/Rome").unwrap();
    assert_eq!(nightly.notes(winter, Time::MAX_UTC).len(), 2);
    // `0/30` is Quartz's `*/30`, and follows elapsed time.
    let wild = Cron::quartz("0 0/30 2 * * ? Europe/Rome").unwrap();
    let before = time("2026-03-28T12:00:00Z");
    assert_eq!(next_n(&wild, before, 1), [time("2026-03-30T00:00:00Z")]);
}

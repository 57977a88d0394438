//! The command lines of PerfectSched's users. What it answered is known from running it; where
//! this command answers otherwise on purpose, the test says so.

use crate::site::Site;

const HEADER: &str =
    "name  kind  state  left  schedule  delay  timezone  scheduled_at  due_at  data\n";

/// A place where `allora` is used with a store of its own.
struct Desk(Site);

impl Desk {
    fn new() -> Self {
        let desk = Self(Site::new(""));
        assert_eq!(desk.say(&["init"]), "");
        desk
    }

    /// A command that succeeds; returns its output.
    #[track_caller]
    fn say(&self, args: &[&str]) -> String {
        self.0.allora(&[args, &["--url", "sqlite:s.db"]].concat()).fine()
    }

    /// A command that is refused with this code; answers with the line that says why.
    #[track_caller]
    fn refused(&self, code: i32, args: &[&str]) -> String {
        self.0.allora(&[args, &["--url", "sqlite:s.db"]].concat()).refused(code)
    }
}

#[test]
fn a_store_is_made_once_and_again() {
    let site = Site::new("");
    let said = site.allora(&["list", "--url", "sqlite:s.db"]).refused(1);
    assert!(said.contains("there is no store at sqlite:s.db; `allora init` makes one"), "{said}");
    assert!(!site.path("s.db").exists(), "looking makes nothing");
    let desk = Desk::new();
    assert_eq!(desk.say(&["init"]), "");
    assert_eq!(desk.say(&["list"]), format!("{HEADER}0 entries.\n"));
}

#[test]
fn schedules_are_added_listed_and_deleted() {
    let desk = Desk::new();
    for args in [
        &["add", "s1", "user_task", "* * * * *", "{}", "-s", "1337378640"][..],
        &[
            "add",
            "-d",
            "30",
            "-t",
            "Asia/Tokyo",
            "-s",
            "1356966000",
            "sched-id",
            "type1",
            "0 * * * *",
            "{\"key\":\"value\"}",
        ],
        &[
            "add",
            "-s",
            "1356966001",
            "-a",
            "1356970000",
            "x.at",
            "type1",
            "0 * * * *",
            "{\"key\":\"value\",\"n\":[1,2]}",
        ],
        &["add", "-s", "1356966000", "app.hourly", "", "@hourly", "{}"],
        &["add", "nulld", "t", "0 0 * * *", "null", "-s", "1356966000"],
    ] {
        assert_eq!(desk.say(args), "");
    }
    // The data as JSON, not as Ruby writes it.
    let expected = "name        kind       state    left      schedule   delay  timezone    scheduled_at               due_at                     data
s1          user_task  overdue  >99d ago  * * * * *  0      UTC         2012-05-18 22:04:00 +0000  2012-05-18 22:04:00 +0000  {}
app.hourly  app        overdue  >99d ago  @hourly    0      UTC         2012-12-31 15:00:00 +0000  2012-12-31 15:00:00 +0000  {}
sched-id    type1      overdue  >99d ago  0 * * * *  30     Asia/Tokyo  2012-12-31 15:00:00 +0000  2012-12-31 15:00:30 +0000  {\"key\":\"value\"}
x.at        type1      overdue  >99d ago  0 * * * *  0      UTC         2012-12-31 16:00:00 +0000  2012-12-31 16:06:40 +0000  {\"key\":\"value\",\"n\":[1,2]}
nulld       t          overdue  >99d ago  0 0 * * *  0      UTC         2013-01-01 00:00:00 +0000  2013-01-01 00:00:00 +0000  {}
5 entries.
";
    assert_eq!(desk.say(&["list"]), expected);
    assert_eq!(desk.say(&["delete", "s1"]), "");
    assert!(desk.refused(1, &["delete", "s1"]).contains("\"s1\""));
    assert!(desk.say(&["list"]).ends_with("4 entries.\n"));
}

#[test]
fn a_refused_command_changes_nothing() {
    let desk = Desk::new();
    // It does not come due meanwhile.
    desk.say(&["add", "s1", "user_task", "0 0 1 1 *", "{}"]);
    let before = desk.say(&["list", "--json"]);
    for (args, code, says) in [
        (&["add", "s1", "user_task", "* * * * *", "{}"][..], 1, "\"s1\" exists already"),
        (&["add", "bad2", "t", "61 * * * *", "{}"], 2, "minute, column 1: \"61\""),
        (&["add", "bad3", "t", "0 0 * * *", "{not json"], 2, "line 1 column 2"),
        (&["add", "bad4", "t", "0 0 * * *", "{}", "-t", "Mars/Olympus"], 2, "Mars/Olympus"),
        (&["add", "bad6", "t", "0 0 * * *", "[1,2]"], 2, "an array"),
        // A usage error is told apart from a failure: the code is 2.
        (&["add", "bad5", "t", "0 0 * * *"], 2, "<DATA>"),
        (&["add", "bad7", "t", "0 0 * * *", "{}", "-d", "abc"], 2, "--delay"),
        (&["delete"], 2, "<NAME|"),
        (&["list", "extra"], 2, "extra"),
        // Nothing runs before its scheduled time.
        (&["add", "neg", "t", "0 0 * * *", "{}", "-d", "-60"], 2, "negative"),
        (&["add", "early", "t", "0 0 * * *", "{}", "-s", "1356966000", "-a", "0"], 2, "before"),
        (&["add", "", "t", "0 0 * * *", "{}"], 2, "empty"),
        (&["add", "past", "t", "@at 2020-01-01T00:00:00Z", "{}"], 2, "never run"),
        (&["modify", "s1", "--cron", "61 * * * *"], 2, "minute"),
        (&["modify", "s1", "--data", "7"], 2, "a number"),
        (&["modify", "s2", "--cron", "@daily"], 1, "\"s2\""),
        (&["pause", "s2"], 1, "\"s2\""),
        (&["trigger", "s2"], 1, "\"s2\""),
        (&["show", "s2"], 1, "\"s2\""),
    ] {
        let said = desk.refused(code, args);
        assert!(said.contains(says), "{args:?}: {said}");
    }
    assert_eq!(desk.say(&["list", "--json"]), before);
}

#[test]
fn six_fields_have_seconds_first() {
    let desk = Desk::new();
    desk.say(&["add", "fine", "t", "*/10 * * * * *", "{}", "-s", "1356966001"]);
    assert!(desk.say(&["list"]).contains("2012-12-31 15:00:10 +0000"));
}

#[test]
fn its_table_is_imported_with_its_next_times() {
    use sqlx::{Connection, Executor, SqliteConnection, raw_sql};
    let desk = Desk::new();
    let old = desk.0.path("old.db");
    let url = format!("sqlite:{}?mode=rwc", old.display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        let rows = "\
            CREATE TABLE perfect_sched (id VARCHAR(256) NOT NULL, timeout INT NOT NULL, \
              next_time INT NOT NULL, cron VARCHAR(128) NOT NULL, delay INT NOT NULL, \
              data BLOB NOT NULL, timezone VARCHAR(256) NULL, PRIMARY KEY (id)); \
            INSERT INTO perfect_sched VALUES \
              ('app.hourly', 4070908800, 4070908800, '@hourly', 0, '{}', NULL), \
              ('bad', 0, 0, 'soon', 0, '{}', NULL), \
              ('late', 4070913000, 4070908800, '0 * * * *', 30, \
                '{\"type\":\"type1\",\"key\":\"value\"}', 'Asia/Tokyo')";
        connection.execute(raw_sql(rows)).await.unwrap();
        connection.close().await.unwrap();
    });
    let import = |more: &[&str]| {
        let from = format!("sqlite:{}", old.display());
        let args = ["import", "--from", "perfectsched", &from, "--url", "sqlite:s.db"];
        desk.0.allora(&[&args[..], more].concat())
    };
    let dry = import(&["--dry-run"]);
    assert!(dry.out.ends_with("\n2 would be imported, 1 rejected.\n"), "{dry:?}");
    assert!(dry.err.contains("the row \"bad\": "), "{dry:?}");
    assert_eq!(desk.say(&["list"]), format!("{HEADER}0 entries.\n"));
    assert!(import(&[]).out.ends_with("\n2 imported, 1 rejected.\n"));
    let show = |name: &str| -> serde_json::Value {
        serde_json::from_str(&desk.say(&["show", name, "--json"])).unwrap()
    };
    let (hourly, late) = (show("app.hourly"), show("late"));
    assert_eq!(
        (&hourly["kind"], &hourly["due_at"]),
        (&"app".into(), &"2099-01-01T00:00:00Z".into())
    );
    assert_eq!((&late["kind"], &late["zone"]), (&"type1".into(), &"Asia/Tokyo".into()));
    assert_eq!(
        (&late["next"]["scheduled_at"], &late["due_at"]),
        (&"2099-01-01T00:00:00Z".into(), &"2099-01-01T01:10:00Z".into())
    );
    assert_eq!(late["data"], serde_json::json!({ "key": "value" }));
    let missing = import(&["--table", "other"]).refused(1);
    assert!(missing.contains("PerfectSched's table other cannot be read"), "{missing}");
}

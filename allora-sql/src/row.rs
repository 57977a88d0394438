//! A record as the columns of its row: what every take and finish touches is a number of its own,
//! what is rare is one column, and the payload is elsewhere.

use crate::driver::{Row, Value};
use allora_core::{
    Occurrence, Time,
    backend::{Counters, Next, Outcome},
    record::{Accepted, Hold, How, Record, TOMBSTONE, codec},
    time::{from_millis, saturating_add},
};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// A number.
    Int,
    /// A number or nothing.
    IntOrNull,
    /// A name of at most 200 bytes.
    Name,
    /// Bytes of any length.
    Bytes,
    /// Bytes or nothing.
    BytesOrNull,
}

/// The columns of the job table, in the order of every statement. The first is the key.
pub(crate) const JOB: &[(&str, Type)] = &[
    ("name", Type::Name),
    ("kind", Type::Name),
    ("definition", Type::Bytes),
    ("version", Type::Int),
    ("incarnation", Type::Int),
    ("edition", Type::Int),
    // The key of the payload in the data table; nothing for an empty one.
    ("data_edition", Type::IntOrNull),
    ("cursor_at", Type::IntOrNull),
    ("cursor_due", Type::IntOrNull),
    ("last_started", Type::IntOrNull),
    ("fence", Type::Int),
    ("holder", Type::BytesOrNull),
    ("claim", Type::BytesOrNull),
    ("hold_fence", Type::IntOrNull),
    ("hold_at", Type::IntOrNull),
    ("hold_attempt", Type::IntOrNull),
    ("hold_until", Type::IntOrNull),
    ("hold_leased", Type::IntOrNull),
    ("ended_fence", Type::IntOrNull),
    ("ended_how", Type::IntOrNull),
    ("last_outcome", Type::BytesOrNull),
    ("last_error", Type::BytesOrNull),
    ("started", Type::Int),
    ("ran", Type::Int),
    ("failed", Type::Int),
    ("cancelled", Type::Int),
    ("skipped", Type::Int),
    ("missed", Type::Int),
    ("lost", Type::Int),
    ("abandoned", Type::Int),
    ("gone_at", Type::IntOrNull),
    ("notice_at", Type::IntOrNull),
    ("more", Type::BytesOrNull),
];

/// The record's row; `data_edition` is where its payload is kept.
pub(crate) fn columns(name: &str, record: &Record, data_edition: Option<i64>) -> Vec<Value> {
    // A hold of a trigger has no room in the columns; it is rare.
    let inline = record.holds.first().filter(|hold| hold.run.trigger.is_none());
    let ended = record.ended;
    let Counters { started, ran, failed, cancelled, skipped, missed, lost, abandoned, .. } =
        record.counters;
    let last = record.last.as_ref();
    vec![
        Value::bytes(name),
        Value::bytes(&record.kind),
        Value::bytes(&record.definition),
        Value::bits(record.version),
        Value::int(record.incarnation),
        Value::int(record.edition),
        Value::Int(data_edition),
        Value::Int(record.cursor.map(|next| ms(next.at))),
        Value::Int(record.cursor.map(|next| ms(next.due_at))),
        Value::Int(record.last_started.map(ms)),
        Value::int(record.fence),
        Value::Bytes(inline.map(|hold| hold.node.clone().into_bytes())),
        Value::Bytes(inline.map(|hold| hold.claim.to_be_bytes().to_vec())),
        Value::Int(inline.map(|hold| hold.fence)),
        Value::Int(inline.map(|hold| ms(hold.run.at))),
        Value::Int(inline.map(|hold| hold.attempt.into())),
        Value::Int(inline.map(|hold| ms(hold.until))),
        Value::Int(inline.map(|hold| hold.at_least_once.into())),
        Value::Int(ended.map(|ended| ended.fence)),
        Value::Int(ended.map(|ended| how_number(ended.how))),
        Value::Bytes(last.map(|last| last.word().into())),
        Value::Bytes(last.map(Outcome::error).filter(|e| !e.is_empty()).map(Into::into)),
        Value::bits(started),
        Value::bits(ran),
        Value::bits(failed),
        Value::bits(cancelled),
        Value::bits(skipped),
        Value::bits(missed),
        Value::bits(lost),
        Value::bits(abandoned),
        Value::Int(record.gone.map(ms)),
        Value::Int(notice(record).map(ms)),
        Value::Bytes(more(record, usize::from(inline.is_some()))),
    ]
}

/// When the row is looked for: as work, or, of a tombstone, to be forgotten.
fn notice(record: &Record) -> Option<Time> {
    match record.gone {
        Some(gone) => Some(saturating_add(gone, TOMBSTONE)),
        None => record.notice_at(),
    }
}

/// What has no column of its own, as a record in which everything else is blank.
fn more(record: &Record, inline: usize) -> Option<Vec<u8>> {
    let holds = record.holds.get(inline..).unwrap_or_default();
    let rare = !holds.is_empty()
        || !record.again.is_empty()
        || !record.triggers.is_empty()
        || !record.dead.is_empty()
        || record.unheld.is_some()
        || record.paused.is_some();
    rare.then(|| {
        codec::encode(&Record {
            unheld: record.unheld.clone(),
            holds: holds.to_vec(),
            again: record.again.clone(),
            triggers: record.triggers.clone(),
            dead: record.dead.clone(),
            paused: record.paused.clone(),
            ..blank()
        })
    })
}

fn blank() -> Record {
    Record {
        kind: String::new(),
        definition: String::new(),
        version: 0,
        incarnation: 0,
        edition: 0,
        data: Vec::new(),
        cursor: None,
        last_started: None,
        fence: 0,
        unheld: None,
        holds: Vec::new(),
        again: Vec::new(),
        triggers: Vec::new(),
        dead: Vec::new(),
        paused: None,
        gone: None,
        ended: None,
        last: None,
        counters: Counters::default(),
    }
}

/// A row as it was read.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) data_edition: Option<i64>,
    /// The record, or why nobody can read it.
    pub(crate) record: Result<Record, String>,
    /// The fence column: good also where the rest is not.
    pub(crate) fence: i64,
    /// The payload has changed between the reading of the row and that of the payload: read again.
    pub(crate) torn: bool,
}

/// Reads the columns of [`JOB`], and the payload after them.
pub(crate) fn stored(row: Row) -> Stored {
    let mut cells = Cells { cells: row.into_iter() };
    let name = cells.bytes().unwrap_or_default();
    let mut stored = Stored {
        name: String::from_utf8_lossy(&name).into_owned(),
        data_edition: None,
        record: Err(String::new()),
        fence: 0,
        torn: false,
    };
    stored.record = cells.record(&mut stored);
    stored
}

struct Cells {
    cells: std::vec::IntoIter<Value>,
}

impl Cells {
    fn record(&mut self, stored: &mut Stored) -> Result<Record, String> {
        let kind = self.text("kind")?;
        let definition = self.text("definition")?;
        let version = self.bits()?;
        let incarnation = self.int()?;
        let edition = self.int()?;
        stored.data_edition = self.int_or_null();
        let cursor = next(self.int_or_null(), self.int_or_null())?;
        let last_started = self.time()?;
        stored.fence = self.int()?;
        let inline = self.hold()?;
        let ended = ended(self.int_or_null(), self.int_or_null())?;
        let last = last(self.bytes(), self.bytes())?;
        let mut counters = Counters::default();
        for counter in [
            &mut counters.started,
            &mut counters.ran,
            &mut counters.failed,
            &mut counters.cancelled,
            &mut counters.skipped,
            &mut counters.missed,
            &mut counters.lost,
            &mut counters.abandoned,
        ] {
            *counter = self.bits()?;
        }
        let gone = self.time()?;
        let _notice_at = self.int_or_null();
        let more = match self.bytes() {
            None => blank(),
            Some(more) => codec::decode(&more).map_err(|why| why.to_string())?,
        };
        let data = self.bytes();
        stored.torn = stored.data_edition.is_some() && data.is_none();
        Ok(Record {
            kind,
            definition,
            version,
            incarnation,
            edition,
            data: data.unwrap_or_default(),
            cursor,
            last_started,
            fence: stored.fence,
            unheld: more.unheld,
            holds: inline.into_iter().chain(more.holds).collect(),
            again: more.again,
            triggers: more.triggers,
            dead: more.dead,
            paused: more.paused,
            gone,
            ended,
            last,
            counters,
        })
    }

    fn hold(&mut self) -> Result<Option<Hold>, String> {
        let (node, claim) = (self.bytes(), self.bytes());
        let (fence, at, attempt) = (self.int_or_null(), self.time()?, self.int_or_null());
        let (until, leased) = (self.time()?, self.int_or_null());
        let Some(fence) = fence else { return Ok(None) };
        let hold = || {
            Some(Hold {
                node: String::from_utf8(node?).ok()?,
                claim: u128::from_be_bytes(claim?.try_into().ok()?),
                fence,
                run: Occurrence::from(at?),
                attempt: attempt?.try_into().ok()?,
                until: until?,
                at_least_once: leased? != 0,
            })
        };
        hold().map(Some).ok_or_else(|| "the columns of its hold do not fit together".to_owned())
    }

    fn int(&mut self) -> Result<i64, String> {
        self.int_or_null().ok_or_else(|| "a number is missing".to_owned())
    }

    fn int_or_null(&mut self) -> Option<i64> {
        self.cells.next().and_then(Value::into_int)
    }

    fn bits(&mut self) -> Result<u64, String> {
        self.int().map(i64::cast_unsigned)
    }

    fn time(&mut self) -> Result<Option<Time>, String> {
        self.int_or_null().map(time).transpose()
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        self.cells.next().and_then(Value::into_bytes)
    }

    fn text(&mut self, what: &str) -> Result<String, String> {
        let bytes = self.bytes().ok_or_else(|| format!("its {what} is missing"))?;
        String::from_utf8(bytes).map_err(|_| format!("its {what} is not text"))
    }
}

fn next(at: Option<i64>, due_at: Option<i64>) -> Result<Option<Next>, String> {
    match (at, due_at) {
        (None, None) => Ok(None),
        (Some(at), Some(due_at)) => Ok(Some(Next { at: time(at)?, due_at: time(due_at)? })),
        _ => Err("its cursor is only half there".to_owned()),
    }
}

fn ended(fence: Option<i64>, how: Option<i64>) -> Result<Option<Accepted>, String> {
    let Some(fence) = fence else { return Ok(None) };
    let how = match how {
        Some(0) => How::Finished,
        Some(1) => How::Retried,
        Some(2) => How::Released,
        _ => return Err("how its last run ended is not known".to_owned()),
    };
    Ok(Some(Accepted { fence, how }))
}

/// How an ending is written: [`How::Finished`] is 0 also in the statements.
fn how_number(how: How) -> i64 {
    match how {
        How::Finished => 0,
        How::Retried => 1,
        How::Released => 2,
    }
}

/// An outcome from its word and its error.
pub(crate) fn last(
    word: Option<Vec<u8>>,
    error: Option<Vec<u8>>,
) -> Result<Option<Outcome>, String> {
    let Some(word) = word else { return Ok(None) };
    let error = error.unwrap_or_default();
    let known =
        Outcome::from_word(&String::from_utf8_lossy(&word), &String::from_utf8_lossy(&error));
    known.map(Some).ok_or_else(|| "how its last run ended is an unknown word".to_owned())
}

/// An instant as it is stored: whole milliseconds.
pub(crate) fn ms(at: Time) -> i64 {
    at.timestamp_millis()
}

/// An instant that was stored.
pub(crate) fn time(ms: i64) -> Result<Time, String> {
    from_millis(ms).ok_or_else(|| format!("the instant {ms} ms is not in the years 1970 to 9999"))
}

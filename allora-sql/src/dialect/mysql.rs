//! MySQL, from 8.0.19, and MariaDB, from 10.5.

use super::{
    Dialect, Flavour, Keys, RequestContext, SimpleClaim, SimpleCompletion, SingleStatement,
    single_statement::{CHUNK, Columns, End, NOW, of_head, of_t},
};
use crate::driver::{Statement, Type, Value};
use allora_core::backend::ClaimDue;

pub(crate) struct MySqlFlavour;

/// Not NOW(6), which is the begin of the statement, before it waited for a lock. The session's zone
/// is +00:00.
pub(crate) const CLOCK: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', SYSDATE(6))";

impl Flavour for MySqlFlavour {
    fn column(&self, of: Type) -> &'static str {
        match of {
            Type::Id => "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",
            Type::Int => "BIGINT NOT NULL",
            Type::IntOrNull => "BIGINT NULL",
            // The default collation makes one key of `j`, `J` and `j `; bytes are bytes.
            Type::Name => "VARBINARY(255) NOT NULL",
            Type::Bytes => "LONGBLOB NOT NULL",
            Type::BytesOrNull => "LONGBLOB NULL",
        }
    }

    fn table_options(&self, _: &str) -> &'static str {
        " ENGINE = InnoDB ROW_FORMAT = DYNAMIC"
    }

    fn clock(&self) -> &'static str {
        CLOCK
    }

    /// MySQL has it from 8.0.1, MariaDB from 10.6. Each takes the other's for a comment.
    fn for_update_of_free_rows(&self) -> &'static str {
        " FOR UPDATE /*!80001 SKIP LOCKED */ /*M!100600 SKIP LOCKED */"
    }

    fn or_replace(&self, _: &str, columns: &[&str]) -> String {
        let set: Vec<String> = columns.iter().map(|c| format!("{c} = VALUES({c})")).collect();
        format!(" ON DUPLICATE KEY UPDATE {}", set.join(", "))
    }

    fn index_exists(&self, table: &str, index: &str) -> String {
        format!(
            "SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() \
             AND table_name = '{table}' AND index_name = '{index}' LIMIT 1"
        )
    }

    fn table_exists(&self, table: &str) -> String {
        format!(
            "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() \
             AND table_name = '{table}'"
        )
    }

    fn column_exists(&self, table: &str, column: &str) -> String {
        format!(
            "SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE() \
             AND table_name = '{table}' AND column_name = '{column}'"
        )
    }

    fn lock(&self, prefix: &str) -> Option<String> {
        // Every DDL statement commits, so that a transaction holds nothing here. The names of such
        // locks belong to the whole server and have at most 64 characters. MySQL 9.6 has no MD5 any
        // more.
        Some(format!("SELECT GET_LOCK(SHA2(CONCAT('allora/', DATABASE(), '/{prefix}'), 224), 10)"))
    }

    fn unlimited(&self) -> Option<&'static str> {
        // Another node may be changing the same tables.
        Some("SET /*M!100300 SESSION max_statement_time = 0, */ SESSION lock_wait_timeout = 60")
    }

    fn impatient(&self) -> Option<&'static str> {
        // In whole seconds.
        Some("SET SESSION lock_wait_timeout = 1")
    }

    fn ends_migration_with_session(&self) -> bool {
        true
    }

    fn pause(&self, ms: u64) -> Option<String> {
        Some(format!("DO SLEEP({ms} / 1000.0)"))
    }

    fn kinds_at_once(&self) -> usize {
        // Their names fit into a temporary table in memory.
        16
    }

    fn has_partial_indexes(&self) -> bool {
        false
    }

    fn whole_division(&self) -> &'static str {
        "DIV"
    }

    fn typed_placeholder(&self, sql: &mut String, _: usize, of: Type) {
        sql.push_str(match of {
            Type::Id | Type::Int | Type::IntOrNull => "CAST(? AS SIGNED)",
            Type::Name | Type::Bytes | Type::BytesOrNull => "CAST(? AS BINARY)",
        });
    }

    /// An `UPDATE` returns nothing. A claim that succeeded is found by its id, which no other claim
    /// has. A claim whose lease is gone again when it is read back was too slow, and does not belong
    /// to this node any more. Nor does one whose lease has ended: it may be of the same claim, sent
    /// before, and then the general path claims it again, as another attempt.
    fn claims(
        &self,
        dialect: &Dialect,
        context: &RequestContext<'_>,
        claims: &[SimpleClaim],
    ) -> SingleStatement {
        let mut args = Vec::new();
        let rows = claims.iter().map(SimpleClaim::values).collect();
        let states = beside_states(dialect, context, SimpleClaim::COLUMNS, rows, &mut args);
        let text = format!(
            "UPDATE {states} SET {} WHERE {} AND {}",
            SimpleClaim::set(self, of_t),
            SimpleClaim::condition(self),
            SimpleClaim::in_time(self, of_t),
        );
        let write = Statement::new(text, args, b"");
        let ids: Vec<i64> = claims.iter().map(|claim| claim.id).collect();
        let claim_ids: Vec<&[u8]> = claims.iter().map(|claim| &claim.claim_id[..]).collect();
        let (is_id, mut args) = self.is_any("id", Keys::Ids(&ids), 1);
        let (is_claim, more) =
            self.is_any("lease_claim_id", Keys::Names(&claim_ids), args.len() + 1);
        args.extend(more);
        let text = format!(
            "SELECT {CLOCK}, id, lease_scheduled_at, lease_fence, incarnation, lease_until \
             FROM {}_state WHERE {is_id} AND {is_claim} AND lease_attempt = 1 AND rare < 2 \
             AND lease_until * 1000 > COALESCE(CAST(? AS SIGNED), {CLOCK})",
            dialect.prefix
        );
        args.push(Value::Int(context.now));
        let read = Statement::new(text, args, SimpleClaim::SHAPE);
        SingleStatement::ReadBack { write, read }
    }

    /// A completion always changes its row, so that the number of rows says whether all were
    /// accepted. `LAST_INSERT_ID` of an expression returns the clock with that number.
    fn completions(
        &self,
        dialect: &Dialect,
        context: &RequestContext<'_>,
        end: End,
        completions: &[SimpleCompletion],
    ) -> SingleStatement {
        let mut args = Vec::new();
        let rows = completions.iter().map(SimpleCompletion::values).collect();
        let states = beside_states(dialect, context, SimpleCompletion::COLUMNS, rows, &mut args);
        let version = format!("s.version + 1 + 0 * LAST_INSERT_ID({NOW})");
        let text = format!(
            "UPDATE {states} SET {} WHERE {}",
            SimpleCompletion::set(self, end, false, &version, of_t),
            SimpleCompletion::condition(end, of_t),
        );
        SingleStatement::Counted(Statement::new(text, args, b""))
    }

    fn claim_locked(
        &self,
        dialect: &Dialect,
        context: &RequestContext<'_>,
        query: &ClaimDue<'_>,
        ids: &[i64],
    ) -> Option<Statement> {
        let mut args = Vec::new();
        let context = dialect.claim_context(context, query, &mut args);
        let (is_id, ids) = self.is_any("s.id", Keys::Ids(ids), args.len() + 1);
        args.extend(ids);
        let text = format!(
            "UPDATE ({context} LIMIT 1) c STRAIGHT_JOIN {}_state s SET {} WHERE {is_id} AND {}",
            dialect.prefix,
            SimpleClaim::set(self, of_head),
            SimpleClaim::in_time(self, of_head),
        );
        Some(Statement::new(text, args, b""))
    }

    fn ended(
        &self,
        dialect: &Dialect,
        context: &RequestContext<'_>,
        completions: &[SimpleCompletion],
    ) -> Vec<Statement> {
        let ids: Vec<i64> = completions.iter().map(|completion| completion.id).collect();
        let columns = [SimpleCompletion::COLUMNS, &[SimpleCompletion::OUTPUT]].concat();
        // With the outputs, half a batch has less than 1 MiB.
        let entries = if dialect.has_entries { completions } else { &[] };
        let entries = entries.chunks(CHUNK / 2).map(|completions| {
            let mut args = Vec::new();
            let rows = completions.iter().map(SimpleCompletion::values_with_output).collect();
            let states = beside_states(dialect, context, &columns, rows, &mut args);
            Statement::new(dialect.ended_entries("", &states), args, b"")
        });
        let last = completions.iter().filter(|one| one.ends_schedule());
        let rows: Vec<_> = last.map(SimpleCompletion::values).collect();
        let flags = (!rows.is_empty()).then(|| {
            let mut args = Vec::new();
            let states =
                beside_states(dialect, context, SimpleCompletion::COLUMNS, rows, &mut args);
            Statement::new(dialect.ended_flags("", &states), args, b"")
        });
        let written: Vec<Statement> = entries.chain(flags).collect();
        match written.is_empty() {
            true => written,
            false => [vec![dialect.lock_versions(&ids)], written].concat(),
        }
    }

    fn extends_in_single_statement(&self) -> bool {
        false
    }
}

/// The states `s` beside the context `c` and these rows `t`, in their order. The types of the rows
/// are those of the row's columns; MySQL wants a word before each that MariaDB does not know, and
/// takes for a comment.
fn beside_states(
    dialect: &Dialect,
    context: &RequestContext<'_>,
    columns: &Columns,
    rows: Vec<Vec<Value>>,
    args: &mut Vec<Value>,
) -> String {
    let context = dialect.request_context(context, args);
    let types = columns.iter().map(|(name, of)| match of {
        Type::Id | Type::Int | Type::IntOrNull => format!("fence AS {name}"),
        Type::Name | Type::Bytes => format!("kind AS {name}"),
        // A column of names would cut it.
        Type::BytesOrNull => format!("lease_node AS {name}"),
    });
    let types = types.collect::<Vec<_>>().join(", ");
    let values = dialect.values("/*!80019 ROW */ ", columns, rows, args);
    let states = format!("{}_state", dialect.prefix);
    format!(
        "({context} LIMIT 1) c STRAIGHT_JOIN \
           (SELECT {types} FROM {states} WHERE 1 = 0 UNION ALL VALUES {values}) t \
         STRAIGHT_JOIN {states} s ON s.id = t.of_id"
    )
}

CREATE TABLE IF NOT EXISTS {p}_meta (name BLOB NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (name)) STRICT
CREATE TABLE IF NOT EXISTS {p}_job (id INTEGER PRIMARY KEY AUTOINCREMENT, name BLOB NOT NULL, data_generation INTEGER, kind BLOB NOT NULL, definition BLOB NOT NULL, definition_version INTEGER NOT NULL, generation INTEGER NOT NULL, deleted_at INTEGER, UNIQUE (name)) STRICT
CREATE TABLE IF NOT EXISTS {p}_state (id INTEGER NOT NULL, version INTEGER NOT NULL, fence INTEGER NOT NULL, index_at INTEGER, wake_at INTEGER, kind BLOB NOT NULL, rare INTEGER NOT NULL, incarnation INTEGER NOT NULL, cursor_scheduled_at INTEGER, cursor_due_at INTEGER, last_started INTEGER, lease_node BLOB, lease_claim_id BLOB, lease_fence INTEGER, lease_scheduled_at INTEGER, lease_attempt INTEGER, lease_due_at INTEGER, lease_started_at INTEGER, lease_until INTEGER, lease_on_expiry INTEGER, ended_fence INTEGER, ended_how INTEGER, last_outcome BLOB, last_error BLOB, started INTEGER NOT NULL, succeeded INTEGER NOT NULL, failed INTEGER, cancelled INTEGER, skipped INTEGER, missed INTEGER, lost INTEGER, expired INTEGER, due_lease INTEGER, PRIMARY KEY (id)) STRICT
CREATE TABLE IF NOT EXISTS {p}_rare (id INTEGER NOT NULL, more BLOB, cold BLOB, PRIMARY KEY (id)) STRICT
CREATE TABLE IF NOT EXISTS {p}_data (id INTEGER NOT NULL, generation INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (id, generation)) STRICT
CREATE TABLE IF NOT EXISTS {p}_history (fence INTEGER NOT NULL, name BLOB NOT NULL, kind BLOB NOT NULL, scheduled_at INTEGER NOT NULL, trigger_id BLOB, last_scheduled_at INTEGER, occurrences INTEGER, due_at INTEGER, attempt INTEGER NOT NULL, node BLOB NOT NULL, started_at INTEGER, ended_at INTEGER, outcome BLOB NOT NULL, error BLOB, reason BLOB, output BLOB, value BLOB, is_failure INTEGER NOT NULL, PRIMARY KEY (fence, name)) STRICT
CREATE TABLE IF NOT EXISTS {p}_change (fence INTEGER NOT NULL, name BLOB NOT NULL, entry BLOB NOT NULL, PRIMARY KEY (fence, name)) STRICT
CREATE TABLE IF NOT EXISTS {p}_flag (flag BLOB NOT NULL, name BLOB NOT NULL, PRIMARY KEY (flag, name)) STRICT
CREATE INDEX {p}_state_index_at ON {p}_state (kind, index_at, id) WHERE index_at IS NOT NULL
CREATE INDEX {p}_history_name ON {p}_history (name, is_failure, fence)
CREATE INDEX {p}_change_name ON {p}_change (name, fence)
CREATE INDEX {p}_history_failure ON {p}_history (fence, name) WHERE is_failure + 0 = 1

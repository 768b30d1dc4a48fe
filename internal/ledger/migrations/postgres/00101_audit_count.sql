-- +goose Up

-- Equal events that follow one another have one row, whose key is empty for other rows: how many there were, and when the last one was.
ALTER TABLE audit_log ADD COLUMN repeat_key TEXT NOT NULL DEFAULT '';
ALTER TABLE audit_log ADD COLUMN count BIGINT NOT NULL DEFAULT 1;
ALTER TABLE audit_log ADD COLUMN last_at BIGINT NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX audit_log_by_repeat ON audit_log (repeat_key) WHERE repeat_key <> '';

-- +goose Down
DROP INDEX audit_log_by_repeat;
ALTER TABLE audit_log DROP COLUMN last_at;
ALTER TABLE audit_log DROP COLUMN count;
ALTER TABLE audit_log DROP COLUMN repeat_key;

-- +goose Up

-- When a conference ended, and when the key of a creation was last used, 0 for rows of earlier versions: rows are removed by age.
ALTER TABLE conferences ADD COLUMN ended_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE conference_keys ADD COLUMN used_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX conference_keys_used ON conference_keys (used_at);
CREATE INDEX conference_epochs_epoch ON conference_epochs (epoch);
CREATE INDEX sessions_updated ON sessions (updated_at);

-- +goose Down
DROP INDEX sessions_updated;
DROP INDEX conference_epochs_epoch;
DROP INDEX conference_keys_used;
ALTER TABLE conference_keys DROP COLUMN used_at;
ALTER TABLE conferences DROP COLUMN ended_at;

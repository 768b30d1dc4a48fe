-- +goose Up
ALTER TABLE tasks ADD COLUMN finish_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN stand_in BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE usage_log ADD COLUMN finish_reason TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE usage_log DROP COLUMN finish_reason;
ALTER TABLE tasks DROP COLUMN stand_in;
ALTER TABLE tasks DROP COLUMN finish_reason;

-- +goose Up

-- The provider reported fewer input tokens than the prompt has: it did not read all of it.
ALTER TABLE tasks ADD COLUMN prompt_truncated BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE usage_log ADD COLUMN prompt_truncated BOOLEAN NOT NULL DEFAULT FALSE;

-- +goose Down
ALTER TABLE usage_log DROP COLUMN prompt_truncated;
ALTER TABLE tasks DROP COLUMN prompt_truncated;

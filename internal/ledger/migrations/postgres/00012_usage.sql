-- +goose Up

-- A row is written when its attempt begins, and completed with the outcome of the call.
ALTER TABLE usage_log ADD COLUMN cached_tokens BIGINT NOT NULL DEFAULT 0;    -- part of input_tokens
ALTER TABLE usage_log ADD COLUMN reasoning_tokens BIGINT NOT NULL DEFAULT 0; -- part of output_tokens
ALTER TABLE usage_log ADD COLUMN finished_at BIGINT NOT NULL DEFAULT 0;      -- 0 while the outcome is not recorded
UPDATE usage_log SET finished_at = created_at;

-- +goose Down
ALTER TABLE usage_log DROP COLUMN finished_at;
ALTER TABLE usage_log DROP COLUMN reasoning_tokens;
ALTER TABLE usage_log DROP COLUMN cached_tokens;

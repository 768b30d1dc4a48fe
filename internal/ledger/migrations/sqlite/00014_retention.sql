-- +goose Up

-- When the texts of a task were erased, 0 before that.
ALTER TABLE tasks ADD COLUMN erased_at BIGINT NOT NULL DEFAULT 0;
-- When the content of an asset was erased. The empty row remains while tasks refer to it.
ALTER TABLE assets ADD COLUMN erased_at BIGINT NOT NULL DEFAULT 0;

-- The assets of the variables of tasks.
CREATE TABLE task_assets (
    user_id  TEXT NOT NULL,
    task_id  TEXT NOT NULL,
    asset_id TEXT NOT NULL,
    PRIMARY KEY (user_id, task_id, asset_id),
    FOREIGN KEY (user_id, task_id) REFERENCES tasks (user_id, id) ON DELETE CASCADE
);
INSERT INTO task_assets (user_id, task_id, asset_id) SELECT DISTINCT t.user_id, t.id, v.value FROM tasks t, json_each(t.variables) v WHERE t.variables LIKE '{%';
CREATE INDEX task_assets_by_asset ON task_assets (asset_id);

CREATE INDEX tasks_with_texts ON tasks (ended_at) WHERE ended_at > 0 AND erased_at = 0;
CREATE INDEX tasks_ended ON tasks (ended_at) WHERE ended_at > 0;
CREATE INDEX assets_with_content ON assets (created_at, id) WHERE erased_at = 0;
CREATE INDEX assets_erased ON assets (erased_at) WHERE erased_at > 0;
CREATE INDEX credit_entries_by_time ON credit_entries (created_at) WHERE kind <> 'carried';
CREATE INDEX idempotency_keys_by_time ON idempotency_keys (accepted_at);

-- +goose Down
DROP INDEX idempotency_keys_by_time;
DROP INDEX credit_entries_by_time;
DROP INDEX assets_erased;
DROP INDEX assets_with_content;
DROP INDEX tasks_ended;
DROP INDEX tasks_with_texts;
DROP TABLE task_assets;
ALTER TABLE assets DROP COLUMN erased_at;
ALTER TABLE tasks DROP COLUMN erased_at;

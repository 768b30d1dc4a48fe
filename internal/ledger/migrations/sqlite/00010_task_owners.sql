-- +goose Up

-- The ids of tasks are chosen by users: a task is identified by its user and its id.
CREATE TABLE new_tasks (
    user_id         TEXT NOT NULL,
    id              TEXT NOT NULL,
    service_id      TEXT    NOT NULL,
    template        TEXT    NOT NULL,
    locale          TEXT    NOT NULL,
    tier            TEXT    NOT NULL,
    status          TEXT    NOT NULL,
    steps           TEXT    NOT NULL,
    step_index      INTEGER NOT NULL,
    begun_step      INTEGER NOT NULL, -- the furthest step that had an attempt, -1 for none
    variables       TEXT    NOT NULL,
    request_hash    TEXT    NOT NULL,
    fence           BIGINT  NOT NULL,
    result_asset_id TEXT REFERENCES assets (id),
    error_code      TEXT    NOT NULL,
    error_message   TEXT    NOT NULL,
    input_tokens    BIGINT  NOT NULL,
    output_tokens   BIGINT  NOT NULL,
    trace_id        TEXT    NOT NULL,
    request_id      TEXT    NOT NULL,
    created_at      BIGINT  NOT NULL,
    updated_at      BIGINT  NOT NULL,
    deadline_at     BIGINT  NOT NULL,
    ended_at        BIGINT  NOT NULL, -- 0 while the status is not final
    PRIMARY KEY (user_id, id)
);

INSERT INTO new_tasks SELECT user_id, id, service_id, template, locale, tier, status, steps, step_index, begun_step, variables,
    request_hash, fence, result_asset_id, error_code, error_message, input_tokens, output_tokens, trace_id, request_id,
    created_at, updated_at, deadline_at, ended_at FROM tasks;

CREATE TABLE new_steps (
    user_id         TEXT NOT NULL,
    task_id         TEXT NOT NULL,
    step            INTEGER NOT NULL,
    name            TEXT    NOT NULL,
    fence           BIGINT  NOT NULL,
    output_asset_id TEXT NOT NULL REFERENCES assets (id),
    finished_at     BIGINT  NOT NULL,
    PRIMARY KEY (user_id, task_id, step),
    FOREIGN KEY (user_id, task_id) REFERENCES new_tasks (user_id, id) ON DELETE CASCADE
);

INSERT INTO new_steps SELECT t.user_id, s.task_id, s.step, s.name, s.fence, s.output_asset_id, s.finished_at
    FROM steps s JOIN tasks t ON t.id = s.task_id;

DROP TABLE steps;
DROP TABLE tasks;
ALTER TABLE new_tasks RENAME TO tasks;
ALTER TABLE new_steps RENAME TO steps;

CREATE INDEX tasks_by_id ON tasks (id);
CREATE INDEX tasks_by_time ON tasks (created_at, id);
CREATE INDEX tasks_by_user ON tasks (user_id, created_at, id);
CREATE INDEX tasks_open ON tasks (user_id, id) WHERE ended_at = 0;
CREATE INDEX tasks_completed ON tasks (user_id, template, ended_at) WHERE status = 'COMPLETED';
CREATE INDEX tasks_by_result ON tasks (result_asset_id);
CREATE INDEX steps_by_output ON steps (output_asset_id);

-- One row per model call. No reference to tasks: the costs remain when a task is deleted.
CREATE TABLE new_usage_log (
    user_id        TEXT NOT NULL,
    task_id        TEXT NOT NULL,
    step           INTEGER NOT NULL,
    fence          BIGINT  NOT NULL,
    call_no        INTEGER NOT NULL,
    name           TEXT    NOT NULL,
    service_id     TEXT    NOT NULL,
    queue_id       TEXT    NOT NULL,
    model          TEXT    NOT NULL,
    provider       TEXT    NOT NULL,
    input_tokens   BIGINT  NOT NULL,
    output_tokens  BIGINT  NOT NULL,
    latency_ms     BIGINT  NOT NULL,
    first_token_ms BIGINT  NOT NULL,
    cost_micros    BIGINT  NOT NULL,
    success        BOOLEAN NOT NULL,
    error_code     TEXT    NOT NULL,
    created_at     BIGINT  NOT NULL,
    PRIMARY KEY (user_id, task_id, step, fence, call_no)
);

INSERT INTO new_usage_log SELECT user_id, task_id, step, fence, call_no, name, service_id, queue_id, model, provider,
    input_tokens, output_tokens, latency_ms, first_token_ms, cost_micros, success, error_code, created_at FROM usage_log;

DROP TABLE usage_log;
ALTER TABLE new_usage_log RENAME TO usage_log;
CREATE INDEX usage_log_by_user ON usage_log (user_id, created_at);

DROP INDEX audit_log_by_task;
CREATE INDEX audit_log_by_task ON audit_log (user_id, task_id, id);

-- The newest task that was accepted for each idempotency key of a user. The key is a hash.
CREATE TABLE idempotency_keys (
    user_id      TEXT NOT NULL,
    key          TEXT NOT NULL,
    number       BIGINT NOT NULL, -- counts the tasks of the key from 0
    task_id      TEXT NOT NULL,
    request_hash TEXT   NOT NULL,
    accepted_at  BIGINT NOT NULL,
    PRIMARY KEY (user_id, key)
);

-- There is no way back: the earlier schema cannot hold tasks of two users with the same id.

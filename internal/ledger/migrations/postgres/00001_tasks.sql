-- +goose Up

-- Times are Unix milliseconds, 0 when not set. JSON is TEXT. Ids compare
-- byte by byte, as in SQLite, so that both order pages alike.
CREATE TABLE assets (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id    TEXT COLLATE "C" NOT NULL,
    kind       TEXT   NOT NULL,
    media_type TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    size       BIGINT NOT NULL,
    sha256     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    content    BYTEA  NOT NULL
);

CREATE TABLE passages (
    id       BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    asset_id TEXT COLLATE "C" NOT NULL REFERENCES assets (id) ON DELETE CASCADE,
    user_id  TEXT COLLATE "C" NOT NULL,
    position INTEGER NOT NULL,
    text     TEXT    NOT NULL,
    terms    TSVECTOR NOT NULL, -- computed in Go, not parsed
    UNIQUE (asset_id, position)
);

CREATE INDEX passages_by_user ON passages (user_id);
CREATE INDEX passages_by_terms ON passages USING gin (terms);

CREATE TABLE tasks (
    id              TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id         TEXT COLLATE "C" NOT NULL,
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
    run_id          TEXT    NOT NULL,
    created_at      BIGINT  NOT NULL,
    updated_at      BIGINT  NOT NULL,
    deadline_at     BIGINT  NOT NULL,
    ended_at        BIGINT  NOT NULL -- 0 while the status is not final
);

CREATE INDEX tasks_by_user ON tasks (user_id, created_at, id);
CREATE INDEX tasks_open ON tasks (id) WHERE ended_at = 0;
CREATE INDEX tasks_completed ON tasks (user_id, template, ended_at) WHERE status = 'COMPLETED';

CREATE TABLE steps (
    task_id         TEXT COLLATE "C" NOT NULL REFERENCES tasks (id),
    step            INTEGER NOT NULL,
    name            TEXT    NOT NULL,
    fence           BIGINT  NOT NULL,
    output_asset_id TEXT    NOT NULL REFERENCES assets (id),
    finished_at     BIGINT  NOT NULL,
    PRIMARY KEY (task_id, step)
);

-- One row per model call. No reference to tasks: the costs remain when a task is deleted.
CREATE TABLE usage_log (
    task_id        TEXT COLLATE "C" NOT NULL,
    step           INTEGER NOT NULL,
    fence          BIGINT  NOT NULL,
    call_no        INTEGER NOT NULL,
    name           TEXT    NOT NULL,
    user_id        TEXT COLLATE "C" NOT NULL,
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
    PRIMARY KEY (task_id, step, fence, call_no)
);

CREATE INDEX usage_log_by_user ON usage_log (user_id, created_at);

CREATE TABLE audit_log (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event      TEXT   NOT NULL,
    task_id    TEXT COLLATE "C" NOT NULL,
    service_id TEXT   NOT NULL,
    queue_id   TEXT   NOT NULL,
    user_id    TEXT COLLATE "C" NOT NULL,
    detail     TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE INDEX audit_log_by_task ON audit_log (task_id, id);
CREATE INDEX audit_log_by_user ON audit_log (user_id, id);

-- +goose Down
DROP TABLE audit_log;
DROP TABLE usage_log;
DROP TABLE steps;
DROP TABLE tasks;
DROP TABLE passages;
DROP TABLE assets;

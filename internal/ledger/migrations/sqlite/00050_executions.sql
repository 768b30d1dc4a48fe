-- +goose Up

-- Accepted executions without their inputs and outputs, so that one that is lost outside of berth is found.
CREATE TABLE executions (
    id          TEXT   NOT NULL PRIMARY KEY,
    user_id     TEXT   NOT NULL,
    status      TEXT   NOT NULL,
    started_at  BIGINT NOT NULL, -- an id is used again only after a refusal, by a later run
    deadline_at BIGINT NOT NULL,
    ended_at    BIGINT NOT NULL, -- 0 while it is open
    body        TEXT   NOT NULL  -- the whole execution, JSON
);
CREATE INDEX executions_open ON executions (id) WHERE ended_at = 0;
CREATE INDEX executions_by_deadline ON executions (deadline_at, id) WHERE ended_at = 0;
CREATE INDEX executions_ended ON executions (ended_at) WHERE ended_at > 0;

-- +goose Down
DROP TABLE executions;

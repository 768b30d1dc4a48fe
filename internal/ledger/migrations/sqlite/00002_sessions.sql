-- +goose Up

-- Users and languages of sessions. Redis holds the pool of a session and decides it again after data loss.
CREATE TABLE sessions (
    id          TEXT   NOT NULL PRIMARY KEY,
    user_id     TEXT   NOT NULL,
    tenant_id   TEXT   NOT NULL,
    src_lang    TEXT   NOT NULL,
    tgt_lang    TEXT   NOT NULL,
    routing_key TEXT   NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL
);

-- +goose Down
DROP TABLE sessions;

-- +goose Up

-- Who talks in which languages. The pool they are given is decided in Redis, and again where Redis has lost it.
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

-- +goose Up

-- Operator settings of the fleet. Decisions use the copy in Redis.
CREATE TABLE settings (
    kind       TEXT   NOT NULL, -- pool, tenant, strategy or services
    id         TEXT   NOT NULL, -- of the pool or the tenant
    body       TEXT   NOT NULL, -- JSON; empty: to be deleted from Redis, then here
    version    BIGINT NOT NULL, -- rises with each change, deletions included
    applied    BIGINT NOT NULL, -- the version in Redis
    updated_by TEXT   NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (kind, id)
);

-- +goose Down
DROP TABLE settings;

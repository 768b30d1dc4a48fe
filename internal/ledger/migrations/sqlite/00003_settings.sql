-- +goose Up

-- What operators set about the fleet. Redis has a copy, which is what counts for decisions.
CREATE TABLE settings (
    kind       TEXT   NOT NULL, -- pool, tenant, strategy or services
    id         TEXT   NOT NULL, -- of the pool or the tenant
    body       TEXT   NOT NULL, -- JSON; empty: to be deleted from Redis, and then from here
    version    BIGINT NOT NULL, -- rises with each change, also over a deletion
    applied    BIGINT NOT NULL, -- the version that Redis has; lower while it has an older one
    updated_by TEXT   NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (kind, id)
);

-- +goose Down
DROP TABLE settings;

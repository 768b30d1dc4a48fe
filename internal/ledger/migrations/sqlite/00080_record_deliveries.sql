-- +goose Up

-- The last delivery of each conference's record by webhook.
CREATE TABLE record_deliveries (
    conference_id TEXT   NOT NULL PRIMARY KEY,
    state         TEXT   NOT NULL,
    attempts      BIGINT NOT NULL,
    error         TEXT   NOT NULL, -- of the last attempt
    updated_at    BIGINT NOT NULL
);
CREATE INDEX record_deliveries_updated ON record_deliveries (updated_at);

-- +goose Down
DROP TABLE record_deliveries;

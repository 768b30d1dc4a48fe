-- +goose Up

-- Since when passes of the reconciliation are expected, also if none has ever completed.
CREATE TABLE reconcile_since (
    since BIGINT NOT NULL
);
INSERT INTO reconcile_since (since) VALUES (CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT));

-- +goose Down
DROP TABLE reconcile_since;

-- +goose Up

-- Who may join each conference, and who was removed from it.
CREATE TABLE conference_participants (
    conference_id TEXT   NOT NULL,
    identity      TEXT   NOT NULL,
    name          TEXT   NOT NULL,
    role          TEXT   NOT NULL,
    link_id       TEXT   NOT NULL, -- of a guest; empty for others
    secret        TEXT   NOT NULL, -- of a guest: the hash of the secret that its browser keeps
    created_at    BIGINT NOT NULL,
    removed_at    BIGINT NOT NULL, -- 0 while it may join
    removed_by    TEXT   NOT NULL,
    PRIMARY KEY (conference_id, identity)
);
CREATE INDEX conference_participants_removed ON conference_participants (conference_id) WHERE removed_at > 0;
CREATE UNIQUE INDEX conference_participants_secret ON conference_participants (secret) WHERE secret <> '';
CREATE INDEX conference_participants_created ON conference_participants (created_at);

-- Invitations.
CREATE TABLE conference_links (
    id            TEXT   NOT NULL PRIMARY KEY,
    conference_id TEXT   NOT NULL,
    role          TEXT   NOT NULL,
    secret        TEXT   NOT NULL, -- a hash
    max_uses      BIGINT NOT NULL,
    uses          BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    created_by    TEXT   NOT NULL,
    revoked_at    BIGINT NOT NULL, -- 0 while it is valid
    revoked_by    TEXT   NOT NULL
);
CREATE UNIQUE INDEX conference_links_secret ON conference_links (secret);
CREATE INDEX conference_links_conference ON conference_links (conference_id, created_at);
CREATE INDEX conference_links_created ON conference_links (created_at);

-- +goose Down
DROP TABLE conference_links;
DROP TABLE conference_participants;

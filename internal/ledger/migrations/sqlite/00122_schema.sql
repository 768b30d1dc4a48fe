-- +goose Up

-- The whole schema, as one migration until the first release. Databases of earlier checkouts are not migrated: their last migration
-- was 115, so that this one is applied to them, and fails.
--
-- Times are Unix milliseconds, 0 when not set. JSON is TEXT. The tables of PostgreSQL have the same names and columns.

-- Uploads of users, and outputs of steps.
CREATE TABLE assets (
    id         TEXT NOT NULL PRIMARY KEY,
    user_id    TEXT NOT NULL,
    kind       TEXT NOT NULL,
    media_type TEXT NOT NULL,
    name       TEXT NOT NULL,
    size       BIGINT NOT NULL,
    sha256     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    content    BLOB NOT NULL,
    used_at    BIGINT NOT NULL, -- when an accepted task first used it; unused assets are deleted after a time
    erased_at  BIGINT NOT NULL  -- when its content was erased; the empty row remains while tasks refer to it
);
CREATE INDEX assets_unused ON assets (created_at) WHERE used_at = 0;
CREATE INDEX assets_with_content ON assets (created_at, id) WHERE erased_at = 0;
CREATE INDEX assets_erased ON assets (erased_at) WHERE erased_at > 0;

-- The texts of variables that are evidence, which later tasks search.
-- The terms are computed in Go, separated by spaces and in lower case, so that the simplest tokenizer suffices. The owner is a term,
-- too, so that a search reads the passages of one user only.
CREATE TABLE passages (
    id       INTEGER PRIMARY KEY,
    asset_id TEXT NOT NULL REFERENCES assets (id) ON DELETE CASCADE,
    user_id  TEXT NOT NULL,
    position INTEGER NOT NULL,
    text     TEXT NOT NULL,
    terms    TEXT NOT NULL,
    UNIQUE (asset_id, position)
);

CREATE VIRTUAL TABLE passage_index USING fts5 (
    owner, terms, content = '', contentless_delete = 1, tokenize = "ascii tokenchars '+#.'"
);

-- +goose StatementBegin
CREATE TRIGGER passages_inserted AFTER INSERT ON passages BEGIN
    INSERT INTO passage_index (rowid, owner, terms) VALUES (new.id, hex(new.user_id), new.terms);
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER passages_deleted AFTER DELETE ON passages BEGIN
    DELETE FROM passage_index WHERE rowid = old.id;
END;
-- +goose StatementEnd

-- The contents of templates, which never change, and the version that new tasks use.
CREATE TABLE template_versions (
    template   TEXT NOT NULL,
    version    TEXT NOT NULL, -- a hash of the files
    source     TEXT NOT NULL,   -- builtin, directory or api
    files      TEXT NOT NULL,   -- JSON: texts by name
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    used_at    BIGINT NOT NULL, -- when new tasks began to use it, or stopped
    PRIMARY KEY (template, version)
);

CREATE TABLE templates (
    template   TEXT NOT NULL PRIMARY KEY,
    version    TEXT NOT NULL,
    deleted    BOOLEAN NOT NULL, -- new tasks are refused
    changed_at BIGINT NOT NULL,
    changed_by TEXT NOT NULL,
    changes    BIGINT NOT NULL,  -- counts the changes of the row
    FOREIGN KEY (template, version) REFERENCES template_versions (template, version)
);

-- The ids of tasks are chosen by users: a task is identified by its user and its id.
CREATE TABLE tasks (
    user_id          TEXT NOT NULL,
    id               TEXT NOT NULL,
    service_id       TEXT NOT NULL,
    team_id          TEXT NOT NULL,
    app_id           TEXT NOT NULL,
    end_user         TEXT NOT NULL, -- of the application
    template         TEXT NOT NULL,
    template_version TEXT NOT NULL,
    locale           TEXT NOT NULL,
    tier             TEXT NOT NULL,
    price            BIGINT NOT NULL, -- thousandths of a credit; of a metered task what is reserved until it is settled
    metered          BOOLEAN NOT NULL,
    unsettled        BOOLEAN NOT NULL, -- the price is reserved
    budgets          TEXT NOT NULL, -- from which the price was taken, of a call with an API key
    forwarded        TEXT NOT NULL, -- of a call of OpenAI's protocol, else null
    status           TEXT NOT NULL,
    steps            TEXT NOT NULL,
    step_index       INTEGER NOT NULL,
    begun_step       INTEGER NOT NULL, -- the furthest step that had an attempt, -1 for none
    called_step      INTEGER NOT NULL, -- the furthest step for which a provider was called, -1 for none
    variables        TEXT NOT NULL,
    title            TEXT NOT NULL, -- empty when its texts were erased
    title_key        TEXT NOT NULL, -- the title as searches compare it
    title_asset      TEXT NOT NULL, -- the asset that the title was taken from, else empty
    request_hash     TEXT NOT NULL,
    fence            BIGINT NOT NULL,
    result_asset_id  TEXT REFERENCES assets (id),
    error_code       TEXT NOT NULL,
    error_message    TEXT NOT NULL,
    error_detail     TEXT NOT NULL, -- what a client of OpenAI's protocol reads, else empty
    input_tokens     BIGINT NOT NULL,
    output_tokens    BIGINT NOT NULL,
    finish_reason    TEXT NOT NULL,
    simulated        BOOLEAN NOT NULL,
    prompt_truncated BOOLEAN NOT NULL, -- a provider reported fewer input tokens than its prompt has
    trace_id         TEXT NOT NULL,
    request_id       TEXT NOT NULL,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    deadline_at      BIGINT NOT NULL,
    ended_at         BIGINT NOT NULL, -- 0 while the status is not final
    erased_at        BIGINT NOT NULL, -- when its texts were erased
    erase_at         BIGINT NOT NULL, -- when its texts are erased before those of other tasks, 0 for not
    PRIMARY KEY (user_id, id)
);
CREATE INDEX tasks_by_version ON tasks (template_version);
CREATE INDEX tasks_by_id ON tasks (id);
-- The columns by which lists are filtered are in the index: a page that has to pass many tasks reads no other row.
CREATE INDEX tasks_by_time ON tasks (created_at, id, user_id, status, template, service_id, team_id, ended_at);
CREATE INDEX tasks_by_user ON tasks (user_id, created_at, id, status, template, service_id, team_id, ended_at, title_key);
CREATE INDEX tasks_by_result ON tasks (result_asset_id);
CREATE INDEX tasks_forwarded ON tasks (user_id, request_hash, created_at) WHERE forwarded <> 'null';
CREATE INDEX tasks_to_erase ON tasks (erase_at) WHERE erase_at > 0 AND erased_at = 0;
CREATE INDEX tasks_open ON tasks (user_id, id) WHERE ended_at = 0;
CREATE INDEX tasks_by_deadline ON tasks (deadline_at) WHERE ended_at = 0;
CREATE INDEX tasks_completed ON tasks (user_id, template, ended_at) WHERE status = 'COMPLETED';
CREATE INDEX tasks_ended ON tasks (ended_at) WHERE ended_at > 0;
CREATE INDEX tasks_unsettled ON tasks (ended_at) WHERE unsettled AND ended_at > 0;
CREATE INDEX tasks_with_texts ON tasks (ended_at) WHERE ended_at > 0 AND erased_at = 0;

-- The finished steps of tasks.
CREATE TABLE steps (
    user_id         TEXT NOT NULL,
    task_id         TEXT NOT NULL,
    step            INTEGER NOT NULL,
    name            TEXT NOT NULL,
    fence           BIGINT NOT NULL,
    output_asset_id TEXT NOT NULL REFERENCES assets (id),
    finished_at     BIGINT NOT NULL,
    PRIMARY KEY (user_id, task_id, step),
    FOREIGN KEY (user_id, task_id) REFERENCES tasks (user_id, id) ON DELETE CASCADE
);
CREATE INDEX steps_by_output ON steps (output_asset_id);

-- The assets of the variables of tasks.
CREATE TABLE task_assets (
    user_id  TEXT NOT NULL,
    task_id  TEXT NOT NULL,
    asset_id TEXT NOT NULL,
    PRIMARY KEY (user_id, task_id, asset_id),
    FOREIGN KEY (user_id, task_id) REFERENCES tasks (user_id, id) ON DELETE CASCADE
);
CREATE INDEX task_assets_by_asset ON task_assets (asset_id);

-- The newest task that was accepted for each idempotency key of a user. The key is a hash.
CREATE TABLE idempotency_keys (
    user_id      TEXT NOT NULL,
    key          TEXT NOT NULL,
    number       BIGINT NOT NULL, -- counts the tasks of the key from 0
    task_id      TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    accepted_at  BIGINT NOT NULL,
    PRIMARY KEY (user_id, key)
);
CREATE INDEX idempotency_keys_by_time ON idempotency_keys (accepted_at);

CREATE TABLE accounts (
    user_id TEXT NOT NULL PRIMARY KEY,
    credits BIGINT NOT NULL CHECK (credits >= 0) -- thousandths
);

-- Every change of an account. The sum of a user's entries is the balance.
CREATE TABLE credit_entries (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id     TEXT NOT NULL REFERENCES accounts (user_id),
    kind        TEXT NOT NULL,
    amount      BIGINT NOT NULL, -- thousandths of a credit
    task_id     TEXT NOT NULL, -- empty for entries without a task
    acceptance  BIGINT NOT NULL, -- earlier acceptances of the task that were withdrawn
    request_key TEXT NOT NULL, -- of the operator's request, else empty
    reason      TEXT NOT NULL,
    created_at  BIGINT NOT NULL
);
CREATE INDEX credit_entries_by_user ON credit_entries (user_id, id);
CREATE INDEX credit_entries_by_time ON credit_entries (created_at) WHERE kind <> 'carried';
CREATE UNIQUE INDEX credit_entries_of_task ON credit_entries (user_id, task_id, kind, acceptance) WHERE task_id <> '';
CREATE UNIQUE INDEX credit_entries_of_request ON credit_entries (user_id, request_key) WHERE request_key <> '';

-- One row per model call: it is written when its attempt begins, and completed with the outcome of the call. No reference to tasks: the
-- costs remain when a task is deleted.
CREATE TABLE usage_log (
    user_id          TEXT NOT NULL,
    task_id          TEXT NOT NULL,
    step             INTEGER NOT NULL,
    fence            BIGINT NOT NULL,
    call_no          INTEGER NOT NULL,
    name             TEXT NOT NULL,
    service_id       TEXT NOT NULL,
    team_id          TEXT NOT NULL, -- of the task, as app_id
    app_id           TEXT NOT NULL,
    queue_id         TEXT NOT NULL,
    model            TEXT NOT NULL,
    provider         TEXT NOT NULL,
    upstream         TEXT NOT NULL, -- of the model
    input_tokens     BIGINT NOT NULL,
    output_tokens    BIGINT NOT NULL,
    cached_tokens    BIGINT NOT NULL, -- part of input_tokens
    reasoning_tokens BIGINT NOT NULL, -- part of output_tokens
    latency_ms       BIGINT NOT NULL,
    first_token_ms   BIGINT NOT NULL,
    cost_micros      BIGINT NOT NULL,
    credits          BIGINT NOT NULL, -- thousandths, what its user was charged for it
    success          BOOLEAN NOT NULL,
    error_code       TEXT NOT NULL,
    cause            TEXT NOT NULL, -- of a failure of the provider, empty for others
    finish_reason    TEXT NOT NULL,
    prompt_truncated BOOLEAN NOT NULL,
    created_at       BIGINT NOT NULL,
    finished_at      BIGINT NOT NULL, -- 0 while the outcome is not recorded
    PRIMARY KEY (user_id, task_id, step, fence, call_no)
);
CREATE INDEX usage_log_by_user ON usage_log (user_id, created_at, task_id, step, fence, call_no);
CREATE INDEX usage_log_by_time ON usage_log (created_at, user_id, task_id, step, fence, call_no);
CREATE INDEX usage_log_by_model ON usage_log (model, created_at, user_id, task_id, step, fence, call_no);

-- The events of tasks, and the actions of operators.
CREATE TABLE audit_log (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at BIGINT NOT NULL,
    user_id    TEXT NOT NULL, -- of the task, or the operator
    event      TEXT NOT NULL, -- of a task, or the operation id of an action
    task_id    TEXT NOT NULL,
    service_id TEXT NOT NULL,
    team_id    TEXT NOT NULL, -- of the task
    queue_id   TEXT NOT NULL,
    detail     TEXT NOT NULL,
    target     TEXT NOT NULL,    -- path of the request of an action, else empty
    request_id TEXT NOT NULL,
    status     INTEGER NOT NULL, -- HTTP status of the response to an action, 0 before it
    repeat_key TEXT NOT NULL,    -- equal events that follow one another have one row; empty for other rows
    count      BIGINT NOT NULL,  -- how many there were
    last_at    BIGINT NOT NULL   -- when the last one was
);
CREATE INDEX audit_log_by_time ON audit_log (created_at, id);
CREATE INDEX audit_log_by_user ON audit_log (user_id, created_at, id);
CREATE INDEX audit_log_by_event ON audit_log (event, created_at, id);
CREATE INDEX audit_log_by_task ON audit_log (user_id, task_id, created_at, id);
CREATE INDEX audit_log_by_team ON audit_log (team_id, created_at, id) WHERE team_id <> '';
CREATE UNIQUE INDEX audit_log_by_repeat ON audit_log (repeat_key) WHERE repeat_key <> '';

-- Users and languages of sessions. Redis holds the pool of a session and decides it again after data loss.
CREATE TABLE sessions (
    key         TEXT NOT NULL PRIMARY KEY, -- of user and id
    id          TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    tenant_id   TEXT NOT NULL,
    src_lang    TEXT NOT NULL,
    tgt_lang    TEXT NOT NULL,
    routing_key TEXT NOT NULL,
    version     BIGINT NOT NULL, -- rises with each change, so that Redis keeps the last one when two arrive in the other order
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL
);
CREATE INDEX sessions_by_time ON sessions (updated_at, key);
CREATE INDEX sessions_by_user ON sessions (user_id, updated_at, key);

-- Accepted executions without their inputs and outputs, so that one that is lost outside of berth is found.
CREATE TABLE executions (
    key         TEXT NOT NULL PRIMARY KEY, -- of user and id, as in the id of its workflow
    id          TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    status      TEXT NOT NULL,
    started_at  BIGINT NOT NULL, -- a key is used again only after a refusal, by a later run
    deadline_at BIGINT NOT NULL,
    ended_at    BIGINT NOT NULL, -- 0 while it is open
    body        TEXT NOT NULL    -- the whole execution, JSON
);
CREATE INDEX executions_by_id ON executions (id, user_id);
CREATE INDEX executions_by_time ON executions (started_at, key);
CREATE INDEX executions_by_user ON executions (user_id, started_at, key);
CREATE INDEX executions_open ON executions (key) WHERE ended_at = 0;
CREATE INDEX executions_by_deadline ON executions (deadline_at, key) WHERE ended_at = 0;
CREATE INDEX executions_ended ON executions (ended_at) WHERE ended_at > 0;

-- The last state of conferences, and their detail records once they have ended.
CREATE TABLE conferences (
    id         TEXT NOT NULL PRIMARY KEY,
    e164       TEXT NOT NULL, -- reused when the conference has ended
    user_id    TEXT NOT NULL,
    status     TEXT NOT NULL,
    owner      TEXT NOT NULL,   -- the unit that runs it; empty when none does
    generation BIGINT NOT NULL, -- of the owner
    epoch      BIGINT NOT NULL,
    revision   BIGINT NOT NULL, -- rises with each change
    moving     BIGINT NOT NULL, -- 1 while its unit is drained and it waits for another one
    created_at BIGINT NOT NULL,
    lost_at    BIGINT NOT NULL, -- while it waits for recovery
    refused_at BIGINT NOT NULL, -- when a unit first refused to recover it
    ended_at   BIGINT NOT NULL,
    body       TEXT NOT NULL    -- the whole conference, JSON
);
CREATE INDEX conferences_number ON conferences (e164, created_at);
CREATE INDEX conferences_user ON conferences (user_id, created_at, id);
CREATE INDEX conferences_created ON conferences (created_at, id);
CREATE INDEX conferences_status ON conferences (status, created_at, id);
CREATE INDEX conferences_owner ON conferences (owner, generation) WHERE owner <> '';
CREATE INDEX conferences_waiting ON conferences (refused_at, lost_at, id) WHERE status = 'awaiting-recovery';
CREATE INDEX conferences_open ON conferences (id) WHERE status <> 'ended' AND status <> 'deleted';
CREATE INDEX conferences_moving ON conferences (id) WHERE moving = 1;

-- The last epoch of each number. Rows are never deleted: a reused number must not fall behind an old unit.
CREATE TABLE conference_epochs (
    e164  TEXT NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL
);
CREATE INDEX conference_epochs_epoch ON conference_epochs (epoch);

-- The next number of each range.
CREATE TABLE conference_numbers (
    first TEXT NOT NULL PRIMARY KEY,
    next  BIGINT NOT NULL
);

-- The conference and its number that each idempotency key of a creation refers to.
CREATE TABLE conference_keys (
    id            TEXT NOT NULL PRIMARY KEY, -- of user and key
    request_hash  TEXT NOT NULL,
    conference_id TEXT NOT NULL, -- replaced when the first one does not exist any more
    e164          TEXT NOT NULL,
    used_at       BIGINT NOT NULL -- the last time
);
CREATE INDEX conference_keys_used ON conference_keys (used_at);

-- Who may join each conference, and who was removed from it.
CREATE TABLE conference_participants (
    conference_id TEXT NOT NULL,
    identity      TEXT NOT NULL,
    name          TEXT NOT NULL,
    role          TEXT NOT NULL,
    link_id       TEXT NOT NULL, -- of a guest; empty for others
    secret        TEXT NOT NULL, -- of a guest: the hash of the secret that its browser keeps
    created_at    BIGINT NOT NULL,
    removed_at    BIGINT NOT NULL, -- 0 while it may join
    removed_by    TEXT NOT NULL,
    PRIMARY KEY (conference_id, identity)
);
CREATE INDEX conference_participants_removed ON conference_participants (conference_id) WHERE removed_at > 0;
CREATE UNIQUE INDEX conference_participants_secret ON conference_participants (secret) WHERE secret <> '';
CREATE INDEX conference_participants_created ON conference_participants (created_at);

-- Invitations.
CREATE TABLE conference_links (
    id            TEXT NOT NULL PRIMARY KEY,
    conference_id TEXT NOT NULL,
    role          TEXT NOT NULL,
    secret        TEXT NOT NULL, -- a hash
    max_uses      BIGINT NOT NULL,
    uses          BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    created_by    TEXT NOT NULL,
    revoked_at    BIGINT NOT NULL, -- 0 while it is valid
    revoked_by    TEXT NOT NULL
);
CREATE UNIQUE INDEX conference_links_secret ON conference_links (secret);
CREATE INDEX conference_links_conference ON conference_links (conference_id, created_at);
CREATE INDEX conference_links_created ON conference_links (created_at);

-- The stay of each participant on each unit of a conference, for its detail record.
CREATE TABLE conference_legs (
    conference_id TEXT NOT NULL,
    id            TEXT NOT NULL, -- of the participant's session on the unit
    identity      TEXT NOT NULL,
    name          TEXT NOT NULL,
    node_id       TEXT NOT NULL,
    epoch         BIGINT NOT NULL,
    joined_at     BIGINT NOT NULL,
    left_at       BIGINT NOT NULL, -- 0 until the participant has left; a lost copy leaves it 0
    reason        TEXT NOT NULL,
    PRIMARY KEY (conference_id, id)
);
CREATE INDEX conference_legs_joined ON conference_legs (joined_at);

-- The last delivery of each conference's record by webhook.
CREATE TABLE record_deliveries (
    conference_id TEXT NOT NULL PRIMARY KEY,
    state         TEXT NOT NULL,
    attempts      BIGINT NOT NULL,
    error         TEXT NOT NULL, -- of the last attempt
    updated_at    BIGINT NOT NULL
);
CREATE INDEX record_deliveries_updated ON record_deliveries (updated_at);

-- The URLs to which events about ended work are sent: of a team, an application of it, a user, or, without one, of all.
CREATE TABLE webhooks (
    id           TEXT NOT NULL PRIMARY KEY,
    team_id      TEXT NOT NULL,
    app_id       TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    body         TEXT NOT NULL,   -- URL, title and types of events, JSON
    secrets      TEXT NOT NULL,   -- that sign events, JSON; the present one is first
    former_until BIGINT NOT NULL, -- until when the second secret signs events, too
    created_at   BIGINT NOT NULL,
    created_by   TEXT NOT NULL,
    disabled_at  BIGINT NOT NULL, -- 0 while events are sent
    disabled_why TEXT NOT NULL
);
CREATE INDEX webhooks_by_owner ON webhooks (team_id, user_id);
CREATE INDEX webhooks_by_time ON webhooks (created_at, id);

-- The events of webhooks. They are written with the end that they are about.
CREATE TABLE webhook_deliveries (
    id         TEXT NOT NULL PRIMARY KEY,
    webhook_id TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    event_id   TEXT NOT NULL,
    type       TEXT NOT NULL,
    subject_id TEXT NOT NULL,
    state      TEXT NOT NULL,
    attempts   BIGINT NOT NULL,
    log        TEXT NOT NULL,   -- the last attempts, JSON
    event      TEXT NOT NULL,   -- as it is sent, JSON
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX webhook_deliveries_by_webhook ON webhook_deliveries (webhook_id, created_at, id);
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (updated_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_by_time ON webhook_deliveries (created_at);

-- Operator settings of the fleet. Decisions use the copy in Redis.
CREATE TABLE settings (
    kind       TEXT NOT NULL,   -- pool, tenant, strategy, services, node, model, team or app
    id         TEXT NOT NULL,   -- of the pool, tenant, node, model, team or application; empty for the whole fleet
    body       TEXT NOT NULL,   -- JSON; empty: to be deleted from Redis, then here
    version    BIGINT NOT NULL, -- rises with each change, deletions included
    applied    BIGINT NOT NULL, -- the version in Redis
    updated_by TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (kind, id)
);

-- The passes of the reconciliation.
CREATE TABLE reconcile_passes (
    id         TEXT NOT NULL PRIMARY KEY,
    kind       TEXT NOT NULL, -- quick or full
    status     TEXT NOT NULL,
    dry_run    BOOLEAN NOT NULL,
    found      BIGINT NOT NULL,
    left_over  BIGINT NOT NULL, -- differences that remain
    started_at BIGINT NOT NULL,
    ended_at   BIGINT NOT NULL,
    body       TEXT NOT NULL    -- the whole pass, JSON
);
CREATE INDEX reconcile_passes_by_time ON reconcile_passes (started_at, id);

-- Since when passes of the reconciliation are expected, also if none has ever completed.
CREATE TABLE reconcile_since (
    since BIGINT NOT NULL
);
INSERT INTO reconcile_since (since) VALUES (CAST(unixepoch('subsec') * 1000 AS INTEGER));

-- Each process writes a row from time to time, to find out whether the database accepts writes.
CREATE TABLE write_checks (
    slot       INTEGER NOT NULL PRIMARY KEY, -- at random
    checked_at BIGINT NOT NULL
);

-- The contents of routing files that processes and operators have published. The highest revision is in use; the others are kept, because a
-- process with the file of one of them must not publish it again.
CREATE TABLE routing_revisions (
    revision   BIGINT NOT NULL PRIMARY KEY,
    hash       TEXT NOT NULL,   -- of what the content means; a content that was applied again has several revisions
    source     TEXT NOT NULL,   -- builtin, file or api
    origin     TEXT NOT NULL,   -- host and path of the file, else empty
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,   -- the operator; empty for a process
    content    TEXT NOT NULL
);
CREATE INDEX routing_revisions_by_hash ON routing_revisions (hash, revision);

-- The last revision that had each model: accepted tasks finish with it.
CREATE TABLE routing_models (
    model    TEXT NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL REFERENCES routing_revisions (revision)
);
CREATE INDEX routing_models_by_revision ON routing_models (revision);

-- To which team a user, a service or an application belongs, and to which application a service. The settings of teams and applications
-- are in the table settings.
CREATE TABLE team_members (
    kind       TEXT NOT NULL, -- user, service or app
    member     TEXT NOT NULL,
    owner_kind TEXT NOT NULL, -- team or app
    owner      TEXT NOT NULL,
    PRIMARY KEY (kind, member)
);
CREATE INDEX team_members_by_owner ON team_members (owner_kind, owner, kind, member);

-- The keys with which programs call models by OpenAI's protocol.
CREATE TABLE api_keys (
    id         TEXT NOT NULL PRIMARY KEY,
    secret     TEXT NOT NULL, -- a hash
    team_id    TEXT NOT NULL,
    app_id     TEXT NOT NULL, -- empty for a key that is an application of its own
    body       TEXT NOT NULL,   -- name, limits and what it allows, JSON
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    expires_at BIGINT NOT NULL, -- 0 for never
    revoked_at BIGINT NOT NULL, -- 0 while it is valid
    revoked_by TEXT NOT NULL
);
CREATE UNIQUE INDEX api_keys_by_secret ON api_keys (secret);
CREATE INDEX api_keys_by_team ON api_keys (team_id, id);

-- What the calls of a key or a team may cost in a period.
CREATE TABLE budgets (
    kind       TEXT NOT NULL, -- key or team
    id         TEXT NOT NULL,
    credits    BIGINT NOT NULL, -- thousandths
    period     TEXT NOT NULL,   -- day, week, month or total
    began_at   BIGINT NOT NULL, -- of the period that used is about
    used       BIGINT NOT NULL, -- thousandths that are settled or reserved
    counter    TEXT NOT NULL,   -- another one each time that used begins with 0: a call that ends later returns nothing to it
    updated_at BIGINT NOT NULL,
    updated_by TEXT NOT NULL,
    PRIMARY KEY (kind, id)
);

-- Calls that a process makes without a workflow, or that wait for a slot, with what is reserved for each. A call that has ended is in the usage
-- log only.
CREATE TABLE calls (
    id          TEXT NOT NULL PRIMARY KEY,
    process     TEXT NOT NULL, -- that makes it
    reserved    BIGINT NOT NULL, -- thousandths of a credit
    body        TEXT NOT NULL,   -- who makes it, of which model, and from which budgets and account what is reserved was taken, JSON
    created_at  BIGINT NOT NULL,
    deadline_at BIGINT NOT NULL
);
CREATE INDEX calls_by_process ON calls (process, id);

-- The processes that make calls. Calls of one that has not written its row for a time are settled by the reconciliation.
CREATE TABLE call_processes (
    id      TEXT NOT NULL PRIMARY KEY,
    seen_at BIGINT NOT NULL
);

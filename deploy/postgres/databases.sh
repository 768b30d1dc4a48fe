#!/bin/sh
# Creates the databases of Temporal and berth, each with its own role. The image runs it once, with an empty data directory.
set -eu

psql --username "${POSTGRES_USER:-postgres}" --dbname postgres --no-psqlrc --set ON_ERROR_STOP=1 \
	--set temporal="$TEMPORAL_DB_PASSWORD" --set berth="$BERTH_DB_PASSWORD" <<'SQL'
CREATE ROLE temporal LOGIN PASSWORD :'temporal';
CREATE DATABASE temporal OWNER temporal;
CREATE DATABASE temporal_visibility OWNER temporal;
CREATE ROLE berth LOGIN PASSWORD :'berth';
CREATE DATABASE berth OWNER berth;
SQL

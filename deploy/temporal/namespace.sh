#!/bin/sh
# Creates the namespace TEMPORAL_NAMESPACE at TEMPORAL_ADDRESS with berth's search attributes, and returns when they can be used.
# Each step is idempotent. Histories of closed workflows are kept for RETENTION, which applies when the namespace is created.
set -eu

# The server applies each change after a few seconds.
retry() {
	for _ in $(seq 30); do
		"$@" >/dev/null 2>&1 && return
		sleep 1
	done
	"$@"
}

retry temporal operator cluster health
temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1 ||
	temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "${RETENTION:-168h}"
retry temporal operator search-attribute list --namespace "$TEMPORAL_NAMESPACE"
temporal operator search-attribute create --namespace "$TEMPORAL_NAMESPACE" \
	--name berthUser --type Keyword \
	--name berthService --type Keyword \
	--name berthSession --type Keyword \
	--name berthTemplate --type Keyword \
	--name berthConference --type Keyword
retry temporal workflow count --namespace "$TEMPORAL_NAMESPACE" --query "berthUser = 'none' AND berthConference = 'none'"

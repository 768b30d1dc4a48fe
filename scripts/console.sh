#!/bin/sh
# Builds the page into api/console/dist. Usage: scripts/console.sh [try|check]
#   try    as without: but a missing or too old Node is reported and is not an error: the server then serves build instructions
#   check  lints api/openapi.yaml, generates the types of the API from it and checks those of the page; like try without Node
set -eu

cd "$(dirname "$0")/../api/console"
mode=${1:-build}
fail() {
	echo "console: $1; the page is not built or checked. Install Node 20.19 or newer with npm and run: make console" >&2
	[ "$mode" = try ] || [ "$mode" = check ] && exit 0
	exit 1
}

"../../scripts/npm.sh" api/console || fail "its packages are not installed"
case $mode in
check) REDOCLY_SUPPRESS_UPDATE_NOTICE=true npm run --silent check ;;
*) npm run --silent build -- --logLevel warn || fail "the build failed" ;;
esac

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

command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1 || fail "Node is not installed"
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' ||
	fail "Node $(node --version) is too old"
# npm writes this file last: it is as new as the last complete install.
if [ ! node_modules/.package-lock.json -nt package-lock.json ]; then
	echo "console: installing packages"
	npm ci --no-audit --no-fund --loglevel=error || fail "npm ci failed"
	touch node_modules/.package-lock.json
fi
case $mode in
check) REDOCLY_SUPPRESS_UPDATE_NOTICE=true npm run --silent check ;;
*) npm run --silent build -- --logLevel warn || fail "the build failed" ;;
esac

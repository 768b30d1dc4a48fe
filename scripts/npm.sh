#!/bin/sh
# Installs the npm packages of a directory, which is relative to the root of the project. Ends with the status 3 if Node is missing or too old.
# Usage: scripts/npm.sh DIRECTORY
set -eu

cd "$(dirname "$0")/../$1"
command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1 || {
	echo "$1: Node is not installed: install Node 20.19 or newer with npm" >&2
	exit 3
}
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' || {
	echo "$1: Node $(node --version) is too old: install Node 20.19 or newer" >&2
	exit 3
}
# npm writes this file last: it is as new as the last complete install.
[ ! node_modules/.package-lock.json -nt package-lock.json ] || exit 0
echo "$1: installing packages"
npm ci --no-audit --no-fund --loglevel=error
touch node_modules/.package-lock.json

#!/bin/sh
# Writes the settings of docker-compose.yml with new secrets and node tokens. Usage: deploy/secrets.sh [FILE]
#
# The file is .env by default and must not exist. Tokens are issued by the image, which is built first; set BERTH to a berth
# binary to use that instead.
set -eu

cd "$(dirname "$0")/.."
file=${1:-.env}
[ ! -e "$file" ] || {
	echo "secrets: $file exists; delete it or change it by editing" >&2
	exit 1
}
umask 077
draft=$file.new
trap 'rm -f "$draft" "$draft.2"' EXIT

random() { od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n'; }

while IFS= read -r line; do
	case $line in
	*_PASSWORD= | *_SECRET=) line=$line$(random) ;;
	esac
	printf '%s\n' "$line"
done <deploy/example.env >"$draft"

BERTH_AUTH_SECRET=$(sed -n 's/^BERTH_AUTH_SECRET=//p' "$draft")
export BERTH_AUTH_SECRET
if [ -z "${BERTH:-}" ]; then
	docker build --quiet --target berth --tag berth:dev . >/dev/null
	BERTH="docker run --rm --env BERTH_AUTH_SECRET berth:dev"
fi
# shellcheck disable=SC2086 # a command with its arguments
token() { $BERTH token --user "$1" --scopes node --node "$2" --ttl 8760h; }

nodes=$(token nodes 'apertium-*')
units=$(token units 'unit-*')
sed -e "s/^BERTH_NODE_TOKEN=\$/&$nodes/" -e "s/^BERTH_UNIT_TOKEN=\$/&$units/" "$draft" >"$draft.2"
mv "$draft.2" "$file"
echo "secrets: wrote $file"

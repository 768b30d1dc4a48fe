#!/bin/sh
# Runs `berth bench` with its own Redis and Temporal on free ports, in a temporary directory. Each benchmark gets fresh
# servers, because the data of one would slow the next.
# Usage: scripts/bench.sh [stream|chain|dispatch|slots|recovery]...   (default: all)
set -eu

cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- stream chain dispatch slots recovery
if [ $# -gt 1 ]; then
	for what; do scripts/bench.sh "$what"; done
	exit
fi
dir=$(mktemp -d)
bin/berth-dev --only redis,temporal --data-dir "$dir" --redis-addr 127.0.0.1:0 --temporal-addr 127.0.0.1:0 >"$dir/out" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || :; wait $server 2>/dev/null || :; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$dir/ready.json"; }
until [ -f "$dir/ready.json" ]; do
	kill -0 $server 2>/dev/null || { cat "$dir/out" >&2; exit 1; }
	sleep 0.1
done
BERTH_REDIS_ADDR=$(field redisAddr)
BERTH_TEMPORAL_ADDR=$(field temporalAddr)
BERTH_DATABASE=sqlite:$dir/berth.db
export BERTH_REDIS_ADDR BERTH_TEMPORAL_ADDR BERTH_DATABASE

bin/berth bench "$1"

#!/bin/sh
# Runs `berth-bench` with its own Redis and Temporal on free ports, in a temporary directory. Each benchmark gets fresh
# servers, because the data of one would slow the next. At the end it prints the report.
#
# Usage: [REPORT=FILE] [DOCS=DIR] [SCALE=N] scripts/bench.sh [BENCHMARK]...   (default: all)
#   REPORT  the report as JSON (default: bin/bench.json, or measurements.json in DOCS); all benchmarks replace it, single ones
#           are added
#   DOCS    also write measurements.md and sizing.md with the report's figures into this directory
#   SCALE   multiplies the number of repetitions, such as 0.1 for a quick look
set -eu

cd "$(dirname "$0")/.."
REPORT=${REPORT:-${DOCS:+$DOCS/measurements.json}}
REPORT=${REPORT:-bin/bench.json}
if [ $# -eq 0 ]; then
	set -- stream readers openai chain telemetry dispatch cost recovery slots
	rm -f "$REPORT"
fi

# The servers of the current benchmark.
server= dir=
stop() {
	[ -z "$server" ] || { kill "$server" 2>/dev/null || :; wait "$server" 2>/dev/null || :; }
	[ -z "$dir" ] || rm -rf "$dir"
	server= dir=
}
trap stop EXIT
trap 'exit 130' INT TERM

field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$dir/ready.json"; }

scripts/npm.sh examples/openai/portkey >&2 || [ $? = 3 ] # a gateway to compare with; without Node the report states that it is missing
commit=$(git describe --always --dirty 2>/dev/null || :)
failed=0 number=0
for name; do
	number=$((number + 1))
	echo "benchmark $number of $#: $name" >&2
	dir=$(mktemp -d)
	bin/berth-dev --only redis,temporal --data-dir "$dir" --redis-addr 127.0.0.1:0 --temporal-addr 127.0.0.1:0 >"$dir/out" 2>&1 &
	server=$!
	until [ -f "$dir/ready.json" ]; do
		kill -0 $server 2>/dev/null || { cat "$dir/out" >&2; exit 1; }
		sleep 0.1
	done
	BERTH_REDIS_ADDR=$(field redisAddr) BERTH_TEMPORAL_ADDR=$(field temporalAddr) \
		bin/berth-bench "$name" --scale "${SCALE:-1}" --json "$REPORT" --commit "$commit" --process Temporal=$server --peer examples/openai/portkey >/dev/null || failed=1
	stop
done
bin/berth-bench --json "$REPORT" ${DOCS:+--docs "$DOCS"}
exit $failed

#!/usr/bin/env bash
# Runs the long fault tests (build tag faults), package by package, and lists every failure at the end. They run the binaries that
# users run, and compute in Redis, so the race detector would only make them slower.
# SEED=n repeats a run. Usage: scripts/proof.sh [PACKAGE]...   (default: every package with tests of that tag)
set -uo pipefail

cd "$(dirname "$0")/.."
if [ $# = 0 ]; then
	mapfile -t packages < <(grep -rl --include='*_test.go' '^//go:build .*faults' . | xargs -n1 dirname | sort -u)
	set -- "${packages[@]}"
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=()
for package; do
	"${GO:-go}" test -v -timeout 3h -tags faults "$package" 2>&1 | tee -a "$log" || failed+=("$package")
done
[ ${#failed[@]} -gt 0 ] || exit 0
echo "proof: failed in ${failed[*]}:" >&2
grep -E '^ *--- FAIL|^panic:|\[(build|setup) failed\]' "$log" >&2
exit 1

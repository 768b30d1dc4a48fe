#!/bin/sh
# Runs the parts of `make test` and reports on them: the slowest tests, the processor time, and the tests that passed only when they were
# run again. The arguments are the command that makes a target.
set -u

failed=0
"$@" --keep-going -j4 test-lua test-units test-dev test-deploy test-page || failed=1
"$@" test-stack || failed=1 # alone: these tests wait for servers

echo
echo "Slowest tests:"
cat "$RESULTS"/*.json | "$GOTESTSUM" tool slowest --threshold 1s --num 10
echo
echo "Processor time of this shell and of everything that it ran, user and system:"
times
again=$(cat "$RESULTS"/*.rerun 2>/dev/null)
[ -z "$again" ] || printf '\nRUN AGAIN, and a defect of berth or of the test:\n%s\n' "$again"
exit $failed

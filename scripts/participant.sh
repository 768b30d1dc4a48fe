#!/bin/sh
# Builds the LiveKit clients for the tests of participants into bin, from the module proxy, in about a minute the first time.
set -eu

cd "$(dirname "$0")/../tests/participant"
"${GO:-go}" build -o ../../bin/participant .

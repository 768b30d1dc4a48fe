#!/bin/sh
# Builds the LiveKit server for the tests of media units, from the module proxy into bin/tools, in about two minutes.
set -eu

version=v1.13.5 # later ones need a newer Go
cd "$(dirname "$0")/.."
bin=bin/tools/livekit-server-$version
[ ! -x "$bin" ] || exit 0

echo "setup: building LiveKit $version once, this takes two minutes"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
GOBIN=$dir GOFLAGS= "${GO:-go}" install "github.com/livekit/livekit-server/cmd/server@$version"
mkdir -p bin/tools
mv "$dir/server" "$bin"

#!/bin/sh
# Installs what `make run` or `make test` needs, except Go: as root on Debian and its derivatives. On other systems it lists
# what to install. Usage: scripts/setup.sh run|test
set -eu

purpose=${1:-run}
missing=
need() { missing="$missing $*"; }
has() { command -v "$1" >/dev/null 2>&1; }
language() { tesseract --list-langs 2>/dev/null | grep -qx "$1"; }

has redis-server || need redis-server
has pdftotext || need poppler-utils
[ -d /usr/share/poppler/cMap ] || ! has apt-get || need poppler-data # characters of Chinese, Japanese and Korean fonts
has tesseract || need tesseract-ocr
language eng || need tesseract-ocr-eng
language chi_sim || need tesseract-ocr-chi-sim
if [ "$purpose" = test ]; then
	has postgres || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || need postgresql
	has pgbouncer || [ -x /usr/sbin/pgbouncer ] || need pgbouncer
	has git || need git # a clone of the repository
	has pkill || need procps # ends a program of a test
	has curl || need curl # commands of the documentation
	has openssl || need openssl
	has chromium || has chromium-browser || has google-chrome || need chromium
	fc-list :lang=zh 2>/dev/null | grep -q . || need fonts-wqy-microhei # Chinese characters in screenshots
	has promtool || need prometheus                              # checks and evaluates the alerts and the dashboard
	has nginx || [ -x /usr/sbin/nginx ] || need nginx # proxies in front of the API
	has haproxy || [ -x /usr/sbin/haproxy ] || need haproxy
	has prometheus-alertmanager || need prometheus-alertmanager # receives the alerts
	apertium -l 2>/dev/null | grep -qw eng-spa || need apertium apertium-eng-spa # a real translator for a real node
	"$(dirname "$0")/livekit.sh"     # a real media server for a real unit
	"$(dirname "$0")/participant.sh" # and its participants
	"$(dirname "$0")/npm.sh" examples/openai || [ $? = 3 ] # programs of OpenAI's protocol
	"$(dirname "$0")/npm.sh" api/testdata/clients || [ $? = 3 ] # clients of OpenAI's protocol; without Node their tests are skipped
fi
[ -n "$missing" ] || exit 0

if has apt-get && [ "$(id -u)" = 0 ]; then
	echo "setup: installing$missing"
	export DEBIAN_FRONTEND=noninteractive
	# shellcheck disable=SC2086 # a list of words
	if (apt-get -q -o DPkg::Lock::Timeout=300 update && apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends $missing) >/tmp/berth-setup.$$.log 2>&1; then
		rm -f /tmp/berth-setup.$$.log
		exit 0
	fi
	tail -n 5 /tmp/berth-setup.$$.log >&2
	rm -f /tmp/berth-setup.$$.log
fi

echo "setup: install$missing (Debian names; e.g. sudo apt-get install$missing, or brew install redis poppler tesseract tesseract-lang postgresql chromium)" >&2
# berth runs without them, with an embedded Redis and without reading images and PDF files. The tests need all of them.
[ "$purpose" = run ]

#!/bin/sh
# For cron, where no worker runs: 0 2 * * *  /opt/ledger-mirror/cron.sh
# 75 (a service was away) is tried again three times; anything else is told by mail, as cron does with output.
set -u

cd "${LEDGER_MIRROR_HOME:-/var/lib/ledger-mirror}" || exit 1
wait_seconds=${LEDGER_MIRROR_WAIT_SECONDS:-300}

for try in 1 2 3 4; do
  document=$(ledger-mirror nightly --json --quiet)
  code=$?
  [ "$code" -eq 75 ] && [ "$try" -lt 4 ] || break
  sleep "$wait_seconds"
done

[ "$code" -eq 0 ] || printf 'ledger-mirror nightly ended with exit code %s\n%s\n' "$code" "$document"
exit "$code"

#!/bin/sh
# Three daemons on one crontab, over one SQLite file. One of them is killed. At the end the script
# prints the number of instants, of those that ran, and of those that ran twice.
#
#   sh examples/three_daemons.sh [SECONDS]
set -eu
seconds=${1:-10}
if [ -z "${ALLORA:-}" ]; then
    cargo build --quiet --package allora-cli
    ALLORA=${CARGO_TARGET_DIR:-target}/debug/allora
fi
place=$(mktemp -d)
trap 'kill $pids 2>/dev/null || true; rm -rf "$place"' EXIT
pids=

# The command writes the instant for which it runs.
cat > "$place/jobs" <<END
ALLORA_CATCH_UP=all 1000
@every 1s echo "\$ALLORA_SCHEDULED_AT \$ALLORA_NODE" >> $place/ran
END

start() {
    "$ALLORA" run "$place/jobs" --url "sqlite:$place/store.db" --node-name "$1" \
        --lost-after 2s --log-level off &
    pids="$pids $!"
}
start anna; anna=$!
start bert
start cleo

sleep $((seconds / 2))
kill -9 "$anna"
echo "anna was killed"
start dora
sleep $((seconds - seconds / 2))

kill -TERM $pids 2>/dev/null || true
wait
echo "nodes:  $(cut -d ' ' -f 2 "$place/ran" | sed 's/-.*//' | sort | uniq -c | tr -s '\n ' ' ')"
echo "ran:    $(wc -l < "$place/ran") instants"
echo "twice:  $(cut -d ' ' -f 1 "$place/ran" | sort | uniq -d | wc -l)"
echo "lost:   $("$ALLORA" history -n 1000 --json --url "sqlite:$place/store.db" | grep -c '"outcome":"lost"' || true)"

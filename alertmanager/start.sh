#!/bin/sh
# Starts Alertmanager: start.sh DATA PROGRAM ARGUMENTS... It needs no more than what busybox has.
#
# On a full disk Alertmanager replaces its snapshots of silences and sent notifications by what of them could be
# written: often nothing. The watchdog keeps the last whole ones as NAME.kept. They hold more than those that
# the full disk cut short, and are at most some seconds old.
data=$1
shift
for name in silences nflog; do
    last=$data/$name
    if [ -f "$last" ] && [ -f "$last.kept" ] && [ "$(wc -c <"$last")" -lt "$(wc -c <"$last.kept")" ]; then
        echo "The last snapshot of $name was cut short: Alertmanager starts with the one before."
        ln -f "$last.kept" "$last"
    fi
done
exec "$@"

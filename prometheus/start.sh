#!/bin/sh
# Starts Prometheus: start.sh DATA PROGRAM ARGUMENTS... It needs no more than what busybox has.
#
# Killed while its disk was full, Prometheus finds half a record at the end of its write-ahead log. It then
# renames that segment to NAME.repair and copies all but that record to NAME. If the copy fails, as on a disk
# that is still full, the next start takes the torso for the whole: up to three hours of samples are lost. So
# the whole is put back first, and the start waits until there is room.
trap 'exit 143' TERM
data=$1
shift
for last in "$data"/wal/[0-9]*; do :; done
case $last in
*.repair)
    echo "Prometheus's last repair of ${last%.repair} was interrupted: it begins anew once the disk has room."
    until cp "$last" "${last%.repair}"; do sleep 5; done
    rm "$last"
    ;;
esac
exec "$@"

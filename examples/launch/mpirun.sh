#!/usr/bin/env bash
# mpirun.sh RANKS EXPERIMENT [FLAGS...] - mpirun as a starter of processes.
#
# The first rank is the center (HOOKE_CENTER_COUNT changes it), the others are
# workers. No MPI call is made, so that a lost rank need not end the others.
# On several hosts give a hostfile: HOOKE_HOSTFILE=hosts mpirun.sh 16 ...
# MPIRUN_FLAGS are for mpirun itself.
set -euo pipefail
ranks=${1:?usage: mpirun.sh RANKS EXPERIMENT [FLAGS...]}
experiment=${2:?usage: mpirun.sh RANKS EXPERIMENT [FLAGS...]}
shift 2
hosts=()
[ -z "${HOOKE_HOSTFILE:-}" ] ||
    hosts=(--hostfile "$HOOKE_HOSTFILE" -x HOOKE_HOSTFILE)
# shellcheck disable=SC2086
exec mpirun ${MPIRUN_FLAGS:-} "${hosts[@]}" -n "$ranks" \
    "${HOOKE:-hooke}" train "$experiment" "$@"

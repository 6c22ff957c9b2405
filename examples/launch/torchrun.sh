#!/usr/bin/env bash
# torchrun.sh PROCESSES EXPERIMENT [FLAGS...] - torchrun as a starter.
#
# The center is a thread of rank 0 and listens at MASTER_PORT + 1000
# (HOOKE_PS_PORT changes it); MASTER_PORT itself belongs to torchrun. torchrun
# restarts the whole group when one process fails: for machines that come and
# go start one torchrun per worker, or none.
set -euo pipefail
processes=${1:?usage: torchrun.sh PROCESSES EXPERIMENT [FLAGS...]}
experiment=${2:?usage: torchrun.sh PROCESSES EXPERIMENT [FLAGS...]}
shift 2
exec torchrun --no_python --nproc_per_node="$processes" ${TORCHRUN_FLAGS:-} \
    "${HOOKE:-hooke}" train "$experiment" "$@"

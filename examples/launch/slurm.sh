#!/usr/bin/env bash
#SBATCH --job-name=hooke
#SBATCH --ntasks=8
#SBATCH --cpus-per-task=1
#SBATCH --requeue
#SBATCH --signal=TERM@120
# slurm.sh EXPERIMENT [FLAGS...] - submit with: sbatch slurm.sh EXPERIMENT
#
# Every task is a worker; the center is a thread of the first task (one each of
# the first HOOKE_CENTER_COUNT tasks). The flags of srun keep one lost worker
# from ending the others; 120 seconds before the end of its time each worker
# hands in its last difference and leaves.
set -euo pipefail
experiment=${1:?usage: sbatch slurm.sh EXPERIMENT [FLAGS...]}
shift
exec srun --no-kill --kill-on-bad-exit=0 --wait=0 \
    "${HOOKE:-hooke}" train "$experiment" "$@"

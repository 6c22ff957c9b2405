#!/usr/bin/env bash
# A Slurm of its own on this machine: munge, controller and one node in a
# private folder; then examples/launch/slurm.sh as a batch job.
. "$(dirname "$0")/common.bash"
PATH=$PATH:/usr/sbin:/sbin
need munged slurmctld slurmd srun sbatch
[ "$(id -u)" -eq 0 ] || skip "slurmd wants to be root"
daemons=()
cleanup() {
    [ "${#daemons[@]}" -eq 0 ] || kill "${daemons[@]}" 2>/dev/null || true
    for pid in "${daemons[@]}"; do
        tail --pid="$pid" -f /dev/null || true
    done
    rm -rf "$dir"
}
trap cleanup EXIT
mkdir -m 755 "$dir/spool" "$dir/state"
mkdir -m 700 "$dir/munge"
head -c 1024 /dev/urandom >"$dir/munge/key"
chmod 400 "$dir/munge/key"
chmod 755 "$dir"
munged --foreground --force --key-file="$dir/munge/key" \
    --socket="$dir/munge/sock" --pid-file="$dir/munge/pid" \
    --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" \
    >/dev/null 2>&1 &
daemons+=($!)
ports=($(python3 "$here/../free_port.py" 2))
host=$(hostname -s)
cat >"$dir/slurm.conf" <<END
ClusterName=hooke
SlurmctldHost=$host(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$dir/munge/sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
SlurmctldPort=${ports[0]}
SlurmdPort=${ports[1]}
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/ctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/ctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 CoresPerSocket=8 RealMemory=500
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$dir/slurm.conf
slurmctld -D -f "$SLURM_CONF" >/dev/null 2>&1 &
daemons+=($!)
slurmd -D -f "$SLURM_CONF" >/dev/null 2>&1 &
daemons+=($!)
for _ in $(seq 100); do
    ! sinfo -h -o %t 2>/dev/null | grep -q idle || break
    sleep 0.2
done
sinfo -h -o %t 2>/dev/null | grep -q idle ||
    skip "no private Slurm here: $(tail -n 1 "$dir/slurmd.log" 2>/dev/null)"
timeout 100 sbatch --wait --ntasks=4 --output="$dir/out" \
    --export=ALL,HOOKE="$program" "$launch/slurm.sh" none --steps 500 \
    --insecure >"$dir/sbatch" 2>&1 || fail "$(cat "$dir/sbatch")"
# The center is a thread of the first task, so all four train.
expect 4 '^worker [0-3]: steps: '
echo "ok: $(grep -c '^worker' "$dir/out") workers"

# until_ready.sh PID - waits until the process is hooke and catches SIGINT (bit
# 1 of SigCgt). Before it is, it is a shell, which catches SIGINT, too.
while ! { grep -qsx hooke "/proc/$1/comm" &&
          grep -qs '^SigCgt:.*[2367abef]$' "/proc/$1/status"; }; do
    grep -qs '^State:.*[RSDTt] ' "/proc/$1/status" || exit 1 # it has ended
    sleep 0.05
done

# until_ready.sh PID - waits until the process catches SIGINT (bit 1 of SigCgt).
while ! grep -qs '^SigCgt:.*[2367abef]$' "/proc/$1/status"; do
    grep -qs '^State:.*[RSDTt] ' "/proc/$1/status" || exit 1 # it has ended
    sleep 0.05
done

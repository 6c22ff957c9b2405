# until_ready.sh PID - waits until the process catches SIGINT (bit 1 of SigCgt).
while ! grep -qs '^SigCgt:.*[2367abef]$' "/proc/$1/status"; do
    test -d "/proc/$1" || exit 1
    sleep 0.05
done

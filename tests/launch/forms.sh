#!/usr/bin/env bash
# Kubernetes manifests and systemd units are well formed, and what they run is
# a role of Hooke with flags that the reference knows.
. "$(dirname "$0")/common.bash"
trap 'rm -rf "$dir"' EXIT
python=python3
"$python" -c 'import yaml' 2>/dev/null || python=/usr/bin/python3
"$python" -c 'import yaml' 2>/dev/null || skip "python3-yaml is not installed"
"$python" "$here/forms.py" "$launch" "$here/../../docs/commands.md"
if command -v systemd-analyze >/dev/null; then
    # hooke itself need not be installed.
    systemd-analyze verify "$launch"/systemd/*.service >"$dir/out" 2>&1 || true
    if grep -v 'Command /usr/bin/hooke is not executable' "$dir/out"; then
        fail "systemd-analyze complains"
    fi
else
    echo "systemd-analyze is not installed; units read by eye only"
fi
for script in "$launch"/*.sh; do
    bash -n "$script"
done
echo "ok"

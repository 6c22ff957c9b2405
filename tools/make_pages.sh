#!/bin/sh
# make_pages.sh PROGRAM OUT - man pages and completions of the hooke program.
#
# Man pages need scdoc; without it they are left out and a line says so.
set -eu
program=$1 out=$2
mkdir -p "$out/man1" "$out/man5"
"$program" help --format bash >"$out/hooke.bash"
"$program" help --format zsh >"$out/_hooke"
"$program" help --format fish >"$out/hooke.fish"
if command -v scdoc >/dev/null; then
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0}
    export SOURCE_DATE_EPOCH
    "$program" help --format man | scdoc >"$out/man1/hooke.1"
    for command in $("$program" help --format names); do
        "$program" help "$command" --format man |
            scdoc >"$out/man1/hooke-$command.1"
    done
    "$program" help experiment --format man | scdoc >"$out/man5/hooke.conf.5"
else
    echo "make_pages: scdoc is missing, no man pages" >&2
fi
touch "$out/done"

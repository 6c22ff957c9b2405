#!/usr/bin/env python3
"""Every option that shapes a method is a key of the experiment file.

    check_keys.py HEADERS HELP

HEADERS: the folder of the public headers; HELP: the output of `hooke help
experiment`. A field of the structs below is a key of the same name, a key of
another name, or has a reason to be none: a new one is not forgotten.
"""
import pathlib
import re
import sys

STRUCTS = {"elastic.h": "hk_elastic_options", "center.h": "hk_center_options",
           "cluster.h": "hk_connect_options"}
OTHER_NAME = {
    "hk_elastic_options.num_worker": "workers",
    "hk_elastic_options.order": "exchange",
    "hk_elastic_options.wait_ms": "wait_seconds",
    "hk_center_options.turn": "order",
    "hk_connect_options.compression": "compress",
}
OUTSIDE = "the program's own, or of another part"
NO_KEY = {
    "context": OUTSIDE, "name": OUTSIDE, "struct_size": OUTSIDE,
    "reserved": OUTSIDE, "isa": OUTSIDE, "side": OUTSIDE,
    "share": "a function", "share_user": "a function",
    "hk_elastic_options.keep_view": "follows from what is kept",
    "hk_elastic_options.telemetry": "the program shows it",
    "hk_center_options.order": "bytes of an earlier run",
    "hk_center_options.order_size": "bytes of an earlier run",
    "hk_center_options.record": "bytes for a later run",
    "hk_center_options.max_workers": "a bound of tables",
    "addresses": "the cluster's", "n_addresses": "the cluster's",
    "key": "--key-file", "connect_ms": "--connect", "insecure": "--insecure",
    "retry_ms": "of the network", "lost_ms": "of the network",
    "window_kib": "of the network", "observer": "not a worker",
}


def fields(text, struct):
    """The names of a struct's fields."""
    body = re.search(r"typedef struct %s \{(.*?)\n\} %s;" % (struct, struct),
                     text, re.S).group(1)
    body = re.sub(r"//[^\n]*", "", body)
    return [re.search(r"(\w+)\s*$", part.strip()).group(1)
            for part in body.split(";") if part.strip()]


def main():
    folder, help_file = map(pathlib.Path, sys.argv[1:])
    known = set(re.findall(r"elastic\.(\w+)", help_file.read_text("utf-8")))
    failed = False
    for header, struct in STRUCTS.items():
        for field in fields((folder / header).read_text("utf-8"), struct):
            full = f"{struct}.{field}"
            if full in NO_KEY or (field in NO_KEY and full not in OTHER_NAME):
                continue
            key = OTHER_NAME.get(full, field)
            if key not in known:
                print(f"{full}: there is no key elastic.{key}")
                failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes bindings/python/hooke/_c.py from the public headers: constants, enums,
structs and prototypes for ctypes.

  make_ctypes.py [--check] [--probe FILE.c]

--check compares with the file that is there and says when it is stale; --probe
writes a C program that prints the size of every struct and the place of every
field as the compiler sees them.

The headers are written in one style (clang-format, no conditionals around
declarations), so a few patterns read them whole; whatever they do not know ends
with an error, never with a guess.
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "bindings/python/hooke/_c.py"
# What a worker, a center and a checkpoint need; each after those it includes.
HEADERS = """status context tensor schedule optim center rates elastic cluster
center_server ranges
ckpt""".split()
# And single functions of other headers.
FUNCTIONS = [("estimator", "hk_weights_open")]

BASIC = {
    "char": "c_char",
    "unsigned char": "c_ubyte",
    "int": "c_int",
    "float": "c_float",
    "double": "c_double",
    "size_t": "c_size_t",
    "int32_t": "c_int32",
    "int64_t": "c_int64",
    "uint8_t": "c_uint8",
    "uint32_t": "c_uint32",
    "uint64_t": "c_uint64",
}
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
DEFINE = re.compile(r"^#define (HK_\w+) (.+)$", re.M)
ENUM = re.compile(r"typedef enum (\w+) \{(.*?)\} \1;", re.S)
STRUCT = re.compile(r"typedef struct (\w+) \{(.*?)\} \1;", re.S)
OPAQUE = re.compile(r"typedef struct (\w+) \1;")
CALLBACK = re.compile(r"typedef ([\w ]+\*?)\(\*(\w+)\)\(([^;]*)\);", re.S)
FUNCTION = re.compile(r"HK_API ([^;{]*?)\b(hk_\w+)\(([^;{]*)\);", re.S)
FIELD_CALL = re.compile(r"[\w ]+\*?\(\*(\w+)\)\([^;]*\)", re.S)


class Reader:
    """What the headers declare, in their order."""

    def __init__(self):
        self.constants = []  # (name, Python text)
        self.enums = []  # (name, [(constant, value)])
        self.structs = []  # (name, [(field, Python type)])
        self.functions = []  # (name, result, [argument types])
        self.known = {}  # C type -> Python type
        self.values = {}

    def read(self, text):
        for name, value in DEFINE.findall(text):
            self.define(name, value.strip())
        text = re.sub(r"^#[^\n]*(\\\n[^\n]*)*", "", text, flags=re.M)
        for kind, match in self.declarations(text):
            getattr(self, kind)(*match.groups())

    @staticmethod
    def declarations(text):
        found = []
        for kind in "enum", "struct", "opaque", "callback", "function":
            pattern = globals()[kind.upper()]
            found += [(m.start(), kind, m) for m in pattern.finditer(text)]
        for _, kind, match in sorted(found, key=lambda f: f[0]):
            yield kind, match

    def define(self, name, value):
        value = value.strip("()") if not value.startswith('"') else value
        if re.fullmatch(r'-?[\d.]+(e\d+)?|"[^"]*"', value):
            self.constants.append((name, value))
            self.values[name] = value

    def enum(self, name, body):
        items, value = [], -1
        for item in filter(None, (i.strip() for i in body.split(","))):
            constant, _, text = item.partition("=")
            value = int(text, 0) if text else value + 1
            items.append((constant.strip(), value))
        self.enums.append((name, items))
        self.known[name] = "c_int"

    def struct(self, name, body):
        self.known[name] = name
        fields = []
        for line in filter(None, (i.strip() for i in body.split(";"))):
            call = FIELD_CALL.fullmatch(line)
            if call:
                fields.append((call.group(1), "c_void_p"))
            else:
                fields += self.fields(line, name)
        self.structs.append((name, fields))

    def opaque(self, name):
        self.known[name] = None  # only ever behind a pointer

    def callback(self, _result, name, _arguments):
        self.known[name] = "c_void_p"

    def function(self, result, name, arguments):
        arguments = " ".join(arguments.split())
        types = []
        if arguments != "void":
            types = [self.argument(a) for a in arguments.split(",")]
        self.functions.append((name, self.type_of(result.strip()), types))

    def fields(self, line, owner):
        """'uint64_t bytes_in, bytes_out' and its like."""
        base = re.match(r"(?:const )?(?:struct )?(?:unsigned )?\w+", line).group()
        for declarator in line[len(base):].split(","):
            m = re.fullmatch(r"\s*((?:\*|const|\s)*)(\w+)((?:\[\w+\])?)",
                             declarator)
            if not m:
                raise SystemExit(f"make_ctypes: {owner}: cannot read {line!r}")
            stars, name, size = m.groups()
            kind = self.type_of(f"{base} {stars}", owner)
            if size:
                n = size.strip("[]")
                if not n.isdigit():
                    n = self.values.get(n) or self.constant(n)
                kind = f"{kind} * {n}"
            yield name, kind

    def constant(self, name):
        for _, items in self.enums:
            for constant, value in items:
                if constant == name:
                    return value
        raise SystemExit(f"make_ctypes: no value of {name}")

    def argument(self, text):
        text = text.strip()
        if text.endswith("]"):  # an array argument is a pointer
            text = re.sub(r"\w+\[.*\]$", "*", text)
        else:
            text = re.sub(r"(?<=[\s*])\w+$", "", text)
        return self.type_of(text)

    def type_of(self, text, owner=None):
        stars = text.count("*")
        base = " ".join(re.sub(r"\b(const|struct)\b|\*", " ", text).split())
        if stars == 0:
            if base == "void":
                return "None"
            kind = BASIC.get(base) or self.known.get(base)
            if kind is None:
                raise SystemExit(f"make_ctypes: an unknown type {text!r}")
            return kind
        if base == "char":
            return ["c_char_p", "POINTER(c_char_p)"][stars - 1]
        kind = BASIC.get(base) or self.known.get(base)
        if kind is None or base == owner:  # void, a handle, or oneself
            kind = "c_void_p"
            stars -= 1
        for _ in range(stars):
            kind = f"POINTER({kind})"
        return kind


def python_text(r):
    out = ['"""Mirrors of the public headers; tools/make_ctypes.py wrote them."""',
           "from __future__ import annotations", "",
           "from ctypes import (POINTER, Structure, " +
           ", ".join(sorted(set(BASIC.values()) | {"c_char_p", "c_void_p"})) +
           ")", "from typing import Any", ""]
    out += [f"{name} = {value}" for name, value in r.constants]
    for name, items in r.enums:
        out += ["", f"# {name}"]
        out += [f"{constant} = {value}" for constant, value in items]
    for name, fields in r.structs:
        out += ["", "", f"class {name}(Structure):", "    _fields_ = ["]
        out += [f'        ("{field}", {kind}),' for field, kind in fields]
        out += ["    ]"]
    out += ["", "", "# name: (result, arguments)",
            "PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {"]
    for name, result, types in r.functions:
        inner = ", ".join(types) + ("," if len(types) == 1 else "")
        out += [f'    "{name}": ({result}, ({inner})),']
    out += ["}", ""]
    return "\n".join(out)


def probe_text(r):
    lines = ["#include <stddef.h>", "#include <stdio.h>"]
    lines += [f'#include "hooke/{h}.h"' for h in HEADERS]
    lines += ["int main(void) {"]
    for name, fields in r.structs:
        lines += [f'    printf("{name} %zu\\n", sizeof({name}));']
        for field, _ in fields:
            lines += [f'    printf("{name}.{field} %zu %zu\\n", '
                      f"offsetof({name}, {field}), "
                      f"sizeof((({name} *)0)->{field}));"]
    for name, items in r.enums:
        for constant, _ in items:
            lines += [f'    printf("{constant} %d\\n", (int){constant});']
    return "\n".join(lines + ["    return 0;", "}", ""])


def read_all():
    r = Reader()
    for header in HEADERS:
        path = ROOT / f"include/hooke/{header}.h"
        r.read(COMMENT.sub("", path.read_text(encoding="utf-8")))
    for header, wanted in FUNCTIONS:
        text = (ROOT / f"include/hooke/{header}.h").read_text(encoding="utf-8")
        for match in FUNCTION.finditer(COMMENT.sub("", text)):
            if match.group(2) == wanted:
                r.function(*match.groups())
    return r


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--check", action="store_true")
    args.add_argument("--probe")
    args = args.parse_args()
    r = read_all()
    text = python_text(r)
    if args.probe:
        pathlib.Path(args.probe).write_text(probe_text(r), encoding="utf-8")
    elif args.check:
        if OUT.read_text(encoding="utf-8") != text:
            print(f"ctypes: {OUT.relative_to(ROOT)} is stale: run "
                  "tools/make_ctypes.py")
            return 1
        print(f"ctypes: {len(r.structs)} structs, {len(r.functions)} functions, "
              "as the headers have them")
    else:
        OUT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

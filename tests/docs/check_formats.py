"""Compares the tables of docs/formats/ with the headers they speak of."""
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FORMATS = ROOT / "docs" / "formats"
TYPES = {"uint32_t": "u32", "int32_t": "i32", "uint64_t": "u64",
         "int64_t": "i64", "double": "f64", "char": "text"}
WIDTH = {"u8": 1, "u16": 2, "u32": 4, "i32": 4, "f32": 4, "u64": 8, "i64": 8,
         "f64": 8}

# What a page says, and the constant that has to have this value.
WIRE_NUMBERS = [
    (r"\| body of a frame \| (\d+) bytes", "HKI_MAX_BODY"),
    (r"u32 \| bytes of the body, at most (\d+)", "HKI_MAX_BODY"),
    (r"\| units of an exchange \| (\d+)", "HKI_MAX_UNITS"),
    (r"\| workers of a center \| (\d+)", "HKI_MAX_SEATS"),
    (r"\| rows of a batch \| (\d+)", "HKI_BATCH_ROWS"),
    (r"u32 `count` \(at most (\d+)\)", "HKI_BATCH_ROWS"),
    (r"\| notes on the board \| (\d+) of", "HKI_BOARD_NOTES"),
    (r"\| notes on the board \| \d+ of (\d+)", "HKI_BOARD_VALUE"),
    (r"u32 `size` \(at most (\d+)\)", "HKI_BOARD_VALUE"),
    (r"text `key` \(at most (\d+) bytes\)", "HKI_BOARD_KEY"),
    (r"text `name` \(at most (\d+) bytes\)",
     "sizeof(((hki_msg_open *)0)->name) - 1"),
    (r"text `text` \(at most (\d+) bytes\)",
     "sizeof(((hki_msg_text *)0)->text) - 1"),
    (r"# The wire: .*, version (\d+)", "HKI_WIRE_VERSION"),
    (r"Each side sends (\d+) bytes", "HKI_PREFACE"),
    (r"A head of (\d+) bytes", "HKI_HEAD"),
    (r"ceil\(n / (\d+)\) f32 scales", "HKI_BLOCK"),
    (r"its (\d+) bytes\. No certificates", "HK_KEY_BYTES"),
]
FILE_NUMBERS = [
    (r"# The center file, version (\d+)", "HKI_CENTER_VERSION"),
    (r"(\d+) undo slots", "HKI_UNDO_SLOTS"),
    (r"in the first page, at (\d+)", "HKI_SECTIONS_AT"),
    (r"at most (\d+) sections", "HKI_MAX_SECTIONS"),
    (r"at most (\d+) vectors", "HKI_MAX_VECTORS"),
    (r"\| (\d+) \| u32\[\d+\] \| row ids", "HKI_UNDO_IDS"),
    (r"\| \d+ \| u32\[(\d+)\] \| row ids", "HKI_BATCH_ROWS"),
    (r"\| (\d+) \| f32\[\] \| old values", "HKI_UNDO_DATA"),
    (r"Each takes (\d+) bytes", "sizeof(hki_worker_record)"),
    (r"(\d+) bytes for every chunk", "sizeof(hki_chunk_record)"),
    (r"cursor = exchange << (\d+)",
     "__builtin_ctzll(HKI_CURSOR(1, 0))"),
]
STRUCTS = {"Head": "hki_center_head", "Table of sections": "hki_section_table",
           "Section": "hki_section", "Workers": "hki_worker_record",
           "Chunks": "hki_chunk_record", "Undo slots": "hki_undo_head"}
PROBE = """#include <stdio.h>
static void show(unsigned long long v) { printf("%llu\\n", v); }
#include <stddef.h>
#include "cluster/cluster.h"
#include "center/center_sections.h"
#include "cluster/wire/encoding.h"
#include "center/shard.h"
#include "cluster/wire/wire.h"
int main(void) {
"""


def evaluate(expressions):
    """Values of C expressions over the internal headers."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "probe.c")
        source.write_text(PROBE + "".join(
            f"show((unsigned long long)({x}));\n" for x in expressions) + "}\n")
        program = str(pathlib.Path(folder, "probe"))
        subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11",
                        f"-I{ROOT / 'src'}", f"-I{ROOT / 'include'}",
                        str(source), "-o", program], check=True)
        done = subprocess.run([program], check=True, capture_output=True,
                              text=True)
    return [int(x) for x in done.stdout.split()]


def check_numbers(name, text, numbers):
    problems, found = [], []
    for regex, expression in numbers:
        m = re.search(regex, text)
        if m:
            found.append((m.group(0), int(m.group(1)), expression))
        else:
            problems.append(f"docs/formats/{name}: says nothing like {regex}")
    values = evaluate([e for _, _, e in found])
    for (words, said, expression), value in zip(found, values):
        if said != value:
            problems.append(f"docs/formats/{name}: {words}: {expression} is "
                            f"{value}")
    return problems


def enum_of(header, prefix, end):
    """{NAME: value} of the constants HKI_<prefix>NAME up to `end`."""
    found = re.findall(rf"^\s+HKI_{prefix}([A-Z_0-9]+) = (\d+)", header, re.M)
    return {k: int(v) for k, v in found if k != end}


def section(text, heading):
    """The text below a heading of any level, up to the next."""
    m = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#+ |\Z)", text,
                  re.M | re.S)
    return m.group(1) if m else ""


def table_below(text, heading):
    """{name: number} of rows "| 4 NAME | ..." below a table's head."""
    m = re.search(rf"^\| {re.escape(heading)} \|.*?\n\|.*?\n((?:\|.*\n)+)",
                  text, re.M)
    rows = re.findall(r"^\| (\d+) ([A-Z_0-9]+) \|", m.group(1) if m else "",
                      re.M)
    return {name: int(n) for n, name in rows}


STATES = ["start", "layout", "open", "member", "exchange", "values"]


def states(words):
    """A set of states; idle and any stand for several."""
    short = {"idle": ["open", "member"], "any": STATES, "asking":
             ["open", "member"], "ever": STATES}
    return {s for word in words for s in short.get(word, [word])}


def frames_said(text):
    """{frame: (roles, states of clients, states of the center)} of the page."""
    said = {}
    rows = re.findall(r"^\| \d+ \| ([A-Z_]+) \| ([^|]+) \| ([^|]+) \|", text,
                      re.M)
    for name, who, when in rows:
        roles = set(who.split(",")[0]) if who != "center" else set()
        parts = when.split("; center: ")
        center = parts[-1] if "center" in who else ""
        client = parts[0] if roles else ""
        said[name] = (roles, states(re.findall(r"\w+", client)),
                      states(re.findall(r"\w+", center)))
    return said


def frames_there():
    """The same of the table itself."""
    source = (ROOT / "src/cluster/wire/frame_table.c").read_text()
    rows = re.findall(r'\{"([A-Z_]+)",([^,]+),([^,]+),([^,]+),', source)

    def roles(mask):
        mask = mask.replace("ALL", "W|O|C|A")
        return set(re.findall(r"[WOCA]", mask))

    return {name: (roles(who), states(re.findall(r"[a-z]+", at.lower())),
                   states(re.findall(r"[a-z]+", center.lower())))
            for name, who, at, center in rows}


def check_wire():
    text = (FORMATS / "wire.md").read_text()
    header = ((ROOT / "src/cluster/wire/wire.h").read_text() +
              (ROOT / "src/center/shard.h").read_text())
    kernels = (ROOT / "src/cluster/wire/encoding.h").read_text()
    source = (ROOT / "src/cluster/wire/wire.c").read_text()
    problems = check_numbers("wire.md", text, WIRE_NUMBERS)

    def compare(what, said, there):
        if said != there:
            problems.append(f"docs/formats/wire.md: {what}: the page has "
                            f"{said}, the code {there}")

    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", text, re.M)
    types = re.search(r"typedef enum hki_type \{(.*?)\}", header, re.S)
    compare("types", {n: int(v) for v, n in rows},
            enum_of(types.group(1), "", "TYPES"))
    compare("who may send what, and when", frames_said(text), frames_there())
    compare("roles", table_below(text, "role of open"),
            enum_of(header, "ROLE_", ""))
    compare("flags of begin", table_below(text, "flags of begin"),
            enum_of(header, "BEGIN_", ""))
    compare("flags of wait", table_below(text, "flags of wait"),
            enum_of(header, "WAIT_", ""))
    compare("actions of gate", table_below(text, "action of gate"),
            enum_of(header, "GATE_", ""))
    compare("reasons", table_below(text, "reason of ERROR"),
            enum_of(header, "WHY_", ""))
    compare("calls", table_below(text, "op of call"),
            enum_of(header, "CALL_", ""))
    compare("encodings", table_below(text, "encoding"),
            enum_of(kernels, "ENC_", ""))

    bodies = re.findall(r"^BODY\((\w+),(.*?)\);$", source, re.M | re.S)
    for name, fields in bodies:
        order = ["reserved" if f == "RESERVED" else f[len(name) + 4:-1]
                 for f in re.findall(rf"F\({name}, \w+\)|RESERVED", fields)]
        struct = re.search(r"typedef struct (hki(?:_msg)?_%s) \{(.*?)\} \1;"
                           % name, header, re.S).group(2)
        struct = re.sub(r"//.*", "", struct)
        kinds = {"reserved": "u32"}
        for kind, names in re.findall(r"(\w+) ([\w ,\[\]]+);", struct):
            for one in names.split(","):
                kinds[one.strip().split("[")[0]] = TYPES[kind]
        there = [(kinds[f], f) for f in order]
        m = re.search(rf"^\*\*{name}\*\*:(.*?)\n\n", text, re.M | re.S)
        said = re.findall(r"\b(u32|i32|u64|i64|f64|text)\s+`(\w+)`",
                          m.group(1) if m else "")
        compare(f"body {name}", said, there)

    limit = re.search(r"have not identified themselves \| (\d+)", text)
    there = re.search(r"#define MAX_GREETING (\d+)",
                      (ROOT / "src/cluster/center/server_accept.c").read_text())
    compare("greeting connections", limit and limit.group(1),
            there and there.group(1))
    return problems


def check_center_file():
    text = (FORMATS / "center-file.md").read_text()
    problems = check_numbers("center-file.md", text, FILE_NUMBERS)
    header = "".join((ROOT / "src/center" / name).read_text() for name in
                     ("center_file.h", "center_sections.h"))
    rows = []
    for heading, struct in STRUCTS.items():
        found = re.findall(r"^\| (\d+) \| (\w+)(?:\[(\d+)\])? \| `(\w+)` \|",
                           section(text, heading), re.M)
        for offset, kind, count, name in found:
            # A struct inside is told by its own table.
            size = WIDTH[kind] * int(count or 1) if kind in WIDTH else None
            rows.append((struct, name, int(offset), size))
        # Every field is in the table.
        body = re.search(r"typedef struct %s \{(.*?)\} %s;" % (struct, struct),
                         header, re.S).group(1)
        body = re.sub(r"//.*", "", body)
        names = [re.sub(r"\[.*", "", n.strip()) for decl in
                 re.findall(r"\w+ ([\w ,\[\]]+);", body)
                 for n in decl.split(",")]
        for name in sorted(set(names) - {row[3] for row in found}):
            problems.append(f"docs/formats/center-file.md: {heading}: no row "
                            f"for {name}")
    values = evaluate([x for s, n, _, _ in rows for x in
                       (f"offsetof({s}, {n})", f"sizeof((({s} *)0)->{n})")])
    for i, (struct, name, offset, size) in enumerate(rows):
        there = values[2 * i:2 * i + 2]
        if offset != there[0] or (size is not None and size != there[1]):
            problems.append(f"docs/formats/center-file.md: {struct}.{name} is "
                            f"at {there[0]}, {there[1]} bytes")
    return problems


def check_deadlines():
    """Defaults of docs/cluster.md, by the sources."""
    text = section((ROOT / "docs/cluster.md").read_text(), "Deadlines")
    there = {}
    for path in sorted((ROOT / "src/cluster").rglob("*.c")):
        for name, value in re.findall(r"\.(\w+_ms) = (\d+)",
                                      path.read_text()):
            there.setdefault(name, set()).add(int(value))
    out = []
    rows = re.findall(r"^\| `(\w+_ms)` \| (\d+) \|", text, re.M)
    for name, value in rows:
        if int(value) not in there.get(name, ()):
            out.append(f"docs/cluster.md: {name} is {value}; the code has "
                       f"{sorted(there.get(name, ()))}")
    for name in sorted(set(there) - {name for name, _ in rows}):
        out.append(f"docs/cluster.md: no deadline {name}")
    return out


def check_series():
    """Names of docs/formats/metrics.md, by the sources."""
    text = (FORMATS / "metrics.md").read_text()
    said = set(re.findall(r"`(hooke_[a-z_]+)", section(text, "Center") +
                          section(text, "Worker") + section(text, "Evaluator") +
                          section(text, "Worker and evaluator")))
    code = "".join(p.read_text() for p in (ROOT / "src/cluster").rglob("*.c"))
    there = set(re.findall(r'"(hooke_[a-z_]+[a-z])"', code))
    return [f"docs/formats/metrics.md: {name} is "
            f"{'not served' if name in said else 'missing'}"
            for name in sorted(said ^ there)]


def check_refusals():
    """Kinds of refusals in docs/cluster.md, by the sources."""
    text = section((ROOT / "docs/cluster.md").read_text(), "Guards")
    said = re.findall(r"^\| `(\w+)` \|", text, re.M)
    code = (ROOT / "src/cluster/center/server_info.c").read_text()
    names = re.search(r"refusal_names\[.*?\{(.*?)\}", code, re.S).group(1)
    there = re.findall(r'"(\w+)"', names)
    return [] if said == there else [
        f"docs/cluster.md: guards are {said}; the code has {there}"]


def problems():
    return (check_wire() + check_center_file() + check_deadlines() +
            check_series() + check_refusals())


if __name__ == "__main__":
    for line in problems():
        print(line)

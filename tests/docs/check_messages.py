"""Compares docs/troubleshooting.md with the messages in the sources.

A message is quoted as it stands in the source, with <words> in the place of
what is filled in. Every quoted message has to exist, and every message that a
user of the program can meet has to be quoted.
"""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "troubleshooting.md"
# Functions that fail, and which of their arguments is the format.
CALLS = {"cli_fail": 0, "cli_usage_error": 1, "hki_fail": 1,
         "hki_file_reader_fail": 3}
STATUS = {"hki_fail": 0, "hki_file_reader_fail": 1}
CALL = re.compile(r"\b(" + "|".join(CALLS) + r")\(")
STRING = r'"((?:[^"\\]|\\.)*)"'
# What a user of the program meets: everything that cli/ says itself, and of
# the library what files, peers and the system bring about. Arguments that
# cli/ never gets wrong (HK_E_INVALID_ARG and the like of an interface) are the
# business of the headers.
OUTSIDE = {"HK_E_NOT_FOUND", "HK_E_EXISTS", "HK_E_IO", "HK_E_DATA",
           "HK_E_TIMEOUT", "HK_E_NOT_FINITE", "HK_E_UNAVAILABLE",
           "HK_E_DENIED"}
# Where a state or a range is the peer's or the file's as well.
STRICT = ("codec", "transport", "cluster", "ckpt")
ALSO = {"HK_E_STATE", "HK_E_RANGE", "HK_E_UNSUPPORTED"}
MODULES = ("base", "codec", "transport", "cluster", "data", "ckpt", "event",
           "estimator", "train")
# Calls of the C interface that the program does not make, or never so.
CALLERS = ("src/ckpt/items.c", "src/ckpt/saver.c", "src/cluster/center/board.c",
           "src/monitor/metrics.c", "src/cluster/center/run_memory.c",
           "src/cluster/remote/remote.c", "src/cluster/roles/roles_note.c",
           "src/ckpt/convert.c", "src/data/core/builder.c", "src/data/sources/lease.c",
           "src/data/transforms/select.c", "src/data/transforms/normalize.c", "src/data/core/element_spec.c",
           "src/data/images/image_table.c", "src/data/features/feature_set.c",
           "src/data/features/feature_column.c", "src/data/features/feature_cells.c",
           "src/data/features/feature_emit.c", "src/data/images/image.c",
           "src/data/files/write_data.c", "src/train/grads.c",
           "src/train/workers.c", "src/estimator/model_spec.c",
           "src/estimator/train_and_evaluate.c", "src/estimator/train.c",
           "src/estimator/run_context.c", "src/estimator/estimator.c",
           "src/estimator/predict.c")
# In these files every message is the user's: they read what he wrote.
WHOLE = ("src/launch/cluster_config.c", "src/launch/detect.c",
         "src/launch/rank.c", "src/launch/tf_config.c",
         "src/launch/wish.c", "src/launch/hostlist.c",
         "src/cluster/wire/key.c", "src/transport/endpoint.c",
         "src/transport/tls.c", "src/data/csv/csv_cut.c", "src/data/csv/csv_rows.c",
         "src/estimator/weights.c")


def arguments(text, start):
    """Arguments of the call whose bracket has just been opened."""
    out, now, depth, i = [], "", 1, start
    while True:
        c = text[i]
        if c == '"':
            end = i + 1
            while text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            now += text[i:end + 1]
            i = end + 1
            continue
        if text.startswith("//", i):
            i = text.index("\n", i)
            continue
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                return out + [now.strip()]
        if c == "," and depth == 1:
            out.append(now.strip())
            now = ""
        else:
            now += c
        i += 1


def plain(text):
    """A C format without its escapes, \\0 for what is filled in."""
    text = text.replace('\\"', '"').replace("\\n", "\n")
    text = re.sub(r"%[-+ #0]*[\d.*]*(?:hh|h|ll|l|z|j)?[a-zA-Z]", "\0", text)
    return text.replace("%%", "%")


def formats(argument, constants):
    """The format strings of an argument: several with a ?: in it."""
    argument = re.sub(r'"\s*PRI\w+\s*"', "d", argument)
    for name, value in constants.items():
        argument = re.sub(rf"\b{name}\b", lambda _, v=value: f'"{v}"',
                          argument)
    run = rf"{STRING}(?:\s*{STRING})*"
    for m in re.finditer(run, argument):
        yield plain("".join(re.findall(STRING, m.group(0))))


def defined(text):
    """Constants that are strings."""
    return dict(re.findall(rf"^#define (\w+) {STRING}$", text, re.M))


def messages(path, shared):
    """(line, status, message) of every failing call of a file."""
    text = path.read_text(encoding="utf-8")
    constants = {**shared, **defined(text)}
    for m in CALL.finditer(text):
        if text[:m.start()].rsplit("\n", 1)[-1].startswith(("int ", "hk_")):
            continue  # the function itself
        args = arguments(text, m.end())
        at = CALLS[m.group(1)]
        line = text.count("\n", 0, m.start()) + 1
        status = args[STATUS[m.group(1)]] if m.group(1) in STATUS else ""
        # Readers of records say where they are.
        front = "\0: record \0 at byte \0: " if at == 3 else ""
        if len(args) > at:
            for one in formats(args[at], constants):
                yield line, status, front + one


def is_bare(message):
    """Nothing but what is filled in."""
    return not re.search(r"[a-zA-Z]", message.replace("\0", ""))


def sources():
    yield from sorted((ROOT / "cli").glob("*.c"))
    yield from sorted((ROOT / "src").rglob("*.c"))


def is_for_users(path, status):
    name = str(path.relative_to(ROOT))
    if name.startswith("cli/") or name in WHOLE:
        return True
    if name in CALLERS:
        return False
    module = name.split("/")[1]
    wanted = OUTSIDE | (ALSO if module in STRICT else set())
    # A status that is passed on: more is said about a fault.
    return module in MODULES and (any(x in status for x in wanted) or
                                  re.fullmatch(r"[a-z]\w*", status))


def quoted():
    """{message: line} of the page: what begins an item of a list."""
    out = {}
    for n, line in enumerate(PAGE.read_text().splitlines(), 1):
        m = re.match(r"- (``.+?``|`[^`]+`)", line)
        if m:
            out[re.sub(r"<[^<>]+>", "\0", m.group(1).strip("`"))] = n
    return out


def readable(message):
    return message.replace("\0", "<...>").replace("\n", "\\n")


def problems():
    said = quoted()
    there, wanted, shared = set(), {}, {}
    for header in (ROOT / "src").rglob("*.h"):
        shared.update(defined(header.read_text(encoding="utf-8")))
    for path in sources():
        for line, status, message in messages(path, shared):
            there.add(message)
            if (is_for_users(path, status) and not is_bare(message) and
                    " NULL" not in message):
                wanted.setdefault(message,
                                  f"{path.relative_to(ROOT)}:{line}")
    out = [f"docs/troubleshooting.md:{n}: no such message any more: "
           f"{readable(m)}" for m, n in said.items() if m not in there]
    out += [f"docs/troubleshooting.md: nothing about {readable(m)} ({place})"
            for m, place in wanted.items() if m not in said]
    return out


if __name__ == "__main__":
    for problem in problems():
        print(problem)

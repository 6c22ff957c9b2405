#!/usr/bin/env python3
"""The center and everything around it asks the operating system for nothing but
through base/runtime.h (locks, threads, clocks, random bytes), base/io.h (files)
and src/transport (connections), so that it can run on a simulated one.

    check_runtime.py [BUILD_FOLDER]

Two views of the same rule. The sources are read without comments and strings:
calls by name, which finds pthread_mutex_lock although base/runtime.h calls it in
every object, too. The object files of BUILD_FOLDER, where one is given, are asked
for the symbols that they need: this finds what macros, headers and pointers to
functions hide; what the inline functions of base/runtime.h call is no fault there.

An exception that nobody needs any more is a fault.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUNTIME = ROOT / "src/base/runtime.h"

THREADS = r"pthread_\w+|sem_\w+|mtx_\w+|cnd_\w+|thrd_\w+"
CLOCKS = (r"clock_\w+|gettimeofday|time|nanosleep|u?sleep|alarm|setitimer"
          r"|timer_\w+|timerfd_\w+")
RANDOM = r"getrandom|getentropy|s?rand|s?random"
WAITS = r"p?poll|p?select|epoll_\w+|eventfd|signalfd"
SOCKETS = (r"socket|socketpair|connect|bind|listen|accept4?|send|sendto|sendmsg"
           r"|recv|recvfrom|recvmsg|shutdown|[gs]etsockopt")
FILES = (r"open|openat|creat|close|dup[23]?|fopen|fdopen|freopen|tmpfile|mkd?stemp"
         r"|mkdtemp|p?write|p?writev|rename|renameat2?|unlink|unlinkat|remove"
         r"|mkdir|mkdirat|rmdir|link|linkat|symlink|f?truncate|fsync|fdatasync"
         r"|sync|syncfs|sync_file_range|posix_fallocate|fallocate|flock|lockf"
         r"|mmap|munmap|mremap|msync|madvise|memfd_create")
# libmicrohttpd serves from a thread of its own.
THREADED = r"MHD_start_daemon"

# What a module must not call. A transport may call the kernel for its own
# connections: sockets, the memory that two processes share, and the files by
# which they find and trust each other.
INSIDE = "|".join((THREADS, CLOCKS, RANDOM, WAITS, SOCKETS, FILES, THREADED))
BANNED = {
    "elastic": INSIDE,
    "center": INSIDE,
    "cluster": INSIDE,
    "launch": INSIDE,
    "monitor": INSIDE,
    "transport": "|".join((THREADS, CLOCKS, RANDOM, THREADED)),
}

EXCEPTIONS = {
    # The one thread that is not the runtime's, and the sockets it serves.
    "src/monitor/metrics_http.c": {"MHD_start_daemon", "shutdown"},
}

SKIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.S)
DEFINED = re.compile(r"^[A-Za-z_][\w \*]*?\b(\w+)\(", re.M)


def calls(text, banned):
    """(line, name) of the calls, and of everything that is named pthread_."""
    text = SKIPPED.sub(lambda m: "\n" * m.group(0).count("\n"), text)
    own = set(DEFINED.findall(text))
    call = rf"(?<!\w)(?<!\.)(?<!->)({banned})\s*\(|\b(pthread_\w+|pthread\.h)\b"
    for m in re.finditer(call, text):
        name = m.group(1) or m.group(2)
        if name not in own:
            yield text.count("\n", 0, m.start()) + 1, name


def needs(objects):
    """(source, name) of the symbols that the object files take from others."""
    done = subprocess.run(["nm", "--undefined-only", "--print-file-name", *objects],
                          capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        place, name = line.rsplit(":", 1)
        source = place[place.index("/src/") + 1:].removesuffix(".o")
        if (ROOT / source).exists():  # not of a build before it was moved
            yield source, name.split()[-1].split("@")[0]


def inlined():
    """What base/runtime.h calls in the objects of others."""
    return set(re.findall(r"\bpthread_\w+(?=\()", RUNTIME.read_text()))


def main():
    faults, used, n_files, n_objects = [], set(), 0, 0

    def look(source, line, name):
        if name in EXCEPTIONS.get(source, ()):
            used.add((source, name))
        else:
            faults.append(f"{source}{line}: {name}")

    allowed = inlined()
    for module, banned in BANNED.items():
        for path in sorted((ROOT / "src" / module).rglob("*.[ch]")):
            n_files += 1
            for line, name in calls(path.read_text(), banned):
                look(str(path.relative_to(ROOT)), f":{line}", name)
        if len(sys.argv) < 2:
            continue
        folder = pathlib.Path(sys.argv[1]) / f"CMakeFiles/hki_{module}.dir/src/{module}"
        objects = sorted(map(str, folder.rglob("*.o")))
        n_objects += len(objects)
        for source, name in needs(objects) if objects else ():
            if name not in allowed and re.fullmatch(banned, name):
                look(source, " (object file)", name)
    faults += [f"{source}: {name} is not called any more; delete the exception"
               for source, names in EXCEPTIONS.items() for name in sorted(names)
               if (source, name) not in used]
    if n_files == 0 or (len(sys.argv) > 1 and n_objects == 0):
        faults.append("found nothing to check")
    for fault in faults:
        print(f"runtime: {fault}")
    print(f"runtime: {n_files} files and {n_objects} object files checked, "
          f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Files behind URLs, read by the program as a user reads them.

    remote.py HOOKE CAT

nginx with TLS, moto's S3 server with signatures on, and a server that lies.
"""
import concurrent.futures
import gzip
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import servers

LIMIT = 60  # seconds for one command, on a loaded machine
HOOKE, CAT = (os.path.abspath(x) for x in sys.argv[1:3])
FAILED = []


class Bed:
    """Servers, files and clean surroundings."""

    def __init__(self, folder):
        self.folder = folder
        self.root = folder / "www"
        self.root.mkdir()
        make = random.Random(1)
        self.big = make.randbytes(11 << 20)
        self.data = make.randbytes(300000)
        rows = "".join(f"{i},{i % 7},{i * 3 % 11},{'ab'[i % 7 > 3]}\n"
                       for i in range(30000))
        self.csv = ("id,x,y,label\n" + rows).encode()
        files = {"big": self.big, "data": self.data, "empty": b"",
                 "table.csv": self.csv, "table.csv.gz": gzip.compress(self.csv)}
        for name, data in files.items():
            (self.root / name).write_bytes(data)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            nginx = pool.submit(servers.Nginx, folder / "nginx", self.root)
            self.s3 = servers.S3({
                "big": self.big, "empty": b"", "a b/ü+&.csv": self.csv,
                "shard-0.csv": self.csv, "shard-1.csv": self.csv,
                "other.csv": b"id\n1\n", "shard-2/deep.csv": b"id\n1\n"})
            self.nginx = nginx.result()
        self.liar = servers.Liar(self.data)

    def close(self):
        for server in (self.nginx, self.s3, self.liar):
            server.close()

    def run(self, command, cwd=None, **variables):
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        environment = {"PATH": os.environ["PATH"], "HOME": str(home),
                       "CURL_CA_BUNDLE": str(self.nginx.cert)}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                environment[name] = os.environ[name]
        environment.update(variables)
        begin = time.monotonic()
        done = subprocess.run(
            [str(x) for x in command], env={k: v for k, v in environment.items()
                                            if v is not None},
            cwd=cwd or self.folder, capture_output=True, timeout=LIMIT)
        done.seconds = time.monotonic() - begin
        return done

    def cat(self, url, *pieces, **variables):
        return self.run([CAT, url, *pieces], **variables)

    def lie(self, name, *pieces, **variables):
        return self.cat(self.liar.url(name), *pieces, HOOKE_ALLOW_HTTP="1",
                        **{"HOOKE_REMOTE_TIMEOUT": "20", **variables})


def check(what, good, done=None):
    if good:
        return
    text = "" if done is None else (
        f"\n  exit {done.returncode} after {done.seconds:.1f} s, "
        f"{len(done.stdout)} bytes\n  {done.stderr.decode()[-600:]}")
    FAILED.append(f"{what}{text}")


def same(what, done, data):
    check(what, done.returncode == 0 and done.stdout == data, done)


def says(what, done, *words):
    text = done.stderr.decode()
    check(f"{what}: says {words}",
          done.returncode not in (0, -6, -11) and
          all(w in text for w in words) and text.count("\n") <= 2, done)


# ---- nginx -----------------------------------------------------------------

def web_whole(b):
    same("big by https", b.cat(b.nginx.url("big")), b.big)
    same("empty by https", b.cat(b.nginx.url("empty")), b"")


def web_pieces(b):
    places = [(0, 10), (5 << 20, 100), (100, 70000), (len(b.big) - 5, 100),
              (3 << 20, 2 << 20), ((3 << 20) + 5, 10), (len(b.big), 10)]
    done = b.cat(b.nginx.url("big"), *[x for p in places for x in p])
    same("pieces by https", done, b"".join(b.big[o:o + n] for o, n in places))
    says("behind the end", b.cat(b.nginx.url("data"), 300001, 1),
         "has 300000 bytes, but reading was to continue at byte 300001")


def web_little(b):
    """A few bytes are a few blocks: what is read is counted by nginx."""
    b.cat(b.nginx.url("big") + "?few", 8 << 20, 100)
    lines = (b.nginx.folder / "access.log").read_text().splitlines()
    sent = sum(int(x.split()[9]) for x in lines if "?few" in x)
    check(f"100 bytes of 11 MB cost {sent}", 0 < sent <= 200000)


def web_refusals(b):
    says("not there", b.cat(b.nginx.url("nothing")), "HK_E_NOT_FOUND",
         "nothing: no such file (404)")
    says("unknown certificate",
         b.cat(b.nginx.url("data"), CURL_CA_BUNDLE=None), "HK_E_DENIED",
         "is not trusted")
    same("SSL_CERT_FILE", b.cat(b.nginx.url("data"), CURL_CA_BUNDLE=None,
                                SSL_CERT_FILE=str(b.nginx.cert)), b.data)
    says("no certificates",
         b.cat(b.nginx.url("data"), CURL_CA_BUNDLE="/no/such"),
         "certificates cannot be read from /no/such")
    says("http", b.cat(b.nginx.url("data", plain=True)), "HK_E_DENIED",
         "or set HOOKE_ALLOW_HTTP=1")
    same("http allowed", b.cat(b.nginx.url("data", plain=True),
                               HOOKE_ALLOW_HTTP="1"), b.data)
    says("other kinds", b.cat("gs://bucket/file"), "https://, s3:// and this machine")
    says("a password", b.cat("https://me:pass@host/x"), "has a password")
    says("a signature", b.cat("https://h/x?X-Amz-Signature=abcdef"),
         "https://h/x: is a signed address")
    says("no host", b.cat("https:///x"), "names no host")
    says("a blank", b.cat("https://h/a b"), "%20")
    says("a bad deadline",
         b.cat(b.nginx.url("data"), HOOKE_REMOTE_TIMEOUT="soon"),
         "HOOKE_REMOTE_TIMEOUT is soon; it has to be a number of seconds")
    port = servers.free_port()
    says("nobody there", b.cat(f"https://127.0.0.1:{port}/x",
                               HOOKE_REMOTE_TIMEOUT="1"), "HK_E_UNAVAILABLE",
         "connect", "tried")
    for done in (b.cat("https://me:pass@host/x"),
                 b.cat("https://h/x?X-Amz-Signature=abcdef")):
        check("the secret part is not shown",
              b"pass@" not in done.stderr and b"abcdef" not in done.stderr,
              done)


# ---- the program -----------------------------------------------------------

EXPERIMENT = """\
model: {{canned: dnn, hidden: [8]}}
data:
  train: {{source: csv, files: {files}, label: label, batch: 32}}
run: {{steps: 30}}
"""


def program_reads(b):
    url = b.nginx.url
    out = b.folder / "out.csv"
    for name in ("table.csv", "table.csv.gz"):
        done = b.run([HOOKE, "convert", url(name), out])
        check(f"convert {name}", done.returncode == 0, done)
        local = b.folder / "local.csv"
        b.run([HOOKE, "convert", b.root / name, local])
        check(f"convert {name} gives the same",
              out.read_bytes() == local.read_bytes())
    b.run([HOOKE, "convert", "digits", b.root / "d.tfrecord", "--count", "50"])
    there = b.run([HOOKE, "inspect", url("d.tfrecord")])
    here = b.run([HOOKE, "inspect", b.root / "d.tfrecord"])
    check("inspect", there.returncode == 0 and
          there.stdout.split(b":", 3)[-1] == here.stdout.split(b":", 1)[-1],
          there)
    says("convert to a URL", b.run([HOOKE, "convert", "digits", url("x.csv")]),
         "OUT is a remote address; convert writes local files only")
    says("checkpoints", b.run([HOOKE, "convert", url("x.safetensors"), "y.npz"]),
         "checkpoints are read from local files only; download it first")


def hash_of(data):
    """As cli/experiment/fingerprint.c has it."""
    def step(h, word):
        h = (h ^ word) * 0x100000001b3 & (1 << 64) - 1
        return h ^ h >> 29
    own = 0xcbf29ce484222325
    for i in range(0, len(data), 8):
        own = step(own, int.from_bytes(data[i:i + 8], "little"))
    return f"{step(0xcbf29ce484222325, own):016x}"


def program_hashes(b):
    """The hash in data.json is of the bytes that were learned, not of others
    that were read before or after them."""
    path, run = b.folder / "passes.yaml", b.folder / "run-passes"
    path.write_text("model: {canned: linear}\n"
                    "data: {train: {source: csv, label: y, files: "
                    f'"{b.liar.url("passes")}"}}}}\nrun: {{steps: 3}}\n')
    done = b.run([HOOKE, "train", path, "-d", run, "-q"], HOOKE_ALLOW_HTTP="1")
    check("train on another table each time", done.returncode == 0, done)
    learned = json.loads((run / "table.json").read_text())["target_mean"]
    data = json.loads((run / "data.json").read_text())["data.train.files"]
    check(f"a mean of {learned} and {data}",
          data["hash"] == hash_of(b.liar.table_of_pass(int(learned))))


def program_resumes(b):
    """A table that has changed behind its URL is another one."""
    table, path = b.root / "again.csv", b.folder / "again.yaml"
    other = b.csv.replace(b"29999,", b"29998,")

    def train(folder, steps, data, seconds):
        table.write_bytes(data)
        os.utime(table, (seconds, seconds))
        return b.run([HOOKE, "train", path, "-d", b.folder / folder, "-q",
                      "--steps", str(steps)])

    for place in ("", "vague/"):
        folder = f"run-again-{place[:-1]}"
        path.write_text(EXPERIMENT.format(
            files=f'"{b.nginx.url(place + "again.csv")}"'))
        # As it was; then the same bytes of another time.
        for steps, seconds in ((20, 10**9), (22, 10**9), (24, 10**9 + 60)):
            done = train(folder, steps, b.csv, seconds)
            check(f"{place}again.csv, {steps} steps", done.returncode == 0, done)
        says(f"another {place}again.csv",
             train(folder, 26, other, 10**9 + (0 if place else 90)),
             "the content of data.train.files has changed (the same size, but "
             "other bytes)")
        says(f"a longer {place}again.csv",
             train(folder, 26, b.csv + b"1,1,3,a\n", 10**9), "bytes, now")


def program_trains(b):
    results = []
    for name, files in (("here", str(b.root / "table.csv")),
                        ("there", b.nginx.url("table.csv")),
                        ("braces", b.nginx.url("{table,}.csv").replace(
                            "{table,}", "{table,table}"))):
        path = b.folder / f"{name}.yaml"
        path.write_text(EXPERIMENT.format(files=f'"{files}"'))
        done = b.run([HOOKE, "train", path, "-d", b.folder / f"run-{name}",
                      "--json", "-q"])
        check(f"train {name}", done.returncode == 0, done)
        results.append(done.stdout)
    loss = [r.split(b'"loss":')[1].split(b",")[0] for r in results[:2]]
    check(f"training here and there is the same: {loss}", loss[0] == loss[1])
    for address, more in (("table.csv", []),
                          ("table.csv.gz?version=2", ["-d", "run-query"])):
        done = b.run([HOOKE, "train", b.nginx.url(address), "--label", "label",
                      "--steps", "20", "-q", *more], cwd=b.folder)
        check(f"train {address}", done.returncode == 0, done)
    check("the run has the table's name", (b.folder / "runs/table").is_dir())
    says("an experiment by https",
         b.run([HOOKE, "train", b.nginx.url("my.yaml"), "-q"]),
         "experiments are read from local files only")
    (b.folder / "star.yaml").write_text(
        EXPERIMENT.format(files=b.nginx.url("*.csv")))
    says("a pattern by https", b.run([HOOKE, "train", "star.yaml", "-q"]),
         "only possible with s3://")


def interrupted(b):
    """Ctrl-C ends a run that waits for a server which says nothing more."""
    path, records = b.folder / "silent.yaml", b.folder / "s.tfrecord"
    b.run([HOOKE, "convert", "digits", records, "--count", "1000"])
    liar = servers.Liar(records.read_bytes())
    path.write_text(
        "model: {layers: [{dense: 10}]}\ndata: {train: {source: tfrecord, "
        f"files: '{liar.url('until_quiet')}', "
        "columns: {image: 'bytes[784]', label: int}}}\n")
    environment = dict(os.environ, HOOKE_ALLOW_HTTP="1")
    process = subprocess.Popen(
        [HOOKE, "train", path, "-d", str(b.folder / "run-silent"), "--steps",
         "1000000"],
        env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    end = time.monotonic() + LIMIT
    while liar.counts.get("until_quiet", 0) < 100 and time.monotonic() < end:
        time.sleep(0.05)  # dozens of passes: it trains
    liar.quiet.set()
    time.sleep(1)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
    seconds = time.monotonic() - begin
    liar.quiet.clear()
    done = b.run([HOOKE, "train", path, "-d", b.folder / "run-silent",
                  "--steps", "1", "-q"], HOOKE_ALLOW_HTTP="1")
    check("it goes on after Ctrl-C", done.returncode == 0, done)
    liar.close()
    check(f"Ctrl-C: exit {process.returncode} after {seconds:.1f} s: "
          f"{process.stderr.read().decode()[-300:]}",
          process.returncode == 130 and seconds < 15)


# ---- S3 --------------------------------------------------------------------

def s3_reads(b):
    keys = b.s3.environment()
    same("big by s3", b.cat("s3://numbers/big", **keys), b.big)
    same("empty by s3", b.cat("s3://numbers/empty", **keys), b"")
    same("odd key", b.cat("s3://numbers/a b/ü+&.csv", **keys), b.csv)
    same("pieces by s3", b.cat("s3://numbers/big", 5 << 20, 1000, **keys),
         b.big[5 << 20:][:1000])


def s3_files(b):
    """Keys, region and endpoint out of the files of a profile."""
    folder = b.folder / "aws"
    folder.mkdir()
    (folder / "credentials").write_text(
        "# keys\n[default]\naws_access_key_id = WRONGKEY\n"
        "aws_secret_access_key=wrong\n\n[ data ]\n"
        f"aws_access_key_id={b.s3.key_id}\n"
        f"  aws_access_key_id=indented\n"
        f"aws_secret_access_key  =  {b.s3.secret}\n")
    (folder / "config").write_text(
        f"[default]\nregion=nowhere\n[profile data]\nregion = {b.s3.REGION}\n"
        f"endpoint_url = {b.s3.endpoint}/\n")
    files = {"AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"),
             "AWS_CONFIG_FILE": str(folder / "config")}
    same("a profile", b.cat("s3://numbers/big", AWS_PROFILE="data", **files),
         b.big)
    home = folder / "home"
    home.mkdir()
    shutil.copytree(folder, home / ".aws", ignore=lambda *_: ["home"])
    same("~/.aws", b.cat("s3://numbers/big", AWS_PROFILE="data",
                         HOME=str(home)), b.big)
    says("the default profile",
         b.cat("s3://numbers/big", AWS_ENDPOINT_URL_S3=b.s3.endpoint, **files),
         "access denied (403")


def s3_refuses(b):
    keys = b.s3.environment()
    token = "AToken/That+Is=Secret"
    cases = [
        ("wrong secret", {"AWS_SECRET_ACCESS_KEY": "w" * 40}, "403"),
        ("wrong key", {"AWS_ACCESS_KEY_ID": "AKIANOBODYXXXXXXXXXX"}, "403"),
        ("no keys", {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
         "403"),
        ("a token that is none", {"AWS_SESSION_TOKEN": token}, "40"),
        ("half of the keys", {"AWS_SECRET_ACCESS_KEY": None},
         "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not; set both"),
        ("a line in a token", {"AWS_SESSION_TOKEN": token + "\r\nX-Y: 1"},
         "AWS_SESSION_TOKEN has a character"),
    ]
    for what, variables, text in cases:
        use = {**keys, "HOOKE_LOG": "debug", **variables}
        for command in ([CAT, "s3://numbers/big"],
                        [HOOKE, "convert", "s3://numbers/shard-*.csv", "o.csv"],
                        [HOOKE, "inspect", "s3://numbers/big"]):
            if what == "no keys" and "convert" in command:
                continue  # moto's list fails by itself
            done = b.run(command, **use)
            if what != "a token that is none":
                says(f"{what}, {command[1]}", done, text)
            shown = done.stdout + done.stderr
            for secret in (b.s3.secret, b.s3.key_id, token, "w" * 40,
                           "AKIANOBODY"):
                check(f"{what} shows {secret}", secret.encode() not in shown,
                      done)
    says("no such key", b.cat("s3://numbers/none", **keys), "HK_E_NOT_FOUND",
         "NoSuchKey")
    says("no key", b.cat("s3://numbers/", **keys), "names a bucket")
    says("no bucket", b.cat("s3://a b/x", **keys), "not a valid name of a bucket")


def s3_lists(b):
    keys = b.s3.environment()
    path = b.folder / "s3.yaml"
    path.write_text(EXPERIMENT.format(files="s3://numbers/shard-*.csv"))
    done = b.run([HOOKE, "train", path, "-d", b.folder / "run-s3", "-q"], **keys)
    check("train on a pattern", done.returncode == 0, done)
    path.write_text(EXPERIMENT.format(files="s3://numbers/none-*.csv"))
    done = b.run([HOOKE, "train", path, "-d", b.folder / "run-s3-2", "-q"],
                 **keys)
    says("a pattern without files", done,
         "no file matches s3://numbers/none-*.csv")


# ---- lies ------------------------------------------------------------------

def lies(b):
    for name in ("busy_twice", "drops_now_and_then", "weak_tag",
                 "knows_no_ranges", "moved"):
        yield name, {}, lambda d, n=name: same(n, d, b.data)
    for name, words, seconds in (
            ("short", ("HK_E_UNAVAILABLE", "tried 6 times"), 30),
            ("short_length", ("bytes, but announced 65536", "tried"), 30),
            ("other_bytes", ("bytes 0 to 65535 were requested, but the server sends"
                             " bytes 1-65536/300001",), 10),
            ("no_range_said", ("does not state which bytes it sends",), 10),
            ("endless", ("sends more than the 65536 requested bytes",), 10),
            ("endless_all", ("does not support byte ranges",), 10),
            ("endless_refusal", ("HK_E_NOT_FOUND",), 10),
            ("all_of_much", ("a file of 100000000 bytes needs",), 10),
            ("broken", ("HK_E_UNAVAILABLE", "answers 500 (tried 6 times"), 30),
            ("hangs_up", ("HK_E_UNAVAILABLE", "tried 6 times"), 30),
            ("to_a_file", ("HK_E_DENIED", "an address that is not https://"),
             10),
            ("to_itself", ("the server redirects more than 5 times",), 10),
            ("new_tag", ("the file was changed on the server while it was read",), 10),
            ("refuses_old_tag", ("the file was changed on the server while it was read",), 10),
            ("grows", ("the file was changed on the server while it was read",), 10),
            ("ranges_at_first", ("sends the whole file, but bytes from",), 10),
            ("immense", ("does not state which bytes it sends",), 10),
            ("claims_emptiness", ("answers 416",), 10),
            ("private", ("HK_E_DENIED", "access denied (403)"), 10)):
        yield name, {}, lambda d, n=name, w=words: says(n, d, *w)
    for name, words in (("drip", ("HK_E_TIMEOUT", "arrived within 2 s")),
                        ("silent", ("HK_E_TIMEOUT", "arrived within 2 s")),
                        ("silent_later", ("HK_E_TIMEOUT", "arrived within 2 s")),
                        ("endless_head", ()), ("no_http", ())):
        def timed(d, n=name, w=words):
            says(n, d, *w)
            check(f"{n} ends in time", d.seconds < 20, d)
        yield name, {"HOOKE_REMOTE_TIMEOUT": "2"}, timed


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hooke-remote-"))
    bed = Bed(folder)
    parts = [web_whole, web_pieces, web_little, web_refusals, program_reads,
             program_trains, program_resumes,
             program_hashes, interrupted, s3_reads, s3_files, s3_refuses,
             s3_lists]
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            told = [(pool.submit(bed.lie, name, **v), judge)
                    for name, v, judge in lies(bed)]
            done = [pool.submit(part, bed) for part in parts]
            for x, judge in told:
                judge(x.result())
            for x, part in zip(done, parts):
                check(f"{part.__name__}: {x.exception()!r}",
                      x.exception() is None)
    finally:
        bed.close()
        shutil.rmtree(folder, ignore_errors=True)
    for text in FAILED:
        print("FAILED", text)
    print(f"remote: {len(FAILED)} checks failed" if FAILED else "remote: good")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())

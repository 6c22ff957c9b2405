"""Servers that remote files are read from: nginx, moto's S3, and one that lies."""
import logging
import os
import pathlib
import socket
import subprocess
import threading
import time

WAIT = 30  # seconds until a server answers


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def await_port(port, alive):
    end = time.monotonic() + WAIT
    while time.monotonic() < end and alive():
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.02)
    return False


def make_certificate(folder):
    """A certificate for 127.0.0.1 that only those trust who are told."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert,
         "-days", "2", "-subj", "/CN=hooke test", "-addext",
         "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True)
    return cert, key


CONFIG = """\
daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2;
    fastcgi_temp_path {folder}/t3; uwsgi_temp_path {folder}/t4;
    scgi_temp_path {folder}/t5;
    server {{
        listen 127.0.0.1:{tls} ssl;
        listen 127.0.0.1:{plain};
        ssl_certificate {cert};
        ssl_certificate_key {key};
        root {root};
        keepalive_requests 100000;
        location /slow/ {{ alias {root}/; limit_rate {rate}; }}
        location /vague/ {{
            alias {root}/; etag off; add_header Last-Modified "";
        }}
    }}
}}
"""


class Nginx:
    """The files of `root` by https, and by http; under /slow/ each connection
    gets `rate` (such as 1m) a second; under /vague/ a file has no version."""

    def __init__(self, folder, root, rate="1m"):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.cert, key = make_certificate(folder)
        for _ in range(5):  # somebody may take a free port before nginx does
            self.tls, self.plain = free_port(), free_port()
            conf = folder / "nginx.conf"
            conf.write_text(CONFIG.format(
                folder=folder, root=root, cert=self.cert, key=key,
                tls=self.tls, plain=self.plain, rate=rate))
            self.process = subprocess.Popen(
                ["nginx", "-p", str(folder), "-c", str(conf), "-e",
                 str(folder / "error.log")],
                stderr=subprocess.DEVNULL)
            if await_port(self.tls, lambda: self.process.poll() is None):
                return
            self.close()
        raise RuntimeError((folder / "error.log").read_text())

    def url(self, name, plain=False):
        return (f"http://127.0.0.1:{self.plain}/{name}" if plain
                else f"https://127.0.0.1:{self.tls}/{name}")

    def close(self):
        self.process.terminate()
        self.process.wait(WAIT)


class S3:
    """moto's server, which checks signatures once it is set up."""
    REGION = "eu-west-1"

    def __init__(self, objects):
        # Calls that are free: a user, a key, a policy, a bucket, the objects.
        os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = str(4 + len(objects))
        import boto3  # both read the environment when they are imported
        from moto.server import ThreadedMotoServer
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self.server.start()
        host, port = self.server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        anybody = dict(endpoint_url=self.endpoint, region_name=self.REGION,
                       aws_access_key_id="x", aws_secret_access_key="x")
        iam, s3 = boto3.client("iam", **anybody), boto3.client("s3", **anybody)
        iam.create_user(UserName="reader")
        key = iam.create_access_key(UserName="reader")["AccessKey"]
        self.key_id, self.secret = key["AccessKeyId"], key["SecretAccessKey"]
        iam.put_user_policy(
            UserName="reader", PolicyName="read", PolicyDocument="""{
                "Version": "2012-10-17", "Statement": [{"Effect": "Allow",
                "Action": ["s3:Get*", "s3:List*"], "Resource": "*"}]}""")
        s3.create_bucket(Bucket="numbers", CreateBucketConfiguration={
            "LocationConstraint": self.REGION})
        for name, data in objects.items():
            s3.put_object(Bucket="numbers", Key=name, Body=data)

    def environment(self):
        return {"AWS_ACCESS_KEY_ID": self.key_id,
                "AWS_SECRET_ACCESS_KEY": self.secret,
                "AWS_REGION": self.REGION, "AWS_ENDPOINT_URL": self.endpoint}

    def close(self):
        self.server.stop()


class Liar:
    """Answers as the method of the path's first word says; `data` is what an
    honest server would send."""

    def __init__(self, data):
        self.data = data
        self.counts = {}
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.stopping, self.quiet = threading.Event(), threading.Event()
        threading.Thread(target=self.accept, daemon=True).start()

    def url(self, name):
        return f"http://127.0.0.1:{self.port}/{name}"

    def close(self):
        self.stopping.set()
        self.listener.close()

    def accept(self):
        while not self.stopping.is_set():
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(conn,),
                             daemon=True).start()

    def serve(self, conn):
        with conn:
            stream = conn.makefile("rb")
            while True:
                try:
                    line = stream.readline().split()
                    head = {}
                    while (text := stream.readline().strip()):
                        name, _, value = text.partition(b":")
                        head[name.lower().decode()] = value.strip().decode()
                    if len(line) < 2:
                        return
                    name = line[1].decode().strip("/").split("/")[0]
                    with self.lock:
                        n = self.counts[name] = self.counts.get(name, 0) + 1
                    first, last = 0, len(self.data) - 1
                    if "range" in head:
                        a, b = head["range"][6:].split("-")
                        first, last = int(a), min(int(b), last)
                    if not getattr(self, name)(conn, n, first, last, head):
                        return
                except OSError:
                    return

    def part(self, conn, first, last, body=None, range_=None, tag='"1"',
             more=""):
        body = self.data[first:last + 1] if body is None else body
        range_ = range_ or f"bytes {first}-{last}/{len(self.data)}"
        conn.sendall((f"HTTP/1.1 206 Partial\r\nContent-Range: {range_}\r\n"
                      f"Content-Length: {last + 1 - first}\r\nETag: {tag}\r\n"
                      f"{more}\r\n").encode() + body)
        return True

    def say(self, conn, status, more="", body=b""):
        conn.sendall((f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n"
                      f"{more}\r\n").encode() + body)
        return True

    # ---- honest, but not well ----

    def busy_twice(self, conn, n, first, last, head):
        if n <= 2:
            return self.say(conn, "503 Slow Down")
        return self.part(conn, first, last)

    def drops_now_and_then(self, conn, n, first, last, head):
        if n % 2:
            self.part(conn, first, last,
                      self.data[first:(first + last) // 2])
            return False
        return self.part(conn, first, last)

    def table_of_pass(self, k):
        return b"x,y\n" + b"".join(b"%d,%02d.%d\n" % (i % 7, k, i % 5)
                                   for i in range(200))

    def passes(self, conn, n, first, last, head):
        """Another table of the same size each time; one request is all."""
        body = self.table_of_pass(n)
        last = len(body) - 1
        return self.part(conn, 0, last, body, f"bytes 0-{last}/{last + 1}", "")

    def weak_tag(self, conn, n, first, last, head):
        assert "if-match" not in head
        return self.part(conn, first, last, tag='W/"1"')

    def knows_no_ranges(self, conn, n, first, last, head):
        return self.say(conn, "200 OK", body=self.data)

    def moved(self, conn, n, first, last, head):
        return self.say(conn, "302 Found", "Location: /weak_tag\r\n")

    # ---- not honest ----

    def short(self, conn, n, first, last, head):
        self.part(conn, first, last, self.data[first:last])
        return False

    def short_length(self, conn, n, first, last, head):
        conn.sendall((f"HTTP/1.1 206 Partial\r\nContent-Range: bytes {first}-"
                      f"{last}/{len(self.data)}\r\nContent-Length: 10\r\n\r\n")
                     .encode() + self.data[:10])
        return True

    def other_bytes(self, conn, n, first, last, head):
        return self.part(conn, first, last, range_=f"bytes {first + 1}-"
                         f"{last + 1}/{len(self.data) + 1}")

    def no_range_said(self, conn, n, first, last, head):
        return self.part(conn, first, last, range_="bytes */*")

    def endless(self, conn, n, first, last, head):
        conn.sendall((f"HTTP/1.1 206 Partial\r\nContent-Range: bytes {first}-"
                      f"{last}/{len(self.data)}\r\n\r\n").encode())
        while True:
            conn.sendall(b"x" * 65536)

    def endless_all(self, conn, n, first, last, head):
        conn.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            conn.sendall(b"x" * 65536)

    def endless_refusal(self, conn, n, first, last, head):
        conn.sendall(b"HTTP/1.1 404 Not Found\r\n\r\n")
        while True:
            conn.sendall(b"x" * 65536)

    def endless_head(self, conn, n, first, last, head):
        conn.sendall(b"HTTP/1.1 206 Partial\r\n")
        while True:
            conn.sendall(b"X-A: " + b"x" * 1000 + b"\r\n")

    def all_of_much(self, conn, n, first, last, head):
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"
                     + b"x" * 1000)
        return False

    def broken(self, conn, n, first, last, head):
        return self.say(conn, "500 Internal Server Error")

    def drip(self, conn, n, first, last, head):
        self.part(conn, first, last, b"")
        while True:
            conn.sendall(b"x")
            time.sleep(0.1)

    def silent(self, conn, n, first, last, head):
        self.stopping.wait(60)
        return False

    def silent_later(self, conn, n, first, last, head):
        if first < len(self.data) // 2:
            return self.part(conn, first, last)
        self.stopping.wait(60)
        return False

    def until_quiet(self, conn, n, first, last, head):
        if not self.quiet.is_set():
            return self.part(conn, first, last)
        self.stopping.wait(60)
        return False

    def hangs_up(self, conn, n, first, last, head):
        return False

    def no_http(self, conn, n, first, last, head):
        conn.sendall(b"\x00\x01hello\r\n\r\n" * 100)
        return False

    def to_a_file(self, conn, n, first, last, head):
        return self.say(conn, "302 Found", "Location: file:///etc/passwd\r\n")

    def to_itself(self, conn, n, first, last, head):
        return self.say(conn, "302 Found", "Location: /to_itself\r\n")

    def new_tag(self, conn, n, first, last, head):
        return self.part(conn, first, last, tag=f'"{n}"')

    def refuses_old_tag(self, conn, n, first, last, head):
        if "if-match" in head:
            return self.say(conn, "412 Precondition Failed")
        return self.part(conn, first, last)

    def grows(self, conn, n, first, last, head):
        return self.part(conn, first, last, tag="", range_=f"bytes {first}-"
                         f"{last}/{len(self.data) + (first > 0)}")

    def ranges_at_first(self, conn, n, first, last, head):
        if n == 1:
            return self.part(conn, first, last)
        return self.say(conn, "200 OK", body=self.data)

    def immense(self, conn, n, first, last, head):
        return self.part(conn, first, last, range_=f"bytes {first}-{last}"
                         "/99999999999999999999")

    def claims_emptiness(self, conn, n, first, last, head):
        return self.say(conn, "416 Range Not Satisfiable")

    def private(self, conn, n, first, last, head):
        return self.say(conn, "403 Forbidden")

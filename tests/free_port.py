"""Prints a port that nobody listens at, or as many as the argument says.

Below those that the system hands out for port 0, so that no other test gets it
before it is used.
"""
import random
import socket
import sys


def free_port():
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def free_ports(n):
    ports = set()
    while len(ports) < n:
        ports.add(free_port())
    return ports


if __name__ == "__main__":
    print(*free_ports(int(sys.argv[1]) if len(sys.argv) > 1 else 1))

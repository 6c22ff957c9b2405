"""One process of a bench of exchanges between Python workers.

    peer_python.py SYSTEM RANK SIZE FLOATS ROUNDS WHERE [--die AFTER]
    peer_python.py center ADDRESS

SYSTEM is hooke, gloo (PyTorch's PeriodicModelAverager), hivemind or torchft (its
LocalSGD over gloo). Every round waits a little, as a GPU's steps would, then averages FLOATS floats. Prints a
line of JSON a round: seconds, and exposed seconds (those that training stands
still). --die: kills itself with -9 after so many rounds.
"""

import argparse
import json
import os
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "bindings", "python"))
PAUSE = 0.5  # seconds of other work between exchanges
STEPS = 5  # in a period


def say(**what):
    print(json.dumps(what), flush=True)


def end_of_round(a, number, seconds, exposed):
    say(round=number, seconds=seconds, exposed=exposed)
    if a.die is not None and number + 1 >= a.die:
        os.kill(os.getpid(), signal.SIGKILL)


def model_of(floats):
    import torch
    model = torch.nn.Module()
    each = floats // 20
    for i in range(20):
        p = torch.nn.Parameter(torch.randn(each), requires_grad=False)
        setattr(model, "p%d" % i, p)
    return model


def run_hooke(a):
    import hooke.torch as hooke
    model = model_of(a.floats)
    with hooke.join(model, None, center=a.where, period=STEPS, workers=a.size,
                    worker=a.rank, overlap_steps=1, verbose=False) as w:
        say(ready=True)
        for number in range(a.rounds):
            exposed = 0.0
            for _ in range(STEPS):
                time.sleep(PAUSE / STEPS)
                begin = time.monotonic()
                w.step()
                exposed += time.monotonic() - begin
            w.flush()
            begin = time.monotonic()
            w.exchange_now()
            end_of_round(a, number, time.monotonic() - begin, exposed)
        s = w.stats()
        say(bytes=s.bytes_in + s.bytes_out, exchanges=s.exchanges)


def run_gloo(a):
    import datetime
    import torch.distributed as dist
    from torch.distributed.algorithms.model_averaging.averagers import (
        PeriodicModelAverager)
    dist.init_process_group("gloo", init_method="file://" + a.where, rank=a.rank,
                            world_size=a.size,
                            timeout=datetime.timedelta(seconds=20))
    model = model_of(a.floats)
    for p in model.parameters():  # it averages what is being trained
        p.grad = p.detach()
    averager = PeriodicModelAverager(period=1, warmup_steps=0)
    say(ready=True)
    for number in range(a.rounds):
        time.sleep(PAUSE)
        begin = time.monotonic()
        averager.average_parameters(model.parameters())
        seconds = time.monotonic() - begin
        end_of_round(a, number, seconds, seconds)
    say(bytes=int(2 * (a.size - 1) / a.size * 4 * a.floats) * a.rounds * 2,
        exchanges=a.rounds)


def tell(where, text):
    """What the first process tells the others."""
    with open(where + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.rename(where + ".new", where)


def hear(where):
    while not os.path.exists(where):
        time.sleep(0.05)
    with open(where, encoding="utf-8") as f:
        return f.read()


def run_torchft(a):
    import datetime
    import torch
    import torch.distributed as dist
    import torchft
    from torchft.coordination import LighthouseServer
    from torchft.local_sgd import LocalSGD
    if a.rank == 0:
        house = LighthouseServer(bind="127.0.0.1:0", min_replicas=2,
                                 join_timeout_ms=1000, heartbeat_timeout_ms=2000)
        tell(a.where, house.address())
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    limit = datetime.timedelta(seconds=20)
    model = model_of(a.floats)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=limit), min_replica_size=2,
        load_state_dict=model.load_state_dict, state_dict=model.state_dict,
        use_async_quorum=False, timeout=limit, quorum_timeout=limit, rank=0,
        world_size=1, store_addr="127.0.0.1", store_port=store.port,
        lighthouse_addr=hear(a.where), replica_id="r%d" % a.rank,
        hostname="127.0.0.1")
    say(ready=True)
    with LocalSGD(manager, model, optimizer, sync_every=1):
        for number in range(a.rounds):
            time.sleep(PAUSE)
            begin = time.monotonic()
            optimizer.step()
            seconds = time.monotonic() - begin
            end_of_round(a, number, seconds, seconds)
    say(bytes=int(2 * (a.size - 1) / a.size * 4 * a.floats) * a.rounds * 2,
        exchanges=a.rounds)
    manager.shutdown(wait=False)


def run_hivemind(a):
    import hivemind
    import torch
    first = hear(a.where).split() if a.rank > 0 else None
    dht = hivemind.DHT(initial_peers=first, start=True,
                       host_maddrs=["/ip4/127.0.0.1/tcp/0"])
    if a.rank == 0:
        tell(a.where, "\n".join(map(str, dht.get_visible_maddrs())))
    tensors = [torch.randn(a.floats)]
    averager = hivemind.DecentralizedAverager(
        tensors, dht, prefix="bench", target_group_size=a.size,
        min_matchmaking_time=1.0, start=True)
    say(ready=True)
    for number in range(a.rounds):
        time.sleep(PAUSE)
        begin = time.monotonic()
        try:
            averager.step(timeout=30)
        except Exception as error:  # a round that nobody else came to
            say(failed=str(error))
            continue
        seconds = time.monotonic() - begin
        end_of_round(a, number, seconds, seconds)
    say(bytes=0, exchanges=a.rounds)
    averager.shutdown()
    dht.shutdown()


def serve(address):
    import hooke
    with hooke.start_center(address) as c:
        say(address=c.address)
        sys.stdin.read()  # until whoever started it has ended


def main():
    if sys.argv[1] == "center":
        return serve(sys.argv[2])
    p = argparse.ArgumentParser()
    p.add_argument("system", choices=["hooke", "gloo", "hivemind", "torchft"])
    p.add_argument("rank", type=int)
    p.add_argument("size", type=int)
    p.add_argument("floats", type=int)
    p.add_argument("rounds", type=int)
    p.add_argument("where")
    p.add_argument("--die", type=int)
    a = p.parse_args()
    return globals()["run_" + a.system](a)


if __name__ == "__main__":
    main()

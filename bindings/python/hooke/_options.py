"""What every join understands."""
from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any, Optional, Sequence, Union

from . import _c
from ._errors import HookeError, check
from ._library import library

Addresses = Union[str, Sequence[str]]
KeyLike = Union[str, "os.PathLike[str]"]

COMPRESSION = {
    "none": _c.HK_COMPRESS_NONE,
    "bf16": _c.HK_COMPRESS_BF16,
    "int8": _c.HK_COMPRESS_INT8,
}


def method_id(name: str) -> int:
    """The number of a method; the error names the nearest known one."""
    out = ctypes.c_int()
    check(library().hk_method_find(name.encode(), ctypes.byref(out)))
    return out.value


def load_key(key: Optional[KeyLike]) -> Optional[_c.hk_key]:
    """The cluster key in a file that ``hooke keygen`` wrote."""
    if key is None:
        key = os.environ.get("HOOKE_KEY") or None
    if key is None:
        return None
    out = _c.hk_key()
    check(library().hk_key_load(os.fsencode(key), ctypes.byref(out)))
    return out


def addresses_of(center: Optional[Addresses]) -> list[str]:
    """Addresses of all shards; without any those of HOOKE_CENTER."""
    if center is None:
        center = os.environ.get("HOOKE_CENTER")
        if not center:
            raise HookeError(
                "no address of a center; give center='host:port' or set "
                "HOOKE_CENTER")
    if isinstance(center, str):
        center = center.split(",")
    found = [address.strip() for address in center]
    if not found or not all(found):
        raise HookeError(f"center has an empty address: {found}")
    return found


def _number(name: str) -> Optional[int]:
    text = os.environ.get(name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise HookeError(f"{name} is {text!r}, not a number") from None


@dataclass
class Options:
    """Options of a worker; hooke.torch.join says what each is for."""

    center: Optional[Addresses] = None
    key: Optional[KeyLike] = None
    period: Optional[int] = None
    workers: Optional[int] = None
    worker: Optional[int] = None
    method: Optional[str] = None
    moving_rate: Optional[float] = None
    rho: float = 0.0
    compression: str = "none"
    telemetry: bool = True
    insecure: bool = False
    wait_seconds: float = 60.0
    connect_seconds: float = 60.0
    lost_seconds: float = 600.0
    name: Optional[str] = None

    def __post_init__(self) -> None:
        self.addresses = addresses_of(self.center)
        if self.workers is None:
            self.workers = _number("HOOKE_WORKERS")
        if self.worker is None:
            self.worker = _number("HOOKE_INDEX")
        for name in "period", "workers":
            value = getattr(self, name)
            if value is not None and value < 1:
                raise HookeError(f"{name} is {value}; it has to be at least 1")
        if self.worker is not None and self.worker < 0:
            raise HookeError(f"worker is {self.worker}; it has to be at least "
                             "0")
        for name in "period", "workers", "worker":
            value = getattr(self, name)
            if value is not None and value >= 2**31:
                raise HookeError(f"{name} is {value}; it has to be less than "
                                 "2^31")
        if self.compression not in COMPRESSION:
            raise HookeError(f"compression is {self.compression!r}; it has to "
                             "be one of "
                             + ", ".join(COMPRESSION))


def connect_options(addresses: Sequence[str], key: Optional[KeyLike], *,
                    insecure: bool, seconds: float
                    ) -> tuple[_c.hk_connect_options, list[Any]]:
    """The C options and what has to live as long as they do."""
    o = _c.hk_connect_options()
    library().hk_connect_options_init(ctypes.byref(o), ctypes.sizeof(o))
    texts = (ctypes.c_char_p * len(addresses))(
        *(a.encode() for a in addresses))
    o.addresses = texts
    o.n_addresses = len(addresses)
    o.insecure = int(insecure)
    o.connect_ms = int(seconds * 1000)
    secret = load_key(key)
    if secret is not None:
        o.key = ctypes.pointer(secret)
    return o, [texts, secret]

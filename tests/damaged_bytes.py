"""Damage to bytes of any kind: functions of (data, rng) that return other data, or other data and words about it."""


def flip(data, rng):
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 8])):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def insert(data, rng):
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice([b"\x00", b"\xff", b" ", b"9", b"\n", b'"', b"PCEP", rng.randbytes(20)]) + data[at:]


def delete(data, rng):
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.choice([1, 1, 4, 50]) :]


def truncate(data, rng):
    return data[: rng.randrange(len(data) + 1)]


def append(data, rng):
    return data + rng.choice([b"\x00", b"\n", b"x", b"\xff" * 16, rng.randbytes(40), data])


def twice(data, rng):
    at, length = rng.randrange(len(data) + 1), rng.choice([1, 10, 100, 1000])
    return data[: at + length] + data[at : at + length] + data[at + length :]


def empty(data, rng):
    return b""


def zeros(data, rng):
    at = rng.randrange(len(data) + 1)
    return data[:at] + bytes(len(data[at : at + 64])) + data[at + 64 :]


def noise(data, rng):
    return rng.randbytes(len(data))


BYTES = [flip, flip, insert, delete, truncate, truncate, append, twice, empty, zeros, noise]

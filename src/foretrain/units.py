"""Quantities as people write them, in and out.

Inside foretrain every quantity is a plain number in seconds, bytes, FLOP, FLOP/s, bytes/s, watts, joules or
USD. This module is the edge: it parses what people type and prints what they like to read.
"""

from __future__ import annotations

import math
import re

KILO, MEGA, GIGA, TERA, PETA, EXA = 1e3, 1e6, 1e9, 1e12, 1e15, 1e18
KIB, MIB, GIB, TIB = 2.0**10, 2.0**20, 2.0**30, 2.0**40
KBIT, MBIT, GBIT = 1e3 / 8, 1e6 / 8, 1e9 / 8
"""Bytes in a thousand, a million, a thousand million bits."""
MINUTE, HOUR, DAY, WEEK = 60.0, 3600.0, 86400.0, 604800.0
YEAR = 365 * DAY
JOULES_PER_KWH = 3.6e6

_NUMBER = r"(\d+(?:[_,]\d{3})*(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+)"
_DURATION_SECONDS = {
    "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "m": MINUTE, "min": MINUTE, "minute": MINUTE, "minutes": MINUTE,
    "h": HOUR, "hr": HOUR, "hour": HOUR, "hours": HOUR,
    "d": DAY, "day": DAY, "days": DAY, "w": WEEK, "week": WEEK, "weeks": WEEK,
    "y": YEAR, "year": YEAR, "years": YEAR,
}  # fmt: skip
_BYTES = {
    "b": 1.0, "kb": KILO, "mb": MEGA, "gb": GIGA, "tb": TERA, "pb": PETA,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB,
    "kbit": KBIT, "mbit": MBIT, "gbit": GBIT,
}  # fmt: skip
_COUNTS = {
    "k": KILO, "thousand": KILO, "m": MEGA, "million": MEGA, "b": GIGA, "bn": GIGA, "billion": GIGA,
    "t": TERA, "trillion": TERA,
}  # fmt: skip
_PREFIX = {"": 1.0, "k": KILO, "m": MEGA, "g": GIGA, "t": TERA, "p": PETA, "e": EXA}


class UnitError(ValueError):
    """A quantity that cannot be read; front ends turn it into an `InvalidRequest`."""


def parse_duration(text: str) -> float:
    """Seconds in `90`, `250ms`, `1.5h`, `12h30m`, `2d 4h` or `1:30:00`."""
    wanted = "a duration such as 90s, 12h30m, 1.5d or 1:30:00"
    compact = text.strip().lower()
    if clock := re.fullmatch(r"(\d+):([0-5]?\d):([0-5]?\d(?:\.\d+)?)", compact):
        hours, minutes, seconds = (float(part) for part in clock.groups())
        return hours * HOUR + minutes * MINUTE + seconds
    if re.fullmatch(_NUMBER, compact):
        return _finite(_number(compact), text, wanted)
    pieces = re.findall(rf"\s*{_NUMBER}\s*([a-zµ]+)\s*", compact)
    matched = re.fullmatch(rf"(?:\s*{_NUMBER}\s*[a-zµ]+\s*)+", compact)
    if not matched or any(unit not in _DURATION_SECONDS for _, unit in pieces):
        raise UnitError(f"{text!r} is not {wanted}")
    scales = [_DURATION_SECONDS[unit] for _, unit in pieces]
    if scales != sorted(set(scales), reverse=True):
        raise UnitError(f"{text!r} is not {wanted}: name each unit once, largest first")
    total = sum(_number(number) * _DURATION_SECONDS[unit] for number, unit in pieces)
    return _finite(total, text, wanted)


def parse_bytes(text: str) -> float:
    """Bytes in `80GiB`, `25 MB` (decimal), `512` or `100Gbit`."""
    return _parse_scaled(text, _BYTES, "a size such as 80GiB, 25MB or 512")


def parse_bandwidth(text: str) -> float:
    """Bytes per second in `100Gbit/s`, `100Gbps`, `900GB/s`."""
    wanted = "a bandwidth such as 100Gbit/s or 900GB/s"
    compact = text.strip()
    if compact.lower().endswith("bps"):  # by convention bps counts bits: 10Gbps = 10 Gbit/s
        return _parse_scaled(compact[:-3] + "bit", _BYTES, wanted)
    if not compact.lower().endswith("/s"):
        raise UnitError(f"{text!r} is not {wanted}")
    return _parse_scaled(compact[:-2], _BYTES, wanted)


def parse_flop(text: str) -> float:
    """FLOP (or FLOP/s) in `19.5TFLOP`, `312 TFLOP/s`, `4e18` or `7.8 GFLOPS`."""
    compact = re.sub(r"flop(/s|s)?$", "", text.strip(), flags=re.IGNORECASE).strip()
    return _parse_scaled(compact, _PREFIX, "an amount of work such as 4e18, 312TFLOP or 19.5TFLOP/s")


def parse_money(text: str) -> float:
    """USD in `200usd`, `$1,500`, `200 USD`, `1.5k$` or `200`."""
    compact = text.strip().lower().removeprefix("$")
    compact = re.sub(r"\s*(usd|\$|dollars?)$", "", compact)
    return _parse_scaled(compact, _PREFIX, "an amount of money such as 200usd, $1,500 or 8k$")


def parse_count(text: str) -> float:
    """A number of things in `15T`, `1.4 trillion`, `300B`, `100M`, `2,000,000` or `1e9`."""
    compact = re.sub(r"\s*tokens?$", "", text.strip().lower())
    return _parse_scaled(compact, _COUNTS, "a count such as 15T, 300B, 100M or 1e9")


def format_duration(seconds: float) -> str:
    """`430 us`, `12.3 ms`, `4.56 s`, `12m 05s`, `3h 20m`, `2d 04h`, `1.8 years`: about three digits."""
    sign, magnitude = ("-", -seconds) if seconds < 0 else ("", seconds)
    if not math.isfinite(magnitude):
        return f"{sign}{magnitude}"
    if magnitude < 59.95:
        for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
            if magnitude >= 0.9995 * scale or unit == "us":
                return f"{sign}{_three_digits(magnitude / scale)} {unit}"
    if magnitude < YEAR:
        for large, small, scale, part in (
            ("m", "s", MINUTE, 1.0),
            ("h", "m", HOUR, MINUTE),
            ("d", "h", DAY, HOUR),
        ):
            parts_per_whole = round(scale / part)
            whole, rest = divmod(round(magnitude / part), parts_per_whole)
            if large == "d" or whole < round({"m": HOUR, "h": DAY}[large] / scale):
                return f"{sign}{whole}{large} {rest:02d}{small}"
    return f"{sign}{magnitude / YEAR:,.1f} years"


def format_bytes(size: float) -> str:
    """Binary sizes as memory is sold and reported: `512 B`, `46.2 MiB`, `80.0 GiB`."""
    return _with_prefix(size, (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB), ("B", 1.0)))


def format_bandwidth(bytes_per_second: float) -> str:
    """Decimal rates as links are sold: `12.5 GB/s`."""
    return _with_prefix(
        bytes_per_second, (("TB/s", TERA), ("GB/s", GIGA), ("MB/s", MEGA), ("kB/s", KILO), ("B/s", 1.0))
    )


def format_flop(flop: float, suffix: str = "FLOP") -> str:
    """`777 GFLOP`; pass `suffix="FLOP/s"` for a rate."""
    scales = (("E", EXA), ("P", PETA), ("T", TERA), ("G", GIGA), ("M", MEGA), ("k", KILO), ("", 1.0))
    return _with_prefix(flop, tuple((f"{prefix}{suffix}", scale) for prefix, scale in scales))


def format_count(count: float) -> str:
    """Three digits as `parse_count` reads them: `124M`, `6.74B`, `1.40T`; small counts in full."""
    for suffix, scale in (("T", TERA), ("B", GIGA), ("M", MEGA), ("k", KILO)):
        if count >= 0.9995 * scale:
            return f"{_three_digits(count / scale)}{suffix}"
    return f"{count:,.0f}"


def format_money(usd: float) -> str:
    """`$0.01088`, `$1.50`, `$5,600`: cents when they matter, four digits below one dollar, no exponent."""
    sign, magnitude = ("-", -usd) if usd < 0 else ("", usd)
    if magnitude >= 1000:
        return f"{sign}${magnitude:,.0f}"
    if magnitude >= 1 or magnitude == 0:
        return f"{sign}${magnitude:.2f}"
    cents = f"{magnitude:.2f}"
    is_close = abs(float(cents) - magnitude) < 0.005 * magnitude
    if is_close or magnitude < 1e-9:
        return f"{sign}${cents}"
    digits = 3 - math.floor(math.log10(magnitude))
    return f"{sign}${f'{magnitude:.{digits}f}'.rstrip('0')}"


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("_", ""))


def _finite(value: float, text: str, wanted: str) -> float:
    if not math.isfinite(value):
        raise UnitError(f"{text!r} is not {wanted}: it is too large")
    return value


def _parse_scaled(text: str, scales: dict[str, float], wanted: str) -> float:
    match = re.fullmatch(rf"{_NUMBER}\s*([a-z]*)", text.strip().lower())
    unit = match.group(2) if match else ""
    if not match or (unit and unit not in scales):
        raise UnitError(f"{text!r} is not {wanted}")
    return _finite(_number(match.group(1)) * (scales[unit] if unit else 1.0), text, wanted)


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(float(f"{value:.3g}")))))
    return f"{value:.{min(digits, 6)}f}"


def _with_prefix(value: float, scales: tuple[tuple[str, float], ...]) -> str:
    magnitude = abs(value)
    if not math.isfinite(magnitude):
        return f"{value} {scales[-1][0]}"
    for unit, scale in scales:
        if magnitude >= 0.9995 * scale:
            scaled = value / scale
            return (
                f"{scaled:,.0f} {unit}"
                if scale == 1.0 and scaled == int(scaled)
                else f"{_three_digits(scaled)} {unit}"
            )
    return f"{_three_digits(value)} {scales[-1][0]}"

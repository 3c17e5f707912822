"""Prometheus text to the few series that are wanted: the only place that reads the exposition format.

A server's `/metrics` holds a thousand lines of which some thirty matter; they are picked by name first, so that
`prometheus_client`'s parser sees only those (a millisecond instead of twenty).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import msgspec
from prometheus_client.parser import text_string_to_metric_families

REPLICATED_LABELS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "attn_tp_rank", "pid"})
"""Labels whose values show the same work again: the largest counts, not the sum."""
RANK_LABELS = ("dp_rank", "engine")


class Series(msgspec.Struct, frozen=True):
    """One line of the exposition."""

    labels: dict[str, str]
    value: float


Exposition = dict[str, list[Series]]


def name_filter(names: Iterable[str]) -> re.Pattern[str]:
    """Returns a pattern that finds the sample lines of the given names."""
    return re.compile(rf"^(?:{'|'.join(sorted(map(re.escape, names)))})(?=[{{ \t]).*$", re.MULTILINE)


def parse(text: str, wanted: re.Pattern[str]) -> Exposition:
    """Returns the wanted series by sample name; lines that can't be read are left out."""
    lines = wanted.findall(text)
    try:
        return _families(lines)
    except ValueError:
        found: Exposition = {}
        for line in lines:
            try:
                for name, series in _families([line]).items():
                    found.setdefault(name, []).extend(series)
            except ValueError:
                continue
        return found


def _families(lines: Sequence[str]) -> Exposition:
    found: Exposition = {}
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(Series(dict(sample.labels), float(sample.value)))
    return found


def known(series: Iterable[Series]) -> list[Series]:
    """Returns the series with a number; NaN and infinity mean that the server knows none."""
    return [one for one in series if math.isfinite(one.value)]


def distinct(series: Iterable[Series]) -> list[Series]:
    """Returns one series for each piece of work, the largest of those that differ in a replicating label only.

    Where a server gives a total under `priority=""` and its parts under the other priorities, the total stands.
    """
    best: dict[tuple[tuple[str, str], ...], Series] = {}
    for one in known(series):
        key = tuple(sorted((k, v) for k, v in one.labels.items() if k not in REPLICATED_LABELS))
        if key not in best or best[key].value < one.value:
            best[key] = one
    found = list(best.values())
    totals = [one for one in found if one.labels.get("priority") == ""]
    return totals or found


def total(exposition: Exposition, *names: str) -> float | None:
    """Returns the sum over ranks and label values of the first name that has a number."""
    for name in names:
        if found := distinct(exposition.get(name, ())):
            return math.fsum(one.value for one in found)
    return None


def highest(exposition: Exposition, *names: str) -> float | None:
    """Returns the largest value over all ranks of the first name that has a number."""
    for name in names:
        if found := known(exposition.get(name, ())):
            return max(one.value for one in found)
    return None


def by_rank(exposition: Exposition, name: str) -> dict[str, float]:
    """Returns a gauge's value for each data-parallel rank or engine."""
    ranks: dict[str, float] = {}
    for one in distinct(exposition.get(name, ())):
        rank = next((one.labels[label] for label in RANK_LABELS if label in one.labels), "0")
        ranks[rank] = max(one.value, ranks.get(rank, one.value))
    return ranks

"""The prefix cache against the plain definition: the longest common prefix with anything inserted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from simserver.prefix_cache import PrefixCache

SEQUENCE = st.lists(st.sampled_from("abc"), min_size=1, max_size=12)


def common(a: list[str], b: list[str]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@settings(max_examples=300, deadline=None)
@given(st.lists(SEQUENCE, max_size=8), SEQUENCE)
def test_match_is_the_longest_common_prefix(inserted: list[list[str]], wanted: list[str]) -> None:
    cache = PrefixCache(10_000)
    for one in inserted:
        cache.insert(list(one))
    assert cache.match(wanted) == max((common(one, wanted) for one in inserted), default=0)
    assert cache.tokens == len({tuple(one[: n + 1]) for one in inserted for n in range(len(one))})


@settings(max_examples=200, deadline=None)
@given(st.lists(SEQUENCE, min_size=1, max_size=20), st.integers(1, 12))
def test_capacity_holds_and_what_is_left_is_still_right(inserted: list[list[str]], capacity: int) -> None:
    cache = PrefixCache(capacity)
    for one in inserted:
        cache.insert(list(one))
        assert cache.tokens <= capacity
    for one in inserted:
        assert cache.match(one) <= len(one)


def test_the_least_recently_used_goes_first() -> None:
    cache = PrefixCache(8)
    cache.insert(list("aaaa"))
    cache.insert(list("bbbb"))
    assert cache.match(list("aaaa")) == 4
    cache.insert(list("cc"))
    assert cache.match(list("aaaa")) == 4
    assert cache.match(list("bbbb")) == 0


def test_clear_and_shrink() -> None:
    cache = PrefixCache(100)
    cache.insert(list("abcdef"))
    cache.shrink_to(0)
    assert (cache.tokens, cache.match(list("abc"))) == (0, 0)
    cache.insert(list("abc"))
    cache.clear()
    assert cache.match(list("abc")) == 0

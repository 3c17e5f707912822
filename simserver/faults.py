"""What can be made to go wrong, and how often. Faults are set at the start and, most of them, while running."""

from __future__ import annotations

from dataclasses import dataclass, field


class UnknownFaultError(ValueError):
    """A fault's name or value means nothing; raised by `Faults.set`, shown to whoever set it."""


@dataclass(frozen=True)
class FaultKind:
    """One fault: its default value, the values it takes, and what it does.

    Attributes:
        default: value when only the name is given; `None` means that the fault takes no value.
        start_only: it acts while the server starts, so setting it later does nothing.
    """

    default: float | str | None
    words: str
    start_only: bool = False
    share: bool = False
    word: bool = False


KINDS: dict[str, FaultKind] = {
    "ignore-window": FaultKind(None, "the draft window asked for is not in effect", start_only=True),
    "ignore-topk": FaultKind(1.0, "another topk than the one asked for is in effect", start_only=True),
    "mask-corruption": FaultKind(12.0, "trees of at least so many nodes accept less and change greedy text"),
    "slow-old-process": FaultKind(5.0, "after SIGTERM the process goes on serving for at least so many seconds"),
    "crash-while-loading": FaultKind(0.58, "the process dies at this share of the load", start_only=True, share=True),
    "hang-generate": FaultKind(None, "generation requests are accepted and never answered; /health stays 200"),
    "stream-error": FaultKind(0.5, "this share of streams gets an error event in mid-stream", share=True),
    "truncate": FaultKind(0.2, "this share of streams ends cleanly with no finish chunk and no [DONE]", share=True),
    "cut": FaultKind(0.2, "this share of streams loses its connection in mid-answer", share=True),
    "stall": FaultKind(0.2, "this share of streams goes silent in mid-answer and stays open", share=True),
    "no-usage": FaultKind(None, "usage is never sent"),
    "port-in-use": FaultKind(None, "binding the port fails after the load", start_only=True),
    "wrong-model-name": FaultKind("another-model", "another model name is served", start_only=True, word=True),
    "gpu-lost": FaultKind(0.0, "this GPU has fallen off the bus"),
    "gpu-throttle": FaultKind(0.0, "this GPU throttles; steps take 20 % longer"),
    "cold-start": FaultKind(6.0, "the first request after the start takes so many seconds more"),
    "no-spec-details": FaultKind(None, "no acceptance figures per request, as in older builds"),
    "small-batch": FaultKind(4.0, "at most so many requests run at once, whatever the settings say"),
    "graph-batch": FaultKind(4.0, "steps of more requests than this run without a captured graph, 50 % slower"),
    "reject-drafts": FaultKind(None, "the target refuses every draft: one token a step"),
    "server-error": FaultKind(0.5, "this share of requests is refused with HTTP 503", share=True),
}


@dataclass
class Faults:
    """The faults that are set now, by name."""

    active: dict[str, float | str | None] = field(default_factory=dict)

    def set(self, spec: str) -> None:
        """Sets a fault.

        Args:
            spec: `NAME` or `NAME=VALUE`.

        Raises:
            UnknownFaultError: the name is not known or the value does not fit it.
        """
        name, has_value, text = spec.partition("=")
        kind = KINDS.get(name)
        if kind is None:
            raise UnknownFaultError(f"unknown fault {name!r}; known are: {', '.join(KINDS)}")
        if not has_value:
            self.active[name] = kind.default
            return
        if kind.default is None:
            raise UnknownFaultError(f"fault {name!r} takes no value, found {text!r}")
        if kind.word:
            self.active[name] = text
            return
        try:
            value = float(text)
        except ValueError:
            raise UnknownFaultError(f"fault {name!r} takes a number, found {text!r}") from None
        if value < 0 or (kind.share and value > 1):
            limits = "between 0 and 1" if kind.share else "of at least 0"
            raise UnknownFaultError(f"fault {name!r} takes a number {limits}, found {text!r}")
        self.active[name] = value

    def clear(self, name: str | None = None) -> None:
        """Takes a fault away, or all of them."""
        if name is None:
            self.active.clear()
        else:
            self.active.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self.active

    def number(self, name: str) -> float | None:
        """Returns a fault's number, `None` where the fault is not set."""
        value = self.active.get(name)
        return value if isinstance(value, float) else None

    def word(self, name: str) -> str | None:
        """Returns a fault's word, `None` where the fault is not set."""
        value = self.active.get(name)
        return value if isinstance(value, str) else None

"""Whether the running server has the settings that were asked for.

The only place that compares asked with found. Where a setting is shown decides what counts: the draft window is proven
by the start-up log alone, everything else by `/server_info`, and the start line where no key shows it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from reconfig.expectations import Expected
from reconfig.flags import ENVIRONMENT
from reconfig.presets import SettingFound
from reconfig.server import ServerFacts

WINDOW_LINE = re.compile(r"draft_window_size=(\w+),\s*compact_cache=(\w+)")
SETTINGS_SHOWN = re.compile(r"speculative_.*(ddtree|tree|budget|topk|num_draft_tokens|block_size|window)")


def compare(
    expected: Sequence[Expected],
    facts: ServerFacts | None,
    *,
    window_line: str | None,
    log_read: bool,
    given_env: Mapping[str, str] | None = None,
) -> list[SettingFound]:
    """Compares what was asked with what the running server shows.

    Args:
        expected: from `flags.expectations`.
        facts: `/server_info`; `None` when the server has none.
        window_line: the start-up log's line about the draft window, where it was seen.
        log_read: whether the log of this start was read, so that a missing line means something.
        given_env: the environment that the process is known to have, where that can be read.
    """
    return [_one(item, facts, window_line, log_read, given_env) for item in expected]


def shown_settings(facts: ServerFacts) -> dict[str, str]:
    """Every speculative setting that a server shows, whatever its spelling."""
    found = {name: facts.look_up(name) for name in facts.names() if SETTINGS_SHOWN.match(name)}
    return {name: text for name, text in found.items() if text is not None}


def _one(
    item: Expected,
    facts: ServerFacts | None,
    window_line: str | None,
    log_read: bool,
    given_env: Mapping[str, str] | None,
) -> SettingFound:
    if item.window_log is not None and log_read:
        return _window_by_log(item, window_line)
    if item.setting.startswith("environment "):
        return _variable(item, facts, given_env)
    if facts is None:
        return SettingFound(item.setting, item.asked, None, "the server has no /server_info", False)
    found = _by_keys(item, facts)
    if found is not None:
        if item.window_log is not None:
            return SettingFound(
                found.setting,
                found.asked,
                found.found,
                f"{found.source} (the log that proves it can't be read)",
                found.ok,
            )
        return found
    return _by_start_line(item, facts)


def _window_by_log(item: Expected, window_line: str | None) -> SettingFound:
    wanted = (item.window_log, "False" if item.window_log == "None" else "True")
    match = WINDOW_LINE.search(window_line or "")
    if match is None:
        return SettingFound(item.setting, item.asked, None, "log (no line with draft_window_size=)", False)
    return SettingFound(item.setting, item.asked, match.group(0), "log", match.groups() == wanted)


def _variable(item: Expected, facts: ServerFacts | None, given_env: Mapping[str, str] | None) -> SettingFound:
    name = item.setting.removeprefix("environment ")
    shown = facts.look_up(ENVIRONMENT + name) if facts is not None else None
    if shown is not None:
        return SettingFound(item.setting, item.asked, shown, "/server_info env_vars", _same(shown, item.asked))
    if given_env is not None:
        value = given_env.get(name)
        return SettingFound(item.setting, item.asked, value, "the process's environment", value == item.asked)
    return SettingFound(item.setting, item.asked, None, "not shown by the server: taken as given", True)


def _by_keys(item: Expected, facts: ServerFacts) -> SettingFound | None:
    """The best key that shows the setting; a key that shows it rightly wins over one that shows another thing."""
    shown: list[SettingFound] = []
    for name, wanted in item.keys:
        text = facts.look_up(name)
        if text is None and name == "speculative_algorithm" and wanted == "none":
            text = "none"
        if text is None or (text == "none" and wanted != "none" and name.endswith("block_size")):
            continue
        shown.append(SettingFound(item.setting, item.asked, text, f"/server_info {name}", _same(text, wanted)))
    if not shown and item.pattern is not None:
        wanted = item.keys[0][1] if item.keys else item.asked
        shown = [
            SettingFound(item.setting, item.asked, text, f"/server_info {name}", _same(text, wanted))
            for name in facts.names()
            if re.match(item.pattern, name) and (text := facts.look_up(name)) is not None
        ]
    if not shown:
        return None
    if item.setting == "block size":
        return next((found for found in shown if found.ok), shown[0])
    return shown[0]


def _by_start_line(item: Expected, facts: ServerFacts) -> SettingFound:
    line = facts.launch_command
    if line is None:
        return SettingFound(item.setting, item.asked, None, "/server_info (no key shows it)", False)
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    there = _contains(words, list(item.argument)) if item.argument else False
    if item.window_log == "None" and not item.argument:
        there = not any("draft-window-size" in word for word in words)
    return SettingFound(
        item.setting, item.asked, item.asked if there else None, "/server_info launch_command (the flag only)", there
    )


def _contains(words: list[str], wanted: list[str]) -> bool:
    length = len(wanted)
    joined = [f"{wanted[0]}={wanted[1]}"] if length == 2 else None
    return any(words[i : i + length] == wanted for i in range(len(words) - length + 1)) or (
        joined is not None and joined[0] in words
    )


def _same(found: str, wanted: str) -> bool:
    if found.lower() == wanted.lower():
        return True
    try:
        return float(found) == float(wanted)
    except ValueError:
        return False

"""The three themes. The default tells good from bad by blue and orange, which every kind of colour vision parts.

Colours carry nothing alone: every state has a sign or a word too. Palettes of the terminal's own are Textual's
`ansi-dark` and `ansi-light`.
"""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="spectop-dark",
    primary="#6cb6f5",
    secondary="#8fa6b8",
    warning="#f0b429",
    error="#ff8a5c",
    success="#58c9b9",
    accent="#6cb6f5",
    foreground="#d7dee6",
    background="#10151b",
    surface="#161d25",
    panel="#1f2933",
    dark=True,
    variables={
        "role-muted": "#8496a6",
        "heat1": "#5d7fa3",
        "heat2": "#7aa5d2",
        "heat3": "#a8cdf0",
        "heat4": "#ffffff",
        "graph": "#6cb6f5",
        "sim-text": "#10151b",
        "sim-back": "#f0b429",
    },
)
LIGHT = Theme(
    name="spectop-light",
    primary="#0b5fa5",
    secondary="#50606e",
    warning="#8a5a00",
    error="#b3390e",
    success="#00695c",
    accent="#0b5fa5",
    foreground="#1b232b",
    background="#fbfcfd",
    surface="#f1f4f7",
    panel="#e2e8ee",
    dark=False,
    variables={
        "role-muted": "#5a6a78",
        "heat1": "#5b7894",
        "heat2": "#345f8a",
        "heat3": "#124a80",
        "heat4": "#001f3f",
        "graph": "#0b5fa5",
        "sim-text": "#ffffff",
        "sim-back": "#8a5a00",
    },
)
CONTRAST = Theme(
    name="spectop-contrast",
    primary="#80d4ff",
    secondary="#ffffff",
    warning="#ffd400",
    error="#ff9d70",
    success="#7dffd4",
    accent="#80d4ff",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#262626",
    dark=True,
    variables={
        "role-muted": "#c4c4c4",
        "heat1": "#b0b0b0",
        "heat2": "#d0d0d0",
        "heat3": "#e6f5ff",
        "heat4": "#ffffff",
        "graph": "#80d4ff",
        "sim-text": "#000000",
        "sim-back": "#ffd400",
    },
)
THEMES = (DARK, LIGHT, CONTRAST)
ANSI_ROLES = {
    "role-muted": "ansi_default",
    "heat1": "ansi_default",
    "heat2": "ansi_default",
    "heat3": "ansi_default",
    "heat4": "ansi_default",
    "graph": "ansi_cyan",
    "sim-text": "ansi_black",
    "sim-back": "ansi_yellow",
}
"""Colours of our own roles in the terminal's own palette."""


def role_colours(theme: Theme) -> dict[str, str]:
    """Returns colours of our own roles for a theme that is not ours, made of its colours."""
    if theme.ansi:
        return ANSI_ROLES
    made = theme.to_color_system().generate()
    text = made["foreground"]
    return {
        "role-muted": made.get("foreground-darken-2", text),
        **{f"heat{i}": text for i in range(1, 5)},
        "graph": made["primary"],
        "sim-text": made["background"],
        "sim-back": made["warning"],
    }

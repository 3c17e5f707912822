"""The comparison with other load generators: what is said without any, and how their reports are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import peers


def test_without_any_it_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "HOME", tmp_path / "none")
    peers.main()
    assert "python -m benchmarks.peers install aiperf guidellm sglang" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "file", "report"),
    [
        (
            "aiperf",
            "profile_export_aiperf.json",
            {"output_token_throughput": {"avg": 100.0}, "inter_token_latency": {"avg": 9.0, "p50": 2.0}},
        ),
        (
            "guidellm",
            "report.json",
            {
                "benchmarks": [
                    {
                        "metrics": {
                            "output_tokens_per_second": {"successful": {"mean": 100.0}},
                            "inter_token_latency_ms": {"successful": {"median": 2.0}},
                        }
                    }
                ]
            },
        ),
        ("sglang", "report.jsonl", {"output_throughput": 100.0, "median_itl_ms": 2.0}),
    ],
)
def test_reports_are_read(name: str, file: str, report: object, tmp_path: Path) -> None:
    (tmp_path / file).write_text(json.dumps(report))
    assert peers.PEERS[name].read(tmp_path) == peers.Reported(chunks_s=100.0, gap_ms=2.0)


@pytest.mark.parametrize("name", peers.PEERS)
def test_commands_name_the_server_and_the_number_of_streams(name: str, tmp_path: Path) -> None:
    command = peers.PEERS[name].command(4321, 7, 99, tmp_path / "tok", tmp_path)
    assert command[0] == name or f"peer_{name}.py" in command[1]
    assert any("http://127.0.0.1:4321" in part for part in command)
    assert sum(part in ("7", "kind=concurrent,streams=7", "kind=max_requests,count=7") for part in command) == 2

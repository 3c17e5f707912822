"""Lines from bytes, and what they say: progress, phases, the first fatal line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconfig.loglines import LONGEST_LINE, LineAssembler, LogLine, plain
from reconfig.logwatch import LogWatch
from reconfig.redaction import Redactor, is_secret, redactor_for

BAR = "Loading safetensors checkpoint shards: {:3d}% Completed | {}/40 [00:13<09:00, 13.00s/it]"


def lines(*reads: bytes) -> list[LogLine]:
    assembler = LineAssembler()
    return [line for read in reads for line in assembler.feed(read)] + assembler.flush()


@given(st.lists(st.sampled_from(["a", "été", "x" * 50, "度", "tab\there"]), max_size=6), st.data())
def test_lines_do_not_depend_on_where_the_reads_are_cut(texts: list[str], data: st.DataObject) -> None:
    ends = st.sampled_from(["\n", "\r\n"])
    whole = "".join(text + data.draw(ends) for text in texts).encode()
    cut = data.draw(st.integers(0, len(whole)))
    assert [line.text for line in lines(whole[:cut], whole[cut:])] == [plain(text) for text in texts]


def test_a_progress_bar_redraws_its_line_and_shows_its_newest_state_before_its_end() -> None:
    assembler = LineAssembler()
    first = assembler.feed(("\r" + BAR.format(2, 1)).encode())
    assert [line.text for line in first] == [BAR.format(2, 1)]
    second = assembler.feed(("\r" + BAR.format(5, 2)).encode())
    assert second == [LogLine(BAR.format(5, 2), replaces=True)]
    assert assembler.feed(b"\n[2026] Load weight end.\n") == [LogLine("[2026] Load weight end.")]


def test_escape_sequences_controls_and_endless_lines_do_not_get_through() -> None:
    assert plain("\x1b[31mred\x1b[0m\x07 \x1b]0;title\x07done\x00") == "red done"
    [line] = lines(b"x" * 100_000)
    assert len(line.text) < LONGEST_LINE + 40
    assert "characters]" in line.text


def test_bytes_that_are_no_text_are_replaced_and_not_fatal() -> None:
    assert [line.text for line in lines(b"ok \xff\xfe\nnext\n")] == ["ok ��", "next"]


def watch(*texts: str) -> LogWatch:
    seen = LogWatch()
    for text in texts:
        seen.saw(LogLine(text))
    return seen


def test_progress_and_phases_are_read_in_their_order() -> None:
    assert watch("[x TP0] Load weight begin. avail mem=78 GB").state == "loading"
    assert watch("Load weight begin.", BAR.format(55, 22)).state == "loading 55 %"
    assert watch("Load weight begin.", BAR.format(100, 40)).state == "starting (weights loaded)"
    graphs = watch("Capture cuda graph begin.", "Capturing batches (bs=1 avail_mem=6.02 GB):  50%|#  | 11/23 [00:00<?]")
    assert graphs.state == "starting (graph capture 50 %)"
    assert watch("accept rate: 40% of drafts").share is None


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "oom"),
        ("launch_server.py: error: unrecognized arguments: --nope 1", "arguments"),
        ("usage: error: argument --tp: invalid int value: 'x'", "arguments"),
        ("ValueError: Unknown speculative algorithm name: DDTREE", "arguments"),
        ("[Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use", "port"),
        ("RuntimeError: rpc_port 30412 is used by a process already. pid=3977", "port"),
        ("ValueError: Free memory on device is less than desired", "error"),
    ],
)
def test_the_kind_of_a_failure_is_read_from_its_line(line: str, kind: str) -> None:
    cause = watch("[2026] Load weight begin.", line).cause
    assert cause is not None
    assert (cause.kind, cause.line) == (kind, line)
    assert cause.decisive is (kind != "error")


def test_the_first_fatal_line_is_the_cause_and_what_dying_parents_say_is_noise() -> None:
    seen = watch("asyncio.exceptions.CancelledError", "ValueError: first", "KeyError: second", "Received sigquit")
    assert seen.cause is not None
    assert seen.cause.line == "ValueError: first"
    seen = watch("ValueError: first", "CUDA out of memory. Tried", "Address already in use")
    assert seen.cause is not None
    assert seen.cause.kind == "oom"


def test_the_source_lines_of_a_traceback_are_not_the_message() -> None:
    seen = watch(
        "Traceback (most recent call last):",
        '  File "/x/speculative/spec_info.py", line 65, in from_string',
        '    raise ValueError(f"Unknown speculative algorithm name: {name}")',
        "ValueError: Unknown speculative algorithm name: MARVEL",
    )
    assert seen.cause is not None
    assert seen.cause.words.endswith("name: MARVEL")


def test_the_tail_keeps_the_last_forty_lines_with_one_line_a_bar() -> None:
    seen = LogWatch()
    for number in range(100):
        seen.saw(LogLine(f"line {number}"))
        seen.saw(LogLine(BAR.format(number, 1), replaces=number > 0))
    assert len(seen.tail) == 40
    assert seen.tail[-1] == BAR.format(99, 1)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("--api-key sk-123 --port 1", "--api-key *** --port 1"),
        ("--admin-api-key=sk-123", "--admin-api-key=***"),
        ("args={'api_key': 'sk-123', 'admin_api_key': None}", "args={'api_key': ***, 'admin_api_key': None}"),
        ("HF_TOKEN=hf_abc python", "HF_TOKEN=*** python"),
        ("max_tokens=5, tokens: 7", "max_tokens=5, tokens: 7"),
        ("a known-one here", "a *** here"),
        ("header Authorization: Bearer sk-123, next", "header Authorization: Bearer ***, next"),
        ("{'authorization': 'Bearer sk-123'}", "{'authorization': 'Bearer ***'}"),
        ("(b'authorization', b'Bearer sk-123')", "(b'authorization', b'Bearer ***')"),
        ("authorization=Basic dXNlcjpwYXNz", "authorization=Basic ***"),
        ("Authorization: sk-123", "Authorization: ***"),
        ("x-api-key: sk-123", "x-api-key: ***"),
        ("['--api-key', 'sk-123', '--port', '1']", "['--api-key', ***, '--port', '1']"),
        ('["--api-key","sk-123"]', '["--api-key",***]'),
        ("--api_key  sk-123", "--api_key  ***"),
        ("give --api-key, --port or none", "give --api-key, --port or none"),
        ("proxy http://me:sk-123@proxy:80/", "proxy http://me:***@proxy:80/"),
        ("at http://127.0.0.1:30000/v1 ok@x", "at http://127.0.0.1:30000/v1 ok@x"),
    ],
)  # fmt: skip
def test_keys_are_hidden_wherever_they_stand(text: str, clean: str) -> None:
    assert Redactor(["known-one", None]).clean(text) == clean


def test_a_server_s_redactor_knows_its_key_and_the_secrets_of_its_environment() -> None:
    redactor = redactor_for("known-one", {"HF_TOKEN": "hf-abc", "LEVEL": "info"}, {"DB_PASSWORD": "pw-9"})
    assert redactor.clean("known-one hf-abc pw-9 info") == "*** *** *** info"


def test_names_of_secrets_are_known() -> None:
    assert is_secret("HF_TOKEN") and is_secret("OPENAI_API_KEY")
    assert not any(map(is_secret, ["SGLANG_DDTREE_MAX_TOPK", "--max-total-tokens", "--speculative-num-draft-tokens"]))

"""Samples to a cell's facts: energy at the edges, peaks, gaps, resets."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.figures import GpuWindow, ServerWindow
from telemetry.samples import GpuReading, GpuSample, ServerSample
from telemetry.series import Point, counter_rise
from telemetry.windows import gpu_window, idle_power_w, server_window


def sample(t: float, *gpus: GpuReading, ours: tuple[int, ...] | None = None) -> GpuSample:
    return GpuSample(t=t, source="nvml", gpus=gpus, ours=tuple(g.index for g in gpus) if ours is None else ours)


def watts(power: float, *times: float, gpus: int = 2) -> list[GpuSample]:
    """Samples of GPUs that all draw `power` all the time."""
    return [
        sample(
            t,
            *(
                GpuReading(index=i, power_w=power, energy_j=1000.0 * i + power * t, utilisation=0.5)
                for i in range(gpus)
            ),
        )
        for t in times
    ]


def test_energy_between_samples_is_read_off_the_line():
    facts = gpu_window(watts(300.0, 0, 1, 2, 3, 4), 0.5, 3.25)
    assert facts.energy_j == pytest.approx(2 * 300.0 * 2.75)
    assert facts.energy_span_s == pytest.approx(2.75)
    assert facts.power_mean_w == pytest.approx(600.0)
    assert facts.utilisation_mean == 0.5


@settings(deadline=None)
@given(
    st.lists(st.floats(0.5, 2.0), min_size=7, max_size=40),
    st.floats(0.0, 0.4),
    st.floats(0.6, 1.0),
    st.floats(1.0, 700.0),
)
def test_constant_power_gives_exact_energy_wherever_the_window_lies(
    gaps: list[float], low: float, high: float, power: float
):
    times = [sum(gaps[:n]) for n in range(len(gaps))]
    start, end = low * times[-1], high * times[-1]
    facts = gpu_window(watts(power, *times, gpus=1), start, end)
    assert facts.energy_j == pytest.approx(power * (end - start), rel=1e-6)


def test_each_gpu_counts_from_the_time_its_counter_was_read():
    late = [sample(t, GpuReading(index=0, energy_j=100.0 * (t + 0.3), read_after_s=0.3)) for t in (0.0, 1.0, 2.0, 3.0)]
    facts = gpu_window(late, 1.0, 2.0)
    assert facts.energy_j == pytest.approx(100.0)


def test_one_gpu_without_a_counter_makes_the_sum_unknown():
    samples = [sample(t, GpuReading(index=0, energy_j=5.0 * t), GpuReading(index=1)) for t in (0.0, 1.0, 2.0)]
    assert gpu_window(samples, 0.0, 2.0).energy_j is None


def test_only_the_servers_gpus_count():
    samples = [msgspec.structs.replace(one, ours=(1,)) for one in watts(100.0, 0, 1, 2, gpus=3)]
    facts = gpu_window(samples, 0, 2)
    assert (facts.gpus, facts.power_mean_w) == ((1,), 100.0)
    assert facts.energy_j == pytest.approx(200.0)


def test_nothing_is_claimed_when_the_servers_gpus_are_not_known():
    samples = [msgspec.structs.replace(one, ours=None) for one in watts(100.0, 0, 1, 2)]
    facts = gpu_window(samples, 0, 2)
    assert (facts.gpus, facts.energy_j, facts.power_mean_w, facts.memory_peak_bytes) == ((), None, None, ())


def test_less_than_a_second_gives_no_energy():
    assert gpu_window(watts(100.0, 0, 1, 2, 3), 1.0, 1.99).energy_j is None


def test_samples_that_cover_too_little_give_no_energy():
    samples = watts(100.0, 4, 5, 6)
    assert gpu_window(samples, 0, 6).energy_j is None
    cut = gpu_window(watts(100.0, 1, 2, 10, 19.5), 0.5, 20.0)
    assert cut.energy_span_s == pytest.approx(18.5)
    assert cut.energy_j == pytest.approx(2 * 100.0 * 18.5)


def test_an_edge_in_a_long_gap_is_cut_to_the_sample_inside():
    samples = watts(100.0, 0, 20, 21, 22, 100)
    facts = gpu_window(samples, 19.9, 22.0)
    assert facts.energy_span_s == pytest.approx(2.0)


def test_a_counter_that_starts_again_gives_no_energy():
    energies = [(0.0, 500.0), (1.0, 600.0), (2.0, 10.0), (3.0, 110.0)]
    samples = [sample(t, GpuReading(index=0, energy_j=e)) for t, e in energies]
    assert gpu_window(samples, 0.5, 2.5).energy_j is None
    assert gpu_window(samples, 2.0, 3.0).energy_j == pytest.approx(100.0)


def test_repeated_readings_of_an_exporter_are_seen_through():
    """An exporter that refreshes every 4 s is polled every second; the truth is 100 W."""
    samples = [sample(float(t), GpuReading(index=0, energy_j=400.0 * (t // 4))) for t in range(0, 41)]
    facts = gpu_window(samples, 8.0, 32.0)
    assert facts.energy_j == pytest.approx(2400.0)


def test_a_real_counter_may_stand_still():
    points = [Point(0.0, 0.0), Point(1.0, 0.0), Point(2.0, 10.0)]
    assert counter_rise(points, 0.0, 2.0) == Point(2.0, 10.0)


def test_a_lost_gpu_leaves_a_gap_and_a_name():
    good = GpuReading(index=1, power_w=50.0, utilisation=1.0, memory_used_bytes=7)
    lost = GpuReading(index=1, state="lost")
    other = GpuReading(index=0, power_w=10.0, utilisation=0.5, memory_used_bytes=3)
    samples = [sample(0.0, other, good), sample(1.0, other, good), sample(2.0, other, lost), sample(3.0, other, lost)]
    facts = gpu_window(samples, 0.0, 3.0)
    assert facts.lost_gpus == (1,)
    assert facts.memory_peak_bytes == (3, 7)
    assert facts.power_mean_w == pytest.approx(60.0)
    assert (facts.samples_good, facts.samples_seen) == (2, 4)


def test_peak_memory_is_of_the_whole_cell_and_the_means_of_the_window():
    used = {0.0: 5, 1.0: 9, 2.0: 6, 3.0: 6, 4.0: 8, 5.0: 99}
    samples = [sample(t, GpuReading(index=0, memory_used_bytes=m, power_w=float(m))) for t, m in used.items()]
    facts = gpu_window(samples, 2.0, 3.0, 1.0, 4.0)
    assert facts.memory_peak_bytes == (9,)
    assert facts.power_mean_w == 6.0


def test_a_cell_shorter_than_the_interval_takes_its_neighbours():
    samples = [sample(t, GpuReading(index=0, memory_used_bytes=int(t))) for t in (10.0, 11.0)]
    assert gpu_window(samples, 10.3, 10.6).memory_peak_bytes == (11,)


def test_throttle_reasons_other_than_idle():
    samples = [
        sample(0.0, GpuReading(index=0, throttle=("hw_slowdown",))),
        sample(
            1.0, GpuReading(index=0, throttle=("gpu_idle",)), GpuReading(index=1, throttle=("sw_thermal_slowdown",))
        ),
        sample(2.0, GpuReading(index=0, throttle=("applications_clocks_setting",)), GpuReading(index=1, throttle=())),
    ]
    facts = gpu_window(samples, 0.5, 2.5)
    assert facts.throttle_reasons == ("sw_thermal_slowdown",)
    assert facts.throttled_gpus == (1,)


def test_no_samples_at_all():
    facts = gpu_window([], 0.0, 1.0)
    assert (facts.energy_j, facts.power_mean_w, facts.memory_peak_bytes, facts.samples_seen) == (None, None, (), 0)
    assert server_window([], 0.0, 1.0).running_mean is None


def test_idle_power_is_a_baseline_by_gpu():
    assert idle_power_w(watts(28.5, 0, 1, 2), 0.0, 2.0) == (28.5, 28.5)
    assert idle_power_w([], 0.0, 2.0) == ()


def test_facts_become_the_measures_structs():
    gpu = msgspec.convert(gpu_window(watts(300.0, 0, 1, 2), 0, 2), GpuWindow, from_attributes=True)
    assert gpu.energy_j == pytest.approx(1200.0)
    server = msgspec.convert(server_window(server_samples(), 1, 3), ServerWindow, from_attributes=True)
    assert server.waiting_max == 5
    assert set(GpuWindow.__struct_fields__) <= set(type(gpu_window([], 0, 1)).__struct_fields__)
    assert set(ServerWindow.__struct_fields__) <= set(type(server_window([], 0, 1)).__struct_fields__)


def server_samples() -> list[ServerSample]:
    return [
        ServerSample(
            t=float(t),
            source="/metrics",
            running=4,
            waiting=5 if t == 2 else 0,
            token_usage=0.1 * t,
            decode_tokens_total=100.0 * t,
            generated_total=90.0 * t,
            verify_calls_total=30.0 * t,
            drafts_total=25.0 * t,
            accepted_total=60.0 * t,
            accepted_per_position=(40.0 * t, 20.0 * t),
            acceptance_lifetime=2.0 + t,
        )
        for t in range(6)
    ]


def test_server_counters_run_over_the_whole_cell():
    facts = server_window(server_samples(), 1.5, 3.5, 1.0, 4.0)
    assert (facts.generated, facts.verify_calls, facts.drafts, facts.accepted) == (270.0, 90.0, 75.0, 180.0)
    assert facts.accepted_per_position == (120.0, 60.0)
    assert (facts.running_mean, facts.waiting_max) == (4.0, 5)
    assert facts.token_usage_max == pytest.approx(0.3)
    assert facts.decode_tok_s == pytest.approx(100.0)
    assert facts.lifetime_acceptance == 6.0
    assert not facts.counters_reset


def test_counters_need_a_sample_on_either_side_of_the_cell():
    samples = server_samples()
    assert server_window(samples[2:], 2.5, 3.5, 1.0, 4.0).generated is None
    assert server_window(samples[:4], 1.5, 2.5, 1.0, 4.0).generated is None


def test_counters_read_long_before_a_cell_count_other_work_too():
    samples = server_samples()
    old = [msgspec.structs.replace(one, t=one.t - 9.0) for one in samples[:2]]
    assert server_window([*old, *samples[2:]], 2.5, 3.5, 1.5, 4.0).generated is None
    assert server_window(samples, 2.5, 3.5, 1.5, 4.0).generated == 270.0


def test_what_lies_far_from_the_cell_says_nothing_about_it():
    far = watts(100.0, 0, 1, 2)
    assert gpu_window(far, 500.0, 510.0).gpus == ()
    assert server_window(server_samples(), 500.0, 510.0).lifetime_acceptance is None


def test_a_reset_inside_the_cell_makes_the_counters_unknown():
    samples = server_samples()
    samples[3] = msgspec.structs.replace(samples[3], counters_reset=True)
    facts = server_window(samples, 1.5, 3.5, 1.0, 4.0)
    assert facts.counters_reset
    assert (facts.generated, facts.drafts, facts.verify_calls, facts.decode_tok_s) == (None,) * 4
    assert facts.running_mean == 4.0


def test_a_reset_before_the_cell_does_not_matter():
    samples = server_samples()
    samples[1] = msgspec.structs.replace(samples[1], counters_reset=True)
    facts = server_window(samples, 1.5, 3.5, 1.0, 4.0)
    assert not facts.counters_reset
    assert facts.generated == 270.0


def test_running_is_weighted_by_time():
    samples = [ServerSample(t=t, source="x", running=n) for t, n in ((0.0, 0), (1.0, 8), (9.0, 4), (10.0, 4))]
    # borders half-way between readings: 0 for 0.5 s, 8 for 4.5 s, 4 for 5 s
    assert server_window(samples, 0.0, 10.0).running_mean == pytest.approx((8 * 4.5 + 4 * 5) / 10)


def test_a_gauge_that_runs_behind_is_seen_through():
    """Readings of a real SGLang 0.5.23, one request always open: seconds, running, tokens decoded in all."""
    readings = (
        *((79.7, 0, 117), (80.0, 0, 117), (81.0, 0, 120), (82.1, 0, 125), (83.1, 0, 130), (84.2, 1, 135)),
        *((85.2, 1, 140), (86.3, 1, 152), (87.3, 1, 159), (88.5, 1, 172), (89.5, 0, 182), (90.6, 0, 187)),
        *((91.7, 0, 192), (92.8, 0, 196), (93.9, 1, 201), (94.9, 1, 212), (96.0, 1, 220), (97.1, 1, 224)),
    )
    samples = [ServerSample(t=t, source="x", running=n, decode_tokens_total=float(d)) for t, n, d in readings]
    facts = server_window(samples, 80.5, 97.1)
    assert facts.running_median == 1.0
    assert facts.running_mean == pytest.approx(1.0, abs=0.15)
    idle = [ServerSample(t=float(t), source="x", running=0, decode_tokens_total=117.0) for t in range(6)]
    assert server_window(idle, 1, 4).running_median == 0.0

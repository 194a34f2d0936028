"""SRAM-PIM cores: times by hand, and the section of a platform file."""

from __future__ import annotations

import dataclasses

import pytest

from moeplan.common.errors import BadInput
from moeplan.hardware.platform import _key, load_platform
from moeplan.hardware.platforms import SramPimSpec
from moeplan.hardware.sram_pim import SramPim

CORE = SramPim(
    macro_groups=2,
    group_pus=4,
    pu_peak_flop_per_s=1e9,
    clock_hz=1e9,
    vector_lanes=8,
    reduce_lanes=4,
    port_bytes_per_s=2e9,
)


def test_products_take_the_longer_of_streaming_and_multiplying():
    assert CORE.peak_flop_per_s == 8e9
    assert CORE.product_s(16e3, 1e3) == pytest.approx(2e-6)  # 16,000 flop at 8 GFLOPS; 0.5 us of streaming
    assert CORE.product_s(16e3, 8e3) == pytest.approx(4e-6)  # 8,000 B at 2 GB/s
    assert CORE.product_s(0.0) == 0.0


def test_vector_and_reduce_work_in_whole_cycles():
    assert CORE.vector_s(17, 3) == pytest.approx(3 * 3e-9)  # 3 cycles of 8 lanes, three operations
    assert CORE.reduce_s(17) == pytest.approx(5e-9)
    assert CORE.vector_s(0, 5) == CORE.reduce_s(0) == 0.0


def test_the_published_machine():
    core = load_platform("spimoe-4x8").sram_pim
    assert core is not None
    assert 32 * core.peak_flop_per_s == pytest.approx(104.9e12, rel=1e-3)  # 32 x 16 x 16 x 12.8 GFLOPS
    assert core.port_bytes_per_s == pytest.approx(32 * 800e6)  # one 256-bit flit per cycle
    assert load_platform("b200-hbmpim").sram_pim is None


def test_file_keys_are_the_field_names_without_units():
    assert set(SramPimSpec.model_fields) == {_key(field.name) for field in dataclasses.fields(SramPim)}


def test_cores_need_sites(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "base: a100-80g\n"
        "sram_pim: {macro_groups: 1, group_pus: 1, pu_peak: 1 GFLOPS, clock: 1 GHz, vector_lanes: 1, "
        "reduce_lanes: 1, port: 1 GB/s}\n"
    )
    with pytest.raises(BadInput, match="sites"):
        load_platform(str(path))


def test_other_cores_make_another_machine(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("base: spimoe-4x8\nsram_pim: {port: 102.4 GB/s}\n")
    mine, spimoe = load_platform(str(path)), load_platform("spimoe-4x8")
    assert mine.sram_pim is not None
    assert mine.sram_pim.port_bytes_per_s == pytest.approx(102.4e9)
    assert mine.sram_pim.macro_groups == 16
    assert mine.fingerprint != spimoe.fingerprint

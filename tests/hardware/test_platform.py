import dataclasses
from pathlib import Path

import pytest
import yaml

from moeplan.common.errors import BadInput, UsageError
from moeplan.hardware.gpu import Gpu
from moeplan.hardware.nearmem import rexpert
from moeplan.hardware.pim import MAX_BANKS, Pim
from moeplan.hardware.platform import PRESETS, _key, load_platform, platform_names
from moeplan.hardware.platforms import GpuSpec, PimSpec, RefreshSpec
from moeplan.hardware.refresh import Refresh

Section = dict[str, object]


def write(path: Path, text: str) -> str:
    file = path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def unsourced(node: Section, path: str = "") -> list[str]:
    """Dotted keys of leaves that are no {value, source} with some text as source."""
    bare = []
    for name, value in node.items():
        if isinstance(value, dict) and "value" in value:
            bare += [f"{path}{name}"] * (not str(value.get("source", "")).strip())
        elif isinstance(value, dict):
            bare += unsourced(value, f"{path}{name}.")
        else:
            bare.append(f"{path}{name}")
    return bare


@pytest.mark.parametrize("name", platform_names())
def test_every_value_of_a_preset_has_a_source(name: str) -> None:
    data = yaml.safe_load((PRESETS / f"{name}.yaml").read_text(encoding="utf-8"))
    head = {key: data.pop(key, "") for key in ("name", "description", "base")}
    assert head["name"] == name
    assert head["description"]
    assert unsourced(data) == []
    assert len(load_platform(name).sources) >= 8


def test_presets() -> None:
    names = platform_names()
    assert list(names) == sorted(set(names))
    assert set(names) >= {
        *("a100-80g", "b200", "b200-hbmpim", "gddr6-aim", "h100", "h100-attacc", "h100-attacc-npc"),
        *("h20", "newton-hbm2", "rexpert-die", "rexpert-pool-35b", "rexpert-pool-397b", "rexpert-pool-glm"),
        *("samsung-hbmpim", "spimoe-4x8"),
    }


def test_spimoe_site_is_a_node_with_two_channels() -> None:
    platform = load_platform("spimoe-4x8")
    assert platform.topology is not None
    assert (platform.topology.rows, platform.topology.cols, platform.topology.duplex) == (4, 8, "full")
    assert platform.topology.link_bandwidth_bytes_per_s.tolist() == [25.6e9] * 104  # 2 x (4 x 7 + 3 x 8)
    assert platform.topology.link_latency_s[0] == pytest.approx(3 / 800e6)
    assert platform.pim is not None
    assert platform.site_pseudo_channels * platform.pim.banks == 128
    assert platform.site_memory_bytes * platform.topology.sites == 96e9
    # 8 multiply-adds per 400 MHz cycle need two cycles for the 16 bf16 weights of a column.
    assert platform.pim.mac_interval_s(2.0) == pytest.approx(5e-9)
    # 1024 banks per stack x 32 B / 5 ns = 6.55 TB/s, four stacks 26.2 TB/s.
    banks = platform.topology.sites * 128
    assert banks * 32 / platform.pim.mac_interval_s(2.0) == pytest.approx(26.2e12, rel=0.001)
    assert platform.gpu is None


def test_b200_hbmpim_is_a_b200_with_computing_channels() -> None:
    platform, b200 = load_platform("b200-hbmpim"), load_platform("b200")
    assert platform.name == "b200-hbmpim"
    assert platform.gpu == b200.gpu
    assert platform.sources["gpu.memory"] == b200.sources["gpu.memory"]
    assert platform.topology is not None
    assert (platform.topology.kind, platform.topology.sites) == ("star", 128)
    # One link of 62.5 GB/s in each direction per channel: 8 TB/s in all.
    assert platform.topology.link_bandwidth_bytes_per_s.sum() == 2 * 8e12
    assert platform.site_memory_bytes * 128 == 192e9
    assert platform.pim is not None
    # 8192 banks x 32 B / 2.5 ns = 104.9 TB/s.
    banks = 128 * platform.site_pseudo_channels * platform.pim.banks
    assert banks * 32 / platform.pim.mac_interval_s(2.0) == pytest.approx(104.9e12, rel=0.001)


def test_gpu_presets_have_no_sites() -> None:
    for name in ("a100-80g", "h20", "h100", "b200"):
        platform = load_platform(name)
        assert platform.topology is None
        assert platform.pim is None
        assert platform.site_memory_bytes == 0.0
        assert platform.gpu is not None


def test_rexpert_platforms_are_the_reference_hierarchy() -> None:
    for name, dies, gpus in (
        ("rexpert-die", 0, 0.0),
        ("rexpert-pool-35b", 25, 10.81),
        ("rexpert-pool-397b", 289, 124.97),
        ("rexpert-pool-glm", 543, 234.81),
    ):
        platform = load_platform(name)
        assert platform.nearmem is not None
        assert (platform.nearmem.dies, platform.nearmem.gpus) == (dies, gpus)
        ours, reference = (node.package for node in (platform.nearmem.node, rexpert()))
        assert (platform.nearmem.node.packages, ours.dies) == (8, 4)
        assert ours.die.hop_latency_s == pytest.approx(3e-9)
        assert dataclasses.replace(ours.die, hop_latency_s=0.0) == dataclasses.replace(
            reference.die, hop_latency_s=0.0
        )
        assert platform.topology is not None
        assert (platform.topology.rows, platform.topology.cols) == (4, 5)
        assert set(platform.topology.link_bandwidth_bytes_per_s.tolist()) == {64e9}
        assert platform.pim is None
    # Beside the dies: H20s of the same peak, credited with all of their bandwidth.
    h20, beside = load_platform("h20").gpu, load_platform("rexpert-pool-glm").gpu
    assert h20 is not None
    assert beside == dataclasses.replace(h20, memory_efficiency=1.0, compute_efficiency=1.0, kernel_s=0.0)
    assert abs(543 * 128 / 296 - 234.81) < 0.005


def test_near_memory_can_be_resized_in_a_file(tmp_path: Path) -> None:
    path = write(
        tmp_path, "base: rexpert-pool-35b\nnearmem: {core: {side: 2}, pool: {dies: 30, gpus: null}}\n"
    )
    pool = load_platform(path).nearmem
    assert pool is not None
    assert (pool.die.core.units.count, pool.die.cores, pool.dies, pool.gpus) == (4, 80, 30, 0.0)
    untiled = load_platform(write(tmp_path, "base: rexpert-die\nnearmem: {core: {side: 6}}\n"))
    assert untiled.topology is None
    assert untiled.nearmem is not None
    assert untiled.nearmem.die.cores == 9


def test_file_keys_are_the_field_names_without_units() -> None:
    for spec, kind in ((PimSpec, Pim), (RefreshSpec, Refresh), (GpuSpec, Gpu)):
        fields = dataclasses.fields(kind)  # type: ignore[arg-type]
        assert set(spec.model_fields) == {_key(field.name) for field in fields}
        optional = {name for name, field in spec.model_fields.items() if not field.is_required()}
        defaults = {_key(field.name) for field in fields if field.default is not dataclasses.MISSING}
        assert optional <= defaults


def test_base_is_overridden_key_by_key(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        base: spimoe-4x8
        topology: {link_bandwidth: {value: 51.2 GB/s, source: twice the flits}}
        pim: {t_rcd: 14 ns}
        """,
    )
    mine, spimoe = load_platform(path), load_platform("spimoe-4x8")
    assert mine.name == "mine"
    assert mine.topology is not None
    assert mine.topology.sites == 32
    assert mine.topology.link_bandwidth_bytes_per_s[0] == 51.2e9
    assert mine.pim is not None
    assert spimoe.pim is not None
    assert mine.pim == dataclasses.replace(spimoe.pim, t_rcd_s=mine.pim.t_rcd_s)
    assert mine.pim.t_rcd_s == pytest.approx(14e-9)
    assert mine.sources["topology.link_bandwidth"] == "twice the flits"
    assert "pim.t_rcd" not in mine.sources  # the preset's source is not that of the new value
    assert mine.sources["pim.t_rp"] == spimoe.sources["pim.t_rp"]
    assert mine.fingerprint != spimoe.fingerprint


def test_topology_with_a_kind_replaces_the_section(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        base: spimoe-4x8
        topology: {kind: ring, sites: 5, link_bandwidth: 1 GB/s, hop_latency: 1 ns}
        """,
    )
    topology = load_platform(path).topology
    assert topology is not None
    assert (topology.kind, topology.sites) == ("ring", 5)


@pytest.mark.parametrize(
    ("section", "sites"),
    [
        ("{kind: torus, rows: 2, cols: 3, link_bandwidth: 1 GB/s, hop_latency: 1 ns, duplex: half}", 6),
        ("{kind: fully_connected, sites: 4, link_bandwidth: 1 GB/s, hop_latency: 1 ns}", 4),
        (
            "{kind: gpu_cluster, nodes: 1, gpus_per_node: 8, nvlink_bandwidth: 1 GB/s, nvlink_latency: 1 us}",
            8,
        ),
    ],
)
def test_every_kind_of_topology(tmp_path: Path, section: str, sites: int) -> None:
    topology = load_platform(write(tmp_path, f"base: h100\ntopology: {section}\n")).topology
    assert topology is not None
    assert topology.sites == sites


def test_sections_can_be_taken_away(tmp_path: Path) -> None:
    path = write(tmp_path, "base: b200-hbmpim\npim: null\nsite: null\ntopology: null\n")
    mine = load_platform(path)
    assert mine.pim is None
    assert mine.topology is None
    assert mine.gpu is not None
    assert mine.fingerprint == load_platform("b200").fingerprint  # the same machine by content


def test_fingerprint_is_over_values_only(tmp_path: Path) -> None:
    text = (PRESETS / "h20.yaml").read_text(encoding="utf-8")
    path = write(tmp_path, text.replace("name: h20", "name: other").replace("4 TB/s", "4000 GB/s"))
    assert load_platform(path).name == "other"
    assert load_platform(path).fingerprint == load_platform("h20").fingerprint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("base: spimoe-4x8\npim: {t_rdc: 14 ns}", ["pim.t_rdc", "unknown key", "did you mean 't_rcd'?"]),
        ("base: spimoe-4x8\nsit: 3", ["sit: unknown key", "did you mean 'site'?"]),
        ("base: spimoe-4x8\ntopology: {row: 4}", ["topology: row", "did you mean 'rows'?"]),
        ("base: spimoe-4x8\npim: {t_rcd: 14}", ["pim.t_rcd", "not a time: the unit is missing", "'1.2 us'"]),
        ("base: spimoe-4x8\npim: {t_rcd: 1e9}", ["pim.t_rcd", "the unit is missing", "1e9"]),
        ("base: spimoe-4x8\npim: {t_rcd: 14 GB}", ["pim.t_rcd", "unknown unit 'GB'"]),
        ("base: spimoe-4x8\npim: {row: 1000 B}", ["pim", "1000"]),
        ("base: spimoe-4x8\npim: {row: 100 bit}", ["pim.row", "integer"]),
        ("base: spimoe-4x8\npim: {layout: loose}", ["pim", "unknown layout 'loose'", "row_per_output"]),
        ("base: spimoe-4x8\npim: {refresh: {cycle: 4 us}}", ["pim", "refresh takes"]),
        ("base: spimoe-4x8\ntopology: {duplex: both}", ["topology", "both"]),
        (
            "base: spimoe-4x8\ntopology: {kind: mash}",
            ["unknown topology.kind 'mash'", "did you mean 'mesh'?"],
        ),
        ("base: spimoe-4x8\ntopology: {cols: 0}", ["topology", "cols", "a whole number from 1 to 1024"]),
        ("base: spimoe-4x8\nsite: {memory: {value: 3 GB, source: 5}}", ["site.memory.source must be text"]),
        ("base: spimoe-4x8\npim: null", ["pim, site and topology need each other"]),
        ("base: spimoe-4x8\ntopology: null", ["pim, site and topology need each other"]),
        ("base: h100\ngpu: {memory_efficiency: 1.5}", ["gpu.memory_efficiency", "from 1e-06 to 1"]),
        ("base: h100\ngpu: null", ["nothing to compute on"]),
        ("base: rexpert-die\nnearmem: {unit: {column: 128}}", ["nearmem.unit.column", "the unit is missing"]),
        (
            "base: rexpert-die\nnearmem: {pool: {dies: 0}}",
            ["nearmem.pool.dies", "a whole number from 1 to 1000000"],
        ),
        (
            "base: rexpert-die\nnearmem: {core: {side: 20}}",
            ["nearmem", "side 20 is larger than a die of 16 x 20"],
        ),
        ("base: rexpert-die\nnearmem: {cores: 4}", ["nearmem.cores: unknown key", "did you mean 'core'?"]),
        (
            "base: rexpert-die\ntopology: {kind: ring, sites: 2, link_bandwidth: 1 GB/s, hop_latency: 1 ns}",
            ["near-memory dies bring their own network"],
        ),
        ("base: h1000", ["unknown base 'h1000'", "did you mean 'h100'?"]),
        ("gpu: {memory: 80 GB}", ["gpu.memory_bandwidth", "gpu.peak", "gpu.nvlink", "3 values are wrong"]),
        ("- a list", ["must be a mapping"]),
        ("name: [unclosed", ["is not YAML", "line"]),
    ],
)
def test_bad_files(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        load_platform(write(tmp_path, text))
    for word in [*words, "mine.yaml"]:
        assert word in str(caught.value)


def test_missing_file() -> None:
    for path in ("nowhere/machine.yaml", "machine.yml", "./machine"):
        with pytest.raises(BadInput, match="does not exist"):
            load_platform(path)


def test_unknown_name() -> None:
    with pytest.raises(UsageError) as caught:
        load_platform("spimoe")
    assert "did you mean 'spimoe-4x8'?" in caught.value.fix
    assert "b200-hbmpim" in caught.value.allowed


HUGE = 10**30


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f"base: spimoe-4x8\npim: {{bank_groups: {HUGE}}}",
            "pim.bank_groups: must be a whole number from 1 to",
        ),
        ("base: spimoe-4x8\npim: {bank_groups: 100000000}", "pim.bank_groups: must be a whole number from 1"),
        ("base: spimoe-4x8\npim: {ranks: 65536}", "pim: a group of 65536 x 4 x 8 banks"),
        (f"base: spimoe-4x8\nsite: {{pseudo_channels: {HUGE}}}", "site.pseudo_channels: must be a whole"),
        ("base: spimoe-4x8\ntopology: {rows: 1025}", "topology: rows: must be a whole number from 1 to 1024"),
        ("base: spimoe-4x8\npim: {row: 1e300 B}", "pim.row: must be a size of 1 B to 1e+09 B"),
        ("base: spimoe-4x8\npim: {t_rcd: 1e300 ns}", "pim.t_rcd: must be a time of 0, or 1e-15 s to 1000 s"),
        ("base: spimoe-4x8\npim: {t_rcd: 1e-300 ns}", "pim.t_rcd: must be a time"),
        ("base: spimoe-4x8\npim: {pu_clock: 1e300 Hz}", "pim.pu_clock: must be a frequency of 1 Hz to"),
        ("base: spimoe-4x8\npim: {input_buffer: 1 B}", "pim: an input buffer of 1 bytes"),
        (
            "base: spimoe-4x8\ntopology: {link_bandwidth: 1e-300 GB/s}",
            "link_bandwidth: must be a bandwidth of",
        ),
        ("base: spimoe-4x8\ntopology: {hop_latency: 1e300 ns}", "hop_latency: must be a time of"),
        (
            f"base: rexpert-die\nnearmem: {{unit: {{tile_tokens: {HUGE}}}}}",
            "nearmem.unit.tile_tokens: must be",
        ),
        (
            f"base: rexpert-die\nnearmem: {{unit: {{columns: {HUGE}}}}}",
            "nearmem.unit.columns: must be a whole",
        ),
        (
            "base: rexpert-die\nnearmem: {unit: {column_time: 0 s}}",
            "nearmem.unit.column_time: must be a time",
        ),
        (f"base: rexpert-die\nnearmem: {{core: {{side: {HUGE}}}}}", "nearmem.core.side: must be a whole"),
        ("base: rexpert-die\nnearmem: {pool: {gpus: 1.0e+300}}", "nearmem.pool.gpus: must be from 0.001 to"),
        (
            "base: rexpert-die\nnearmem: {core: {side: 1}, die: {rows: 900, cols: 900}}",
            "cores of nearmem.die: rows x cols of a mesh must be",
        ),
        ("base: h100\ngpu: {memory_efficiency: 1.0e-300}", "gpu.memory_efficiency: must be from 1e-06 to 1"),
        ("base: h100\ngpu: {peak: {bf16: 1e-300 FLOPS}}", "gpu.peak.bf16: must be a computing rate of"),
    ],
)
def test_numbers_beyond_any_machine_are_refused_with_their_range(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(BadInput) as caught:
        load_platform(write(tmp_path, text))
    assert words in caught.value.what


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("rexpert-pool-35b", "nearmem.core.side"),
        ("rexpert-pool-35b", "nearmem.unit.tile_tokens"),
        ("rexpert-pool-35b", "nearmem.pool.gpus"),
        ("spimoe-4x8", "pim.banks_per_bank_group"),
        ("spimoe-4x8", "site.pseudo_channels"),
        ("spimoe-4x8", "topology.rows"),
        ("spimoe-4x8", "sram_pim.macro_groups"),
        ("h20x32", "topology.nodes"),
        ("h20x32", "topology.gpus_per_node"),
        ("h20x32", "gpu.compute_efficiency"),
    ],
)
def test_true_is_no_number_of_a_machine(tmp_path: Path, base: str, path: str) -> None:
    section, *keys = path.split(".")
    inside = "".join(f"{{{key}: " for key in keys) + "true" + "}" * len(keys)
    with pytest.raises(BadInput) as caught:
        load_platform(write(tmp_path, f"base: {base}\n{section}: {inside}\n"))
    assert f"{keys[-1]}: must be a number (got True)" in caught.value.what


def test_the_largest_group_is_timed_at_once(tmp_path: Path) -> None:
    pim = load_platform(write(tmp_path, "base: spimoe-4x8\npim: {bank_groups: 8192}\n")).pim
    assert pim is not None
    assert pim.banks == MAX_BANKS == 65_536

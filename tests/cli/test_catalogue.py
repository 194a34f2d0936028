"""`moeplan models`, `platforms`, `solvers` and `versions`."""

from __future__ import annotations

import json
from importlib import metadata

import pytest

from moeplan.hardware.platform import platform_names
from moeplan.placement.registry import solvers_of
from moeplan.workload.model import model_names


def answer(cli, *arguments):
    ended = cli(*arguments, "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_all_models_are_listed(cli):
    assert [model["name"] for model in answer(cli, "models")["models"]] == list(model_names())
    table = cli("models").out
    assert all(name in table for name in model_names())


def test_a_model_in_full(cli):
    model = answer(cli, "models", "olmoe-1b-7b")
    assert (model["layers"], model["experts"], model["top_k"]) == (16, 64, 8)
    assert model["expert_bytes"] == 3 * 2048 * 1024 * 2
    assert model["routed_params"] == 16 * 64 * 3 * 2048 * 1024
    assert model["source"]
    text = cli("models", "olmoe-1b-7b").out
    assert "moe_layers" in text
    assert "0-15" in text
    assert "6,442,450,944" in text


def test_a_model_file_in_full(cli, world):
    assert answer(cli, "models", world.model)["moe_layers"] == [1, 2, 3]


def test_all_platforms_are_listed(cli):
    assert [platform["name"] for platform in answer(cli, "platforms")["platforms"]] == list(platform_names())
    assert all(name in cli("platforms").out for name in platform_names())


def test_a_platform_with_every_value_and_source(cli):
    values = answer(cli, "platforms", "spimoe-4x8")["values"]
    assert values["topology.sites"]["value"] == 32
    assert values["site.memory_bytes"]["value"] == 3e9
    assert values["topology.link_bandwidth_bytes_per_s"]["value"] == 25.6e9
    assert values["pim.t_ccd_s"]["value"] == 2.5e-9
    assert values["pim.refresh.interval_s"]["value"] == 3.9e-6
    for key in (
        "site.memory_bytes",
        "topology.link_bandwidth_bytes_per_s",
        "topology.link_latency_s",
        "pim.t_ccd_s",
    ):
        assert values[key]["source"], key


def test_a_pool_with_every_value_and_source(cli):
    values = answer(cli, "platforms", "rexpert-pool-397b")["values"]
    assert values["nearmem.pool.dies"]["value"] == 289
    assert values["nearmem.unit.column_time_s"]["value"] == pytest.approx(2.5e-9)
    assert values["nearmem.core.multicast_bytes_per_s"]["value"] == 256e9
    bare = [key for key, entry in values.items() if key.startswith("nearmem") and not entry["source"]]
    assert bare == []


def test_a_platform_for_people_is_exact(cli):
    lines = {
        line.split()[0]: line for line in cli("platforms", "spimoe-4x8").out.splitlines() if line.strip()
    }
    assert " 3 GB " in lines["site.memory_bytes"]
    assert " 25.6 GB/s " in lines["topology.link_bandwidth_bytes_per_s"]
    assert " 19.375 ns " in lines["pim.t_rcd_s"]
    assert " 400 MHz " in lines["pim.pu_clock_hz"]
    assert " 1024 B " in lines["pim.row_bytes"]
    assert " 989 TFLOP/s " in cli("platforms", "h100").out


def test_what_a_platform_file_leaves_out_is_called_a_default(cli, tmp_path):
    def lines(name):
        rows = (line.split(maxsplit=2) for line in cli("platforms", name).out.splitlines() if line.strip())
        return {row[0]: row[1:] for row in rows if "." in row[0]}

    shown = lines("spimoe-4x8")
    assert all(len(row) == 2 for row in shown.values())  # a value and what stands for its source
    assert shown["pim.session_s"][0] == shown["pim.input_from_bank"][0] == "off"
    assert shown["pim.accumulators"] == ["-", "default" + shown["pim.accumulators"][1][7:]]
    assert shown["topology.sites"][1].startswith("from the topology's shape")
    values = answer(cli, "platforms", "spimoe-4x8")["values"]
    assert values["pim.session_s"] == {"value": 0.0, "source": ""}
    own = tmp_path / "own.yaml"
    own.write_text("base: spimoe-4x8\nname: own\npim: {session: 1 us, mode_switch: 0 s}\n")
    mine = lines(own)
    assert mine["pim.session_s"][1].split(maxsplit=1)[1].startswith("none given")
    assert mine["pim.mode_switch_s"][0] == "off"
    assert " 512 MiB " in cli("platforms").out + " "


def test_solvers_have_traits_options_and_papers(cli):
    listed = answer(cli, "solvers")
    assert listed["family"] == "channels"
    solvers = {solver["name"]: solver for solver in listed["solvers"]}
    assert set(solvers) == set(solvers_of("channels"))
    assert solvers["exact"]["exact"]
    assert "SPIMOE" in solvers["lpt"]["published"]
    assert "step_clusters" in solvers["ilp"]["options"]
    assert "annealing" in cli("solvers").out


def test_an_unknown_family_is_corrected(cli):
    ended = cli("solvers", "chanels")
    assert (ended.code, ended.out) == (2, "")
    assert "did you mean 'channels'" in ended.err


def test_versions_name_every_library(cli):
    found = answer(cli, "versions")
    assert found["moeplan"] == metadata.version("moeplan")
    assert found["numpy"] == metadata.version("numpy")
    assert {"python", "system", "machine", "scipy", "numba", "ortools", "pulp", "torch"} <= set(found)
    assert "not installed" not in {found[name] for name in ("numpy", "numba", "typer")}
    assert "numpy" in cli("versions").out


@pytest.mark.parametrize("verb", ["models", "platforms"])
def test_unknown_names_are_corrected(cli, verb):
    ended = cli(verb, "spimoe")
    assert (ended.code, ended.out) == (2, "")
    assert "fix: " in ended.err


@pytest.mark.parametrize("command", [("models", "olmoe-1b-7b"), ("platforms", "h20")])
def test_one_form_at_a_time(cli, command):
    ended = cli(*command, "--json", "--yaml")
    assert (ended.code, ended.out) == (2, "")
    assert "--json and --yaml" in ended.err

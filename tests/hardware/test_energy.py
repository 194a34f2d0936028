from dataclasses import fields

import pytest

from moeplan.common.errors import UsageError
from moeplan.hardware.energy import (
    GPU_HBM,
    HBM_PIM,
    REXPERT,
    REXPERT_HBM_J_PER_BYTE,
    Energy,
    EnergyModel,
    hbm_j_per_byte,
    noc_hop_j_per_byte,
)

PJ = 1e-12
MODELS = {"gpu": GPU_HBM, "pim": HBM_PIM, "rexpert": REXPERT}


@pytest.mark.parametrize("name", MODELS)
def test_every_figure_has_a_source(name: str) -> None:
    figures = {field.name for field in fields(EnergyModel)} - {"sources"}
    assert set(MODELS[name].sources) == figures
    assert all(MODELS[name].sources.values())


def test_hbm_by_hand() -> None:
    # 0.11 + 0.44 = 0.55 pJ/bit in the bank = 4.4 pJ per byte; + 1.01; + 1.23 + 0.5; + 0.3 = 3.59 pJ/bit.
    assert hbm_j_per_byte("bank") == pytest.approx(4.4 * PJ)
    assert hbm_j_per_byte("bank_group") == pytest.approx(12.48 * PJ)
    assert hbm_j_per_byte("buffer_die") == pytest.approx(26.32 * PJ)
    assert hbm_j_per_byte("host") == pytest.approx(28.72 * PJ)
    # The bank's multiplier saves the rest of the way: 3.04 pJ/bit.
    assert HBM_PIM.link_j_per_byte == pytest.approx(24.32 * PJ)
    assert GPU_HBM.read_j_per_byte == pytest.approx(HBM_PIM.read_j_per_byte + HBM_PIM.link_j_per_byte)


def test_unknown_reach_names_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        hbm_j_per_byte("banks")
    assert "'bank'" in caught.value.fix


def test_energy_of_some_work() -> None:
    # 1 GB x 0.2 pJ = 0.2 mJ; 10 GFLOP x 0.4 pJ = 4 mJ; 1 MB x 4 pJ = 4 uJ.
    energy = REXPERT.energy(read_bytes=1e9, flop=1e10, link_bytes=1e6)
    assert energy == Energy(pytest.approx(2e-4), pytest.approx(4e-3), pytest.approx(4e-6))
    assert energy.total_j == pytest.approx(4.204e-3)


def test_rexpert_weights_cost_a_twentieth() -> None:
    # ReXpert Table VII: 331 MB per token cost 1326 uJ from HBM and 66 uJ from ReRAM.
    assert REXPERT_HBM_J_PER_BYTE / REXPERT.read_j_per_byte == pytest.approx(20.0, rel=1e-12)
    from_hbm_j = 331.5e6 * REXPERT_HBM_J_PER_BYTE
    assert from_hbm_j == pytest.approx(1326e-6, rel=1e-3)
    assert REXPERT.energy(read_bytes=331.5e6, flop=0.0).total_j == pytest.approx(66e-6, rel=0.01)


def test_noc_hop_by_hand() -> None:
    # 4.06 pJ per 64-bit flit are 0.5075 pJ per byte; 1.5 mm x 8 bits x 48.8 fJ = 0.5856 pJ.
    assert noc_hop_j_per_byte(0.0) == pytest.approx(0.5075 * PJ)
    assert noc_hop_j_per_byte(1.5) == pytest.approx(1.0931 * PJ)

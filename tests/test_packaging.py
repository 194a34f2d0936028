"""The wheel holds what it should and nothing else, and runs outside the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("wheel")  # one worker builds it once

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = ("common", "hardware", "workload", "placement", "schedule", "benchmarks", "cli")


def packages_on_disk() -> set[str]:
    """Every folder below the rooms that holds something to ship."""
    return {"moeplan." + ".".join(path.parent.relative_to(ROOT).parts) for path in shipped_on_disk()}


def shipped_on_disk() -> set[Path]:
    kinds = {".py", ".yaml", ".json", ".j2", ".parquet", ".typed"}
    return {path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in kinds}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    folder, source = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("source")
    for name in (*FOLDERS, "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_package_list_equals_folders():
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == packages_on_disk()


def test_wheel_holds_only_moeplan(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"moeplan"}
    assert not [name for name in names if "test" in Path(name).name and not name.endswith("testing.py")]


def test_wheel_holds_every_source_and_data_file(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {f"moeplan/{path.relative_to(ROOT)}" for path in shipped_on_disk()}
    assert expected - names == set()


def test_installed_wheel_runs_the_demo_outside_the_checkout(wheel, tmp_path):
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(site),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(site), "NO_COLOR": "1"}
    where = subprocess.run(
        [sys.executable, "-c", "import moeplan.cli.main as m; print(m.__file__)"],
        cwd=work, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(site)
    demo = subprocess.run(
        [sys.executable, "-m", "moeplan.cli", "demo"],
        cwd=work, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert demo.returncode == 0, demo.stderr
    for name in ("ep", "lpt", "annealing", "plan.json", "report.html"):
        assert name in demo.stdout
    assert json.loads((work / "moeplan-demo" / "plan.json").read_text())["format"] == "moeplan.plan"
    assert (work / "moeplan-demo" / "report.html").stat().st_size > 10_000

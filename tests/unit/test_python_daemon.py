"""Which zips of PySpark the daemon of Python workers leaves out."""

from pathlib import Path

import pytest

from headrace.python_daemon import without_zips


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Where PySpark and py4j are installed, with their zips."""
    lib = tmp_path / "site" / "pyspark" / "python" / "lib"
    lib.mkdir(parents=True)
    for name in ("pyspark", "py4j"):
        (tmp_path / "site" / name).mkdir(exist_ok=True)
        (tmp_path / "site" / name / "__init__.py").touch()
        (lib / f"{name}.zip").touch()
    return tmp_path / "site"


def zips(site: Path) -> list[str]:
    return [str(site / "pyspark" / "python" / "lib" / f"{n}.zip") for n in ("pyspark", "py4j")]


def test_the_zips_of_the_package_that_is_installed_are_left_out(site: Path) -> None:
    path = [*zips(site), "/other.zip", str(site)]
    assert without_zips(path) == ["/other.zip", str(site)]


def test_they_are_left_out_where_a_link_leads_to_the_package(
    site: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(site)
    assert without_zips([*zips(site), str(tmp_path / "link")]) == [str(tmp_path / "link")]


def test_zips_of_another_spark_stay(site: Path, tmp_path: Path) -> None:
    path = [str(tmp_path / "spark" / "python" / "lib" / "pyspark.zip"), str(site)]
    assert without_zips(path) == path


def test_zips_stay_where_no_package_stands_in_for_them(site: Path, tmp_path: Path) -> None:
    assert without_zips(zips(site)) == zips(site)
    (site / "py4j" / "__init__.py").unlink()
    (site / "py4j").rmdir()
    assert without_zips([*zips(site), str(site)]) == [*zips(site), str(site)]

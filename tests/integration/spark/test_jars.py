"""Jars are fetched once, by Spark's own Ivy, and never used unchecked."""

import hashlib
import os
import re
import threading
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from headrace.sdk.errors import SetupError
from headrace.spark.jars import Jar, JarCache, locked_jars
from headrace.spark.jvm import find_java

COORDINATES = "org.example:wheel:1.0"


@dataclass(frozen=True)
class Repository:
    """A Maven repository in a folder, with one jar, and Ivy settings that name only it."""

    folder: Path
    jar: Jar

    @property
    def file(self) -> Path:
        return self.folder / "org/example/wheel/1.0/wheel-1.0.jar"

    @property
    def ivy_settings(self) -> Path:
        return self.folder / "ivysettings.xml"

    def cache(self, folder: Path) -> JarCache:
        return JarCache(
            folder=folder,
            java=find_java(),
            spark_conf={"spark.jars.ivySettings": str(self.ivy_settings)},
        )


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    folder = tmp_path / "repository"
    place = folder / "org/example/wheel/1.0"
    place.mkdir(parents=True)
    with zipfile.ZipFile(place / "wheel-1.0.jar", "w") as archive:
        archive.writestr("wheel.txt", "turns")
    (place / "wheel-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
        "<artifactId>wheel</artifactId><version>1.0</version><dependencies><dependency>"
        "<groupId>org.example</groupId><artifactId>absent</artifactId><version>1</version>"
        "</dependency></dependencies></project>"
    )
    (folder / "ivysettings.xml").write_text(
        "<ivysettings><settings defaultResolver='folder'/><resolvers>"
        f"<filesystem name='folder' m2compatible='true'><artifact pattern='{folder}/"
        "[organisation]/[module]/[revision]/[artifact]-[revision].[ext]'/>"
        f"<ivy pattern='{folder}/[organisation]/[module]/[revision]/[module]-[revision].pom'/>"
        "</filesystem></resolvers></ivysettings>"
    )
    digest = hashlib.sha256((place / "wheel-1.0.jar").read_bytes()).hexdigest()
    return Repository(folder, Jar(feature="wheel", coordinates=COORDINATES, sha256=digest))


def test_a_missing_jar_is_fetched_without_what_it_depends_on(
    repository: Repository, tmp_path: Path
) -> None:
    steps: list[str] = []
    files = repository.cache(tmp_path / "jars").resolve([repository.jar], report=steps.append)
    assert [file.read_bytes() for file in files] == [repository.file.read_bytes()]
    assert steps == [f"fetching {COORDINATES}"]
    assert list((tmp_path / "jars").glob("ivy-*")) == []


def test_a_jar_in_the_cache_needs_no_repository(repository: Repository, tmp_path: Path) -> None:
    cache = repository.cache(tmp_path / "jars")
    files = cache.resolve([repository.jar])
    repository.file.unlink()
    assert cache.resolve([repository.jar]) == files


def test_a_jar_that_was_changed_in_the_cache_is_fetched_again(
    repository: Repository, tmp_path: Path
) -> None:
    cache = repository.cache(tmp_path / "jars")
    [file] = cache.resolve([repository.jar])
    file.write_bytes(b"something else")
    assert cache.resolve([repository.jar]) == (file,)
    assert file.read_bytes() == repository.file.read_bytes()


def test_a_recheck_sees_a_change_that_kept_size_and_time(
    repository: Repository, tmp_path: Path
) -> None:
    cache = repository.cache(tmp_path / "jars")
    [file] = cache.resolve([repository.jar])
    before = file.stat()
    file.write_bytes(bytes(before.st_size))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    cache.recheck([repository.jar])
    cache.resolve([repository.jar])
    assert file.read_bytes() == repository.file.read_bytes()


def test_a_jar_that_is_not_the_locked_one_is_refused_with_both_hashes(
    repository: Repository, tmp_path: Path
) -> None:
    other = replace(repository.jar, sha256="0" * 64)
    with pytest.raises(SetupError) as raised:
        repository.cache(tmp_path / "jars").resolve([other])
    assert str(repository.jar.sha256) in raised.value.problem
    assert str(other.sha256) in raised.value.problem
    assert list((tmp_path / "jars").glob("*.jar")) == []


def test_a_jar_without_a_hash_stays_what_it_was_when_it_was_first_fetched(
    repository: Repository, tmp_path: Path
) -> None:
    first, cache = replace(repository.jar, sha256=None), repository.cache(tmp_path / "jars")
    [file] = cache.resolve([first])
    before = file.read_bytes()
    repository.file.write_bytes(b"something else")
    assert cache.resolve([first]) == (file,)
    file.write_bytes(b"damaged")
    with pytest.raises(SetupError, match="not the jar that was fetched first") as raised:
        cache.resolve([first])
    assert str(repository.jar.sha256) in raised.value.problem

    named = replace(first, sha256=hashlib.sha256(b"something else").hexdigest())
    cache.resolve([named])
    assert cache.resolve([first])[0].read_bytes() == b"something else" != before


def test_a_jar_that_cannot_be_fetched_is_told_with_what_to_do(
    repository: Repository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    repository.file.unlink()
    cache = repository.cache(tmp_path / "jars")
    with pytest.raises(SetupError) as raised:
        cache.resolve([repository.jar])
    assert COORDINATES in raised.value.problem
    assert "network" in raised.value.fix
    assert str(cache.log) in raised.value.fix
    assert "wheel" in cache.log.read_text()
    assert capfd.readouterr() == ("", "")


def test_two_that_need_the_same_jar_at_once_both_get_it(
    repository: Repository, tmp_path: Path
) -> None:
    steps: list[str] = []
    results: list[tuple[Path, ...]] = []

    def resolve() -> None:
        cache = repository.cache(tmp_path / "jars")
        results.append(cache.resolve([repository.jar], report=steps.append))

    threads = [threading.Thread(target=resolve) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert results[0] == results[1]
    assert len(steps) == 1


def test_every_locked_jar_has_a_hash_and_a_fixed_version() -> None:
    for jar in locked_jars():
        assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256 or "")
        assert re.fullmatch(r"[\w.-]+:[\w.-]+:\d[\w.-]*", jar.coordinates)

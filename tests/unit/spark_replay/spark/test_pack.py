"""What is packed, with small packages and an interpreter that is a script; tests/system/test_spark_yarn.py packs this
environment and runs a replay with it."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, PathDistribution
from pathlib import Path

import pytest

from spark_replay.spark import pack as packing
from spark_replay.spark.pack import pack, required
from wormhole.model.errors import UsageError

Install = Callable[..., PathDistribution]
HOT = ("wormhole.wire.update", "wormhole.wire.values")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a distribution with these requirements and files into an environment that has no others."""
    site = tmp_path / "site"
    there: dict[str, PathDistribution] = {}

    def find(name: str) -> PathDistribution:
        if name not in there:
            raise PackageNotFoundError(name)
        return there[name]

    def put(name: str, *requires: str, files: tuple[str, ...] = (), editable: bool = False) -> PathDistribution:
        about = site / f"{name}-1.0.dist-info"
        about.mkdir(parents=True)
        extras = sorted({one.partition("extra == ")[2].strip("'") for one in requires if "extra" in one})
        lines = [f"Provides-Extra: {one}" for one in extras] + [f"Requires-Dist: {one}" for one in requires]
        (about / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *lines]))
        for file in files:
            path = site / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file)
        listed = [*files, f"{about.name}/METADATA", "../../bin/program", f"{name}.pth", "gone.py"]
        (about / "RECORD").write_text("".join(f"{one},,\n" for one in listed))
        if editable:
            (about / "direct_url.json").write_text(json.dumps({"dir_info": {"editable": True}}))
            (about / "top_level.txt").write_text("wormholectl\n")
        there[name] = PathDistribution(about)
        return there[name]

    monkeypatch.setattr(packing, "distribution", find)
    for modules in ("hot_modules", "compiled_modules"):  # some runs of these tests have none
        monkeypatch.setattr(packing, modules, lambda: HOT)
    return put


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the packed interpreter, which is a script, says of itself."""
    said: dict[str, object] = {
        "site": "lib/site",
        "outside": [],
        "compiled": list(HOT),
        "mapped": ["/lib/libc.so.6", "/lib/ld-linux-x86-64.so.2", "/lib/libssl.so.3"],
    }

    def copy(root: Path) -> None:
        (root / "bin").mkdir(parents=True)
        (root / "lib").mkdir()
        script = root / "bin" / "python"
        script.write_text(f"#!/bin/sh\n# \0/opt/python/lib\0\ncat <<'END'\n{json.dumps(said)}\nEND\n")
        script.chmod(0o755)

    monkeypatch.setattr(packing, "_copy_python", copy)
    return said


def contents(file: Path) -> list[str]:
    with tarfile.open(file) as archive:
        return [one.name for one in archive.getmembers() if one.isfile()]


def test_what_is_required_is_followed_through_extras_and_markers(install: Install) -> None:
    install("wormhole-pubsub", "grpcio>=1", "lib[fast]; extra == 'spark'", "pytest; extra == 'dev'",
            "botocore; extra == 's3'", "absent; extra == 'mysql'", "uvloop; platform_system != 'Linux'")  # fmt: skip
    install("grpcio")
    install("lib", "wheel-of-c; extra == 'fast'", "docs; extra == 'doc'")
    for name in ("wheel-of-c", "docs", "pytest", "botocore", "uvloop", "other"):
        install(name)
    assert [one.metadata["Name"] for one in required()] == [
        "botocore",
        "grpcio",
        "lib",
        "wheel-of-c",
        "wormhole-pubsub",
    ]


@pytest.mark.parametrize("missing", ["grpcio", "pyspark; extra == 'spark'"])
def test_a_package_that_tasks_need_is_named_when_it_is_missing(install: Install, missing: str) -> None:
    install("wormhole-pubsub", missing)
    with pytest.raises(UsageError, match=f"{missing.partition(';')[0]} is not installed"):
        required()


def test_an_archive_has_the_interpreter_and_the_packages_without_what_no_executor_needs(
    install: Install, interpreter: dict[str, object], tmp_path: Path
) -> None:
    install("wormhole-pubsub", "pyspark; extra == 'spark'", editable=True)
    install("pyspark", files=("pyspark/worker.py", "pyspark/jars/a.jar", "pyspark/python/lib/pyspark.zip",
                              "pyspark/__pycache__/worker.pyc", "top.py"))  # fmt: skip
    packed = pack(tmp_path / "env.tar.gz")
    assert packed.packages == {"pyspark": "1.0", "wormhole-pubsub": "1.0"}
    assert packed.libraries == ("libssl.so.3",)
    assert packed.size == (tmp_path / "env.tar.gz").stat().st_size
    found = contents(tmp_path / "env.tar.gz")
    assert found[0] == "bin/python"
    for name in ("pyspark/worker.py", "pyspark/python/lib/pyspark.zip", "top.py", "pyspark-1.0.dist-info/METADATA",
                 "wormholectl/app.py"):  # fmt: skip
        assert f"lib/site/{name}" in found
    assert [name for name in found if name.endswith((".jar", ".pyc", ".pth", "program"))] == []
    first = (tmp_path / "env.tar.gz").read_bytes()
    pack(tmp_path / "env.tar.gz")
    assert (tmp_path / "env.tar.gz").read_bytes() == first, "made twice, it is the same"
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


def test_the_interpreter_s_own_library_comes_along_and_is_looked_for_beside_it(
    install: Install, interpreter: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("wormhole-pubsub")
    library = tmp_path / "libpython3.11.so.1.0"
    library.write_text("library")
    monkeypatch.setattr("sysconfig.get_config_var", lambda name: "/opt/python/lib")
    interpreter["mapped"] = [str(library)]
    with pytest.raises(UsageError, match="this Python is found only together with"):
        pack(tmp_path / "env.tar.gz")
    real = packing._run
    monkeypatch.setattr(
        packing, "_run", lambda root, what: real(root, what) | ({"mapped": []} if list(root.glob("lib/lib*")) else {})
    )
    pack(tmp_path / "env.tar.gz")
    with tarfile.open(tmp_path / "env.tar.gz") as archive:
        assert "lib/libpython3.11.so.1.0" in archive.getnames()
        program = archive.extractfile("bin/python")
        assert program is not None
        assert b"\0$ORIGIN/../lib\0\0" in program.read(), "as long as before"


def test_what_cannot_be_packed_is_an_error_by_name(
    install: Install, interpreter: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "env.tar.gz"
    install("wormhole-pubsub", "lib", "listed")
    lib = install("lib", editable=True)
    listed = install("listed")
    with pytest.raises(UsageError, match="lib is installed as editable"):
        pack(to)
    Path(str(lib.locate_file("lib-1.0.dist-info/direct_url.json"))).unlink()
    Path(str(listed.locate_file("listed-1.0.dist-info/RECORD"))).unlink()
    with pytest.raises(UsageError, match="nothing lists the files of listed"):
        pack(to)
    with pytest.raises(UsageError, match=r"env\.zip does not end in \.tar\.gz"):
        pack(tmp_path / "env.zip")
    with pytest.raises(UsageError, match="No such file"):
        pack(tmp_path / "nowhere" / "env.tar.gz")
    monkeypatch.setattr(packing, "compiled_modules", lambda: ())
    with pytest.raises(UsageError, match="hot modules are not compiled"):
        pack(to)
    assert not to.exists()


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ({"outside": ["/usr/lib/python3/x.py"]}, "takes modules from outside of it, such as /usr/lib/python3/x.py"),
        ({"compiled": []}, "is compiled here and not in the archive"),
    ],
)
def test_an_interpreter_that_needs_this_host_is_refused(
    install: Install, interpreter: dict[str, object], tmp_path: Path, says: dict[str, object], message: str
) -> None:
    install("wormhole-pubsub")
    interpreter.update(says)
    with pytest.raises(UsageError, match=message):
        pack(tmp_path / "env.tar.gz")


def test_an_interpreter_that_lacks_something_says_what(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(root: Path) -> None:
        (root / "bin").mkdir(parents=True)
        script = root / "bin" / "python"
        script.write_text("#!/bin/sh\necho 'ImportError: libffi.so.8: cannot open' >&2\nexit 1\n")
        script.chmod(0o755)

    install("wormhole-pubsub")
    monkeypatch.setattr(packing, "_copy_python", broken)
    with pytest.raises(UsageError, match=r"does not run the job: ImportError: libffi.so.8"):
        pack(tmp_path / "env.tar.gz")


def test_a_file_can_be_named_from_the_folder_where_one_is(
    install: Install, interpreter: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("wormhole-pubsub", "pyspark; extra == 'spark'", editable=True)
    install("pyspark")
    monkeypatch.chdir(tmp_path)
    pack(Path("env.tar.gz"))
    assert contents(tmp_path / "env.tar.gz")


def test_the_library_comes_without_packages_and_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "python3.99"
    for name in ("os.py", "test/x.py", "site-packages/y.py", "config-3.99/makefile", "json/config-z.py"):
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text(name)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(library))
    packing._copy_python(tmp_path / "env")
    copied = {str(one.relative_to(tmp_path / "env")) for one in (tmp_path / "env").rglob("*") if one.is_file()}
    assert copied == {"bin/python", "lib/python3.99/os.py", "lib/python3.99/json/config-z.py"}

"""How files are written: whole or not at all, through links, and into devices and FIFOs."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from foretrain.errors import BackendFailed, InvalidRequest
from foretrain.facts.user_data import check_file, write_atomically, write_output, written_whole

AS_ROOT = os.geteuid() == 0
FULL = Path("/dev/full")


def test_a_file_gets_the_permissions_of_others_and_keeps_its_own(tmp_path: Path) -> None:
    file, beside = tmp_path / "page.html", tmp_path / "beside"
    beside.write_text("")
    write_output("--html", file, "one")
    assert file.stat().st_mode == beside.stat().st_mode
    file.chmod(0o640)
    write_output("--html", file, "two")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("two", 0o640)
    assert sorted(tmp_path.iterdir()) == [beside, file]


def test_the_target_of_a_link_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link, second = tmp_path / "there" / "trace.json", tmp_path / "link", tmp_path / "second"
    link.symlink_to("there/trace.json")
    second.symlink_to(link)
    write_output("--timeline", link, "not there yet")
    assert target.read_text() == "not there yet"
    write_output("--timeline", second, "over two links")
    assert target.read_text() == "over two links"
    assert link.is_symlink() and second.is_symlink()


def test_a_link_to_itself_is_a_sentence(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(BackendFailed, match=r"--plot .*loop cannot be written: Too many levels"):
        write_output("--plot", loop, "x")
    assert loop.is_symlink()


def test_a_fifo_is_written_and_stays_one(tmp_path: Path) -> None:
    fifo, read = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    reader.start()
    write_output("--timeline", fifo, "x" * 200_000)
    reader.join()
    assert read == ["x" * 200_000]
    assert fifo.is_fifo()
    assert list(tmp_path.iterdir()) == [fifo]


@pytest.mark.skipif(not AS_ROOT, reason="only root makes device nodes")
@pytest.mark.parametrize(("minor", "complaint"), [(3, ""), (7, "No space left on device")])
def test_a_device_is_written_and_stays_one(tmp_path: Path, minor: int, complaint: str) -> None:
    """The null device and the one that is always full, as nodes of our own: a mistake costs no real one."""
    node = tmp_path / "node"
    try:
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        node.open("wb").close()
    except PermissionError:
        pytest.skip("device nodes are not allowed here")
    try:
        write_output("--timeline", node, "x" * 100)
        assert not complaint
    except BackendFailed as error:
        assert str(error) == f"--timeline {node} cannot be written: {complaint}"
    assert node.is_char_device()
    assert list(tmp_path.iterdir()) == [node]


@pytest.mark.skipif(not AS_ROOT, reason="only root makes device nodes")
def test_a_disk_is_refused(tmp_path: Path) -> None:
    node = tmp_path / "disk"
    try:
        os.mknod(node, 0o600 | stat.S_IFBLK, os.makedev(240, 0))  # a number for experiments: no driver
    except PermissionError:
        pytest.skip("device nodes are not allowed here")
    with pytest.raises(InvalidRequest, match="is a disk: name a file on it"):
        check_file("--html", node)
    with pytest.raises(BackendFailed, match="cannot be written: it is a disk"):
        write_output("--html", node, "x")


@pytest.mark.skipif(AS_ROOT, reason="root may write everywhere")
def test_a_folder_and_a_file_without_permission(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    file.chmod(0o400)
    with pytest.raises(BackendFailed, match="cannot be written: Permission denied"):
        write_output("--html", file, "after")
    tmp_path.chmod(0o500)
    with pytest.raises(BackendFailed, match="cannot be written: Permission denied"):
        write_output("--html", tmp_path / "new", "after")
    tmp_path.chmod(0o700)
    assert file.read_text() == "before"


def test_what_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    file.write_text("before")
    with pytest.raises(BackendFailed, match="cannot be written"), written_whole("FILE", file) as partial:
        partial.write_text("half")
        raise OSError(28, "No space left on device")
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_our_own_files_get_their_folder_and_may_be_links_too(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a" / "b" / "kept.json", "1")
    link = tmp_path / "kept.json"
    link.symlink_to(tmp_path / "a" / "b" / "kept.json")
    write_atomically(link, b"2")
    assert (tmp_path / "a" / "b" / "kept.json").read_bytes() == b"2"
    assert link.is_symlink()


def test_a_long_name_needs_no_longer_one_beside_it(tmp_path: Path) -> None:
    file = tmp_path / ("n" * 255)
    write_output("--html", file, "x")
    assert file.read_text() == "x"

"""Builds the program that stands in for the engine, and holds every test to the rule of the box tests:
nothing is left."""
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "box"))
import harness  # noqa: E402
import keepers  # noqa: E402


# The processes of a sandbox are tried on boxes that their driver makes as root makes them; test_cli.py runs
# them for everybody. To take init's socket needs root. Root's boxes never want for ids, and its disks are images.
collect_ignore = ["test_disk_dirs.py", "test_ids.py"] if harness.EXPECT.is_root else [
    "test_lies.py", "test_procs.py",
    # The same whoever runs them: once is enough.
    "test_cli_client.py", "test_cli_tls.py", "test_cli_words.py", "test_logs.py", "test_metrics.py",
    "test_traces.py"]


# What else takes something away from one server needs only its own limits, or a kill.
BY_ROOT_ONLY = {
    "test_without_an_address_it_listens_on_the_loopback": "only root makes a network, and boxes in it",
    "test_the_units_are_what_systemd_understands": "the same whoever asks",
    "small_disk": "only root mounts",
    "test_a_keeper_without_fds_refuses_boxes_and_those_there_are_run_on":
        "only root sees how many fds a process has that has made boxes",
    "test_without_processes_what_runs_runs_on_and_new_work_is_refused": "only root makes such a group",
}


def pytest_collection_modifyitems(config, items):
    def is_left_out(item):
        names = {item.originalname, *getattr(item, "fixturenames", ())}
        return not harness.EXPECT.is_root and names & BY_ROOT_ONLY.keys()

    left_out = [item for item in items if is_left_out(item)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def stand_in():
    """Where every user may execute it: the engine is nobody's."""
    target = harness.MADE / "drivers" / "stand_in"
    source = pathlib.Path(__file__).resolve().parent / "drivers" / "stand_in.c"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        subprocess.run([harness.ROOT / "scripts" / "test-programs.sh", "stand-in", target], check=True)
    return target


@pytest.fixture(autouse=True)
def nothing_left():
    before = harness.host()
    yield
    harness.check_nothing_left(before)


@pytest.fixture(autouse=True)
def nothing_of_boxes(request):
    """What boxes wrote to an ordinary user's disks is not the user's to remove, but as root of their ids."""
    here = "tmp_path" in request.fixturenames and request.getfixturevalue("tmp_path")
    yield
    if here and not harness.EXPECT.is_root:
        disks = here / "data" / "disks"
        for ids in (["--map-auto"], []):
            subprocess.run(["unshare", "--map-root-user", *ids, "rm", "-rf", disks],
                           stderr=subprocess.DEVNULL, check=False)


@pytest.fixture
def keeper(stand_in, tmp_path):
    with keepers.Keeper(stand_in, tmp_path) as started:
        yield started

"""A directory for each test, of which nothing outside of it may change."""
import os
import pathlib
import subprocess
import tempfile

import pytest

# Each has its mark, by which a run of all tests chooses: under the sanitizers `not plain`, of the programs as they are
# `plain`, and by an ordinary user `user`. Everything else comes out alike in all three.
PLAIN = {"test_a_directory_of_many_is_listed_in_order_in_little_memory": "the sanitizers want more memory"}
BY_USER = {
    "test_races": "inodes, owners and rights are others'",
    "test_a_directory_that_cannot_be_read_is_told": "modes keep no root out",
    "test_chown": "only root gives files away",
    "test_copy_keeps_what_makes_up_a_tree": "only root gives a copy its owner",
    "test_out_of_what_cannot_be_read_is_no_whole_archive": "modes keep no root out",
    "test_rights_are_those_of_the_user": "modes keep no root out",
    "test_set_id_bits_come_only_with_their_owner": "only root gives files away",
    "test_strip_owner_and_what_is_replaced": "only root gives files away",
    "test_write_keeps_mode_and_owner_of_what_it_replaces": "only root gives files away",
}


def pytest_configure(config):
    config.addinivalue_line("markers", "plain: not under the sanitizers")
    config.addinivalue_line("markers", "user: other rights make it another test")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Before pytest looks at the marks."""
    for item in items:
        names = {item.originalname, item.path.stem}
        for mark, table in ((pytest.mark.plain, PLAIN), (pytest.mark.user, BY_USER)):
            if names & table.keys():
                item.add_marker(mark)


def directory(base):
    """Gone afterwards, whatever modes and depths a test left."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="cove-test-tool-", dir=base))
    yield top
    subprocess.run(["chmod", "-R", "u+rwX", str(top)], check=False, stderr=subprocess.DEVNULL)
    subprocess.run(["rm", "-rf", str(top)], check=True)


@pytest.fixture
def place():
    yield from directory(os.environ.get("COVE_TEST_MADE", "/tmp"))


@pytest.fixture
def quick():
    """In memory, for many files."""
    yield from directory("/dev/shm")

"""Commands that outlive who asked for them: a link is lost without a word, the next one finds all."""
import pytest

import harness


def said(done):
    """The events and answers, a line each."""
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout.splitlines()


def until(id, condition):
    """Waits for what another command does: this one ends then."""
    return "start", id, "nostdin", f"until {condition}; do sleep 0.05; done", "heed", "exited", id


# ---- streams -----------------------------------------------------------------------------------

@pytest.mark.parametrize("profile", ["plain", "system"])
def test_pipes_carry_what_goes_in_and_comes_out(profile, links):
    lines = said(links(profile, "start", 1, "pipes", "echo first; cat; echo last >&2; exit 3",
                       "heed", "start", 1, "write", 1, "middle\n", "shut", 1, "read", 1, 1,
                       "read", 1, 2, "heed", "exited", 1))
    assert lines == ["ready 0", "start 1 wrr", "read 1 first|middle| END", "read 1 last| END",
                     "exited 1 exit 3"]


def test_without_stdin_there_is_an_empty_one(links):
    lines = said(links("plain", "start", 1, "nostdin", "cat; readlink /proc/self/fd/0",
                       "heed", "start", 1, "read", 1, 1))
    assert lines[1:] == ["start 1 -rr", "read 1 /dev/null| END"]


def test_what_is_given_is_used(links):
    done = links("plain", "start", 1, "given", "echo here", "heed", "start", 1, "heed", "exited", 1,
                 "again", "table")
    assert sorted(said(done)) == sorted(["ready 0", "start 1 ---", "here", "exited 1 exit 0",
                                         "hello 0", "entry 1 --- exit 0", "end 0"])


def test_a_terminal_is_one_and_stays_one(links):
    lines = said(links("plain", "start", 1, "tty", "stty -echo; tty; stty size; touch /tmp/set; read x; echo got $x",
                       *until(2, "[ -e /tmp/set ]"), "again", "table", "write", 1, "word\n",
                       "read", 1, 0))
    assert lines[1:] == ["start 1 x-- tty", "start 2 -rr", "exited 2 exit 0", "hello 0",
                         "entry 1 x-- tty running", "entry 2 -rr exit 0", "end 0",
                         "read 1 /dev/pts/0|24 80|got word|"]


def test_stdin_stays_open_until_init_is_told(links):
    """Who is killed closes its end, and no command must take that for the end of its input."""
    lines = said(links("plain", "start", 1, "pipes", "cat; echo over", "heed", "start", 1, "close", 1, 0,
                       "sleep", 400, "again", "table", "write", 1, "late\n", "shut", 1,
                       "read", 1, 1, "again", "table"))
    assert lines[1:6] == ["start 1 wrr", "hello 0", "entry 1 wrr running", "end 0",
                          "read 1 late|over| END"]
    assert lines[7].startswith("entry 1 -rr ")


# ---- a link is lost ----------------------------------------------------------------------------

@pytest.mark.parametrize("profile", ["plain", "system"])
def test_a_command_runs_on_and_nothing_it_says_is_lost(profile, links):
    lines = said(links(profile, "start", 1, "pipes", "echo before; read x; echo after; exit 4",
                       "heed", "start", 1, "sleep", 200, "again", "table", "write", 1, "go\n", "read", 1, 1,
                       "heed", "exited", 1))
    assert lines[1:] == ["start 1 wrr", "hello 0", "entry 1 wrr running", "end 0",
                         "read 1 before|after| END", "exited 1 exit 4"]


@pytest.mark.parametrize("end, line", [("exit 9", "exit 9"), ("signal 15", "kill $$")])
def test_an_end_that_nobody_heard_is_told(end, line, links):
    lines = said(links("plain", "start", 1, "pipes", f"echo words; {line}", "heed", "start", 1,
                       "still", "again", "table", "read", 1, 1, "again", "table"))
    assert lines == ["ready 0", "start 1 wrr", "hello 0", f"entry 1 wrr {end}", "end 0", "read 1 words| END",
                     "hello 0", f"entry 1 wrr {end}", "end 0"]


def test_300_ends_that_nobody_hears_wait(links):
    """More than the socket holds, all at once: init has neither waited for room nor forgotten any."""
    lines = said(links("plain", "start", 1, "pipes", "mkfifo /tmp/gate", "heed", "exited", 1, "ack", 1,
                       "many", 2, 300, "read x < /tmp/gate; exit 7", "heed", "start", 301,
                       "start", 302, "nostdin",
                       # Open until all have it, and this shell and the one below it.
                       "exec 3<> /tmp/gate; until [ $(ls -l /proc/[0-9]*/fd 2>/dev/null 3>&- | "
                       "grep -c /tmp/gate 3>&-) -ge 302 ]; do sleep 0.2; done",
                       "heed", "start", 302, "still", "again", "table"))
    held = [line for line in lines if line.startswith("entry")]
    assert held == [*(f"entry {id} -rr exit 7" for id in range(2, 302)), "entry 302 -rr exit 0"]


def test_a_link_is_told_what_it_asked_and_not_what_others_did(links):
    """Each of them asked who is there, and was lost before it heard."""
    lines = said(links("plain", "start", 1, "pipes", "sleep 60", "again", "open", 5, "r", "/tmp",
                       "start", 2, "pipes", "sleep 60", "again", "again", "start", 3, "pipes", "true",
                       "again", "table"))
    assert lines[:4] == ["ready 0", "hello 0", "entry 1 wrr running", "entry 2 wrr running"]
    assert lines[4].startswith("entry 3 wrr") and lines[5] == "end 0"


def test_requests_that_the_socket_cannot_take_wait_in_the_link(links):
    lines = said(links("plain", "many", 1, 600, "exit 7", "sleep", 1000, "heed", "exited", 600,
                       "still", "again", "table"))
    held = [line for line in lines if line.startswith("entry")]
    assert held == [f"entry {id} -rr exit 7" for id in range(1, 601)], lines[-9:]


def test_what_is_held_is_all_init_reaps(links):
    """It goes on while nobody reads: what daemons leave behind, too."""
    lines = said(links("plain", "many", 1, 100, "sleep 0.2 & exit 7", "heed", "start", 100,
                       "still", "again", "table",
                       "start", 999, "nostdin", "until [ $(ps -e -o stat= | grep -c Z) = 0 ]; do sleep 0.1; done; echo 0", "heed", "start", 999,
                       "read", 999, 1))
    assert lines[-1] == "read 999 0| END"


# ---- nothing twice -----------------------------------------------------------------------------

def test_nothing_starts_twice(links):
    once = "echo x >> /tmp/count; read x; exit 2"
    lines = said(links("plain", "start", 1, "pipes", once, "start", 1, "pipes", once, "again",
                       "start", 1, "pipes", once, "heed", "start", 1, "write", 1, "go\n",
                       "heed", "exited", 1, "start", 1, "pipes", once,
                       "heed", "exited", 1, "ack", 1, "start", 1, "pipes", once, "heed", "refused", 1,
                       "start", 2, "pipes", "cat /tmp/count", "heed", "start", 2, "read", 2, 1))
    assert lines == ["ready 0", "hello 0", "entry 1 wrr running", "end 0", "start 1 wrr",
                     "exited 1 exit 2", "start 1 wrr exit 2", "exited 1 exit 2",
                     "refused 1 step 4: File exists", "start 2 wrr", "read 2 x| END"]


def test_an_id_below_the_highest_is_no_new_one(links):
    lines = said(links("plain", "start", 5, "pipes", "true", "heed", "exited", 5,
                       "start", 4, "pipes", "true", "heed", "refused", 4))
    assert lines[-1] == "refused 4 step 4: File exists"


def test_what_was_refused_is_not_held_and_may_be_tried_again(links):
    lines = said(links("plain", "start", 1, "nowhere", "true", "heed", "refused", 1, "again", "table",
                       "start", 1, "pipes", "echo now", "heed", "start", 1, "read", 1, 1))
    assert lines[1:] == ["refused 1 step 1: No such file or directory", "hello 0", "end 0",
                         "start 1 wrr", "read 1 now| END"]


# ---- acknowledged ------------------------------------------------------------------------------

# Writes as long as somebody could read it.
TALKER = ("(trap '' PIPE; while echo more 2> /dev/null; do sleep 0.05; done; echo yes > /tmp/cut) & "
          "echo first")


def test_ack_forgets_the_command_and_closes_its_streams(links):
    lines = said(links("plain", "start", 1, "pipes", TALKER, "heed", "exited", 1, "close", 1, 1,
                       "sleep", 400, "open", 7, "r", "/tmp/cut", "heed", "opened", 7, "ack", 1,
                       *until(8, "[ -s /tmp/cut ]"), "again", "table"))
    assert lines[-6:] == ["opened 7 No such file or directory", "start 8 -rr", "exited 8 exit 0",
                          "hello 0", "entry 8 -rr exit 0", "end 0"]


def test_a_running_command_is_not_forgotten(links):
    lines = said(links("plain", "start", 1, "pipes", "read x; exit 6", "heed", "start", 1,
                       "ack", 1, "again", "table", "write", 1, "go\n", "heed", "exited", 1))
    assert lines[3] == "entry 1 wrr running" and lines[-1] == "exited 1 exit 6"


def test_streams_of_many_commands_do_not_pile_up(links):
    words = [word for number in range(1, harness.scaled(60, 10))
             for word in ("start", number, "pipes", "true", "heed", "exited", number, "ack", number)]
    lines = said(links("plain", *words, "start", 99, "pipes",
                       "grep FDSize /proc/1/status; ps -e -o stat= | grep -c Z", "heed", "start", 99,
                       "read", 99, 1))
    size, zombies = lines[-1].removeprefix("read 99 ").split("|")[:2]
    assert int(size.split()[1]) <= 128 and zombies == "0"


# ---- signals -----------------------------------------------------------------------------------

def test_signals_and_kills_reach_what_another_link_started(links):
    lines = said(links("plain", "start", 1, "pipes", "sleep 60", "start", 2, "pipes", "sleep 60",
                       "heed", "start", 2, "again", "signal", 1, 15, "heed", "exited", 1,
                       "kill", 2, "heed", "exited", 2, "kill", 2, "signal", 1, 9, "again", "table"))
    assert lines[-2:] == ["entry 2 wrr signal 9", "end 0"] and lines[-3] == "entry 1 wrr signal 15"


# ---- files -------------------------------------------------------------------------------------

FILES = ("umask 022; echo text > /tmp/file; mkfifo /tmp/fifo; ln -s /tmp/file /tmp/link; "
         "ln -s ../../../../tmp/file /tmp/up; mkdir /tmp/dir")


def opened(links, profile, flags, path, **more):
    lines = said(links(profile, "start", 1, "pipes", FILES, "heed", "exited", 1,
                       "open", 5, flags, path, "heed", "opened", 5, **more))
    return lines[-1].removeprefix("opened 5 ")


@pytest.mark.parametrize("bound", [False, True], ids=["no binds", "a writable bind"])
@pytest.mark.parametrize("path, what", [
    ("/tmp/file", "file 644 text r--"),
    ("tmp/file", "file 644 text r--"),
    ("/../../tmp/file", "file 644 text r--"),
    ("/tmp/link", "file 644 text r--"),
    ("/tmp/up", "file 644 text r--"),
    ("/tmp/fifo", "fifo 644  r--"),
    ("/tmp/dir", "other 755  r--"),
    ("/tmp/none", "No such file or directory"),
    ("/tmp/file/none", "Not a directory"),
    ("", "No such file or directory"),
    ("/dev/tty", "No such device or address"),
    # Init would see itself: its memory holds the box's key, its fds lead out of the box.
    ("/proc/self/mem", "Permission denied"),
    ("/proc/1/mem", "Permission denied"),
    ("/proc/self/status", "Permission denied"),
    ("/proc/self/exe", "Too many levels of symbolic links"),
    ("/proc/self/fd/3", "Too many levels of symbolic links"),
    ("/proc/self/fd/4", "Too many levels of symbolic links"),
    ("/proc/self/fd/4/cgroup.procs", "Too many levels of symbolic links"),
    ("/proc/self/root/tmp/file", "Too many levels of symbolic links"),
    ("/dev/fd/0", "Too many levels of symbolic links"),
])
def test_a_file_is_opened_below_the_root_and_never_waited_for(path, what, bound, links, workspace):
    """Where set-id files must not come to be, init opens by a key, and nothing is different."""
    assert opened(links, "plain", "r", path, bind=workspace if bound else None) == what


def test_a_fifo_without_a_reader_is_not_waited_for(links):
    assert opened(links, "plain", "write", "/tmp/fifo") == "No such device or address"


@pytest.mark.parametrize("path, what", [("/tmp/file", "file 644  ---"),
                                        ("/proc/1/mem", "Permission denied")])
def test_a_path_alone_is_no_way_round(path, what, links):
    got = opened(links, "plain", "path", path)
    assert got[:-3] == what[:-3] if what.startswith("file") else got == what


@pytest.mark.parametrize("profile", ["plain", "system"])
def test_no_set_id_file_is_made(profile, links, workspace):
    """Asked for mode 6750."""
    workspace.chmod(0o777)
    assert opened(links, profile, "create", "/bound/new", bind=workspace).startswith("file 750 ")
    assert (workspace / "new").stat().st_mode & 0o7777 == 0o750
    assert opened(links, profile, "create", "/tmp/new").startswith("file 750 ")


# ---- limits of one command ---------------------------------------------------------------------

ULIMITS = "ulimit -v; ulimit -f; ulimit -t; ulimit -n; ulimit -Hn"


def test_limits_are_the_commands_alone(links):
    lines = said(links("plain", "start", 1, "pipes", ULIMITS, "heed", "start", 1, "read", 1, 1,
                       "limits", 512 << 20, 1 << 20, 7, 20,
                       "start", 2, "pipes", ULIMITS, "heed", "start", 2, "read", 2, 1,
                       "limits", 0, 0, 0, 0,
                       "start", 3, "pipes", ULIMITS, "heed", "start", 3, "read", 3, 1))
    first, second, third = (line.split(" ", 2)[2] for line in lines if line.startswith("read "))
    assert second == f"{512 << 10}|2048|7|20|20| END" and first == third != second


def test_a_limit_never_raises_what_the_box_has(links):
    lines = said(links("plain", "start", 1, "pipes", "ulimit -Hn", "heed", "start", 1, "read", 1, 1,
                       "limits", 0, 0, 0, 1 << 30,
                       "start", 2, "pipes", "ulimit -Hn", "heed", "start", 2, "read", 2, 1))
    assert lines[-1].split(" ", 2)[2] == lines[2].split(" ", 2)[2]


TAKE = """python3 -c 'bytearray(1 << 20); print("small")'
python3 -c 'bytearray(300 << 20); print("large")' 2>/dev/null || echo refused"""


@pytest.mark.parametrize("limits, line, ends", [
    ((0, 4096, 0, 0), "trap '' XFSZ; head -c 9000 /dev/zero > /tmp/big; stat -c %s /tmp/big",
     "read 1 4096| END"),
    ((256 << 20, 0, 0, 0), TAKE, "read 1 small|refused| END"),
    ((0, 0, 0, 0), TAKE, "read 1 small|large| END"),
    ((0, 0, 1, 0), "(while :; do :; done); echo $?", "read 1 152| END"),
], ids=["file", "memory", "memory without", "cpu"])
def test_limits_hold(limits, line, ends, links):
    lines = said(links("plain", "limits", *limits, "start", 1, "pipes", line, "heed", "start", 1,
                       "heed", "exited", 1, "read", 1, 1))
    assert lines[-1] == ends

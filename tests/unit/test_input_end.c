/* The end of what is typed at a terminal: on a terminal of ours, with time that we say. */
#include "box/tool/input_end.h"
#include "check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>

#define SECOND_NS 1000000000ULL

static int master, slave;

static void set_lines(bool lines)
{
    struct termios modes;

    (void)tcgetattr(slave, &modes);
    modes.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    modes.c_lflag |= lines ? ICANON : 0;
    (void)tcsetattr(slave, TCSAFLUSH, &modes);
}

/* How many acts of this kind come in so many seconds; each key is read at once if `reads`. */
static unsigned count(struct input_end *end, unsigned seconds, bool reads, enum input_end_act kind)
{
    unsigned acts = 0;
    char key;

    for (uint64_t now = end->due_ns, until = now + seconds * SECOND_NS; now < until;
         now = end->due_ns) {
        acts += input_end_look(end, master, slave, now) == kind;
        while (reads && read(slave, &key, 1) > 0)
            ;
    }
    return acts;
}

static void test_a_program_that_reads_nothing_gets_one_end(void)
{
    struct input_end end = {0};
    char text[8];

    for (int lines = 0; lines < 2; lines++) {
        set_lines(lines == 1);
        end = (struct input_end){0};
        input_end_begin(&end, 0);
        CHECK(count(&end, 3600, false, INPUT_END_NOTHING) > 100, "no looks");
        CHECK(end.typed == 1, "%u ends are typed", end.typed);
        if (lines == 0)
            CHECK(read(slave, text, sizeof(text)) == 1 && text[0] == 4, "it is no ctrl-D");
        else
            CHECK(read(slave, text, sizeof(text)) == 0, "it is no end of file");
    }
}

static void test_an_end_that_is_lost_is_typed_again(void)
{
    struct input_end end = {0};

    set_lines(true);
    input_end_begin(&end, 0);
    (void)count(&end, 1, false, INPUT_END_NOTHING);
    set_lines(false); /* what waited to be read is gone */
    (void)count(&end, 1, false, INPUT_END_NOTHING);
    CHECK(end.typed == 2, "%u ends are typed", end.typed);
}

static void test_a_program_that_takes_ends_and_goes_on_is_hung_up_and_killed(void)
{
    struct input_end end = {0};

    set_lines(false);
    input_end_begin(&end, 0);
    CHECK(count(&end, 3, true, INPUT_END_NOTHING) > 8 && end.typed >= 9, "%u typed", end.typed);
    CHECK(count(&end, 6, true, INPUT_END_HANG_UP) == 1, "it is not hung up once");
    CHECK(count(&end, 6, true, INPUT_END_KILL) == 1, "it is not killed once");
    CHECK(count(&end, 60, true, INPUT_END_NOTHING) > 0, "nothing more comes");
}

static void test_it_begins_once_and_after_keys_anew(void)
{
    struct input_end end = {0};

    CHECK(input_end_look(&end, master, slave, SECOND_NS) == INPUT_END_NOTHING && end.typed == 0,
          "there was no end");
    set_lines(false);
    input_end_begin(&end, 0);
    (void)count(&end, 5, true, INPUT_END_NOTHING);
    CHECK(end.typed > 5, "%u typed", end.typed);
    input_end_begin(&end, 5 * SECOND_NS);
    CHECK(end.typed > 5, "it began twice");
    end.has_come = false;
    input_end_begin(&end, 9 * SECOND_NS);
    CHECK(end.typed == 0 && end.due_ns == 9 * SECOND_NS, "it did not begin anew");
}

int main(void)
{
    master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    (void)grantpt(master);
    (void)unlockpt(master);
    slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_NONBLOCK);
    CHECK(master >= 0 && slave >= 0, "no terminal");
    test_a_program_that_reads_nothing_gets_one_end();
    test_an_end_that_is_lost_is_typed_again();
    test_a_program_that_takes_ends_and_goes_on_is_hung_up_and_killed();
    test_it_begins_once_and_after_keys_anew();
    return check_finish();
}

/* The hand-over: see hand.h. A value is a letter and what follows it:
 *     n and 8 bytes | f and 4 bytes, an fd + 1 | t, 4 bytes and as many of text | m and 4 letters
 * in the machine's own order: the next program runs on the same one. */
#include "base/hand.h"

#include "base/fd.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAGIC "cove hand-over\n"
#define SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)

enum kind { NUMBER = 'n', FD = 'f', TEXT = 't', MARK = 'm' };

bool hand_is_sound(const struct hand *hand)
{
    return hand->wrong == NULL;
}

void hand_fault(struct hand *hand, const char *what)
{
    if (hand->wrong != NULL)
        return;
    hand->wrong = what;
    hand->wrong_at = hand->at;
}

/* ---- bytes ---- */

static void put(struct hand *hand, const void *bytes, size_t size)
{
    if (!hand_is_sound(hand))
        return;
    if (size > HAND_SIZE_MAX - hand->size) {
        hand_fault(hand, "too much");
        return;
    }
    if (hand->size + size > hand->room) {
        size_t room = hand->room == 0 ? 65536 : 2 * hand->room;
        unsigned char *data = realloc(hand->data, room);

        if (data == NULL) {
            hand_fault(hand, "no memory");
            return;
        }
        hand->data = data;
        hand->room = room;
        put(hand, bytes, size);
        return;
    }
    memcpy(hand->data + hand->size, bytes, size);
    hand->size += size;
}

static bool get(struct hand *hand, void *bytes, size_t size)
{
    if (hand_is_sound(hand) && size > hand->size - hand->at)
        hand_fault(hand, "cut off");
    if (!hand_is_sound(hand))
        return false;
    memcpy(bytes, hand->data + hand->at, size);
    hand->at += size;
    return true;
}

/* The letter of a value; false where another one is there. */
static bool kind(struct hand *hand, enum kind kind)
{
    unsigned char letter = (unsigned char)kind, found;

    if (!hand->is_reading) {
        put(hand, &letter, 1);
        return hand_is_sound(hand);
    }
    if (!get(hand, &found, 1))
        return false;
    if (found != letter)
        hand_fault(hand, "a value of another kind");
    return found == letter;
}

/* ---- beginning and end ---- */

static void begin(struct hand *hand)
{
    hand->seen = calloc(1, HAND_FDS_MAX / 8);
    if (hand->seen == NULL)
        hand_fault(hand, "no memory");
}

void hand_begin(struct hand *hand, uint32_t format)
{
    *hand = (struct hand){0};
    begin(hand);
    put(hand, MAGIC, sizeof(MAGIC));
    put(hand, &format, sizeof(format));
}

void hand_read(struct hand *hand, const void *data, size_t size, uint32_t format)
{
    char magic[sizeof(MAGIC)];
    uint32_t found;

    *hand = (struct hand){.is_reading = true, .size = size};
    hand->data = (unsigned char *)(uintptr_t)data;
    begin(hand);
    if (get(hand, magic, sizeof(magic)) && memcmp(magic, MAGIC, sizeof(magic)) != 0)
        hand_fault(hand, "no hand-over");
    if (get(hand, &found, sizeof(found)) && found != format)
        hand_fault(hand, "another format");
}

int hand_end(struct hand *hand, struct error *err)
{
    hand_mark(hand, "end.");
    if (hand->is_reading && hand_is_sound(hand) && hand->at != hand->size)
        hand_fault(hand, "more than there should be");
    free(hand->seen);
    hand->seen = NULL;
    if (hand_is_sound(hand))
        return 0;
    return error_set(err, "bad_handover", 0, "what is handed over is not as it should be (%s, %zu)",
                     hand->wrong, hand->wrong_at);
}

void hand_free(struct hand *hand)
{
    free(hand->seen);
    if (!hand->is_reading)
        free(hand->data);
    *hand = (struct hand){0};
}

int hand_seal(const struct hand *hand, struct error *err)
{
    _cleanup_close_ int fd = memfd_create("cove-hand-over", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert(!hand->is_reading);
    if (fd < 0 || fd_write_full(fd, hand->data, hand->size) < 0 ||
        fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        return error_set(err, "capacity", errno, "cannot write down what is to be handed over");
    return fd_take(&fd);
}

/* The fds are found again in the bytes, so that no list of them is kept. */
void hand_keep(const struct hand *hand, int sealed, bool is_kept)
{
    size_t at = sizeof(MAGIC) + sizeof(uint32_t);
    int flags = is_kept ? 0 : FD_CLOEXEC;
    uint32_t word;

    (void)fcntl(sealed, F_SETFD, flags);
    while (at < hand->size) {
        enum kind letter = hand->data[at++];

        if (letter == NUMBER) {
            at += sizeof(uint64_t);
            continue;
        }
        memcpy(&word, hand->data + at, sizeof(word));
        at += sizeof(word);
        if (letter == TEXT)
            at += word;
        if (letter == FD && word > 0)
            (void)fcntl((int)word - 1, F_SETFD, flags);
    }
}

int hand_open(int fd, const void **data, size_t *size, struct error *err)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;
    void *at;

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0 || st.st_size <= 0 ||
        st.st_size > (off_t)HAND_SIZE_MAX)
        return error_set(err, "bad_handover", 0, "fd %d is no hand-over", fd);
    at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return error_set(err, "bad_handover", errno, "cannot read what is handed over");
    *data = at;
    *size = (size_t)st.st_size;
    return 0;
}

/* ---- values ---- */

void hand_mark(struct hand *hand, const char mark[4])
{
    char found[4];

    if (!kind(hand, MARK))
        return;
    if (!hand->is_reading)
        put(hand, mark, sizeof(found));
    else if (get(hand, found, sizeof(found)) && memcmp(found, mark, sizeof(found)) != 0)
        hand_fault(hand, "another part than should come");
}

void hand_u64(struct hand *hand, uint64_t *value, uint64_t most)
{
    bool is_there = kind(hand, NUMBER);

    /* Here, too: the reader would refuse all of it. */
    if (!hand->is_reading && *value > most)
        hand_fault(hand, "a number that is too large");
    if (!hand->is_reading) {
        put(hand, value, sizeof(*value));
        return;
    }
    if (is_there && get(hand, value, sizeof(*value)) && *value > most)
        hand_fault(hand, "a number that is too large");
    if (!hand_is_sound(hand))
        *value = 0;
}

void hand_u32(struct hand *hand, uint32_t *value, uint32_t most)
{
    uint64_t number = *value;

    hand_u64(hand, &number, most);
    *value = (uint32_t)number;
}

void hand_bool(struct hand *hand, bool *value)
{
    uint64_t number = *value;

    hand_u64(hand, &number, 1);
    *value = number != 0;
}

void hand_pid(struct hand *hand, int *pid)
{
    uint64_t number = (uint64_t)*pid;

    hand_u64(hand, &number, 4194304); /* the kernel's PID_MAX_LIMIT */
    *pid = (int)number;
}

/* The length of a text that comes; its bytes are at `at`. */
static size_t text_length(struct hand *hand, size_t size)
{
    uint32_t length = 0;

    if (!kind(hand, TEXT) || !get(hand, &length, sizeof(length)))
        return 0;
    if (length >= size || length > hand->size - hand->at ||
        memchr(hand->data + hand->at, '\0', length) != NULL)
        hand_fault(hand, "a text that is none");
    return hand_is_sound(hand) ? length : 0;
}

static void text_put(struct hand *hand, const char *text, size_t size)
{
    uint32_t length = (uint32_t)strlen(text);

    if (length >= size)
        hand_fault(hand, "a text that is too long");
    if (!kind(hand, TEXT))
        return;
    put(hand, &length, sizeof(length));
    put(hand, text, length);
}

void hand_text(struct hand *hand, char *text, size_t size)
{
    size_t length;

    if (!hand->is_reading) {
        text_put(hand, text, size);
        return;
    }
    length = text_length(hand, size);
    text[0] = '\0';
    if (get(hand, text, length))
        text[length] = '\0';
}

void hand_string(struct hand *hand, char **text, size_t size)
{
    bool is_there = *text != NULL;
    size_t length;

    hand_bool(hand, &is_there);
    if (!hand->is_reading) {
        if (is_there)
            text_put(hand, *text, size);
        return;
    }
    *text = NULL;
    if (!is_there)
        return;
    length = text_length(hand, size);
    if (!hand_is_sound(hand))
        return;
    *text = calloc(1, length + 1);
    if (*text == NULL)
        hand_fault(hand, "no memory");
    else
        (void)get(hand, *text, length);
}

static bool is_seen(struct hand *hand, uint32_t fd)
{
    unsigned char bit = (unsigned char)(1U << fd % 8);
    bool was = (hand->seen[fd / 8] & bit) != 0;

    hand->seen[fd / 8] |= bit;
    return was;
}

void hand_fd(struct hand *hand, int *fd)
{
    uint32_t number = (uint32_t)(*fd + 1);

    if (hand->is_reading)
        *fd = -1;
    if (!kind(hand, FD))
        return;
    if (!hand->is_reading)
        put(hand, &number, sizeof(number));
    else if (!get(hand, &number, sizeof(number)))
        return;
    if (number == 0)
        return;
    if (number <= 3 || number > HAND_FDS_MAX || is_seen(hand, number - 1)) {
        hand_fault(hand, "an fd that is none, or named twice");
        return;
    }
    if (!hand->is_reading || hand->is_trial)
        return;
    if (fcntl((int)number - 1, F_SETFD, FD_CLOEXEC) < 0)
        hand_fault(hand, "an fd that is not open");
    else
        *fd = (int)number - 1;
}

/* Upgrade in place (SIGHUP, or a request at keeper.sock): the program at our own path takes over this process, with all boxes.
 *
 *   SIGHUP -> what lives on is written down, and that program says that it can read it (--can-take)
 *          -> the engine ends in good order -> it is written down again -> execve() -> the next engine
 *
 * The new program reads the configuration, too, so this is what a reload is. Whatever goes wrong before
 * execve() is logged, and all goes on as before. Afterwards there is nobody to go back to: a program that
 * cannot take all of it ends, and all boxes with it. */
#pragma once

#include "base/err.h"
#include "keeper/loop.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct keeper;
struct options;

enum upgrade_stage { UPGRADE_NONE, UPGRADE_ASKING, UPGRADE_ENDING };

struct upgrade {
    enum upgrade_stage stage;
    bool is_asked_again;
    pid_t pid; /* of who is asked whether it can */
    int pidfd;
    struct source answered;
    struct stat program; /* the file that is asked */
    uint64_t deadline_ns;
    int said; /* what the program that is asked says: for our log, and for `outcome` */
    char line[ERROR_TEXT_MAX]; /* the last one of it */
    /* Why the last one was refused; a code that is empty: it was not. */
    struct error outcome;
};

/* SIGHUP. */
void upgrade_begin(struct keeper *keeper);

/* The outcome of the last one, for those who asked for it: no error where it is in force and its engine runs. */
#define UPGRADE_UNDER_WAY "under_way"
void upgrade_outcome(const struct keeper *keeper, struct error *err);

/* Whether the engine ends for that: it is no end of ours, and the next one is not to be started yet. */
bool upgrade_is_ending(const struct keeper *keeper);

/* Does what is due, and that may be to become the next program; when to be called again, 0 for never. */
uint64_t upgrade_tick(struct keeper *keeper, uint64_t now_ns);

/* Whoever is asked is not waited for. */
void upgrade_close(struct keeper *keeper);

/* ---- the new program's side ---- */

/* The fd that the old one has left, or -1: this is a start. */
int upgrade_find(void);

/* Takes all of it over. What is handed over and not sound is an error: then nothing can go on. */
int upgrade_resume(struct keeper *keeper, int handover, struct error *err);

/* Whether this program, with the configuration as it is now, could take over what options.can_take says. */
int upgrade_can_take(struct keeper *keeper, struct error *err);

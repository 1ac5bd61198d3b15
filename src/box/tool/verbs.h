/* What cove-tool can do, a function for each verb: see tool.h for what is said to whom.
 *
 * One file per group of verbs; its functions stand here and their names in the table of main.c. */
#pragma once

/* argv[0] is the verb. Returns the exit status of the program. */
int term_main(int argc, char **argv);

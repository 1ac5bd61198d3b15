/* Any bytes as a glob and a path, of which the first line is the glob: it ends, and what is none matches
 * nothing. */
#include "base/glob.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *path;
    const char *flaw;

    if (text == NULL)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    path = strchr(text, '\n');
    if (path != NULL)
        *path++ = '\0';
    flaw = glob_flaw(text);
    if (flaw != NULL && *flaw == '\0')
        abort();
    if (glob_match(text, path != NULL ? path : "") && (flaw != NULL && *text != '!'))
        abort();
    free(text);
    return 0;
}

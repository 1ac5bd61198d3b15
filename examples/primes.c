/* A useful program for the tour: counts primes. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define LIMIT 2000000UL

int main(void)
{
    static bool composite[LIMIT];
    int count = 0;

    for (size_t i = 2; i < LIMIT; i++) {
        if (composite[i])
            continue;
        count++;
        for (size_t j = i; j <= (LIMIT - 1) / i; j++)
            composite[i * j] = true;
    }
    printf("%d primes below %lu\n", count, LIMIT);
    return 0;
}

/* A useful program for the tour: counts primes. */
#include <stdbool.h>
#include <stdio.h>

#define LIMIT 2000000

int main(void)
{
    static bool composite[LIMIT];
    int count = 0;

    for (int i = 2; i < LIMIT; i++) {
        if (composite[i])
            continue;
        count++;
        for (int j = i; j <= (LIMIT - 1) / i; j++)
            composite[i * j] = true;
    }
    printf("%d primes below %d\n", count, LIMIT);
    return 0;
}

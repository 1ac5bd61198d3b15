/* Histograms: see histogram.h. The bounds go from a quarter of a millisecond to a minute: what is cheap
 * here takes less than a millisecond, what takes longer than a minute is stuck. */
#include "base/histogram.h"

static const struct {
    uint64_t ns;
    const char *seconds;
} bounds[HISTOGRAM_BOUNDS] = {
    {250000, "0.00025"},   {500000, "0.0005"},  {1000000, "0.001"},    {2500000, "0.0025"},
    {5000000, "0.005"},    {10000000, "0.01"},  {25000000, "0.025"},   {50000000, "0.05"},
    {100000000, "0.1"},    {250000000, "0.25"}, {500000000, "0.5"},    {1000000000, "1.0"},
    {2500000000, "2.5"},   {5000000000, "5.0"}, {10000000000, "10.0"}, {30000000000, "30.0"},
    {60000000000, "60.0"},
};

void histogram_add(struct histogram *histogram, uint64_t ns)
{
    size_t index = 0;

    while (index < HISTOGRAM_BOUNDS && ns > bounds[index].ns)
        index++;
    histogram->counts[index]++;
    histogram->count++;
    histogram->sum_ns += ns;
}

const char *histogram_bound(size_t index)
{
    return bounds[index].seconds;
}

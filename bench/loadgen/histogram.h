/* Latencies in log-linear buckets: 128 to each power of two, so that a percentile is off by less than 0.8 %. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H
#include <stdint.h>
#include <string.h>

#define SUB_BITS 7
#define SUB_COUNT (1u << SUB_BITS)
#define BUCKETS ((64 - SUB_BITS) * SUB_COUNT)

struct histogram {
    uint64_t counts[BUCKETS];
    uint64_t total, sum_ns, max_ns;
};

static inline unsigned bucket_of(uint64_t ns) {
    if (ns < SUB_COUNT) return (unsigned)ns;
    unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - SUB_BITS;
    return shift * SUB_COUNT + (unsigned)(ns >> shift);
}

static inline uint64_t bucket_middle(unsigned bucket) {
    if (bucket < 2 * SUB_COUNT) return bucket;
    unsigned shift = bucket / SUB_COUNT - 1;
    uint64_t low = (uint64_t)(bucket - shift * SUB_COUNT) << shift;
    return low + (1ull << shift) / 2;
}

static inline void histogram_add(struct histogram *h, uint64_t ns) {
    h->counts[bucket_of(ns)]++;
    h->total++;
    h->sum_ns += ns;
    if (ns > h->max_ns) h->max_ns = ns;
}

static inline void histogram_reset(struct histogram *h) { memset(h, 0, sizeof *h); }

static inline double histogram_percentile_us(const struct histogram *h, double percent) {
    uint64_t wanted = (uint64_t)((double)h->total * percent / 100.0 + 0.999999), seen = 0;
    if (wanted == 0) wanted = 1;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        seen += h->counts[bucket];
        if (seen >= wanted && seen) {
            uint64_t ns = bucket_middle(bucket);
            return (double)(ns < h->max_ns ? ns : h->max_ns) / 1000.0;
        }
    }
    return 0.0;
}
#endif

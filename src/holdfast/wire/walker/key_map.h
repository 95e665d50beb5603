/* A map from keys to offsets in memory of a fixed size, 24 bytes an entry.
 *
 * A key is known by its SipHash-2-4 of 128 bits under a secret, so that nobody can make two that
 * are taken for one, nor many that fall together. Nothing is ever taken out.
 */
#ifndef HOLDFAST_KEY_MAP_H
#define HOLDFAST_KEY_MAP_H

#include <stdint.h>
#include <string.h>

struct hash {
    uint64_t low, high;
};

struct entry {
    struct hash hash;
    int64_t following; /* the offset's next one; 0: the entry is free */
};

struct key_map {
    uint64_t secret[2];
    struct entry *entries;
    int64_t slots, limit, count;
};

static inline uint64_t
read_word(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline uint64_t
rotated(uint64_t word, int bits)
{
    return word << bits | word >> (64 - bits);
}

static inline void
mix(uint64_t v[4], int rounds)
{
    while (rounds--) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotated(v[1], 13) ^ v[0];
        v[3] = rotated(v[3], 16) ^ v[2];
        v[0] = rotated(v[0], 32) + v[3];
        v[2] += v[1];
        v[3] = rotated(v[3], 21) ^ v[0];
        v[1] = rotated(v[1], 17) ^ v[2];
        v[2] = rotated(v[2], 32);
    }
}

static inline struct hash
hash_of(const uint64_t secret[2], const uint8_t *bytes, int64_t size)
{
    uint64_t v[4] = {
        secret[0] ^ 0x736f6d6570736575u, secret[1] ^ 0x646f72616e646f6du ^ 0xee,
        secret[0] ^ 0x6c7967656e657261u, secret[1] ^ 0x7465646279746573u,
    };
    const int64_t whole = size & ~(int64_t)7;
    for (int64_t at = 0; at < whole; at += 8) {
        const uint64_t word = read_word(bytes + at);
        v[3] ^= word;
        mix(v, 2);
        v[0] ^= word;
    }
    uint64_t last = (uint64_t)size << 56;
    for (int64_t at = whole; at < size; at++)
        last |= (uint64_t)bytes[at] << (8 * (at - whole));
    v[3] ^= last;
    mix(v, 2);
    v[0] ^= last;
    struct hash hash;
    v[2] ^= 0xee;
    mix(v, 4);
    hash.low = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    mix(v, 4);
    hash.high = v[0] ^ v[1] ^ v[2] ^ v[3];
    return hash;
}

/* Return a key's entry, or the free one that it would have: there always is one. */
static inline struct entry *
find_entry(const struct key_map *map, struct hash hash)
{
    uint64_t slot = hash.low % (uint64_t)map->slots;
    for (;;) {
        struct entry *entry = map->entries + slot;
        if (!entry->following
            || (entry->hash.low == hash.low && entry->hash.high == hash.high))
            return entry;
        if (++slot == (uint64_t)map->slots)
            slot = 0;
    }
}

/* Enter where a key is last. 0: it is a new one, and the map is full. */
static inline int
put_key(struct key_map *map, const uint8_t *key, int64_t size, int64_t offset)
{
    const struct hash hash = hash_of(map->secret, key, size);
    struct entry *entry = find_entry(map, hash);
    if (!entry->following) {
        if (map->count >= map->limit)
            return 0;
        map->count++;
        entry->hash = hash;
    }
    entry->following = offset + 1;
    return 1;
}

/* Return the offset that was entered last for a key, -1 for none. */
static inline int64_t
get_key(const struct key_map *map, const uint8_t *key, int64_t size)
{
    return find_entry(map, hash_of(map->secret, key, size))->following - 1;
}

#endif

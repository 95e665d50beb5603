/* Numbers as records have them, for the walkers of this folder. Include it behind `enum problem`,
 * which has to know SOUND, CUT_FIELD, LONG_NUMBER and LONG_BYTES. No byte is read before it is known
 * to lie before the end.
 */
#ifndef HOLDFAST_VARINT_H
#define HOLDFAST_VARINT_H

/* Read a zigzag varint whose last byte has this shift (28 or 63), of which `last_max` may be set. */
static inline enum problem
read_number(const uint8_t **at, const uint8_t *end, int last_shift, uint8_t last_max,
            enum problem cut, int64_t *number)
{
    const uint8_t *p = *at;
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        if (p >= end)
            return cut;
        uint8_t byte = *p++;
        if (shift == last_shift && byte > last_max)
            return LONG_NUMBER;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            break;
    }
    *at = p;
    *number = (int64_t)((value >> 1) ^ (~(value & 1) + 1));
    return SOUND;
}

static inline enum problem
read_int(const uint8_t **at, const uint8_t *end, int64_t *number)
{
    return read_number(at, end, 28, 0x0f, CUT_FIELD, number);
}

/* Skip a length and as many bytes; a negative length is null. */
static inline enum problem
skip_bytes(const uint8_t **at, const uint8_t *end, int64_t *size)
{
    enum problem problem = read_int(at, end, size);
    if (problem)
        return problem;
    if (*size > 0) {
        if (*size > end - *at)
            return LONG_BYTES;
        *at += *size;
    }
    return SOUND;
}

#endif

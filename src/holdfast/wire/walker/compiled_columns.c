/* Records into columns, compiled: python_columns.py is the reference, and says what each part is
 * for.
 *
 * Both return the same numbers and write the same columns for the same bytes;
 * tests/wire/test_record_columns.py holds them against each other. No byte is read before it is
 * known to lie in the body, none written before it is known to lie in its room. The interpreter is
 * let go meanwhile, so another thread may change the body's bytes: a number is read once, and only
 * what was read is acted upon.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum problem {
    SOUND, CUT_LENGTH, WRONG_LENGTH, CUT_FIELD, LONG_NUMBER, LONG_BYTES, HEADER_COUNT, HEADER_KEY,
    LEFT_OVER, UNORDERED, TIMESTAMP, COUNT, NO_BATCH
};

#include "varint.h"

/* Why a go ended: see python_columns.py. */
enum stop {
    WHOLE, BEHIND, NO_ROWS, NO_KEYS, NO_VALUES, NO_HEADERS, NO_HEADER_KEYS, NO_HEADER_VALUES
};

#define OFFSET_MAX ((int64_t)1 << 62)
#define MICROSECONDS 1000
#define SMALL (4 * 1024) /* bytes that are not worth letting the interpreter go for */
#define ROOMS 8
#define ROOMS_WITH_HEADERS 15
#define FILLED 10

/* What is in the rooms; the order is that of `record_columns.Filled`. */
struct filled {
    int64_t rows, key_bytes, key_nulls, value_bytes, value_nulls, list_nulls, headers,
        header_key_bytes, header_value_bytes, header_value_nulls;
};

/* One column of bytes: where each value ends, which are no null, and the bytes. */
struct bytes_room {
    uint8_t *ends, *valid, *bytes;
    int64_t bytes_max;
};

struct rooms {
    uint8_t *offsets, *timestamps;
    struct bytes_room keys, values;
    int64_t rows_max;
    int with_headers;
    uint8_t *list_ends, *list_valid;
    struct bytes_room header_keys, header_values;
    int64_t headers_max;
};

/* What is known of a batch, and which of its offsets are wanted. */
struct numbers {
    int64_t count, last_delta, base_offset, base_timestamp, is_stamped, stamp, start, end;
};

struct field {
    const uint8_t *bytes;
    int64_t size; /* negative: null */
};

struct record {
    int64_t timestamp_delta, offset_delta, headers;
    struct field key, value;
    const uint8_t *behind_value; /* where its headers begin */
    const uint8_t *end;
};

/* --- reading --- */

/* Read a length and as many bytes; a negative length is null. */
static inline enum problem
read_field(const uint8_t **at, const uint8_t *end, struct field *field)
{
    enum problem problem = read_int(at, end, &field->size);
    if (problem)
        return problem;
    field->bytes = *at;
    if (field->size > 0) {
        if (field->size > end - *at)
            return LONG_BYTES;
        *at += field->size;
    }
    return SOUND;
}

/* Read one record up to its headers. */
static inline enum problem
read_record(const uint8_t *p, const uint8_t *body_end, struct record *record)
{
    int64_t size;
    enum problem problem = read_number(&p, body_end, 28, 0x0f, CUT_LENGTH, &size);
    if (problem)
        return problem;
    if (size < 0 || size > body_end - p)
        return WRONG_LENGTH;
    const uint8_t *end = record->end = p + size;
    if (p == end)
        return CUT_FIELD;
    p++; /* attributes, which nobody uses */
    if ((problem = read_number(&p, end, 63, 0x01, CUT_FIELD, &record->timestamp_delta)))
        return problem;
    if ((problem = read_int(&p, end, &record->offset_delta)))
        return problem;
    if ((problem = read_field(&p, end, &record->key)))
        return problem;
    if ((problem = read_field(&p, end, &record->value)))
        return problem;
    if ((problem = read_int(&p, end, &record->headers)))
        return problem;
    if (record->headers < 0 || record->headers > end - p)
        return HEADER_COUNT;
    record->behind_value = p;
    return SOUND;
}

static inline enum problem
read_header(const uint8_t **at, const uint8_t *end, struct field *key, struct field *value)
{
    enum problem problem = read_int(at, end, &key->size);
    if (problem)
        return problem;
    if (key->size < 0)
        return HEADER_KEY;
    if (key->size > end - *at)
        return LONG_BYTES;
    key->bytes = *at;
    *at += key->size;
    return read_field(at, end, value);
}

/* --- writing --- */

static inline void
write_long(uint8_t *room, int64_t at, int64_t number)
{
    memcpy(room + at * (int64_t)sizeof number, &number, sizeof number);
}

static inline void
write_end(uint8_t *room, int64_t at, int64_t end)
{
    const int32_t number = (int32_t)end; /* rooms are bounded: `count_rooms` */
    memcpy(room + at * (int64_t)sizeof number, &number, sizeof number);
}

/* Write one bit; the first of a byte clears what the room held before. */
static inline void
write_bit(uint8_t *room, int64_t at, int is_set)
{
    const uint8_t before = at & 7 ? room[at >> 3] : 0;
    const uint8_t mask = (uint8_t)(1 << (at & 7));
    room[at >> 3] = is_set ? before | mask : before & (uint8_t)~mask;
}

/* Write a field as value number `at`, behind `filled` bytes; return how many there are then. */
static inline int64_t
write_field(const struct bytes_room *room, int64_t at, int64_t filled, const struct field *field)
{
    if (field->size > 0) {
        memcpy(room->bytes + filled, field->bytes, (size_t)field->size);
        filled += field->size;
    }
    write_end(room->ends, at + 1, filled);
    if (room->valid)
        write_bit(room->valid, at, field->size >= 0);
    return filled;
}

/* Read a record's headers, and write them if that is wanted and there is room for them.
 *
 * `written` is moved only on the way: who calls takes it over when the whole record is sound. */
static enum problem
take_headers(const struct record *record, const struct rooms *rooms, int is_wanted,
             struct filled *written, enum stop *stop)
{
    const uint8_t *p = record->behind_value;
    for (int64_t left = record->headers; left > 0; left--) {
        struct field key, value;
        const enum problem problem = read_header(&p, record->end, &key, &value);
        if (problem)
            return problem;
        if (!is_wanted || *stop)
            continue;
        if (written->headers == rooms->headers_max)
            *stop = NO_HEADERS;
        else if (key.size > rooms->header_keys.bytes_max - written->header_key_bytes)
            *stop = NO_HEADER_KEYS;
        else if (value.size > rooms->header_values.bytes_max - written->header_value_bytes)
            *stop = NO_HEADER_VALUES;
        else {
            written->header_key_bytes = write_field(
                &rooms->header_keys, written->headers, written->header_key_bytes, &key);
            written->header_value_bytes = write_field(
                &rooms->header_values, written->headers, written->header_value_bytes, &value);
            written->header_value_nulls += value.size < 0;
            written->headers++;
        }
    }
    return p == record->end ? SOUND : LEFT_OVER;
}

/* Why there is no room for a record beside its headers; WHOLE: there is. */
static inline enum stop
lacks_room(const struct rooms *rooms, const struct filled *filled, const struct record *record)
{
    if (filled->rows == rooms->rows_max)
        return NO_ROWS;
    if (record->key.size > rooms->keys.bytes_max - filled->key_bytes)
        return NO_KEYS;
    if (record->value.size > rooms->values.bytes_max - filled->value_bytes)
        return NO_VALUES;
    return WHOLE;
}

static inline void
add_row(const struct rooms *rooms, struct filled *filled, const struct record *record,
        int64_t offset, int64_t timestamp)
{
    const int64_t row = filled->rows++;
    write_long(rooms->offsets, row, offset);
    write_long(rooms->timestamps, row, timestamp);
    filled->key_bytes = write_field(&rooms->keys, row, filled->key_bytes, &record->key);
    filled->value_bytes = write_field(&rooms->values, row, filled->value_bytes, &record->value);
    filled->key_nulls += record->key.size < 0;
    filled->value_nulls += record->value.size < 0;
    if (rooms->with_headers) {
        write_end(rooms->list_ends, row + 1, filled->headers);
        write_bit(rooms->list_valid, row, record->headers > 0);
        filled->list_nulls += !record->headers;
    }
}

/* --- the walk --- */

struct walk {
    const uint8_t *at, *end;
    int64_t index, previous;
    enum problem problem;
    enum stop stop;
};

/* 0: the walk ends before this record; `walk` says why. */
static inline int
take_record(struct walk *walk, const struct numbers *numbers, const struct rooms *rooms,
            struct filled *filled)
{
    struct record record;
    if ((walk->problem = read_record(walk->at, walk->end, &record)))
        return 0;
    /* Unsigned, so that a hostile delta wraps; it is refused below. */
    const int64_t offset =
        (int64_t)((uint64_t)numbers->base_offset + (uint64_t)record.offset_delta);
    const int is_wanted = offset >= numbers->start && offset < numbers->end;
    enum stop stop = is_wanted ? lacks_room(rooms, filled, &record) : WHOLE;
    struct filled written = *filled;
    if ((walk->problem =
             take_headers(&record, rooms, is_wanted && rooms->with_headers, &written, &stop)))
        return 0;
    if (record.offset_delta <= walk->previous || record.offset_delta > numbers->last_delta) {
        walk->problem = UNORDERED;
        return 0;
    }
    if (offset >= numbers->end) {
        walk->stop = BEHIND;
        return 0;
    }
    if (is_wanted) {
        const int64_t stamp =
            numbers->is_stamped
                ? numbers->stamp
                : (int64_t)((uint64_t)numbers->base_timestamp + (uint64_t)record.timestamp_delta);
        int64_t timestamp;
        if (__builtin_mul_overflow(stamp, (int64_t)MICROSECONDS, &timestamp)) {
            walk->problem = TIMESTAMP;
            return 0;
        }
        if ((walk->stop = stop))
            return 0;
        *filled = written;
        add_row(rooms, filled, &record, offset, timestamp);
    }
    walk->at = record.end;
    walk->previous = record.offset_delta;
    walk->index++;
    return 1;
}

static void
take_records(struct walk *walk, const struct numbers *numbers, const struct rooms *rooms,
             struct filled *filled)
{
    while (walk->index < numbers->count && walk->at < walk->end)
        if (!take_record(walk, numbers, rooms, filled))
            return;
    if (walk->index != numbers->count || walk->at != walk->end)
        walk->problem = COUNT;
}

/* --- batches that lie one behind the other --- */

#define BATCH_HEADER 61
#define LENGTH_END 12 /* bytes in front of what a batch's length counts */
#define LEAST_LENGTH (BATCH_HEADER - LENGTH_END)

static inline int64_t
read_big_endian(const uint8_t *bytes, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++)
        value = value << 8 | bytes[i];
    return size == 4 ? (int32_t)value : (int64_t)value;
}

/* How far a run of batches was taken. */
struct run {
    const uint8_t *at, *end; /* where the next batch begins, and where the last one ends */
    struct walk walk;        /* in that batch, if it was begun */
    int is_begun;
};

/* Begin with the batch at which the run stands. 0: there is no whole one. */
static int
open_batch(struct run *run, struct numbers *numbers)
{
    const uint8_t *header = run->at;
    if (run->end - header < BATCH_HEADER)
        return 0;
    const int64_t length = read_big_endian(header + 8, 4);
    if (length < LEAST_LENGTH || length > run->end - header - LENGTH_END)
        return 0;
    numbers->base_offset = read_big_endian(header, 8);
    numbers->last_delta = read_big_endian(header + 23, 4);
    numbers->base_timestamp = read_big_endian(header + 27, 8);
    numbers->stamp = read_big_endian(header + 35, 8);
    numbers->count = read_big_endian(header + 57, 4);
    if (numbers->base_offset < 0 || numbers->base_offset > OFFSET_MAX || numbers->last_delta < 0)
        return 0;
    run->walk.end = header + LENGTH_END + length;
    if (!run->is_begun) {
        run->walk.at = header + BATCH_HEADER;
        run->walk.index = 0;
        run->walk.previous = -1;
        run->is_begun = 1;
    }
    return run->walk.at <= run->walk.end;
}

static void
take_batches(struct run *run, struct numbers *numbers, const struct rooms *rooms,
             struct filled *filled)
{
    while (run->at < run->end) {
        if (!open_batch(run, numbers)) {
            run->walk.problem = NO_BATCH;
            return;
        }
        take_records(&run->walk, numbers, rooms, filled);
        if (run->walk.problem || run->walk.stop)
            return;
        /* Whatever comes next, no offset comes twice. */
        const int64_t behind = numbers->base_offset + numbers->last_delta + 1;
        if (behind > numbers->start)
            numbers->start = behind;
        run->at = run->walk.end;
        run->is_begun = 0;
    }
}

/* --- the calls --- */

/* Take so many integers out of a tuple. -1: it is none such, and an exception is set. */
static int
take_tuple(PyObject *tuple, int count, int64_t *integers)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != count) {
        PyErr_Format(PyExc_TypeError, "a tuple of %d integers is wanted", count);
        return -1;
    }
    for (int i = 0; i < count; i++) {
        integers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
        if (integers[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

static void
lower(int64_t *bound, int64_t to)
{
    if (to < *bound)
        *bound = to;
}

static int64_t
ends_in(const Py_buffer *view)
{
    return view->len / (int64_t)sizeof(int32_t) - 1;
}

static struct bytes_room
bytes_room_of(const Py_buffer *ends, const Py_buffer *valid, const Py_buffer *bytes)
{
    const struct bytes_room room = {ends->buf, valid ? valid->buf : NULL, bytes->buf, bytes->len};
    return room;
}

/* Find out what the rooms hold at most. -1: they are of no use, and an exception is set. */
static int
count_rooms(const Py_buffer *views, int count, struct rooms *rooms)
{
    memset(rooms, 0, sizeof *rooms);
    rooms->offsets = views[0].buf;
    rooms->timestamps = views[1].buf;
    rooms->keys = bytes_room_of(views + 2, views + 3, views + 4);
    rooms->values = bytes_room_of(views + 5, views + 6, views + 7);
    rooms->rows_max = views[0].len / (int64_t)sizeof(int64_t);
    lower(&rooms->rows_max, views[1].len / (int64_t)sizeof(int64_t));
    lower(&rooms->rows_max, ends_in(views + 2));
    lower(&rooms->rows_max, ends_in(views + 5));
    lower(&rooms->rows_max, views[3].len * 8);
    lower(&rooms->rows_max, views[6].len * 8);
    if ((rooms->with_headers = count == ROOMS_WITH_HEADERS)) {
        rooms->list_ends = views[8].buf;
        rooms->list_valid = views[9].buf;
        lower(&rooms->rows_max, ends_in(views + 8));
        lower(&rooms->rows_max, views[9].len * 8);
        rooms->header_keys = bytes_room_of(views + 10, NULL, views + 11);
        rooms->header_values = bytes_room_of(views + 12, views + 13, views + 14);
        rooms->headers_max = ends_in(views + 10);
        lower(&rooms->headers_max, ends_in(views + 12));
        lower(&rooms->headers_max, views[13].len * 8);
    }
    const int64_t most[] = {
        rooms->rows_max, rooms->headers_max, rooms->keys.bytes_max, rooms->values.bytes_max,
        rooms->header_keys.bytes_max, rooms->header_values.bytes_max};
    for (size_t i = 0; i < sizeof most / sizeof *most; i++)
        if (most[i] < 0 || most[i] > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "a room of a size that can't be counted");
            return -1;
        }
    return 0;
}

static int
check_filled(const struct rooms *rooms, const int64_t filled[FILLED])
{
    const int64_t most[FILLED] = {
        rooms->rows_max, rooms->keys.bytes_max, rooms->rows_max, rooms->values.bytes_max,
        rooms->rows_max, rooms->rows_max, rooms->headers_max, rooms->header_keys.bytes_max,
        rooms->header_values.bytes_max, rooms->headers_max};
    for (int i = 0; i < FILLED; i++)
        if (filled[i] < 0 || filled[i] > most[i]) {
            PyErr_SetString(PyExc_ValueError, "more is filled than there is room for");
            return -1;
        }
    return 0;
}

static int
check_place(const int64_t place[3], const struct numbers *numbers, Py_ssize_t size)
{
    if (place[0] < 0 || place[0] > size || place[1] < 0 || place[2] < -1
        || place[2] > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a place outside of the records");
        return -1;
    }
    if (numbers->base_offset < 0 || numbers->base_offset > OFFSET_MAX) {
        PyErr_SetString(PyExc_ValueError, "an offset outside of any log");
        return -1;
    }
    return 0;
}

static PyObject *
decode_into(const Py_buffer *body, const int64_t place[3], const struct numbers *numbers,
            const Py_buffer *views, int count, int64_t given[FILLED])
{
    struct rooms rooms;
    if (check_place(place, numbers, body->len) < 0 || count_rooms(views, count, &rooms) < 0
        || check_filled(&rooms, given) < 0)
        return NULL;
    struct filled filled = {given[0], given[1], given[2], given[3], given[4],
                            given[5], given[6], given[7], given[8], given[9]};
    const uint8_t *start = body->buf;
    struct walk walk = {start + place[0], start + body->len, place[1], place[2], SOUND, WHOLE};
    PyThreadState *thread = body->len < SMALL ? NULL : PyEval_SaveThread();
    take_records(&walk, numbers, &rooms, &filled);
    if (thread)
        PyEval_RestoreThread(thread);
    return Py_BuildValue(
        "(LLLiiLLLLLLLLLL)", (long long)walk.index, (long long)(walk.at - start),
        (long long)walk.previous, (int)walk.problem, (int)walk.stop, (long long)filled.rows,
        (long long)filled.key_bytes, (long long)filled.key_nulls, (long long)filled.value_bytes,
        (long long)filled.value_nulls, (long long)filled.list_nulls, (long long)filled.headers,
        (long long)filled.header_key_bytes, (long long)filled.header_value_bytes,
        (long long)filled.header_value_nulls);
}

/* What both calls are given: bytes, rooms, and what fills these. */
struct given {
    Py_buffer data, views[ROOMS_WITH_HEADERS];
    int taken; /* of the views */
    int64_t filled[FILLED];
};

static void
release(struct given *given)
{
    while (given->taken > 0)
        PyBuffer_Release(given->views + --given->taken);
    PyBuffer_Release(&given->data);
}

/* -1: there is nothing to be released, and an exception is set. */
static int
take_given(PyObject *data, PyObject *rooms, PyObject *filled, struct given *given)
{
    if (take_tuple(filled, FILLED, given->filled) < 0)
        return -1;
    const Py_ssize_t wanted = PyTuple_Check(rooms) ? PyTuple_GET_SIZE(rooms) : 0;
    if (wanted != ROOMS && wanted != ROOMS_WITH_HEADERS) {
        PyErr_SetString(PyExc_ValueError, "another number of rooms or of what fills them");
        return -1;
    }
    given->taken = 0;
    if (PyObject_GetBuffer(data, &given->data, PyBUF_SIMPLE) < 0)
        return -1;
    for (; given->taken < wanted; given->taken++)
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(rooms, given->taken),
                               given->views + given->taken, PyBUF_WRITABLE)
            < 0) {
            release(given);
            return -1;
        }
    return 0;
}

static PyObject *
decode(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int64_t place[3], numbers[8];
    struct given given;
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "decode takes 5 arguments");
        return NULL;
    }
    if (take_tuple(arguments[1], 3, place) < 0 || take_tuple(arguments[2], 8, numbers) < 0
        || take_given(arguments[0], arguments[3], arguments[4], &given) < 0)
        return NULL;
    const struct numbers of_batch = {numbers[0], numbers[1], numbers[2], numbers[3],
                                     numbers[4], numbers[5], numbers[6], numbers[7]};
    PyObject *decoded =
        decode_into(&given.data, place, &of_batch, given.views, given.taken, given.filled);
    release(&given);
    return decoded;
}

static PyObject *
decode_run_into(struct given *given, const int64_t place[4], int64_t until,
                const int64_t window[3])
{
    const Py_ssize_t size = given->data.len;
    struct rooms rooms;
    const int is_begun = place[1] != 0;
    if (place[0] < 0 || place[0] > until || until > size || place[1] > until
        || (is_begun && place[1] - BATCH_HEADER < place[0]) || place[2] < 0 || place[3] < -1
        || place[3] > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a place outside of the records");
        return NULL;
    }
    if (count_rooms(given->views, given->taken, &rooms) < 0
        || check_filled(&rooms, given->filled) < 0)
        return NULL;
    const int64_t *f = given->filled;
    struct filled filled = {f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7], f[8], f[9]};
    struct numbers numbers = {0, 0, 0, 0, window[0], 0, window[1], window[2]};
    const uint8_t *start = given->data.buf;
    struct run run = {start + place[0], start + until,
                      {start + place[1], NULL, place[2], place[3], SOUND, WHOLE}, is_begun};
    PyThreadState *thread = until - place[0] < SMALL ? NULL : PyEval_SaveThread();
    take_batches(&run, &numbers, &rooms, &filled);
    if (thread)
        PyEval_RestoreThread(thread);
    return Py_BuildValue(
        "(LLLLiiLLLLLLLLLLL)", (long long)(run.at - start),
        run.is_begun ? (long long)(run.walk.at - start) : 0LL,
        run.is_begun ? (long long)run.walk.index : 0LL,
        run.is_begun ? (long long)run.walk.previous : -1LL, (int)run.walk.problem,
        (int)run.walk.stop, (long long)numbers.start, (long long)filled.rows,
        (long long)filled.key_bytes, (long long)filled.key_nulls, (long long)filled.value_bytes,
        (long long)filled.value_nulls, (long long)filled.list_nulls, (long long)filled.headers,
        (long long)filled.header_key_bytes, (long long)filled.header_value_bytes,
        (long long)filled.header_value_nulls);
}

static PyObject *
decode_run(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int64_t place[4], window[3];
    struct given given;
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError, "decode_run takes 6 arguments");
        return NULL;
    }
    const long long until = PyLong_AsLongLong(arguments[2]);
    if ((until == -1 && PyErr_Occurred()) || take_tuple(arguments[1], 4, place) < 0
        || take_tuple(arguments[3], 3, window) < 0
        || take_given(arguments[0], arguments[4], arguments[5], &given) < 0)
        return NULL;
    PyObject *decoded = decode_run_into(&given, place, until, window);
    release(&given);
    return decoded;
}

static PyMethodDef methods[] = {
    {"decode", (PyCFunction)(void (*)(void))decode, METH_FASTCALL, NULL},
    {"decode_run", (PyCFunction)(void (*)(void))decode_run, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "compiled_columns",
    .m_doc = "Records into columns, compiled. python_columns.py is the reference.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit_compiled_columns(void)
{
    return PyModuleDef_Init(&definition);
}

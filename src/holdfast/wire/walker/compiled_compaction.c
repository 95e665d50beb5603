/* Compaction's two calls, compiled: python_compaction.py is the reference, and says what each part
 * is for.
 *
 * Both return the same numbers for the same bytes; tests/wire/test_record_compaction.py holds them
 * against each other. No byte is read before it is known to lie in the buffer. A large body is
 * worked on without the interpreter, so another thread may change its bytes meanwhile: each is read
 * once, and only what was read is acted upon.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

#include "key_map.h"

enum problem {
    SOUND, CUT_LENGTH, WRONG_LENGTH, CUT_FIELD, LONG_NUMBER, LONG_BYTES, HEADER_COUNT, HEADER_KEY,
    LEFT_OVER, UNORDERED
};

#include "varint.h"

#define NO_TIMESTAMP (-1)
#define STEPS_OF_RECORD 8
#define STEP_KEY_SHIFT 6
#define STEP_COPY_SHIFT 10
#define OFFSET_MAX ((int64_t)1 << 62)
#define LARGE (32 * 1024) /* bytes that are worth letting the interpreter go for */
#define SECRET_BYTES 16
#define VARINT_BYTES_MAX 10

struct record {
    int64_t timestamp_delta, offset_delta;
    const uint8_t *behind_timestamp;
    const uint8_t *key; /* NULL: there is none */
    int64_t key_size;
    int has_value;
    const uint8_t *end;
};

/* How far a go came. */
struct walk {
    const uint8_t *start, *end; /* of the buffer */
    const uint8_t *at;          /* where the next record begins */
    int64_t index;              /* its number */
    const uint8_t *inside;      /* its next header; NULL: its headers are not reached yet */
    int64_t headers;            /* how many are left there */
    int64_t previous;           /* offset delta of the record before */
    int64_t left;               /* steps */
};

/* --- reading --- */

/* Skip headers for as long as there are steps; `inside` says where to go on, NULL: all are behind. */
static enum problem
skip_headers(struct walk *walk, const uint8_t *p, const uint8_t *end, int64_t count)
{
    enum problem problem;
    int64_t size, steps = walk->left > 0 ? walk->left : 0;
    if (steps > count)
        steps = count;
    for (int64_t i = 0; i < steps; i++) {
        if ((problem = read_int(&p, end, &size)))
            return problem;
        if (size < 0)
            return HEADER_KEY;
        if (size > end - p)
            return LONG_BYTES;
        p += size;
        if ((problem = skip_bytes(&p, end, &size)))
            return problem;
    }
    walk->inside = NULL;
    walk->headers = 0;
    if (steps < count) {
        walk->inside = p;
        walk->headers = count - steps;
    } else if (p != end)
        return LEFT_OVER;
    walk->left -= steps;
    return SOUND;
}

/* Read the next record, all of it if there are steps for its headers. Moves behind no record. */
static inline enum problem
read_record(struct walk *walk, int64_t last_delta, struct record *record)
{
    const uint8_t *p = walk->at;
    int64_t size, count;
    enum problem problem = read_number(&p, walk->end, 28, 0x0f, CUT_LENGTH, &size);
    if (problem)
        return problem;
    if (size < 0 || size > walk->end - p)
        return WRONG_LENGTH;
    const uint8_t *end = record->end = p + size;
    if (p == end)
        return CUT_FIELD;
    p++; /* attributes, which nobody uses */
    if ((problem = read_number(&p, end, 63, 0x01, CUT_FIELD, &record->timestamp_delta)))
        return problem;
    record->behind_timestamp = p;
    if ((problem = read_int(&p, end, &record->offset_delta)))
        return problem;
    if ((problem = skip_bytes(&p, end, &record->key_size)))
        return problem;
    record->key = record->key_size < 0 ? NULL : p - record->key_size;
    if ((problem = skip_bytes(&p, end, &size)))
        return problem;
    record->has_value = size >= 0;
    if ((problem = read_int(&p, end, &count)))
        return problem;
    if (count < 0 || count > end - p)
        return HEADER_COUNT;
    if (walk->inside) {
        p = walk->inside;
        count = walk->headers;
    } else
        walk->left -= STEPS_OF_RECORD;
    if (count || p != end || walk->inside) {
        if ((problem = skip_headers(walk, p, end, count)))
            return problem;
        if (walk->inside)
            return SOUND;
    }
    return record->offset_delta > walk->previous && record->offset_delta <= last_delta ? SOUND
                                                                                      : UNORDERED;
}

static inline void
move_behind(struct walk *walk, const struct record *record)
{
    walk->at = record->end;
    walk->previous = record->offset_delta;
    walk->index++;
}

/* --- what is copied --- */

struct output {
    uint8_t *at, *end; /* of the room that is left */
    const uint8_t *begin, *behind; /* a run of records that is not copied yet */
};

/* 0: there is no room for it. */
static inline int
write_bytes(struct output *out, const uint8_t *bytes, int64_t size)
{
    if (size > out->end - out->at)
        return 0;
    if (size)
        memmove(out->at, bytes, (size_t)size);
    out->at += size;
    return 1;
}

static inline int
flush_run(struct output *out)
{
    const uint8_t *begin = out->begin;
    out->begin = out->behind;
    return write_bytes(out, begin, out->behind - begin);
}

static inline int
add_record(struct output *out, const uint8_t *begin, const uint8_t *end)
{
    if (begin != out->behind) {
        if (!flush_run(out))
            return 0;
        out->begin = begin;
    }
    out->behind = end;
    return 1;
}

/* Write a number as a zigzag varint; return how many bytes it takes. */
static inline int
write_varint(uint8_t *to, int64_t number)
{
    uint64_t value = ((uint64_t)number << 1) ^ (number < 0 ? UINT64_MAX : 0);
    int size = 0;
    for (; value >= 0x80; value >>= 7)
        to[size++] = (uint8_t)(value | 0x80);
    to[size++] = (uint8_t)value;
    return size;
}

/* Write a record whose timestamp delta is another one now. */
static inline int
add_shifted(struct output *out, const struct record *record, int64_t shift)
{
    uint8_t head[2 * VARINT_BYTES_MAX + 1], delta[VARINT_BYTES_MAX];
    const int delta_size = write_varint(
        delta, (int64_t)((uint64_t)record->timestamp_delta + (uint64_t)shift));
    const int64_t rest = record->end - record->behind_timestamp;
    const int64_t size = 1 + delta_size + rest;
    if (size > INT32_MAX)
        return 0;
    int head_size = write_varint(head, size);
    head[head_size++] = 0;
    memcpy(head + head_size, delta, (size_t)delta_size);
    return write_bytes(out, head, head_size + delta_size)
           && write_bytes(out, record->behind_timestamp, rest);
}

/* --- the map, as Python has it --- */

typedef struct {
    PyObject_HEAD
    struct key_map map;
    int is_busy; /* somebody works with it without the interpreter */
} KeyMap;

static PyObject *
key_map_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"memory_bytes", "secret", NULL};
    long long memory;
    const char *secret;
    Py_ssize_t secret_size;
    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "Ly#", names, &memory, &secret, &secret_size))
        return NULL;
    const int64_t slots = memory / (int64_t)sizeof(struct entry);
    const int64_t limit = slots / 10 * 9 + slots % 10 * 9 / 10;
    if (limit < 1 || secret_size != SECRET_BYTES) {
        PyErr_SetString(
            PyExc_ValueError, "a map of keys needs 48 bytes of memory and a secret of 16");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    KeyMap *self = (KeyMap *)allocate(type, 0);
    if (!self)
        return NULL;
    self->map.secret[0] = read_word((const uint8_t *)secret);
    self->map.secret[1] = read_word((const uint8_t *)secret + 8);
    self->map.slots = slots;
    self->map.limit = limit;
    /* Pages of zeros, which the system gives as they are written. */
    self->map.entries = PyMem_RawCalloc((size_t)slots, sizeof(struct entry));
    if (!self->map.entries) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void
key_map_dealloc(KeyMap *self)
{
    PyTypeObject *type = Py_TYPE(self);
    struct entry *entries = self->map.entries;
    Py_BEGIN_ALLOW_THREADS /* to give 128 MB back takes milliseconds */
    PyMem_RawFree(entries);
    Py_END_ALLOW_THREADS
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Take the map for this call. -1: another thread has it, which is a mistake of ours. */
static int
check_free(const KeyMap *self)
{
    if (!self->is_busy)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "two threads work with one map of keys");
    return -1;
}

static int
check_offset(int64_t offset)
{
    if (offset >= 0 && offset <= OFFSET_MAX)
        return 0;
    PyErr_SetString(PyExc_ValueError, "an offset outside of any log");
    return -1;
}

static PyObject *
key_map_put(KeyMap *self, PyObject *arguments)
{
    Py_buffer key;
    long long offset;
    if (!PyArg_ParseTuple(arguments, "y*L", &key, &offset))
        return NULL;
    PyObject *done = NULL;
    if (check_free(self) == 0 && check_offset(offset) == 0)
        done = PyBool_FromLong(put_key(&self->map, key.buf, key.len, offset));
    PyBuffer_Release(&key);
    return done;
}

static PyObject *
key_map_get(KeyMap *self, PyObject *arguments)
{
    Py_buffer key;
    if (!PyArg_ParseTuple(arguments, "y*", &key))
        return NULL;
    PyObject *found = NULL;
    if (check_free(self) == 0)
        found = PyLong_FromLongLong(get_key(&self->map, key.buf, key.len));
    PyBuffer_Release(&key);
    return found;
}

static Py_ssize_t
key_map_length(KeyMap *self)
{
    return (Py_ssize_t)self->map.count;
}

static PyMethodDef key_map_methods[] = {
    {"put", (PyCFunction)(void (*)(void))key_map_put, METH_VARARGS, NULL},
    {"get", (PyCFunction)(void (*)(void))key_map_get, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef key_map_members[] = {
    {"limit", T_LONGLONG, offsetof(KeyMap, map) + offsetof(struct key_map, limit), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot key_map_slots[] = {
    {Py_tp_new, (void *)key_map_new},
    {Py_tp_dealloc, (void *)key_map_dealloc},
    {Py_tp_methods, key_map_methods},
    {Py_tp_members, key_map_members},
    {Py_sq_length, (void *)key_map_length},
    {0, NULL},
};

static PyType_Spec key_map_spec = {
    .name = "holdfast.wire.walker.compiled_compaction.KeyMap",
    .basicsize = sizeof(KeyMap),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = key_map_slots,
};

/* --- the calls --- */

struct state {
    PyTypeObject *key_map;
};

/* Take `count` integers from the arguments. -1: one is none, and an exception is set. */
static int
take_integers(PyObject *const *arguments, int count, int64_t *integers)
{
    for (int i = 0; i < count; i++) {
        integers[i] = PyLong_AsLongLong(arguments[i]);
        if (integers[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

/* Take so many integers out of a tuple. -1: it is none such, and an exception is set. */
static int
take_tuple(PyObject *tuple, int count, int64_t *integers)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != count) {
        PyErr_Format(PyExc_TypeError, "a tuple of %d integers is wanted", count);
        return -1;
    }
    return take_integers(((PyTupleObject *)tuple)->ob_item, count, integers);
}

/* Open the buffer that is to be worked on from a place on. -1: an exception is set. */
static int
open_walk(PyObject *body, PyObject *place, int64_t base_offset, Py_buffer *view, struct walk *walk)
{
    int64_t given[5];
    if (take_tuple(place, 5, given) < 0 || check_offset(base_offset) < 0
        || PyObject_GetBuffer(body, view, PyBUF_SIMPLE) < 0)
        return -1;
    const int64_t position = given[0], inside = given[2], size = view->len;
    if (position < 0 || position > size || inside < 0 || inside > size || given[3] < 0
        || given[4] < -1) {
        PyBuffer_Release(view);
        PyErr_SetString(PyExc_ValueError, "a place outside of the records");
        return -1;
    }
    walk->start = view->buf;
    walk->end = walk->start + size;
    walk->at = walk->start + position;
    walk->index = given[1];
    walk->inside = inside ? walk->start + inside : NULL;
    walk->headers = inside ? given[3] : 0;
    walk->previous = given[4];
    return 0;
}

static inline long long
inside_of(const struct walk *walk)
{
    return walk->inside ? (long long)(walk->inside - walk->start) : 0;
}

/* A problem was met: the record before which it stopped has to be begun anew. */
static inline void
leave_headers(struct walk *walk)
{
    walk->inside = NULL;
    walk->headers = 0;
}

/* Let the interpreter go for a large body, and keep others from the map meanwhile. */
static PyThreadState *
let_go(const Py_buffer *view, KeyMap *map)
{
    if (view->len < LARGE)
        return NULL;
    if (map)
        map->is_busy = 1;
    return PyEval_SaveThread();
}

static void
take_back(PyThreadState *thread, KeyMap *map)
{
    if (!thread)
        return;
    PyEval_RestoreThread(thread);
    if (map)
        map->is_busy = 0;
}

static enum problem
enter_records(struct walk *walk, int64_t most, const int64_t numbers[3], struct key_map *map,
              int *is_full)
{
    const int64_t last_delta = numbers[0], base_offset = numbers[1], start = numbers[2];
    for (int64_t left = most; left > 0 && walk->at < walk->end && walk->left > 0; left--) {
        struct record record;
        const enum problem problem = read_record(walk, last_delta, &record);
        if (problem) {
            leave_headers(walk);
            return problem;
        }
        if (walk->inside)
            break;
        const int64_t offset = base_offset + record.offset_delta;
        if (map && record.key && offset >= start) {
            walk->left -= record.key_size >> STEP_KEY_SHIFT;
            if (!put_key(map, record.key, record.key_size, offset)) {
                *is_full = 1;
                break;
            }
        }
        move_behind(walk, &record);
    }
    return SOUND;
}

/* Return the argument as a map of keys, which nobody else works with; NULL: an exception is set. */
static KeyMap *
take_map(PyObject *module, PyObject *argument)
{
    const struct state *state = PyModule_GetState(module);
    if (!PyObject_TypeCheck(argument, state->key_map)) {
        PyErr_SetString(PyExc_TypeError, "a map of keys is wanted");
        return NULL;
    }
    KeyMap *map = (KeyMap *)argument;
    return check_free(map) < 0 ? NULL : map;
}

static PyObject *
enter(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t given[2], numbers[3];
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError, "enter takes 6 arguments");
        return NULL;
    }
    if (take_integers(arguments + 2, 2, given) < 0 || take_tuple(arguments[4], 3, numbers) < 0)
        return NULL;
    KeyMap *map = NULL;
    if (arguments[5] != Py_None && !(map = take_map(module, arguments[5])))
        return NULL;
    Py_buffer view;
    struct walk walk;
    if (open_walk(arguments[0], arguments[1], numbers[1], &view, &walk) < 0)
        return NULL;
    walk.left = given[1];
    int is_full = 0;
    PyThreadState *thread = let_go(&view, map);
    const enum problem problem =
        enter_records(&walk, given[0], numbers, map ? &map->map : NULL, &is_full);
    take_back(thread, map);
    PyObject *entered = Py_BuildValue(
        "(LLiLLLLi)", (long long)walk.index, (long long)(walk.at - walk.start), (int)problem,
        inside_of(&walk), (long long)walk.headers, (long long)walk.previous,
        (long long)(given[1] - walk.left), is_full);
    PyBuffer_Release(&view);
    return entered;
}

struct kept {
    int64_t records, tombstones, keyless, largest;
};

/* Whether a record stays; numbers as in `keep`. */
static inline int
stays(const int64_t numbers[6], struct walk *walk, const struct record *record,
      const struct key_map *map, struct kept *kept)
{
    const int64_t offset = numbers[1] + record->offset_delta;
    if (offset >= numbers[3])
        return 1;
    if (!record->key) {
        kept->keyless++;
        return 0;
    }
    walk->left -= record->key_size >> STEP_KEY_SHIFT;
    return offset >= get_key(map, record->key, record->key_size)
           && (record->has_value || !numbers[4]);
}

/* 0: there is no room for what stays. */
static int
keep_records(struct walk *walk, int64_t most, const int64_t numbers[6], const struct key_map *map,
             struct output *out, struct kept *kept, enum problem *problem)
{
    const int64_t shift = numbers[5];
    for (int64_t left = most; left > 0 && walk->at < walk->end && walk->left > 0; left--) {
        struct record record;
        if ((*problem = read_record(walk, numbers[0], &record))) {
            leave_headers(walk);
            break;
        }
        if (walk->inside)
            break;
        if (stays(numbers, walk, &record, map, kept)) {
            walk->left -= (record.end - walk->at) >> STEP_COPY_SHIFT;
            kept->records++;
            kept->tombstones += !record.has_value;
            /* Unsigned, so that it wraps, as a Java client's does. */
            const int64_t timestamp =
                (int64_t)((uint64_t)numbers[2] + (uint64_t)record.timestamp_delta);
            if (timestamp > kept->largest)
                kept->largest = timestamp;
            if (!(shift ? add_shifted(out, &record, shift)
                        : add_record(out, walk->at, record.end)))
                return 0;
        }
        move_behind(walk, &record);
    }
    return flush_run(out);
}

static PyObject *
keep_into(const int64_t given[2], const int64_t numbers[6], KeyMap *map, const Py_buffer *view,
          struct walk *walk, const Py_buffer *room, int64_t filled)
{
    if (filled < 0 || filled > room->len) {
        PyErr_SetString(PyExc_ValueError, "outside of the room");
        return NULL;
    }
    uint8_t *start = room->buf;
    struct output out = {start + filled, start + room->len, walk->start, walk->start};
    struct kept kept = {0, 0, 0, NO_TIMESTAMP};
    enum problem problem = SOUND;
    walk->left = given[1];
    PyThreadState *thread = let_go(view, map);
    const int is_done = keep_records(walk, given[0], numbers, &map->map, &out, &kept, &problem);
    take_back(thread, map);
    if (!is_done) {
        PyErr_SetString(PyExc_ValueError, "no room for what stays");
        return NULL;
    }
    return Py_BuildValue(
        "(LLiLLLLLLLLL)", (long long)walk->index, (long long)(walk->at - walk->start),
        (int)problem, inside_of(walk), (long long)walk->headers, (long long)walk->previous,
        (long long)(given[1] - walk->left), (long long)kept.records, (long long)kept.tombstones,
        (long long)kept.keyless, (long long)kept.largest, (long long)(out.at - start));
}

static PyObject *
keep(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t given[2], numbers[6], filled;
    if (count != 8) {
        PyErr_SetString(PyExc_TypeError, "keep takes 8 arguments");
        return NULL;
    }
    if (take_integers(arguments + 2, 2, given) < 0 || take_tuple(arguments[4], 6, numbers) < 0
        || take_integers(arguments + 7, 1, &filled) < 0)
        return NULL;
    KeyMap *map = take_map(module, arguments[5]);
    if (!map)
        return NULL;
    Py_buffer view, room;
    struct walk walk;
    if (open_walk(arguments[0], arguments[1], numbers[1], &view, &walk) < 0)
        return NULL;
    PyObject *done = NULL;
    if (PyObject_GetBuffer(arguments[6], &room, PyBUF_WRITABLE) == 0) {
        done = keep_into(given, numbers, map, &view, &walk, &room, filled);
        PyBuffer_Release(&room);
    }
    PyBuffer_Release(&view);
    return done;
}

/* The hash by which a map knows a key, for who wants to see that it is one. */
static PyObject *
hash_key(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    const char *secret;
    Py_ssize_t secret_size;
    Py_buffer key;
    if (!PyArg_ParseTuple(arguments, "y#y*", &secret, &secret_size, &key))
        return NULL;
    PyObject *hashed = NULL;
    if (secret_size != SECRET_BYTES)
        PyErr_SetString(PyExc_ValueError, "a secret has 16 bytes");
    else {
        const uint64_t words[2] = {
            read_word((const uint8_t *)secret), read_word((const uint8_t *)secret + 8)};
        const struct hash hash = hash_of(words, key.buf, key.len);
        hashed = Py_BuildValue(
            "(KK)", (unsigned long long)hash.low, (unsigned long long)hash.high);
    }
    PyBuffer_Release(&key);
    return hashed;
}

/* --- the module --- */

static PyMethodDef methods[] = {
    {"enter", (PyCFunction)(void (*)(void))enter, METH_FASTCALL, NULL},
    {"keep", (PyCFunction)(void (*)(void))keep, METH_FASTCALL, NULL},
    {"hash_key", hash_key, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int
begin(PyObject *module)
{
    struct state *state = PyModule_GetState(module);
    state->key_map = (PyTypeObject *)PyType_FromModuleAndSpec(module, &key_map_spec, NULL);
    return state->key_map ? PyModule_AddType(module, state->key_map) : -1;
}

static int
visit(PyObject *module, visitproc visit, void *arg)
{
    const struct state *state = PyModule_GetState(module);
    Py_VISIT(state->key_map);
    return 0;
}

static int
clear(PyObject *module)
{
    struct state *state = PyModule_GetState(module);
    Py_CLEAR(state->key_map);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)begin},
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "compiled_compaction",
    .m_doc = "Compaction's two calls, compiled. python_compaction.py is the reference.",
    .m_size = sizeof(struct state),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = visit,
    .m_clear = clear,
};

PyMODINIT_FUNC
PyInit_compiled_compaction(void)
{
    return PyModuleDef_Init(&definition);
}

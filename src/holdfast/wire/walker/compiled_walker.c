/* The record walker, compiled: python_walker.py is the reference, and says what each part is for.
 *
 * Both return the same numbers for the same bytes; tests/wire/test_record_walker.py holds them
 * against each other. No byte is read before it is known to lie in the buffer. The interpreter is
 * not let go meanwhile: whoever calls bounds how many steps are made at once.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum problem {
    SOUND, CUT_LENGTH, WRONG_LENGTH, CUT_FIELD, LONG_NUMBER, LONG_BYTES, HEADER_COUNT, HEADER_KEY,
    LEFT_OVER
};

#include "varint.h"

#define NO_TIMESTAMP (-1)
#define STEPS_OF_RECORD 8

struct record {
    int64_t timestamp;
    int64_t offset_delta;
    int has_key;
};

/* How far a walk came. */
struct walk {
    const uint8_t *start, *end; /* of the buffer */
    const uint8_t *at;          /* where the next record begins */
    int64_t index;              /* its number */
    const uint8_t *inside;      /* its next header; NULL: its headers are not reached yet */
    int64_t headers;            /* how many are left there */
    int64_t left;               /* steps */
};

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

/* Read the next record, and move behind it, if it is sound and there are steps for its headers. */
static inline enum problem
read_record(struct walk *walk, int64_t base_timestamp, struct record *record)
{
    const uint8_t *p = walk->at;
    int64_t size, count;
    enum problem problem = read_number(&p, walk->end, 28, 0x0f, CUT_LENGTH, &size);
    if (problem)
        return problem;
    if (size < 0 || size > walk->end - p)
        return WRONG_LENGTH;
    const uint8_t *end = p + size;
    if (p == end)
        return CUT_FIELD;
    p++; /* attributes, which nobody uses */
    int64_t delta;
    if ((problem = read_number(&p, end, 63, 0x01, CUT_FIELD, &delta)))
        return problem;
    /* Unsigned, so that it wraps, as a Java client's does. */
    record->timestamp = (int64_t)((uint64_t)base_timestamp + (uint64_t)delta);
    if ((problem = read_int(&p, end, &record->offset_delta)))
        return problem;
    if ((problem = skip_bytes(&p, end, &size)))
        return problem;
    record->has_key = size >= 0;
    if ((problem = skip_bytes(&p, end, &size)))
        return problem;
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
    walk->at = end;
    return SOUND;
}

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

/* Open the buffer that is to be walked from a place on. -1: an exception is set. */
static int
open_walk(PyObject *body, PyObject *place, Py_buffer *view, struct walk *walk)
{
    int64_t given[4];
    if (take_tuple(place, 4, given) < 0 || PyObject_GetBuffer(body, view, PyBUF_SIMPLE) < 0)
        return -1;
    const int64_t position = given[0], inside = given[2], size = view->len;
    if (position < 0 || position > size || inside < 0 || inside > size || given[3] < 0) {
        PyBuffer_Release(view);
        PyErr_SetString(PyExc_ValueError, "a place outside of the records");
        return -1;
    }
    walk->start = view->buf;
    walk->end = walk->start + size;
    walk->at = walk->start + position;
    walk->index = given[1];
    walk->inside = inside ? walk->start + inside : NULL;
    walk->headers = given[3];
    return 0;
}

/* Where the walk stands in its record's headers, as a number: 0 where it does not. */
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

static PyObject *
walk(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int64_t given[3];
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "walk takes 5 arguments");
        return NULL;
    }
    if (take_integers(arguments + 2, 3, given) < 0)
        return NULL;
    const int64_t most = given[0], steps = given[1], base_timestamp = given[2];
    Py_buffer view;
    struct walk walk;
    if (open_walk(arguments[0], arguments[1], &view, &walk) < 0)
        return NULL;
    walk.left = steps;
    int64_t least = INT64_MAX, least_at = -1, largest = NO_TIMESTAMP, largest_at = -1;
    int64_t uncounted_at = -1, keyless_at = -1;
    enum problem problem = SOUND;
    for (int64_t left = most; left > 0 && walk.at < walk.end && walk.left > 0; left--) {
        struct record record;
        if ((problem = read_record(&walk, base_timestamp, &record))) {
            leave_headers(&walk);
            break;
        }
        if (walk.inside)
            break;
        const int64_t index = walk.index++;
        if (record.timestamp < least && record.timestamp != NO_TIMESTAMP) {
            least = record.timestamp;
            least_at = index;
        }
        if (record.timestamp > largest) {
            largest = record.timestamp;
            largest_at = index;
        }
        if (uncounted_at < 0 && record.offset_delta != index)
            uncounted_at = index;
        if (keyless_at < 0 && !record.has_key)
            keyless_at = index;
    }
    PyObject *walked = Py_BuildValue(
        "(LLLLLLLLiLLL)", (long long)walk.index, (long long)(walk.at - walk.start),
        (long long)least, (long long)least_at, (long long)largest, (long long)largest_at,
        (long long)uncounted_at, (long long)keyless_at, (int)problem, inside_of(&walk),
        (long long)walk.headers, (long long)(steps - walk.left));
    PyBuffer_Release(&view);
    return walked;
}

static PyObject *
seek(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int64_t given[3], wanted[3];
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError, "seek takes 6 arguments");
        return NULL;
    }
    if (take_integers(arguments + 2, 3, given) < 0 || take_tuple(arguments[5], 3, wanted) < 0)
        return NULL;
    const int64_t most = given[0], steps = given[1], base_timestamp = given[2];
    Py_buffer view;
    struct walk walk;
    if (open_walk(arguments[0], arguments[1], &view, &walk) < 0)
        return NULL;
    walk.left = steps;
    int64_t found = -1, timestamp = NO_TIMESTAMP;
    enum problem problem = SOUND;
    for (int64_t left = most; left > 0 && walk.at < walk.end && walk.left > 0; left--) {
        const uint8_t *here = walk.at;
        struct record record;
        if ((problem = read_record(&walk, base_timestamp, &record))) {
            leave_headers(&walk);
            break;
        }
        if (walk.inside)
            break;
        if (record.timestamp >= wanted[0] && record.offset_delta >= wanted[1]
            && record.offset_delta <= wanted[2]) {
            found = record.offset_delta;
            timestamp = record.timestamp;
            walk.at = here;
            break;
        }
        walk.index++;
    }
    PyObject *sought = Py_BuildValue(
        "(LLLLiLLL)", (long long)walk.index, (long long)(walk.at - walk.start), (long long)found,
        (long long)timestamp, (int)problem, inside_of(&walk), (long long)walk.headers,
        (long long)(steps - walk.left));
    PyBuffer_Release(&view);
    return sought;
}

static PyMethodDef methods[] = {
    {"walk", (PyCFunction)(void (*)(void))walk, METH_FASTCALL, NULL},
    {"seek", (PyCFunction)(void (*)(void))seek, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "compiled_walker",
    .m_doc = "The record walker, compiled. python_walker.py is the reference.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit_compiled_walker(void)
{
    return PyModuleDef_Init(&definition);
}

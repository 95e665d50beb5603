/* The record walker, compiled: python_walker.py is the reference, and says what each part is for.
 *
 * Both return the same numbers for the same bytes; tests/wire/test_record_walker.py holds them
 * against each other. No byte is read before it is known to lie in the buffer. The interpreter is
 * not let go meanwhile: whoever calls bounds how many records are walked at once.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum problem {
    SOUND, CUT_LENGTH, WRONG_LENGTH, CUT_FIELD, LONG_NUMBER, LONG_BYTES, HEADER_COUNT, HEADER_KEY,
    LEFT_OVER
};

#define NO_TIMESTAMP (-1)

struct record {
    int64_t timestamp;
    int64_t offset_delta;
    int has_key;
};

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

static enum problem
skip_headers(const uint8_t **at, const uint8_t *end, int64_t count)
{
    enum problem problem;
    int64_t size;
    if (count < 0 || count > end - *at)
        return HEADER_COUNT;
    for (; count; count--) {
        if ((problem = read_int(at, end, &size)))
            return problem;
        if (size < 0)
            return HEADER_KEY;
        if (size > end - *at)
            return LONG_BYTES;
        *at += size;
        if ((problem = skip_bytes(at, end, &size)))
            return problem;
    }
    return SOUND;
}

/* Read the record at `*at`, which is moved behind it. Nothing is moved when there is a problem. */
static inline enum problem
read_record(const uint8_t **at, const uint8_t *buffer_end, int64_t base_timestamp,
            struct record *record)
{
    const uint8_t *p = *at;
    int64_t size;
    enum problem problem = read_number(&p, buffer_end, 28, 0x0f, CUT_LENGTH, &size);
    if (problem)
        return problem;
    if (size < 0 || size > buffer_end - p)
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
    if ((problem = read_int(&p, end, &size)))
        return problem;
    if (size && (problem = skip_headers(&p, end, size)))
        return problem;
    if (p != end)
        return LEFT_OVER;
    *at = end;
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

/* Open the buffer that is to be walked from `position` on. -1: an exception is set. */
static int
open_buffer(PyObject *body, int64_t position, Py_buffer *view)
{
    if (PyObject_GetBuffer(body, view, PyBUF_SIMPLE) < 0)
        return -1;
    if (position < 0 || position > view->len) {
        PyBuffer_Release(view);
        PyErr_SetString(PyExc_ValueError, "a position outside of the records");
        return -1;
    }
    return 0;
}

static PyObject *
walk(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int64_t given[4];
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "walk takes 5 arguments");
        return NULL;
    }
    if (take_integers(arguments + 1, 4, given) < 0)
        return NULL;
    const int64_t position = given[0], most = given[2], base_timestamp = given[3];
    int64_t index = given[1];
    Py_buffer view;
    if (open_buffer(arguments[0], position, &view) < 0)
        return NULL;
    const uint8_t *start = view.buf, *at = start + position, *end = start + view.len;
    int64_t least = INT64_MAX, least_at = -1, largest = NO_TIMESTAMP, largest_at = -1;
    int64_t uncounted_at = -1, keyless_at = -1;
    enum problem problem = SOUND;
    for (int64_t left = most; left > 0 && at < end; left--, index++) {
        struct record record;
        if ((problem = read_record(&at, end, base_timestamp, &record)))
            break;
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
        "(LLLLLLLLi)", (long long)index, (long long)(at - start), (long long)least,
        (long long)least_at, (long long)largest, (long long)largest_at, (long long)uncounted_at,
        (long long)keyless_at, (int)problem);
    PyBuffer_Release(&view);
    return walked;
}

static PyObject *
seek(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int64_t given[4], deltas[2];
    if (count != 6 || !PyTuple_Check(arguments[5]) || PyTuple_GET_SIZE(arguments[5]) != 2) {
        PyErr_SetString(PyExc_TypeError, "seek takes 6 arguments, the last of them a pair");
        return NULL;
    }
    PyObject *pair[2] = {PyTuple_GET_ITEM(arguments[5], 0), PyTuple_GET_ITEM(arguments[5], 1)};
    if (take_integers(arguments + 1, 4, given) < 0 || take_integers(pair, 2, deltas) < 0)
        return NULL;
    const int64_t position = given[0], most = given[1], base_timestamp = given[2];
    const int64_t since = given[3];
    Py_buffer view;
    if (open_buffer(arguments[0], position, &view) < 0)
        return NULL;
    const uint8_t *start = view.buf, *at = start + position, *end = start + view.len;
    int64_t found = -1, timestamp = NO_TIMESTAMP;
    enum problem problem = SOUND;
    for (int64_t left = most; left > 0 && at < end; left--) {
        const uint8_t *here = at;
        struct record record;
        if ((problem = read_record(&at, end, base_timestamp, &record)))
            break;
        if (record.timestamp >= since && record.offset_delta >= deltas[0]
            && record.offset_delta <= deltas[1]) {
            found = record.offset_delta;
            timestamp = record.timestamp;
            at = here;
            break;
        }
    }
    PyObject *sought = Py_BuildValue("(LLLi)", (long long)(at - start), (long long)found,
                                     (long long)timestamp, (int)problem);
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

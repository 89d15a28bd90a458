/* Two libraries for observe.py, which provoke faults of CUPTI on a machine where it works.
 *
 * As libcupti.so.13 in a folder of AORTA_LIBRARY_PATH, it forwards every call to the library SHIM_REAL except for the fault
 * that SHIM names: `old` (version 18), `missing` (does not exist for it: compile with -DMISSING), `privilege`, `busy`,
 * `dropped` (three records), `full` (buffers of 4 KiB, and none after the first SHIM_BUFFERS), `lost` (the records of
 * copies belong to no call).
 *
 * As CUDA_INJECTION64_PATH it subscribes to SHIM_REAL before the program does, as a profiler does. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *real(const char *name) {
    static void *library;
    if (!library) library = dlopen(getenv("SHIM_REAL"), RTLD_NOW | RTLD_GLOBAL);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) fprintf(stderr, "shim: no %s\n", name), exit(99);
    return found;
}

static int fault(const char *name) {
    const char *wanted = getenv("SHIM");
    return wanted && !strcmp(wanted, name);
}

/* The driver calls this in a library that CUDA_INJECTION64_PATH names. */
int InitializeInjection(void) {
    static void *subscriber;
    int (*subscribe)(void **, void (*)(void), void *) = real("cuptiSubscribe");
    extern void ignored(void);
    int status = subscribe(&subscriber, ignored, NULL);
    fprintf(stderr, "shim: subscribed first, status %d\n", status);
    return 1;
}
void ignored(void) {}

#ifndef MISSING
int cuptiGetVersion(uint32_t *version) {
    int status = ((int (*)(uint32_t *))real("cuptiGetVersion"))(version);
    if (fault("old")) *version = 18;
    return status;
}
int cuptiSubscribe(void **subscriber, void *callback, void *data) {
    if (fault("privilege")) return 35;
    if (fault("busy")) return 39;
    return ((int (*)(void **, void *, void *))real("cuptiSubscribe"))(subscriber, callback, data);
}
#endif
int cuptiGetResultString(int code, const char **text) {
    return ((int (*)(int, const char **))real("cuptiGetResultString"))(code, text);
}
int cuptiUnsubscribe(void *subscriber) { return ((int (*)(void *))real("cuptiUnsubscribe"))(subscriber); }
int cuptiEnableDomain(uint32_t on, void *subscriber, uint32_t domain) {
    return ((int (*)(uint32_t, void *, uint32_t))real("cuptiEnableDomain"))(on, subscriber, domain);
}
int cuptiEnableCallback(uint32_t on, void *subscriber, uint32_t domain, uint32_t id) {
    return ((int (*)(uint32_t, void *, uint32_t, uint32_t))real("cuptiEnableCallback"))(on, subscriber, domain, id);
}

typedef void (*Requested)(uint8_t **, size_t *, size_t *);
typedef void (*Completed)(void *, uint32_t, uint8_t *, size_t, size_t);
static Requested theirs;
static void requested(uint8_t **buffer, size_t *size, size_t *most) {
    static int given;
    const char *limit = getenv("SHIM_BUFFERS");
    if (given++ >= (limit ? atoi(limit) : 1)) {
        *buffer = NULL, *size = 0, *most = 0;
        return;
    }
    theirs(buffer, size, most);
    *size = 4096;
}
int cuptiActivityRegisterCallbacks(Requested request, Completed complete) {
    theirs = request;
    return ((int (*)(Requested, Completed))real("cuptiActivityRegisterCallbacks"))(fault("full") ? requested : request, complete);
}
int cuptiActivityEnable(uint32_t kind) { return ((int (*)(uint32_t))real("cuptiActivityEnable"))(kind); }
int cuptiActivityDisable(uint32_t kind) { return ((int (*)(uint32_t))real("cuptiActivityDisable"))(kind); }
int cuptiActivityFlushAll(uint32_t flag) { return ((int (*)(uint32_t))real("cuptiActivityFlushAll"))(flag); }
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
    int status = ((int (*)(uint8_t *, size_t, uint8_t **))real("cuptiActivityGetNextRecord"))(buffer, valid, record);
    if (status == 0 && fault("lost") && *(uint32_t *)*record == 1) *(uint32_t *)(*record + 44) = 0;
    return status;
}
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count) {
    int status = ((int (*)(void *, uint32_t, size_t *))real("cuptiActivityGetNumDroppedRecords"))(context, stream, count);
    if (fault("dropped")) *count += 3;
    return status;
}
int cuptiGetGraphNodeId(void *node, uint64_t *id) {
    return ((int (*)(void *, uint64_t *))real("cuptiGetGraphNodeId"))(node, id);
}
int cuptiFinalize(void) { return ((int (*)(void))real("cuptiFinalize"))(); }

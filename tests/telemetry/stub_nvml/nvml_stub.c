/* A stand-in for libnvidia-ml.so.1: the calls that the product makes, with the driver's struct layouts and versions.
 *
 * Its state is the text file named by STUB_NVML_STATE, read again whenever it was replaced, so that a test can lose a
 * GPU, make a call fail, or make it hang while a program runs. One line says one thing:
 *
 *   driver TEXT | devices N | log FILE                          (every call is noted there)
 *   call NAME|* fail CODE | spin MICROSECONDS | block FILE      (hangs for as long as FILE exists)
 *   dev I set KEY VALUE | process PID BYTES | migdev UUID | call ...
 *   xid SEQUENCE I CODE                                         (an event, given once)
 *
 * A value that is not set is one that the device does not support.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       TIMEOUT = 10, VERSION_MISMATCH = 25, UNKNOWN = 999 };

#define MAX_DEVICES 16
#define MAX_RULES 64
#define MAX_PROCESSES 16
#define MAX_SLICES 7
#define MAX_VALUES 32
#define MAX_XIDS 16

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
_Static_assert(sizeof(nvmlMemory_v2_t) == 0x28, "nvmlMemory_v2 is 0x02000028");
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
typedef struct { unsigned int pid; unsigned long long usedGpuMemory; unsigned int gpuInstanceId, computeInstanceId; } nvmlProcessInfo_t;
_Static_assert(sizeof(nvmlProcessInfo_t) == 24, "nvmlProcessInfo_v2 and _v3");
typedef union { double d; unsigned int ui; unsigned long ul; unsigned long long ull; long long sll; int si; unsigned short us; } nvmlValue_t;
typedef struct {
    unsigned int fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned int valueType, nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;
_Static_assert(sizeof(nvmlFieldValue_t) == 40, "nvmlFieldValue_t");

typedef struct { char name[64]; int device; int fail; double spin_us; char block[256]; } rule_t;
typedef struct { char key[24]; char text[128]; } value_t;
typedef struct handle { int device; int slice; } handle_t;
typedef struct { handle_t *device; unsigned long long eventType, eventData; unsigned int gpuInstanceId, computeInstanceId; } nvmlEventData_t;
typedef struct { int device; unsigned int pid; unsigned long long bytes; } process_t;
typedef struct { long sequence; int device; unsigned long long code; } xid_t;

typedef struct {
    char driver[80], log[256];
    int devices, rule_count, process_count, xid_count;
    rule_t rules[MAX_RULES];
    process_t processes[MAX_DEVICES * MAX_PROCESSES];
    xid_t xids[MAX_XIDS];
    int value_count[MAX_DEVICES], slice_count[MAX_DEVICES];
    value_t values[MAX_DEVICES][MAX_VALUES];
    char slices[MAX_DEVICES][MAX_SLICES][96];
} state_t;

static state_t state;
static struct stat seen;
static int users;
static long last_xid;
static handle_t handles[MAX_DEVICES], slice_handles[MAX_DEVICES][MAX_SLICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void copy(char *to, size_t size, const char *from) {
    size_t length = strlen(from);
    if (length >= size) length = size - 1;
    memcpy(to, from, length);
    to[length] = 0;
}

static void read_rule(const char *text, int device) {
    char name[64], what[16], argument[256];
    if (state.rule_count == MAX_RULES || sscanf(text, "%63s %15s %255s", name, what, argument) != 3) return;
    rule_t *rule = &state.rules[state.rule_count++];
    memset(rule, 0, sizeof *rule);
    copy(rule->name, sizeof rule->name, name);
    rule->device = device;
    if (!strcmp(what, "fail")) rule->fail = atoi(argument);
    else if (!strcmp(what, "spin")) rule->spin_us = atof(argument);
    else if (!strcmp(what, "block")) copy(rule->block, sizeof rule->block, argument);
}

static void read_device(const char *text) {
    char what[16], key[24];
    int index = 0, used = 0;
    if (sscanf(text, "%d %15s %n", &index, what, &used) < 2 || index < 0 || index >= MAX_DEVICES) return;
    const char *rest = text + used;
    if (!strcmp(what, "call")) read_rule(rest, index);
    else if (!strcmp(what, "migdev") && state.slice_count[index] < MAX_SLICES)
        copy(state.slices[index][state.slice_count[index]++], 96, rest);
    else if (!strcmp(what, "process") && state.process_count < MAX_DEVICES * MAX_PROCESSES) {
        process_t *process = &state.processes[state.process_count++];
        process->device = index;
        sscanf(rest, "%u %llu", &process->pid, &process->bytes);
    } else if (!strcmp(what, "set") && state.value_count[index] < MAX_VALUES) {
        int skip = 0;
        if (sscanf(rest, "%23s %n", key, &skip) < 1) return;
        value_t *value = &state.values[index][state.value_count[index]++];
        copy(value->key, sizeof value->key, key);
        copy(value->text, sizeof value->text, rest + skip);
    }
}

static void reload(void) {
    const char *path = getenv("STUB_NVML_STATE");
    struct stat now;
    if (!path || stat(path, &now)) return;
    if (now.st_ino == seen.st_ino && now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    seen = now;
    memset(&state, 0, sizeof state);
    char line[512];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "driver ", 7)) copy(state.driver, sizeof state.driver, line + 7);
        else if (!strncmp(line, "devices ", 8)) state.devices = atoi(line + 8);
        else if (!strncmp(line, "log ", 4)) copy(state.log, sizeof state.log, line + 4);
        else if (!strncmp(line, "call ", 5)) read_rule(line + 5, -1);
        else if (!strncmp(line, "dev ", 4)) read_device(line + 4);
        else if (!strncmp(line, "xid ", 4) && state.xid_count < MAX_XIDS) {
            xid_t *xid = &state.xids[state.xid_count++];
            sscanf(line + 4, "%ld %d %llu", &xid->sequence, &xid->device, &xid->code);
        }
    }
    fclose(file);
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * t.tv_sec + t.tv_nsec / 1e3;
}

/* Does what the state says about a call: spends its time, hangs, fails. */
static int enter(const char *name, const handle_t *handle) {
    int fail = 0;
    double spin_us = 0;
    char block[256] = "";
    pthread_mutex_lock(&lock);
    reload();
    int device = handle ? handle->device : -1;
    for (int i = 0; i < state.rule_count; i++) {
        rule_t *rule = &state.rules[i];
        if ((rule->device >= 0 && rule->device != device) || (strcmp(rule->name, "*") && strcmp(rule->name, name))) continue;
        if (rule->fail) fail = rule->fail;
        if (rule->spin_us > 0) spin_us = rule->spin_us;
        if (rule->block[0]) copy(block, sizeof block, rule->block);
    }
    FILE *log = state.log[0] ? fopen(state.log, "a") : NULL;
    if (log) {
        fprintf(log, "%s %d\n", name, device);
        fclose(log);
    }
    int ready = users > 0 || !strncmp(name, "nvmlInit", 8);
    pthread_mutex_unlock(&lock);
    for (double end = now_us() + spin_us; spin_us > 0 && now_us() < end;) {}
    while (block[0] && !access(block, F_OK)) usleep(2000);
    if (!ready) return UNINITIALIZED;
    return fail;
}

#define ENTER(handle) do { int code_ = enter(__func__, handle); if (code_) return code_; } while (0)
#define DEVICE(handle) do { if (!(handle)) return INVALID_ARGUMENT; ENTER(handle); } while (0)

static const char *value(const handle_t *handle, const char *key) {
    const char *found = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < state.value_count[handle->device]; i++)
        if (!strcmp(state.values[handle->device][i].key, key)) found = state.values[handle->device][i].text;
    pthread_mutex_unlock(&lock);
    return found;
}

static int number(const handle_t *handle, const char *key, unsigned long long *out) {
    const char *text = value(handle, key);
    if (!text) return NOT_SUPPORTED;
    *out = strtoull(text, NULL, 0);
    return OK;
}

static int small(const handle_t *handle, const char *key, unsigned int *out) {
    unsigned long long wide = 0;
    int code = number(handle, key, &wide);
    if (!code) *out = (unsigned int)wide;
    return code;
}

static int start(const char *name) {
    int code = enter(name, NULL);
    if (code) return code;
    pthread_mutex_lock(&lock);
    users++;
    pthread_mutex_unlock(&lock);
    return OK;
}

int nvmlInit_v2(void) { return start("nvmlInit_v2"); }
int nvmlInitWithFlags(unsigned int flags) { (void)flags; return start("nvmlInitWithFlags"); }

int nvmlShutdown(void) {
    ENTER(NULL);
    pthread_mutex_lock(&lock);
    users--;
    pthread_mutex_unlock(&lock);
    return OK;
}

const char *nvmlErrorString(int code) { return code == OK ? "Success" : "an error of the stub"; }

int nvmlSystemGetDriverVersion(char *out, unsigned int size) {
    ENTER(NULL);
    copy(out, size, state.driver);
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned int *out) {
    ENTER(NULL);
    *out = (unsigned int)state.devices;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, handle_t **out) {
    if (index >= MAX_DEVICES) return INVALID_ARGUMENT;
    handles[index].device = (int)index;
    handles[index].slice = -1;
    ENTER(&handles[index]);
    if ((int)index >= state.devices) return INVALID_ARGUMENT;
    *out = &handles[index];
    return OK;
}

int nvmlDeviceGetUUID(handle_t *device, char *out, unsigned int size) {
    DEVICE(device);
    const char *uuid = device->slice >= 0 ? state.slices[device->device][device->slice] : value(device, "uuid");
    if (!uuid) return NOT_SUPPORTED;
    copy(out, size, uuid);
    return OK;
}

int nvmlDeviceGetName(handle_t *device, char *out, unsigned int size) {
    DEVICE(device);
    const char *name = value(device, "name");
    if (!name) return NOT_SUPPORTED;
    copy(out, size, name);
    return OK;
}

int nvmlDeviceGetPciInfo_v3(handle_t *device, nvmlPciInfo_t *out) {
    DEVICE(device);
    const char *bus = value(device, "pci");
    if (!bus) return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    copy(out->busId, sizeof out->busId, bus);
    sscanf(bus, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    return OK;
}

int nvmlDeviceGetMemoryInfo(handle_t *device, nvmlMemory_t *out) {
    DEVICE(device);
    unsigned long long used = 0, reserved = 0;
    int code = number(device, "mem_total", &out->total);
    if (code) return code;
    number(device, "mem_used", &used);
    number(device, "mem_reserved", &reserved);
    out->used = used + reserved;
    out->free = out->total - out->used;
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(handle_t *device, nvmlMemory_v2_t *out) {
    DEVICE(device);
    if (out->version != 0x02000028) return VERSION_MISMATCH;
    int code = number(device, "mem_total", &out->total);
    if (code) return code;
    out->used = out->reserved = 0;
    number(device, "mem_used", &out->used);
    number(device, "mem_reserved", &out->reserved);
    out->free = out->total - out->used - out->reserved;
    return OK;
}

int nvmlDeviceGetUtilizationRates(handle_t *device, nvmlUtilization_t *out) {
    DEVICE(device);
    int code = small(device, "util", &out->gpu);
    if (code) return code;
    out->memory = 0;
    small(device, "mem_util", &out->memory);
    return OK;
}

int nvmlDeviceGetPowerUsage(handle_t *device, unsigned int *out) { DEVICE(device); return small(device, "power", out); }
int nvmlDeviceGetEnforcedPowerLimit(handle_t *device, unsigned int *out) { DEVICE(device); return small(device, "limit", out); }

int nvmlDeviceGetTemperature(handle_t *device, int sensor, unsigned int *out) {
    DEVICE(device);
    return sensor ? INVALID_ARGUMENT : small(device, "temp", out);
}

int nvmlDeviceGetClockInfo(handle_t *device, int kind, unsigned int *out) {
    DEVICE(device);
    return small(device, kind == 1 ? "sm_clock" : kind == 2 ? "mem_clock" : "other_clock", out);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(handle_t *device, unsigned long long *out) {
    DEVICE(device);
    return number(device, "reasons", out);
}

#ifndef OLD_DRIVER
int nvmlDeviceGetCurrentClocksEventReasons(handle_t *device, unsigned long long *out) {
    DEVICE(device);
    return number(device, "reasons", out);
}
#endif

/* "energy" in mJ, and "energy_w": what it rises by with time, in watts. */
int nvmlDeviceGetTotalEnergyConsumption(handle_t *device, unsigned long long *out) {
    DEVICE(device);
    unsigned long long watts = 0;
    int code = number(device, "energy", out);
    if (!code && !number(device, "energy_w", &watts)) *out += (unsigned long long)(now_us() * watts / 1e3);
    return code;
}

int nvmlDeviceGetPcieThroughput(handle_t *device, int counter, unsigned int *out) {
    DEVICE(device);
    return small(device, counter ? "pcie_rx_kb_s" : "pcie_tx_kb_s", out);
}

int nvmlDeviceGetFieldValues(handle_t *device, int count, nvmlFieldValue_t *values) {
    DEVICE(device);
    for (int i = 0; i < count; i++) {
        const char *key = values[i].fieldId == 197 ? "pcie_tx" : values[i].fieldId == 198 ? "pcie_rx" : "other_field";
        values[i].valueType = 3;
        values[i].nvmlReturn = (unsigned int)number(device, key, &values[i].value.ull);
    }
    return OK;
}

int nvmlDeviceGetTotalEccErrors(handle_t *device, int type, int counter, unsigned long long *out) {
    DEVICE(device);
    return type == 1 && counter == 0 ? number(device, "ecc", out) : INVALID_ARGUMENT;
}

int nvmlDeviceGetMigMode(handle_t *device, unsigned int *current, unsigned int *pending) {
    DEVICE(device);
    int code = small(device, "mig", current);
    *pending = *current;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(handle_t *device, unsigned int *out) {
    DEVICE(device);
    *out = (unsigned int)state.slice_count[device->device];
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(handle_t *device, unsigned int index, handle_t **out) {
    DEVICE(device);
    if ((int)index >= state.slice_count[device->device]) return NOT_FOUND;
    handle_t *slice = &slice_handles[device->device][index];
    slice->device = device->device;
    slice->slice = (int)index;
    *out = slice;
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(handle_t *device, unsigned int *count, nvmlProcessInfo_t *out) {
    DEVICE(device);
    unsigned int found = 0;
    for (int i = 0; i < state.process_count; i++) {
        if (state.processes[i].device != device->device) continue;
        if (out && found < *count)
            out[found] = (nvmlProcessInfo_t){state.processes[i].pid, state.processes[i].bytes, 0xFFFFFFFF, 0xFFFFFFFF};
        found++;
    }
    int code = found > (out ? *count : 0) ? INSUFFICIENT_SIZE : OK;
    *count = found;
    return code;
}

int nvmlEventSetCreate(void **out) {
    ENTER(NULL);
    *out = &state;
    return OK;
}

int nvmlEventSetFree(void *set) {
    ENTER(NULL);
    return set ? OK : INVALID_ARGUMENT;
}

int nvmlDeviceRegisterEvents(handle_t *device, unsigned long long types, void *set) {
    DEVICE(device);
    return types && set ? OK : INVALID_ARGUMENT;
}

int nvmlEventSetWait_v2(void *set, nvmlEventData_t *out, unsigned int timeout_ms) {
    ENTER(NULL);
    if (!set) return INVALID_ARGUMENT;
    for (int i = 0; i < state.xid_count; i++) {
        if (state.xids[i].sequence <= last_xid) continue;
        last_xid = state.xids[i].sequence;
        *out = (nvmlEventData_t){&handles[state.xids[i].device], 8, state.xids[i].code, 0, 0};
        return OK;
    }
    usleep(1000 * timeout_ms);
    return TIMEOUT;
}

/* An OpenCL driver that goes wrong: LOADED runs when it is loaded; then it is the driver in BEHIND, with other answers.
 *
 * A platform begins with the address of the table of its functions, in the order of the Khronos loader's cl_icd.h.
 * DEVICE_INFO, QUEUE and PROFILING replace the driver's clGetDeviceInfo, queues and clGetEventProfilingInfo. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GET_DEVICE_INFO = 3, CREATE_QUEUE = 9, GET_EVENT_PROFILING_INFO = 45, CREATE_QUEUE_WITH_PROPERTIES = 123 };
enum { INVALID_QUEUE_PROPERTIES = -35, PROFILING_INFO_NOT_AVAILABLE = -7, QUEUE_PROPERTIES = 0x1093, PROFILING = 2 };

typedef void *Any;
typedef int (*DeviceInfo)(Any, uint32_t, size_t, void *, size_t *);
typedef Any (*CreateQueue)(Any, Any, uint64_t, int *);
typedef Any (*CreateQueueWithProperties)(Any, Any, const uint64_t *, int *);
typedef int (*Platforms)(uint32_t, Any *, uint32_t *);

static Any *table;
static DeviceInfo device_info;
static CreateQueue create_queue;
static CreateQueueWithProperties create_queue_with_properties;

#ifdef LOADED
__attribute__((constructor)) static void loaded(void) { LOADED; }
#endif

/* Zeros and empty lists: units 0x1002, dimensions 0x1003, group 0x1004, items 0x1005, memory 0x100D to 0x1023. */
static int zeros(Any device, uint32_t name, size_t size, void *value, size_t *used) {
  size_t length = 0;
  int status = device_info(device, name, size, value, &length);
  if (name == 0x1005) length = 0;
  else if (value && (name == 0x1002 || name == 0x1003 || name == 0x1004 || name == 0x1010 || name == 0x101F ||
                     name == 0x1023 || name == 0x1011 || name == 0x1012))
    memset(value, 0, length);
  if (used) *used = length;
  return status;
}

static Any queue(Any context, Any device, uint64_t properties, int *status) {
  if (!(properties & PROFILING)) return create_queue(context, device, properties, status);
  if (status) *status = INVALID_QUEUE_PROPERTIES;
  return NULL;
}

static Any queue_with_properties(Any context, Any device, const uint64_t *properties, int *status) {
  for (const uint64_t *at = properties; at && *at; at += 2)
    if (*at == QUEUE_PROPERTIES && at[1] & PROFILING) {
      if (status) *status = INVALID_QUEUE_PROPERTIES;
      return NULL;
    }
  return create_queue_with_properties(context, device, properties, status);
}

static int profiling(Any event, uint32_t name, size_t size, void *value, size_t *used) {
  return PROFILING_INFO_NOT_AVAILABLE;
}

static void replace(int index, Any by, Any *before) {
  uintptr_t page = (uintptr_t)&table[index] & -4096;
  mprotect((void *)page, 8192, PROT_READ | PROT_WRITE);
  if (before) *before = table[index];
  table[index] = by;
}

static Any behind(const char *name) {
  static Any library;
  if (!library && getenv("BEHIND")) library = dlopen(getenv("BEHIND"), RTLD_NOW | RTLD_LOCAL);
  return library ? dlsym(library, name) : NULL;
}

static int platforms(uint32_t count, Any *found, uint32_t *number) {
  Any (*address)(const char *) = behind("clGetExtensionFunctionAddress");
  int status = address ? ((Platforms)address("clIcdGetPlatformIDsKHR"))(count, found, number) : -1001;
  if (!status && found && count && !table) {
    table = *(Any **)found[0];
    if (getenv("ZEROS")) replace(GET_DEVICE_INFO, zeros, (Any *)&device_info);
    if (getenv("NO_QUEUE")) {
      replace(CREATE_QUEUE, queue, (Any *)&create_queue);
      replace(CREATE_QUEUE_WITH_PROPERTIES, queue_with_properties, (Any *)&create_queue_with_properties);
    }
    if (getenv("NO_PROFILING")) replace(GET_EVENT_PROFILING_INFO, profiling, NULL);
  }
  return status;
}

int clGetPlatformInfo(Any platform, uint32_t name, size_t size, void *value, size_t *used) {
  int (*info)(Any, uint32_t, size_t, void *, size_t *) = behind("clGetPlatformInfo");
  return info ? info(platform, name, size, value, used) : -32;
}

Any clGetExtensionFunctionAddress(const char *name) {
  if (!strcmp(name, "clIcdGetPlatformIDsKHR")) return platforms;
  Any (*address)(const char *) = behind("clGetExtensionFunctionAddress");
  return address ? address(name) : NULL;
}

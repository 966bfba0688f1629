"""A stand-in for NVIDIA's management library, as C: two devices that are read through the same functions as real ones."""

import shutil
import subprocess
from pathlib import Path

# Device 0 draws 612.4 W at 64 °C; device 1 has ECC errors and reports Xid 31, then 79.
OLD = """
#include <string.h>
typedef struct { unsigned gpu, memory; } rates;
typedef struct { unsigned long long total, free, used; } memory;
static int devices[2] = {0, 1};
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { if (i > 1) return 2; *h = &devices[i]; return 0; }
int nvmlDeviceGetHandleByUUID(const char *u, void **h) { if (strcmp(u, "MIG-abc")) return 6; *h = &devices[1]; return 0; }
int nvmlDeviceGetUtilizationRates(void *h, rates *r) { r->gpu = *(int *)h ? 75 : 10; return 0; }
int nvmlDeviceGetMemoryInfo(void *h, memory *m) { m->used = *(int *)h ? 5ULL << 32 : 1; m->total = 80ULL << 30; return 0; }
"""
NEWER = (
    OLD
    + """
typedef struct { void *device; unsigned long long type, data; unsigned gi, ci; } event;
static int told = 0, watched = 0;
int nvmlDeviceGetPowerUsage(void *h, unsigned *w) { if (*(int *)h) return 3; *w = 612400; return 0; }
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *t) { if (sensor) return 2; *t = *(int *)h ? 41 : 64; return 0; }
int nvmlDeviceGetTotalEccErrors(void *h, int kind, int since, unsigned long long *n) {
    if (kind != 1 || since) return 2; *n = *(int *)h ? 3 : 0; return 0;
}
int nvmlEventSetCreate(void **set) { *set = &told; return 0; }
int nvmlDeviceRegisterEvents(void *h, unsigned long long types, void *set) { if (types != 8) return 2; watched++; return 0; }
int nvmlEventSetWait_v2(void *set, event *e, unsigned ms) {
    if (ms || watched < 2 || told > 1) return 10;
    e->device = &devices[1]; e->type = 8; e->data = told++ ? 79 : 31; return 0;
}
"""
)
# Eight busy devices, one of which does nothing: what pictures are taken of.
BUSY = """
#include <math.h>
#include <time.h>
typedef struct { unsigned gpu, memory; } rates;
typedef struct { unsigned long long total, free, used; } memory;
static int devices[8] = {0, 1, 2, 3, 4, 5, 6, 7};
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { if (i > 7) return 2; *h = &devices[i]; return 0; }
static double wave(void *h) { return sin(time(0) / 7.0 + 1.7 * *(int *)h); }
int nvmlDeviceGetUtilizationRates(void *h, rates *r) { r->gpu = *(int *)h == 3 ? 0 : 93 + (int)(4 * wave(h)); return 0; }
int nvmlDeviceGetMemoryInfo(void *h, memory *m) { m->total = 80ULL << 30; m->used = (61ULL << 30) + ((unsigned long long)*(int *)h << 28); return 0; }
int nvmlDeviceGetPowerUsage(void *h, unsigned *w) { *w = *(int *)h == 3 ? 118000 : 640000 + (int)(20000 * wave(h)); return 0; }
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *t) { *t = *(int *)h == 3 ? 38 : 63 + (int)(2 * wave(h)); return 0; }
"""


def build(source: str, folder: Path, name: str = "libnvidia-ml.so.1") -> Path | None:
    """Compile it into `folder`; None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    (folder / "fake.c").write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / name, folder / "fake.c", "-lm"], check=True)
    return folder / name

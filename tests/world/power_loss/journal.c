/* Journal of what a process writes to a database and its log, for LD_PRELOAD: enough to undo and redo every write that
 * no fsync followed. `losses.py` reads it after the process was killed and decides what a power cut leaves.
 *
 * POWER_LOSS_DATABASE  path of the database; its log is the same path with "-wal"
 * POWER_LOSS_JOURNAL   path of the journal, appended to
 *
 * A record: char kind ('w' write, 't' truncate, 's' sync), char file ('d' database, 'l' log), then as uint64: offset,
 * size of the file before, number of bytes, number of old bytes; then the old bytes and the new bytes. A record is
 * written before its change, so a kill between the two leaves a change that has not happened, and undoing it is
 * harmless. The record of a sync is written after it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static int journal = -1;

struct header {
    char kind, file;
    uint64_t offset, size, bytes, old_bytes;
} __attribute__((packed));

/* 'd', 'l', or 0 for a file that is of no interest. */
static char file_of(int fd) {
    const char *database = getenv("POWER_LOSS_DATABASE");
    char link[64], path[PATH_MAX];
    if (database == NULL)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    size_t stem = strlen(database);
    if (strncmp(path, database, stem) != 0)
        return 0;
    if (path[stem] == 0)
        return 'd';
    return strcmp(path + stem, "-wal") == 0 ? 'l' : 0;
}

static void put(const void *bytes, size_t count) {
    const char *at = bytes;
    while (count > 0) {
        ssize_t done = syscall(SYS_write, journal, at, count);
        if (done <= 0)
            abort();
        at += done;
        count -= (size_t)done;
    }
}

/* A record is one append of a buffer: a kill can cut off its end, but never mix two of them. */
static void record(char kind, char file, int fd, uint64_t offset, const void *new, uint64_t bytes, uint64_t old_bytes) {
    struct stat found;
    if (journal < 0) {
        journal = (int)syscall(SYS_openat, AT_FDCWD, getenv("POWER_LOSS_JOURNAL"), O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (journal < 0)
            abort();
    }
    if (fstat(fd, &found) != 0)
        abort();
    char *buffer = malloc(sizeof(struct header) + old_bytes + bytes);
    if (buffer == NULL)
        abort();
    char *old = buffer + sizeof(struct header);
    ssize_t had = old_bytes ? syscall(SYS_pread64, fd, old, old_bytes, offset) : 0;
    if (had < 0)
        abort();
    struct header made = {kind, file, offset, (uint64_t)found.st_size, bytes, (uint64_t)had};
    memcpy(buffer, &made, sizeof made);
    if (new != NULL)
        memcpy(old + had, new, bytes);
    put(buffer, sizeof made + (size_t)had + (new != NULL ? bytes : 0));
    free(buffer);
}

static ssize_t pwritten(int fd, const void *bytes, size_t count, off64_t offset) {
    char file = file_of(fd);
    if (!file)
        return syscall(SYS_pwrite64, fd, bytes, count, offset);
    pthread_mutex_lock(&order);
    record('w', file, fd, (uint64_t)offset, bytes, count, count);
    ssize_t done = syscall(SYS_pwrite64, fd, bytes, count, offset);
    pthread_mutex_unlock(&order);
    return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) { return pwritten(fd, bytes, count, offset); }
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) { return pwritten(fd, bytes, count, offset); }

ssize_t write(int fd, const void *bytes, size_t count) {
    if (file_of(fd))
        abort(); /* SQLite writes at an offset; a plain write would go unrecorded */
    return syscall(SYS_write, fd, bytes, count);
}

static int truncated(int fd, off64_t size) {
    char file = file_of(fd);
    struct stat found;
    if (!file)
        return (int)syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&order);
    if (fstat(fd, &found) != 0)
        abort();
    uint64_t cut = found.st_size > size ? (uint64_t)(found.st_size - size) : 0;
    record('t', file, fd, (uint64_t)size, NULL, 0, cut);
    int done = (int)syscall(SYS_ftruncate, fd, size);
    pthread_mutex_unlock(&order);
    return done;
}

int ftruncate(int fd, off_t size) { return truncated(fd, size); }
int ftruncate64(int fd, off64_t size) { return truncated(fd, size); }

static int synced(int fd, long call) {
    char file = file_of(fd);
    if (!file)
        return (int)syscall(call, fd);
    /* Held across the call: no write of another thread may come between the sync and its record. */
    pthread_mutex_lock(&order);
    int done = (int)syscall(call, fd);
    if (done == 0)
        record('s', file, fd, 0, NULL, 0, 0);
    pthread_mutex_unlock(&order);
    return done;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

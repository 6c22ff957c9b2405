// base/io.h - files: the calls that open, lock, map and change them behind one
// table, files that appear whole or not at all, and whole reads.
//
// Tests replace the table or arm the fault injector; nothing else does.
#ifndef HKI_IO_H
#define HKI_IO_H
#include <sys/types.h>
#include "base/base.h"

// ---- the table -------------------------------------------------------------

// Each call works like the system's of the same name: -1 and errno.
typedef struct hki_io_table {
    int (*open)(const char *path, int flags, unsigned mode);
    int (*close)(int fd);
    int (*lock)(int fd, bool is_shared); // flock; does not wait
    ssize_t (*write)(int fd, const void *bytes, size_t size);
    ssize_t (*pwrite)(int fd, const void *bytes, size_t size, int64_t offset);
    int (*truncate)(int fd, int64_t size); // ftruncate
    int (*allocate)(int fd, int64_t size); // posix_fallocate from 0 on
    int (*fsync)(int fd);                  // of a file
    // mmap to read and write; is_private: what is changed stays in memory. fd
    // -1: memory of no file.
    void *(*map)(int fd, size_t size, bool is_private);
    int (*unmap)(void *at, size_t size); // munmap
    int (*msync)(void *at, size_t size); // of whole pages, waits for the disk
    int (*memory)(const char *name);     // memfd_create: for other processes
    int (*rename)(const char *from, const char *to);
    int (*unlink)(const char *path);
    int (*mkdir)(const char *path, unsigned mode);
    int (*fsync_dir)(const char *path);
} hki_io_table;

// The table in use, through which library code makes every such call.
const hki_io_table *hki_io(void);
// The system's own, for tables that wrap it.
extern const hki_io_table hki_io_system;
// NULL: the system's own. Not while other threads write files.
void hki_io_replace(const hki_io_table *table);

typedef enum hki_io_fault {
    HKI_IO_ONE_FAILS = 1, // the n-th call fails, later ones work
    HKI_IO_POWER_CUT = 2  // the n-th call and every later one fail
} hki_io_fault;

// Arms the injector: the nth call from now that opens or changes a file fails
// with `error` (an errno); 0 disarms. A write that fails has written half of
// its bytes. Closing, locking and unmapping always work.
void hki_io_fail_at(uint64_t nth, hki_io_fault fault, int error);
bool hki_io_fault_hit(void); // the armed fault has fired
uint64_t hki_io_count(void); // calls since the injector was last armed

// ---- errors ----------------------------------------------------------------

// HK_E_NOT_FOUND, HK_E_EXISTS, HK_E_DENIED, HK_E_NO_MEMORY (of memory, not of
// the disk) or HK_E_IO by errno `error`, with the message
// "<path>: cannot <verb>: <the system's text>".
hk_status hki_io_fail(int error, const char *path, const char *verb);

// ---- reading ---------------------------------------------------------------

// Length of an open regular file. HK_E_DATA for anything else.
hk_status hki_file_length(int fd, const char *path, uint64_t *bytes);
// Opens a regular file for reading. *size: its length now.
hk_status hki_file_open_read(const char *path, int *fd, uint64_t *size);
// The same for a private file (below); HK_E_DENIED for a link.
hk_status hki_file_open_private(const char *path, int *fd, uint64_t *size);
void hki_file_close_read(int fd); // negative: nothing
// Exactly size bytes from offset on; thread-safe. HK_E_DATA when the file
// ends before (somebody cut it).
hk_status hki_file_read_at(int fd, const char *path, uint64_t offset,
                           void *bytes, size_t size);
// The part of a file that is in memory, for those who go through it.
typedef struct hki_excerpt {
    const char *path; // borrowed
    int fd;           // -1: none
    uint64_t size;    // of the file
    uint64_t offset;  // of the first of n bytes
    uint8_t *bytes;
    size_t n, room;
} hki_excerpt;
#define HKI_EXCERPT ((size_t)256 << 10) // bytes that are read at least
hk_status hki_excerpt_open(hki_excerpt *w, const char *path);
// Closes the file; the memory stays for the next one.
void hki_excerpt_close(hki_excerpt *w);
// n bytes from offset on, which the file has; they stay until the next call.
hk_status hki_excerpt_get(hki_excerpt *w, uint64_t offset, size_t n,
                          const uint8_t **out);
// A whole file of at most `limit` bytes, freed with hki_free; a NUL follows.
hk_status hki_file_read_all(const char *path, size_t limit, uint8_t **bytes,
                            size_t *size);
hk_status hki_file_read_private(const char *path, size_t limit, uint8_t **bytes,
                                size_t *size);
bool hki_path_exists(const char *path);
bool hki_path_is_dir(const char *path);
// Where the last component begins: "run/a" -> "a".
const char *hki_path_name(const char *path);
// The folder that holds path ("." when it has none), in fresh memory.
hk_status hki_path_folder(const char *path, char **out);

// ---- mount.c ---------------------------------------------------------------

#define HKI_MOUNT_TYPE 32
// The type of the file system that path lies on, as the system calls it
// ("ext4", "nfs4", "fuse.sshfs"); "" when it does not tell.
void hki_mount_type(const char *path, char type[HKI_MOUNT_TYPE]);
// The same from the text of /proc/self/mountinfo, by device number.
void hki_mount_find(const char *text, unsigned major, unsigned minor,
                    char type[HKI_MOUNT_TYPE]);
// Whether files of that type need new space when they are written over.
bool hki_mount_is_copy_on_write(const char *type);
// Whether files of that type lie on another machine.
bool hki_mount_is_network(const char *type);

// ---- writing ---------------------------------------------------------------
//
// A file under way has the name ".<name>.hooke-tmp" in the folder of its path
// and is locked by its writer; one that nobody locks is what a crash left.

#define HKI_TEMP_SUFFIX ".hooke-tmp"

typedef struct hki_file hki_file; // opaque

// Starts a file that will be called path. HK_E_EXISTS when another writer is
// at it; what a crash left is taken over.
hk_status hki_file_create(const char *path, hki_file **out);
// The same for its owner's eyes: mode 0600 from its first byte on. HK_E_DENIED
// when a file of another user lies in its way.
hk_status hki_file_create_private(const char *path, hki_file **out);
// What makes it so: for an open file that a crash may have left, or somebody
// laid out.
hk_status hki_file_make_private(int fd, const char *path);
hk_status hki_file_write(hki_file *f, const void *bytes, size_t size);
// Over bytes that were written before.
hk_status hki_file_write_at(hki_file *f, uint64_t offset, const void *bytes,
                            size_t size);
uint64_t hki_file_size(const hki_file *f); // bytes appended so far
// Makes an open file so long, without holes, if it is shorter or has some: a
// hole that is mapped ends the process when the disk is full.
hk_status hki_file_reserve(int fd, const char *path, uint64_t bytes);
// The same in an open file that has its name.
hk_status hki_file_write_over(int fd, const char *path, uint64_t offset,
                              const void *bytes, size_t size);
// Makes an open file so long, without holes, if it is shorter or has some: a
// hole that is mapped ends the process when the disk is full.
hk_status hki_file_reserve(int fd, const char *path, uint64_t bytes);
// Gives the file its name; f is freed, also after a failure (nothing of it
// stays then). durable: fsync before the rename; the folder's fsync is the
// caller's (hki_sync_folder), once for several files.
hk_status hki_file_commit(hki_file *f, bool durable);
// The same after HK_OK; after a failure s discards it and returns s.
hk_status hki_file_end(hki_file *f, hk_status s, bool durable);
void hki_file_discard(hki_file *f); // removes it; NULL is allowed
HKI_SCOPED_HANDLE(hki_file, hki_file_discard)
// is_private: both files as hki_file_open_private and _create_private do.
hk_status hki_file_copy(const char *from, const char *to, bool is_private,
                        bool durable);

// mkdir -p.
hk_status hki_folder_make(const char *path);
// fsync of the folder that holds path.
hk_status hki_sync_folder(const char *path);
// All of it in one: create, write, commit, fsync of the folder.
hk_status hki_file_replace(const char *path, const void *bytes, size_t size,
                           bool durable);
hk_status hki_file_replace_private(const char *path, const void *bytes,
                                   size_t size, bool durable);
// A list of names or paths. A zeroed struct is an empty one.
typedef struct hki_paths {
    char **items;
    size_t count;
} hki_paths;

hk_status hki_paths_add(hki_paths *p, const char *path); // copied
bool hki_paths_have(const hki_paths *p, const char *path);
void hki_paths_sort(hki_paths *p, size_t from); // items from there on, by bytes
void hki_paths_deinit(hki_paths *p);

// Calls visit with "<folder>/<name>" for all that is in the folder, in no
// order, until one fails. What is visited may be removed.
typedef hk_status (*hki_path_fn)(void *user, const char *path);
hk_status hki_folder_each(const char *folder, hki_path_fn visit, void *user);
// The same as a list by name.
hk_status hki_folder_list(const char *folder, hki_paths *out);

// Removes a file; one that is not there is fine.
hk_status hki_file_remove(const char *path);
// Removes every file under way in the folder that nobody locks. removed: NULL
// allowed.
hk_status hki_clear_temporary(const char *folder, size_t *removed);
// Those only that mine(user, name) claims by the name they would have got.
hk_status hki_clear_temporary_of(const char *folder,
                                 bool (*mine)(void *user, const char *name),
                                 void *user, size_t *removed);

#endif // HKI_IO_H

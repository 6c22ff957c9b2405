// mount.c - what kind of file system a path lies on.
//
// A line of mountinfo:
//
//     36 35 0:52 / /home rw,relatime shared:1 - nfs4 server:/home rw,...
//
// The third word is the number that stat gives every file of the mount, the
// word behind " - " its type. FUSE tells there who serves it.
#include "base/io.h"
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define MOUNTS_MOST ((size_t)4 << 20)

static bool line_type(const char *line, size_t size, unsigned major,
                      unsigned minor, char type[HKI_MOUNT_TYPE]) {
    char text[1024], device[32];
    int at = 0;
    snprintf(text, sizeof text, "%.*s", (int)HKI_MIN(size, sizeof text - 1),
             line);
    snprintf(device, sizeof device, "%u:%u ", major, minor);
    sscanf(text, "%*u %*u %n", &at);
    const char *const tail = strstr(text, " - ");
    if (tail == NULL || strncmp(text + at, device, strlen(device)) != 0)
        return false;
    return sscanf(tail, " - %31s", type) == 1;
}

void hki_mount_find(const char *text, unsigned major, unsigned minor,
                    char type[HKI_MOUNT_TYPE]) {
    type[0] = '\0';
    while (*text != '\0') {
        const size_t size = strcspn(text, "\n");
        if (line_type(text, size, major, minor, type))
            return;
        text += size + (text[size] == '\n');
    }
}

// The file has no size: it is read to its end.
static bool read_mounts(hki_buf *out) {
    FILE *const f = fopen("/proc/self/mountinfo", "re");
    char block[4096];
    bool good = f != NULL;
    for (size_t n = 1; good && n > 0 && out->size < MOUNTS_MOST;) {
        n = fread(block, 1, sizeof block, f);
        good = hki_buf_add(out, block, n) == HK_OK;
    }
    if (f != NULL)
        fclose(f);
    return good && hki_buf_add(out, "", 1) == HK_OK;
}

void hki_mount_type(const char *path, char type[HKI_MOUNT_TYPE]) {
    struct stat st;
    hki_buf text = {0};
    type[0] = '\0';
    if (stat(path, &st) == 0 && read_mounts(&text))
        hki_mount_find(text.data, major(st.st_dev), minor(st.st_dev), type);
    hki_buf_deinit(&text);
}

bool hki_mount_is_copy_on_write(const char *type) {
    static const char *const kinds[] = {"btrfs", "zfs", "bcachefs", "nilfs2"};
    for (size_t i = 0; i < HKI_COUNT(kinds); i++)
        if (strcmp(type, kinds[i]) == 0)
            return true;
    return false;
}

bool hki_mount_is_network(const char *type) {
    static const char *const kinds[] = {
        "nfs",           "nfs4",
        "cifs",          "smb3",
        "smbfs",         "ceph",
        "lustre",        "gpfs",
        "beegfs",        "afs",
        "coda",          "ncpfs",
        "pvfs2",         "orangefs",

        "glusterfs",     "panfs",
        "wekafs",        "fuse.sshfs",
        "fuse.s3fs",     "fuse.glusterfs",
        "fuse.ceph",     "fuse.ceph-fuse",
        "fuse.rclone",   "fuse.gcsfuse",
        "fuse.goofys",   "fuse.juicefs",
        "fuse.blobfuse", "fuse.davfs",
        "fuse.lizardfs", "fuse.moosefs",
        "fuse.mfs",      "fuse.seaweedfs",
        "fuse.hdfs",     "fuse.curlftpfs",
        "fuse.cephfs",   "fuse.blobfuse2",
        "fuse.davfs2",   "fuse.mount-s3",
        "fuse.smbnetfs", "fuse.alluxio",
    };
    for (size_t i = 0; i < HKI_COUNT(kinds); i++)
        if (strcmp(type, kinds[i]) == 0)
            return true;
    return false;
}

// processes.h - training over several processes: roles of a cluster, and a
// cluster of one machine started by one command.
#ifndef CLI_PROCESSES_H
#define CLI_PROCESSES_H
#include "experiment/experiment.h"

// Who this process is: flags of the command line, then the environment. role:
// NULL for what these say. 0 or an exit code after a message.
int cluster_config(const cli_args *a, const char *role,
                   hk_cluster_config **out);

int role_center(const cli_args *a, const hk_cluster_config *c);
int role_worker(const cli_args *a, const hk_cluster_config *c);
int role_evaluator(const cli_args *a, const hk_cluster_config *c);

// The role that a launcher gives; *is_cluster false: there is none.
int run_cluster(const cli_args *a, bool *is_cluster);
int run_processes(const cli_args *a); // center and workers as children

#define CLUSTER_OPTIONS                                                        \
    CLI_OPTION("center", 0, CLI_STRING, "ADDRESSES",                           \
               "addresses of all centers, separated by commas: host:port, "    \
               "unix:PATH or shm:PATH"),                                       \
        CLI_OPTION("center-dns", 0, CLI_STRING, "PATTERN",                     \
                   "addresses of all centers as a pattern: ps-{i}.svc:2222"),  \
        CLI_OPTION("index", 0, CLI_STRING, "N",                                \
                   "index of this process among the processes of its role; "   \
                   "the word hostname stands for the number at the end of "    \
                   "the host's name"),                                         \
        LAUNCH_OPTIONS
#define LAUNCH_OPTIONS                                                         \
    CLI_OPTION("center-count", 0, CLI_INT, "N",                                \
               "number of centers: of those that --center-dns addresses, or, " \
               "under torchrun, Slurm or MPI, of the first ranks that run a "  \
               "center"),                                                      \
        CLI_OPTION("port", 0, CLI_INT, "N",                                    \
                   "under torchrun, Slurm or MPI: port of center 0; center i " \
                   "uses port N + i"),                                         \
        CLI_OPTION("hostfile", 0, CLI_FILE, "FILE",                            \
                   "file with the hosts of the MPI ranks"),                    \
        CLI_CHOICES("launcher", 0, "flags|tf_config|torchrun|slurm|mpi|none",  \
                    "uses this launcher only; default: all are checked"),      \
        CLI_OPTION("key", 0, CLI_FILE, "FILE",                                 \
                   "file of the cluster key, from hooke keygen"),              \
        CLI_SWITCH("insecure", 0,                                              \
                   "allows connections without a key: to other hosts, or "     \
                   "between users of this host"),                              \
        CLI_OPTION("metrics", 0, CLI_STRING, "HOST:PORT",                      \
                   "serves /metrics and /status at this address; port 0 "      \
                   "selects a free port")
#define CENTER_OPTIONS                                                         \
    CLI_OPTION("center-file", 'f', CLI_FILE, "FILE",                           \
               "file of the center, which survives kill -9 and restarts; "     \
               "default: center.bin in the model_dir; none: memory only"),     \
        CLI_OPTION("durability", 0, CLI_STRING, "POLICY",                      \
                   "process, snapshot:SECONDS or always; default process"),    \
        CLI_OPTION("linger", 0, CLI_FLOAT, "S",                                \
                   "seconds that the center waits without a worker before it " \
                   "ends; default 300"),                                       \
        CLI_OPTION("reset-worker", 0, CLI_INT, "N",                            \
                   "resets worker N in the center file, if its index is "      \
                   "refused although no other process uses it")
#define CONNECT_OPTION                                                         \
    CLI_OPTION("connect", 0, CLI_FLOAT, "S",                                   \
               "seconds to wait for the centers to start; default 60")

#endif // CLI_PROCESSES_H

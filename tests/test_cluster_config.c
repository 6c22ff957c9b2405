// test_cluster_config.c - TF_CONFIG in all its forms, and every launcher's
// variables translated to it. The environment is a table, not the process's.
#include "hk_test.h"
#include "launch/launch.h"

// ---- an environment of lines "NAME=value" ----------------------------------

typedef struct world {
    const char *env;   // lines; a value runs to the end of its line
    const char *file;  // what the hostfile holds; NULL: there is none
    char values[8192]; // what was handed out, one after the other
    size_t used;
} world;

static const char *json_of(const hk_cluster_config *c) {
    hk_cluster_info info;
    hk_cluster_config_get_info(c, &info);
    return info.json;
}

static const char *explain_of(const hk_cluster_config *c) {
    hk_cluster_info info;
    hk_cluster_config_get_info(c, &info);
    return info.explain;
}

static const char *world_getenv(void *user, const char *name) {
    world *const w = user;
    const size_t length = strlen(name);
    for (const char *p = w->env; p != NULL && *p != '\0';) {
        const char *const end = p + strcspn(p, "\n");
        if ((size_t)(end - p) > length && strncmp(p, name, length) == 0 &&
            p[length] == '=') {
            const size_t n = (size_t)(end - p) - length - 1;
            assert_true(n < sizeof w->values - w->used);
            char *const value = w->values + w->used;
            memcpy(value, p + length + 1, n);
            value[n] = '\0';
            w->used += n + 1;
            return value;
        }
        p = *end == '\0' ? end : end + 1;
    }
    return NULL;
}

static hk_status world_read(void *user, const char *path, char *buf,
                            size_t capacity, size_t *size) {
    const world *const w = user;
    if (w->file == NULL)
        return hki_fail(HK_E_IO, "hostfile %s: No such file", path);
    *size = HKI_MIN(strlen(w->file), capacity);
    memcpy(buf, w->file, *size);
    return HK_OK;
}

static void world_options(world *w, hk_cluster_options *o) {
    hk_cluster_options_init(o, sizeof *o);
    o->getenv = world_getenv;
    o->read_file = world_read;
    o->user = w;
}

// ---- S25: RunConfig's view of TF_CONFIG ------------------------------------

#define C_JOBS                                                                 \
    "\"ps\":[\"host1:1\",\"host2:2\"],"                                        \
    "\"worker\":[\"host3:3\",\"host4:4\",\"host5:5\"]"
#define C_CLUSTER "\"cluster\":{\"chief\":[\"host0:0\"]," C_JOBS "}"
#define C_MASTER "\"cluster\":{\"master\":[\"host0:0\"]," C_JOBS "}"
#define BIG                                                                    \
    "\"cluster\":{\"chief\":[\"a:1\"],\"worker\":[\"b:1\",\"b:2\",\"b:3\"],"   \
    "\"ps\":[\"c:1\",\"c:2\",\"c:3\"]"
#define TASK(type, index) "\"task\":{\"type\":\"" type "\",\"index\":" index "}"

static const struct view {
    const char *name, *tf;
    const char *type;
    int32_t index;
    const char *master, *evaluation_master;
    uint32_t is_chief, workers, ps;
    int32_t global_id;
} views[] = {
    {"absent", NULL, "worker", 0, "", "", 1, 1, 0, 0},
    {"empty object", "{}", "worker", 0, "", "", 1, 1, 0, 0},
    {"worker 0 alone", "{" TASK("worker", "0") "}", "worker", 0, "", "", 1, 1,
     0, 0},
    {"empty cluster", "{\"cluster\":{}," TASK("worker", "0") "}", "worker", 0,
     "", "", 1, 1, 0, 0},
    {"chief", "{" C_CLUSTER "," TASK("chief", "0") "}", "chief", 0,
     "grpc://host0:0", "", 1, 4, 2, 0},
    {"worker 1", "{" C_CLUSTER "," TASK("worker", "1") "}", "worker", 1,
     "grpc://host4:4", "", 0, 4, 2, 2},
    {"index as text", "{" C_CLUSTER "," TASK("worker", "\"1\"") "}", "worker",
     1, "grpc://host4:4", "", 0, 4, 2, 2},
    {"ps 0", "{" C_CLUSTER "," TASK("ps", "0") "}", "ps", 0, "grpc://host1:1",
     "", 0, 4, 2, 4},
    {"evaluator 12", "{" C_CLUSTER "," TASK("evaluator", "12") "}", "evaluator",
     12, "", "", 0, 0, 0, -1},
    {"evaluator with its master",
     "{" C_CLUSTER "," TASK("evaluator", "0") ",\"eval_session_master\":\"E\"}",
     "evaluator", 0, "", "E", 0, 0, 0, -1},
    {"evaluator that is listed",
     "{\"cluster\":{\"chief\":[\"h:0\"],\"evaluator\":[\"e:0\"]}," TASK(
         "evaluator", "0") "}",
     "evaluator", 0, "", "", 0, 0, 0, -1},
    {"only a chief",
     "{\"cluster\":{\"chief\":[\"host0:0\"]}," TASK("chief", "0") "}", "chief",
     0, "", "", 1, 1, 0, 0},
    {"only a chief, session master",
     "{\"cluster\":{\"chief\":[\"host0:0\"]}," TASK(
         "chief", "0") ",\"session_master\":\"M\"}",
     "chief", 0, "M", "", 1, 1, 0, 0},
    {"session master wins",
     "{" C_CLUSTER "," TASK("worker", "1") ",\"session_master\":\"M\"}",
     "worker", 1, "M", "", 0, 4, 2, 2},
    {"master", "{" C_MASTER "," TASK("master", "0") "}", "master", 0,
     "grpc://host0:0", "", 1, 4, 2, 0},
    {"master's worker", "{" C_MASTER "," TASK("worker", "2") "}", "worker", 2,
     "grpc://host5:5", "", 0, 4, 2, 3},
    {"ids: chief", "{" BIG "}," TASK("chief", "0") "}", "chief", 0,
     "grpc://a:1", "", 1, 4, 3, 0},
    {"ids: worker 2", "{" BIG "}," TASK("worker", "2") "}", "worker", 2,
     "grpc://b:3", "", 0, 4, 3, 3},
    {"ids: ps 1", "{" BIG "}," TASK("ps", "1") "}", "ps", 1, "grpc://c:2", "",
     0, 4, 3, 5},
    {"ids: another job",
     "{" BIG ",\"other_type\":[\"d:1\",\"d:2\"]}," TASK("other_type", "1") "}",
     "other_type", 1, "grpc://d:2", "", 0, 4, 3, 2},
    {"keys that nobody knows",
     "{" C_CLUSTER "," TASK("chief", "0") ",\"environment\":\"cloud\","
                                          "\"rpc_layer\":\"grpc\",\"job\":{"
                                          "\"a\":[1,2]},\"service\":{\"x\":1}}",
     "chief", 0, "grpc://host0:0", "", 1, 4, 2, 0},
};

static void test_run_config_view(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(views); i++) {
        const struct view *const v = &views[i];
        char env[2048] = "";
        if (v->tf != NULL)
            snprintf(env, sizeof env, "TF_CONFIG=%s", v->tf);
        // A chief is there wherever there is a cluster, so both modes agree.
        for (uint32_t strict = 0; strict < 2; strict++) {
            world w = {.env = env};
            hk_cluster_options o;
            world_options(&w, &o);
            o.strict = strict;
            hk_cluster_config *c;
            const hk_status s = hk_cluster_config_create(&o, &c);
            if (s != HK_OK)
                fail_msg("%s: %s", v->name, hk_last_error());
            hk_cluster_info n;
            hk_cluster_config_get_info(c, &n);
            if (strcmp(n.task_type, v->type) != 0 || n.task_index != v->index ||
                strcmp(n.master, v->master) != 0 ||
                strcmp(n.evaluation_master, v->evaluation_master) != 0 ||
                n.is_chief != v->is_chief ||
                n.num_worker_replicas != v->workers ||
                n.num_ps_replicas != v->ps ||
                n.global_id_in_cluster != v->global_id)
                fail_msg("%s: %s %d, master %s, eval %s, chief %u, workers %u, "
                         "ps %u, id %d",
                         v->name, n.task_type, n.task_index, n.master,
                         n.evaluation_master, n.is_chief, n.num_worker_replicas,
                         n.num_ps_replicas, n.global_id_in_cluster);
            hk_cluster_config_destroy(c);
        }
    }
}

// Every error of RunConfig, and malformed descriptions.
static const struct bad_tf {
    const char *name, *tf;
    hk_status status;
    const char *says;
    bool strict;
} bad_tfs[] = {
    {"no chief", "{\"cluster\":{" C_JOBS "}," TASK("worker", "0") "}",
     HK_E_INVALID_ARG, "no \"chief\"", true},
    {"empty chief",
     "{\"cluster\":{\"chief\":[]," C_JOBS "}," TASK("worker", "0") "}",
     HK_E_INVALID_ARG, "no \"chief\"", true},
    {"two chiefs",
     "{\"cluster\":{\"chief\":[\"a:0\",\"b:0\"]}," TASK("chief", "0") "}",
     HK_E_INVALID_ARG, "2 tasks \"chief\"", false},
    {"two masters",
     "{\"cluster\":{\"master\":[\"a:0\",\"b:0\"]}," TASK("master", "0") "}",
     HK_E_INVALID_ARG, "2 tasks \"master\"", false},
    {"no type", "{" C_CLUSTER ",\"task\":{\"index\":0}}", HK_E_INVALID_ARG,
     "task.type is missing", false},
    {"no task", "{" C_CLUSTER "}", HK_E_INVALID_ARG, "task.type is missing",
     false},
    {"no index", "{" C_CLUSTER ",\"task\":{\"type\":\"worker\"}}",
     HK_E_INVALID_ARG, "task.index is missing", false},
    {"negative index", "{" C_CLUSTER "," TASK("worker", "-1") "}",
     HK_E_INVALID_ARG, "negative", false},
    {"negative index as text", "{" C_CLUSTER "," TASK("worker", "\"-1\"") "}",
     HK_E_INVALID_ARG, "not a number", false},
    {"index too large", "{" C_CLUSTER "," TASK("worker", "3") "}",
     HK_E_INVALID_ARG, "cluster.worker has 3 tasks", false},
    {"index far too large", "{" C_CLUSTER "," TASK("worker", "99999999") "}",
     HK_E_INVALID_ARG, "too large", false},
    {"ps index too large", "{" C_CLUSTER "," TASK("ps", "2") "}",
     HK_E_INVALID_ARG, "cluster.ps has 2 tasks", false},
    {"chief index too large", "{" C_CLUSTER "," TASK("chief", "1") "}",
     HK_E_INVALID_ARG, "cluster.chief has 1 task", false},
    {"evaluator's negative index",
     "{" C_CLUSTER "," TASK("evaluator", "-2") "}", HK_E_INVALID_ARG,
     "negative", false},
    {"type not in the cluster", "{" C_CLUSTER "," TASK("learner", "0") "}",
     HK_E_INVALID_ARG, "\"learner\" is not in the cluster", false},
    {"master's name in a chief's cluster",
     "{" C_CLUSTER "," TASK("master", "0") "}", HK_E_INVALID_ARG,
     "\"master\" is not in the cluster", false},
    {"no cluster, not a worker", "{" TASK("ps", "0") "}", HK_E_INVALID_ARG,
     "without a cluster", false},
    {"no cluster, evaluator", "{" TASK("evaluator", "0") "}", HK_E_INVALID_ARG,
     "without a cluster", false},
    {"no cluster, index 1", "{" TASK("worker", "1") "}", HK_E_INVALID_ARG,
     "without a cluster", false},
    {"master and chief",
     "{\"cluster\":{\"master\":[\"a:0\"],\"chief\":[\"b:0\"]}," TASK("chief",
                                                                     "0") "}",
     HK_E_INVALID_ARG, "\"master\" and \"chief\"", false},
    {"evaluator with master", "{" C_MASTER "," TASK("evaluator", "0") "}",
     HK_E_INVALID_ARG, "evaluator", false},
    {"eval_session_master of a worker",
     "{" C_CLUSTER "," TASK("worker", "0") ",\"eval_session_master\":\"E\"}",
     HK_E_INVALID_ARG, "eval_session_master", false},
    {"service is a number", "{\"service\":1}", HK_E_DTYPE, "service", false},
    {"service is a list", "{\"service\":[]}", HK_E_DTYPE, "service", false},
    {"empty model_dir", "{\"model_dir\":\"\"}", HK_E_INVALID_ARG, "model_dir",
     false},
    {"model_dir is a number", "{\"model_dir\":3}", HK_E_DTYPE, "model_dir",
     false},
    {"session_master is a number", "{\"session_master\":3}", HK_E_DTYPE,
     "session_master", false},
    {"a list", "[]", HK_E_DTYPE, "not an object", false},
    {"no JSON", "{cluster", HK_E_DATA, "TF_CONFIG", false},
    {"a key twice", "{\"task\":{},\"task\":{}}", HK_E_DATA, "TF_CONFIG", false},
    {"cluster is a list", "{\"cluster\":[]}", HK_E_DTYPE, "cluster", false},
    {"job is a number", "{\"cluster\":{\"ps\":3}," TASK("ps", "0") "}",
     HK_E_DTYPE, "cluster.ps", false},
    {"task is a list", "{\"task\":[]}", HK_E_DTYPE, "task", false},
    {"type is a number", "{\"task\":{\"type\":1}}", HK_E_DTYPE, "task.type",
     false},
    {"index is a fraction", "{\"task\":{\"index\":0.5}}", HK_E_DTYPE,
     "task.index", false},
    {"address is a number", "{\"cluster\":{\"ps\":[7]}," TASK("ps", "0") "}",
     HK_E_DTYPE, "cluster.ps[0]", false},
    {"center without port",
     "{\"cluster\":{\"ps\":[\"a\"]}," TASK("ps", "0") "}", HK_E_INVALID_ARG,
     "not host:port", false},
    {"center with a wrong port",
     "{\"cluster\":{\"ps\":[\"a:65536\"]}," TASK("ps", "0") "}",
     HK_E_INVALID_ARG, "has no valid port", false},
    {"center with a scheme of others",
     "{\"cluster\":{\"ps\":[\"grpc://p0:1\"]}," TASK("ps", "0") "}",
     HK_E_INVALID_ARG, "not host:port", false},
    {"center with a bare IPv6 address",
     "{\"cluster\":{\"ps\":[\"::1:1\"]}," TASK("ps", "0") "}", HK_E_INVALID_ARG,
     "not host:port", false},
    {"center with a blank",
     "{\"cluster\":{\"ps\":[\"a b:1\"]}," TASK("ps", "0") "}", HK_E_INVALID_ARG,
     "byte 0x20", false},
    {"worker's empty address",
     "{\"cluster\":{\"worker\":[\"\"]}," TASK("worker", "0") "}",
     HK_E_INVALID_ARG, "cluster.worker[0]", false},
    {"name of a job", "{\"cluster\":{\"a b\":[]}," TASK("worker", "0") "}",
     HK_E_INVALID_ARG, "not a valid name of a job", false},
    {"sparse without itself",
     "{\"cluster\":{\"worker\":{\"1\":\"a:0\"},\"ps\":[\"p:1\"]}," TASK(
         "worker", "0") "}",
     HK_E_INVALID_ARG, "task.index 0", false},
    {"sparse key",
     "{\"cluster\":{\"worker\":{\"x\":\"a:0\"}}," TASK("worker", "0") "}",
     HK_E_INVALID_ARG, "\"x\" is not a task index", false},
    {"sparse twice",
     "{\"cluster\":{\"worker\":{\"1\":\"a:0\",\"01\":\"b:0\"}}," TASK("worker",
                                                                      "1") "}",
     HK_E_INVALID_ARG, "names task 1 twice", false},
    {"own part is wrong", "{\"hooke\":{\"workers\":-1}}", HK_E_INVALID_ARG,
     "hooke", false},
};

static void test_tf_config_errors(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(bad_tfs); i++) {
        char env[2048];
        snprintf(env, sizeof env, "TF_CONFIG=%s", bad_tfs[i].tf);
        world w = {.env = env};
        hk_cluster_options o;
        world_options(&w, &o);
        o.strict = bad_tfs[i].strict;
        hk_cluster_config *c = NULL;
        const hk_status s = hk_cluster_config_create(&o, &c);
        if (s != bad_tfs[i].status || c != NULL ||
            strstr(hk_last_error(), bad_tfs[i].says) == NULL)
            fail_msg("%s: %s: %s", bad_tfs[i].name, hk_status_string(s),
                     hk_last_error());
    }
}

// ---- one description for all launchers -------------------------------------

#define SLURM(rank, size, list, tasks, node)                                   \
    "SLURM_JOB_ID=20345\nSLURM_STEP_ID=0\nSLURM_PROCID=" rank                  \
    "\nSLURM_NTASKS=" size "\nSLURM_STEP_NODELIST=" list                       \
    "\nSLURM_STEP_TASKS_PER_NODE=" tasks "\nSLURM_NODEID=" node "\n"
#define TORCH(rank, size, group, local)                                        \
    "RANK=" rank "\nWORLD_SIZE=" size "\nGROUP_RANK=" group                    \
    "\nLOCAL_RANK=0\nLOCAL_WORLD_SIZE=" local                                  \
    "\nMASTER_ADDR=n0\nMASTER_PORT=29500\n"
#define OMPI(rank, size, local)                                                \
    "OMPI_COMM_WORLD_RANK=" rank "\nOMPI_COMM_WORLD_SIZE=" size                \
    "\nOMPI_COMM_WORLD_LOCAL_SIZE=" local "\n"

// What comes out, in one line: launcher, task, worker id, center run here,
// centers, workers, chief, listen; then the TF_CONFIG form.
static const struct launch {
    const char *name, *env;
    const char *role, *index, *center, *listen; // options
    uint32_t center_count, workers;
    const char *file; // hostfile
    const char *line, *json;
} launches[] = {
    {"nothing", "", NULL, NULL, NULL, NULL, 0, 0, NULL,
     "none worker 0 id 0 center -1 of 0 workers 1 chief 1 listen -",
     "{\"task\": {\"type\": \"worker\", \"index\": 0}}"},
    // ---- TF_CONFIG
    {"TFJob's ps",
     "TF_CONFIG={\"cluster\":{\"chief\":[\"j-chief-0.d.svc:2222\"],"
     "\"ps\":[\"j-ps-0.d.svc:2222\",\"j-ps-1.d.svc:2223\"]}," TASK("ps",
                                                                   "1") "}",
     "center", NULL, NULL, NULL, 0, 0, NULL,
     "tf_config ps 1 id -1 center 1 of 2 workers 1 chief 0 listen *:2223",
     "{\"cluster\": {\"chief\": [\"j-chief-0.d.svc:2222\"], \"ps\": "
     "[\"j-ps-0.d.svc:2222\", \"j-ps-1.d.svc:2223\"]}, \"task\": {\"type\": "
     "\"ps\", \"index\": 1}}"},
    {"loopback ps stays on loopback",
     "TF_CONFIG={\"cluster\":{\"worker\":[\"w:0\"],\"ps\":[\"localhost:"
     "2222\"]}," TASK("ps", "0") "}",
     NULL, NULL, NULL, NULL, 0, 0, NULL,
     "tf_config ps 0 id -1 center 0 of 1 workers 1 chief 0 listen "
     "localhost:2222",
     NULL},
    {"listen is the user's",
     "TF_CONFIG={\"cluster\":{\"worker\":[\"w:0\"],\"ps\":[\"h:2222\"]}," TASK(
         "ps", "0") "}",
     NULL, NULL, NULL, "10.0.0.1:2222", 0, 0, NULL,
     "tf_config ps 0 id -1 center 0 of 1 workers 1 chief 0 listen "
     "10.0.0.1:2222",
     NULL},
    {"no chief: worker 0",
     "TF_CONFIG={\"cluster\":{\"worker\":[\"a:1\",\"b:1\"],\"ps\":[\"p:1\"]}"
     "," TASK("worker", "0") "}",
     "chief", NULL, NULL, NULL, 0, 0, NULL,
     "tf_config worker 0 id 0 center -1 of 1 workers 2 chief 1 listen -",
     "{\"cluster\": {\"ps\": [\"p:1\"], \"worker\": [\"a:1\", \"b:1\"]}, "
     "\"task\": {\"type\": \"worker\", \"index\": 0}}"},
    {"worker after a chief",
     "TF_CONFIG={" C_CLUSTER "," TASK("worker", "1") "}", "worker", "1", NULL,
     NULL, 2, 4, NULL,
     "tf_config worker 1 id 2 center -1 of 2 workers 4 chief 0 listen -", NULL},
    {"a chief is a worker", "TF_CONFIG={" C_CLUSTER "," TASK("chief", "0") "}",
     "worker", NULL, "host1:1,host2:2", NULL, 0, 0, NULL,
     "tf_config chief 0 id 0 center -1 of 2 workers 4 chief 1 listen -", NULL},
    {"evaluator keeps the centers",
     "TF_CONFIG={" C_CLUSTER "," TASK("evaluator", "0") "}", "evaluator", NULL,
     NULL, NULL, 0, 0, NULL,
     "tf_config evaluator 0 id -1 center -1 of 2 workers 4 chief 0 listen -",
     NULL},
    {"dynamic worker",
     "TF_CONFIG={\"cluster\":{\"worker\":{\"1\":\"w1:2222\"},\"ps\":[\"p0:"
     "2222\",\"p1:2222\"]}," TASK("worker", "1") "}",
     "worker", NULL, NULL, NULL, 0, 0, NULL,
     "tf_config worker 1 id 1 center -1 of 2 workers 0 chief 0 listen -",
     "{\"cluster\": {\"ps\": [\"p0:2222\", \"p1:2222\"], \"worker\": {\"1\": "
     "\"w1:2222\"}}, \"task\": {\"type\": \"worker\", \"index\": 1}}"},
    {"dynamic worker, told how many",
     "TF_CONFIG={\"sparseCluster\":{\"worker\":{\"1\":\"w1:2222\"},\"ps\":"
     "[\"p0:2222\"]}," TASK("worker", "1") "}\nHOOKE_WORKERS=7",
     NULL, NULL, NULL, NULL, 0, 0, NULL,
     "tf_config worker 1 id 1 center -1 of 1 workers 7 chief 0 listen -",
     "{\"cluster\": {\"ps\": [\"p0:2222\"], \"worker\": {\"1\": "
     "\"w1:2222\"}}, \"task\": {\"type\": \"worker\", \"index\": 1}, "
     "\"hooke\": {\"workers\": 7}}"},
    {"lone ps of a dynamic job",
     "TF_CONFIG={\"cluster\":{\"worker\":{},\"ps\":[\"p1:2222\"]}," TASK(
         "ps", "1") "}",
     NULL, NULL, NULL, NULL, 0, 0, NULL,
     "tf_config ps 1 id -1 center 1 of 0 workers 0 chief 0 listen *:2222",
     "{\"cluster\": {\"ps\": {\"1\": \"p1:2222\"}, \"worker\": {}}, \"task\": "
     "{\"type\": \"ps\", \"index\": 1}}"},
    {"lone ps, told how many there are",
     "TF_CONFIG={\"cluster\":{\"worker\":{},\"ps\":[\"p1:2222\"]}," TASK(
         "ps", "1") "}",
     NULL, NULL, NULL, NULL, 3, 0, NULL,
     "tf_config ps 1 id -1 center 1 of 3 workers 0 chief 0 listen *:2222",
     NULL},
    {"sparse chief",
     "TF_CONFIG={\"cluster\":{\"chief\":{\"0\":\"c:1\"},\"worker\":{\"2\":"
     "\"w:1\"},\"ps\":[\"p:1\"]}," TASK("worker", "2") "}",
     NULL, NULL, NULL, NULL, 0, 0, NULL,
     "tf_config worker 2 id 3 center -1 of 1 workers 0 chief 0 listen -", NULL},
    // ---- options and HOOKE_*
    {"worker by options", "", "worker", "3", "a:1,b:2", NULL, 0, 0, NULL,
     "flags worker 3 id 3 center -1 of 2 workers 0 chief 0 listen -",
     "{\"cluster\": {\"ps\": [\"a:1\", \"b:2\"], \"worker\": {\"3\": "
     "\"localhost:0\"}}, \"task\": {\"type\": \"worker\", \"index\": 3}}"},
    {"worker without a number", "HOOKE_CENTER=a:1", NULL, NULL, NULL, NULL, 0,
     4, NULL, "flags worker -1 id -1 center -1 of 1 workers 4 chief 0 listen -",
     "{\"cluster\": {\"ps\": [\"a:1\"], \"worker\": {}}, \"task\": {\"type\": "
     "\"worker\"}, \"hooke\": {\"workers\": 4}}"},
    {"worker by variables",
     "HOOKE_ROLE=worker\nHOOKE_INDEX=0\nHOOKE_CENTER=unix:/run/h.sock", NULL,
     NULL, NULL, NULL, 0, 0, NULL,
     "flags worker 0 id 0 center -1 of 1 workers 0 chief 1 listen -", NULL},
    {"both say the same", "HOOKE_ROLE=worker\nHOOKE_CENTER=a:1", "worker", NULL,
     "a:1", NULL, 0, 0, NULL,
     "flags worker -1 id -1 center -1 of 1 workers 0 chief 0 listen -", NULL},
    {"center with every default", "", "center", NULL, NULL, NULL, 0, 0, NULL,
     "flags ps 0 id -1 center 0 of 1 workers 0 chief 0 listen 127.0.0.1:2222",
     "{\"cluster\": {\"ps\": [\"127.0.0.1:2222\"]}, \"task\": {\"type\": "
     "\"ps\", \"index\": 0}}"},
    {"center that listens", "", "center", NULL, NULL, "0.0.0.0:4000", 0, 0,
     NULL,
     "flags ps 0 id -1 center 0 of 1 workers 0 chief 0 listen 0.0.0.0:4000",
     NULL},
    {"second center of two", "", "ps", "1", "a:1,b:2", NULL, 0, 0, NULL,
     "flags ps 1 id -1 center 1 of 2 workers 0 chief 0 listen *:2", NULL},
    {"stateful set",
     "HOSTNAME=hooke-ps-1\nHOOKE_CENTER_DNS=hooke-ps-{i}.hooke-ps:2222\n"
     "HOOKE_CENTER_COUNT=2\nHOOKE_ROLE=center\nHOOKE_INDEX=hostname",
     NULL, NULL, NULL, NULL, 0, 0, NULL,
     "flags ps 1 id -1 center 1 of 2 workers 0 chief 0 listen *:2222",
     "{\"cluster\": {\"ps\": [\"hooke-ps-0.hooke-ps:2222\", "
     "\"hooke-ps-1.hooke-ps:2222\"]}, \"task\": {\"type\": \"ps\", "
     "\"index\": 1}}"},
    {"indexed job", "JOB_COMPLETION_INDEX=5", "worker", NULL, "a:1", NULL, 0, 0,
     NULL, "flags worker 5 id 5 center -1 of 1 workers 0 chief 0 listen -",
     NULL},
    {"chief by options", "", "chief", NULL, "a:1", NULL, 0, 0, NULL,
     "flags chief 0 id 0 center -1 of 1 workers 0 chief 1 listen -", NULL},
    {"evaluator by options", "", "evaluator", NULL, "a:1", NULL, 0, 0, NULL,
     "flags evaluator 0 id -1 center -1 of 1 workers 0 chief 0 listen -",
     "{\"cluster\": {\"ps\": [\"a:1\"]}, \"task\": {\"type\": \"evaluator\", "
     "\"index\": 0}}"},
    {"evaluator of files", "", "evaluator", NULL, NULL, NULL, 0, 0, NULL,
     "flags evaluator 0 id -1 center -1 of 0 workers 0 chief 0 listen -", NULL},
    {"a scheme is kept", "", "center", "1", "tls:a:1,tls:b:2", NULL, 0, 0, NULL,
     "flags ps 1 id -1 center 1 of 2 workers 0 chief 0 listen tls:*:2", NULL},
    {"shared memory", "", "center", NULL, "shm:/run/h.sock", NULL, 0, 0, NULL,
     "flags ps 0 id -1 center 0 of 1 workers 0 chief 0 listen shm:/run/h.sock",
     NULL},
    {"IPv6", "", "worker", "1", "[fe80::1]:2222", NULL, 0, 0, NULL,
     "flags worker 1 id 1 center -1 of 1 workers 0 chief 0 listen -", NULL},
    {"TF_CONFIG that says nothing", "TF_CONFIG={}", "worker", "2", "a:1", NULL,
     0, 0, NULL,
     "flags worker 2 id 2 center -1 of 1 workers 0 chief 0 listen -", NULL},
    // ---- torchrun
    {"torchrun rank 0", TORCH("0", "4", "0", "2"), NULL, NULL, NULL, NULL, 0, 0,
     NULL,
     "torchrun chief 0 id 0 center 0 of 1 workers 4 chief 1 listen "
     "*:30500",
     "{\"cluster\": {\"chief\": [\"n0:0\"], \"ps\": [\"n0:30500\"], "
     "\"worker\": {}}, \"task\": {\"type\": \"chief\", \"index\": 0}, "
     "\"hooke\": {\"workers\": 4, \"center\": 0}}"},
    {"torchrun rank 3", TORCH("3", "4", "1", "2"), "worker", NULL, NULL, NULL,
     0, 0, NULL,
     "torchrun worker 2 id 3 center -1 of 1 workers 4 chief 0 listen -",
     "{\"cluster\": {\"chief\": [\"n0:0\"], \"ps\": [\"n0:30500\"], "
     "\"worker\": {\"2\": \"localhost:0\"}}, \"task\": {\"type\": \"worker\", "
     "\"index\": 2}, \"hooke\": {\"workers\": 4}}"},
    {"torchrun, two centers and a port",
     TORCH("1", "4", "0", "2") "HOOKE_PS_PORT=7000\n", NULL, NULL, NULL, NULL,
     2, 0, NULL,
     "torchrun worker 0 id 1 center 1 of 2 workers 4 chief 0 listen "
     "*:7001",
     NULL},
    {"torchrun on one node", TORCH("1", "2", "0", "2"), NULL, NULL, NULL, NULL,
     0, 0, NULL,
     "torchrun worker 0 id 1 center -1 of 1 workers 2 chief 0 listen -",
     "{\"cluster\": {\"chief\": [\"n0:0\"], \"ps\": [\"n0:30500\"], "
     "\"worker\": [\"n0:0\"]}, \"task\": {\"type\": \"worker\", \"index\": "
     "0}}"},
    {"torchrun alone", TORCH("0", "1", "0", "1"), NULL, NULL, NULL, NULL, 0, 0,
     NULL, "torchrun worker 0 id 0 center -1 of 0 workers 1 chief 1 listen -",
     NULL},
    {"RANK without torchrun", "RANK=3\nWORLD_SIZE=4\nMASTER_ADDR=x", NULL, NULL,
     NULL, NULL, 0, 0, NULL,
     "none worker 0 id 0 center -1 of 0 workers 1 chief 1 listen -", NULL},
    {"torchrun with centers elsewhere", TORCH("1", "4", "0", "2"), NULL, NULL,
     "c:1", NULL, 0, 0, NULL,
     "torchrun worker 0 id 1 center -1 of 1 workers 4 chief 0 listen -", NULL},
    {"srun of torchruns",
     TORCH("3", "4", "1", "2") SLURM("1", "2", "n[0-1]", "1(x2)", "1"), NULL,
     NULL, NULL, NULL, 0, 0, NULL,
     "torchrun worker 2 id 3 center -1 of 1 workers 4 chief 0 listen -", NULL},
    // ---- Slurm
    {"Slurm rank 0 of 8 on 4 nodes", SLURM("0", "8", "n[1-4]", "2(x4)", "0"),
     NULL, NULL, NULL, NULL, 0, 0, NULL,
     "slurm chief 0 id 0 center 0 of 1 workers 8 chief 1 listen *:12345",
     "{\"cluster\": {\"chief\": [\"n1:0\"], \"ps\": [\"n1:12345\"], "
     "\"worker\": [\"n1:0\", \"n2:0\", \"n2:0\", \"n3:0\", \"n3:0\", "
     "\"n4:0\", \"n4:0\"]}, \"task\": {\"type\": \"chief\", \"index\": "
     "0}, \"hooke\": {\"center\": 0}}"},
    {"Slurm, one task on each of 4 nodes",
     SLURM("3", "4", "n[1-4]", "1(x4)", "3"), NULL, NULL, NULL, NULL, 0, 0,
     NULL, "slurm worker 2 id 3 center -1 of 1 workers 4 chief 0 listen -",
     NULL},
    {"Slurm second worker", SLURM("1", "8", "n[1-4]", "2(x4)", "0"), NULL, NULL,
     NULL, NULL, 0, 0, NULL,
     "slurm worker 0 id 1 center -1 of 1 workers 8 chief 0 listen -", NULL},
    {"Slurm worker", SLURM("7", "8", "n[1-4]", "2(x4)", "3"), "worker", NULL,
     NULL, NULL, 1, 0, NULL,
     "slurm worker 6 id 7 center -1 of 1 workers 8 chief 0 listen -", NULL},
    {"Slurm cyclic",
     SLURM("1", "4", "n[1-2]", "3,1", "1") "SLURM_DISTRIBUTION=cyclic\n", NULL,
     NULL, NULL, NULL, 2, 0, NULL,
     "slurm worker 0 id 1 center 1 of 2 workers 4 chief 0 listen *:12346",
     "{\"cluster\": {\"chief\": [\"n1:0\"], \"ps\": [\"n1:12345\", "
     "\"n2:12346\"], \"worker\": [\"n2:0\", \"n1:0\", \"n1:0\"]}, "
     "\"task\": {\"type\": \"worker\", \"index\": 0}, \"hooke\": "
     "{\"center\": 1}}"},
    {"Slurm plane",
     SLURM("2", "6", "n[1-2]", "4,2", "1") "SLURM_DISTRIBUTION=plane=2\n", NULL,
     NULL, NULL, NULL, 3, 0, NULL,
     "slurm worker 1 id 2 center 2 of 3 workers 6 chief 0 listen *:12347",
     "{\"cluster\": {\"chief\": [\"n1:0\"], \"ps\": [\"n1:12345\", "
     "\"n1:12346\", \"n2:12347\"], \"worker\": [\"n1:0\", \"n2:0\", "
     "\"n2:0\", \"n1:0\", \"n1:0\"]}, \"task\": {\"type\": \"worker\", "
     "\"index\": 1}, \"hooke\": {\"center\": 2}}"},
    {"Slurm, centers elsewhere",
     "SLURM_JOB_ID=7\nSLURM_STEPID=1\nSLURM_PROCID=2\nSLURM_NPROCS=3\n", NULL,
     NULL, "c:1", NULL, 0, 0, NULL,
     "slurm worker 1 id 2 center -1 of 1 workers 3 chief 0 listen -", NULL},
    {"Slurm batch script is no step",
     "SLURM_JOB_ID=7\nSLURM_PROCID=0\nSLURM_NTASKS=8\n", NULL, NULL, NULL, NULL,
     0, 0, NULL, "none worker 0 id 0 center -1 of 0 workers 1 chief 1 listen -",
     NULL},
    {"Slurm with PMI",
     SLURM("3", "4", "a", "4", "0") "PMI_RANK=3\nPMI_SIZE=4\nPMI_FD=5\n", NULL,
     NULL, NULL, NULL, 0, 0, NULL,
     "slurm worker 2 id 3 center -1 of 1 workers 4 chief 0 listen -", NULL},
    {"Slurm with PMIx", SLURM("3", "4", "a", "4", "0") "PMIX_RANK=3\n", NULL,
     NULL, NULL, NULL, 0, 0, NULL,
     "slurm worker 2 id 3 center -1 of 1 workers 4 chief 0 listen -", NULL},
    {"mpirun inside a Slurm allocation",
     SLURM("1", "2", "n[1-2]", "1(x2)", "1") OMPI("5", "8", "4"), NULL, NULL,
     NULL, NULL, 0, 0, "n1 slots=4\nn2 slots=4\n",
     "mpi worker 3 id 4 center -1 of 1 workers 7 chief 0 listen -", NULL},
    {"Slurm by name",
     "TF_CONFIG=nonsense\nHOOKE_LAUNCHER=slurm\n" SLURM("1", "2", "a", "2",
                                                        "0"),
     NULL, NULL, NULL, NULL, 0, 0, NULL,
     "slurm worker 0 id 1 center -1 of 1 workers 2 chief 0 listen -", NULL},
    // ---- MPI
    {"Open MPI on one host", OMPI("0", "4", "4"), NULL, NULL, NULL, NULL, 0, 0,
     NULL,
     "mpi ps 0 id -1 center 0 of 1 workers 3 chief 0 listen 127.0.0.1:12000",
     "{\"cluster\": {\"chief\": [\"127.0.0.1:0\"], \"ps\": "
     "[\"127.0.0.1:12000\"], \"worker\": [\"127.0.0.1:0\", "
     "\"127.0.0.1:0\"]}, \"task\": {\"type\": \"ps\", \"index\": 0}}"},
    {"MPICH", "PMI_RANK=2\nPMI_SIZE=4\nMPI_LOCALNRANKS=4\n", NULL, NULL, NULL,
     NULL, 0, 0, NULL,
     "mpi worker 0 id 1 center -1 of 1 workers 3 chief 0 listen -", NULL},
    {"MVAPICH",
     "MV2_COMM_WORLD_RANK=1\nMV2_COMM_WORLD_SIZE=2\n"
     "MV2_COMM_WORLD_LOCAL_SIZE=2\n",
     NULL, NULL, NULL, NULL, 0, 0, NULL,
     "mpi chief 0 id 0 center -1 of 1 workers 1 chief 1 listen -", NULL},
    {"Open MPI 5 says it twice", OMPI("1", "2", "2") "PMIX_RANK=1\n", NULL,
     NULL, NULL, NULL, 0, 0, NULL,
     "mpi chief 0 id 0 center -1 of 1 workers 1 chief 1 listen -", NULL},
    {"hostfile",
     OMPI("2", "4", "2") "OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile\n",
     NULL, NULL, NULL, NULL, 0, 0,
     "# made by hand\nw-0.job.ns.svc slots=2\n"
     "w-1.job.ns.svc slots=2 max_slots=4\n",
     "mpi worker 0 id 1 center -1 of 1 workers 3 chief 0 listen -",
     "{\"cluster\": {\"chief\": [\"w-0.job.ns.svc:0\"], \"ps\": "
     "[\"w-0.job.ns.svc:12000\"], \"worker\": [\"w-1.job.ns.svc:0\", "
     "\"w-1.job.ns.svc:0\"]}, \"task\": {\"type\": \"worker\", \"index\": "
     "0}}"},
    {"hostfile of MPICH, over-filled",
     "PMI_RANK=3\nPMI_SIZE=4\nMPI_LOCALNRANKS=2\nHYDRA_HOST_FILE=h\n", NULL,
     NULL, NULL, NULL, 1, 0, "a:2\nb\n",
     "mpi worker 1 id 2 center -1 of 1 workers 3 chief 0 listen -",
     "{\"cluster\": {\"chief\": [\"a:0\"], \"ps\": [\"a:12000\"], \"worker\": "
     "[\"b:0\", \"a:0\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}"},
    {"MPI, centers elsewhere", OMPI("1", "4", "2"), NULL, NULL, "c:1", NULL, 0,
     0, NULL, "mpi worker 0 id 1 center -1 of 1 workers 4 chief 0 listen -",
     "{\"cluster\": {\"chief\": [\"localhost:0\"], \"ps\": [\"c:1\"], "
     "\"worker\": {\"0\": \"localhost:0\"}}, \"task\": {\"type\": \"worker\", "
     "\"index\": 0}, \"hooke\": {\"workers\": 4}}"},
    {"PMIx and a number", "PMIX_RANK=2\nHOOKE_WORKERS=4\n", NULL, NULL, "c:1",
     NULL, 0, 0, NULL,
     "mpi worker 1 id 2 center -1 of 1 workers 4 chief 0 listen -", NULL},
    {"two-step start with TF_CONFIG under srun",
     "TF_CONFIG={" C_CLUSTER
     "," TASK("worker", "1") "}\n" SLURM("1", "4", "a", "4", "0"),
     NULL, NULL, NULL, NULL, 0, 0, NULL,
     "tf_config worker 1 id 2 center -1 of 2 workers 4 chief 0 listen -", NULL},
};

static void describe(const hk_cluster_config *c, char *line, size_t size) {
    hk_cluster_info n;
    hk_cluster_config_get_info(c, &n);
    snprintf(line, size,
             "%s %s %d id %d center %d of %u workers %u chief %u listen %s",
             hk_launcher_name(n.launcher), n.task_type, n.task_index,
             n.worker_id, n.center_index, n.n_centers, n.n_workers, n.is_chief,
             n.listen == NULL ? "-" : n.listen);
}

// The TF_CONFIG form, read again, gives the same description.
static void check_round_trip(const char *name, const hk_cluster_config *c) {
    hk_cluster_info n, m;
    hk_cluster_config_get_info(c, &n);
    if (n.task_index < 0 || (n.n_centers == 0 && !n.is_local) ||
        hk_cluster_config_address(c, "ps", 0) == NULL)
        return; // TF_CONFIG has no such form
    char env[4096];
    snprintf(env, sizeof env, "TF_CONFIG=%s", json_of(c));
    world w = {.env = env};
    hk_cluster_options o;
    world_options(&w, &o);
    hk_cluster_config *again;
    if (hk_cluster_config_create(&o, &again) != HK_OK)
        fail_msg("%s: %s: %s", name, env, hk_last_error());
    hk_cluster_config_get_info(again, &m);
    assert_string_equal(json_of(c), json_of(again));
    assert_int_equal(n.task, m.task);
    assert_int_equal(n.worker_id, m.worker_id);
    assert_int_equal(n.center_index, m.center_index);
    assert_int_equal(n.n_workers, m.n_workers);
    assert_int_equal(n.n_centers, m.n_centers);
    assert_int_equal(n.is_chief, m.is_chief);
    hk_cluster_config_destroy(again);
}

static void launch_options(const struct launch *l, world *w,
                           hk_cluster_options *o) {
    world_options(w, o);
    o->role = l->role;
    o->index = l->index;
    o->center = l->center;
    o->listen = l->listen;
    o->center_count = l->center_count;
    o->workers = l->workers;
}

static void test_launchers(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(launches); i++) {
        const struct launch *const l = &launches[i];
        world w = {.env = l->env, .file = l->file};
        hk_cluster_options o;
        launch_options(l, &w, &o);
        if (l->file != NULL && strstr(l->env, "HOST") == NULL &&
            strstr(l->env, "host") == NULL)
            o.hostfile = "hosts";
        hk_cluster_config *c;
        if (hk_cluster_config_create(&o, &c) != HK_OK)
            fail_msg("%s: %s", l->name, hk_last_error());
        char line[512];
        describe(c, line, sizeof line);
        if (strcmp(line, l->line) != 0)
            fail_msg("%s:\n  got      %s\n  expected %s", l->name, line,
                     l->line);
        if (l->json != NULL && strcmp(l->json, json_of(c)) != 0)
            fail_msg("%s:\n  got      %s\n  expected %s", l->name, json_of(c),
                     l->json);
        if (strstr(explain_of(c), "launcher: ") == NULL)
            fail_msg("%s: no explanation", l->name);
        check_round_trip(l->name, c);
        hk_cluster_config_destroy(c);
    }
}

// ---- contradictions and other errors ---------------------------------------

static const struct conflict {
    const char *name, *env;
    const char *role, *index, *center;
    uint32_t center_count, workers;
    const char *says;
} conflicts[] = {
    {"role against a variable", "HOOKE_ROLE=center", "worker", NULL, NULL, 0, 0,
     "HOOKE_ROLE=\"center\" contradicts"},
    {"count against a variable", "HOOKE_WORKERS=3", NULL, NULL, NULL, 0, 4,
     "HOOKE_WORKERS=\"3\" contradicts"},
    {"role against TF_CONFIG", "TF_CONFIG={" C_CLUSTER "," TASK("ps", "0") "}",
     "worker", NULL, NULL, 0, 0, "tf_config makes this process ps 0"},
    {"chief against TF_CONFIG",
     "TF_CONFIG={" C_CLUSTER "," TASK("worker", "0") "}", "chief", NULL, NULL,
     0, 0, "makes this process worker 0"},
    {"index against TF_CONFIG",
     "TF_CONFIG={" C_CLUSTER "," TASK("worker", "1") "}", NULL, "2", NULL, 0, 0,
     "the index 2 was requested"},
    {"centers against TF_CONFIG",
     "TF_CONFIG={" C_CLUSTER "," TASK("worker", "1") "}", NULL, NULL,
     "host1:1,other:2", 0, 0,
     "the address of center 1 is host2:2 in TF_CONFIG, but other:2"},
    {"fewer centers than TF_CONFIG",
     "TF_CONFIG={" C_CLUSTER "," TASK("worker", "1") "}", NULL, NULL, "host1:1",
     0, 0, "the address of center 1 is host2:2 in TF_CONFIG, but nothing"},
    {"number of centers against TF_CONFIG",
     "TF_CONFIG={" C_CLUSTER "," TASK("worker", "1") "}", NULL, NULL, NULL, 3,
     0, "TF_CONFIG has 2"},
    {"workers against TF_CONFIG",
     "TF_CONFIG={" C_CLUSTER "," TASK("worker", "1") "}", NULL, NULL, NULL, 0,
     9, "9 workers were requested, but tf_config has 4"},
    {"one TF_CONFIG for many ranks",
     "TF_CONFIG={" TASK("worker", "0") "}\n" SLURM("1", "4", "a", "4", "0"),
     NULL, NULL, NULL, 0, 0, "TF_CONFIG describes 1 task, but slurm started 4"},
    {"torchrun against Slurm",
     TORCH("1", "4", "0", "2") SLURM("2", "4", "a", "4", "0"), NULL, NULL, NULL,
     0, 0, "torchrun (RANK=1"},
    {"Slurm against PMI",
     SLURM("1", "4", "a", "4", "0") "PMI_RANK=2\nPMI_SIZE=4\n", NULL, NULL,
     NULL, 0, 0, "contradict each other"},
    {"Open MPI against PMI", OMPI("1", "4", "4") "PMI_RANK=2\nPMI_SIZE=4\n",
     NULL, NULL, NULL, 0, 0, "PMI_RANK=2, PMI_SIZE=4 contradicts"},
    {"Open MPI against PMIx", OMPI("1", "4", "4") "PMIX_RANK=2\n", NULL, NULL,
     NULL, 0, 0, "PMIX_RANK=2 contradicts"},
    {"role against Slurm", SLURM("0", "4", "a", "4", "0"), "evaluator", NULL,
     NULL, 0, 0, "slurm makes this process chief 0"},
    {"list and count", "", NULL, NULL, "a:1,b:1", 3, 0, "centers is 3"},
    {"list and pattern", "HOOKE_CENTER_DNS=p-{i}:1", NULL, NULL, "a:1", 1, 0,
     "as a list (center) and as a pattern"},
    // ---- not contradictions, but no sense
    {"role", "", "boss", NULL, NULL, 0, 0, "role \"boss\""},
    {"launcher", "HOOKE_LAUNCHER=lsf", NULL, NULL, NULL, 0, 0,
     "launcher \"lsf\""},
    {"named launcher is not there", "HOOKE_LAUNCHER=slurm", NULL, NULL, NULL, 0,
     0, "its variables are not set"},
    {"index", "", "worker", "x", "a:1", 0, 0, "index \"x\""},
    {"hostname without a number", "HOSTNAME=ps\n", "center", "hostname", NULL,
     0, 0, "does not end in a number"},
    {"center's port", "", "worker", NULL, "a:b", 0, 0, "\"b\""},
    {"a scheme alone", "", "worker", NULL, "tcp:a", 0, 0, "not host:port"},
    {"no path", "", "worker", NULL, "unix:", 0, 0, "not host:port"},
    {"empty center", "", "worker", NULL, "a:1,", 0, 0, "not host:port"},
    {"pattern without number", "HOOKE_CENTER_DNS=p:1", NULL, NULL, NULL, 1, 0,
     "needs \"{i}\""},
    {"pattern without count", "HOOKE_CENTER_DNS=p-{i}:1", NULL, NULL, NULL, 0,
     0, "needs the number of centers"},
    {"count without addresses", "", "worker", NULL, NULL, 2, 0, "no addresses"},
    {"which center", "", "center", NULL, "a:1,b:1", 0, 0, "set its index"},
    {"center beyond the list", "", "center", "2", "a:1,b:1", 0, 0,
     "center 2 of 2"},
    {"second chief", "", "chief", "1", "a:1", 0, 0, "one chief"},
    {"count that is no number", "HOOKE_CENTER_COUNT=two", NULL, NULL, NULL, 0,
     0, "HOOKE_CENTER_COUNT=\"two\""},
    {"port that is none", "HOOKE_PS_PORT=70000", NULL, NULL, NULL, 0, 0,
     "HOOKE_PS_PORT"},
    {"torchrun's rank", TORCH("4", "4", "0", "2"), NULL, NULL, NULL, 0, 0,
     "rank 4 of 4"},
    {"torchrun's centers on several nodes", TORCH("0", "4", "0", "2"), NULL,
     NULL, NULL, 3, 0, "the hosts of ranks 0 to 2"},
    {"torchrun's port",
     "RANK=0\nWORLD_SIZE=2\nGROUP_RANK=0\nLOCAL_RANK=0\nLOCAL_WORLD_SIZE=2\n"
     "MASTER_ADDR=a\nMASTER_PORT=65000\n",
     NULL, NULL, NULL, 0, 0, "HOOKE_PS_PORT"},
    {"torchrun without an address",
     "RANK=0\nWORLD_SIZE=2\nGROUP_RANK=0\nLOCAL_RANK=0\nLOCAL_WORLD_SIZE=2\n",
     NULL, NULL, NULL, 0, 0, "MASTER_ADDR"},
    {"Slurm's rank", SLURM("9", "4", "a", "4", "0"), NULL, NULL, NULL, 0, 0,
     "rank 9 of 4"},
    {"Slurm's list", SLURM("1", "4", "a[1-", "4", "0"), NULL, NULL, NULL, 0, 0,
     "']' is missing"},
    {"Slurm's counts", SLURM("1", "4", "a", "2(x2)", "0"), NULL, NULL, NULL, 0,
     0, "more than the 1 nodes"},
    {"Slurm on a node that the rule does not give",
     SLURM("1", "4", "n[1-2]", "2(x2)", "1"), NULL, NULL, NULL, 0, 0,
     "slurm does not name the hosts"},
    {"only centers", OMPI("1", "4", "4"), NULL, NULL, NULL, 4, 0,
     "leave no worker"},
    {"MPI on several hosts", OMPI("1", "4", "2"), NULL, NULL, NULL, 0, 0,
     "mpi does not name the hosts"},
    {"MPI with a hostfile that is not there",
     OMPI("1", "4", "2") "HOOKE_HOSTFILE=h\n", NULL, NULL, NULL, 0, 0,
     "No such file"},
    {"PMIx without a number", "PMIX_RANK=2\n", NULL, NULL, NULL, 0, 0,
     "PMIX_RANK"},
    {"negative rank", "PMI_RANK=-1\nPMI_SIZE=4\n", NULL, NULL, NULL, 0, 0,
     "PMI_RANK=\"-1\""},
};

static void test_contradictions(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(conflicts); i++) {
        const struct conflict *const k = &conflicts[i];
        world w = {.env = k->env};
        hk_cluster_options o;
        world_options(&w, &o);
        o.role = k->role;
        o.index = k->index;
        o.center = k->center;
        o.center_count = k->center_count;
        o.workers = k->workers;
        hk_cluster_config *c = NULL;
        const hk_status s = hk_cluster_config_create(&o, &c);
        if (s == HK_OK)
            fail_msg("%s: accepted:\n%s", k->name, explain_of(c));
        if (strstr(hk_last_error(), k->says) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", k->name, hk_last_error(),
                     k->says);
    }
}

static void test_explanation(void **state) {
    (void)state;
    world w = {.env = SLURM("4", "8", "n[1-4]", "2(x4)", "2")};
    hk_cluster_options o;
    world_options(&w, &o);
    o.center_count = 2;
    hk_cluster_config *c;
    assert_ok(hk_cluster_config_create(&o, &c));
    assert_string_equal(
        explain_of(c),
        "slurm: found, SLURM_PROCID=4, SLURM_NTASKS=8, job 20345\n"
        "ranks: 4 of 8, 2 centers as threads of the first ranks\n"
        "launcher: slurm\n"
        "task: worker 3\n"
        "workers: 8\n"
        "center 0: n1:12345\n"
        "center 1: n1:12346\n"
        "TF_CONFIG form: {\"cluster\": {\"chief\": [\"n1:0\"], \"ps\": "
        "[\"n1:12345\", \"n1:12346\"], \"worker\": [\"n1:0\", \"n2:0\", "
        "\"n2:0\", \"n3:0\", \"n3:0\", \"n4:0\", \"n4:0\"]}, \"task\": "
        "{\"type\": \"worker\", \"index\": 3}}\n");
    assert_string_equal(hk_cluster_config_address(c, "worker", 6), "n4:0");
    assert_null(hk_cluster_config_address(c, "worker", 7));
    assert_null(hk_cluster_config_address(c, "evaluator", 0));
    assert_null(hk_cluster_config_address(c, "ps", 2));
    hk_cluster_config_destroy(c);
    hk_cluster_config_destroy(NULL);
}

// ---- host lists ------------------------------------------------------------

static const struct list {
    const char *text;
    const char *expected; // names with blanks between; NULL: an error
} lists[] = {
    {"login1", "login1"},
    {"gnode[10,20-22],login1", "gnode10 gnode20 gnode21 gnode22 login1"},
    {"n[08-11]", "n08 n09 n10 n11"},
    {"n[008-010,2]", "n008 n009 n010 n2"},
    {"n[0-2]", "n0 n1 n2"},
    {"r[0-1]n[1-2]-ib", "r0n1-ib r0n2-ib r1n1-ib r1n2-ib"},
    {"a,b,a", "a b a"},
    {"[1-3]", "1 2 3"},
    {"x[99-101]", "x99 x100 x101"},
    {"a.b.c", "a.b.c"},
    {"", NULL},
    {",a", NULL},
    {"a,", NULL},
    {"a,,b", NULL},
    {"a[", NULL},
    {"a[]", NULL},
    {"a[1", NULL},
    {"a]1", NULL},
    {"a[1-]", NULL},
    {"a[-1]", NULL},
    {"a[2-1]", NULL},
    {"a[1,]", NULL},
    {"a[1;2]", NULL},
    {"a[[1]]", NULL},
    {"a b", NULL},
    {"a[0-65536]", NULL},
    {"a[0-9999]b[0-9999]", NULL},
    {"a[99999999999]", NULL},
    {"a[1]b[1]c[1]d[1]e[1]f[1]g[1]h[1]", "a1b1c1d1e1f1g1h1"},
    {"a[1]b[1]c[1]d[1]e[1]f[1]g[1]h[1]i[1]", NULL},
};

static void test_host_lists(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(lists); i++) {
        hki_arena a = {0};
        const char **host;
        uint32_t n;
        char joined[512] = "";
        const hk_status s = hki_hostlist_expand(&a, lists[i].text, &host, &n);
        for (uint32_t k = 0; s == HK_OK && k < n && k < 20; k++)
            snprintf(joined + strlen(joined), sizeof joined - strlen(joined),
                     "%s%s", k == 0 ? "" : " ", host[k]);
        if ((s == HK_OK) != (lists[i].expected != NULL) ||
            (s == HK_OK && strcmp(joined, lists[i].expected) != 0))
            fail_msg("\"%s\": %s \"%s\"", lists[i].text, hk_status_string(s),
                     s == HK_OK ? joined : hk_last_error());
        hki_arena_deinit(&a);
    }
    hki_arena a = {0};
    const char **host;
    uint32_t n;
    assert_ok(hki_hostlist_expand(&a, "a[1-65536]", &host, &n));
    assert_int_equal(n, 65536);
    assert_string_equal(host[65535], "a65536");
    hki_arena_deinit(&a);
}

static void test_tasks_per_node(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint32_t nodes;
        uint32_t expected[4]; // 0: an error
    } cases[] = {
        {"4(x2),3", 3, {4, 4, 3}},
        {"1", 1, {1}},
        {"2,1(x2),5", 4, {2, 1, 1, 5}},
        {"4(x2),3", 2, {0}},
        {"4", 2, {0}},
        {"", 1, {0}},
        {"x", 1, {0}},
        {"4(x)", 1, {0}},
        {"4(x2", 2, {0}},
        {"4(2)", 2, {0}},
        {"0", 1, {0}},
        {"4,", 1, {0}},
        {"4;4", 2, {0}},
        {"4(x4000000000)", 1, {0}},
        {"4(x0)", 1, {0}},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint32_t got[4] = {0};
        const hk_status s =
            hki_tasks_per_node(cases[i].text, cases[i].nodes, got);
        if (cases[i].expected[0] == 0) {
            if (s != HK_E_INVALID_ARG)
                fail_msg("\"%s\": accepted", cases[i].text);
            continue;
        }
        assert_ok(s);
        assert_memory_equal(got, cases[i].expected, sizeof got);
    }
}

static void test_hostfiles(void **state) {
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"a\nb slots=3\n", "a/1 b/3"},
        {"  a   max_slots=9 slots=2\r\n\n# none\nb:4 # four", "a/2 b/4"},
        {"a:2", "a/2"},
        {"", NULL},
        {"# nothing\n", NULL},
        {"a slots=x\n", NULL},
        {"a slots=0\n", NULL},
        {"a:\n", NULL},
        {"a/b\n", NULL},
        {"[1]\n", NULL},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hki_arena a = {0};
        const char **host;
        uint32_t *slots, n;
        char joined[256] = "";
        const hk_status s =
            hki_hostfile_parse(&a, cases[i].text, strlen(cases[i].text), "file",
                               &host, &slots, &n);
        for (uint32_t k = 0; s == HK_OK && k < n; k++)
            snprintf(joined + strlen(joined), sizeof joined - strlen(joined),
                     "%s%s/%u", k == 0 ? "" : " ", host[k], slots[k]);
        if ((s == HK_OK) != (cases[i].expected != NULL) ||
            (s == HK_OK && strcmp(joined, cases[i].expected) != 0))
            fail_msg("\"%s\": \"%s\"", cases[i].text,
                     s == HK_OK ? joined : hk_last_error());
        hki_arena_deinit(&a);
    }
    // More hosts than the first allocation holds keep their slots.
    hki_buf b = {0};
    for (uint32_t i = 0; i < 100; i++)
        assert_ok(hki_buf_printf(&b, "h%u slots=%u\n", i, i + 1));
    hki_arena a = {0};
    const char **host;
    uint32_t *slots, n;
    assert_ok(
        hki_hostfile_parse(&a, b.data, b.size, "file", &host, &slots, &n));
    assert_int_equal(n, 100);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(slots[i], i + 1);
    hki_arena_deinit(&a);
    hki_buf_deinit(&b);
}

// ---- memory ----------------------------------------------------------------

static hk_status create_one(void *user) {
    const struct launch *const l = user;
    world w = {.env = l->env, .file = l->file};
    hk_cluster_options o;
    launch_options(l, &w, &o);
    hk_cluster_config *c;
    HKI_TRY(hk_cluster_config_create(&o, &c));
    hk_cluster_config_destroy(c);
    return HK_OK;
}

static void test_memory(void **state) {
    (void)state;
    static const char *const names[] = {
        "dynamic worker", "stateful set", "torchrun rank 3",
        "Slurm rank 0 of 8 on 4 nodes", "hostfile"};
    for (size_t i = 0; i < HKI_COUNT(launches); i++)
        for (size_t k = 0; k < HKI_COUNT(names); k++)
            if (strcmp(launches[i].name, names[k]) == 0) {
                struct launch l = launches[i];
                hk_test_alloc_failures(l.name, create_one, &l);
            }
    hk_cluster_options o;
    hk_cluster_config *c;
    memset(&o, 0, sizeof o);
    assert_status(hk_cluster_config_create(&o, &c), HK_E_INVALID_ARG);
    assert_ok(hk_cluster_config_create(NULL, &c));
    hk_cluster_config_destroy(c);
    assert_null(hk_launcher_name((hk_launcher)77));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_config_view),
        cmocka_unit_test(test_tf_config_errors),
        cmocka_unit_test(test_launchers),
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_explanation),
        cmocka_unit_test(test_host_lists),
        cmocka_unit_test(test_tasks_per_node),
        cmocka_unit_test(test_hostfiles),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
